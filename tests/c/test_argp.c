/* SPDX-License-Identifier: Apache-2.0 */
/* doca_argp.h: options, commands, who owns what, and the codes of every call. */
#include "check.h"

#include <doca_argp.h>

#include <sys/wait.h>
#include <unistd.h>

/* What the callbacks saw. */
struct seen {
	char text[512];	     /* everything, one after another */
	doca_error_t result; /* what callbacks answer */
};

static struct seen seen;
static char messages[512];

static void
note(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void
note(const char *format, ...)
{
	size_t used = strlen(seen.text);
	va_list args;

	va_start(args, format);
	vsnprintf(seen.text + used, sizeof(seen.text) - used, format, args);
	va_end(args);
}

static doca_error_t
on_string(void *value, void *config)
{
	note("s:%s ", (char *)value);
	return ((struct seen *)config)->result;
}

static doca_error_t
on_int(void *value, void *config)
{
	note("i:%d ", *(int *)value);
	return ((struct seen *)config)->result;
}

static doca_error_t
on_bool(void *value, void *config)
{
	note("b:%d ", *(bool *)value);
	return ((struct seen *)config)->result;
}

static doca_error_t
on_double(void *value, void *config)
{
	note("d:%g ", *(double *)value);
	return ((struct seen *)config)->result;
}

static doca_error_t
on_validate(void *config)
{
	note("validate ");
	return ((struct seen *)config)->result;
}

static doca_error_t
on_version(void *value, void *config)
{
	printf("version %d\n", *(bool *)value);
	return ((struct seen *)config)->result;
}

static doca_error_t
on_outer(void *config)
{
	note("outer ");
	return ((struct seen *)config)->result;
}

static doca_error_t
on_inner(void *config)
{
	note("inner ");
	return ((struct seen *)config)->result;
}

static doca_error_t
on_foreign(int argc, char **argv)
{
	CHECK(argv[argc] == NULL);
	for (int i = 0; i < argc; i++) {
		note("f:%s ", argv[i]);
	}
	return DOCA_SUCCESS;
}

static doca_error_t
on_message(enum doca_log_level level, const char *format, va_list args)
{
	CHECK_EQ(level, DOCA_LOG_LEVEL_ERROR);
	vsnprintf(messages, sizeof(messages), format, args);
	return DOCA_SUCCESS;
}

static struct doca_argp_param *
option(const char *short_name, const char *long_name, enum doca_argp_type type)
{
	static const doca_argp_param_cb_t callbacks[] = {
		[DOCA_ARGP_TYPE_STRING] = on_string,	 [DOCA_ARGP_TYPE_INT] = on_int,
		[DOCA_ARGP_TYPE_BOOLEAN] = on_bool,	 [DOCA_ARGP_TYPE_DEVICE] = on_string,
		[DOCA_ARGP_TYPE_DEVICE_REP] = on_string, [DOCA_ARGP_TYPE_DOUBLE] = on_double,
	};
	struct doca_argp_param *param;

	OK(doca_argp_param_create(&param));
	doca_argp_param_set_short_name(param, short_name);
	doca_argp_param_set_long_name(param, long_name);
	doca_argp_param_set_description(param, "an option");
	doca_argp_param_set_type(param, type);
	doca_argp_param_set_callback(param, callbacks[type]);
	return param;
}

/* The names the samples use: one, two letters, short and long. */
static void
begin(void)
{
	memset(&seen, 0, sizeof(seen));
	messages[0] = '\0';
	OK(doca_argp_init("test", &seen));
	OK(doca_argp_register_logger_callback(on_message));
	OK(doca_argp_register_param(option("p", "pci-addr", DOCA_ARGP_TYPE_STRING)));
	OK(doca_argp_register_param(option("ns", "num-src-buf", DOCA_ARGP_TYPE_INT)));
	OK(doca_argp_register_param(option("nd", NULL, DOCA_ARGP_TYPE_INT)));
	OK(doca_argp_register_param(option(NULL, "fast", DOCA_ARGP_TYPE_BOOLEAN)));
	OK(doca_argp_register_param(option("r", "rate", DOCA_ARGP_TYPE_DOUBLE)));
}

#define MAX_WORDS 16

/* Run a command line, words separated by blanks. */
static doca_error_t
start(const char *line)
{
	static char text[256];
	char *words[MAX_WORDS + 1] = {NULL};
	int num = 0;

	seen.text[0] = '\0';
	messages[0] = '\0';
	snprintf(text, sizeof(text), "%s", line);
	for (char *word = strtok(text, " "); word != NULL; word = strtok(NULL, " ")) {
		CHECK(num < MAX_WORDS);
		words[num++] = word;
	}
	return doca_argp_start(num, words);
}

#define SAW(expected) \
	do { \
		if (strcmp(seen.text, (expected)) != 0) { \
			check_failed(__FILE__, __LINE__, "saw '%s', not '%s'", seen.text, \
				     (expected)); \
		} \
	} while (0)

#define SAID(expected) \
	do { \
		if (strstr(messages, (expected)) == NULL) { \
			check_failed(__FILE__, __LINE__, "said '%s', not '%s'", messages, \
				     (expected)); \
		} \
	} while (0)

/* Run a command line that ends the process; gives its exit code, and what it printed. */
static int
run_to_exit(const char *line, char *out, size_t out_size)
{
	size_t used = 0;
	ssize_t got;
	int status;
	int fds[2];
	pid_t child;

	CHECK_EQ(pipe(fds), 0);
	fflush(NULL);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		dup2(fds[1], STDOUT_FILENO);
		close(fds[0]);
		close(fds[1]);
		start(line);
		_exit(99); /* it returned */
	}
	close(fds[1]);
	while ((got = read(fds[0], out + used, out_size - 1 - used)) > 0) {
		used += (size_t)got;
	}
	out[used] = '\0';
	close(fds[0]);
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* ---- the tests ---- */

static void
order_of_calls(void)
{
	struct doca_argp_param *param = NULL;
	struct doca_argp_cmd *cmd = NULL;
	char *words[] = {NULL, NULL};
	int level;

	OK(docaemu_reset());
	CHECK_DOCA(doca_argp_destroy(), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_argp_param_create(&param), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_argp_cmd_create(&cmd), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(start("test"), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_argp_get_log_level(&level), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_argp_get_sdk_log_level(&level), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_argp_register_validation_callback(on_validate), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_argp_register_version_callback(on_version), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_argp_register_logger_callback(on_message), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_argp_disable_logger_callback(), DOCA_ERROR_BAD_STATE);
	doca_argp_set_dpdk_program(on_foreign);
	begin();
	CHECK_DOCA(doca_argp_init("test", NULL), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_argp_param_create(NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_argp_cmd_create(NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_argp_start(0, words), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_argp_start(1, NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_argp_start(1, words), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_argp_register_logger_callback(on_message), DOCA_ERROR_ALREADY_EXIST);
	CHECK_DOCA(doca_argp_register_logger_callback(NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_argp_register_validation_callback(NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_argp_register_version_callback(NULL), DOCA_ERROR_INVALID_VALUE);
	OK(doca_argp_disable_logger_callback());
	CHECK_DOCA(doca_argp_disable_logger_callback(), DOCA_ERROR_BAD_STATE);
	OK(start("test"));
	SAW("");
	OK(doca_argp_destroy());
	/* A second life. */
	begin();
	OK(start("test -p x"));
	SAW("s:x ");
	OK(doca_argp_destroy());
	expect_violations(0, NULL);
}

static void
values(void)
{
	begin();
	OK(start("test -p 03:00.0 -ns 2 -nd -3 --fast -r 1.5"));
	SAW("s:03:00.0 i:2 i:-3 b:1 d:1.5 ");
	OK(start("test --pci-addr=03:00.0 --num-src-buf=7 -nd=8 --rate 2e3"));
	SAW("s:03:00.0 i:7 i:8 d:2000 ");
	OK(start("test -p a=b"));
	SAW("s:a=b ");
	OK(start("test --pci-addr="));
	SAW("s: ");
	OK(doca_argp_destroy());
}

static void
values_that_are_bad(void)
{
	static const char *const bad[] = {
		"test -ns two", "test -ns 2x", "test -ns 99999999999", "test -ns=",  "test -r x",
		"test -ns",	"test -p",     "test --fast=yes",      "test stray", "test -h=1",
		"test -l 55",	"test -l x",   "test --sdk-log-level", "test -",
	};

	begin();
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		if (start(bad[i]) != DOCA_ERROR_INVALID_VALUE || messages[0] == '\0') {
			check_failed(__FILE__, __LINE__, "'%s', saying '%s'", bad[i], messages);
		}
	}
	/* The first failure ends it. */
	CHECK_DOCA(start("test -ns 1 -ns 2 -p x"), DOCA_ERROR_INVALID_VALUE);
	SAW("i:1 ");
	SAID("only once");
	OK(doca_argp_destroy());
}

static void
names_that_nobody_has(void)
{
	/* Short names come with one dash, long ones with two. */
	static const char *const unknown[] = {"test -x",	  "test --x",	     "test --p 1",
					      "test -pci-addr 1", "test --",	     "test -=1",
					      "test -p1",	  "test --num-src 1"};

	begin();
	for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
		if (start(unknown[i]) != DOCA_ERROR_NOT_SUPPORTED || messages[0] == '\0') {
			check_failed(__FILE__, __LINE__, "'%s', saying '%s'", unknown[i], messages);
		}
	}
	OK(doca_argp_destroy());
}

static void
types_the_emulator_has_not(void)
{
	begin();
	OK(doca_argp_register_param(option("a", "device", DOCA_ARGP_TYPE_DEVICE)));
	OK(doca_argp_register_param(option("R", "rep", DOCA_ARGP_TYPE_DEVICE_REP)));
	CHECK_DOCA(start("test -a pci/03:00.0"), DOCA_ERROR_NOT_SUPPORTED);
	CHECK_DOCA(start("test -R pci/03:00.0"), DOCA_ERROR_NOT_SUPPORTED);
	SAID("not supported by the emulator");
	OK(doca_argp_destroy());
}

static void
option_files(void)
{
	begin();
	CHECK_DOCA(start("test -j /nonexistent/file"), DOCA_ERROR_IO_FAILED);
	SAID("/nonexistent/file");
	CHECK_DOCA(start("test --json /dev/null"), DOCA_ERROR_NOT_SUPPORTED);
	SAID("not supported");
	OK(doca_argp_destroy());
}

static void
flags_of_options(void)
{
	struct doca_argp_param *param;

	begin();
	param = option("m", "many", DOCA_ARGP_TYPE_INT);
	doca_argp_param_set_multiplicity(param);
	doca_argp_param_set_cli_only(param);
	OK(doca_argp_register_param(param));
	param = option("must", NULL, DOCA_ARGP_TYPE_INT);
	doca_argp_param_set_mandatory(param);
	OK(doca_argp_register_param(param));
	param = option(NULL, "alone", DOCA_ARGP_TYPE_BOOLEAN);
	doca_argp_param_set_singular(param);
	OK(doca_argp_register_param(param));

	OK(start("test -must 0 -m 1 --many 2 -m=3"));
	SAW("i:0 i:1 i:2 i:3 ");
	CHECK_DOCA(start("test -m 1"), DOCA_ERROR_INVALID_VALUE);
	SAID("must: this option is missing");
	OK(start("test --alone"));
	SAW("b:1 ");
	CHECK_DOCA(start("test --alone -must 1"), DOCA_ERROR_INVALID_VALUE);
	SAID("alone: goes with no other option");
	OK(start("test --alone -l 50"));
	OK(doca_argp_destroy());
}

static void
failing_callbacks(void)
{
	begin();
	OK(doca_argp_register_validation_callback(on_validate));
	OK(start("test -ns 1"));
	SAW("i:1 validate ");
	seen.result = DOCA_ERROR_TOO_BIG;
	CHECK_DOCA(start("test"), DOCA_ERROR_TOO_BIG);
	SAW("validate ");
	CHECK_DOCA(start("test -ns 1 -p x"), DOCA_ERROR_TOO_BIG);
	SAW("i:1 ");
	OK(doca_argp_destroy());
}

static void
registering(void)
{
	struct doca_argp_param *param;

	begin();
	/* The library owns it, whatever the answer. */
	CHECK_DOCA(doca_argp_register_param(NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_argp_register_param(option("ns", NULL, DOCA_ARGP_TYPE_INT)),
		   DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_argp_register_param(option(NULL, "fast", DOCA_ARGP_TYPE_INT)),
		   DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_argp_register_param(option("h", NULL, DOCA_ARGP_TYPE_INT)),
		   DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_argp_register_param(option(NULL, "sdk-log-level", DOCA_ARGP_TYPE_INT)),
		   DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_argp_register_param(option(NULL, NULL, DOCA_ARGP_TYPE_INT)),
		   DOCA_ERROR_INITIALIZATION);
	CHECK_DOCA(doca_argp_register_param(option("", NULL, DOCA_ARGP_TYPE_INT)),
		   DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_argp_register_param(option("x", "-x", DOCA_ARGP_TYPE_INT)),
		   DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_argp_register_param(option("x", "x=y", DOCA_ARGP_TYPE_INT)),
		   DOCA_ERROR_INVALID_VALUE);
	param = option("x", "xx", DOCA_ARGP_TYPE_INT);
	doca_argp_param_set_description(param, NULL);
	CHECK_DOCA(doca_argp_register_param(param), DOCA_ERROR_INITIALIZATION);
	param = option("x", "xx", DOCA_ARGP_TYPE_INT);
	doca_argp_param_set_callback(param, NULL);
	CHECK_DOCA(doca_argp_register_param(param), DOCA_ERROR_INITIALIZATION);
	param = option("x", "xx", DOCA_ARGP_TYPE_INT);
	doca_argp_param_set_type(param, DOCA_ARGP_TYPE_UNKNOWN);
	CHECK_DOCA(doca_argp_register_param(param), DOCA_ERROR_INITIALIZATION);
	expect_violations(0, NULL);
	CHECK_DOCA(doca_argp_register_param(param), DOCA_ERROR_INVALID_VALUE);
	expect_violations(1, "it is freed");
	/* What is registered is not the program's to destroy, and is not taken twice. */
	param = option("x", "xx", DOCA_ARGP_TYPE_INT);
	OK(doca_argp_register_param(param));
	CHECK_DOCA(doca_argp_register_param(param), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_argp_param_destroy(param), DOCA_ERROR_BAD_STATE);
	OK(doca_argp_param_destroy(option("y", "yy", DOCA_ARGP_TYPE_INT)));
	CHECK_DOCA(doca_argp_param_destroy(NULL), DOCA_ERROR_INVALID_VALUE);
	OK(doca_argp_destroy());
	doca_argp_param_set_hidden(param);
	expect_violations(1, "doca_argp_param_set_hidden");
}

static void
setters_take_null(void)
{
	doca_argp_param_set_short_name(NULL, "x");
	doca_argp_param_set_long_name(NULL, "x");
	doca_argp_param_set_arguments(NULL, "x");
	doca_argp_param_set_description(NULL, "x");
	doca_argp_param_set_callback(NULL, on_int);
	doca_argp_param_set_type(NULL, DOCA_ARGP_TYPE_INT);
	doca_argp_param_set_mandatory(NULL);
	doca_argp_param_set_cli_only(NULL);
	doca_argp_param_set_multiplicity(NULL);
	doca_argp_param_set_singular(NULL);
	doca_argp_param_set_inherited(NULL);
	doca_argp_param_set_hidden(NULL);
	doca_argp_cmd_set_name(NULL, "x");
	doca_argp_cmd_set_description(NULL, "x");
	doca_argp_cmd_set_callback(NULL, on_outer);
	doca_argp_cmd_set_hidden(NULL);
	expect_violations(0, NULL);
}

static struct doca_argp_cmd *
command(const char *name, doca_argp_cmd_cb_t callback)
{
	struct doca_argp_cmd *cmd;

	OK(doca_argp_cmd_create(&cmd));
	doca_argp_cmd_set_name(cmd, name);
	doca_argp_cmd_set_description(cmd, "a command");
	doca_argp_cmd_set_callback(cmd, callback);
	return cmd;
}

static void
commands(void)
{
	struct doca_argp_cmd *outer;
	struct doca_argp_cmd *inner;
	struct doca_argp_param *param;

	begin();
	param = option("g", "general", DOCA_ARGP_TYPE_INT);
	doca_argp_param_set_inherited(param);
	OK(doca_argp_register_param(param));
	outer = command("outer", on_outer);
	param = option("o", NULL, DOCA_ARGP_TYPE_INT);
	doca_argp_param_set_mandatory(param);
	OK(doca_argp_cmd_register_param(outer, param));
	CHECK_DOCA(doca_argp_cmd_register_param(outer, option("o", NULL, DOCA_ARGP_TYPE_INT)),
		   DOCA_ERROR_BAD_STATE);
	inner = command("inner", on_inner);
	/* A name of another command's is free; -p of the program means something else here. */
	OK(doca_argp_cmd_register_param(inner, option("p", NULL, DOCA_ARGP_TYPE_INT)));
	OK(doca_argp_cmd_register_cmd(outer, inner));
	CHECK_DOCA(doca_argp_cmd_register_cmd(inner, outer), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_argp_cmd_register_cmd(outer, outer), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_argp_cmd_destroy(inner), DOCA_ERROR_BAD_STATE);
	OK(doca_argp_register_cmd(outer));
	CHECK_DOCA(doca_argp_register_cmd(outer), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_argp_register_cmd(command("outer", NULL)), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_argp_register_cmd(command(NULL, NULL)), DOCA_ERROR_INITIALIZATION);
	CHECK_DOCA(doca_argp_register_cmd(command("-x", NULL)), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_argp_register_cmd(NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_argp_cmd_register_cmd(NULL, NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_argp_cmd_register_param(NULL, NULL), DOCA_ERROR_INVALID_VALUE);
	OK(doca_argp_register_cmd(command("other", NULL)));
	OK(doca_argp_register_validation_callback(on_validate));

	OK(start("test -p x outer -o 1 inner -p 2 -g 3"));
	SAW("s:x i:1 i:2 i:3 validate outer inner ");
	OK(start("test outer -o 1"));
	SAW("i:1 validate outer ");
	OK(start("test other --general 1"));
	SAW("i:1 validate ");
	OK(start("test"));
	CHECK_DOCA(start("test outer inner"), DOCA_ERROR_INVALID_VALUE);
	SAID("o: this option is missing");
	CHECK_DOCA(start("test nobody"), DOCA_ERROR_NOT_SUPPORTED);
	CHECK_DOCA(start("test inner"), DOCA_ERROR_NOT_SUPPORTED);
	SAID("no such command");
	CHECK_DOCA(start("test other -o 1"), DOCA_ERROR_NOT_SUPPORTED);
	CHECK_DOCA(start("test other --fast"), DOCA_ERROR_NOT_SUPPORTED);
	CHECK_DOCA(start("test other x"), DOCA_ERROR_INVALID_VALUE);
	seen.result = DOCA_ERROR_FULL;
	CHECK_DOCA(start("test other"), DOCA_ERROR_FULL);
	/* Not registered: destroyed with all that hangs in it. */
	outer = command("alone", NULL);
	OK(doca_argp_cmd_register_cmd(outer, command("child", NULL)));
	OK(doca_argp_cmd_register_param(outer, option("p", NULL, DOCA_ARGP_TYPE_INT)));
	OK(doca_argp_cmd_destroy(outer));
	expect_violations(0, NULL);
	CHECK_DOCA(doca_argp_cmd_destroy(outer), DOCA_ERROR_INVALID_VALUE);
	expect_violations(1, "it is freed");
	OK(doca_argp_destroy());
}

static void
options_of_another_library(void)
{
	begin();
	doca_argp_set_dpdk_program(on_foreign);
	OK(start("test -a 1 -- -ns 2"));
	SAW("i:2 f:test f:-a f:1 ");
	OK(start("test -ns 2"));
	SAW("f:test f:-ns f:2 ");
	CHECK_DOCA(start("test -- -x"), DOCA_ERROR_NOT_SUPPORTED);
	SAW("");
	OK(doca_argp_destroy());
}

static void
log_levels(void)
{
	int level;

	begin();
	CHECK_DOCA(doca_argp_get_log_level(NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_argp_get_sdk_log_level(NULL), DOCA_ERROR_INVALID_VALUE);
	OK(start("test -l 70 --sdk-log-level 30"));
	OK(doca_argp_get_log_level(&level));
	CHECK_EQ(level, DOCA_LOG_LEVEL_TRACE);
	OK(doca_argp_get_sdk_log_level(&level));
	CHECK_EQ(level, DOCA_LOG_LEVEL_ERROR);
	CHECK_EQ(doca_log_level_get_global_lower_limit(), DOCA_LOG_LEVEL_TRACE);
	CHECK_EQ(doca_log_level_get_global_sdk_limit(), DOCA_LOG_LEVEL_ERROR);
	OK(start("test --log-level=50 --sdk-log-level=50"));
	OK(doca_argp_destroy());
}

static void
help_and_version_end_the_process(void)
{
	struct doca_argp_param *param;
	struct doca_argp_cmd *cmd;
	char out[4096];

	begin();
	param = option("hid", "hidden-option", DOCA_ARGP_TYPE_INT);
	doca_argp_param_set_hidden(param);
	OK(doca_argp_register_param(param));
	param = option("f", "file", DOCA_ARGP_TYPE_STRING);
	doca_argp_param_set_arguments(param, "PATH");
	doca_argp_param_set_inherited(param);
	OK(doca_argp_register_param(param));
	cmd = command("go", NULL);
	OK(doca_argp_register_cmd(cmd));
	cmd = command("hidden-command", NULL);
	doca_argp_cmd_set_hidden(cmd);
	OK(doca_argp_register_cmd(cmd));

	CHECK_EQ(run_to_exit("test -h", out, sizeof(out)), 0);
	CHECK(strstr(out, "usage: test [OPTIONS] COMMAND\n") != NULL);
	CHECK(strstr(out, "-ns, --num-src-buf VALUE") != NULL);
	CHECK(strstr(out, "-nd VALUE") != NULL);
	CHECK(strstr(out, "  --fast ") != NULL);
	CHECK(strstr(out, "-f, --file PATH") != NULL);
	CHECK(strstr(out, "--sdk-log-level LEVEL") != NULL);
	CHECK(strstr(out, "  go ") != NULL);
	CHECK(strstr(out, "hidden") == NULL);
	CHECK_EQ(run_to_exit("test go --help", out, sizeof(out)), 0);
	CHECK(strstr(out, "usage: test go [OPTIONS]\n") != NULL);
	CHECK(strstr(out, "--file PATH") != NULL);
	CHECK(strstr(out, "-ns") == NULL);

	CHECK_EQ(run_to_exit("test --version", out, sizeof(out)), 0);
	CHECK(strstr(out, doca_version_runtime()) != NULL);
	OK(doca_argp_register_version_callback(on_version));
	CHECK_EQ(run_to_exit("test -v", out, sizeof(out)), 0);
	CHECK(strcmp(out, "version 1\n") == 0);
	seen.result = DOCA_ERROR_IO_FAILED;
	CHECK_EQ(run_to_exit("test -v", out, sizeof(out)), 99);
	OK(doca_argp_destroy());

	/* The name of the program, and usage without a parser. */
	OK(doca_argp_init(NULL, NULL));
	doca_argp_set_dpdk_program(on_foreign);
	CHECK_EQ(run_to_exit("/bin/prog -- -h", out, sizeof(out)), 0);
	CHECK(strstr(out, "usage: prog [") != NULL);
	OK(doca_argp_destroy());
}

static void
faults(void)
{
	begin();
	configure("fault op=argp_start status=NO_MEMORY");
	CHECK_DOCA(start("test -ns 1"), DOCA_ERROR_NO_MEMORY);
	SAW("");
	OK(start("test -ns 1"));
	OK(doca_argp_destroy());
	OK(docaemu_reset());
}

TESTS(TEST(order_of_calls), TEST(values), TEST(values_that_are_bad), TEST(names_that_nobody_has),
      TEST(types_the_emulator_has_not), TEST(option_files), TEST(flags_of_options),
      TEST(failing_callbacks), TEST(registering), TEST(setters_take_null), TEST(commands),
      TEST(options_of_another_library), TEST(log_levels), TEST(help_and_version_end_the_process),
      TEST(faults));
