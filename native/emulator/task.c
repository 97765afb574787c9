/* SPDX-License-Identifier: Apache-2.0 */
/* doca_pe.h: submission of tasks, and what else is done with a task. */
#include "emu.h"
#include "schedule.h"

#define SUBMIT_FLAGS \
	((uint32_t)(DOCA_TASK_SUBMIT_FLAG_FLUSH | DOCA_TASK_SUBMIT_FLAG_OPTIMIZE_REPORTS))

static _Atomic uint64_t next_seq;

/* Show the workers and the progress call what was submitted, and wake whom it concerns. */
static void
ring_doorbell(struct doca_ctx *ctx)
{
	struct doca_pe *pe = ctx->pe;
	bool large = doca_unlikely(atomic_load_explicit(&ctx->large.tail, memory_order_relaxed) !=
				   ctx->large.pending);
	bool small =
		atomic_load_explicit(&ctx->small.tail, memory_order_relaxed) != ctx->small.pending;

	if (small) {
		atomic_store(&ctx->small.tail, ctx->small.pending);
	}
	if (doca_unlikely(large)) {
		atomic_store(&ctx->large.tail, ctx->large.pending);
	}
	if (doca_unlikely(small && pe->event_mode == DOCA_PE_EVENT_MODE_PROGRESS_SELECTIVE &&
			  atomic_load_explicit(&pe->arm, memory_order_relaxed) != EMU_UNARMED)) {
		/* The progress call will not serve it before an event. */
		atomic_store(&ctx->handed, ctx->small.pending);
		large = true;
	}
	if (small || large) {
		emu_add_own(&pe->stats.doorbells, 1);
		emu_engine_doorbell(ctx, large);
		if (doca_unlikely(ctx->clocked) && atomic_load(&pe->arm) == EMU_ARMED) {
			emu_sched_arm(pe); /* the program sleeps, and no worker takes it */
		}
	}
}

static doca_error_t
submit_inside(const char *func, struct doca_task *task, uint32_t flags, bool validate)
{
	struct doca_dma_task_memcpy *copy = (struct doca_dma_task_memcpy *)task;
	struct doca_ctx *ctx = task->ctx;
	struct doca_pe *pe = ctx->pe;
	struct emu_ring *ring = &ctx->large;
	uint64_t in_flight;
	doca_error_t result;

	if (doca_unlikely(task->state != EMU_TASK_OWNED)) {
		emu_violation(func, task, EMU_MAGIC_TASK, "it is submitted already");
		return DOCA_ERROR_BAD_STATE;
	}
	if (doca_unlikely(ctx->state != DOCA_CTX_STATE_RUNNING)) {
		emu_log(DOCA_LOG_LEVEL_ERROR, func, "ctx %p is not running (state %d)", (void *)ctx,
			(int)ctx->state);
		return DOCA_ERROR_BAD_STATE;
	}
	if (doca_unlikely(ctx->in_flight >= ctx->queue_depth)) {
		emu_sched_reap(ctx);
	}
	if (doca_unlikely(ctx->in_flight >= ctx->queue_depth)) {
		emu_add_own(&pe->stats.again, 1);
		return DOCA_ERROR_AGAIN;
	}
	if (doca_unlikely(ctx->chaos) && emu_chaos_refuses()) {
		emu_add_own(&pe->stats.again, 1);
		return DOCA_ERROR_AGAIN;
	}
	result = emu_dma_plan(copy, validate);
	if (doca_unlikely(result != DOCA_SUCCESS)) {
		return result;
	}
	task->state = EMU_TASK_SUBMITTED;
	task->status = DOCA_ERROR_IN_PROGRESS;
	if (ctx->engine == EMU_ENGINE_DEFAULT && copy->len <= ctx->inline_max &&
	    ctx->reporting != EMU_REPORT_ORDERED && (copy->special & EMU_TASK_REMOTE) == 0) {
		ring = &ctx->small;
	}
	if (doca_unlikely(ctx->engine == EMU_ENGINE_MANUAL)) {
		task->seq = atomic_fetch_add(&next_seq, 1);
	}
	if (doca_unlikely(ctx->reporting == EMU_REPORT_SCHEDULED)) {
		emu_sched_submit(task);
	} else if (doca_unlikely(ctx->reporting == EMU_REPORT_ORDERED)) {
		task->order = NULL;
		if (ctx->order_last != NULL) {
			ctx->order_last->order = task;
		} else {
			ctx->order_first = task;
		}
		ctx->order_last = task;
	}
	ctx->in_flight++;
	emu_add_own(&pe->stats.in_flight, 1);
	in_flight = atomic_load_explicit(&pe->stats.in_flight, memory_order_relaxed);
	if (doca_unlikely(in_flight >
			  atomic_load_explicit(&pe->stats.max_in_flight, memory_order_relaxed))) {
		atomic_store_explicit(&pe->stats.max_in_flight, in_flight, memory_order_relaxed);
	}
	emu_add_own(&pe->stats.submits, 1);
	atomic_store_explicit(&ring->slots[ring->pending & ring->mask], task, memory_order_relaxed);
	ring->pending++;
	if (doca_likely((flags & DOCA_TASK_SUBMIT_FLAG_FLUSH) != 0)) {
		ring_doorbell(ctx);
	}
	return DOCA_SUCCESS;
}

