/* SPDX-License-Identifier: Apache-2.0 */
/* doca_pe.h: progress engines, notification, reporting of tasks. */
#define _GNU_SOURCE
#include "emu.h"
#include "schedule.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include <sys/eventfd.h>

_Thread_local char emu_self __attribute__((tls_model("initial-exec"), visibility("hidden")));

static struct doca_pe *all_pes;		 /* emu_lock */
static struct docaemu_counters past_pes; /* of those destroyed; emu_lock */

/* ---- notification ---- */

static void
write_fd(struct doca_pe *pe)
{
	const uint64_t one = 1;

	if (write(pe->fd, &one, sizeof(one)) != (ssize_t)sizeof(one)) {
		/* The counter is full: it is readable, which is all that is wanted. */
	}
	atomic_store(&pe->readable, 1);
	emu_add(&emu_stats.notifications, 1);
}

/*
 * Make the handle readable if the engine is armed and was not signalled yet. Called by the PE's
 * thread, or by others under the engine's lock.
 */
void
emu_pe_signal(struct doca_pe *pe)
{
	uint32_t armed = EMU_ARMED;

	if (atomic_load(&pe->arm) != EMU_ARMED) {
		return;
	}
	switch (emu_fault_notification(false)) {
	case EMU_NOTIFY_SUPPRESS:
		return; /* it stays armed: the next completion signals */
	case EMU_NOTIFY_LATE:
		if (atomic_load(&pe->clocked) != 0) {
			break; /* who runs by the virtual clock has no ticks */
		}
		atomic_store(&pe->late, 1);
		emu_engine_late();
		return;
	default:
		break;
	}
	if (atomic_compare_exchange_strong(&pe->arm, &armed, EMU_SIGNALLED)) {
		write_fd(pe);
	}
}

/* Send the notification that was kept back, if it is still wanted; the engine's lock is held. */
void
emu_pe_signal_late(struct doca_pe *pe)
{
	uint32_t armed = EMU_ARMED;

	if (atomic_load(&pe->late) != 0 && atomic_exchange(&pe->late, 0) != 0 &&
	    atomic_compare_exchange_strong(&pe->arm, &armed, EMU_SIGNALLED)) {
		write_fd(pe);
	}
}

static doca_error_t
empty_fd(struct doca_pe *pe)
{
	uint64_t value;
	ssize_t got;

	emu_engine_barrier();
	atomic_store(&pe->readable, 0);
	got = read(pe->fd, &value, sizeof(value));
	if (got < 0 && errno != EAGAIN) {
		return DOCA_ERROR_OPERATING_SYSTEM;
	}
	return DOCA_SUCCESS;
}

bool
emu_pe_foreign_thread(struct doca_pe *pe, const char *func)
{
	emu_violation(func, pe, EMU_MAGIC_PE, "another thread is inside this progress engine");
	return true;
}

doca_error_t
doca_pe_create(struct doca_pe **pe)
{
	struct doca_pe *new_pe;

	EMU_ENTER("pe_create");
	EMU_CHECK_OUT(pe);
	new_pe = calloc(1, sizeof(*new_pe));
	if (new_pe == NULL) {
		return DOCA_ERROR_NO_MEMORY;
	}
	new_pe->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (new_pe->fd < 0) {
		free(new_pe);
		return DOCA_ERROR_NO_MEMORY;
	}
	new_pe->object.magic = EMU_MAGIC_PE;
	pthread_mutex_lock(&emu_lock);
	new_pe->next = all_pes;
	if (all_pes != NULL) {
		all_pes->prev = new_pe;
	}
	all_pes = new_pe;
	pthread_mutex_unlock(&emu_lock);
	emu_add(&emu_stats.live_pes, 1);
	*pe = new_pe;
	return DOCA_SUCCESS;
}

static void
collect(struct docaemu_counters *to, struct doca_pe *pe)
{
	struct emu_pe_stats *stats = &pe->stats;
	uint64_t max = atomic_load(&stats->max_in_flight);

	to->progress_calls += atomic_load(&stats->progress_calls);
	to->progress_empty += atomic_load(&stats->progress_empty);
	to->arms += atomic_load(&stats->arms);
	to->clears += atomic_load(&stats->clears);
	to->submits += atomic_load(&stats->submits);
	to->doorbells += atomic_load(&stats->doorbells);
	to->tasks_inline += atomic_load(&stats->tasks_inline);
	to->completions_ok += atomic_load(&stats->completions_ok);
	to->completions_error += atomic_load(&stats->completions_error);
	to->flushed += atomic_load(&stats->flushed);
	to->bytes += atomic_load(&stats->bytes);
	to->again += atomic_load(&stats->again);
	if (max > to->max_in_flight) {
		to->max_in_flight = max;
	}
}

