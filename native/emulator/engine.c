/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine: the workers, which execute what the progress call does not.
 *
 * A worker is in one of three states, kept in the word it sleeps on:
 *
 *               nothing to do, but doorbells             a tick without doorbells
 *   AWAKE ------------------------------> TICKING ------------------------------> ASLEEP
 *     ^    (or all small tasks are young)    |  sleeps 0.4 ms                       |  sleeps
 *     +--------------------------------------+--------------------------------------+
 *       waking: exactly one compare-and-swap back to AWAKE, then one futex call
 *
 * A worker says how it will sleep before it looks for work a last time, a doorbell shows its task
 * before it looks at the workers (both sequentially consistent): one of the two sees the other.
 * Large tasks wake a worker at once. Small ones are left to doca_pe_progress until they are a tick
 * old, or until the progress engine is armed.
 */
#define _GNU_SOURCE
#include "engine.h"
#include "schedule.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define EMU_NUM_WORKERS 2
#define EMU_TICK_NS 400000
#define EMU_SECOND_WORKER_NICE 5
/* A worker that begins a copy this long sees to it that the other one keeps ticking. */
#define EMU_LONG_COPY (1u << 20)

enum emu_sleep { EMU_AWAKE, EMU_TICKING, EMU_ASLEEP };

struct emu_worker {
	pthread_t thread;
	uint32_t index;
	alignas(64) _Atomic uint32_t sleep; /* enum emu_sleep; the futex */
};

static struct {
	pthread_mutex_t life; /* starting and joining workers; taken before lock */
	pthread_mutex_t lock; /* the list of contexts; what workers share */
	struct doca_ctx *ctxs;
	uint32_t num_served; /* contexts that need workers; life */
	_Atomic uint32_t num_workers;
	_Atomic uint32_t num_started;
	_Atomic uint32_t quit;
	uint64_t last_tick;
	struct doca_task *delayed_first; /* executed, to be finished later; earliest first */
	struct doca_task *delayed_last;
	struct emu_worker workers[EMU_NUM_WORKERS];
} engine = {
	.life = PTHREAD_MUTEX_INITIALIZER,
	.lock = PTHREAD_MUTEX_INITIALIZER,
};

/* What emu_engine_lock() locks, to wait with. */
pthread_mutex_t *const emu_engine_mutex = &engine.lock;

/* ---- sleeping and waking ---- */

static long
futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
	return syscall(SYS_futex, (uint32_t *)word, op | FUTEX_PRIVATE_FLAG, value, timeout, NULL,
		       0);
}

static bool
worker_wake(struct emu_worker *worker)
{
	uint32_t sleep = atomic_load_explicit(&worker->sleep, memory_order_seq_cst);

	while (sleep != EMU_AWAKE) {
		if (atomic_compare_exchange_weak(&worker->sleep, &sleep, EMU_AWAKE)) {
			futex(&worker->sleep, FUTEX_WAKE, 1, NULL);
			emu_add(&emu_stats.worker_wakes, 1);
			return true;
		}
	}
	return false;
}

/* Wake one worker that sleeps, the first by preference; those awake look again by themselves. */
static void
wake_one(void)
{
	uint32_t num = atomic_load_explicit(&engine.num_workers, memory_order_relaxed);

	for (uint32_t i = 0; i < num; i++) {
		if (worker_wake(&engine.workers[i])) {
			return;
		}
	}
}

/* See to it that some worker looks at young tasks within a tick. */
static void
wake_if_all_asleep(void)
{
	uint32_t num;

	if (doca_likely(atomic_load_explicit(&engine.workers[0].sleep, memory_order_seq_cst) !=
			EMU_ASLEEP)) {
		return;
	}
	num = atomic_load_explicit(&engine.num_workers, memory_order_relaxed);

	for (uint32_t i = 1; i < num; i++) {
		if (atomic_load_explicit(&engine.workers[i].sleep, memory_order_seq_cst) !=
		    EMU_ASLEEP) {
			return;
		}
	}
	if (num != 0) {
		worker_wake(&engine.workers[0]);
	}
}

