/* SPDX-License-Identifier: Apache-2.0 */
/* Slots that are slow to return, latency of real time, notifications that are not as they should be. */
#define _GNU_SOURCE
#include "check.h"

#include <poll.h>
#include <time.h>

static const char *const engines[] = {"engine=default", "engine=worker"};

static uint64_t
real_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* ---- slots ---- */

static void
test_slot_lag(void)
{
	struct doca_dma_task_memcpy *task;
	union doca_data data = {.u64 = 9};
	struct doca_buf *src;
	struct doca_buf *dst;
	struct bed bed;

	configure("slot_lag=3");
	bed_open(&bed, 8192, 2);
	bed_start(&bed);
	bed_submit(&bed, 0, 0, 4096, 8);
	bed_submit(&bed, 1, 0, 4104, 8);
	CHECK_EQ(doca_pe_progress(bed.pe), 1);
	CHECK_EQ(doca_pe_progress(bed.pe), 1);
	src = bed_src(&bed, 0, 8);
	dst = bed_dst(&bed, 4096, 8);
	/* The first one ended in the first call: its slot is free after the fourth. */
	for (size_t i = 0; i < 2; i++) {
		CHECK_DOCA(doca_dma_task_memcpy_alloc_init(bed.dma, src, dst, data, &task),
			   DOCA_ERROR_NO_MEMORY);
		CHECK_EQ(doca_pe_progress(bed.pe), 0);
	}
	OK(doca_dma_task_memcpy_alloc_init(bed.dma, src, dst, data, &task));
	OK(doca_task_submit(doca_dma_task_memcpy_as_task(task)));
	/* Kept and submitted again, it finds the queue full instead. */
	bed.free_tasks = false;
	CHECK_EQ(doca_pe_progress(bed.pe), 1);
	configure("slot_lag=0");
	bed.free_tasks = true;
	OK(doca_buf_reset_data_len(dst));
	OK(doca_task_submit(doca_dma_task_memcpy_as_task(task)));
	bed_drain(&bed);
	CHECK_EQ(bed.num_ok, 4);
	CHECK_EQ(counters().no_memory, 2);
	bed_close(&bed);
}

static void
test_slot_lag_of_the_queue(void)
{
	struct doca_dma_task_memcpy *task;
	union doca_data data = {.u64 = 9};
	struct doca_buf *dst;
	struct bed bed;

	configure("slot_lag=2 queue_depth=1");
	bed_open(&bed, 8192, 4);
	bed_start(&bed);
	bed.free_tasks = false;
	dst = bed_dst(&bed, 4096, 8);
	OK(doca_dma_task_memcpy_alloc_init(bed.dma, bed_src(&bed, 0, 8), dst, data, &task));
	for (size_t i = 0; i < 3; i++) {
		OK(doca_task_submit(doca_dma_task_memcpy_as_task(task)));
		CHECK_EQ(doca_pe_progress(bed.pe), 1);
		OK(doca_buf_reset_data_len(dst));
		for (size_t j = 0; j < 2; j++) {
			CHECK_DOCA(doca_task_submit(doca_dma_task_memcpy_as_task(task)),
				   DOCA_ERROR_AGAIN);
			CHECK_EQ(doca_pe_progress(bed.pe), 0);
		}
	}
	bed_end_task(task);
	/* A new start knows nothing of it. */
	OK(doca_ctx_stop(bed.ctx));
	bed_start(&bed);
	bed.free_tasks = true;
	bed_submit(&bed, 0, 0, 4096, 8);
	bed_drain(&bed);
	bed_close(&bed);
}

/* ---- real time ---- */

static void
test_latency_of_real_time(void)
{
	uint64_t begin;
	struct bed bed;

	configure("latency_real=20000");
	bed_open(&bed, 8192, 64);
	bed_start(&bed);
	begin = real_us();
	for (size_t i = 0; i < 64; i++) {
		bed_submit(&bed, i, 0, 4096 + i * 8, 8);
	}
	bed_drain(&bed);
	printf("  64 copies in %llu us\n", (unsigned long long)(real_us() - begin));
	CHECK(real_us() - begin >= 20000);
	/* They wait together, not one after another. */
	CHECK(real_us() - begin < 64 * 20000 / 2);
	CHECK_EQ(counters().tasks_inline, 0);
	bed_submit(&bed, 0, 0, 4096, 8);
	CHECK_DOCA(doca_ctx_stop(bed.ctx), DOCA_ERROR_IN_PROGRESS);
	bed_drain(&bed);
	bed_progress(&bed);
	bed_close(&bed);
}

/* A context with a long latency does not keep back one with a short one. */
static void
test_latencies_of_two_contexts(void)
{
	struct bed slow;
	struct bed fast;
	uint64_t begin;

	configure("latency_real=300000");
	bed_open(&slow, 8192, 4);
	bed_start(&slow);
	configure("latency_real=1000");
	bed_open(&fast, 8192, 4);
	bed_start(&fast);
	begin = real_us();
	bed_submit(&slow, 0, 0, 4096, 8);
	while (counters().tasks_worker == 0) {
		poll(NULL, 0, 1);
	}
	bed_submit(&fast, 0, 0, 4096, 8);
	bed_drain(&fast);
	CHECK(real_us() - begin < 200000);
	bed_drain(&slow);
	CHECK(real_us() - begin >= 300000);
	bed_close(&fast);
	bed_close(&slow);
}

/* ---- notifications ---- */

