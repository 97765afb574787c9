/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules: see schedule.h. Functions ending in _locked want the engine's lock. */
#include "schedule.h"
#include "engine.h"

#include <string.h>

#define PS_PER_NS 1000u
/* A task is overtaken only by tasks of its own block of submissions, so none waits for ever. */
#define BLOCK_SHIFT 6
#define BLOCK_SIZE (1u << BLOCK_SHIFT)

enum clock_mode { CLOCK_AUTO, CLOCK_MANUAL };

static _Atomic uint64_t clock_ps; /* written under the lock */
static struct doca_task *held_first;
static struct doca_task *held_last;
static uint64_t num_keys; /* keys given since the seed was set */
static uint64_t key_random;
static pthread_cond_t executed = PTHREAD_COND_INITIALIZER; /* some task was */
static uint32_t num_waiting;

/* The virtual clock, picoseconds. */
uint64_t
emu_sched_now(void)
{
	return atomic_load(&clock_ps);
}

/* ---- settings ---- */

/* See whether submits must look here; after any setting changed. */
void
emu_sched_configured(void)
{
	bool wanted = emu_timing_on() || emu_get(EMU_HOLD) != 0 || emu_get(EMU_ORDER) != 0 ||
		      emu_get(EMU_SLOT_LAG) != 0 || emu_get(EMU_CHAOS) != 0 ||
		      emu_get(EMU_ENGINE) == EMU_ENGINE_LATE;

	if (wanted) {
		atomic_fetch_or(&emu_special, EMU_SPECIAL_SCHED);
	} else {
		atomic_fetch_and(&emu_special, ~EMU_SPECIAL_SCHED);
	}
}

/* Restart the orders; the lock is held. */
void
emu_sched_reseed(void)
{
	num_keys = 0;
	key_random = emu_get(EMU_SEED) * UINT64_C(0x9e3779b97f4a7c15) + 1;
}

/* Set the clock back; nothing is in flight. */
void
emu_sched_reset(void)
{
	emu_engine_lock();
	atomic_store(&clock_ps, 0);
	emu_sched_reseed();
	emu_engine_unlock();
}

void
emu_sched_fork_child(void)
{
	held_first = NULL;
	held_last = NULL;
	num_waiting = 0;
	pthread_cond_init(&executed, NULL);
}

/* ---- the heap ---- */

static bool
before(const struct doca_task *a, const struct doca_task *b)
{
	if (a->due != b->due) {
		return a->due < b->due;
	}
	return a->key != b->key ? a->key < b->key : a->seq < b->seq;
}