/* ---- workers ---- */

static uint32_t
small_limit(struct doca_ctx *ctx)
{
	uint32_t handed = atomic_load_explicit(&ctx->handed, memory_order_acquire);

	return (int32_t)(handed - ctx->aged) > 0 ? handed : ctx->aged;
}

/* Claim a task for a worker; the lock is held. */
static struct doca_task *
claim_locked(void)
{
	for (struct doca_ctx *ctx = engine.ctxs; ctx != NULL; ctx = ctx->engine_next) {
		struct doca_task *task;

		if (ctx->engine == EMU_ENGINE_MANUAL) {
			continue;
		}
		task = emu_ring_claim(&ctx->large, emu_ring_tail(&ctx->large));
		if (task == NULL) {
			task = emu_ring_claim(&ctx->small, small_limit(ctx));
		}
		if (task != NULL) {
			/* Decided at the claim: what was claimed before a culprit is executed. */
			task->flushed = atomic_load(&ctx->broken) != 0 && emu_sched_flushes(task);
			return task;
		}
	}
	return NULL;
}

/* Whether there were doorbells since the last tick, or young tasks wait; the lock is held. */
static bool
active_locked(void)
{
	for (struct doca_ctx *ctx = engine.ctxs; ctx != NULL; ctx = ctx->engine_next) {
		if (ctx->engine == EMU_ENGINE_MANUAL) {
			continue;
		}
		if (emu_ring_tail(&ctx->small) != ctx->seen ||
		    emu_ring_tail(&ctx->large) != ctx->seen_large ||
		    emu_ring_waiting(&ctx->small) != 0 || atomic_load(&ctx->pe->late) != 0) {
			return true;
		}
	}
	return false;
}

/* Age the small tasks by a tick, unless the other worker just did; the lock is held. */
static void
tick_locked(void)
{
	struct timespec now;
	uint64_t ns;

	clock_gettime(CLOCK_MONOTONIC, &now);
	ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	if (ns - engine.last_tick < EMU_TICK_NS / 2) {
		return;
	}
	engine.last_tick = ns;
	for (struct doca_ctx *ctx = engine.ctxs; ctx != NULL; ctx = ctx->engine_next) {
		uint32_t handed = atomic_load(&ctx->handed);

		ctx->aged = ctx->seen;
		/* It follows, or it would be ahead again when the indices have gone half round. */
		if ((int32_t)(ctx->aged - handed) > 0) {
			atomic_compare_exchange_strong(&ctx->handed, &handed, ctx->aged);
		}
		ctx->seen = emu_ring_tail(&ctx->small);
		ctx->seen_large = emu_ring_tail(&ctx->large);
	}
}

/* Execute or flush a claimed task. */
void
emu_engine_execute(struct doca_task *task)
{
	if (task->flushed) {
		task->result = (doca_error_t)atomic_load(&task->ctx->broken);
	} else {
		emu_dma_execute((struct doca_dma_task_memcpy *)task);
	}
}

/*
 * Put an executed task on the done list and tell the progress engine; the lock is held, so that
 * a context, once unlinked, is not touched any more.
 */
void
emu_engine_finish(struct doca_task *task)
{
	struct doca_ctx *ctx = task->ctx;
	doca_error_t result = task->result;
	bool culprit = result != DOCA_SUCCESS && task->fatal && !task->flushed;
	struct doca_task *first = atomic_load_explicit(&ctx->done, memory_order_relaxed);

	do {
		task->next = first;
	} while (!atomic_compare_exchange_weak(&ctx->done, &first, task));
	/* After the culprit is on the list: what is flushed because of it comes behind it. */
	if (culprit && ctx->reporting != EMU_REPORT_SCHEDULED) {
		uint64_t status = emu_get(EMU_FLUSH_STATUS);
		uint32_t none = 0;

		atomic_compare_exchange_strong(&ctx->broken, &none,
					       status != 0 ? (uint32_t)status : (uint32_t)result);
	}
	if (ctx->reporting != EMU_REPORT_SCHEDULED || emu_sched_tells(task)) {
		emu_pe_signal(ctx->pe);
	}
}

