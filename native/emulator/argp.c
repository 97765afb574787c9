/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doca_argp.h: options and commands of a program.
 *
 * One parser per process, a tree: the root holds the program's options and commands, a command
 * holds those that may follow it. What is registered belongs to the tree, also after a failure;
 * doca_argp_destroy frees it. This is the one file of the emulator that prints and ends the process:
 * it is what the user asked for on the command line.
 */
#include "emu.h"

#include <doca_argp.h>

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAGIC_PARAM 0x0e5d0020u
#define MAGIC_CMD 0x0e5d0021u

/*
 *            register (ok)
 *   CREATED ---------------> REGISTERED --- doca_argp_destroy ---+
 *      |                                                         v
 *      +--- destroy, or a register that fails ----------------> dead
 */
struct doca_argp_param {
	struct emu_object object;
	struct doca_argp_param *next;
	char *short_name;
	char *long_name;
	char *arguments;
	char *description;
	doca_argp_param_cb_t callback;
	enum doca_argp_type type;
	bool mandatory;
	bool multiple;
	bool singular;
	bool inherited;
	bool hidden;
	bool lost; /* a text could not be kept */
	bool registered;
	unsigned int seen; /* times on the command line */
};

struct doca_argp_cmd {
	struct emu_object object;
	struct doca_argp_cmd *next;
	struct doca_argp_cmd *parent; /* while registered */
	char *name;
	char *description;
	doca_argp_cmd_cb_t callback;
	bool hidden;
	bool lost;
	bool registered;
	struct doca_argp_param *params;
	struct doca_argp_cmd *cmds;
};

static struct {
	bool begun;
	char *name;
	void *config;
	struct doca_argp_cmd root;
	struct doca_argp_cmd *chosen;
	doca_argp_validation_cb_t validate;
	doca_argp_param_cb_t version;
	doca_argp_logger_cb_t logger;
	doca_argp_dpdk_cb_t foreign;
	char **foreign_argv;
} argp;

/* The options that every program has. */
enum builtin { BUILTIN_HELP, BUILTIN_VERSION, BUILTIN_LOG, BUILTIN_SDK_LOG, BUILTIN_JSON };

static const struct {
	const char *short_name;
	const char *long_name;
	const char *arguments;
	const char *description;
} builtins[] = {
	[BUILTIN_HELP] = {"h", "help", NULL, "show this text and end"},
	[BUILTIN_VERSION] = {"v", "version", NULL, "show the version and end"},
	[BUILTIN_LOG] = {"l", "log-level", "LEVEL",
			 "least severe level of the program's log: 10 none, 20 critical, 30 error,"
			 " 40 warning, 50 info, 60 debug, 70 trace"},
	[BUILTIN_SDK_LOG] = {NULL, "sdk-log-level", "LEVEL", "the same for the library's log"},
	[BUILTIN_JSON] = {"j", "json", "FILE", "read the options from a file (not supported)"},
};

#define NUM_BUILTINS (sizeof(builtins) / sizeof(builtins[0]))

/* Tell the user something. */
static void __attribute__((format(printf, 2, 3)))
say(enum doca_log_level level, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	if (argp.logger != NULL) {
		argp.logger(level, format, args);
	} else {
		vfprintf(stderr, format, args);
		fputc('\n', stderr);
	}
	va_end(args);
}

/* Keep a copy of a text; NULL forgets it. */
static void
set_text(char **text, const char *value, bool *lost)
{
	char *copy = value != NULL ? strdup(value) : NULL;

	if (value != NULL && copy == NULL) {
		*lost = true;
		return;
	}
	free(*text);
	*text = copy;
}

static bool
same(const char *a, const char *b)
{
	return a != NULL && b != NULL && strcmp(a, b) == 0;
}

/* ---- options ---- */

static void
free_param(struct doca_argp_param *param)
{
	free(param->short_name);
	free(param->long_name);
	free(param->arguments);
	free(param->description);
	emu_retire(param, sizeof(*param));
}

