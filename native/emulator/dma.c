/* SPDX-License-Identifier: Apache-2.0 */
/* doca_dma.h: DMA instances, their tasks, and what a task does. */
#include "emu.h"
#include "peer.h"
#include "schedule.h"

#include <stdlib.h>
#include <string.h>

doca_error_t
doca_dma_create(struct doca_dev *dev, struct doca_dma **dma)
{
	struct doca_dma *new_dma;

	EMU_ENTER("dma_create");
	EMU_CHECK(dev, EMU_MAGIC_DEV);
	EMU_CHECK_OUT(dma);
	new_dma = aligned_alloc(64, (sizeof(*new_dma) + 63) & ~(size_t)63);
	if (new_dma == NULL) {
		return DOCA_ERROR_NO_MEMORY;
	}
	memset(new_dma, 0, sizeof(*new_dma));
	atomic_fetch_add(&dev->num_users, 1);
	emu_ctx_init(&new_dma->ctx, dev);
	*dma = new_dma;
	return DOCA_SUCCESS;
}

doca_error_t
doca_dma_destroy(struct doca_dma *dma)
{
	EMU_ENTER("dma_destroy");
	EMU_CHECK(dma, EMU_MAGIC_CTX);
	if (dma->ctx.pe != NULL && emu_pe_is_foreign(dma->ctx.pe, __func__)) {
		return DOCA_ERROR_IN_USE;
	}
	if (dma->ctx.state != DOCA_CTX_STATE_IDLE) {
		emu_violation(__func__, dma, EMU_MAGIC_CTX, "it is not idle (state %d)",
			      (int)dma->ctx.state);
		return DOCA_ERROR_IN_USE;
	}
	emu_ctx_fini(&dma->ctx);
	atomic_fetch_sub(&dma->ctx.dev->num_users, 1);
	emu_ring_destroy(&dma->ctx.small);
	emu_ring_destroy(&dma->ctx.large);
	free(dma->ctx.heap);
	free(dma->ctx.lags);
	if (dma->slab != NULL) {
		emu_retire(dma->slab, dma->slab_tasks * sizeof(*dma->slab));
	}
	emu_retire(dma, sizeof(*dma));
	return DOCA_SUCCESS;
}

struct doca_ctx *
doca_dma_as_ctx(struct doca_dma *dma)
{
	if (!emu_is(dma, EMU_MAGIC_CTX)) {
		emu_bad_object(__func__, dma, EMU_MAGIC_CTX);
		return NULL;
	}
	return &dma->ctx;
}

doca_error_t
doca_dma_cap_task_memcpy_is_supported(const struct doca_devinfo *devinfo)
{
	EMU_ENTER("dma_cap_task_memcpy_is_supported");
	EMU_CHECK(devinfo, EMU_MAGIC_DEVINFO);
	return devinfo->device->dma ? DOCA_SUCCESS : DOCA_ERROR_NOT_SUPPORTED;
}

doca_error_t
doca_dma_cap_task_memcpy_get_max_buf_size(const struct doca_devinfo *devinfo, uint64_t *buf_size)
{
	EMU_ENTER("dma_cap_task_memcpy_get_max_buf_size");
	EMU_CHECK(devinfo, EMU_MAGIC_DEVINFO);
	EMU_CHECK_OUT(buf_size);
	if (!devinfo->device->dma) {
		return DOCA_ERROR_NOT_SUPPORTED;
	}
	*buf_size = emu_device_max_buf_size(devinfo->device);
	return DOCA_SUCCESS;
}

doca_error_t
doca_dma_cap_task_memcpy_get_max_buf_list_len(const struct doca_devinfo *devinfo,
					      uint32_t *max_buf_list_len)
{
	EMU_ENTER("dma_cap_task_memcpy_get_max_buf_list_len");
	EMU_CHECK(devinfo, EMU_MAGIC_DEVINFO);
	EMU_CHECK_OUT(max_buf_list_len);
	if (!devinfo->device->dma) {
		return DOCA_ERROR_NOT_SUPPORTED;
	}
	*max_buf_list_len = (uint32_t)emu_device_max_list_len(devinfo->device);
	return DOCA_SUCCESS;
}

