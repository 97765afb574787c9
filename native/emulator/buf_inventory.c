/* SPDX-License-Identifier: Apache-2.0 */
/* doca_buf_inventory.h: pools of bufs. */
#include "emu.h"

#include <stdlib.h>

/* Add bufs to a pool; the first ones to be taken are the first of the chunk. */
static doca_error_t
add_chunk(struct doca_buf_inventory *inventory, size_t num)
{
	struct emu_buf_chunk *chunk;

	if (num == 0 || num > UINT32_MAX - inventory->num) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	chunk = calloc(1, sizeof(*chunk) + num * sizeof(chunk->bufs[0]));
	if (chunk == NULL) {
		return DOCA_ERROR_NO_MEMORY;
	}
	chunk->num = num;
	chunk->next = inventory->chunks;
	inventory->chunks = chunk;
	for (size_t i = num; i-- != 0;) {
		chunk->bufs[i].object.magic = EMU_MAGIC_BUF | EMU_DEAD;
		chunk->bufs[i].inventory = inventory;
		chunk->bufs[i].next = inventory->free_list;
		inventory->free_list = &chunk->bufs[i];
	}
	inventory->num += (uint32_t)num;
	inventory->num_free += (uint32_t)num;
	return DOCA_SUCCESS;
}

doca_error_t
doca_buf_inventory_create(size_t num_elements, struct doca_buf_inventory **inventory)
{
	struct doca_buf_inventory *new_inventory;
	doca_error_t result;

	EMU_ENTER("buf_inventory_create");
	EMU_CHECK_OUT(inventory);
	new_inventory = calloc(1, sizeof(*new_inventory));
	if (new_inventory == NULL) {
		return DOCA_ERROR_NO_MEMORY;
	}
	result = add_chunk(new_inventory, num_elements);
	if (result != DOCA_SUCCESS) {
		free(new_inventory);
		return result;
	}
	new_inventory->object.magic = EMU_MAGIC_INVENTORY;
	emu_add(&emu_stats.live_inventories, 1);
	*inventory = new_inventory;
	return DOCA_SUCCESS;
}

doca_error_t
doca_buf_inventory_destroy(struct doca_buf_inventory *inventory)
{
	EMU_ENTER("buf_inventory_destroy");
	EMU_CHECK(inventory, EMU_MAGIC_INVENTORY);
	if (inventory->num_free != inventory->num) {
		emu_violation(__func__, inventory, EMU_MAGIC_INVENTORY, "%u bufs are out",
			      inventory->num - inventory->num_free);
		return DOCA_ERROR_IN_USE;
	}
	while (inventory->chunks != NULL) {
		struct emu_buf_chunk *chunk = inventory->chunks;

		inventory->chunks = chunk->next;
		emu_retire(chunk, sizeof(*chunk) + chunk->num * sizeof(chunk->bufs[0]));
	}
	emu_sub(&emu_stats.live_inventories, 1);
	emu_retire(inventory, sizeof(*inventory));
	return DOCA_SUCCESS;
}

doca_error_t
doca_buf_inventory_start(struct doca_buf_inventory *inventory)
{
	EMU_ENTER("buf_inventory_start");
	EMU_CHECK(inventory, EMU_MAGIC_INVENTORY);
	inventory->started = true;
	return DOCA_SUCCESS;
}

doca_error_t
doca_buf_inventory_stop(struct doca_buf_inventory *inventory)
{
	EMU_ENTER("buf_inventory_stop");
	EMU_CHECK(inventory, EMU_MAGIC_INVENTORY);
	inventory->started = false;
	return DOCA_SUCCESS;
}

/* Take a buf that is known to be there. */
static struct doca_buf *
take(struct doca_buf_inventory *inventory, struct doca_mmap *mmap, uint8_t *addr, size_t len,
     uint8_t *data, size_t data_len)
{
	struct doca_buf *buf = inventory->free_list;

	inventory->free_list = buf->next;
	inventory->num_free--;
	buf->object.magic = EMU_MAGIC_BUF;
	buf->mmap = mmap;
	buf->addr = addr;
	buf->len = len;
	buf->data = data;
	buf->data_len = data_len;
	buf->next = NULL;
	buf->prev = NULL;
	buf->last = NULL;
	buf->in_flight = 0;
	buf->refcount = 1;
	buf->dropped = false;
	atomic_fetch_add_explicit(&mmap->refs, 1, memory_order_relaxed);
	emu_add(&emu_stats.live_bufs, 1);
	return buf;
}

doca_error_t
doca_buf_inventory_buf_get_by_args(struct doca_buf_inventory *inventory, struct doca_mmap *mmap,
				   void *addr, size_t len, void *data, size_t data_len,
				   struct doca_buf **buf)
{
	uintptr_t begin = (uintptr_t)addr;
	uintptr_t offset;

