/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the client is measured against, on the DOCA library it uses itself: a C program that polls, one that sleeps on the
 * notification fd, and the pieces of a naive binding. Tasks and bufs are made once and pointed at each copy's bytes, the
 * fastest way that the interface has. Also the marks of the region that callgrind counts. Built by _peers.py.
 */
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>

#include <valgrind/callgrind.h>

#include "doca_buf.h"
#include "doca_buf_inventory.h"
#include "doca_ctx.h"
#include "doca_dev.h"
#include "doca_dma.h"
#include "doca_error.h"
#include "doca_mmap.h"
#include "doca_pe.h"

/* A doorbell for so many tasks. */
#define BATCH 32

#define TRY(call) \
	do { \
		doca_error_t try_result_ = (call); \
		if (try_result_ != DOCA_SUCCESS) { \
			return (int)try_result_; \
		} \
	} while (0)

struct slot {
	struct doca_dma_task_memcpy *task;
	struct doca_buf *src;
	struct doca_buf *dst;
	struct slot *next; /* free list */
};

struct peer {
	struct doca_dev *dev;
	struct doca_mmap *src_map;
	struct doca_mmap *dst_map;
	struct doca_buf_inventory *inventory;
	struct doca_pe *pe;
	struct doca_dma *dma;
	struct doca_ctx *ctx;
	char *src;
	char *dst;
	uint64_t nbytes;
	struct slot *slots;
	struct slot *free;
	uint32_t depth;
	uint64_t done;
	int failed;
};

static void
on_completed(struct doca_dma_task_memcpy *task, union doca_data task_data, union doca_data ctx_data)
{
	struct peer *peer = ctx_data.ptr;
	struct slot *slot = task_data.ptr;

	(void)task;
	slot->next = peer->free;
	peer->free = slot;
	peer->done++;
}

static void
on_failed(struct doca_dma_task_memcpy *task, union doca_data task_data, union doca_data ctx_data)
{
	on_completed(task, task_data, ctx_data);
	((struct peer *)ctx_data.ptr)->failed = 1;
}

static int
open_device(struct peer *peer)
{
	struct doca_devinfo **list;
	uint32_t num;

	TRY(doca_devinfo_create_list(&list, &num));
	for (uint32_t i = 0; i < num && peer->dev == NULL; i++) {
		if (doca_dma_cap_task_memcpy_is_supported(list[i]) == DOCA_SUCCESS) {
			TRY(doca_dev_open(list[i], &peer->dev));
		}
	}
	TRY(doca_devinfo_destroy_list(list));
	return peer->dev != NULL ? 0 : (int)DOCA_ERROR_NOT_FOUND;
}

static int
add_map(struct peer *peer, char *begin, struct doca_mmap **map)
{
	TRY(doca_mmap_create(map));
	TRY(doca_mmap_add_dev(*map, peer->dev));
	TRY(doca_mmap_set_memrange(*map, begin, peer->nbytes));
	TRY(doca_mmap_set_permissions(*map, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE));
	TRY(doca_mmap_start(*map));
	return 0;
}

static int
add_slots(struct peer *peer)
{
	peer->slots = calloc(peer->depth, sizeof(*peer->slots));
	if (peer->slots == NULL) {
		return (int)DOCA_ERROR_NO_MEMORY;
	}
	for (uint32_t i = 0; i < peer->depth; i++) {
		struct slot *slot = &peer->slots[i];
		union doca_data data = {.ptr = slot};

		TRY(doca_buf_inventory_buf_get_by_args(peer->inventory, peer->src_map, peer->src,
						       peer->nbytes, peer->src, 1, &slot->src));
		TRY(doca_buf_inventory_buf_get_by_args(peer->inventory, peer->dst_map, peer->dst,
						       peer->nbytes, peer->dst, 0, &slot->dst));
		TRY(doca_dma_task_memcpy_alloc_init(peer->dma, slot->src, slot->dst, data,
						    &slot->task));
		slot->next = peer->free;
		peer->free = slot;
	}
	return 0;
}