/* Sum what the progress engines counted, those destroyed included. */
void
emu_pes_collect(struct docaemu_counters *counters, uint64_t *in_flight)
{
	uint64_t sum = 0;

	pthread_mutex_lock(&emu_lock);
	*counters = past_pes;
	for (struct doca_pe *pe = all_pes; pe != NULL; pe = pe->next) {
		collect(counters, pe);
		sum += atomic_load(&pe->stats.in_flight);
	}
	pthread_mutex_unlock(&emu_lock);
	*in_flight = sum;
}

/* Forget what destroyed engines counted, when there are no others; emu_lock is held. */
void
emu_pes_forget_past(void)
{
	past_pes = (struct docaemu_counters){0};
}

/* Make every handle readable without a reason. */
void
emu_pes_spurious(void)
{
	pthread_mutex_lock(&emu_lock);
	for (struct doca_pe *pe = all_pes; pe != NULL; pe = pe->next) {
		write_fd(pe);
	}
	pthread_mutex_unlock(&emu_lock);
}

/* The parent's engines are not the child's. */
void
emu_pe_fork_child(void)
{
	all_pes = NULL;
	emu_pes_forget_past();
}

doca_error_t
doca_pe_destroy(struct doca_pe *pe)
{
	EMU_ENTER("pe_destroy");
	EMU_CHECK(pe, EMU_MAGIC_PE);
	if (emu_pe_is_foreign(pe, __func__)) {
		return DOCA_ERROR_IN_USE;
	}
	if (pe->num_ctxs != 0) {
		emu_violation(__func__, pe, EMU_MAGIC_PE, "%u contexts are connected",
			      pe->num_ctxs);
		return DOCA_ERROR_IN_USE;
	}
	if (emu_pe_in_callback(pe)) {
		emu_violation(__func__, pe, EMU_MAGIC_PE, "it is being progressed");
		return DOCA_ERROR_IN_USE;
	}
	emu_engine_barrier();
	pthread_mutex_lock(&emu_lock);
	if (pe->prev != NULL) {
		pe->prev->next = pe->next;
	} else if (all_pes == pe) {
		all_pes = pe->next;
	}
	if (pe->next != NULL) {
		pe->next->prev = pe->prev;
	}
	collect(&past_pes, pe);
	pthread_mutex_unlock(&emu_lock);
	close(pe->fd);
	emu_sub(&emu_stats.live_pes, 1);
	emu_retire(pe, sizeof(*pe));
	return DOCA_SUCCESS;
}

doca_error_t
doca_pe_connect_ctx(struct doca_pe *pe, struct doca_ctx *ctx)
{
	EMU_ENTER("pe_connect_ctx");
	EMU_CHECK(pe, EMU_MAGIC_PE);
	EMU_CHECK(ctx, EMU_MAGIC_CTX);
	if (emu_pe_is_foreign(pe, __func__)) {
		return DOCA_ERROR_BAD_STATE;
	}
	if (ctx->pe != NULL) {
		return DOCA_ERROR_NOT_PERMITTED;
	}
	if (ctx->state != DOCA_CTX_STATE_IDLE) {
		return DOCA_ERROR_BAD_STATE;
	}
	if (pe->cursor == NULL) {
		ctx->pe_next = ctx;
		pe->cursor = ctx;
	} else {
		ctx->pe_next = pe->cursor->pe_next;
		pe->cursor->pe_next = ctx;
	}
	pe->num_ctxs++;
	ctx->pe = pe;
	return DOCA_SUCCESS;
}

