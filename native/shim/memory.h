/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registered memory: one range, one doca_mmap, and, for memory the library owns, its pages; or a range of a peer's.
 *
 *              adma_mmap_register            adma_mmap_unregister            adma_mmap_free
 *    (pages) --------------------> REGISTERED -------------------> UNREGISTERED ---------------> gone
 *              adma_mmap_import
 *
 * A map that a running context has used is not unregistered before that context is gone (the rule book's reading, the
 * stricter one): the channel buries it and unregisters it when it recycles its context or closes.
 */
#ifndef ADMA_MEMORY_H
#define ADMA_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "library.h"

struct adma_device;

struct adma_mmap {
	/* fixed at registration */
	struct adma_device *device;
	struct doca_mmap *mmap; /* NULL once unregistered */
	char *addr;
	uint64_t length;     /* bytes */
	uint64_t space;	     /* whose addresses these are: 0 for this process */
	uint64_t page_bytes; /* of pages of our own; 0: the memory is the caller's */
	uint32_t access;     /* DOCA_ACCESS_FLAG_*; of a peer's memory what copies may do to it */
	uint8_t imported;    /* a peer's memory: only the engine reaches it */
	/* written with the GIL held */
	uint8_t closed; /* no new copy may name it */
	uint8_t stuck;	/* DOCA did not take back a buf that points into it: never unregister */
	uint8_t used;	/* a context has seen a buf of it: bury, do not unregister */
	uint32_t users; /* started copies that name it and have not ended */
	uint32_t views; /* exported Python buffers onto it */
	/* the channel's, under its lock: the list of live maps, then the graveyard */
	struct adma_mmap *next;
	struct adma_mmap **link;
	uint8_t released; /* nobody above holds it: free it when it is unregistered */
	void *owner;	  /* the layer above's */
};

/**
 * Register the caller's range with the device.
 *
 * @param[in] device an open device
 * @param[in] addr start of the memory, which stays the caller's
 * @param[in] length bytes, at least 1
 * @param[in] access DOCA_ACCESS_FLAG_* bits
 * @param[out] map the registration; the caller gives it to adma_channel_retire()
 * @param[out] failure the call that failed
 * @retval DOCA_SUCCESS registered
 * @retval other the code of failure->call; nothing is left registered
 * Threads: any; may block while pages are pinned.
 */
doca_error_t
adma_mmap_register(struct adma_device *device, void *addr, uint64_t length, uint32_t access,
		   struct adma_mmap **map, struct adma_failure *failure);

/**
 * Register a range of another device's memory, as adma_mmap_register() does.
 *
 * @param[in] fd the dmabuf; the caller closes it, and may do so at once
 * @param[in] offset of the range in it, bytes
 * @retval DOCA_ERROR_NOT_SUPPORTED the library, or the device, knows no dmabufs
 */
doca_error_t
adma_mmap_register_dmabuf(struct adma_device *device, int fd, uint64_t offset, void *addr,
			  uint64_t length, uint32_t access, struct adma_mmap **map,
			  struct adma_failure *failure);

/**
 * Map fresh zeroed pages, which the map owns, and register them, as adma_mmap_register() does.
 *
 * @param[in] align a power of two, or 0 for no more than a page's
 * @param[in] huge_shift 0 for ordinary pages, else the binary logarithm of the huge pages' size
 * @retval DOCA_ERROR_NO_MEMORY failure->call "mmap": there are no such pages
 */
doca_error_t
adma_mmap_alloc(struct adma_device *device, uint64_t length, uint64_t align, uint32_t huge_shift,
		uint32_t access, struct adma_mmap **map, struct adma_failure *failure);

/** The doca_mmap of a map that is registered. */
void *
adma_mmap_doca(const struct adma_mmap *map);

/**
 * Let the PCI peer import a map that was registered with one of the PCI flags.
 *
 * @param[in] map registered
 * @param[out] descriptor what the peer needs; the map's, until it is unregistered, which ends the export
 * @param[out] length of it, bytes
 * @param[out] failure the call that failed
 * @retval DOCA_SUCCESS exported
 * @retval other the code of failure->call
 * Threads: any, one at a time per map; may block.
 */
doca_error_t
adma_mmap_export(struct adma_mmap *map, const void **descriptor, size_t *length,
		 struct adma_failure *failure);

/**
 * Make a map of memory that a peer has exported.
 *
 * @param[in] device an open device
 * @param[in] descriptor as the peer made it; not needed afterwards
 * @param[in] length of it, bytes
 * @param[in] access what copies may do to the memory, as DOCA_ACCESS_FLAG_LOCAL_*; the peer decides by itself, too
 * @param[in] space the same for all maps whose addresses are of one address space; 0 for this process
 * @param[out] map the registration, for adma_mmap_unregister() and adma_mmap_free()
 * @param[out] failure the call that failed
 * @retval DOCA_SUCCESS imported; the address and the length are the peer's
 * @retval other the code of failure->call; nothing is left
 * Threads: any; may block.
 */
doca_error_t
adma_mmap_import(struct adma_device *device, const void *descriptor, size_t length, uint32_t access,
		 uint64_t space, struct adma_mmap **map, struct adma_failure *failure);

/**
 * Undo the registration; the pages stay. Nothing may point into the map any more. Threads: any, one at a time per map.
 *
 * @retval DOCA_SUCCESS unregistered, or was before
 * @retval DOCA_ERROR_IN_USE a buf is stuck in it; it stays registered
 * @retval other doca_mmap_destroy()'s code; the map stays registered
 */
doca_error_t
adma_mmap_unregister(struct adma_mmap *map);

/** Free the pages, if the map owns them, and the struct. The map must be unregistered. */
void
adma_mmap_free(struct adma_mmap *map);

#endif
