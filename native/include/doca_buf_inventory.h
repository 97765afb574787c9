/* SPDX-License-Identifier: Apache-2.0 */
/* Buf inventories: pools from which bufs are taken. One thread at a time. */
#ifndef DOCA_BUF_INVENTORY_H_
#define DOCA_BUF_INVENTORY_H_

#include <stddef.h>
#include <stdint.h>

#include <doca_compat.h>
#include <doca_error.h>
#include <doca_types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct doca_buf;
struct doca_buf_inventory;
struct doca_mmap;

/**
 * Create a pool of bufs, the caller's until doca_buf_inventory_destroy.
 * @retval DOCA_ERROR_INVALID_VALUE no elements
 * @retval DOCA_ERROR_NO_MEMORY
 */
DOCA_STABLE
doca_error_t
doca_buf_inventory_create(size_t num_elements, struct doca_buf_inventory **inventory);

/**
 * Destroy the pool, stopping it first.
 * @retval DOCA_ERROR_IN_USE bufs are not back
 */
DOCA_STABLE
doca_error_t
doca_buf_inventory_destroy(struct doca_buf_inventory *inventory);

/** Allow bufs to be taken. */
DOCA_STABLE
doca_error_t
doca_buf_inventory_start(struct doca_buf_inventory *inventory);

/** Allow no more bufs to be taken; those out stay valid. */
DOCA_STABLE
doca_error_t
doca_buf_inventory_stop(struct doca_buf_inventory *inventory);

/**
 * Take a buf over [addr, addr+len) of a started map, with the data at [data, data+data_len).
 * @retval DOCA_ERROR_INVALID_VALUE outside the map, or the data outside the buf
 * @retval DOCA_ERROR_NO_MEMORY none left
 * @retval DOCA_ERROR_BAD_STATE map or inventory not started
 * The caller drops it with doca_buf_dec_refcount.
 */
DOCA_STABLE
doca_error_t
doca_buf_inventory_buf_get_by_args(struct doca_buf_inventory *inventory, struct doca_mmap *mmap,
				   void *addr, size_t len, void *data, size_t data_len,
				   struct doca_buf **buf);

/**
 * Add elements to a started pool.
 * @retval DOCA_ERROR_BAD_STATE not started
 */
DOCA_EXPERIMENTAL
doca_error_t
doca_buf_inventory_expand(struct doca_buf_inventory *inventory, uint32_t num_elements);

/**
 * Take a buf (a list of them) over the same memory and data as another.
 * @retval DOCA_ERROR_NOT_PERMITTED in a list and not its head
 * @retval DOCA_ERROR_BAD_STATE map or inventory not started
 * @retval DOCA_ERROR_NO_MEMORY
 */
DOCA_STABLE
doca_error_t
doca_buf_inventory_buf_dup(struct doca_buf_inventory *inventory, const struct doca_buf *src_buf,
			   struct doca_buf **dst_buf);

/** Size of the pool. */
DOCA_STABLE
doca_error_t
doca_buf_inventory_get_num_elements(const struct doca_buf_inventory *inventory,
				    uint32_t *num_of_elements);

/** How many bufs can still be taken. */
DOCA_STABLE
doca_error_t
doca_buf_inventory_get_num_free_elements(const struct doca_buf_inventory *inventory,
					 uint32_t *num_of_free_elements);

/** The word kept by doca_buf_inventory_set_user_data. */
DOCA_STABLE
doca_error_t
doca_buf_inventory_get_user_data(const struct doca_buf_inventory *inventory,
				 union doca_data *user_data);

/** Keep a word of the user's. */
DOCA_STABLE
doca_error_t
doca_buf_inventory_set_user_data(struct doca_buf_inventory *inventory, union doca_data user_data);

/** Take a buf over [addr, addr+len) that holds no data yet: a destination. */
static inline doca_error_t
doca_buf_inventory_buf_get_by_addr(struct doca_buf_inventory *inventory, struct doca_mmap *mmap,
				   void *addr, size_t len, struct doca_buf **buf)
{
	return doca_buf_inventory_buf_get_by_args(inventory, mmap, addr, len, addr, 0, buf);
}

/** Take a buf that is full of data: a source. */
static inline doca_error_t
doca_buf_inventory_buf_get_by_data(struct doca_buf_inventory *inventory, struct doca_mmap *mmap,
				   void *data, size_t data_len, struct doca_buf **buf)
{
	return doca_buf_inventory_buf_get_by_args(inventory, mmap, data, data_len, data, data_len,
						  buf);
}

#ifdef __cplusplus
}
#endif

#endif /* DOCA_BUF_INVENTORY_H_ */
