/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* fopencookie */
#include "log.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A write of up to this many bytes into a pipe is done as a whole or not at all (pipe(7)). */
#define LINE_SIZE 4096

struct adma_log {
	int fd;
	_Atomic uint64_t dropped;
	FILE *file;
	struct doca_log_backend *backend;
	char buffer[LINE_SIZE];
};

/* Never fails: a stream that has failed once would stay silent. */
static ssize_t
sink(void *cookie, const char *data, size_t size)
{
	struct adma_log *log = cookie;
	int error = errno; /* DOCA's caller may be about to read it */

	if (write(log->fd, data, size) < 0) {
		atomic_fetch_add_explicit(&log->dropped, 1, memory_order_relaxed);
	}
	errno = error;
	return (ssize_t)size;
}

doca_error_t
adma_log_open(const struct adma_library *library, int fd, uint32_t level, struct adma_log **out)
{
	struct adma_log *log;
	doca_error_t result;

	if (library->doca_log_backend_create_with_file_sdk == NULL) {
		return DOCA_ERROR_NOT_SUPPORTED;
	}
	log = calloc(1, sizeof(*log));
	if (log == NULL) {
		return DOCA_ERROR_NO_MEMORY;
	}
	log->fd = fd;
	log->file = fopencookie(log, "w", (cookie_io_functions_t){.write = sink});
	if (log->file == NULL) {
		result = DOCA_ERROR_NO_MEMORY;
		goto free_log;
	}
	/* Whether DOCA flushes after each line is not documented. */
	setvbuf(log->file, log->buffer, _IOLBF, sizeof(log->buffer));
	result = library->doca_log_backend_create_with_file_sdk(log->file, &log->backend);
	if (result != DOCA_SUCCESS) {
		goto close_file;
	}
	(void)adma_log_set_level(library, log, level);
	*out = log;
	return DOCA_SUCCESS;

close_file:
	fclose(log->file);
free_log:
	free(log);
	return result;
}

doca_error_t
adma_log_set_level(const struct adma_library *library, struct adma_log *log, uint32_t level)
{
	if (library->doca_log_backend_set_sdk_level == NULL) {
		return DOCA_ERROR_NOT_SUPPORTED;
	}
	return library->doca_log_backend_set_sdk_level(log->backend, level);
}

uint64_t
adma_log_dropped(const struct adma_log *log)
{
	return atomic_load_explicit(&log->dropped, memory_order_relaxed);
}
