/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doca_log.h: sources and backends.
 *
 * A backend writes a line when its level lies between its limits: at most as severe as the upper
 * one, at least as severe as the lower one (the lower the number, the more severe). Setting a
 * global limit sets that of every backend that is not strict.
 */
#define _GNU_SOURCE
#include "emu.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#define EMU_MAX_SOURCES 256
#define EMU_SOURCE_SIZE 64
#define EMU_LINE_SIZE 1024

enum backend_kind { BACKEND_FILE, BACKEND_FD, BACKEND_BUF, BACKEND_SYSLOG };

struct doca_log_backend {
	struct doca_log_backend *next;
	enum backend_kind kind;
	bool sdk;
	bool lower_strict;
	bool upper_strict;
	uint32_t lower; /* least severe */
	uint32_t upper; /* most severe */
	FILE *file;
	int fd;
	char *buf;
	size_t capacity;
	size_t used;
	log_flush_callback handler;
	bool flushing; /* in its handler */
	char name[EMU_SOURCE_SIZE];
};

static pthread_mutex_t log_mutex = PTHREAD_MUTEX_INITIALIZER;
/*
 * How often this thread holds it: a handler is called with it, and may log. No mutex of kind recursive
 * does, for its owner is another thread after a fork.
 */
static _Thread_local uint32_t depth __attribute__((tls_model("initial-exec")));
static struct doca_log_backend *backends; /* never freed: there is no call for it */
static _Atomic uint32_t num_sdk_backends;
static char sources[EMU_MAX_SOURCES][EMU_SOURCE_SIZE];
static uint32_t global_lower = DOCA_LOG_LEVEL_INFO;
static uint32_t global_upper = DOCA_LOG_LEVEL_CRIT;
static uint32_t global_sdk = DOCA_LOG_LEVEL_INFO;

static void
log_lock(void)
{
	if (depth++ == 0) {
		pthread_mutex_lock(&log_mutex);
	}
}

static void
log_unlock(void)
{
	if (--depth == 0) {
		pthread_mutex_unlock(&log_mutex);
	}
}

static bool
is_level(uint32_t level)
{
	return level >= DOCA_LOG_LEVEL_DISABLE && level <= DOCA_LOG_LEVEL_TRACE && level % 10 == 0;
}

static const char *
level_name(uint32_t level)
{
	static const char *const names[] = {"DIS", "CRT", "ERR", "WRN", "INF", "DBG", "TRC"};

	return is_level(level) ? names[level / 10 - 1] : "???";
}

static int
syslog_priority(uint32_t level)
{
	static const int priorities[] = {LOG_DEBUG, LOG_CRIT,  LOG_ERR,	 LOG_WARNING,
					 LOG_INFO,  LOG_DEBUG, LOG_DEBUG};

	return is_level(level) ? priorities[level / 10 - 1] : LOG_DEBUG;
}

static void
write_line(struct doca_log_backend *backend, uint32_t level, const char *line, size_t len)
{
	switch (backend->kind) {
	case BACKEND_FILE:
		fwrite(line, 1, len, backend->file);
		fflush(backend->file);
		break;
	case BACKEND_FD:
		if (write(backend->fd, line, len) < 0) {
			/* A log line that cannot be written is lost. */
		}
		break;
	case BACKEND_BUF:
		if (backend->flushing) {
			break; /* The handler's own line finds no room in what it is emptying. */
		}
		if (len + 1 > backend->capacity) {
			len = backend->capacity - 1;
		}
		if (backend->used + len + 1 > backend->capacity) {
			backend->flushing = true;
			backend->handler(backend->buf);
			backend->flushing = false;
			backend->used = 0;
		}
		memcpy(backend->buf + backend->used, line, len);
		backend->used += len;
		backend->buf[backend->used] = '\0';
		break;
	case BACKEND_SYSLOG:
	default:
		syslog(syslog_priority(level), "%.*s", (int)len, line);
		break;
	}
}