/* ---- what is kept back for a while of real time; the lock is held ---- */

static uint64_t
real_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Finish an executed task once its latency is over, counted from its execution. */
static void
finish_later(struct doca_task *task, uint64_t latency_us)
{
	struct doca_task **link = &engine.delayed_first;

	task->real_due = real_ns() + latency_us * 1000u;
	if (engine.delayed_last != NULL && engine.delayed_last->real_due <= task->real_due) {
		link = &engine.delayed_last->next;
	}
	/* Contexts may have latencies of their own. */
	while (*link != NULL && (*link)->real_due <= task->real_due) {
		link = &(*link)->next;
	}
	task->next = *link;
	*link = task;
	if (task->next == NULL) {
		engine.delayed_last = task;
	}
}

/* Finish what has waited long enough; how long the next one still has, UINT64_MAX if there is none. */
static uint64_t
finish_delayed(void)
{
	uint64_t now;

	if (doca_likely(engine.delayed_first == NULL)) {
		return UINT64_MAX;
	}
	now = real_ns();
	while (engine.delayed_first != NULL) {
		struct doca_task *task = engine.delayed_first;

		if (task->real_due > now) {
			return task->real_due - now;
		}
		engine.delayed_first = task->next;
		if (task->next == NULL) {
			engine.delayed_last = NULL;
		}
		emu_engine_finish(task);
	}
	return UINT64_MAX;
}

/* Send the notifications that were kept back. */
void
emu_engine_deliver_late(void)
{
	for (struct doca_ctx *ctx = engine.ctxs; ctx != NULL; ctx = ctx->engine_next) {
		emu_pe_signal_late(ctx->pe);
	}
}

/* See to it that a notification that was kept back is sent after a tick. */
void
emu_engine_late(void)
{
	wake_one();
}

static void *
worker_main(void *arg)
{
	struct emu_worker *self = arg;
	struct emu_worker *other = &engine.workers[1 - self->index];
	uint32_t sleep = EMU_TICKING;

	prctl(PR_SET_TIMERSLACK,
	      1UL); /* latency_real is in microseconds, the default slack is 50 */
	if (self->index != 0) {
		setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), EMU_SECOND_WORKER_NICE);
	}
	pthread_mutex_lock(&engine.lock);
	for (;;) {
		struct doca_task *task;
		struct timespec timeout;
		uint64_t wait;

		atomic_store(&self->sleep, sleep);
		wait = finish_delayed();
		task = claim_locked();
		if (task != NULL) {
			atomic_store(&self->sleep, EMU_AWAKE);
			pthread_mutex_unlock(&engine.lock);
			if (((struct doca_dma_task_memcpy *)task)->len >= EMU_LONG_COPY &&
			    atomic_load(&other->sleep) == EMU_ASLEEP) {
				worker_wake(other);
			}
			emu_engine_execute(task);
			emu_add(&emu_stats.tasks_worker, 1);
			pthread_mutex_lock(&engine.lock);
			if (doca_unlikely(task->ctx->latency_real != 0)) {
				finish_later(task, task->ctx->latency_real);
			} else {
				emu_engine_finish(task);
			}
			sleep = EMU_TICKING;
			continue;
		}
		if (atomic_load(&engine.quit)) {
			break;
		}
		if (sleep == EMU_ASLEEP && active_locked()) {
			sleep = EMU_TICKING;
			continue;
		}
		pthread_mutex_unlock(&engine.lock);
		emu_add(&emu_stats.worker_sleeps, 1);
		errno = 0;
		if (sleep == EMU_TICKING && wait > EMU_TICK_NS) {
			wait = EMU_TICK_NS;
		}
		timeout.tv_sec = (time_t)(wait / 1000000000u);
		timeout.tv_nsec = (long)(wait % 1000000000u);
		futex(&self->sleep, FUTEX_WAIT, sleep, wait != UINT64_MAX ? &timeout : NULL);
		pthread_mutex_lock(&engine.lock);
		if (sleep == EMU_TICKING && atomic_load(&self->sleep) == EMU_TICKING) {
			/* A whole tick without being woken. */
			bool active = active_locked();

			tick_locked();
			emu_engine_deliver_late();
			sleep = active ? EMU_TICKING : EMU_ASLEEP;
		} else {
			sleep = EMU_TICKING;
		}
	}
	atomic_store(&self->sleep, EMU_AWAKE);
	pthread_mutex_unlock(&engine.lock);
	return NULL;
}