doca_error_t
doca_argp_param_create(struct doca_argp_param **param)
{
	struct doca_argp_param *new_param;

	EMU_ENTER("argp_param_create");
	EMU_CHECK_OUT(param);
	if (!argp.begun) {
		return DOCA_ERROR_BAD_STATE;
	}
	new_param = calloc(1, sizeof(*new_param));
	if (new_param == NULL) {
		return DOCA_ERROR_NO_MEMORY;
	}
	new_param->object.magic = MAGIC_PARAM;
	*param = new_param;
	return DOCA_SUCCESS;
}

doca_error_t
doca_argp_param_destroy(struct doca_argp_param *param)
{
	EMU_ENTER("argp_param_destroy");
	EMU_CHECK(param, MAGIC_PARAM);
	if (param->registered) {
		return DOCA_ERROR_BAD_STATE;
	}
	free_param(param);
	return DOCA_SUCCESS;
}

/* Leave a setter unless the object is what it should be. */
#define CHECK_OR_RETURN(object, magic) \
	do { \
		if (doca_unlikely(!emu_is((object), (magic)))) { \
			emu_bad_object(__func__, (object), (magic)); \
			return; \
		} \
	} while (0)

void
doca_argp_param_set_short_name(struct doca_argp_param *param, const char *name)
{
	CHECK_OR_RETURN(param, MAGIC_PARAM);
	set_text(&param->short_name, name, &param->lost);
}

void
doca_argp_param_set_long_name(struct doca_argp_param *param, const char *name)
{
	CHECK_OR_RETURN(param, MAGIC_PARAM);
	set_text(&param->long_name, name, &param->lost);
}

void
doca_argp_param_set_arguments(struct doca_argp_param *param, const char *arguments)
{
	CHECK_OR_RETURN(param, MAGIC_PARAM);
	set_text(&param->arguments, arguments, &param->lost);
}

void
doca_argp_param_set_description(struct doca_argp_param *param, const char *description)
{
	CHECK_OR_RETURN(param, MAGIC_PARAM);
	set_text(&param->description, description, &param->lost);
}

void
doca_argp_param_set_callback(struct doca_argp_param *param, doca_argp_param_cb_t callback)
{
	CHECK_OR_RETURN(param, MAGIC_PARAM);
	param->callback = callback;
}

void
doca_argp_param_set_type(struct doca_argp_param *param, enum doca_argp_type type)
{
	CHECK_OR_RETURN(param, MAGIC_PARAM);
	param->type = type;
}

void
doca_argp_param_set_mandatory(struct doca_argp_param *param)
{
	CHECK_OR_RETURN(param, MAGIC_PARAM);
	param->mandatory = true;
}

void
doca_argp_param_set_cli_only(struct doca_argp_param *param)
{
	/* Nothing to note: there is only the command line. */
	CHECK_OR_RETURN(param, MAGIC_PARAM);
}

void
doca_argp_param_set_multiplicity(struct doca_argp_param *param)
{
	CHECK_OR_RETURN(param, MAGIC_PARAM);
	param->multiple = true;
}

void
doca_argp_param_set_singular(struct doca_argp_param *param)
{
	CHECK_OR_RETURN(param, MAGIC_PARAM);
	param->singular = true;
}

void
doca_argp_param_set_inherited(struct doca_argp_param *param)
{
	CHECK_OR_RETURN(param, MAGIC_PARAM);
	param->inherited = true;
}

void
doca_argp_param_set_hidden(struct doca_argp_param *param)
{
	CHECK_OR_RETURN(param, MAGIC_PARAM);
	param->hidden = true;
}

static bool
is_name(const char *name)
{
	return name == NULL || (name[0] != '\0' && name[0] != '-' && strchr(name, '=') == NULL);
}