static void
test_late_notifications(void)
{
	for (size_t e = 0; e < 2; e++) {
		struct bed bed;

		configure(engines[e]);
		configure("notify=late");
		bed_open(&bed, 8192, 8);
		bed_start(&bed);
		bed_submit(&bed, 0, 0, 4096, 8);
		bed_drain(&bed);
		CHECK_EQ(bed.num_ok, 1);
		CHECK_EQ(counters().notifications_late, counters().notifications);
		bed_close(&bed);
	}
	{
		struct bed bed;

		configure("engine=manual notify=normal\nfault op=notification kind=late");
		bed_open(&bed, 8192, 8);
		bed_start(&bed);
		bed_submit(&bed, 0, 0, 4096, 8);
		OK(doca_pe_request_notification(bed.pe));
		OK(docaemu_complete((uintptr_t)bed.memory + 4096, 0, 0));
		CHECK(!bed_readable(&bed, 5));
		OK(docaemu_step(0, DOCAEMU_ORDER_FIFO, NULL));
		CHECK(bed_readable(&bed, 0));
		bed_drain(&bed);
		bed_close(&bed);
	}
}

/* Without workers it is the clock, in which a tick is nothing, that sends them. */
static void
test_late_notifications_of_the_clock(void)
{
	static const char *const clocked[] = {"engine=late", "engine=late latency=1000",
					      "engine=late hold=1", "chaos=3"};

	for (size_t i = 0; i < sizeof(clocked) / sizeof(clocked[0]); i++) {
		struct bed bed;

		configure("engine=default latency=0 hold=0 chaos=0 notify=late");
		configure(clocked[i]);
		bed_open(&bed, 8192, 8);
		bed_start(&bed);
		bed_submit(&bed, 0, 0, 4096, 8);
		OK(doca_pe_request_notification(bed.pe));
		OK(docaemu_release(1, DOCAEMU_ORDER_FIFO, NULL));
		CHECK(bed_readable(&bed, 2000));
		bed_drain(&bed);
		CHECK_EQ(bed.num_ok, 1);
		CHECK(counters().notifications_late > i);
		bed_close(&bed);
	}
}

static void
test_suppressed_notifications(void)
{
	struct docaemu_counters before;
	struct bed bed;

	configure("engine=manual\nfault op=notification kind=suppress count=2");
	bed_open(&bed, 8192, 8);
	bed_start(&bed);
	for (size_t i = 0; i < 3; i++) {
		bed_submit(&bed, i, 0, 4096 + i * 8, 8);
	}
	OK(doca_pe_request_notification(bed.pe));
	before = counters();
	OK(docaemu_step(1, DOCAEMU_ORDER_FIFO, NULL));
	CHECK(!bed_readable(&bed, 5));
	OK(docaemu_step(1, DOCAEMU_ORDER_FIFO, NULL));
	CHECK(!bed_readable(&bed, 5));
	CHECK_EQ(counters().notifications, before.notifications);
	CHECK_EQ(counters().notifications_suppressed, 2);
	OK(docaemu_step(1, DOCAEMU_ORDER_FIFO, NULL));
	CHECK(bed_readable(&bed, 0));
	bed_drain(&bed);
	CHECK_EQ(bed.num_ok, 3);
	configure("notify=suppress");
	bed_submit(&bed, 3, 0, 4096, 8);
	OK(doca_pe_request_notification(bed.pe));
	OK(docaemu_step(1, DOCAEMU_ORDER_FIFO, NULL));
	CHECK(!bed_readable(&bed, 5));
	configure("notify=normal");
	OK(doca_pe_clear_notification(bed.pe, 0));
	bed_drain(&bed);
	CHECK_EQ(counters().notifications_suppressed, 3);
	bed_close(&bed);
}

static void
test_spurious_notifications(void)
{
	size_t pending;
	struct bed bed;

	configure("fault op=notification kind=spurious skip=1");
	bed_open(&bed, 8192, 8);
	bed_start(&bed);
	OK(doca_pe_request_notification(bed.pe));
	CHECK(!bed_readable(&bed, 0));
	OK(doca_pe_clear_notification(bed.pe, 0));
	OK(doca_pe_request_notification(bed.pe));
	CHECK(bed_readable(&bed, 0));
	OK(doca_pe_clear_notification(bed.pe, 0));
	CHECK(!bed_readable(&bed, 0));
	CHECK_EQ(counters().notifications_spurious, 1);
	OK(docaemu_faults_pending(&pending));
	CHECK_EQ(pending, 0);
	bed_close(&bed);
}

/* ---- faults that cannot be ---- */

static void
test_faults_that_would_never_fire(void)
{
	static const char *const lines[] = {
		"fault op=pe_progress",
		"fault op=task_free",
		"fault op=notification",
		"fault op=notification kind=again",
		"fault op=completion kind=late",
		"fault op=task_submit kind=hold",
		"fault op=ctx_start kind=accepted",
		"fault op=ctx_start kind=spurious",
		"fault op=notification kind=corrupt",
		"notify=sometimes",
		"profile=bf9",
		"order=best",
		"hold=2",
	};
	size_t pending;

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		CHECK_DOCA(docaemu_configure(lines[i], NULL, 0), DOCA_ERROR_INVALID_VALUE);
	}
	OK(docaemu_faults_pending(&pending));
	CHECK_EQ(pending, 0);
}

TESTS(TEST(test_slot_lag), TEST(test_slot_lag_of_the_queue), TEST(test_latency_of_real_time),
      TEST(test_latencies_of_two_contexts), TEST(test_late_notifications_of_the_clock),
      TEST(test_late_notifications), TEST(test_suppressed_notifications),
      TEST(test_spurious_notifications), TEST(test_faults_that_would_never_fire));