uint8_t
doca_pe_progress(struct doca_pe *pe)
{
	uint8_t worked = 0;
	uint32_t num;

	if (doca_unlikely(!emu_is(pe, EMU_MAGIC_PE))) {
		emu_bad_object(__func__, pe, EMU_MAGIC_PE);
		return 0;
	}
	if (doca_unlikely(!emu_pe_enter(pe))) {
		if (emu_pe_in_callback(pe)) {
			emu_violation(__func__, pe, EMU_MAGIC_PE, "called from a callback");
		} else {
			emu_pe_foreign_thread(pe, __func__);
		}
		return 0;
	}
	emu_add_own(&pe->stats.progress_calls, 1);
	num = pe->num_ctxs;
	while (num-- != 0) {
		struct doca_ctx *ctx = pe->cursor;

		/* Before the step: its callback may destroy the context. */
		pe->cursor = ctx->pe_next;
		if (ctx->state != DOCA_CTX_STATE_IDLE && emu_ctx_step(ctx)) {
			worked = 1;
			break;
		}
	}
	if (!worked) {
		emu_add_own(&pe->stats.progress_empty, 1);
	}
	emu_pe_leave(pe);
	return worked;
}

doca_error_t
doca_pe_get_notification_handle(const struct doca_pe *pe, doca_notification_handle_t *handle)
{
	EMU_ENTER("pe_get_notification_handle");
	EMU_CHECK(pe, EMU_MAGIC_PE);
	EMU_CHECK_OUT(handle);
	*handle = pe->fd;
	return DOCA_SUCCESS;
}

/* ---- reporting ---- */

static void
ready_push(struct doca_ctx *ctx, struct doca_task *task)
{
	task->finished = 1;
	if (doca_unlikely(ctx->reporting != EMU_REPORT_ASAP)) {
		if (ctx->reporting == EMU_REPORT_SCHEDULED) {
			emu_sched_finished(task);
		}
		return; /* the schedule, or the list in order of submission, has it */
	}
	task->next = NULL;
	if (ctx->ready_last != NULL) {
		ctx->ready_last->next = task;
	} else {
		ctx->ready_first = task;
	}
	ctx->ready_last = task;
}

/* Move what finished elsewhere to the ready list, oldest first. */
static void
collect_done(struct doca_ctx *ctx)
{
	struct doca_task *newest = atomic_exchange_explicit(&ctx->done, NULL, memory_order_acquire);
	struct doca_task *oldest = NULL;

	while (newest != NULL) {
		struct doca_task *next = newest->next;

		newest->next = oldest;
		oldest = newest;
		newest = next;
	}
	while (oldest != NULL) {
		struct doca_task *next = oldest->next;

		ready_push(ctx, oldest);
		oldest = next;
	}
}

static struct doca_task *
ready_pop(struct doca_ctx *ctx)
{
	struct doca_task *task;

	if (doca_unlikely(ctx->reporting != EMU_REPORT_ASAP)) {
		if (ctx->reporting == EMU_REPORT_SCHEDULED) {
			return emu_sched_pop(ctx);
		}
		task = ctx->order_first;
		if (task == NULL || !task->finished) {
			return NULL;
		}
		ctx->order_first = task->order;
		if (task->order == NULL) {
			ctx->order_last = NULL;
		}
		return task;
	}
	task = ctx->ready_first;
	if (task != NULL) {
		ctx->ready_first = task->next;
		if (task->next == NULL) {
			ctx->ready_last = NULL;
		}
	}
	return task;
}

/*
 * End a task: what the user sees of it, the state of its context, its callback. The callback may
 * free the task and, in the end, destroy the context, so nothing is touched behind it.
 */
static void
report(struct doca_ctx *ctx, struct doca_task *task)
{
	struct doca_dma *dma = (struct doca_dma *)ctx;
	struct doca_dma_task_memcpy *copy = (struct doca_dma_task_memcpy *)task;
	struct doca_pe *pe = ctx->pe;
	doca_error_t result = task->result;
	doca_dma_task_memcpy_completion_cb_t callback = dma->ok_cb;

	if (doca_unlikely(copy->summed)) {
		emu_sum_reported(copy);
	}
	if (doca_unlikely(ctx->chaos)) {
		emu_chaos_reported(task);
	}
	ctx->in_flight--;
	emu_add_own(&pe->stats.in_flight, (uint64_t)-1);
	if (doca_likely(result == DOCA_SUCCESS)) {
		emu_add_own(&pe->stats.completions_ok, 1);
		emu_add_own(&pe->stats.bytes, copy->len);
		emu_dma_land(copy);
	} else {
		emu_add_own(&pe->stats.completions_error, 1);
		emu_dma_unhold(copy);
		callback = dma->error_cb;
		if (task->flushed) {
			emu_add_own(&pe->stats.flushed, 1);
		} else {
			emu_log(DOCA_LOG_LEVEL_ERROR, __func__, "task %p: %s", (void *)task,
				doca_error_get_descr(result));
			if (task->fatal && ctx->state == DOCA_CTX_STATE_RUNNING) {
				emu_add(&emu_stats.ctx_faults, 1);
				emu_ctx_break(ctx, result);
				emu_ctx_set_state(ctx, DOCA_CTX_STATE_STOPPING);
			}
		}
	}
	task->status = result;
	task->state = EMU_TASK_OWNED;
	callback(copy, task->user_data, ctx->user_data);
}