/* Whether an option may go into a command. */
static doca_error_t
check_param(const struct doca_argp_cmd *cmd, const struct doca_argp_param *param)
{
	if (param->lost) {
		return DOCA_ERROR_NO_MEMORY;
	}
	if ((param->short_name == NULL && param->long_name == NULL) || param->description == NULL ||
	    param->callback == NULL || param->type == DOCA_ARGP_TYPE_UNKNOWN) {
		return DOCA_ERROR_INITIALIZATION;
	}
	if (!is_name(param->short_name) || !is_name(param->long_name) ||
	    param->type > DOCA_ARGP_TYPE_DOUBLE) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	for (size_t i = 0; i < NUM_BUILTINS; i++) {
		if (same(param->short_name, builtins[i].short_name) ||
		    same(param->long_name, builtins[i].long_name)) {
			return DOCA_ERROR_BAD_STATE;
		}
	}
	for (const struct doca_argp_param *other = cmd->params; other != NULL;
	     other = other->next) {
		if (same(param->short_name, other->short_name) ||
		    same(param->long_name, other->long_name)) {
			return DOCA_ERROR_BAD_STATE;
		}
	}
	return DOCA_SUCCESS;
}

/* Hang an option behind the others of a command, or free it. */
static doca_error_t
add_param(struct doca_argp_cmd *cmd, struct doca_argp_param *param)
{
	struct doca_argp_param **link = &cmd->params;
	doca_error_t result;

	if (param->registered) {
		/* It is in a list, so it is not to be freed here. */
		return DOCA_ERROR_BAD_STATE;
	}
	result = argp.begun ? check_param(cmd, param) : DOCA_ERROR_BAD_STATE;
	if (result != DOCA_SUCCESS) {
		free_param(param);
		return result;
	}
	while (*link != NULL) {
		link = &(*link)->next;
	}
	*link = param;
	param->registered = true;
	return DOCA_SUCCESS;
}

doca_error_t
doca_argp_register_param(struct doca_argp_param *input_param)
{
	EMU_ENTER("argp_register_param");
	EMU_CHECK(input_param, MAGIC_PARAM);
	return add_param(&argp.root, input_param);
}

/* ---- commands ---- */

/* Free what hangs in a command. */
static void
clear_cmd(struct doca_argp_cmd *cmd)
{
	while (cmd->params != NULL) {
		struct doca_argp_param *param = cmd->params;

		cmd->params = param->next;
		free_param(param);
	}
	while (cmd->cmds != NULL) {
		struct doca_argp_cmd *child = cmd->cmds;

		cmd->cmds = child->next;
		clear_cmd(child);
		emu_retire(child, sizeof(*child));
	}
	free(cmd->name);
	free(cmd->description);
	cmd->name = NULL;
	cmd->description = NULL;
}

doca_error_t
doca_argp_cmd_create(struct doca_argp_cmd **cmd)
{
	struct doca_argp_cmd *new_cmd;

	EMU_ENTER("argp_cmd_create");
	EMU_CHECK_OUT(cmd);
	if (!argp.begun) {
		return DOCA_ERROR_BAD_STATE;
	}
	new_cmd = calloc(1, sizeof(*new_cmd));
	if (new_cmd == NULL) {
		return DOCA_ERROR_NO_MEMORY;
	}
	new_cmd->object.magic = MAGIC_CMD;
	*cmd = new_cmd;
	return DOCA_SUCCESS;
}

doca_error_t
doca_argp_cmd_destroy(struct doca_argp_cmd *cmd)
{
	EMU_ENTER("argp_cmd_destroy");
	EMU_CHECK(cmd, MAGIC_CMD);
	if (cmd->registered) {
		return DOCA_ERROR_BAD_STATE;
	}
	clear_cmd(cmd);
	emu_retire(cmd, sizeof(*cmd));
	return DOCA_SUCCESS;
}

void
doca_argp_cmd_set_name(struct doca_argp_cmd *cmd, const char *name)
{
	CHECK_OR_RETURN(cmd, MAGIC_CMD);
	set_text(&cmd->name, name, &cmd->lost);
}

