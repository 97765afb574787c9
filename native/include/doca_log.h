/* SPDX-License-Identifier: Apache-2.0 */
/* Logging: lines of the program and of the library, and where they go. */
#ifndef DOCA_LOG_H_
#define DOCA_LOG_H_

#include <stdio.h>

#include <doca_compat.h>
#include <doca_error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The lower the number, the more severe. */
enum doca_log_level {
	DOCA_LOG_LEVEL_DISABLE = 10,
	DOCA_LOG_LEVEL_CRIT = 20,
	DOCA_LOG_LEVEL_ERROR = 30,
	DOCA_LOG_LEVEL_WARNING = 40,
	DOCA_LOG_LEVEL_INFO = 50,
	DOCA_LOG_LEVEL_DEBUG = 60,
	DOCA_LOG_LEVEL_TRACE = 70,
};

struct doca_log_backend;

/** Called with a full buffer of a buffer backend. */
typedef void (*log_flush_callback)(char *buf);

/**
 * Write one line to the program's backends whose limits allow the level. Any thread, also before
 * main.
 */
DOCA_EXPERIMENTAL
doca_error_t
doca_log(uint32_t level, int source, const char *fname, int line, const char *func,
	 const char *format, ...) __attribute__((format(printf, 6, 7)));

/**
 * Name a source of log lines; the number identifies it in doca_log.
 * @retval DOCA_ERROR_INVALID_VALUE
 * @retval DOCA_ERROR_NO_MEMORY
 */
DOCA_EXPERIMENTAL
doca_error_t
doca_log_register_source(const char *source_name, int *source);

/**
 * Give a source back.
 * @retval DOCA_ERROR_INVALID_VALUE no such source
 */
DOCA_EXPERIMENTAL
doca_error_t
doca_log_unregister_source(int source);

/** Make two backends of the program's lines: stdout down from INFO, stderr up from WARNING. */
DOCA_EXPERIMENTAL
doca_error_t
doca_log_backend_create_standard(void);

/** Make a backend that writes to a stream, which stays the caller's. */
DOCA_EXPERIMENTAL
doca_error_t
doca_log_backend_create_with_file(FILE *fptr, struct doca_log_backend **backend);

/** Make a backend that writes to a file descriptor, which stays the caller's. */
DOCA_EXPERIMENTAL
doca_error_t
doca_log_backend_create_with_fd(int fd, struct doca_log_backend **backend);

/** Make a backend that fills a buffer and calls `handler` with it before it overflows. */
DOCA_EXPERIMENTAL
doca_error_t
doca_log_backend_create_with_buf(char *buf, size_t capacity, log_flush_callback handler,
				 struct doca_log_backend **backend);

/** Make a backend that writes to syslog. */
DOCA_EXPERIMENTAL
doca_error_t
doca_log_backend_create_with_syslog(const char *name, struct doca_log_backend **backend);

/** As doca_log_backend_create_with_file, for the library's own lines. */
DOCA_EXPERIMENTAL
doca_error_t
doca_log_backend_create_with_file_sdk(FILE *fptr, struct doca_log_backend **backend);

/** As doca_log_backend_create_with_fd, for the library's own lines. */
DOCA_EXPERIMENTAL
doca_error_t
doca_log_backend_create_with_fd_sdk(int fd, struct doca_log_backend **backend);

/** As doca_log_backend_create_with_buf, for the library's own lines. */
DOCA_EXPERIMENTAL
doca_error_t
doca_log_backend_create_with_buf_sdk(char *buf, size_t capacity, log_flush_callback handler,
				     struct doca_log_backend **backend);

/** As doca_log_backend_create_with_syslog, for the library's own lines. */
DOCA_EXPERIMENTAL
doca_error_t
doca_log_backend_create_with_syslog_sdk(const char *name, struct doca_log_backend **backend);

/**
 * Set the limit of a backend of the library's lines.
 * @retval DOCA_ERROR_INVALID_VALUE not such a backend, or no level
 */