doca_error_t
doca_dma_cap_get_max_num_tasks(struct doca_dma *dma, uint32_t *max_num_tasks)
{
	EMU_ENTER("dma_cap_get_max_num_tasks");
	EMU_CHECK(dma, EMU_MAGIC_CTX);
	EMU_CHECK_OUT(max_num_tasks);
	*max_num_tasks = (uint32_t)emu_device_max_tasks(dma->ctx.dev->device);
	return DOCA_SUCCESS;
}

doca_error_t
doca_dma_task_memcpy_set_conf(struct doca_dma *dma,
			      doca_dma_task_memcpy_completion_cb_t task_completion_cb,
			      doca_dma_task_memcpy_completion_cb_t task_error_cb,
			      uint32_t num_memcpy_tasks)
{
	EMU_ENTER("dma_task_memcpy_set_conf");
	EMU_CHECK(dma, EMU_MAGIC_CTX);
	if (dma->ctx.state != DOCA_CTX_STATE_IDLE) {
		return DOCA_ERROR_BAD_STATE;
	}
	if (!dma->ctx.dev->device->dma) {
		return DOCA_ERROR_NOT_SUPPORTED;
	}
	if (task_completion_cb == NULL || task_error_cb == NULL || num_memcpy_tasks == 0 ||
	    num_memcpy_tasks > emu_device_max_tasks(dma->ctx.dev->device)) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	dma->ok_cb = task_completion_cb;
	dma->error_cb = task_error_cb;
	dma->num_tasks = num_memcpy_tasks;
	return DOCA_SUCCESS;
}

doca_error_t
doca_dma_set_ordered_completions(struct doca_dma *dma, uint8_t ordered)
{
	EMU_ENTER("dma_set_ordered_completions");
	EMU_CHECK(dma, EMU_MAGIC_CTX);
	if (dma->ctx.state != DOCA_CTX_STATE_IDLE) {
		return DOCA_ERROR_BAD_STATE;
	}
	dma->ctx.ordered = ordered != 0;
	return DOCA_SUCCESS;
}

doca_error_t
doca_dma_get_gpu_handle(struct doca_dma *dma, struct doca_gpu_dma **gpu_dma)
{
	EMU_ENTER("dma_get_gpu_handle");
	EMU_CHECK(dma, EMU_MAGIC_CTX);
	EMU_CHECK_OUT(gpu_dma);
	return DOCA_ERROR_NOT_SUPPORTED;
}

/*
 * Get tasks and rings for a context that starts, and take its limits down.
 *
 * The memory is kept for the next start; tasks that were freed stay recognisable.
 */