/* Open the first device that can, over memory of the caller's; with callbacks of its own there are no slots. */
int
peer_open(struct peer *peer, char *src, char *dst, uint64_t nbytes, uint32_t depth,
	  doca_dma_task_memcpy_completion_cb_t completed,
	  doca_dma_task_memcpy_completion_cb_t failed)
{
	union doca_data data = {.ptr = peer};

	*peer = (struct peer){.src = src, .dst = dst, .nbytes = nbytes, .depth = depth};
	TRY(open_device(peer));
	TRY(add_map(peer, src, &peer->src_map));
	TRY(add_map(peer, dst, &peer->dst_map));
	TRY(doca_buf_inventory_create(2 * (size_t)depth, &peer->inventory));
	TRY(doca_buf_inventory_start(peer->inventory));
	TRY(doca_pe_create(&peer->pe));
	TRY(doca_dma_create(peer->dev, &peer->dma));
	peer->ctx = doca_dma_as_ctx(peer->dma);
	TRY(doca_pe_connect_ctx(peer->pe, peer->ctx));
	TRY(doca_ctx_set_user_data(peer->ctx, data));
	TRY(doca_dma_task_memcpy_set_conf(peer->dma, completed != NULL ? completed : on_completed,
					  failed != NULL ? failed : on_failed, depth));
	TRY(doca_ctx_start(peer->ctx));
	return completed != NULL ? 0 : add_slots(peer);
}

int
peer_close(struct peer *peer)
{
	for (uint32_t i = 0; peer->slots != NULL && i < peer->depth; i++) {
		doca_task_free(doca_dma_task_memcpy_as_task(peer->slots[i].task));
		TRY(doca_buf_dec_refcount(peer->slots[i].src, NULL));
		TRY(doca_buf_dec_refcount(peer->slots[i].dst, NULL));
	}
	free(peer->slots);
	TRY(doca_ctx_stop(peer->ctx));
	TRY(doca_dma_destroy(peer->dma));
	TRY(doca_pe_destroy(peer->pe));
	TRY(doca_buf_inventory_destroy(peer->inventory));
	TRY(doca_mmap_destroy(peer->src_map));
	TRY(doca_mmap_destroy(peer->dst_map));
	TRY(doca_dev_close(peer->dev));
	return 0;
}

/* Give the engine the copy of `length` bytes at `offset`; there is a free slot. */
static int
submit(struct peer *peer, uint64_t offset, uint64_t length, uint32_t flags)
{
	struct slot *slot = peer->free;

	TRY(doca_buf_set_data(slot->src, peer->src + offset, length));
	TRY(doca_buf_set_data(slot->dst, peer->dst + offset, 0));
	doca_dma_task_memcpy_set_src(slot->task, slot->src);
	doca_dma_task_memcpy_set_dst(slot->task, slot->dst);
	TRY(doca_task_submit_ex(doca_dma_task_memcpy_as_task(slot->task), flags));
	peer->free = slot->next;
	return 0;
}

/* So many copies, the window kept full, by polling; offsets from a list that repeats. */
int
peer_poll(struct peer *peer, uint64_t count, uint64_t length, const int64_t *offsets)
{
	uint64_t submitted = 0;
	uint64_t end = peer->done + count;

	while (peer->done < end) {
		uint64_t before = submitted;

		while (submitted < count && peer->free != NULL) {
			TRY(submit(peer, (uint64_t)offsets[submitted], length,
				   DOCA_TASK_SUBMIT_FLAG_NONE));
			submitted++;
			if ((submitted - before) % BATCH == 0) {
				doca_ctx_flush_tasks(peer->ctx);
			}
		}
		if ((submitted - before) % BATCH != 0) {
			doca_ctx_flush_tasks(peer->ctx);
		}
		for (uint32_t i = 0; i < BATCH && doca_pe_progress(peer->pe) != 0; i++) {
		}
	}
	return peer->failed;
}

/* So many copies, one after another, asleep on the notification fd while the engine works. */
int
peer_events(struct peer *peer, uint64_t count, uint64_t length, const int64_t *offsets)
{
	struct pollfd pollfd = {.events = POLLIN};

	TRY(doca_pe_get_notification_handle(peer->pe, &pollfd.fd));
	for (uint64_t i = 0; i < count; i++) {
		uint64_t end = peer->done + 1;

		TRY(submit(peer, (uint64_t)offsets[i], length, DOCA_TASK_SUBMIT_FLAG_FLUSH));
		while (peer->done < end) {
			if (doca_pe_progress(peer->pe) != 0) {
				continue;
			}
			TRY(doca_pe_request_notification(peer->pe));
			if (poll(&pollfd, 1, -1) < 0) {
				return (int)DOCA_ERROR_OPERATING_SYSTEM;
			}
			TRY(doca_pe_clear_notification(peer->pe, pollfd.fd));
		}
	}
	return peer->failed;
}

void
region_start(void)
{
	CALLGRIND_START_INSTRUMENTATION;
	CALLGRIND_ZERO_STATS;
}

void
region_stop(void)
{
	CALLGRIND_DUMP_STATS;
	CALLGRIND_STOP_INSTRUMENTATION;
}