void
doca_argp_cmd_set_description(struct doca_argp_cmd *cmd, const char *description)
{
	CHECK_OR_RETURN(cmd, MAGIC_CMD);
	set_text(&cmd->description, description, &cmd->lost);
}

void
doca_argp_cmd_set_callback(struct doca_argp_cmd *cmd, doca_argp_cmd_cb_t callback)
{
	CHECK_OR_RETURN(cmd, MAGIC_CMD);
	cmd->callback = callback;
}

void
doca_argp_cmd_set_hidden(struct doca_argp_cmd *cmd)
{
	CHECK_OR_RETURN(cmd, MAGIC_CMD);
	cmd->hidden = true;
}

static struct doca_argp_cmd *
find_cmd(const struct doca_argp_cmd *parent, const char *name)
{
	struct doca_argp_cmd *cmd = parent->cmds;

	while (cmd != NULL && !same(cmd->name, name)) {
		cmd = cmd->next;
	}
	return cmd;
}

/* Hang a command behind the others of its parent, or free it. */
static doca_error_t
add_cmd(struct doca_argp_cmd *parent, struct doca_argp_cmd *cmd)
{
	struct doca_argp_cmd **link = &parent->cmds;
	doca_error_t result = DOCA_SUCCESS;

	for (const struct doca_argp_cmd *above = parent; above != NULL; above = above->parent) {
		if (above == cmd) {
			return DOCA_ERROR_BAD_STATE;
		}
	}
	if (cmd->registered) {
		return DOCA_ERROR_BAD_STATE;
	}
	if (!argp.begun) {
		result = DOCA_ERROR_BAD_STATE;
	} else if (cmd->lost) {
		result = DOCA_ERROR_NO_MEMORY;
	} else if (cmd->name == NULL || cmd->description == NULL) {
		result = DOCA_ERROR_INITIALIZATION;
	} else if (!is_name(cmd->name)) {
		result = DOCA_ERROR_INVALID_VALUE;
	} else if (find_cmd(parent, cmd->name) != NULL) {
		result = DOCA_ERROR_BAD_STATE;
	}
	if (result != DOCA_SUCCESS) {
		clear_cmd(cmd);
		emu_retire(cmd, sizeof(*cmd));
		return result;
	}
	while (*link != NULL) {
		link = &(*link)->next;
	}
	*link = cmd;
	cmd->parent = parent;
	cmd->registered = true;
	return DOCA_SUCCESS;
}

doca_error_t
doca_argp_register_cmd(struct doca_argp_cmd *input_cmd)
{
	EMU_ENTER("argp_register_cmd");
	EMU_CHECK(input_cmd, MAGIC_CMD);
	return add_cmd(&argp.root, input_cmd);
}

doca_error_t
doca_argp_cmd_register_cmd(struct doca_argp_cmd *cmd, struct doca_argp_cmd *input_cmd)
{
	EMU_ENTER("argp_cmd_register_cmd");
	EMU_CHECK(cmd, MAGIC_CMD);
	EMU_CHECK(input_cmd, MAGIC_CMD);
	return add_cmd(cmd, input_cmd);
}

doca_error_t
doca_argp_cmd_register_param(struct doca_argp_cmd *cmd, struct doca_argp_param *input_param)
{
	EMU_ENTER("argp_cmd_register_param");
	EMU_CHECK(cmd, MAGIC_CMD);
	EMU_CHECK(input_param, MAGIC_PARAM);
	return add_param(cmd, input_param);
}

/* ---- the parser ---- */

doca_error_t
doca_argp_init(const char *program_name, void *program_config)
{
	EMU_ENTER("argp_init");
	if (argp.begun) {
		return DOCA_ERROR_BAD_STATE;
	}
	if (program_name != NULL) {
		argp.name = strdup(program_name);
		if (argp.name == NULL) {
			return DOCA_ERROR_NO_MEMORY;
		}
	}
	argp.config = program_config;
	argp.chosen = &argp.root;
	argp.begun = true;
	return DOCA_SUCCESS;
}

