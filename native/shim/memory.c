/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "memory.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device.h"

#ifndef MAP_HUGE_SHIFT
#define MAP_HUGE_SHIFT 26
#endif

#define FAIL(failure_, code_, call_) \
	(*(failure_) = (struct adma_failure){ \
		 .code = (code_), .phase = ADMA_PHASE_REGISTER, .call = (call_)})

/* Where a range is, when it is not the process's own memory. */
struct dmabuf {
	int fd;
	uint64_t offset;
};

static doca_error_t
create_mmap(struct adma_device *device, struct adma_mmap *map, const struct dmabuf *dmabuf,
	    struct adma_failure *failure)
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
	if (result == DOCA_SUCCESS && dmabuf != NULL) {
		call = "doca_mmap_set_dmabuf_memrange";
		result = lib->doca_mmap_set_dmabuf_memrange(mmap_, dmabuf->fd, map->addr,
							    dmabuf->offset, map->length);
	} else if (result == DOCA_SUCCESS) {
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

static struct adma_mmap *
new_map(struct adma_device *device, uint64_t length, uint32_t access, struct adma_failure *failure)
{
	struct adma_mmap *map = calloc(1, sizeof(*map));

	if (map == NULL) {
		FAIL(failure, DOCA_ERROR_NO_MEMORY, "calloc");
		return NULL;
	}
	map->device = device;
	map->length = length;
	map->access = access;
	return map;
}

static doca_error_t
register_range(struct adma_device *device, void *addr, uint64_t length, uint32_t access,
	       const struct dmabuf *dmabuf, struct adma_mmap **out, struct adma_failure *failure)
{
	struct adma_mmap *map = new_map(device, length, access, failure);
	doca_error_t result;

	if (map == NULL) {
		return DOCA_ERROR_NO_MEMORY;
	}
	map->addr = addr;
	result = create_mmap(device, map, dmabuf, failure);
	if (result != DOCA_SUCCESS) {
		free(map);
		return result;
	}
	*out = map;
	return DOCA_SUCCESS;
}

doca_error_t
adma_mmap_register(struct adma_device *device, void *addr, uint64_t length, uint32_t access,
		   struct adma_mmap **out, struct adma_failure *failure)
{
	return register_range(device, addr, length, access, NULL, out, failure);
}

doca_error_t
adma_mmap_register_dmabuf(struct adma_device *device, int fd, uint64_t offset, void *addr,
			  uint64_t length, uint32_t access, struct adma_mmap **out,
			  struct adma_failure *failure)
{
	const struct dmabuf dmabuf = {.fd = fd, .offset = offset};

	if (device->library->doca_mmap_set_dmabuf_memrange == NULL) {
		FAIL(failure, DOCA_ERROR_NOT_SUPPORTED, "doca_mmap_set_dmabuf_memrange");
		return DOCA_ERROR_NOT_SUPPORTED;
	}
	return register_range(device, addr, length, access, &dmabuf, out, failure);
}

static uint64_t
system_page(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

/*
 * Map pages; where they are to be aligned to more than a page, in a range of addresses reserved for that, of which the rest
 * is given back. NULL on failure.
 */
static char *
map_pages(uint64_t length, uint64_t align, uint32_t huge_shift)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS;
	uint64_t page = system_page();
	char *base, *addr;
	uint64_t head;

	if (huge_shift != 0) {
		flags |= MAP_HUGETLB | (int)(huge_shift << MAP_HUGE_SHIFT);
		page = UINT64_C(1) << huge_shift;
	}
	if (align <= page) {
		addr = mmap(NULL, length, PROT_READ | PROT_WRITE, flags, -1, 0);
		return addr != MAP_FAILED ? addr : NULL;
	}
	if (length > UINT64_MAX - align) {
		return NULL;
	}
	base = mmap(NULL, length + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		    -1, 0);
	if (base == MAP_FAILED) {
		return NULL;
	}
	head = -(uintptr_t)base & (align - 1);
	addr = mmap(base + head, length, PROT_READ | PROT_WRITE, flags | MAP_FIXED, -1, 0);
	/* A failure may leave a gap in the middle, and what is in the gap by now is another thread's: hands off it. */
	if (head != 0) {
		munmap(base, head);
	}
	munmap(base + head + length, align - head);
	return addr != MAP_FAILED ? addr : NULL;
}

doca_error_t
adma_mmap_alloc(struct adma_device *device, uint64_t length, uint64_t align, uint32_t huge_shift,
		uint32_t access, struct adma_mmap **out, struct adma_failure *failure)
{
	uint64_t page = huge_shift != 0 ? UINT64_C(1) << huge_shift : system_page();
	struct adma_mmap *map = new_map(device, length, access, failure);
	doca_error_t result;

	if (map == NULL) {
		return DOCA_ERROR_NO_MEMORY;
	}
	if (length <= UINT64_MAX - (page - 1)) {
		map->page_bytes = (length + page - 1) & ~(page - 1);
		map->addr = map_pages(map->page_bytes, align, huge_shift);
	}
	if (map->addr == NULL) {
		FAIL(failure, DOCA_ERROR_NO_MEMORY, "mmap");
		free(map);
		return DOCA_ERROR_NO_MEMORY;
	}
	result = create_mmap(device, map, NULL, failure);
	if (result != DOCA_SUCCESS) {
		adma_mmap_free(map);
		return result;
	}
	*out = map;
	return DOCA_SUCCESS;
}

void *
adma_mmap_doca(const struct adma_mmap *map)
{
	return map->mmap;
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
	if (map->page_bytes != 0) {
		munmap(map->addr, map->page_bytes);
	}
	free(map);
}