static void
log_line(bool sdk, uint32_t level, const char *source, const char *where, int line,
	 const char *func, const char *format, va_list args)
{
	char text[EMU_LINE_SIZE];
	struct timespec now;
	struct tm tm;
	size_t used;
	int len;

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	len = snprintf(text, sizeof(text), "[%02d:%02d:%02d:%06ld][%d][DOCA][%s][%s][%s:%d][%s] ",
		       tm.tm_hour, tm.tm_min, tm.tm_sec, now.tv_nsec / 1000, (int)getpid(),
		       level_name(level), source, where, line, func);
	used = (size_t)len < sizeof(text) - 2 ? (size_t)len : sizeof(text) - 2;
	len = vsnprintf(text + used, sizeof(text) - used - 1, format, args);
	if (len > 0) {
		size_t room = sizeof(text) - used - 2;

		used += (size_t)len < room ? (size_t)len : room;
	}
	if (used == 0 || text[used - 1] != '\n') {
		text[used++] = '\n';
	}
	log_lock();
	for (struct doca_log_backend *backend = backends; backend != NULL;
	     backend = backend->next) {
		if (backend->sdk == sdk && level <= backend->lower && level >= backend->upper) {
			write_line(backend, level, text, used);
		}
	}
	log_unlock();
}

/* Write a line of the library's own; nothing happens while no backend takes those. */
void
emu_log(uint32_t level, const char *func, const char *format, ...)
{
	va_list args;

	if (atomic_load_explicit(&num_sdk_backends, memory_order_relaxed) == 0) {
		return;
	}
	va_start(args, format);
	log_line(true, level, "DOCAEMU", "docaemu", 0, func, format, args);
	va_end(args);
}

void
emu_log_fork_prepare(void)
{
	log_lock();
}

/* The lock belongs to the thread that forks, in the child as in the parent. */
void
emu_log_fork_done(void)
{
	log_unlock();
}

doca_error_t
doca_log(uint32_t level, int source, const char *fname, int line, const char *func,
	 const char *format, ...)
{
	char name[EMU_SOURCE_SIZE] = "?";
	const char *slash;
	va_list args;

	EMU_ENTER("log");
	if (!is_level(level) || level == DOCA_LOG_LEVEL_DISABLE || format == NULL) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	if (source >= 0 && source < EMU_MAX_SOURCES) {
		log_lock();
		if (sources[source][0] != '\0') {
			memcpy(name, sources[source], sizeof(name));
		}
		log_unlock();
	}
	slash = fname != NULL ? strrchr(fname, '/') : NULL;
	va_start(args, format);
	log_line(false, level, name,
		 slash != NULL	 ? slash + 1
		 : fname != NULL ? fname
				 : "?",
		 line, func != NULL ? func : "?", format, args);
	va_end(args);
	return DOCA_SUCCESS;
}

doca_error_t
doca_log_register_source(const char *source_name, int *source)
{
	doca_error_t result = DOCA_ERROR_NO_MEMORY;

	EMU_ENTER("log_register_source");
	EMU_CHECK_OUT(source_name);
	EMU_CHECK_OUT(source);
	log_lock();
	for (int i = 0; i < EMU_MAX_SOURCES; i++) {
		if (sources[i][0] == '\0') {
			snprintf(sources[i], sizeof(sources[i]), "%s",
				 source_name[0] != '\0' ? source_name : "?");
			*source = i;
			result = DOCA_SUCCESS;
			break;
		}
	}
	log_unlock();
	return result;
}

doca_error_t
doca_log_unregister_source(int source)
{
	doca_error_t result = DOCA_ERROR_INVALID_VALUE;

	EMU_ENTER("log_unregister_source");
	log_lock();
	if (source >= 0 && source < EMU_MAX_SOURCES && sources[source][0] != '\0') {
		sources[source][0] = '\0';
		result = DOCA_SUCCESS;
	}
	log_unlock();
	return result;
}

/* ---- backends ---- */

static struct doca_log_backend *
backend_new(const struct doca_log_backend *model)
{
	struct doca_log_backend *new_backend = malloc(sizeof(*new_backend));

	if (new_backend != NULL) {
		*new_backend = *model;
	}
	return new_backend;
}

/* Let a backend write from now on. */
static void
backend_list(struct doca_log_backend *new_backend)
{
	log_lock();
	if (new_backend->lower == 0) {
		new_backend->lower = new_backend->sdk ? global_sdk : global_lower;
	}
	if (new_backend->upper == 0) {
		new_backend->upper =
			new_backend->sdk ? (uint32_t)DOCA_LOG_LEVEL_CRIT : global_upper;
	}
	new_backend->next = backends;
	backends = new_backend;
	log_unlock();
	if (new_backend->sdk) {
		atomic_fetch_add(&num_sdk_backends, 1);
	}
}