doca_error_t
doca_argp_destroy(void)
{
	EMU_ENTER("argp_destroy");
	if (!argp.begun) {
		return DOCA_ERROR_BAD_STATE;
	}
	clear_cmd(&argp.root);
	free(argp.name);
	free(argp.foreign_argv);
	memset(&argp, 0, sizeof(argp));
	return DOCA_SUCCESS;
}

doca_error_t
doca_argp_register_validation_callback(doca_argp_validation_cb_t callback)
{
	EMU_ENTER("argp_register_validation_callback");
	EMU_CHECK_OUT(callback);
	if (!argp.begun) {
		return DOCA_ERROR_BAD_STATE;
	}
	argp.validate = callback;
	return DOCA_SUCCESS;
}

doca_error_t
doca_argp_register_version_callback(doca_argp_param_cb_t callback)
{
	EMU_ENTER("argp_register_version_callback");
	EMU_CHECK_OUT(callback);
	if (!argp.begun) {
		return DOCA_ERROR_BAD_STATE;
	}
	argp.version = callback;
	return DOCA_SUCCESS;
}

doca_error_t
doca_argp_register_logger_callback(doca_argp_logger_cb_t callback)
{
	EMU_ENTER("argp_register_logger_callback");
	EMU_CHECK_OUT(callback);
	if (!argp.begun) {
		return DOCA_ERROR_BAD_STATE;
	}
	if (argp.logger != NULL) {
		return DOCA_ERROR_ALREADY_EXIST;
	}
	argp.logger = callback;
	return DOCA_SUCCESS;
}

doca_error_t
doca_argp_disable_logger_callback(void)
{
	EMU_ENTER("argp_disable_logger_callback");
	if (!argp.begun || argp.logger == NULL) {
		return DOCA_ERROR_BAD_STATE;
	}
	argp.logger = NULL;
	return DOCA_SUCCESS;
}

void
doca_argp_set_dpdk_program(doca_argp_dpdk_cb_t callback)
{
	if (argp.begun) {
		argp.foreign = callback;
	}
}

doca_error_t
doca_argp_get_log_level(int *log_level)
{
	EMU_ENTER("argp_get_log_level");
	EMU_CHECK_OUT(log_level);
	if (!argp.begun) {
		return DOCA_ERROR_BAD_STATE;
	}
	*log_level = (int)doca_log_level_get_global_lower_limit();
	return DOCA_SUCCESS;
}

doca_error_t
doca_argp_get_sdk_log_level(int *log_level)
{
	EMU_ENTER("argp_get_sdk_log_level");
	EMU_CHECK_OUT(log_level);
	if (!argp.begun) {
		return DOCA_ERROR_BAD_STATE;
	}
	*log_level = (int)doca_log_level_get_global_sdk_limit();
	return DOCA_SUCCESS;
}

/* ---- the usage text ---- */

static void
print_option(const char *short_name, const char *long_name, const char *arguments,
	     const char *description)
{
	char left[128];

	snprintf(left, sizeof(left), "%s%s%s%s%s%s%s", short_name != NULL ? "-" : "",
		 short_name != NULL ? short_name : "",
		 short_name != NULL && long_name != NULL ? ", " : "", long_name != NULL ? "--" : "",
		 long_name != NULL ? long_name : "", arguments != NULL ? " " : "",
		 arguments != NULL ? arguments : "");
	printf("  %-32s  %s\n", left, description);
}

/* Print the words that lead to a command. */
static void
print_path(const struct doca_argp_cmd *cmd)
{
	if (cmd->parent != NULL) {
		print_path(cmd->parent);
		printf(" %s", cmd->name);
	} else {
		printf("%s", argp.name != NULL ? argp.name : "program");
	}
}