doca_error_t
emu_dma_start(struct doca_dma *dma)
{
	struct emu_device *device = dma->ctx.dev->device;
	uint64_t depth = emu_get(EMU_QUEUE_DEPTH);
	uint32_t ring_size = 1;
	struct emu_ring small;
	struct emu_ring large;
	struct doca_dma_task_memcpy *slab = NULL;
	struct doca_task **heap = NULL;
	uint64_t *lags = NULL;

	if (!device->dma) {
		return DOCA_ERROR_NOT_SUPPORTED;
	}
	if (dma->num_tasks == 0) {
		return DOCA_ERROR_INITIALIZATION;
	}
	while (ring_size < dma->num_tasks) {
		ring_size *= 2;
	}
	if (ring_size != dma->ring_size) {
		if (emu_ring_create(&small, ring_size) != DOCA_SUCCESS) {
			return DOCA_ERROR_NO_MEMORY;
		}
		if (emu_ring_create(&large, ring_size) != DOCA_SUCCESS) {
			goto free_small;
		}
	}
	if (dma->slab_tasks != dma->num_tasks) {
		slab = calloc(dma->num_tasks, sizeof(*slab));
		heap = calloc(dma->num_tasks, sizeof(struct doca_task *));
		lags = calloc(dma->num_tasks, sizeof(*lags));
		if (slab == NULL || heap == NULL || lags == NULL) {
			goto free_slab;
		}
		free(dma->ctx.heap);
		free(dma->ctx.lags);
		dma->ctx.heap = heap;
		dma->ctx.lags = lags;
		if (dma->slab != NULL) {
			emu_retire(dma->slab, dma->slab_tasks * sizeof(*slab));
		}
		dma->slab = slab;
		dma->slab_tasks = dma->num_tasks;
		dma->slab_used = 0;
		dma->free_list = NULL;
		dma->parked = NULL;
	}
	if (ring_size != dma->ring_size) {
		emu_ring_destroy(&dma->ctx.small);
		emu_ring_destroy(&dma->ctx.large);
		dma->ctx.small = small;
		dma->ctx.large = large;
		dma->ring_size = ring_size;
	}
	dma->ctx.queue_depth =
		depth == 0 || depth > dma->num_tasks ? dma->num_tasks : (uint32_t)depth;
	dma->max_buf_size = emu_device_max_buf_size(device);
	dma->max_list_len = emu_device_max_list_len(device);
	return DOCA_SUCCESS;

free_slab:
	free(slab);
	free(heap);
	free(lags);
	if (ring_size != dma->ring_size) {
		emu_ring_destroy(&large);
	}
free_small:
	if (ring_size != dma->ring_size) {
		emu_ring_destroy(&small);
	}
	return DOCA_ERROR_NO_MEMORY;
}

/* Lengths of a list come from anywhere: their sum stays at the end of the numbers. */
static uint64_t
add_length(uint64_t sum, uint64_t length)
{
	return length > UINT64_MAX - sum ? UINT64_MAX : sum + length;
}

static bool
too_large(const struct doca_dma *dma, const struct doca_buf *src, const struct doca_buf *dst)
{
	uint64_t total = 0;
	uint64_t num = 0;

	for (; src != NULL; src = src->next) {
		total = add_length(total, src->data_len);
		num++;
	}
	if (num > dma->max_list_len || total > dma->max_buf_size) {
		return true;
	}
	for (num = 0; dst != NULL; dst = dst->next) {
		num++;
	}
	return num > dma->max_list_len;
}

doca_error_t
doca_dma_task_memcpy_alloc_init(struct doca_dma *dma, const struct doca_buf *src,
				struct doca_buf *dst, union doca_data user_data,
				struct doca_dma_task_memcpy **task)
{
	struct doca_dma_task_memcpy *new_task;

	EMU_ENTER("dma_task_memcpy_alloc_init");
	EMU_CHECK(dma, EMU_MAGIC_CTX);
	EMU_CHECK_OUT(task);
	if (dma->ctx.pe != NULL && emu_pe_is_foreign(dma->ctx.pe, __func__)) {
		return DOCA_ERROR_BAD_STATE;
	}
	if (dma->ctx.state != DOCA_CTX_STATE_RUNNING) {
		emu_violation(__func__, dma, EMU_MAGIC_CTX, "the context is not running (state %d)",
			      (int)dma->ctx.state);
		return DOCA_ERROR_BAD_STATE;
	}
	if (src != NULL) {
		EMU_CHECK(src, EMU_MAGIC_BUF);
	}
	if (dst != NULL) {
		EMU_CHECK(dst, EMU_MAGIC_BUF);
	}
	if (emu_get(EMU_OVERSIZE_AT_ALLOC) != 0 && too_large(dma, src, dst)) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	if (dma->free_list != NULL) {
		new_task = (struct doca_dma_task_memcpy *)dma->free_list;
		dma->free_list = new_task->base.next;
	} else if (dma->slab_used < dma->slab_tasks) {
		new_task = &dma->slab[dma->slab_used++];
		new_task->base.ctx = &dma->ctx;
	} else if (emu_sched_reap(&dma->ctx)) {
		new_task = (struct doca_dma_task_memcpy *)dma->free_list;
		dma->free_list = new_task->base.next;
	} else {
		emu_add(&emu_stats.no_memory, 1);
		return DOCA_ERROR_NO_MEMORY;
	}
	new_task->base.object.magic = EMU_MAGIC_TASK;
	new_task->base.user_data = user_data;
	new_task->base.status = DOCA_SUCCESS;
	new_task->base.state = EMU_TASK_OWNED;
	new_task->src = src;
	new_task->dst = dst;
	dma->ctx.allocated++;
	emu_add(&emu_stats.live_tasks, 1);
	*task = new_task;
	return DOCA_SUCCESS;
}