static doca_error_t
backend_add(const struct doca_log_backend *model, struct doca_log_backend **backend)
{
	struct doca_log_backend *new_backend = backend_new(model);

	if (new_backend == NULL) {
		return DOCA_ERROR_NO_MEMORY;
	}
	backend_list(new_backend);
	*backend = new_backend;
	return DOCA_SUCCESS;
}

doca_error_t
doca_log_backend_create_standard(void)
{
	struct doca_log_backend out = {
		.kind = BACKEND_FILE,
		.file = stdout,
		.upper = DOCA_LOG_LEVEL_INFO,
		.upper_strict = true,
	};
	struct doca_log_backend err = {
		.kind = BACKEND_FILE,
		.file = stderr,
		.lower = DOCA_LOG_LEVEL_WARNING,
		.lower_strict = true,
	};
	struct doca_log_backend *both[2];

	EMU_ENTER("log_backend_create_standard");
	both[0] = backend_new(&out);
	both[1] = backend_new(&err);
	if (both[0] == NULL || both[1] == NULL) {
		free(both[0]);
		free(both[1]);
		return DOCA_ERROR_NO_MEMORY;
	}
	backend_list(both[0]);
	backend_list(both[1]);
	return DOCA_SUCCESS;
}

static doca_error_t
create_file(FILE *file, bool sdk, struct doca_log_backend **backend)
{
	struct doca_log_backend model = {.kind = BACKEND_FILE, .file = file, .sdk = sdk};

	if (file == NULL || backend == NULL) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	return backend_add(&model, backend);
}

static doca_error_t
create_fd(int fd, bool sdk, struct doca_log_backend **backend)
{
	struct doca_log_backend model = {.kind = BACKEND_FD, .fd = fd, .sdk = sdk};

	if (fd < 0 || backend == NULL) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	return backend_add(&model, backend);
}

static doca_error_t
create_buf(char *buf, size_t capacity, log_flush_callback handler, bool sdk,
	   struct doca_log_backend **backend)
{
	struct doca_log_backend model = {
		.kind = BACKEND_BUF,
		.buf = buf,
		.capacity = capacity,
		.handler = handler,
		.sdk = sdk,
	};

	if (buf == NULL || capacity < 2 || handler == NULL || backend == NULL) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	buf[0] = '\0';
	return backend_add(&model, backend);
}

static doca_error_t
create_syslog(const char *name, bool sdk, struct doca_log_backend **backend)
{
	struct doca_log_backend model = {.kind = BACKEND_SYSLOG, .sdk = sdk};
	doca_error_t result;

	if (name == NULL || backend == NULL) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	snprintf(model.name, sizeof(model.name), "%s", name);
	result = backend_add(&model, backend);
	if (result == DOCA_SUCCESS) {
		openlog((*backend)->name, LOG_PID, LOG_USER);
	}
	return result;
}

doca_error_t
doca_log_backend_create_with_file(FILE *fptr, struct doca_log_backend **backend)
{
	EMU_ENTER("log_backend_create_with_file");
	return create_file(fptr, false, backend);
}

doca_error_t
doca_log_backend_create_with_file_sdk(FILE *fptr, struct doca_log_backend **backend)
{
	EMU_ENTER("log_backend_create_with_file_sdk");
	return create_file(fptr, true, backend);
}

doca_error_t
doca_log_backend_create_with_fd(int fd, struct doca_log_backend **backend)
{
	EMU_ENTER("log_backend_create_with_fd");
	return create_fd(fd, false, backend);
}

doca_error_t
doca_log_backend_create_with_fd_sdk(int fd, struct doca_log_backend **backend)
{
	EMU_ENTER("log_backend_create_with_fd_sdk");
	return create_fd(fd, true, backend);
}

doca_error_t
doca_log_backend_create_with_buf(char *buf, size_t capacity, log_flush_callback handler,
				 struct doca_log_backend **backend)
{
	EMU_ENTER("log_backend_create_with_buf");
	return create_buf(buf, capacity, handler, false, backend);
}

doca_error_t
doca_log_backend_create_with_buf_sdk(char *buf, size_t capacity, log_flush_callback handler,
				     struct doca_log_backend **backend)
{
	EMU_ENTER("log_backend_create_with_buf_sdk");
	return create_buf(buf, capacity, handler, true, backend);
}

doca_error_t
doca_log_backend_create_with_syslog(const char *name, struct doca_log_backend **backend)
{
	EMU_ENTER("log_backend_create_with_syslog");
	return create_syslog(name, false, backend);
}

