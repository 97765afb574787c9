/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log backends: where lines go, and which. Backends live as long as the library, so each test makes
 * its own, and leaves their files open.
 */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <unistd.h>

static char text[8192];

/* What was written to a file descriptor of a temporary file. */
static const char *
content(int fd)
{
	ssize_t got = pread(fd, text, sizeof(text) - 1, 0);

	CHECK(got >= 0);
	text[got] = '\0';
	return text;
}

static int
temporary(void)
{
	FILE *file = tmpfile();
	int fd;

	CHECK(file != NULL);
	fd = dup(fileno(file));
	CHECK(fd >= 0);
	fclose(file);
	return fd;
}

static void
say(uint32_t level, const char *what)
{
	OK(doca_log(level, -1, "/some/folder/file.c", 7, "function", "%s", what));
}

/* A line of the library's own: a violation. */
static void
provoke(void)
{
	int foreign[16] = {0};

	CHECK_EQ(doca_pe_progress((struct doca_pe *)(void *)foreign), 0);
	expect_violations(1, "doca_pe_progress");
}

static void
test_codes(void)
{
	struct doca_log_backend *backend;
	char buf[16];

	CHECK_DOCA(doca_log(55, 0, "f", 1, "f", "x"), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_log(DOCA_LOG_LEVEL_DISABLE, 0, "f", 1, "f", "x"), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_log_register_source(NULL, NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_log_unregister_source(-1), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_log_backend_create_with_file(NULL, &backend), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_log_backend_create_with_file_sdk(stderr, NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_log_backend_create_with_fd(-1, &backend), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_log_backend_create_with_fd_sdk(0, NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_log_backend_create_with_buf(buf, 1, NULL, &backend),
		   DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_log_backend_create_with_buf_sdk(NULL, 16, NULL, &backend),
		   DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_log_backend_create_with_syslog(NULL, &backend), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_log_backend_set_sdk_level((struct doca_log_backend *)(void *)buf,
						  DOCA_LOG_LEVEL_INFO),
		   DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_log_level_set_global_lower_limit(1), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_log_level_set_global_upper_limit(1), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_log_level_set_global_sdk_limit(1), DOCA_ERROR_INVALID_VALUE);
}

static void
test_files_and_descriptors(void)
{
	struct doca_log_backend *backend;
	int app = temporary();
	int sdk = temporary();
	FILE *app_file = fdopen(dup(app), "w");
	FILE *sdk_file = fdopen(dup(sdk), "w");

	CHECK(app_file != NULL && sdk_file != NULL);
	OK(doca_log_backend_create_with_file(app_file, &backend));
	OK(doca_log_backend_create_with_file_sdk(sdk_file, &backend));
	say(DOCA_LOG_LEVEL_WARNING, "a warning\n");
	OK(doca_log(DOCA_LOG_LEVEL_ERROR, 12345, NULL, 7, NULL, "%s", "no source"));
	CHECK(strstr(content(app), "[WRN][?][file.c:7][function] a warning\n[") != NULL);
	CHECK(strstr(text, "[ERR][?][?:7][?] no source\n") != NULL);
	CHECK(strstr(text, "doca_pe_progress") == NULL);
	provoke();
	CHECK(strstr(content(sdk), "[ERR][DOCAEMU]") != NULL);
	CHECK(strstr(text, "doca_pe_progress: pe") != NULL);
	CHECK(strstr(text, "a warning") == NULL);

	app = temporary();
	sdk = temporary();
	OK(doca_log_backend_create_with_fd(app, &backend));
	OK(doca_log_backend_create_with_fd_sdk(sdk, &backend));
	say(DOCA_LOG_LEVEL_INFO, "to a descriptor");
	CHECK(strstr(content(app), "to a descriptor\n") != NULL);
	provoke();
	CHECK(strstr(content(sdk), "violation") != NULL);
	/* what cannot be written is lost */
	OK(doca_log_backend_create_with_fd(open("/dev/null", O_RDONLY | O_CLOEXEC), &backend));
	say(DOCA_LOG_LEVEL_INFO, "to nowhere");
}

static void
test_a_long_line_is_cut(void)
{
	struct doca_log_backend *backend;
	char line[4096];
	int fd = temporary();

	memset(line, 'x', sizeof(line) - 1);
	line[sizeof(line) - 1] = '\0';
	OK(doca_log_backend_create_with_fd(fd, &backend));
	say(DOCA_LOG_LEVEL_INFO, line);
	CHECK(strlen(content(fd)) < 1024);
	CHECK(strcmp(text + strlen(text) - 3, "xx\n") == 0);
}

static size_t num_flushes;

static void
on_full(char *buf)
{
	CHECK(buf[0] == '[');
	num_flushes++;
}

static void
test_buffers(void)
{
	static char large[400];
	static char small[32];
	struct doca_log_backend *backend;

	OK(doca_log_backend_create_with_buf(large, sizeof(large), on_full, &backend));
	for (int i = 0; i < 10; i++) {
		say(DOCA_LOG_LEVEL_INFO, "into a buffer");
	}
	CHECK(num_flushes >= 1);
	CHECK(strlen(large) < sizeof(large));
	/* a line longer than the buffer is cut */
	OK(doca_log_backend_create_with_buf(small, sizeof(small), on_full, &backend));
	say(DOCA_LOG_LEVEL_INFO, "into a small buffer");
	CHECK_EQ(strlen(small), sizeof(small) - 1);
}

static struct doca_log_backend *from_handler;
static size_t num_calls;

/* What a program may do with its lines: say something about them, and whatever else logs or sets a limit. */
static void
log_again(char *buf)
{
	CHECK(buf[0] == '[');
	num_calls++;
	say(DOCA_LOG_LEVEL_INFO, "from the handler");
	OK(doca_log_backend_set_level_lower_limit(from_handler, DOCA_LOG_LEVEL_DEBUG));
	CHECK(strstr(buf, "from the handler") == NULL);
}

static void
test_a_handler_that_logs(void)
{
	static char buf[200];
	int fd = temporary();

	OK(doca_log_backend_create_with_fd(fd, &from_handler));
	OK(doca_log_backend_create_with_buf(buf, sizeof(buf), log_again, &from_handler));
	for (int i = 0; num_calls == 0 && i < 10; i++) {
		say(DOCA_LOG_LEVEL_INFO, "until it is full");
	}
	CHECK_EQ(num_calls, 1);
	/* Its line is with the others, and the one it made room for is in the buffer. */
	CHECK(strstr(content(fd), "from the handler\n") != NULL);
	CHECK(strstr(buf, "until it is full\n") != NULL);
	CHECK(strstr(buf, "from the handler") == NULL);
	say(DOCA_LOG_LEVEL_DEBUG, "to the buffer");
	CHECK(strstr(buf, "to the buffer\n") != NULL);
}

static void
test_syslog(void)
{
	struct doca_log_backend *backend;

	OK(doca_log_backend_create_with_syslog("docaemu-test", &backend));
	OK(doca_log_backend_create_with_syslog_sdk("docaemu-test", &backend));
	say(DOCA_LOG_LEVEL_CRIT, "a test of docaemu");
	provoke();
}

static void
test_limits(void)
{
	struct doca_log_backend *strict;
	struct doca_log_backend *app;
	struct doca_log_backend *sdk;
	int fds[3] = {temporary(), temporary(), temporary()};

	OK(doca_log_backend_create_with_fd(fds[0], &app));
	OK(doca_log_backend_create_with_fd(fds[1], &strict));
	OK(doca_log_backend_create_with_fd_sdk(fds[2], &sdk));
	/* each is of its kind */
	CHECK_DOCA(doca_log_backend_set_level_lower_limit(sdk, DOCA_LOG_LEVEL_INFO),
		   DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_log_backend_set_sdk_level(app, DOCA_LOG_LEVEL_INFO),
		   DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_log_backend_set_level_upper_limit(app, 7), DOCA_ERROR_INVALID_VALUE);
	OK(doca_log_backend_set_level_lower_limit(strict, DOCA_LOG_LEVEL_DEBUG));
	OK(doca_log_backend_set_level_upper_limit(strict, DOCA_LOG_LEVEL_WARNING));
	OK(doca_log_backend_set_level_lower_limit_strict(strict));
	OK(doca_log_backend_set_level_upper_limit_strict(strict));
	OK(doca_log_level_set_global_lower_limit(DOCA_LOG_LEVEL_TRACE));
	OK(doca_log_level_set_global_upper_limit(DOCA_LOG_LEVEL_ERROR));
	CHECK_EQ(doca_log_level_get_global_lower_limit(), DOCA_LOG_LEVEL_TRACE);
	CHECK_EQ(doca_log_level_get_global_upper_limit(), DOCA_LOG_LEVEL_ERROR);
	say(DOCA_LOG_LEVEL_CRIT, "crit");
	say(DOCA_LOG_LEVEL_ERROR, "error");
	say(DOCA_LOG_LEVEL_DEBUG, "debug");
	say(DOCA_LOG_LEVEL_TRACE, "trace");
	content(fds[0]);
	CHECK(strstr(text, "crit") == NULL && strstr(text, "error") != NULL);
	CHECK(strstr(text, "debug") != NULL && strstr(text, "trace") != NULL);
	content(fds[1]);
	CHECK(strstr(text, "error") == NULL);
	CHECK(strstr(text, "debug") != NULL && strstr(text, "trace") == NULL);
	OK(doca_log_level_set_global_sdk_limit(DOCA_LOG_LEVEL_CRIT));
	CHECK_EQ(doca_log_level_get_global_sdk_limit(), DOCA_LOG_LEVEL_CRIT);
	provoke();
	CHECK_EQ(strlen(content(fds[2])), 0);
	OK(doca_log_backend_set_sdk_level(sdk, DOCA_LOG_LEVEL_ERROR));
	provoke();
	CHECK(strstr(content(fds[2]), "violation") != NULL);
	OK(doca_log_level_set_global_lower_limit(DOCA_LOG_LEVEL_INFO));
	OK(doca_log_level_set_global_upper_limit(DOCA_LOG_LEVEL_CRIT));
	OK(doca_log_level_set_global_sdk_limit(DOCA_LOG_LEVEL_INFO));
}

static void
test_the_standard_backends(void)
{
	int out = temporary();
	int err = temporary();
	int old_out = dup(STDOUT_FILENO);
	int old_err = dup(STDERR_FILENO);

	fflush(stdout);
	dup2(out, STDOUT_FILENO);
	dup2(err, STDERR_FILENO);
	OK(doca_log_backend_create_standard());
	say(DOCA_LOG_LEVEL_INFO, "an information");
	say(DOCA_LOG_LEVEL_WARNING, "a warning");
	fflush(stdout);
	dup2(old_out, STDOUT_FILENO);
	dup2(old_err, STDERR_FILENO);
	content(out);
	CHECK(strstr(text, "an information") != NULL && strstr(text, "a warning") == NULL);
	content(err);
	CHECK(strstr(text, "an information") == NULL && strstr(text, "a warning") != NULL);
	close(out);
	close(err);
	close(old_out);
	close(old_err);
}

static void
test_sources(void)
{
	int numbers[300];
	int num = 0;

	while (num < 300 &&
	       doca_log_register_source(num == 0 ? "" : "SOURCE", &numbers[num]) == DOCA_SUCCESS) {
		num++;
	}
	CHECK(num > 200 && num < 300);
	CHECK_DOCA(doca_log_register_source("one more", &numbers[num]), DOCA_ERROR_NO_MEMORY);
	while (num != 0) {
		OK(doca_log_unregister_source(numbers[--num]));
	}
}

TESTS(TEST(test_codes), TEST(test_files_and_descriptors), TEST(test_a_long_line_is_cut),
      TEST(test_buffers), TEST(test_a_handler_that_logs), TEST(test_syslog), TEST(test_limits),
      TEST(test_the_standard_backends), TEST(test_sources));
