/* SPDX-License-Identifier: Apache-2.0 */
/* doca_error.h: names and descriptions. */
#include "emu.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct {
	const char *name;
	const char *descr;
} errors[] = {
	[DOCA_SUCCESS] = {"DOCA_SUCCESS", "Success"},
	[DOCA_ERROR_UNKNOWN] = {"DOCA_ERROR_UNKNOWN", "Unknown error"},
	[DOCA_ERROR_NOT_PERMITTED] = {"DOCA_ERROR_NOT_PERMITTED", "Operation not permitted"},
	[DOCA_ERROR_IN_USE] = {"DOCA_ERROR_IN_USE", "Resource already in use"},
	[DOCA_ERROR_NOT_SUPPORTED] = {"DOCA_ERROR_NOT_SUPPORTED", "Operation not supported"},
	[DOCA_ERROR_AGAIN] = {"DOCA_ERROR_AGAIN", "Resource unavailable, try again"},
	[DOCA_ERROR_INVALID_VALUE] = {"DOCA_ERROR_INVALID_VALUE", "Invalid input"},
	[DOCA_ERROR_NO_MEMORY] = {"DOCA_ERROR_NO_MEMORY", "Memory allocation failed"},
	[DOCA_ERROR_INITIALIZATION] = {"DOCA_ERROR_INITIALIZATION", "Initialization failed"},
	[DOCA_ERROR_TIME_OUT] = {"DOCA_ERROR_TIME_OUT", "Time out"},
	[DOCA_ERROR_SHUTDOWN] = {"DOCA_ERROR_SHUTDOWN", "Shutdown in progress"},
	[DOCA_ERROR_CONNECTION_RESET] = {"DOCA_ERROR_CONNECTION_RESET", "Connection reset by peer"},
	[DOCA_ERROR_CONNECTION_ABORTED] = {"DOCA_ERROR_CONNECTION_ABORTED", "Connection aborted"},
	[DOCA_ERROR_CONNECTION_INPROGRESS] = {"DOCA_ERROR_CONNECTION_INPROGRESS",
					      "Connection in progress"},
	[DOCA_ERROR_NOT_CONNECTED] = {"DOCA_ERROR_NOT_CONNECTED", "Not connected"},
	[DOCA_ERROR_NO_LOCK] = {"DOCA_ERROR_NO_LOCK", "Unable to acquire lock"},
	[DOCA_ERROR_NOT_FOUND] = {"DOCA_ERROR_NOT_FOUND", "Resource not found"},
	[DOCA_ERROR_IO_FAILED] = {"DOCA_ERROR_IO_FAILED", "Input/Output Operation Failed"},
	[DOCA_ERROR_BAD_STATE] = {"DOCA_ERROR_BAD_STATE", "Bad state"},
	[DOCA_ERROR_UNSUPPORTED_VERSION] = {"DOCA_ERROR_UNSUPPORTED_VERSION",
					    "Unsupported version"},
	[DOCA_ERROR_OPERATING_SYSTEM] = {"DOCA_ERROR_OPERATING_SYSTEM",
					 "Operating system call failed"},
	[DOCA_ERROR_DRIVER] = {"DOCA_ERROR_DRIVER", "Driver call failed"},
	[DOCA_ERROR_UNEXPECTED] = {"DOCA_ERROR_UNEXPECTED", "Unexpected scenario"},
	[DOCA_ERROR_ALREADY_EXIST] = {"DOCA_ERROR_ALREADY_EXIST", "Resource already exists"},
	[DOCA_ERROR_FULL] = {"DOCA_ERROR_FULL", "No room left"},
	[DOCA_ERROR_EMPTY] = {"DOCA_ERROR_EMPTY", "Nothing there"},
	[DOCA_ERROR_IN_PROGRESS] = {"DOCA_ERROR_IN_PROGRESS", "Operation in progress"},
	[DOCA_ERROR_TOO_BIG] = {"DOCA_ERROR_TOO_BIG", "Operation too big"},
	[DOCA_ERROR_AUTHENTICATION] = {"DOCA_ERROR_AUTHENTICATION", "Authentication failed"},
	[DOCA_ERROR_BAD_CONFIG] = {"DOCA_ERROR_BAD_CONFIG", "Bad configuration"},
	[DOCA_ERROR_SKIPPED] = {"DOCA_ERROR_SKIPPED", "Operation skipped"},
	[DOCA_ERROR_DEVICE_FATAL_ERROR] = {"DOCA_ERROR_DEVICE_FATAL_ERROR",
					   "Device is in a fatal state"},
};

#define NUM_ERRORS (sizeof(errors) / sizeof(errors[0]))

static const char unrecognized[] = "unrecognized error code";

const char *
doca_error_get_descr(doca_error_t error)
{
	return (size_t)error < NUM_ERRORS ? errors[error].descr : unrecognized;
}

const char *
doca_error_get_name(doca_error_t error)
{
	return (size_t)error < NUM_ERRORS ? errors[error].name : unrecognized;
}

/*
 * Read a status code: a name with or without DOCA_ERROR_, or a number.
 *
 * @retval DOCA_SUCCESS
 * @retval DOCA_ERROR_INVALID_VALUE neither
 */
doca_error_t
emu_parse_status(const char *text, doca_error_t *status)
{
	static const char prefix[] = "DOCA_ERROR_";
	uint64_t number;

	for (size_t i = 0; i < NUM_ERRORS; i++) {
		const char *name = errors[i].name;

		if (strcasecmp(text, name) == 0 ||
		    (i != 0 && strcasecmp(text, name + sizeof(prefix) - 1) == 0) ||
		    (i == 0 && strcasecmp(text, "SUCCESS") == 0)) {
			*status = (doca_error_t)i;
			return DOCA_SUCCESS;
		}
	}
	if (emu_parse_number(text, &number) != DOCA_SUCCESS || number > INT32_MAX) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	*status = (doca_error_t)number;
	return DOCA_SUCCESS;
}