doca_error_t
doca_log_backend_create_with_syslog_sdk(const char *name, struct doca_log_backend **backend)
{
	EMU_ENTER("log_backend_create_with_syslog_sdk");
	return create_syslog(name, true, backend);
}

/* ---- limits ---- */

enum limit { LIMIT_LOWER, LIMIT_UPPER, LIMIT_LOWER_STRICT, LIMIT_UPPER_STRICT };

/* Set a limit of a backend that is one of ours and of the right kind. */
static doca_error_t
set_limit(struct doca_log_backend *backend, bool sdk, enum limit limit, uint32_t level)
{
	doca_error_t result = DOCA_ERROR_INVALID_VALUE;
	struct doca_log_backend *known;

	if (!is_level(level)) {
		return result;
	}
	log_lock();
	for (known = backends; known != NULL && known != backend; known = known->next) {
	}
	if (known != NULL && known->sdk == sdk) {
		if (limit == LIMIT_LOWER) {
			known->lower = level;
		} else if (limit == LIMIT_UPPER) {
			known->upper = level;
		} else if (limit == LIMIT_LOWER_STRICT) {
			known->lower_strict = true;
		} else {
			known->upper_strict = true;
		}
		result = DOCA_SUCCESS;
	}
	log_unlock();
	return result;
}

doca_error_t
doca_log_backend_set_sdk_level(struct doca_log_backend *backend, uint32_t level)
{
	EMU_ENTER("log_backend_set_sdk_level");
	return set_limit(backend, true, LIMIT_LOWER, level);
}

doca_error_t
doca_log_backend_set_level_lower_limit(struct doca_log_backend *backend, uint32_t level)
{
	EMU_ENTER("log_backend_set_level_lower_limit");
	return set_limit(backend, false, LIMIT_LOWER, level);
}

doca_error_t
doca_log_backend_set_level_lower_limit_strict(struct doca_log_backend *backend)
{
	EMU_ENTER("log_backend_set_level_lower_limit_strict");
	return set_limit(backend, false, LIMIT_LOWER_STRICT, DOCA_LOG_LEVEL_INFO);
}

doca_error_t
doca_log_backend_set_level_upper_limit(struct doca_log_backend *backend, uint32_t upper_limit)
{
	EMU_ENTER("log_backend_set_level_upper_limit");
	return set_limit(backend, false, LIMIT_UPPER, upper_limit);
}

doca_error_t
doca_log_backend_set_level_upper_limit_strict(struct doca_log_backend *backend)
{
	EMU_ENTER("log_backend_set_level_upper_limit_strict");
	return set_limit(backend, false, LIMIT_UPPER_STRICT, DOCA_LOG_LEVEL_INFO);
}

static doca_error_t
set_global(uint32_t *global, bool sdk, enum limit limit, uint32_t level)
{
	if (!is_level(level)) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	log_lock();
	*global = level;
	for (struct doca_log_backend *backend = backends; backend != NULL;
	     backend = backend->next) {
		if (backend->sdk != sdk) {
			continue;
		}
		if (limit == LIMIT_LOWER && !backend->lower_strict) {
			backend->lower = level;
		} else if (limit == LIMIT_UPPER && !backend->upper_strict) {
			backend->upper = level;
		}
	}
	log_unlock();
	return DOCA_SUCCESS;
}

doca_error_t
doca_log_level_set_global_lower_limit(uint32_t level)
{
	EMU_ENTER("log_level_set_global_lower_limit");
	return set_global(&global_lower, false, LIMIT_LOWER, level);
}

doca_error_t
doca_log_level_set_global_sdk_limit(uint32_t level)
{
	EMU_ENTER("log_level_set_global_sdk_limit");
	return set_global(&global_sdk, true, LIMIT_LOWER, level);
}

doca_error_t
doca_log_level_set_global_upper_limit(uint32_t upper_limit)
{
	EMU_ENTER("log_level_set_global_upper_limit");
	return set_global(&global_upper, false, LIMIT_UPPER, upper_limit);
}

static uint32_t
get_global(const uint32_t *global)
{
	uint32_t level;

	log_lock();
	level = *global;
	log_unlock();
	return level;
}

uint32_t
doca_log_level_get_global_lower_limit(void)
{
	return get_global(&global_lower);
}

uint32_t
doca_log_level_get_global_sdk_limit(void)
{
	return get_global(&global_sdk);
}

uint32_t
doca_log_level_get_global_upper_limit(void)
{
	return get_global(&global_upper);
}