static void
print_usage(const struct doca_argp_cmd *cmd)
{
	printf("usage: ");
	print_path(cmd);
	printf("%s%s\n\ncommon options:\n",
	       argp.foreign != NULL ? " [OTHER LIBRARY'S OPTIONS] -- [OPTIONS]" : " [OPTIONS]",
	       cmd->cmds != NULL ? " COMMAND" : "");
	for (size_t i = 0; i < NUM_BUILTINS; i++) {
		print_option(builtins[i].short_name, builtins[i].long_name, builtins[i].arguments,
			     builtins[i].description);
	}
	printf("\noptions:\n");
	for (const struct doca_argp_cmd *at = cmd; at != NULL; at = at->parent) {
		for (const struct doca_argp_param *param = at->params; param != NULL;
		     param = param->next) {
			if (!param->hidden && (at == cmd || param->inherited)) {
				const char *value =
					param->type == DOCA_ARGP_TYPE_BOOLEAN ? NULL : "VALUE";

				print_option(param->short_name, param->long_name,
					     param->arguments != NULL ? param->arguments : value,
					     param->description);
			}
		}
	}
	if (cmd->cmds != NULL) {
		printf("\ncommands:\n");
	}
	for (const struct doca_argp_cmd *child = cmd->cmds; child != NULL; child = child->next) {
		if (!child->hidden) {
			printf("  %-32s  %s\n", child->name, child->description);
		}
	}
}

void
doca_argp_usage(void)
{
	print_usage(argp.begun ? argp.chosen : &argp.root);
	exit(EXIT_SUCCESS);
}

/* ---- the command line ---- */

static struct doca_argp_param *
find_param(struct doca_argp_cmd *cmd, const char *name, bool is_long)
{
	for (struct doca_argp_cmd *at = cmd; at != NULL; at = at->parent) {
		for (struct doca_argp_param *param = at->params; param != NULL;
		     param = param->next) {
			if ((at == cmd || param->inherited) &&
			    same(is_long ? param->long_name : param->short_name, name)) {
				return param;
			}
		}
	}
	return NULL;
}

static doca_error_t
parse_int(const char *text, int *value)
{
	char *end;
	long number;

	errno = 0;
	number = strtol(text, &end, 10);
	if (end == text || *end != '\0' || errno != 0 || number < INT_MIN || number > INT_MAX) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	*value = (int)number;
	return DOCA_SUCCESS;
}

static doca_error_t
show_version(void)
{
	bool yes = true;
	doca_error_t result = DOCA_SUCCESS;

	if (argp.version != NULL) {
		result = argp.version(&yes, argp.config);
	} else {
		printf("DOCA %s (emulator)\n", doca_version_runtime());
	}
	if (result == DOCA_SUCCESS) {
		exit(EXIT_SUCCESS);
	}
	return result;
}

/* Serve an option that every program has. */
static doca_error_t
run_builtin(enum builtin builtin, const char *value)
{
	doca_error_t result;
	int level;

	switch (builtin) {
	case BUILTIN_HELP:
		doca_argp_usage();
		return DOCA_SUCCESS;
	case BUILTIN_VERSION:
		return show_version();
	case BUILTIN_JSON:
		if (access(value, R_OK) != 0) {
			say(DOCA_LOG_LEVEL_ERROR, "%s: %s", value, strerror(errno));
			return DOCA_ERROR_IO_FAILED;
		}
		say(DOCA_LOG_LEVEL_ERROR, "option files are not supported by the emulator");
		return DOCA_ERROR_NOT_SUPPORTED;
	case BUILTIN_LOG:
	case BUILTIN_SDK_LOG:
	default:
		result = parse_int(value, &level);
		if (result == DOCA_SUCCESS) {
			result = builtin == BUILTIN_LOG
					 ? doca_log_level_set_global_lower_limit((uint32_t)level)
					 : doca_log_level_set_global_sdk_limit((uint32_t)level);
		}
		if (result != DOCA_SUCCESS) {
			say(DOCA_LOG_LEVEL_ERROR, "--%s: '%s' is no level",
			    builtins[builtin].long_name, value);
		}
		return result;
	}
}

