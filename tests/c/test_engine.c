/* SPDX-License-Identifier: Apache-2.0 */
/* The engine: who executes what and when. */
#define _GNU_SOURCE
#include "check.h"
#include "emu.h"

#include <poll.h>
#include <pthread.h>
#include <time.h>

static void
test_small_copies_run_in_progress(void)
{
	struct bed bed;

	bed_open(&bed, 4096, 64);
	bed_start(&bed);
	for (size_t i = 0; i < 1000; i++) {
		bed_submit(&bed, i, 0, 2048, 8);
		while (doca_pe_progress(bed.pe) == 0) {
		}
	}
	CHECK(counters().tasks_inline > 900);
	bed_close(&bed);
}

static void
test_large_copies_run_in_workers(void)
{
	struct bed bed;

	configure("inline_max=4K");
	bed_open(&bed, 1 << 20, 64);
	bed_start(&bed);
	for (size_t i = 0; i < 64; i++) {
		bed_submit(&bed, i, i, (1 << 19) + i * 5000, 4097);
	}
	bed_drain(&bed);
	CHECK_EQ(counters().tasks_worker, 64);
	CHECK_EQ(counters().tasks_inline, 0);
	bed_close(&bed);
}

static void
test_worker_mode_runs_nothing_inline(void)
{
	struct bed bed;

	configure("engine=worker");
	bed_open(&bed, 4096, 64);
	bed_start(&bed);
	for (size_t i = 0; i < 64; i++) {
		bed_submit(&bed, i, i, 2048 + i * 8, 8);
	}
	bed_drain(&bed);
	CHECK_EQ(counters().tasks_worker, 64);
	CHECK_EQ(counters().tasks_inline, 0);
	bed_close(&bed);
}

static uint64_t
now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* 4.10.9: a program that submits and then only looks at the destination. */
static void
test_a_doorbell_is_enough(void)
{
	uint64_t worst = 0;
	struct bed bed;

	bed_open(&bed, 4096, 64);
	bed_start(&bed);
	for (size_t i = 0; i < 20; i++) {
		_Atomic uint8_t *last = (_Atomic uint8_t *)(bed.memory + 2048 + 7);
		uint64_t begin = now_ns();

		memset(bed.memory, 0x11 + (int)i, 8);
		bed_submit(&bed, i, 0, 2048, 8);
#ifndef __SANITIZE_THREAD__
		while (*last != 0x11 + (int)i) {
			CHECK(now_ns() - begin < UINT64_C(5000000000));
			poll(NULL, 0, 0);
		}
#else
		(void)last;
		while (counters().tasks_worker != i + 1) {
			CHECK(now_ns() - begin < UINT64_C(5000000000));
			poll(NULL, 0, 0);
		}
#endif
		if (now_ns() - begin > worst) {
			worst = now_ns() - begin;
		}
		CHECK_EQ(bed.num_ok, i);
		bed_drain(&bed);
		CHECK_EQ(bed.num_ok, i + 1);
		if (i % 4 == 0) {
			/* long enough for the workers to fall asleep */
			poll(NULL, 0, 5);
		}
	}
	printf("  worst begin %llu us\n", (unsigned long long)(worst / 1000));
	CHECK_EQ(counters().tasks_worker, 20);
	bed_close(&bed);
}

static void
test_idle_workers_do_not_wake(void)
{
	struct docaemu_counters before;
	struct bed bed;

	bed_open(&bed, 4096, 64);
	bed_start(&bed);
	CHECK_EQ(live().workers, 2);
	bed_submit(&bed, 0, 0, 2048, 8);
	bed_drain(&bed);
	poll(NULL, 0, 100);
	before = counters();
	poll(NULL, 0, 300);
	CHECK_EQ(counters().worker_sleeps, before.worker_sleeps);
	CHECK_EQ(counters().worker_wakes, before.worker_wakes);
	bed_close(&bed);
	CHECK_EQ(live().workers, 0);
}

static void
test_no_system_call_per_doorbell_under_load(void)
{
	struct bed bed;

	bed_open(&bed, 4096, 64);
	bed_start(&bed);
	for (size_t i = 0; i < 900; i++) {
		bed_submit(&bed, i, 0, 2048, 8);
		while (doca_pe_progress(bed.pe) == 0) {
		}
	}
	CHECK(counters().worker_wakes < 100);
	bed_close(&bed);
}