	EMU_ENTER("buf_inventory_buf_get_by_args");
	EMU_CHECK(inventory, EMU_MAGIC_INVENTORY);
	EMU_CHECK(mmap, EMU_MAGIC_MMAP);
	EMU_CHECK_OUT(buf);
	if (doca_unlikely(!inventory->started)) {
		emu_violation(__func__, inventory, EMU_MAGIC_INVENTORY, "it is not started");
		return DOCA_ERROR_BAD_STATE;
	}
	if (doca_unlikely(!mmap->started)) {
		emu_violation(__func__, mmap, EMU_MAGIC_MMAP, "it is not started");
		return DOCA_ERROR_BAD_STATE;
	}
	offset = begin - (uintptr_t)mmap->addr;
	if (doca_unlikely(addr == NULL || begin < (uintptr_t)mmap->addr || offset > mmap->len ||
			  len > mmap->len - offset)) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	offset = (uintptr_t)data - begin;
	if (doca_unlikely((uintptr_t)data < begin || offset > len || data_len > len - offset)) {
		emu_violation(__func__, mmap, EMU_MAGIC_MMAP,
			      "the data of a buf does not lie inside it");
		return DOCA_ERROR_INVALID_VALUE;
	}
	if (doca_unlikely(inventory->free_list == NULL)) {
		emu_add(&emu_stats.no_memory, 1);
		return DOCA_ERROR_NO_MEMORY;
	}
	*buf = take(inventory, mmap, addr, len, data, data_len);
	return DOCA_SUCCESS;
}

doca_error_t
doca_buf_inventory_expand(struct doca_buf_inventory *inventory, uint32_t num_elements)
{
	EMU_ENTER("buf_inventory_expand");
	EMU_CHECK(inventory, EMU_MAGIC_INVENTORY);
	if (!inventory->started) {
		return DOCA_ERROR_BAD_STATE;
	}
	return add_chunk(inventory, num_elements);
}

doca_error_t
doca_buf_inventory_buf_dup(struct doca_buf_inventory *inventory, const struct doca_buf *src_buf,
			   struct doca_buf **dst_buf)
{
	const struct doca_buf *src;
	struct doca_buf *head = NULL;
	struct doca_buf *tail = NULL;
	uint32_t num = 0;

	EMU_ENTER("buf_inventory_buf_dup");
	EMU_CHECK(inventory, EMU_MAGIC_INVENTORY);
	EMU_CHECK(src_buf, EMU_MAGIC_BUF);
	EMU_CHECK_OUT(dst_buf);
	if (src_buf->prev != NULL) {
		return DOCA_ERROR_NOT_PERMITTED;
	}
	for (src = src_buf; src != NULL; src = src->next) {
		if (!src->mmap->started) {
			return DOCA_ERROR_BAD_STATE;
		}
		num++;
	}
	if (!inventory->started) {
		return DOCA_ERROR_BAD_STATE;
	}
	if (num > inventory->num_free) {
		emu_add(&emu_stats.no_memory, 1);
		return DOCA_ERROR_NO_MEMORY;
	}
	for (src = src_buf; src != NULL; src = src->next) {
		struct doca_buf *copy =
			take(inventory, src->mmap, src->addr, src->len, src->data, src->data_len);

		copy->prev = tail;
		if (tail != NULL) {
			tail->next = copy;
		} else {
			head = copy;
		}
		tail = copy;
	}
	head->last = tail != head ? tail : NULL;
	*dst_buf = head;
	return DOCA_SUCCESS;
}

doca_error_t
doca_buf_inventory_get_num_elements(const struct doca_buf_inventory *inventory,
				    uint32_t *num_of_elements)
{
	EMU_ENTER("buf_inventory_get_num_elements");
	EMU_CHECK(inventory, EMU_MAGIC_INVENTORY);
	EMU_CHECK_OUT(num_of_elements);
	*num_of_elements = inventory->num;
	return DOCA_SUCCESS;
}

doca_error_t
doca_buf_inventory_get_num_free_elements(const struct doca_buf_inventory *inventory,
					 uint32_t *num_of_free_elements)
{
	EMU_ENTER("buf_inventory_get_num_free_elements");
	EMU_CHECK(inventory, EMU_MAGIC_INVENTORY);
	EMU_CHECK_OUT(num_of_free_elements);
	*num_of_free_elements = inventory->num_free;
	return DOCA_SUCCESS;
}

doca_error_t
doca_buf_inventory_get_user_data(const struct doca_buf_inventory *inventory,
				 union doca_data *user_data)
{
	EMU_ENTER("buf_inventory_get_user_data");
	EMU_CHECK(inventory, EMU_MAGIC_INVENTORY);
	EMU_CHECK_OUT(user_data);
	*user_data = inventory->user_data;
	return DOCA_SUCCESS;
}

doca_error_t
doca_buf_inventory_set_user_data(struct doca_buf_inventory *inventory, union doca_data user_data)
{
	EMU_ENTER("buf_inventory_set_user_data");
	EMU_CHECK(inventory, EMU_MAGIC_INVENTORY);
	inventory->user_data = user_data;
	return DOCA_SUCCESS;
}
