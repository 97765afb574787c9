/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loaded DOCA library: one table of function pointers, filled by dlsym from whichever libraries the loader was
 * given. Nothing here or above can tell a real DOCA from the emulator.
 */
#ifndef ADMA_LIBRARY_H
#define ADMA_LIBRARY_H

#include <stddef.h>

#include "doca_buf.h"
#include "doca_buf_inventory.h"
#include "doca_ctx.h"
#include "doca_dev.h"
#include "doca_dma.h"
#include "doca_error.h"
#include "doca_log.h"
#include "doca_mmap.h"
#include "doca_pe.h"
#include "doca_version.h"

#include "symbols.h"

/* Which DOCA call failed, with what, and in which phase of a copy's life; plain data for the layer above. */
enum adma_phase {
	ADMA_PHASE_OPEN,
	ADMA_PHASE_REGISTER,
	ADMA_PHASE_ALLOC,
	ADMA_PHASE_SUBMIT,
	ADMA_PHASE_COMPLETE,
	ADMA_PHASE_STOP,
};

struct adma_failure {
	doca_error_t code;
	enum adma_phase phase;
	const char *call; /* static string: the DOCA function's name */
};

struct adma_library {
	void *common; /* dlopen handles; the same file twice for a library in one object */
	void *dma;
#define ADMA_SYMBOL(lib, name) __typeof__(&name) name;
	ADMA_REQUIRED_SYMBOLS(ADMA_SYMBOL)
	ADMA_OPTIONAL_SYMBOLS(ADMA_SYMBOL) /* NULL where the library has none */
#undef ADMA_SYMBOL
};

/**
 * Open the two libraries and fill the table.
 *
 * @param[in] common_path file or SONAME of libdoca_common
 * @param[in] dma_path file or SONAME of libdoca_dma; may be the same as common_path
 * @param[out] library the table; owned by the caller, never freed while anything opened through it lives
 * @param[out] error what went wrong: the dynamic linker's words, or the name of the missing symbol
 * @param[in] error_size bytes at error
 * @retval DOCA_SUCCESS the table is filled
 * @retval DOCA_ERROR_NOT_FOUND a library could not be opened
 * @retval DOCA_ERROR_UNSUPPORTED_VERSION a required symbol is missing
 * @retval DOCA_ERROR_NO_MEMORY no memory for the table
 * Threads: any.
 */
doca_error_t
adma_library_load(const char *common_path, const char *dma_path, struct adma_library **library,
		  char *error, size_t error_size);

/**
 * A DOCA symbol that the client uses, whatever library is loaded. Any thread.
 *
 * @param[in] index from 0
 * @param[out] is_required whether a library without it is refused
 * @return its name, or NULL past the last
 */
const char *
adma_symbol(size_t index, int *is_required);

/**
 * The name of the i-th optional symbol and whether the library has it.
 *
 * @param[in] library a loaded library
 * @param[in] index 0, 1, ...
 * @param[out] present 1 if the library has the symbol
 * @return the symbol's name, or NULL behind the last
 */
const char *
adma_library_optional(const struct adma_library *library, size_t index, int *present);

const char *
adma_library_version(const struct adma_library *library);

const char *
adma_library_error_name(const struct adma_library *library, int code);

const char *
adma_library_error_descr(const struct adma_library *library, int code);

/**
 * The file that provides a symbol of the table, as the dynamic linker knows it.
 *
 * @return a path owned by the dynamic linker, or NULL if it cannot tell
 */
const char *
adma_library_path(const struct adma_library *library);

/**
 * Whether this process has privileges that whoever set its environment has not.
 *
 * @return AT_SECURE of getauxval(3): set for set-user-ID programs and file capabilities
 */
int
adma_is_privileged(void);

#endif