static void
test_manual_orders(void)
{
	static const uint64_t fifo[] = {0, 1, 2, 3, 4, 5};
	static const uint64_t lifo[] = {5, 4, 3, 2, 1, 0};
	uint64_t random[2][6];
	struct bed bed;
	size_t stepped;

	configure("engine=manual");
	for (int round = 0; round < 4; round++) {
		int order = round < 2 ? round : (int)DOCAEMU_ORDER_RANDOM;

		configure("seed=42");
		bed_open(&bed, 4096, 8);
		bed_start(&bed);
		for (size_t i = 0; i < 6; i++) {
			bed_submit(&bed, i, 0, 2048 + i, 1);
		}
		CHECK_EQ(bed_progress(&bed), 0);
		OK(docaemu_step(2, order, &stepped));
		CHECK_EQ(stepped, 2);
		CHECK_EQ(bed_progress(&bed), 2);
		OK(docaemu_step(100, order, &stepped));
		CHECK_EQ(stepped, 4);
		CHECK_EQ(bed_progress(&bed), 4);
		if (round < 2) {
			CHECK(memcmp(bed.order, round == 0 ? fifo : lifo, sizeof(fifo)) == 0);
		} else {
			memcpy(random[round - 2], bed.order, sizeof(random[0]));
		}
		bed_close(&bed);
	}
	CHECK(memcmp(random[0], random[1], sizeof(random[0])) == 0);
	CHECK_DOCA(docaemu_step(1, 3, NULL), DOCA_ERROR_INVALID_VALUE);
}

static void
test_completing_the_task_that_is_meant(void)
{
	struct bed bed;
	uint64_t dst;

	configure("engine=manual");
	bed_open(&bed, 4096, 8);
	bed_start(&bed);
	dst = (uint64_t)(uintptr_t)bed.memory + 2048;
	for (size_t i = 0; i < 4; i++) {
		bed_submit(&bed, i, 0, 2048 + i * 8, 8);
	}
	CHECK_DOCA(docaemu_complete(dst + 1, DOCA_SUCCESS, 1), DOCA_ERROR_NOT_FOUND);
	OK(docaemu_complete(dst + 16, DOCA_SUCCESS, 1));
	OK(docaemu_complete(dst + 8, DOCA_ERROR_DRIVER, 0));
	CHECK_DOCA(docaemu_complete(dst + 8, DOCA_SUCCESS, 0), DOCA_ERROR_NOT_FOUND);
	CHECK_EQ(bed_progress(&bed), 2);
	CHECK_EQ(bed.order[0], 2);
	CHECK_EQ(bed.order[1], 1);
	CHECK_DOCA(bed.status[1], DOCA_ERROR_DRIVER);
	CHECK_EQ(bed.num_states, 1);
	OK(docaemu_complete(dst + 24, DOCA_ERROR_DRIVER, 1));
	bed_drain(&bed);
	CHECK_EQ(bed.num_error, 3);
	CHECK_EQ(bed.states[1], DOCA_CTX_STATE_STOPPING);
	bed_close(&bed);
}

static void
test_manual_orders_over_contexts(void)
{
	struct bed beds[2];

	configure("engine=manual");
	for (int order = 0; order < 2; order++) {
		for (int b = 0; b < 2; b++) {
			bed_open(&beds[b], 4096, 8);
			bed_start(&beds[b]);
		}
		for (size_t i = 0; i < 4; i++) {
			bed_submit(&beds[i % 2], i, 0, 2048 + i, 1);
		}
		/* FIFO: 0, 1, 2; LIFO: 3, 2, 1 */
		OK(docaemu_step(3, order, NULL));
		CHECK_EQ(bed_progress(&beds[0]), order == 0 ? 2 : 1);
		CHECK_EQ(bed_progress(&beds[1]), order == 0 ? 1 : 2);
		CHECK_EQ(beds[0].order[0], order == 0 ? 0 : 2);
		CHECK_EQ(beds[1].order[0], order == 0 ? 1 : 3);
		OK(docaemu_step(3, order, NULL));
		for (int b = 0; b < 2; b++) {
			bed_progress(&beds[b]);
			CHECK_EQ(beds[b].num_ok, 2);
			bed_close(&beds[b]);
		}
	}
}

