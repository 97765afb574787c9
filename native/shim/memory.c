/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "memory.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "device.h"

#define FAIL(failure_, code_, call_) \
	(*(failure_) = (struct adma_failure){ \
		 .code = (code_), .phase = ADMA_PHASE_REGISTER, .call = (call_)})

static doca_error_t
create_mmap(struct adma_device *device, struct adma_mmap *map, struct adma_failure *failure)
{
	struct adma_library *lib = device->library;
	struct doca_mmap *mmap_;
	const char *call;
	doca_error_t result;

	result = lib->doca_mmap_create(&mmap_);
	if (result != DOCA_SUCCESS) {
		FAIL(failure, result, "doca_mmap_create");
		return result;
	}
	/* Permissions are set before the map starts; it is immutable afterwards. */
	call = "doca_mmap_add_dev";
	result = lib->doca_mmap_add_dev(mmap_, device->dev);
	if (result == DOCA_SUCCESS) {
		call = "doca_mmap_set_permissions";
		result = lib->doca_mmap_set_permissions(mmap_, map->access);
	}
	if (result == DOCA_SUCCESS) {
		call = "doca_mmap_set_memrange";
		result = lib->doca_mmap_set_memrange(mmap_, map->addr, map->length);
	}
	if (result == DOCA_SUCCESS) {
		call = "doca_mmap_start";
		result = lib->doca_mmap_start(mmap_);
	}
	if (result != DOCA_SUCCESS) {
		FAIL(failure, result, call);
		lib->doca_mmap_destroy(mmap_);
		return result;
	}
	map->mmap = mmap_;
	return DOCA_SUCCESS;
}

doca_error_t
adma_mmap_register(struct adma_device *device, void *addr, uint64_t length, uint32_t access,
		   struct adma_mmap **out, struct adma_failure *failure)
{
	struct adma_mmap *map = calloc(1, sizeof(*map));
	doca_error_t result;

	if (map == NULL) {
		FAIL(failure, DOCA_ERROR_NO_MEMORY, "calloc");
		return DOCA_ERROR_NO_MEMORY;
	}
	map->device = device;
	map->addr = addr;
	map->length = length;
	map->access = access;
	if (addr == NULL) {
		map->addr = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				 -1, 0);
		if (map->addr == MAP_FAILED) {
			result = DOCA_ERROR_NO_MEMORY;
			FAIL(failure, result, "mmap");
			goto free_map;
		}
		map->owns_pages = 1;
	}
	result = create_mmap(device, map, failure);
	if (result != DOCA_SUCCESS) {
		goto unmap;
	}
	*out = map;
	return DOCA_SUCCESS;

unmap:
	if (map->owns_pages) {
		munmap(map->addr, length);
	}
free_map:
	free(map);
	return result;
}

doca_error_t
adma_mmap_export(struct adma_mmap *map, const void **descriptor, size_t *length,
		 struct adma_failure *failure)
{
	struct adma_device *device = map->device;
	doca_error_t result;

	result = device->library->doca_mmap_export_pci(map->mmap, device->dev, descriptor, length);
	if (result != DOCA_SUCCESS) {
		FAIL(failure, result, "doca_mmap_export_pci");
	}
	return result;
}

doca_error_t
adma_mmap_import(struct adma_device *device, const void *descriptor, size_t length, uint32_t access,
		 uint64_t space, struct adma_mmap **out, struct adma_failure *failure)
{
	struct adma_library *lib = device->library;
	struct adma_mmap *map = calloc(1, sizeof(*map));
	const char *call = "doca_mmap_create_from_export";
	void *addr;
	size_t bytes;
	doca_error_t result;

	if (map == NULL) {
		FAIL(failure, DOCA_ERROR_NO_MEMORY, "calloc");
		return DOCA_ERROR_NO_MEMORY;
	}
	result = lib->doca_mmap_create_from_export(NULL, descriptor, length, device->dev,
						   &map->mmap);
	if (result != DOCA_SUCCESS) {
		goto free_map;
	}
	call = "doca_mmap_get_memrange";
	result = lib->doca_mmap_get_memrange(map->mmap, &addr, &bytes);
	if (result != DOCA_SUCCESS) {
		goto destroy_mmap;
	}
	map->device = device;
	map->addr = addr;
	map->length = bytes;
	map->access = access;
	map->space = space;
	map->imported = 1;
	*out = map;
	return DOCA_SUCCESS;

destroy_mmap:
	lib->doca_mmap_destroy(map->mmap);
free_map:
	FAIL(failure, result, call);
	free(map);
	return result;
}

doca_error_t
adma_mmap_unregister(struct adma_mmap *map)
{
	doca_error_t result = DOCA_SUCCESS;

	if (map->stuck) {
		return DOCA_ERROR_IN_USE;
	}
	if (map->mmap != NULL) {
		result = map->device->library->doca_mmap_destroy(map->mmap);
		if (result == DOCA_SUCCESS) {
			map->mmap = NULL;
		}
	}
	return result;
}

void
adma_mmap_free(struct adma_mmap *map)
{
	if (map->owns_pages) {
		munmap(map->addr, map->length);
	}
	free(map);
}
