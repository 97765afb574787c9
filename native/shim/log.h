/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where DOCA's own log goes. DOCA calls the sink inside its own calls, some of which we make with the GIL held: so no
 * Python is behind it, and nothing that may block. A line that does not fit is dropped and counted.
 */
#ifndef ADMA_LOG_H
#define ADMA_LOG_H

#include <stdint.h>

#include "library.h"

struct adma_log;

/**
 * Have DOCA write its own log into a descriptor, for ever: it has no call to undo that.
 *
 * @param[in] library a loaded library
 * @param[in] fd non-blocking; stays open as long as the process lives
 * @param[in] level enum doca_log_level of the least severe lines
 * @param[out] log
 * @retval DOCA_SUCCESS each line is one write(2) from now on
 * @retval DOCA_ERROR_NOT_SUPPORTED the library has no such call
 * @retval DOCA_ERROR_NO_MEMORY no memory
 * @retval other what DOCA answered
 * Threads: any.
 */
doca_error_t
adma_log_open(const struct adma_library *library, int fd, uint32_t level, struct adma_log **log);

/** Take lines down to another level. Threads: any. */
doca_error_t
adma_log_set_level(const struct adma_library *library, struct adma_log *log, uint32_t level);

/** How many writes were dropped, a line each. Threads: any. */
uint64_t
adma_log_dropped(const struct adma_log *log);

#endif