/* Arming gives small tasks away at once: it wakes a worker that would sleep out its tick. */
static void
test_arming_hands_over_at_once(void)
{
	struct bed bed;

	bed_open(&bed, 4096, 64);
	bed_start(&bed);
	for (size_t i = 0; i < 100; i++) {
		bed_submit(&bed, i, 0, 2048, 8);
		OK(doca_pe_request_notification(bed.pe));
		CHECK(bed_readable(&bed, 10000));
		OK(doca_pe_clear_notification(bed.pe, 0));
		CHECK_EQ(bed_progress(&bed), 1);
	}
	CHECK(counters().worker_wakes >= 50);
	CHECK_EQ(counters().tasks_worker, 100);
	bed_close(&bed);
}

/* After a failed task a worker begins nothing more, although the state still says running. */
static void
test_workers_stop_at_a_culprit(void)
{
	enum doca_ctx_states state;
	struct bed bed;

	configure("engine=worker\nfault op=completion status=DRIVER");
	bed_open(&bed, 4096, 64);
	bed_start(&bed);
	bed_submit(&bed, 0, 0, 2048, 8);
	OK(doca_pe_request_notification(bed.pe));
	CHECK(bed_readable(&bed, 10000));
	memset(bed.memory + 2048, 0, 64);
	for (size_t i = 1; i < 6; i++) {
		bed_submit(&bed, i, 0, 2048 + i * 8, 8);
	}
	OK(doca_ctx_get_state(bed.ctx, &state));
	CHECK_EQ(state, DOCA_CTX_STATE_RUNNING);
	while (counters().tasks_worker != 6) {
		poll(NULL, 0, 1);
	}
	OK(doca_pe_clear_notification(bed.pe, 0));
	bed_drain(&bed);
	CHECK_EQ(bed.num_error, 6);
	CHECK_EQ(bed.order[0], 0);
	for (size_t i = 0; i < 64; i++) {
		CHECK_EQ(bed.memory[2048 + i], 0);
	}
	CHECK_EQ(counters().flushed, 5);
	bed_close(&bed);
}

/* ---- several engines in several threads, on one device and one map ---- */

#define NUM_THREADS 4
#define COPIES 2000

static void *
copy_thread(void *arg)
{
	struct bed *bed = arg;

	for (size_t i = 0; i < COPIES; i += 50) {
		for (size_t j = 0; j < 50; j++) {
			bed_submit(bed, i + j, j * 16, 2048 + j * 100, j % 10 == 0 ? 100 : 16);
		}
		bed_drain(bed);
		CHECK_EQ(bed->num_ok, 50);
		CHECK(memcmp(bed->memory, bed->memory + 2048, 100) == 0);
		bed->num_ok = 0;
	}
	return NULL;
}

static void
test_engines_in_threads(void)
{
	static const char *const engines[] = {"engine=default inline_max=64", "engine=worker"};
	static struct bed beds[NUM_THREADS];
	pthread_t threads[NUM_THREADS];

	for (size_t e = 0; e < 2; e++) {
		configure(engines[e]);
		for (size_t i = 0; i < NUM_THREADS; i++) {
			bed_open(&beds[i], 8192, 64);
			if (i % 2 != 0) {
				OK(doca_pe_set_event_mode(beds[i].pe,
							  DOCA_PE_EVENT_MODE_PROGRESS_ALL));
			}
			bed_start(&beds[i]);
		}
		for (size_t i = 0; i < NUM_THREADS; i++) {
			CHECK_EQ(pthread_create(&threads[i], NULL, copy_thread, &beds[i]), 0);
		}
		for (size_t i = 0; i < NUM_THREADS; i++) {
			CHECK_EQ(pthread_join(threads[i], NULL), 0);
		}
		for (size_t i = 0; i < NUM_THREADS; i++) {
			bed_close(&beds[i]);
		}
	}
}

static void *
start_thread(void *arg)
{
	struct bed bed;

	(void)arg;
	for (size_t i = 0; i < 50; i++) {
		bed_open(&bed, 4096, 4);
		bed_start(&bed);
		bed_submit(&bed, 0, 0, 2048, 8);
		bed_drain(&bed);
		bed_close(&bed);
	}
	return NULL;
}