/* Hand an option's value to its callback. */
static doca_error_t
run_param(struct doca_argp_param *param, const char *word, char *value)
{
	doca_error_t result = DOCA_SUCCESS;
	bool yes = true;
	double real;
	int number;
	char *end;

	if (param->seen++ != 0 && !param->multiple) {
		say(DOCA_LOG_LEVEL_ERROR, "%s: may be given only once", word);
		return DOCA_ERROR_INVALID_VALUE;
	}
	switch ((int)param->type) {
	case DOCA_ARGP_TYPE_STRING:
		return param->callback(value, argp.config);
	case DOCA_ARGP_TYPE_BOOLEAN:
		return param->callback(&yes, argp.config);
	case DOCA_ARGP_TYPE_INT:
		result = parse_int(value, &number);
		if (result == DOCA_SUCCESS) {
			return param->callback(&number, argp.config);
		}
		break;
	case DOCA_ARGP_TYPE_DOUBLE:
		real = strtod(value, &end);
		if (end != value && *end == '\0') {
			return param->callback(&real, argp.config);
		}
		result = DOCA_ERROR_INVALID_VALUE;
		break;
	default:
		say(DOCA_LOG_LEVEL_ERROR, "%s: this type is not supported by the emulator", word);
		return DOCA_ERROR_NOT_SUPPORTED;
	}
	say(DOCA_LOG_LEVEL_ERROR, "%s: '%s' is no number", word, value);
	return result;
}

/*
 * Read one option, and its value from the next word if need be.
 *
 * @param[in,out] at the word; moved on when the value is the next one
 */
static doca_error_t
read_option(char **argv, int argc, int *at)
{
	const char *word = argv[*at];
	bool is_long = word[1] == '-';
	const char *name = word + (is_long ? 2 : 1);
	char *value = strchr(argv[*at], '=');
	size_t builtin = NUM_BUILTINS;
	struct doca_argp_param *param = NULL;
	char key[128];
	size_t len = value != NULL ? (size_t)(value - name) : strlen(name);
	bool takes_value;

	if (len != 0 && len < sizeof(key)) {
		memcpy(key, name, len);
		key[len] = '\0';
		for (builtin = 0; builtin < NUM_BUILTINS; builtin++) {
			if (same(is_long ? builtins[builtin].long_name
					 : builtins[builtin].short_name,
				 key)) {
				break;
			}
		}
		if (builtin == NUM_BUILTINS) {
			param = find_param(argp.chosen, key, is_long);
		}
	}
	if (builtin == NUM_BUILTINS && param == NULL) {
		say(DOCA_LOG_LEVEL_ERROR, "%s: no such option", word);
		return DOCA_ERROR_NOT_SUPPORTED;
	}
	takes_value = param != NULL ? param->type != DOCA_ARGP_TYPE_BOOLEAN
				    : builtins[builtin].arguments != NULL;
	if (value != NULL) {
		value++;
		if (!takes_value) {
			say(DOCA_LOG_LEVEL_ERROR, "%s: takes no value", word);
			return DOCA_ERROR_INVALID_VALUE;
		}
	} else if (takes_value) {
		if (*at + 1 >= argc) {
			say(DOCA_LOG_LEVEL_ERROR, "%s: its value is missing", word);
			return DOCA_ERROR_INVALID_VALUE;
		}
		value = argv[++*at];
	}
	return param != NULL ? run_param(param, word, value)
			     : run_builtin((enum builtin)builtin, value);
}

/* Choose a command. */
static doca_error_t
read_word(const char *word)
{
	struct doca_argp_cmd *cmd = find_cmd(argp.chosen, word);

	if (cmd != NULL) {
		argp.chosen = cmd;
		return DOCA_SUCCESS;
	}
	if (argp.chosen->cmds != NULL) {
		say(DOCA_LOG_LEVEL_ERROR, "%s: no such command", word);
		return DOCA_ERROR_NOT_SUPPORTED;
	}
	say(DOCA_LOG_LEVEL_ERROR, "%s: neither an option nor the value of one", word);
	return DOCA_ERROR_INVALID_VALUE;
}

