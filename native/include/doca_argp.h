/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command-line options of a program.
 *
 * The order is: doca_argp_init, create and register what the program takes, doca_argp_start, which
 * calls the callbacks of the options it finds, doca_argp_destroy. There is one parser per process,
 * used by one thread.
 *
 * An option is written -SHORT or --LONG, short names may have several letters. Its value, unless it
 * is BOOLEAN, is the next word or follows a '='. Every program also has -h/--help, -v/--version,
 * -l/--log-level LEVEL, --sdk-log-level LEVEL and -j/--json FILE, so that those names are taken.
 * Option files (-j) are not read by the emulator.
 */
#ifndef DOCA_ARGP_H_
#define DOCA_ARGP_H_

#include <stdarg.h>

#include <doca_compat.h>
#include <doca_dev.h>
#include <doca_error.h>
#include <doca_log.h>

#ifdef __cplusplus
extern "C" {
#endif

struct doca_argp_cmd;
struct doca_argp_param;

/*
 * What an option's callback gets a pointer to. The numbers from 4 on changed after DOCA 3.0: 4 was
 * JSON_OBJ. The emulator refuses values of 4 and 5.
 */
enum doca_argp_type {
	DOCA_ARGP_TYPE_UNKNOWN = 0,
	DOCA_ARGP_TYPE_STRING = 1,   /* char * */
	DOCA_ARGP_TYPE_INT = 2,	     /* int * */
	DOCA_ARGP_TYPE_BOOLEAN = 3,  /* bool *, true: takes no value on the command line */
	DOCA_ARGP_TYPE_JSON_OBJ = 4, /* up to 3.0 */
	DOCA_ARGP_TYPE_DEVICE = 4,   /* struct doca_argp_device_ctx * */
	DOCA_ARGP_TYPE_DEVICE_REP = 5,
	DOCA_ARGP_TYPE_DOUBLE = 6, /* double * */
};

/* A device given as an option, and what followed its name. */
struct doca_argp_device_ctx {
	struct doca_dev *dev;
	const char *devargs;
};

/* A representor given as an option, and the device it is of. */
struct doca_argp_device_rep_ctx {
	struct doca_argp_device_ctx dev_ctx;
	struct doca_dev_rep *dev_rep;
};

/** Takes an option: its value, which lives until the callback returns, and the program's config. */
typedef doca_error_t (*doca_argp_param_cb_t)(void *, void *);

/** Takes a command: the program's config. */
typedef doca_error_t (*doca_argp_cmd_cb_t)(void *);

/** Takes the words in front of `--`, argv[0] included. */
typedef doca_error_t (*doca_argp_dpdk_cb_t)(int argc, char **argv);

/** Looks at the program's config after all options. */
typedef doca_error_t (*doca_argp_validation_cb_t)(void *);

/** Takes a message for the user. */
typedef doca_error_t (*doca_argp_logger_cb_t)(enum doca_log_level level, const char *format,
					      va_list args);

/**
 * Begin: all other calls need it.
 * @param[in] program_name for the usage text, copied; NULL: from argv[0]
 * @param[in] program_config handed to callbacks; the caller's
 * @retval DOCA_ERROR_BAD_STATE already begun
 * @retval DOCA_ERROR_NO_MEMORY
 */
DOCA_EXPERIMENTAL
doca_error_t
doca_argp_init(const char *program_name, void *program_config);

/**
 * Free everything that was registered.
 * @retval DOCA_ERROR_BAD_STATE not begun
 */
DOCA_EXPERIMENTAL
doca_error_t
doca_argp_destroy(void);

/**
 * Read the command line and call the callbacks: those of the options in their order, then that for
 * validation, then those of the commands, outermost first, then that for the words of another
 * library. The first code that a callback fails with is returned at once.
 * `-h` prints the usage text, `-v` the version; both end the process with status 0.
 * @retval DOCA_ERROR_BAD_STATE not begun
 * @retval DOCA_ERROR_NOT_SUPPORTED an option or command that nobody registered, or a value of a
 *         type the emulator has not; an option file that exists
 * @retval DOCA_ERROR_INVALID_VALUE no or a bad value; an option that is missing, comes twice, or
 *         came with a singular one; a stray word
 * @retval DOCA_ERROR_IO_FAILED an option file that cannot be opened
 * @retval DOCA_ERROR_NO_MEMORY
 */
DOCA_EXPERIMENTAL
doca_error_t
doca_argp_start(int argc, char **argv);

/** Print the usage text to stdout and end the process with status 0. */
DOCA_EXPERIMENTAL
void
doca_argp_usage(void);

/**
 * Create an option, the caller's until it is registered.
 * @retval DOCA_ERROR_INVALID_VALUE
 * @retval DOCA_ERROR_BAD_STATE not begun
 * @retval DOCA_ERROR_NO_MEMORY
 */
DOCA_EXPERIMENTAL
doca_error_t
doca_argp_param_create(struct doca_argp_param **param);

/**
 * Destroy an option that was not registered.
 * @retval DOCA_ERROR_INVALID_VALUE
 * @retval DOCA_ERROR_BAD_STATE it is registered
 */
DOCA_EXPERIMENTAL
doca_error_t
doca_argp_param_destroy(struct doca_argp_param *param);

/**
 * Let the program take an option. It is the library's from here on, also after a failure.
 * @retval DOCA_ERROR_INVALID_VALUE
 * @retval DOCA_ERROR_BAD_STATE not begun; it, or one of that name, is registered
 * @retval DOCA_ERROR_INITIALIZATION it has no name, description, type or callback
 * @retval DOCA_ERROR_NO_MEMORY one of its texts could not be kept
 */
DOCA_EXPERIMENTAL
doca_error_t
doca_argp_register_param(struct doca_argp_param *input_param);

/** Set the name that is written with one dash; may have several letters. Copied. */
DOCA_EXPERIMENTAL
void
doca_argp_param_set_short_name(struct doca_argp_param *param, const char *name);

/** Set the name that is written with two dashes. Copied. */
DOCA_EXPERIMENTAL
void
doca_argp_param_set_long_name(struct doca_argp_param *param, const char *name);

/** Set what the usage text shows for the value. Copied. */
DOCA_EXPERIMENTAL
void
doca_argp_param_set_arguments(struct doca_argp_param *param, const char *arguments);

/** Set what the usage text says. Copied. */
DOCA_EXPERIMENTAL
void
doca_argp_param_set_description(struct doca_argp_param *param, const char *description);

/** Set who gets the value. */
DOCA_EXPERIMENTAL
void
doca_argp_param_set_callback(struct doca_argp_param *param, doca_argp_param_cb_t callback);

/** Set what the value is. */
DOCA_EXPERIMENTAL
void
doca_argp_param_set_type(struct doca_argp_param *param, enum doca_argp_type type);

/** Make start fail when the option is not given. */
DOCA_EXPERIMENTAL
void
doca_argp_param_set_mandatory(struct doca_argp_param *param);

/** Take the option from the command line only, not from an option file. */
DOCA_EXPERIMENTAL
void
doca_argp_param_set_cli_only(struct doca_argp_param *param);

/** Let the option come more than once. */
DOCA_EXPERIMENTAL
void
doca_argp_param_set_multiplicity(struct doca_argp_param *param);

/** Let the option come only without any other. */
DOCA_EXPERIMENTAL
void
doca_argp_param_set_singular(struct doca_argp_param *param);

/** Let the commands below take the option, too. */
DOCA_EXPERIMENTAL
void
doca_argp_param_set_inherited(struct doca_argp_param *param);

/** Leave the option out of the usage text. */
DOCA_EXPERIMENTAL
void
doca_argp_param_set_hidden(struct doca_argp_param *param);

/**
 * Create a command, the caller's until it is registered.
 * @retval DOCA_ERROR_INVALID_VALUE
 * @retval DOCA_ERROR_BAD_STATE not begun
 * @retval DOCA_ERROR_NO_MEMORY
 */
DOCA_EXPERIMENTAL
doca_error_t
doca_argp_cmd_create(struct doca_argp_cmd **cmd);

/**
 * Destroy a command that was not registered, with all that was registered in it.
 * @retval DOCA_ERROR_INVALID_VALUE
 * @retval DOCA_ERROR_BAD_STATE it is registered
 */
DOCA_EXPERIMENTAL
doca_error_t
doca_argp_cmd_destroy(struct doca_argp_cmd *cmd);

/**
 * Let the program take a command: a word that chooses which options may follow. It is the
 * library's from here on, also after a failure.
 * @retval DOCA_ERROR_INVALID_VALUE
 * @retval DOCA_ERROR_BAD_STATE not begun; it, or one of that name, is registered
 * @retval DOCA_ERROR_INITIALIZATION it has no name or description
 * @retval DOCA_ERROR_NO_MEMORY one of its texts could not be kept
 */
DOCA_EXPERIMENTAL
doca_error_t
doca_argp_register_cmd(struct doca_argp_cmd *input_cmd);

/** As doca_argp_register_cmd, for a command below another. */
DOCA_EXPERIMENTAL
doca_error_t
doca_argp_cmd_register_cmd(struct doca_argp_cmd *cmd, struct doca_argp_cmd *input_cmd);

/** As doca_argp_register_param, for an option behind a command. */
DOCA_EXPERIMENTAL
doca_error_t
doca_argp_cmd_register_param(struct doca_argp_cmd *cmd, struct doca_argp_param *input_param);

/** Set the word that chooses the command. Copied. */
DOCA_EXPERIMENTAL
void
doca_argp_cmd_set_name(struct doca_argp_cmd *cmd, const char *name);

/** Set what the usage text says. Copied. */
DOCA_EXPERIMENTAL
void
doca_argp_cmd_set_description(struct doca_argp_cmd *cmd, const char *description);

/** Set who is called when the command was given; optional. */
DOCA_EXPERIMENTAL
void
doca_argp_cmd_set_callback(struct doca_argp_cmd *cmd, doca_argp_cmd_cb_t callback);

/** Leave the command out of the usage text. */
DOCA_EXPERIMENTAL
void
doca_argp_cmd_set_hidden(struct doca_argp_cmd *cmd);

/**
 * Be called after all options, with the program's config.
 * @retval DOCA_ERROR_INVALID_VALUE
 * @retval DOCA_ERROR_BAD_STATE not begun
 */
DOCA_EXPERIMENTAL
doca_error_t
doca_argp_register_validation_callback(doca_argp_validation_cb_t callback);

/**
 * Be called for -v instead of printing the version of the library, with a bool and the program's
 * config; the process ends when the callback returns.
 * @retval DOCA_ERROR_INVALID_VALUE
 * @retval DOCA_ERROR_BAD_STATE not begun
 */
DOCA_EXPERIMENTAL
doca_error_t
doca_argp_register_version_callback(doca_argp_param_cb_t callback);

/**
 * Take the messages for the user, which else go to stderr.
 * @retval DOCA_ERROR_INVALID_VALUE
 * @retval DOCA_ERROR_BAD_STATE not begun
 * @retval DOCA_ERROR_ALREADY_EXIST there is one
 */
DOCA_EXPERIMENTAL
doca_error_t
doca_argp_register_logger_callback(doca_argp_logger_cb_t callback);

/**
 * Let the messages go to stderr again.
 * @retval DOCA_ERROR_BAD_STATE not begun, or there is none
 */
DOCA_EXPERIMENTAL
doca_error_t
doca_argp_disable_logger_callback(void);

/** Leave the words in front of `--` (without one: all) to this callback; they live until destroy. */
DOCA_EXPERIMENTAL
void
doca_argp_set_dpdk_program(doca_argp_dpdk_cb_t callback);

/**
 * The level that -l set, else that of the program.
 * @retval DOCA_ERROR_INVALID_VALUE
 * @retval DOCA_ERROR_BAD_STATE not begun
 */
DOCA_EXPERIMENTAL
doca_error_t
doca_argp_get_log_level(int *log_level);

/** As doca_argp_get_log_level, for --sdk-log-level. */
DOCA_EXPERIMENTAL
doca_error_t
doca_argp_get_sdk_log_level(int *log_level);

#ifdef __cplusplus
}
#endif

#endif /* DOCA_ARGP_H_ */