struct doca_task *
doca_dma_task_memcpy_as_task(struct doca_dma_task_memcpy *task)
{
	if (!emu_is(task, EMU_MAGIC_TASK)) {
		emu_bad_object(__func__, task, EMU_MAGIC_TASK);
		return NULL;
	}
	return &task->base;
}

/* Whether the user may change a task; reports a violation if not. */
static bool
settable(const char *func, struct doca_dma_task_memcpy *task)
{
	if (!emu_is(task, EMU_MAGIC_TASK)) {
		emu_bad_object(func, task, EMU_MAGIC_TASK);
		return false;
	}
	if (task->base.state == EMU_TASK_SUBMITTED) {
		emu_violation(func, task, EMU_MAGIC_TASK, "it is submitted");
		return false;
	}
	return true;
}

void
doca_dma_task_memcpy_set_src(struct doca_dma_task_memcpy *task, const struct doca_buf *src)
{
	if (settable(__func__, task)) {
		task->src = src;
	}
}

const struct doca_buf *
doca_dma_task_memcpy_get_src(const struct doca_dma_task_memcpy *task)
{
	if (!emu_is(task, EMU_MAGIC_TASK)) {
		emu_bad_object(__func__, task, EMU_MAGIC_TASK);
		return NULL;
	}
	return task->src;
}

void
doca_dma_task_memcpy_set_dst(struct doca_dma_task_memcpy *task, struct doca_buf *dst)
{
	if (settable(__func__, task)) {
		task->dst = dst;
	}
}

struct doca_buf *
doca_dma_task_memcpy_get_dst(const struct doca_dma_task_memcpy *task)
{
	if (!emu_is(task, EMU_MAGIC_TASK)) {
		emu_bad_object(__func__, task, EMU_MAGIC_TASK);
		return NULL;
	}
	return task->dst;
}

/* ---- what a task does: planned at submit, executed anywhere, landed at the report ---- */

static void
note_map(struct doca_mmap *mmap, uint64_t bit)
{
	if (doca_unlikely((atomic_load_explicit(&mmap->users, memory_order_relaxed) & bit) == 0)) {
		atomic_fetch_or(&mmap->users, bit);
	}
}

/* Report it if the bytes that go into a buf are bytes of the source. */
static void
check_overlap(const struct doca_dma_task_memcpy *task, const struct doca_buf *src,
	      const struct doca_buf *dst, size_t len)
{
	const uint8_t *to = dst->data + dst->data_len;

	if (doca_unlikely(src->mmap->import != dst->mmap->import) &&
	    !emu_import_is_same_memory(src->mmap->import, dst->mmap->import)) {
		return; /* addresses of two processes */
	}
	if (src->data < to + len && to < src->data + src->data_len) {
		emu_violation("doca_task_submit", task, EMU_MAGIC_TASK,
			      "source and destination overlap");
	}
}

