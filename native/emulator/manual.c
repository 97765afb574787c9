/* SPDX-License-Identifier: Apache-2.0 */
/* The manual engine: tasks begin when docaemu_step() and docaemu_complete() say so. */
#include "engine.h"
#include "schedule.h"

static uint64_t random_state = 1; /* the engine's lock */

/* The next random number of the seed; the lock is held. */
uint64_t
emu_engine_random(void)
{
	uint64_t x = random_state;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	random_state = x;
	return x;
}

/* Restart the random orders from the setting. */
void
emu_engine_reseed(void)
{
	emu_engine_lock();
	random_state = emu_get(EMU_SEED) * 0x9e3779b97f4a7c15u + 1;
	if (random_state == 0) {
		random_state = 1;
	}
	emu_sched_reseed();
	emu_engine_unlock();
}

/* Claim one task in the order asked for; the lock is held. */
static struct doca_task *
claim_manual_locked(int order)
{
	struct doca_ctx *best = NULL;
	uint32_t best_index = 0;
	uint64_t best_seq = 0;
	uint64_t total = 0;
	uint64_t pick = 0;
	struct doca_ctx *ctx;

	for (ctx = emu_engine_ctxs(); ctx != NULL; ctx = ctx->engine_next) {
		total += ctx->engine == EMU_ENGINE_MANUAL ? emu_ring_waiting(&ctx->large) : 0;
	}
	if (total == 0) {
		return NULL;
	}
	if (order == DOCAEMU_ORDER_RANDOM) {
		pick = emu_engine_random() % total;
	}
	for (ctx = emu_engine_ctxs(); ctx != NULL; ctx = ctx->engine_next) {
		uint32_t waiting;
		uint32_t index;
		uint32_t head;
		uint64_t seq;

		waiting = ctx->engine == EMU_ENGINE_MANUAL ? emu_ring_waiting(&ctx->large) : 0;
		if (waiting == 0) {
			continue;
		}
		if (order == DOCAEMU_ORDER_RANDOM) {
			if (pick < waiting) {
				best = ctx;
				best_index = (uint32_t)pick;
				break;
			}
			pick -= waiting;
			continue;
		}
		index = order == DOCAEMU_ORDER_LIFO ? waiting - 1 : 0;
		head = atomic_load(&ctx->large.head);
		seq = atomic_load(&ctx->large.slots[(head + index) & ctx->large.mask])->seq;
		if (best == NULL ||
		    (order == DOCAEMU_ORDER_LIFO ? seq > best_seq : seq < best_seq)) {
			best = ctx;
			best_index = index;
			best_seq = seq;
		}
	}
	return best != NULL ? emu_ring_take(&best->large, best_index) : NULL;
}

/* Execute a task that was taken out of its ring; the lock is held. */
static void
run_manual_locked(struct doca_task *task)
{
	task->flushed = atomic_load(&task->ctx->broken) != 0 && emu_sched_flushes(task);
	emu_engine_execute(task);
	emu_engine_finish(task);
	emu_add(&emu_stats.tasks_step, 1);
}

/* Execute up to n tasks of contexts started in manual mode. */
doca_error_t
emu_engine_step(size_t n, int order, size_t *stepped)
{
	size_t done = 0;

	if (order < DOCAEMU_ORDER_FIFO || order > DOCAEMU_ORDER_RANDOM) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	emu_engine_lock();
	while (done < n) {
		struct doca_task *task = claim_manual_locked(order);

		if (task == NULL) {
			break;
		}
		run_manual_locked(task);
		done++;
	}
	emu_engine_deliver_late();
	emu_engine_unlock();
	if (stepped != NULL) {
		*stepped = done;
	}
	return DOCA_SUCCESS;
}

/* End the waiting task that writes to an address, with a status instead of its own if that is not SUCCESS. */
doca_error_t
emu_engine_complete(uint64_t dst, doca_error_t status, bool fatal)
{
	doca_error_t result = DOCA_ERROR_NOT_FOUND;

	emu_engine_lock();
	for (struct doca_ctx *ctx = emu_engine_ctxs(); ctx != NULL; ctx = ctx->engine_next) {
		uint32_t waiting =
			ctx->engine == EMU_ENGINE_MANUAL ? emu_ring_waiting(&ctx->large) : 0;
		uint32_t head = atomic_load(&ctx->large.head);

		for (uint32_t i = 0; i < waiting; i++) {
			struct doca_task *task =
				atomic_load(&ctx->large.slots[(head + i) & ctx->large.mask]);
			struct doca_dma_task_memcpy *copy = (struct doca_dma_task_memcpy *)task;

			if ((uint64_t)(uintptr_t)copy->to != dst) {
				continue;
			}
			task = emu_ring_take(&ctx->large, i);
			if (status != DOCA_SUCCESS) {
				copy->planned = status;
				task->fatal = fatal;
			}
			run_manual_locked(task);
			result = DOCA_SUCCESS;
			goto unlock;
		}
	}
unlock:
	emu_engine_unlock();
	return result;
}
