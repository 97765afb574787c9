/* SPDX-License-Identifier: Apache-2.0 */
/* doca_version.h: the version of the library, a setting. */
#include "emu.h"

#include <stdlib.h>
#include <string.h>

struct version {
	struct version *next;
	char text[];
};

/* Every version ever set: what was handed out stays valid. */
static struct version *versions; /* emu_lock */
static _Atomic(const char *) current = DOCA_VERSION_STRING;

/*
 * Set what doca_version_runtime gives; NULL for the default.
 *
 * @retval DOCA_SUCCESS
 * @retval DOCA_ERROR_INVALID_VALUE not three numbers with dots between
 * @retval DOCA_ERROR_NO_MEMORY
 */
doca_error_t
emu_version_set(const char *text)
{
	struct version *version;
	const char *c = text;
	size_t size;

	if (text == NULL) {
		atomic_store(&current, DOCA_VERSION_STRING);
		return DOCA_SUCCESS;
	}
	for (int part = 0; part < 3; part++) {
		size_t digits = strspn(c, "0123456789");

		if (digits == 0 || c[digits] != (part < 2 ? '.' : '\0')) {
			return DOCA_ERROR_INVALID_VALUE;
		}
		c += digits + (part < 2);
	}
	size = strlen(text) + 1;
	version = malloc(sizeof(*version) + size);
	if (version == NULL) {
		return DOCA_ERROR_NO_MEMORY;
	}
	memcpy(version->text, text, size);
	pthread_mutex_lock(&emu_lock);
	version->next = versions;
	versions = version;
	pthread_mutex_unlock(&emu_lock);
	atomic_store(&current, version->text);
	return DOCA_SUCCESS;
}

const char *
doca_version_runtime(void)
{
	emu_init();
	return atomic_load(&current);
}