/* What is wrong with the bufs of a task, whatever it is to do with them; NULL: nothing. */
static const char *
unusable(const struct doca_dma_task_memcpy *task)
{
	if (!emu_is(task->src, EMU_MAGIC_BUF) || !emu_is(task->dst, EMU_MAGIC_BUF)) {
		return "source or destination is no live buf";
	}
	if (task->src->prev != NULL || task->dst->prev != NULL) {
		return "a buf is an element of a list, not its head";
	}
	if (!emu_maps_are_started(task->src) || !emu_maps_are_started(task->dst)) {
		return "a buf points into a map that is not started";
	}
	return NULL;
}

/* The plan of anything but a plain copy that will succeed. */
static doca_error_t
plan_slow(struct doca_dma_task_memcpy *task, bool validate)
{
	struct doca_ctx *ctx = task->base.ctx;
	struct doca_dma *dma = (struct doca_dma *)ctx;
	const char *wrong = unusable(task);
	doca_error_t planned = DOCA_SUCCESS;
	doca_error_t refused = DOCA_SUCCESS;
	bool permitted = true;
	uint64_t length = 0;
	uint64_t room = 0;

	if (wrong != NULL) {
		if (validate) {
			return DOCA_ERROR_INVALID_VALUE;
		}
		emu_violation("doca_task_submit", task, EMU_MAGIC_TASK, "%s", wrong);
		task->planned = DOCA_ERROR_IO_FAILED;
		task->len = 0;
		task->from = NULL;
		task->to = NULL;
		return DOCA_SUCCESS;
	}
	for (const struct doca_buf *src = task->src; src != NULL; src = src->next) {
		length = add_length(length, src->data_len);
		permitted = permitted && emu_mmap_is_reached(src->mmap, ctx->dev);
	}
	for (const struct doca_buf *dst = task->dst; dst != NULL; dst = dst->next) {
		room = add_length(room, emu_buf_room(dst));
		permitted = permitted && dst->mmap->writable &&
			    emu_mmap_is_reached(dst->mmap, ctx->dev);
	}
	task->special = task->src->next != NULL || task->dst->next != NULL ? EMU_TASK_LISTS : 0;
	task->len = length;
	task->from = task->src->data;
	task->to = task->dst->data + task->dst->data_len;
	if (!permitted) {
		planned = DOCA_ERROR_IO_FAILED;
		refused = emu_get(EMU_PERMISSION_AT_SUBMIT) != 0 ? DOCA_ERROR_NOT_PERMITTED
								 : DOCA_SUCCESS;
	} else if (length == 0) {
		planned = DOCA_ERROR_IO_FAILED;
		refused =
			emu_get(EMU_ZERO_AT_SUBMIT) != 0 ? DOCA_ERROR_INVALID_VALUE : DOCA_SUCCESS;
	} else if (too_large(dma, task->src, task->dst) || length > room ||
		   (task->dst->next != NULL && emu_get(EMU_DST_LIST_FAILS) != 0)) {
		planned = DOCA_ERROR_IO_FAILED;
	}
	if (planned != DOCA_SUCCESS && validate) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	if (refused != DOCA_SUCCESS) {
		return refused;
	}
	task->planned = planned;
	for (const struct doca_buf *src = task->src; src != NULL; src = src->next) {
		size_t left = task->len;

		note_map(src->mmap, ctx->user_bit);
		for (const struct doca_buf *dst = task->dst; dst != NULL; dst = dst->next) {
			size_t part = left < emu_buf_room(dst) ? left : emu_buf_room(dst);

			check_overlap(task, src, dst, part);
			left -= part;
		}
	}
	for (const struct doca_buf *dst = task->dst; dst != NULL; dst = dst->next) {
		note_map(dst->mmap, ctx->user_bit);
	}
	if (task->dst->in_flight != 0) {
		emu_violation("doca_task_submit", task, EMU_MAGIC_TASK,
			      "another task is in flight on the destination");
	}
	((struct doca_buf *)(uintptr_t)task->src)->in_flight++;
	task->dst->in_flight++;
	task->held = 1;
	return DOCA_SUCCESS;
}