static void
test_start_and_stop_in_threads(void)
{
	pthread_t threads[NUM_THREADS];

	configure("engine=worker");
	for (size_t i = 0; i < NUM_THREADS; i++) {
		CHECK_EQ(pthread_create(&threads[i], NULL, start_thread, NULL), 0);
	}
	for (size_t i = 0; i < NUM_THREADS; i++) {
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	}
	CHECK_EQ(live().workers, 0);
}

/* ---- two threads on one engine ---- */

static void *
intrude(void *arg)
{
	struct bed *bed = arg;

	CHECK_EQ(doca_pe_progress(bed->pe), 0);
	CHECK_DOCA(doca_pe_request_notification(bed->pe), DOCA_ERROR_BAD_STATE);
	return NULL;
}

static void
let_in(struct bed *bed, struct doca_dma_task_memcpy *task)
{
	pthread_t thread;

	CHECK_EQ(pthread_create(&thread, NULL, intrude, bed), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	bed_end_task(task);
}

static void
test_4_3_22_two_threads_on_one_engine_is_a_violation(void)
{
	struct bed bed;

	bed_open(&bed, 4096, 4);
	bed.hook = let_in;
	bed_start(&bed);
	bed_submit(&bed, 0, 0, 2048, 8);
	bed_drain(&bed);
	expect_violations(2, "another thread is inside");
	bed_close(&bed);
}

static struct doca_dma_task_memcpy *submitted;
static uint64_t num_reported;

static void
expect_submitted(struct bed *bed, struct doca_dma_task_memcpy *task)
{
	CHECK(task == submitted);
	num_reported++;
	bed->num_ok = 0;
}

/*
 * A program that only polls, for 2^31 small tasks. Its ring is put near there by hand: by itself it
 * takes a few minutes.
 */
static void
test_polling_half_round_the_indices(void)
{
	const uint32_t tasks = 100000; /* beyond: many ticks */
	struct doca_dma_task_memcpy *task[4];
	struct emu_ring *ring;
	uint64_t sleeps;
	struct bed bed;
	uint32_t left = tasks;

	bed_open(&bed, 4096, 4);
	bed_start(&bed);
	ring = &bed.ctx->small;
	ring->pending = 0x7f000000u;
	atomic_store(&ring->tail, ring->pending);
	atomic_store(&ring->head, ring->pending);
	bed.hook = expect_submitted;
	for (size_t i = 0; i < 4; i++) {
		task[i] = (struct doca_dma_task_memcpy *)bed_task(&bed, i, 0, 2048 + 64 * i, 1);
	}
	num_reported = 0;
	sleeps = counters().worker_sleeps;
	for (uint32_t i = 0; left != 0; i++) {
		/* When the workers have seen for some ticks how far it is. */
		if (ring->pending < 0x80000000u && counters().worker_sleeps >= sleeps + 8) {
			ring->pending = 0x80000000u;
			atomic_store(&ring->tail, ring->pending);
			atomic_store(&ring->head, ring->pending);
		}
		left -= ring->pending >= 0x80000000u;
		submitted = task[i % 4];
		OK(doca_buf_reset_data_len(doca_dma_task_memcpy_get_dst(submitted)));
		OK(doca_task_submit(doca_dma_task_memcpy_as_task(submitted)));
		while (num_reported == i) {
			doca_pe_progress(bed.pe);
		}
		CHECK_EQ(num_reported, i + 1);
	}
	for (size_t i = 0; i < 4; i++) {
		bed_end_task(task[i]);
	}
	bed_close(&bed);
}

TESTS(TEST(test_small_copies_run_in_progress), TEST(test_large_copies_run_in_workers),
      TEST(test_worker_mode_runs_nothing_inline), TEST(test_a_doorbell_is_enough),
      TEST(test_idle_workers_do_not_wake), TEST(test_no_system_call_per_doorbell_under_load),
      TEST(test_manual_orders), TEST(test_completing_the_task_that_is_meant),
      TEST(test_manual_orders_over_contexts), TEST(test_arming_hands_over_at_once),
      TEST(test_workers_stop_at_a_culprit), TEST(test_engines_in_threads),
      TEST(test_start_and_stop_in_threads),
      TEST(test_4_3_22_two_threads_on_one_engine_is_a_violation),
      TEST(test_polling_half_round_the_indices));
