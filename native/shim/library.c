/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <sys/auxv.h>

/* One row per symbol: where it is looked up, where its address goes. */
struct symbol {
	const char *name;
	size_t handle; /* offset of the dlopen handle in struct adma_library */
	size_t slot;   /* offset of the function pointer */
};

#define SYMBOL(lib, name) \
	{#name, offsetof(struct adma_library, lib), offsetof(struct adma_library, name)},
static const struct symbol required[] = {ADMA_REQUIRED_SYMBOLS(SYMBOL)};
static const struct symbol optional[] = {ADMA_OPTIONAL_SYMBOLS(SYMBOL)};
#undef SYMBOL

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void **
slot_of(const struct adma_library *library, const struct symbol *symbol)
{
	return (void **)((char *)library + symbol->slot);
}

static void
resolve(struct adma_library *library, const struct symbol *symbol)
{
	*slot_of(library, symbol) =
		dlsym(*(void **)((char *)library + symbol->handle), symbol->name);
}

doca_error_t
adma_library_load(const char *common_path, const char *dma_path, struct adma_library **out,
		  char *error, size_t error_size)
{
	doca_error_t result = DOCA_ERROR_NOT_FOUND;
	struct adma_library *library = calloc(1, sizeof(*library));

	if (library == NULL) {
		return DOCA_ERROR_NO_MEMORY;
	}
	library->common = dlopen(common_path, RTLD_NOW | RTLD_LOCAL);
	if (library->common == NULL) {
		snprintf(error, error_size, "%s", dlerror());
		goto free_library;
	}
	library->dma = dlopen(dma_path, RTLD_NOW | RTLD_LOCAL);
	if (library->dma == NULL) {
		snprintf(error, error_size, "%s", dlerror());
		goto close_common;
	}
	for (size_t i = 0; i < COUNT(required); i++) {
		resolve(library, &required[i]);
		if (*slot_of(library, &required[i]) == NULL) {
			snprintf(error, error_size, "%s", required[i].name);
			result = DOCA_ERROR_UNSUPPORTED_VERSION;
			goto close_dma;
		}
	}
	for (size_t i = 0; i < COUNT(optional); i++) {
		resolve(library, &optional[i]);
	}
	*out = library;
	return DOCA_SUCCESS;

close_dma:
	dlclose(library->dma);
close_common:
	dlclose(library->common);
free_library:
	free(library);
	return result;
}

const char *
adma_symbol(size_t index, int *is_required)
{
	*is_required = index < COUNT(required);
	if (*is_required) {
		return required[index].name;
	}
	index -= COUNT(required);
	return index < COUNT(optional) ? optional[index].name : NULL;
}

const char *
adma_library_optional(const struct adma_library *library, size_t index, int *present)
{
	if (index >= COUNT(optional)) {
		return NULL;
	}
	*present = *slot_of(library, &optional[index]) != NULL;
	return optional[index].name;
}

const char *
adma_library_version(const struct adma_library *library)
{
	return library->doca_version_runtime != NULL ? library->doca_version_runtime() : NULL;
}

const char *
adma_library_error_name(const struct adma_library *library, int code)
{
	return library->doca_error_get_name((doca_error_t)code);
}

const char *
adma_library_error_descr(const struct adma_library *library, int code)
{
	return library->doca_error_get_descr((doca_error_t)code);
}

const char *
adma_library_path(const struct adma_library *library)
{
	Dl_info info;

	/* The error table is a required symbol of libdoca_common; a filter stub resolves to the library behind it. */
	if (dladdr(*slot_of(library, &required[0]), &info) == 0) {
		return NULL;
	}
	return info.dli_fname;
}

int
adma_is_privileged(void)
{
	return getauxval(AT_SECURE) != 0;
}