static void
workers_join(void)
{
	uint32_t num = atomic_load(&engine.num_started);

	atomic_store(&engine.quit, 1);
	for (uint32_t i = 0; i < num; i++) {
		/* Under the lock: a worker is then either asleep, or still to look at quit. */
		pthread_mutex_lock(&engine.lock);
		worker_wake(&engine.workers[i]);
		pthread_mutex_unlock(&engine.lock);
	}
	for (uint32_t i = 0; i < num; i++) {
		pthread_join(engine.workers[i].thread, NULL);
		emu_sub(&emu_stats.live_workers, 1);
	}
	atomic_store(&engine.num_workers, 0);
	atomic_store(&engine.num_started, 0);
	atomic_store(&engine.quit, 0);
}

/* Start the workers with all signals blocked; one is enough to go on. */
static doca_error_t
workers_start(void)
{
	sigset_t all;
	sigset_t old;
	uint32_t num = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	for (uint32_t i = 0; i < EMU_NUM_WORKERS; i++) {
		struct emu_worker *worker = &engine.workers[i];
		char name[16] = "docaemu-0";

		worker->index = i;
		atomic_store(&worker->sleep, EMU_AWAKE);
		if (pthread_create(&worker->thread, NULL, worker_main, worker) != 0) {
			break;
		}
		name[8] = (char)('0' + i);
		pthread_setname_np(worker->thread, name);
		num++;
		emu_add(&emu_stats.live_workers, 1);
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	atomic_store(&engine.num_started, num);
	atomic_store(&engine.num_workers, num);
	return num != 0 ? DOCA_SUCCESS : DOCA_ERROR_INITIALIZATION;
}

/* Let workers see a context that starts; the first one starts the workers. */
doca_error_t
emu_engine_add(struct doca_ctx *ctx)
{
	doca_error_t result = DOCA_SUCCESS;

	pthread_mutex_lock(&engine.life);
	if (ctx->engine != EMU_ENGINE_MANUAL && engine.num_served == 0) {
		result = workers_start();
	}
	if (result == DOCA_SUCCESS) {
		if (ctx->engine != EMU_ENGINE_MANUAL) {
			engine.num_served++;
		}
		pthread_mutex_lock(&engine.lock);
		ctx->seen = emu_ring_tail(&ctx->small);
		ctx->aged = ctx->seen;
		ctx->seen_large = emu_ring_tail(&ctx->large);
		atomic_store(&ctx->handed, ctx->seen);
		ctx->engine_next = engine.ctxs;
		engine.ctxs = ctx;
		ctx->listed = true;
		pthread_mutex_unlock(&engine.lock);
	}
	pthread_mutex_unlock(&engine.life);
	return result;
}

/* Hide a context that has become idle; the last one ends the workers. Does nothing twice. */
void
emu_engine_remove(struct doca_ctx *ctx)
{
	struct doca_ctx **link;

	pthread_mutex_lock(&engine.life);
	if (ctx->listed) {
		pthread_mutex_lock(&engine.lock);
		for (link = &engine.ctxs; *link != ctx; link = &(*link)->engine_next) {
		}
		*link = ctx->engine_next;
		ctx->listed = false;
		pthread_mutex_unlock(&engine.lock);
		if (ctx->engine != EMU_ENGINE_MANUAL && --engine.num_served == 0) {
			workers_join();
		}
	}
	pthread_mutex_unlock(&engine.life);
}

void
emu_engine_lock(void)
{
	pthread_mutex_lock(&engine.lock);
}

void
emu_engine_unlock(void)
{
	pthread_mutex_unlock(&engine.lock);
}

/* The started contexts; the lock is held. */
struct doca_ctx *
emu_engine_ctxs(void)
{
	return engine.ctxs;
}

/* Wait until no worker is telling a progress engine about a task. */
void
emu_engine_barrier(void)
{
	pthread_mutex_lock(&engine.lock);
	pthread_mutex_unlock(&engine.lock);
}

/* Whether no context is started. */
bool
emu_engine_idle(void)
{
	bool idle;

	pthread_mutex_lock(&engine.lock);
	idle = engine.ctxs == NULL;
	pthread_mutex_unlock(&engine.lock);
	return idle;
}

/* Tell the workers of new tasks, whose tails the caller published. */
void
emu_engine_doorbell(struct doca_ctx *ctx, bool large)
{
	if (ctx->engine == EMU_ENGINE_MANUAL) {
		return;
	}
	if (large) {
		wake_one();
	} else {
		wake_if_all_asleep();
	}
}

/* Give what waits for doca_pe_progress to the workers: nobody may call it for a while. */
void
emu_engine_handoff(struct doca_pe *pe)
{
	struct doca_ctx *ctx = pe->cursor;
	bool waiting = false;

	for (uint32_t i = 0; i < pe->num_ctxs; i++, ctx = ctx->pe_next) {
		if (ctx->listed && ctx->engine != EMU_ENGINE_MANUAL &&
		    emu_ring_waiting(&ctx->small) != 0) {
			atomic_store(&ctx->handed, emu_ring_tail(&ctx->small));
			waiting = true;
		}
	}
	if (waiting) {
		wake_one();
	}
}

/* Claim a task that has not begun, to flush it; the PE's thread. */
struct doca_task *
emu_engine_claim_flush(struct doca_ctx *ctx)
{
	struct doca_task *task;

	if (ctx->engine == EMU_ENGINE_MANUAL) {
		pthread_mutex_lock(&engine.lock);
	}
	task = emu_ring_claim(&ctx->small, emu_ring_tail(&ctx->small));
	if (task == NULL) {
		task = emu_ring_claim(&ctx->large, emu_ring_tail(&ctx->large));
	}
	if (ctx->engine == EMU_ENGINE_MANUAL) {
		pthread_mutex_unlock(&engine.lock);
	}
	return task;
}

/* ---- fork ---- */

void
emu_engine_fork_prepare(void)
{
	pthread_mutex_lock(&engine.life);
	pthread_mutex_lock(&engine.lock);
}

void
emu_engine_fork_parent(void)
{
	pthread_mutex_unlock(&engine.lock);
	pthread_mutex_unlock(&engine.life);
}

/* The child has no workers and none of the parent's contexts. */
void
emu_engine_fork_child(void)
{
	for (struct doca_ctx *ctx = engine.ctxs; ctx != NULL; ctx = ctx->engine_next) {
		ctx->listed = false;
	}
	engine.ctxs = NULL;
	engine.delayed_first = NULL;
	engine.delayed_last = NULL;
	engine.num_served = 0;
	atomic_store(&engine.num_workers, 0);
	atomic_store(&engine.num_started, 0);
	atomic_store(&engine.quit, 0);
	emu_engine_fork_parent();
}