DOCA_EXPERIMENTAL
doca_error_t
doca_log_backend_set_sdk_level(struct doca_log_backend *backend, uint32_t level);

/** Set the least severe level a backend writes. */
DOCA_EXPERIMENTAL
doca_error_t
doca_log_backend_set_level_lower_limit(struct doca_log_backend *backend, uint32_t level);

/** Keep this backend's lower limit when the global one changes. */
DOCA_EXPERIMENTAL
doca_error_t
doca_log_backend_set_level_lower_limit_strict(struct doca_log_backend *backend);

/** Set the most severe level a backend writes. */
DOCA_EXPERIMENTAL
doca_error_t
doca_log_backend_set_level_upper_limit(struct doca_log_backend *backend, uint32_t upper_limit);

/** Keep this backend's upper limit when the global one changes. */
DOCA_EXPERIMENTAL
doca_error_t
doca_log_backend_set_level_upper_limit_strict(struct doca_log_backend *backend);

/** Set the least severe level for all backends of the program that are not strict. */
DOCA_EXPERIMENTAL
doca_error_t
doca_log_level_set_global_lower_limit(uint32_t level);

/** Set the least severe level for all backends of the library's lines. */
DOCA_EXPERIMENTAL
doca_error_t
doca_log_level_set_global_sdk_limit(uint32_t level);

/** Set the most severe level for all backends of the program that are not strict. */
DOCA_EXPERIMENTAL
doca_error_t
doca_log_level_set_global_upper_limit(uint32_t upper_limit);

/** The global lower limit; DOCA_LOG_LEVEL_INFO unless set. */
DOCA_EXPERIMENTAL
uint32_t
doca_log_level_get_global_lower_limit(void);

/** The limit of the library's lines; DOCA_LOG_LEVEL_INFO unless set. */
DOCA_EXPERIMENTAL
uint32_t
doca_log_level_get_global_sdk_limit(void);

/** The global upper limit; DOCA_LOG_LEVEL_CRIT unless set. */
DOCA_EXPERIMENTAL
uint32_t
doca_log_level_get_global_upper_limit(void);

/* Log with the source registered in this file by DOCA_LOG_REGISTER. */
#define DOCA_LOG(level, format, ...) \
	doca_log(level, log_source, __FILE__, __LINE__, __func__, format, ##__VA_ARGS__)
#define DOCA_LOG_CRIT(format, ...) DOCA_LOG(DOCA_LOG_LEVEL_CRIT, format, ##__VA_ARGS__)
#define DOCA_LOG_ERR(format, ...) DOCA_LOG(DOCA_LOG_LEVEL_ERROR, format, ##__VA_ARGS__)
#define DOCA_LOG_WARN(format, ...) DOCA_LOG(DOCA_LOG_LEVEL_WARNING, format, ##__VA_ARGS__)
#define DOCA_LOG_INFO(format, ...) DOCA_LOG(DOCA_LOG_LEVEL_INFO, format, ##__VA_ARGS__)
#define DOCA_LOG_DBG(format, ...) DOCA_LOG(DOCA_LOG_LEVEL_DEBUG, format, ##__VA_ARGS__)
#ifdef DOCA_LOGGING_ALLOW_TRACE
#define DOCA_LOG_TRC(format, ...) DOCA_LOG(DOCA_LOG_LEVEL_TRACE, format, ##__VA_ARGS__)
#else
#define DOCA_LOG_TRC(format, ...) \
	do { \
	} while (0)
#endif

/* Name the log source of this file; any tokens, for instance PE_EVENT::SAMPLE. */
#define DOCA_LOG_REGISTER(source) \
	static int log_source; \
	static void __attribute__((constructor(101))) DOCA_LOG_CTOR___FILE__(void) \
	{ \
		doca_log_register_source(#source, &log_source); \
	}

#ifdef __cplusplus
}
#endif

#endif /* DOCA_LOG_H_ */