static void
heap_push_locked(struct doca_ctx *ctx, struct doca_task *task)
{
	uint32_t i = ctx->heap_num++;

	while (i != 0 && before(task, ctx->heap[(i - 1) / 2])) {
		ctx->heap[i] = ctx->heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	ctx->heap[i] = task;
	task->sched = EMU_SCHED_HEAP;
}

static void
heap_drop_top_locked(struct doca_ctx *ctx)
{
	struct doca_task *last = ctx->heap[--ctx->heap_num];
	uint32_t i = 0;

	for (;;) {
		uint32_t child = 2 * i + 1;

		if (child >= ctx->heap_num) {
			break;
		}
		if (child + 1 < ctx->heap_num && before(ctx->heap[child + 1], ctx->heap[child])) {
			child++;
		}
		if (!before(ctx->heap[child], last)) {
			break;
		}
		ctx->heap[i] = ctx->heap[child];
		i = child;
	}
	if (ctx->heap_num != 0) {
		ctx->heap[i] = last;
	}
}

/* The task that may be reported next, if its time has come; it may still be executed. */
static struct doca_task *
due_locked(const struct doca_ctx *ctx)
{
	struct doca_task *top = ctx->heap_num != 0 ? ctx->heap[0] : NULL;

	if (top == NULL || top->held ||
	    (top->due > atomic_load(&clock_ps) && atomic_load(&ctx->broken) == 0)) {
		return NULL;
	}
	return top;
}

/* ---- the lists ---- */

static void
hold_locked(struct doca_task *task)
{
	task->held = 1;
	if (task->sched == EMU_SCHED_NONE) {
		task->sched = EMU_SCHED_HELD;
	}
	task->held_next = NULL;
	task->held_prev = held_last;
	if (held_last != NULL) {
		held_last->held_next = task;
	} else {
		held_first = task;
	}
	held_last = task;
	emu_add(&emu_stats.live_held, 1);
}

static uint64_t
fifo_key_locked(void)
{
	uint64_t n = num_keys++;

	return n >> BLOCK_SHIFT << 32 | (n & (BLOCK_SIZE - 1));
}

static uint64_t
key_locked(int order)
{
	uint64_t n = num_keys;

	switch (order) {
	case DOCAEMU_ORDER_LIFO:
		num_keys++;
		return n >> BLOCK_SHIFT << 32 | (BLOCK_SIZE - 1 - (n & (BLOCK_SIZE - 1)));
	case DOCAEMU_ORDER_RANDOM:
		num_keys++;
		key_random = key_random * UINT64_C(6364136223846793005) + 1442695040888963407u;
		return n >> BLOCK_SHIFT << 32 | key_random >> 33;
	default:
		return fifo_key_locked();
	}
}

/* ---- contexts that become scheduled; the PE's thread ---- */

/* Forget the last life of a context that starts. */
void
emu_sched_start(struct doca_ctx *ctx)
{
	struct doca_dma *dma = (struct doca_dma *)ctx;

	emu_engine_lock();
	ctx->reporting = ctx->ordered ? EMU_REPORT_ORDERED : EMU_REPORT_ASAP;
	ctx->heap_num = 0;
	ctx->last_due = 0;
	ctx->lag_first = 0;
	ctx->lag_num = 0;
	while (dma->parked != NULL) {
		struct doca_task *task = dma->parked;

		dma->parked = task->next;
		task->next = dma->free_list;
		dma->free_list = task;
	}
	emu_engine_unlock();
}

/* Take over what is in flight: what was executed is due at once, in its order. */
void
emu_sched_begin(struct doca_ctx *ctx)
{
	struct doca_task *task;
	struct doca_task *next;
	bool ordered = ctx->reporting == EMU_REPORT_ORDERED;

	if (ctx->reporting == EMU_REPORT_SCHEDULED) {
		return;
	}
	emu_engine_lock();
	for (task = ordered ? ctx->order_first : ctx->ready_first; task != NULL; task = next) {
		next = ordered ? task->order : task->next;
		task->due = 0;
		task->key = fifo_key_locked();
		task->held = 0;
		task->executed = task->finished;
		heap_push_locked(ctx, task);
	}
	ctx->order_first = NULL;
	ctx->order_last = NULL;
	ctx->ready_first = NULL;
	ctx->ready_last = NULL;
	ctx->reporting = EMU_REPORT_SCHEDULED;
	emu_engine_unlock();
}

/* Give a submitted task its place and time. */
void
emu_sched_submit(struct doca_task *task)
{
	struct doca_dma_task_memcpy *copy = (struct doca_dma_task_memcpy *)task;
	struct doca_ctx *ctx = task->ctx;
	int order = ctx->ordered ? DOCAEMU_ORDER_FIFO : (int)emu_get(EMU_ORDER);
	bool hold = emu_get(EMU_HOLD) != 0 || (copy->special & EMU_TASK_HOLD) != 0;

	emu_engine_lock();
	task->sched = EMU_SCHED_NONE;
	task->executed = 0;
	task->held = 0;
	task->due = 0;
	task->key = key_locked(order);
	if (emu_timing_on()) {
		task->due = emu_timing_due(ctx->dev->device, atomic_load(&clock_ps), copy->len,
					   (copy->special & EMU_TASK_PULL) == 0);
	}
	task->run_at = task->due;
	if (ctx->chaos) {
		task->due = emu_chaos_submit_locked(task, task->due);
	}
	if (ctx->ordered) {
		task->due = task->due > ctx->last_due ? task->due : ctx->last_due;
		ctx->last_due = task->due;
	}
	if (!hold || ctx->ordered) {
		heap_push_locked(ctx, task);
	}
	if (hold) {
		hold_locked(task);
	}
	emu_engine_unlock();
}

/* Note that a task was executed. It was in flight when the context became scheduled, or has a place. */
void
emu_sched_finished(struct doca_task *task)
{
	emu_engine_lock();
	task->executed = 1;
	if (task->sched == EMU_SCHED_NONE) {
		task->due = 0;
		task->key = 0;
		task->held = 0;
		heap_push_locked(task->ctx, task);
	}
	emu_engine_unlock();
}

/* ---- clocked contexts ---- */

/* Execute the tasks of a context whose moment has come; whether there were any. */
static bool
run_locked(struct doca_ctx *ctx)
{
	struct emu_ring *ring = &ctx->large;
	bool ran = false;
	uint32_t i = 0;

	while (i < emu_ring_waiting(ring)) {
		struct doca_task *task =
			atomic_load(&ring->slots[(atomic_load(&ring->head) + i) & ring->mask]);

		if (task->run_at > atomic_load(&clock_ps) && atomic_load(&ctx->broken) == 0) {
			i++;
			continue;
		}
		emu_ring_take(ring, i);
		task->flushed = atomic_load(&ctx->broken) != 0 && emu_sched_flushes(task);
		emu_engine_execute(task);
		task->executed = 1;
		task->finished = 1;
		emu_add(&emu_stats.tasks_step, 1);
		if (ctx->chaos && task->result == DOCA_SUCCESS) {
			emu_chaos_ran_locked(task);
		}
		ran = true;
	}
	return ran;
}

/* ---- reporting; the PE's thread ---- */

/* Tell the progress engines whose next task is due and executed. */
static void
tell_locked(void)
{
	for (struct doca_ctx *ctx = emu_engine_ctxs(); ctx != NULL; ctx = ctx->engine_next) {
		if (ctx->reporting == EMU_REPORT_SCHEDULED) {
			const struct doca_task *task;

			if (ctx->clocked) {
				run_locked(ctx);
			}
			task = due_locked(ctx);
			if (task != NULL && task->executed) {
				emu_pe_signal(ctx->pe);
			}
		}
	}
}

static void
move_clock_locked(uint64_t to_ps)
{
	if (to_ps > atomic_load(&clock_ps)) {
		atomic_store(&clock_ps, to_ps);
		tell_locked();
	}
}

/* Let a progress call take its time, once, while there is something to wait for. */
static void
charge_locked(struct doca_ctx *ctx)
{
	struct doca_pe *pe = ctx->pe;
	uint64_t call = atomic_load_explicit(&pe->stats.progress_calls, memory_order_relaxed);
	uint64_t now = atomic_load(&clock_ps);
	uint64_t cost = emu_get(EMU_PROGRESS_COST) * PS_PER_NS;
	const struct doca_task *task = due_locked(ctx);

	if (pe->charged == call || ctx->heap_num == 0 || (!emu_timing_on() && !ctx->chaos) ||
	    emu_get(EMU_CLOCK) != CLOCK_AUTO || (task != NULL && !task->executed)) {
		return;
	}
	pe->charged = call;
	move_clock_locked(now > UINT64_MAX - cost ? UINT64_MAX : now + cost);
}

/* Keep the slot of a task that is about to be reported for some progress calls. */
static void
lag(struct doca_ctx *ctx, struct doca_task *task)
{
	struct doca_dma *dma = (struct doca_dma *)ctx;
	uint64_t calls = emu_get(EMU_SLOT_LAG);

	task->lag_until = 0;
	if (calls == 0) {
		return;
	}
	task->lag_until =
		calls + atomic_load_explicit(&ctx->pe->stats.progress_calls, memory_order_relaxed);
	if (ctx->queue_depth != 0) {
		ctx->lags[(ctx->lag_first + ctx->lag_num++) % dma->slab_tasks] = task->lag_until;
		ctx->queue_depth--;
	}
	ctx->watch_free = 1;
}

/* Take the task that is to be reported now, if any. */
struct doca_task *
emu_sched_pop(struct doca_ctx *ctx)
{
	struct doca_task *task;
	uint32_t broken;

	emu_engine_lock();
	charge_locked(ctx);
	if (ctx->clocked) {
		run_locked(ctx);
	}
	task = due_locked(ctx);
	if (task != NULL && !task->finished) {
		task = NULL;
	}
	if (task != NULL) {
		heap_drop_top_locked(ctx);
		task->sched = EMU_SCHED_NONE;
		broken = atomic_load(&ctx->broken);
		if (broken != 0 && !task->flushed && task->due > ctx->break_time) {
			/* It would have ended after the context did. */
			task->flushed = 1;
			task->result = (doca_error_t)broken;
		}
	}
	emu_engine_unlock();
	if (task != NULL) {
		lag(ctx, task);
	}
	return task;
}

/* Whether what is due waits for a worker that is sure to come; the lock is held. */
static bool
comes_locked(struct doca_ctx *ctx)
{
	const struct doca_task *task = due_locked(ctx);
	const struct doca_dma_task_memcpy *copy = (const struct doca_dma_task_memcpy *)task;

	return task != NULL && task->due != 0 && !task->executed &&
	       (copy->special & EMU_TASK_REMOTE) == 0 && ctx->latency_real == 0 &&
	       ctx->engine != EMU_ENGINE_MANUAL &&
	       ctx->large.pending == emu_ring_tail(&ctx->large) &&
	       ctx->small.pending == emu_ring_tail(&ctx->small);
}

/*
 * In virtual time a copy of memory takes none of the real: wait for the worker that is at the task
 * which is due. Without that, what a call reports would depend on the speed of the machine.
 *
 * @return whether it waited
 */
bool
emu_sched_wait(struct doca_ctx *ctx)
{
	bool waited = false;

	emu_engine_lock();
	while (comes_locked(ctx)) {
		waited = true;
		num_waiting++;
		pthread_cond_wait(&executed, emu_engine_mutex);
		num_waiting--;
	}
	emu_engine_unlock();
	return waited;
}

/* Whether emu_sched_pop() would give a task. */
bool
emu_sched_ready(struct doca_ctx *ctx)
{
	const struct doca_task *task;
	bool ready;

	emu_engine_lock();
	task = due_locked(ctx);
	ready = task != NULL && task->finished;
	emu_engine_unlock();
	return ready;
}

/* Which is due first: a task, if there is one, or the next of a context. */
static const struct doca_task *
sooner_locked(const struct doca_task *task, const struct doca_ctx *ctx)
{
	if (ctx->reporting != EMU_REPORT_SCHEDULED || ctx->heap_num == 0 || ctx->heap[0]->held) {
		return task;
	}
	return task == NULL || ctx->heap[0]->due < task->due ? ctx->heap[0] : task;
}

/* Let the time pass that a program sleeps: until the next task of this progress engine is due. */
void
emu_sched_arm(struct doca_pe *pe)
{
	struct doca_ctx *ctx = pe->cursor;
	const struct doca_task *next = NULL;
	bool ran = false;

	if (emu_get(EMU_CLOCK) != CLOCK_AUTO) {
		return;
	}
	emu_engine_lock();
	for (uint32_t i = 0; i < pe->num_ctxs; i++, ctx = ctx->pe_next) {
		ran = (ctx->clocked && run_locked(ctx)) || ran;
		next = sooner_locked(next, ctx);
	}
	if (next != NULL) {
		move_clock_locked(next->due);
	}
	if (ran) {
		tell_locked();
	}
	emu_engine_unlock();
}

/* ---- what the engine asks; the lock is held ---- */

/* Note that a worker or a step executed a task; whether its progress engine is to be told. */
bool
emu_sched_tells(struct doca_task *task)
{
	const struct doca_task *due;

	task->executed = 1;
	if (num_waiting != 0) {
		pthread_cond_broadcast(&executed);
	}
	if (task->sched == EMU_SCHED_NONE) {
		return true;
	}
	due = due_locked(task->ctx);
	return due != NULL && due->executed;
}

/* Whether a task claimed in a context that is broken is flushed: not if it was due before. */
bool
emu_sched_flushes(const struct doca_task *task)
{
	const struct doca_dma_task_memcpy *copy = (const struct doca_dma_task_memcpy *)task;

	return task->sched == EMU_SCHED_NONE || task->due == 0 ||
	       task->due > atomic_load(&task->ctx->break_time) ||
	       (copy->special & EMU_TASK_REMOTE) != 0;
}

/* Note when a context breaks; the PE's thread. */
void
emu_sched_broken(struct doca_ctx *ctx)
{
	atomic_store(&ctx->break_time, atomic_load(&clock_ps));
}

/* ---- slots; the PE's thread ---- */

/* Give back the slots whose time has come; whether there is one. */
bool
emu_sched_reap(struct doca_ctx *ctx)
{
	struct doca_dma *dma = (struct doca_dma *)ctx;
	uint64_t calls = atomic_load_explicit(&ctx->pe->stats.progress_calls, memory_order_relaxed);

	while (ctx->lag_num != 0 && ctx->lags[ctx->lag_first] <= calls) {
		ctx->lag_first = (ctx->lag_first + 1) % dma->slab_tasks;
		ctx->lag_num--;
		ctx->queue_depth++;
	}
	while (dma->parked != NULL && dma->parked->lag_until <= calls) {
		struct doca_task *task = dma->parked;

		dma->parked = task->next;
		task->next = dma->free_list;
		dma->free_list = task;
	}
	return dma->free_list != NULL;
}

/* Park a task that was just freed, if its slot cannot be used yet: behind those freed before. */
void
emu_sched_freed(struct doca_task *task)
{
	struct doca_ctx *ctx = task->ctx;
	struct doca_dma *dma = (struct doca_dma *)ctx;
	struct doca_task **link = &dma->parked;

	if (task->lag_until <=
	    atomic_load_explicit(&ctx->pe->stats.progress_calls, memory_order_relaxed)) {
		return;
	}
	dma->free_list = task->next;
	while (*link != NULL && (*link)->lag_until <= task->lag_until) {
		link = &(*link)->next;
	}
	task->next = *link;
	*link = task;
}

/* ---- the control API ---- */

doca_error_t
docaemu_time(uint64_t *ns)
{
	if (ns == NULL) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	*ns = atomic_load(&clock_ps) / PS_PER_NS;
	return DOCA_SUCCESS;
}

doca_error_t
docaemu_time_advance(uint64_t ns)
{
	uint64_t now;

	emu_init();
	emu_engine_lock();
	now = atomic_load(&clock_ps);
	if (ns > (UINT64_MAX - now) / PS_PER_NS) {
		emu_engine_unlock();
		return DOCA_ERROR_INVALID_VALUE;
	}
	move_clock_locked(now + ns * PS_PER_NS);
	emu_engine_unlock();
	return DOCA_SUCCESS;
}

doca_error_t
docaemu_hold(int on)
{
	emu_init();
	atomic_store(&emu_settings[EMU_HOLD], on != 0);
	emu_sched_configured();
	return DOCA_SUCCESS;
}

/* Let the time pass that armed programs sleep until what was released is due. */
static void
sleep_on_locked(void)
{
	const struct doca_task *next = NULL;

	for (struct doca_ctx *ctx = emu_engine_ctxs(); ctx != NULL; ctx = ctx->engine_next) {
		if (atomic_load(&ctx->pe->arm) == EMU_ARMED) {
			next = sooner_locked(next, ctx);
		}
	}
	if (next != NULL && emu_get(EMU_CLOCK) == CLOCK_AUTO) {
		move_clock_locked(next->due);
	}
}

static struct doca_task *
pick_held_locked(int order)
{
	struct doca_task *task = held_first;
	uint64_t skip;

	if (order == DOCAEMU_ORDER_LIFO) {
		return held_last;
	}
	if (order == DOCAEMU_ORDER_RANDOM && task != NULL) {
		skip = emu_engine_random() % atomic_load(&emu_stats.live_held);
		while (skip-- != 0) {
			task = task->held_next;
		}
	}
	return task;
}

static void
release_locked(struct doca_task *task)
{
	if (task->held_prev != NULL) {
		task->held_prev->held_next = task->held_next;
	} else {
		held_first = task->held_next;
	}
	if (task->held_next != NULL) {
		task->held_next->held_prev = task->held_prev;
	} else {
		held_last = task->held_prev;
	}
	emu_sub(&emu_stats.live_held, 1);
	task->held = 0;
	if (task->sched == EMU_SCHED_HELD) {
		task->key = fifo_key_locked();
		heap_push_locked(task->ctx, task);
	}
}

doca_error_t
docaemu_release(size_t n, int order, size_t *released)
{
	struct doca_task *task;
	size_t done = 0;

	if (order < DOCAEMU_ORDER_FIFO || order > DOCAEMU_ORDER_RANDOM) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	emu_init();
	emu_engine_lock();
	while (done < n && (task = pick_held_locked(order)) != NULL) {
		release_locked(task);
		done++;
	}
	sleep_on_locked();
	tell_locked();
	emu_engine_unlock();
	if (released != NULL) {
		*released = done;
	}
	return DOCA_SUCCESS;
}