/* End a task that was claimed when its context had stopped. */
EMU_COLD static void
flush(struct doca_ctx *ctx, struct doca_task *task)
{
	task->flushed = emu_sched_flushes(task);
	if (task->flushed) {
		task->result = (doca_error_t)atomic_load(&ctx->broken);
	} else {
		emu_dma_execute((struct doca_dma_task_memcpy *)task);
	}
	ready_push(ctx, task);
}

/* Whether a task could be reported now. */
EMU_COLD static bool
has_ready(struct doca_ctx *ctx)
{
	switch (ctx->reporting) {
	case EMU_REPORT_SCHEDULED:
		return emu_sched_ready(ctx);
	case EMU_REPORT_ORDERED:
		return ctx->order_first != NULL && ctx->order_first->finished;
	default:
		return ctx->ready_first != NULL;
	}
}

/* Whether virtual time waited for a worker, and there is something to report now. */
static bool
is_awaited(struct doca_ctx *ctx)
{
	return doca_unlikely(ctx->reporting == EMU_REPORT_SCHEDULED) && emu_sched_wait(ctx);
}

/* Serve one context once: report a task, execute or flush one, or let it become idle. */
bool
emu_ctx_step(struct doca_ctx *ctx)
{
	struct doca_pe *pe = ctx->pe;
	struct doca_task *task;
	bool held = pe->event_mode == DOCA_PE_EVENT_MODE_PROGRESS_SELECTIVE &&
		    atomic_load_explicit(&pe->arm, memory_order_relaxed) != EMU_UNARMED;

	if (doca_unlikely(held)) {
		task = ready_pop(ctx);
		if (task != NULL) {
			report(ctx, task);
			return true;
		}
		if (!ctx->serve_idle) {
			return false;
		}
	}
	while (!held) {
		task = ready_pop(ctx);
		if (task == NULL &&
		    atomic_load_explicit(&ctx->done, memory_order_relaxed) != NULL) {
			collect_done(ctx);
			task = ready_pop(ctx);
		}
		if (task != NULL) {
			report(ctx, task);
			return true;
		}
		if (ctx->state == DOCA_CTX_STATE_STOPPING) {
			task = emu_engine_claim_flush(ctx);
			if (task == NULL) {
				if (is_awaited(ctx)) {
					continue;
				}
				break;
			}
			flush(ctx, task);
		} else {
			uint32_t tail;

			if (ctx->engine != EMU_ENGINE_DEFAULT) {
				if (is_awaited(ctx)) {
					continue;
				}
				return false;
			}
			if (atomic_load(&ctx->broken) != 0) {
				/* The culprit is on the done list, and comes first. */
				if (atomic_load(&ctx->done) == NULL) {
					return false;
				}
				continue;
			}
			tail = atomic_load_explicit(&ctx->small.tail, memory_order_relaxed);
			task = emu_ring_claim(&ctx->small, tail);
			if (task == NULL) {
				if (is_awaited(ctx)) {
					continue;
				}
				return false;
			}
			task->flushed = 0;
			emu_dma_execute((struct doca_dma_task_memcpy *)task);
			emu_add_own(&pe->stats.tasks_inline, 1);
			if (doca_likely(ctx->reporting == EMU_REPORT_ASAP)) {
				report(ctx, task);
				return true;
			}
			ready_push(ctx, task);
		}
	}
	if (ctx->state == DOCA_CTX_STATE_STOPPING && ctx->allocated == 0) {
		ctx->serve_idle = 0;
		emu_ctx_to_idle(ctx);
		return true;
	}
	return false;
}

