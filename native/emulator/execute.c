/* SPDX-License-Identifier: Apache-2.0 */
/* What a task does, as it was planned: by any thread, once claimed; and how it lands. */
#include "emu.h"
#include "peer.h"

/*
 * Copy piece by piece between lists, or between processes.
 *
 * The lists are read as they are now: a program that changed them in flight may have made them too
 * short for what was submitted.
 */
static doca_error_t
execute_pieces(struct doca_dma_task_memcpy *task)
{
	const struct doca_buf *src = task->src;
	const struct doca_buf *dst = task->dst;
	size_t src_done = 0;
	size_t dst_done = 0;
	size_t left = task->len;

	while (left != 0) {
		size_t from;
		size_t room;
		size_t part;
		uint8_t *to;

		if (doca_unlikely(src == NULL || dst == NULL)) {
			return DOCA_ERROR_IO_FAILED;
		}
		from = src->data_len - src_done;
		room = emu_buf_room(dst) - dst_done;
		part = from < room ? from : room;
		part = part < left ? part : left;
		if (part == 0) {
			if (from == 0) {
				src = src->next;
				src_done = 0;
			} else {
				dst = dst->next;
				dst_done = 0;
			}
			continue;
		}
		to = dst->data + dst->data_len + dst_done;
		if (src->mmap->import == NULL && dst->mmap->import == NULL) {
			emu_copy(to, src->data + src_done, part);
		} else {
			doca_error_t result =
				emu_peer_copy(dst->mmap->import, to, src->mmap->import,
					      src->data + src_done, part);

			if (result != DOCA_SUCCESS) {
				return result;
			}
		}
		src_done += part;
		dst_done += part;
		left -= part;
	}
	return DOCA_SUCCESS;
}

/* Flip the first byte that was written. */
static void
corrupt(const struct doca_buf *dst)
{
	uint8_t *byte;
	uint8_t value;

	while (dst != NULL && emu_buf_room(dst) == 0) {
		dst = dst->next;
	}
	if (dst == NULL) {
		return; /* changed in flight */
	}
	byte = dst->data + dst->data_len;
	if (dst->mmap->import == NULL) {
		*byte ^= 0xff;
	} else if (emu_peer_copy(NULL, &value, dst->mmap->import, byte, 1) == DOCA_SUCCESS) {
		value ^= 0xff;
		emu_peer_copy(dst->mmap->import, byte, NULL, &value, 1);
	}
}

EMU_COLD static void
execute_special(struct doca_dma_task_memcpy *task)
{
	if ((task->special & (EMU_TASK_LISTS | EMU_TASK_REMOTE)) != 0) {
		task->base.result = execute_pieces(task);
	} else {
		emu_copy(task->to, task->from, task->len);
	}
	if ((task->special & EMU_TASK_CORRUPT) != 0 && task->base.result == DOCA_SUCCESS) {
		corrupt(task->dst);
	}
}

/* Move the bytes of a claimed task, or fail it as planned. Any thread. */
void
emu_dma_execute(struct doca_dma_task_memcpy *task)
{
	task->base.result = task->planned;
	if (doca_unlikely(task->planned != DOCA_SUCCESS)) {
		return;
	}
	if (doca_unlikely(task->summed)) {
		emu_sum_begins(task);
	}
	if (doca_likely(task->special == 0)) {
		emu_copy(task->to, task->from, task->len);
	} else {
		execute_special(task);
	}
	if (doca_unlikely(task->summed)) {
		emu_sum_done(task);
	}
}

/* Let go of the bufs of a task that ends; those dropped in the meantime are freed. */
void
emu_dma_unhold(struct doca_dma_task_memcpy *task)
{
	struct doca_buf *src = (struct doca_buf *)(uintptr_t)task->src;
	struct doca_buf *dst = task->dst;

	if (!task->held) {
		return;
	}
	task->held = 0;
	if (doca_unlikely(!emu_maps_are_started(src) || !emu_maps_are_started(dst))) {
		/* With thread safety a map does not count its bufs, and so does not refuse. */
		emu_violation("doca_mmap_stop", task, EMU_MAGIC_TASK,
			      "a map was stopped while it was in flight");
	}
	if (--src->in_flight == 0 && doca_unlikely(src->dropped)) {
		emu_buf_release(src);
	}
	if (--dst->in_flight == 0 && doca_unlikely(dst->dropped)) {
		emu_buf_release(dst);
	}
}

/* Extend the data of the destination by what was copied. */
void
emu_dma_land(struct doca_dma_task_memcpy *task)
{
	size_t left = task->len;

	for (struct doca_buf *dst = task->dst; left != 0 && dst != NULL; dst = dst->next) {
		size_t room = emu_buf_room(dst);
		size_t part = left < room ? left : room;

		dst->data_len += part;
		left -= part;
	}
	emu_dma_unhold(task);
}