/* Forget what an earlier command line had. */
static void
forget(struct doca_argp_cmd *cmd)
{
	for (struct doca_argp_param *param = cmd->params; param != NULL; param = param->next) {
		param->seen = 0;
	}
	for (struct doca_argp_cmd *child = cmd->cmds; child != NULL; child = child->next) {
		forget(child);
	}
}

/* Whether all options that must come have come, and the one that must be alone is. */
static doca_error_t
check_options(void)
{
	const struct doca_argp_param *singular = NULL;
	const struct doca_argp_param *missing = NULL;
	unsigned int given = 0;

	for (struct doca_argp_cmd *cmd = argp.chosen; cmd != NULL; cmd = cmd->parent) {
		for (struct doca_argp_param *param = cmd->params; param != NULL;
		     param = param->next) {
			given += param->seen != 0;
			if (param->singular && param->seen != 0) {
				singular = param;
			}
			if (param->mandatory && param->seen == 0) {
				missing = param;
			}
		}
	}
	if (singular != NULL && given > 1) {
		say(DOCA_LOG_LEVEL_ERROR, "%s: goes with no other option",
		    singular->long_name != NULL ? singular->long_name : singular->short_name);
		return DOCA_ERROR_INVALID_VALUE;
	}
	if (singular == NULL && missing != NULL) {
		say(DOCA_LOG_LEVEL_ERROR, "%s: this option is missing",
		    missing->long_name != NULL ? missing->long_name : missing->short_name);
		return DOCA_ERROR_INVALID_VALUE;
	}
	return DOCA_SUCCESS;
}

/* Call the callbacks of the commands that were given, outermost first. */
static doca_error_t
run_cmds(const struct doca_argp_cmd *cmd)
{
	doca_error_t result = cmd->parent != NULL ? run_cmds(cmd->parent) : DOCA_SUCCESS;

	if (result == DOCA_SUCCESS && cmd->callback != NULL) {
		result = cmd->callback(argp.config);
	}
	return result;
}

doca_error_t
doca_argp_start(int argc, char **argv)
{
	doca_error_t result = DOCA_SUCCESS;
	int foreign = 0;
	int at = 1;

	EMU_ENTER("argp_start");
	if (!argp.begun) {
		return DOCA_ERROR_BAD_STATE;
	}
	if (argc < 1 || argv == NULL || argv[0] == NULL) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	if (argp.name == NULL) {
		const char *slash = strrchr(argv[0], '/');

		argp.name = strdup(slash != NULL ? slash + 1 : argv[0]);
		if (argp.name == NULL) {
			return DOCA_ERROR_NO_MEMORY;
		}
	}
	argp.chosen = &argp.root;
	forget(&argp.root);
	if (argp.foreign != NULL) {
		while (foreign < argc && strcmp(argv[foreign], "--") != 0) {
			foreign++;
		}
		at = foreign + 1;
	}
	for (; at < argc && result == DOCA_SUCCESS; at++) {
		result = argv[at][0] == '-' && argv[at][1] != '\0' ? read_option(argv, argc, &at)
								   : read_word(argv[at]);
	}
	if (result == DOCA_SUCCESS) {
		result = check_options();
	}
	if (result == DOCA_SUCCESS && argp.validate != NULL) {
		result = argp.validate(argp.config);
	}
	if (result == DOCA_SUCCESS) {
		result = run_cmds(argp.chosen);
	}
	if (result == DOCA_SUCCESS && argp.foreign != NULL) {
		free(argp.foreign_argv);
		argp.foreign_argv = calloc((size_t)foreign + 1, sizeof(*argp.foreign_argv));
		if (argp.foreign_argv == NULL) {
			return DOCA_ERROR_NO_MEMORY;
		}
		memcpy(argp.foreign_argv, argv, (size_t)foreign * sizeof(*argp.foreign_argv));
		result = argp.foreign(foreign, argp.foreign_argv);
	}
	return result;
}