doca_error_t
doca_pe_request_notification(struct doca_pe *pe)
{
	bool strict_edge;
	bool tasks = false;
	bool states = false;
	bool scheduled = false;
	bool chaos = false;
	struct doca_ctx *ctx;

	EMU_ENTER("pe_request_notification");
	EMU_CHECK(pe, EMU_MAGIC_PE);
	if (emu_pe_is_foreign(pe, __func__)) {
		return DOCA_ERROR_BAD_STATE;
	}
	emu_add_own(&pe->stats.arms, 1);
	if (atomic_load(&pe->arm) == EMU_SIGNALLED || atomic_load(&pe->readable) != 0) {
		atomic_store(&pe->arm, EMU_UNARMED);
		empty_fd(pe);
	}
	/* From here on a completion signals; those before it are looked for below. */
	ctx = pe->cursor;
	strict_edge =
		emu_get(EMU_EDGE_STRICT) != 0 && pe->event_mode == DOCA_PE_EVENT_MODE_PROGRESS_ALL;
	if (strict_edge) {
		for (uint32_t i = 0; i < pe->num_ctxs; i++, ctx = ctx->pe_next) {
			collect_done(ctx);
		}
	}
	atomic_store(&pe->arm, EMU_ARMED);
	for (uint32_t i = 0; i < pe->num_ctxs; i++, ctx = ctx->pe_next) {
		collect_done(ctx);
		if (ctx->state == DOCA_CTX_STATE_STOPPING) {
			struct doca_task *task;

			while ((task = emu_engine_claim_flush(ctx)) != NULL) {
				flush(ctx, task);
			}
			ctx->serve_idle = ctx->allocated == 0;
			states = states || ctx->serve_idle;
		}
		tasks = tasks || has_ready(ctx);
		scheduled = scheduled || ctx->reporting == EMU_REPORT_SCHEDULED;
		chaos = chaos || ctx->chaos;
	}
	if (states || (tasks && !strict_edge)) {
		emu_pe_signal(pe);
	} else if (doca_unlikely(scheduled)) {
		emu_sched_arm(pe);
	}
	if (doca_unlikely((atomic_load_explicit(&emu_special, memory_order_relaxed) &
			   EMU_SPECIAL_FAULTS) != 0) &&
	    emu_fault_notification(true) == EMU_NOTIFY_SPURIOUS) {
		write_fd(pe);
	}
	if (doca_unlikely(chaos) && emu_chaos_spurious()) {
		write_fd(pe);
	}
	emu_engine_handoff(pe);
	return DOCA_SUCCESS;
}

doca_error_t
doca_pe_clear_notification(struct doca_pe *pe, doca_notification_handle_t handle)
{
	(void)handle;
	EMU_ENTER("pe_clear_notification");
	EMU_CHECK(pe, EMU_MAGIC_PE);
	if (emu_pe_is_foreign(pe, __func__)) {
		return DOCA_ERROR_BAD_STATE;
	}
	emu_add_own(&pe->stats.clears, 1);
	if (atomic_exchange(&pe->arm, EMU_UNARMED) == EMU_SIGNALLED ||
	    atomic_load(&pe->readable) != 0) {
		return empty_fd(pe);
	}
	return DOCA_SUCCESS;
}

doca_error_t
doca_pe_get_num_inflight_tasks(const struct doca_pe *pe, size_t *num_inflight_tasks)
{
	EMU_ENTER("pe_get_num_inflight_tasks");
	EMU_CHECK(pe, EMU_MAGIC_PE);
	EMU_CHECK_OUT(num_inflight_tasks);
	*num_inflight_tasks = atomic_load_explicit(&pe->stats.in_flight, memory_order_relaxed);
	return DOCA_SUCCESS;
}

doca_error_t
doca_pe_set_event_mode(struct doca_pe *pe, enum doca_pe_event_mode event_mode)
{
	EMU_ENTER("pe_set_event_mode");
	EMU_CHECK(pe, EMU_MAGIC_PE);
	if (event_mode != DOCA_PE_EVENT_MODE_PROGRESS_SELECTIVE &&
	    event_mode != DOCA_PE_EVENT_MODE_PROGRESS_ALL) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	if (emu_pe_is_foreign(pe, __func__)) {
		return DOCA_ERROR_BAD_STATE;
	}
	if (emu_pe_in_callback(pe)) {
		emu_violation(__func__, pe, EMU_MAGIC_PE, "called from a callback");
	}
	pe->event_mode = event_mode;
	return DOCA_SUCCESS;
}