/* What is not in the bufs: imported maps, and a fault that decides how the task ends. */
EMU_COLD static void
plan_special(struct doca_dma_task_memcpy *task, uint32_t special)
{
	struct emu_completion_fault fault;

	if ((special & EMU_SPECIAL_IMPORTS) != 0 && task->held) {
		for (const struct doca_buf *src = task->src; src != NULL; src = src->next) {
			task->special |= src->mmap->import != NULL ? EMU_TASK_REMOTE : 0;
		}
		task->special |= (task->special & EMU_TASK_REMOTE) != 0 ? EMU_TASK_PULL : 0;
		for (const struct doca_buf *dst = task->dst; dst != NULL; dst = dst->next) {
			if (dst->mmap->import != NULL) {
				task->special |= EMU_TASK_REMOTE;
				task->special &= (uint8_t)~EMU_TASK_PULL;
			}
		}
	}
	if ((special & EMU_SPECIAL_SCHED) != 0) {
		emu_sched_begin(task->base.ctx);
		if (task->base.ctx->chaos && emu_chaos_fails()) {
			task->planned = DOCA_ERROR_IO_FAILED;
		}
	}
	if ((special & EMU_SPECIAL_FAULTS) != 0 && emu_fault_completion(task->from, &fault)) {
		task->base.fatal = fault.fatal;
		if (fault.hold) {
			task->special |= EMU_TASK_HOLD;
			emu_sched_begin(task->base.ctx);
		} else if (fault.corrupt) {
			task->special |= EMU_TASK_CORRUPT;
		} else {
			task->planned = fault.status;
		}
	}
}

/*
 * Read the bufs of a task at its submission, and decide how it will end.
 *
 * @param[in] validate whether to refuse what cannot succeed, instead of failing it late
 * @retval DOCA_SUCCESS planned, a failure included
 * @retval DOCA_ERROR_INVALID_VALUE refused
 * @retval DOCA_ERROR_NOT_PERMITTED refused
 */
doca_error_t
emu_dma_plan(struct doca_dma_task_memcpy *task, bool validate)
{
	struct doca_buf *src = (struct doca_buf *)(uintptr_t)task->src;
	struct doca_buf *dst = task->dst;
	struct doca_ctx *ctx = task->base.ctx;
	uint64_t max = ((struct doca_dma *)ctx)->max_buf_size;
	uint32_t special;

	task->base.fatal = 1;
	task->base.flushed = 0;
	task->base.finished = 0;
	task->planned = DOCA_SUCCESS;
	task->special = 0;
	if (doca_likely(emu_is(src, EMU_MAGIC_BUF) && emu_is(dst, EMU_MAGIC_BUF) &&
			src->next == NULL && dst->next == NULL && src->prev == NULL &&
			dst->prev == NULL && dst->in_flight == 0 && src->data_len - 1 < max &&
			src->data_len <= emu_buf_room(dst) && dst->mmap->writable &&
			emu_mmap_is_reached(src->mmap, ctx->dev) &&
			emu_mmap_is_reached(dst->mmap, ctx->dev))) {
		task->len = src->data_len;
		task->from = src->data;
		task->to = dst->data + dst->data_len;
		note_map(src->mmap, ctx->user_bit);
		note_map(dst->mmap, ctx->user_bit);
		check_overlap(task, src, dst, src->data_len);
		src->in_flight++;
		dst->in_flight++;
		task->held = 1;
	} else {
		doca_error_t result;

		task->held = 0;
		result = plan_slow(task, validate);
		if (result != DOCA_SUCCESS) {
			return result;
		}
	}
	special = atomic_load_explicit(&emu_special, memory_order_relaxed);
	if (doca_unlikely(special != 0)) {
		plan_special(task, special);
	}
	emu_trace_copy(task->from, task->to, task->len);
	task->summed = false;
	if (doca_unlikely(emu_get(EMU_CHECKSUM) != 0) && (task->special & EMU_TASK_REMOTE) == 0) {
		emu_sum_submitted(task);
	}
	return DOCA_SUCCESS;
}