/* One thread at a time submits to an engine or progresses it. */
static doca_error_t
submit(const char *func, struct doca_task *task, uint32_t flags, bool validate)
{
	struct doca_pe *pe = task->ctx->pe;
	bool entered = emu_pe_enter(pe);
	doca_error_t result;

	if (doca_unlikely(!entered && !emu_pe_in_callback(pe))) {
		emu_pe_foreign_thread(pe, func);
		return DOCA_ERROR_BAD_STATE;
	}
	result = submit_inside(func, task, flags, validate);
	if (doca_likely(entered)) {
		emu_pe_leave(pe);
	}
	if (doca_unlikely((atomic_load_explicit(&emu_special, memory_order_relaxed) &
			   EMU_SPECIAL_FAULTS) != 0) &&
	    result == DOCA_SUCCESS) {
		result = emu_fault_accepted(func + sizeof("doca_") - 1);
	}
	return result;
}

/* Submit with all there is to say about the call: whoever does it right needs no registers saved for that. */
EMU_COLD static doca_error_t
submit_checked(const char *func, struct doca_task *task, uint32_t flags)
{
	EMU_ENTER(func + sizeof("doca_") - 1);
	if (!emu_is(task, EMU_MAGIC_TASK)) {
		return emu_bad_object(func, task, EMU_MAGIC_TASK);
	}
	if ((flags & ~SUBMIT_FLAGS) != 0) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	return submit(func, task, flags, false);
}

doca_error_t
doca_task_submit(struct doca_task *task)
{
	if (doca_unlikely(EMU_ENTER_IS_SLOW() || !emu_is(task, EMU_MAGIC_TASK))) {
		return submit_checked(__func__, task, DOCA_TASK_SUBMIT_FLAG_FLUSH);
	}
	return submit(__func__, task, DOCA_TASK_SUBMIT_FLAG_FLUSH, false);
}

doca_error_t
doca_task_submit_ex(struct doca_task *task, uint32_t flags)
{
	if (doca_unlikely(EMU_ENTER_IS_SLOW() || !emu_is(task, EMU_MAGIC_TASK) ||
			  (flags & ~SUBMIT_FLAGS) != 0)) {
		return submit_checked(__func__, task, flags);
	}
	return submit(__func__, task, flags, false);
}

doca_error_t
doca_task_try_submit(struct doca_task *task)
{
	EMU_ENTER("task_try_submit");
	EMU_CHECK(task, EMU_MAGIC_TASK);
	return submit(__func__, task, DOCA_TASK_SUBMIT_FLAG_FLUSH, true);
}

void
doca_ctx_flush_tasks(struct doca_ctx *ctx)
{
	if (!emu_is(ctx, EMU_MAGIC_CTX)) {
		emu_bad_object(__func__, ctx, EMU_MAGIC_CTX);
		return;
	}
	if (ctx->state == DOCA_CTX_STATE_IDLE) {
		emu_violation(__func__, ctx, EMU_MAGIC_CTX, "it is idle");
		return;
	}
	if (emu_pe_is_foreign(ctx->pe, __func__)) {
		return;
	}
	ring_doorbell(ctx);
}

void
doca_task_free(struct doca_task *task)
{
	struct doca_ctx *ctx;
	struct doca_dma *dma;

	if (!emu_is(task, EMU_MAGIC_TASK)) {
		emu_bad_object(__func__, task, EMU_MAGIC_TASK);
		return;
	}
	ctx = task->ctx;
	dma = (struct doca_dma *)ctx;
	if (emu_pe_is_foreign(ctx->pe, __func__)) {
		return;
	}
	if (task->state != EMU_TASK_OWNED) {
		emu_violation(__func__, task, EMU_MAGIC_TASK, "it is submitted");
		return;
	}
	task->state = EMU_TASK_FREE;
	task->object.magic = EMU_MAGIC_TASK | EMU_DEAD;
	task->next = dma->free_list;
	dma->free_list = task;
	ctx->allocated--;
	emu_sub(&emu_stats.live_tasks, 1);
	if (doca_unlikely(ctx->watch_free)) {
		if (ctx->reporting == EMU_REPORT_SCHEDULED) {
			emu_sched_freed(task);
		}
		if (ctx->state == DOCA_CTX_STATE_STOPPING && ctx->allocated == 0) {
			emu_pe_signal(ctx->pe);
		}
	}
}

doca_error_t
doca_task_get_status(const struct doca_task *task)
{
	EMU_CHECK(task, EMU_MAGIC_TASK);
	return task->status;
}

void
doca_task_set_user_data(struct doca_task *task, union doca_data user_data)
{
	if (!emu_is(task, EMU_MAGIC_TASK)) {
		emu_bad_object(__func__, task, EMU_MAGIC_TASK);
		return;
	}
	if (task->state == EMU_TASK_SUBMITTED) {
		emu_violation(__func__, task, EMU_MAGIC_TASK, "it is submitted");
	}
	task->user_data = user_data;
}

union doca_data
doca_task_get_user_data(const struct doca_task *task)
{
	if (!emu_is(task, EMU_MAGIC_TASK)) {
		emu_bad_object(__func__, task, EMU_MAGIC_TASK);
		return (union doca_data){.ptr = NULL};
	}
	return task->user_data;
}

struct doca_ctx *
doca_task_get_ctx(const struct doca_task *task)
{
	if (!emu_is(task, EMU_MAGIC_TASK)) {
		emu_bad_object(__func__, task, EMU_MAGIC_TASK);
		return NULL;
	}
	return task->ctx;
}
