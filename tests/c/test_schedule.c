/* SPDX-License-Identifier: Apache-2.0 */
/* When completions come: virtual time, hold and release, orders. */
#define _GNU_SOURCE
#include "check.h"

#include <poll.h>
#include <time.h>

static const char *const engines[] = {"engine=default", "engine=worker", "engine=manual"};

static uint64_t
virtual_ns(void)
{
	uint64_t ns;

	OK(docaemu_time(&ns));
	return ns;
}

static uint64_t
real_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Execute what can be executed, so that only the schedule holds completions back. */
static void
execute_all(struct bed *bed)
{
	OK(docaemu_step(SIZE_MAX, DOCAEMU_ORDER_FIFO, NULL));
	while (counters().tasks_worker + counters().tasks_inline + counters().tasks_step <
	       counters().submits) {
		if (doca_pe_progress(bed->pe) == 0) {
			poll(NULL, 0, 1);
		}
	}
}

static void
expect_order(struct bed *bed, const char *order)
{
	size_t n = strlen(order);

	CHECK_EQ(bed->num_ok + bed->num_error, n);
	for (size_t i = 0; i < n; i++) {
		CHECK_EQ(bed->order[i], order[i] - '0');
	}
}

/* ---- virtual time ---- */

struct rate {
	const char *settings;
	size_t length;
	size_t window;
	uint64_t ns; /* per copy */
};

/* Resubmits every task until there were enough. */
static size_t left;

static void
again(struct bed *bed, struct doca_dma_task_memcpy *task)
{
	bed->num_ok = 0;
	if (left == 0) {
		bed_end_task(task);
		return;
	}
	left--;
	OK(doca_buf_reset_data_len(doca_dma_task_memcpy_get_dst(task)));
	OK(doca_task_submit(doca_dma_task_memcpy_as_task(task)));
}

static void
test_rates_of_the_profiles(void)
{
	static const struct rate rates[] = {
		/* the operation ceilings */
		{"profile=bf3 direction=push", 64, 64, 248},
		{"profile=bf3 direction=push", 4096, 64, 248},
		{"profile=bf3 direction=pull", 64, 64, 282},
		{"profile=bf2 direction=pull", 64, 64, 95},
		{"profile=bf2 direction=push", 64, 64, 98},
		/* the byte ceilings */
		{"profile=bf3 direction=push", 1 << 20, 8, 33078},
		{"profile=bf3 direction=pull", 1 << 20, 8, 28036},
		{"profile=bf2 direction=pull", 1 << 20, 8, 40961},
		{"profile=bf2 direction=push", 1 << 20, 8, 68985},
		/* one alone: the fixed cost, and the rate of one task */
		{"profile=bf3", 4096, 1, 1900},
		{"profile=bf3", 1 << 20, 1, 98600},
		/* the user's own */
		{"profile=none latency=5000", 4096, 1, 5000},
		{"profile=none latency=5000", 4096, 10, 500},
		{"profile=none latency=0 bandwidth=1000000000", 4096, 4, 4096},
		{"profile=bf3 latency=20000 bandwidth=0", 64, 1, 20006},
	};

	configure("progress_cost=0");
	for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
		const struct rate *rate = &rates[i];
		uint64_t begin;
		uint64_t took;
		struct bed bed;

		OK(docaemu_configure("latency=0 bandwidth=0 direction=auto", NULL, 0));
		configure(rate->settings);
		bed_open(&bed, (1 << 20) + rate->window * rate->length, 64);
		bed.hook = again;
		bed_start(&bed);
		left = rate->length > 65536 ? 200 : 2000;
		begin = virtual_ns();
		for (size_t j = 0; j < rate->window; j++) {
			bed_submit(&bed, j, 0, (1 << 20) + j * rate->length, rate->length);
		}
		took = left + rate->window;
		bed_drain(&bed);
		took = (virtual_ns() - begin) / took;
		printf("  %s, %zu bytes, window %zu: %llu ns\n", rate->settings, rate->length,
		       rate->window, (unsigned long long)took);
		CHECK(took >= rate->ns - rate->ns / 20 && took <= rate->ns + rate->ns / 20);
		bed_close(&bed);
	}
}

/* So slow that a copy takes days; and longer than the clock goes. */
static void
test_bytes_per_second(void)
{
	static const struct {
		const char *settings;
		size_t length;
		uint64_t seconds;
	} copies[] = {
		{"bandwidth=1", 1, 1},
		{"bandwidth=1", 32768, 32768},
		{"bandwidth=2", 1 << 20, 1 << 19},
		{"bandwidth=7", 7 << 17, 1 << 17},
	};

	configure("progress_cost=0");
	for (size_t i = 0; i < sizeof(copies) / sizeof(copies[0]); i++) {
		uint64_t begin = virtual_ns();
		uint64_t took;
		struct bed bed;

		configure(copies[i].settings);
		bed_open(&bed, 2 << 20, 4);
		bed_start(&bed);
		bed_submit(&bed, 0, 0, 1 << 20, copies[i].length);
		bed_drain(&bed);
		took = virtual_ns() - begin;
		printf("  %s, %zu bytes: %llu ns\n", copies[i].settings, copies[i].length,
		       (unsigned long long)took);
		CHECK(took > copies[i].seconds * 999999999 &&
		      took <= copies[i].seconds * 1000000000);
		bed_close(&bed);
	}
}

static void
test_the_end_of_time(void)
{
	struct bed bed;

	configure("bandwidth=1");
	bed_open(&bed, 22 << 20, 16);
	bed_start(&bed);
	for (size_t i = 0; i < 10; i++) {
		bed_submit(&bed, i, 0, (2 << 20) * (i + 1), 2 << 20);
	}
	bed_drain(&bed);
	CHECK_EQ(bed.num_ok, 10);
	for (size_t i = 0; i < 10; i++) {
		CHECK_EQ(bed.order[i], i);
		CHECK(memcmp(bed.memory, bed.memory + (2 << 20) * (i + 1), 2 << 20) == 0);
	}
	CHECK_EQ(virtual_ns(), UINT64_MAX / 1000);
	CHECK_DOCA(docaemu_time_advance(1), DOCA_ERROR_INVALID_VALUE);
	/* It goes on, in no time. */
	bed_submit(&bed, 10, 0, 2 << 20, 64);
	bed_drain(&bed);
	CHECK_EQ(bed.num_ok, 11);
	bed_close(&bed);
}

static void
test_clock_by_hand(void)
{
	for (size_t e = 0; e < 3; e++) {
		struct bed bed;

		configure(engines[e]);
		configure("clock=manual latency=1000 bandwidth=1000000000");
		bed_open(&bed, 1 << 20, 8);
		bed_start(&bed);
		/* They share the pipe: 2000 bytes are due after 3000 ns, the next after 3008. */
		bed_submit(&bed, 0, 0, 4096, 2000);
		bed_submit(&bed, 1, 0, 8192, 8);
		execute_all(&bed);
		OK(doca_pe_request_notification(bed.pe));
		CHECK(!bed_readable(&bed, 20));
		OK(docaemu_time_advance(2999));
		CHECK(!bed_readable(&bed, 0));
		OK(docaemu_time_advance(1));
		CHECK(bed_readable(&bed, 0));
		OK(doca_pe_clear_notification(bed.pe, 0));
		CHECK_EQ(bed_progress(&bed), 1);
		expect_order(&bed, "0");
		OK(docaemu_time_advance(8));
		CHECK_EQ(bed_progress(&bed), 1);
		expect_order(&bed, "01");
		CHECK_EQ(bed_progress(&bed), 0);
		bed_close(&bed);
	}
	CHECK_DOCA(docaemu_time_advance(UINT64_MAX), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(docaemu_time(NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(virtual_ns(), 3 * 3008);
}

/* A hundred virtual seconds pass without a real one; a program that only polls gets there, too. */
static void
test_time_passes_without_waiting(void)
{
	uint64_t begin = real_us();
	struct bed bed;

	configure("latency=1000000000 progress_cost=1000000");
	bed_open(&bed, 8192, 8);
	bed_start(&bed);
	for (size_t i = 0; i < 100; i++) {
		bed_submit(&bed, i, 0, 4096 + i * 8, 8);
		bed_drain(&bed);
	}
	CHECK_EQ(bed.num_ok, 100);
	CHECK(virtual_ns() >= UINT64_C(100000000000) && virtual_ns() < UINT64_C(101000000000));
	bed_submit(&bed, 0, 0, 4096, 8);
	for (size_t calls = 0; doca_pe_progress(bed.pe) == 0; calls++) {
		CHECK(calls < 1100);
	}
	CHECK_EQ(bed.num_ok, 101);
	CHECK(real_us() - begin < 20000000);
	bed_close(&bed);
}

/* Two progress engines share the clock: when one sleeps, the other one's time passes, too. */
static void
test_two_engines_share_the_clock(void)
{
	struct bed beds[2];

	configure("latency=1000 progress_cost=0");
	for (size_t i = 0; i < 2; i++) {
		bed_open(&beds[i], 8192, 8);
		bed_start(&beds[i]);
	}
	bed_submit(&beds[0], 0, 0, 4096, 8);
	CHECK_EQ(bed_progress(&beds[0]), 0);
	OK(docaemu_time_advance(1));
	bed_submit(&beds[1], 0, 0, 4096, 8);
	CHECK_EQ(bed_progress(&beds[1]), 0);
	OK(doca_pe_request_notification(beds[1].pe));
	CHECK(bed_readable(&beds[1], 10000));
	CHECK_EQ(virtual_ns(), 1001);
	CHECK_EQ(bed_progress(&beds[0]), 1);
	bed_drain(&beds[1]);
	CHECK_EQ(beds[1].num_ok, 1);
	bed_close(&beds[0]);
	bed_close(&beds[1]);
}

/* A failure takes its time; what would have ended after it is flushed, what ended before is not. */
static void
test_a_fault_in_virtual_time(void)
{
	for (size_t e = 0; e < 3; e++) {
		struct bed bed;

		configure(engines[e]);
		configure("latency=1000 bandwidth=1000000000\nfault op=completion status=DRIVER "
			  "skip=2");
		bed_open(&bed, 8192, 8);
		bed_start(&bed);
		for (size_t i = 0; i < 6; i++) {
			bed_submit(&bed, i, 0, 4096 + i * 100, 100);
		}
		OK(docaemu_step(SIZE_MAX, DOCAEMU_ORDER_LIFO, NULL));
		bed_drain(&bed);
		expect_order(&bed, "012345");
		CHECK_EQ(bed.num_ok, 2);
		CHECK_DOCA(bed.status[2], DOCA_ERROR_DRIVER);
		CHECK_EQ(counters().flushed, 3 * (e + 1));
		bed_progress(&bed);
		bed_start(&bed);
		bed_submit(&bed, 6, 0, 4096, 100);
		OK(docaemu_step(SIZE_MAX, DOCAEMU_ORDER_FIFO, NULL));
		bed_drain(&bed);
		CHECK_EQ(bed.num_ok, 3);
		bed_close(&bed);
	}
}

static void
test_stop_does_not_wait_for_the_clock(void)
{
	struct bed bed;

	configure("clock=manual latency=1000");
	bed_open(&bed, 8192, 8);
	bed_start(&bed);
	bed_submit(&bed, 0, 0, 4096, 8);
	OK(docaemu_time_advance(1000));
	bed_submit(&bed, 1, 0, 4104, 8);
	execute_all(&bed);
	CHECK_EQ(bed.num_ok, 1);
	CHECK_DOCA(doca_ctx_stop(bed.ctx), DOCA_ERROR_IN_PROGRESS);
	bed_drain(&bed);
	expect_order(&bed, "01");
	CHECK_EQ(bed.num_error, 1);
	bed_progress(&bed);
	bed_close(&bed);
}

/* ---- hold and release ---- */

static void
test_hold_and_release(void)
{
	static const char *const after[] = {"0123456", "6543210"};

	for (size_t e = 0; e < 3; e++) {
		for (int order = 0; order < 2; order++) {
			struct bed bed;
			size_t released;

			configure(engines[e]);
			OK(docaemu_hold(1));
			bed_open(&bed, 8192, 8);
			bed_start(&bed);
			for (size_t i = 0; i < 7; i++) {
				bed_submit(&bed, i, 0, 4096 + i * 8, 8);
			}
			execute_all(&bed);
			CHECK(memcmp(bed.memory + 4096, bed.memory, 8) == 0);
			CHECK_EQ(live().held, 7);
			CHECK_EQ(live().in_flight, 7);
			OK(doca_pe_request_notification(bed.pe));
			CHECK(!bed_readable(&bed, 5));
			OK(docaemu_release(3, order, &released));
			CHECK_EQ(released, 3);
			CHECK(bed_readable(&bed, 10000));
			OK(doca_pe_clear_notification(bed.pe, 0));
			CHECK_EQ(bed_progress(&bed), 3);
			OK(docaemu_hold(0));
			OK(docaemu_release(100, order, &released));
			CHECK_EQ(released, 4);
			bed_drain(&bed);
			expect_order(&bed, after[order]);
			bed_close(&bed);
		}
	}
	CHECK_DOCA(docaemu_release(1, 3, NULL), DOCA_ERROR_INVALID_VALUE);
}

/* Released before they were executed, they still come in the order of the release. */
static void
test_release_before_the_execution(void)
{
	struct bed bed;

	configure("engine=manual hold=1");
	bed_open(&bed, 8192, 8);
	bed_start(&bed);
	for (size_t i = 0; i < 4; i++) {
		bed_submit(&bed, i, 0, 4096 + i * 8, 8);
	}
	OK(docaemu_release(4, DOCAEMU_ORDER_LIFO, NULL));
	OK(docaemu_step(3, DOCAEMU_ORDER_FIFO, NULL));
	CHECK_EQ(bed_progress(&bed), 0);
	OK(docaemu_step(1, DOCAEMU_ORDER_FIFO, NULL));
	bed_drain(&bed);
	expect_order(&bed, "3210");
	bed_close(&bed);
}

/* A stop does not free what is withheld: the engine "does not let go". */
static void
test_hold_outlasts_a_stop(void)
{
	enum doca_ctx_states state;
	struct bed bed;

	configure("fault op=completion kind=hold skip=1");
	bed_open(&bed, 8192, 8);
	bed_start(&bed);
	for (size_t i = 0; i < 3; i++) {
		bed_submit(&bed, i, 0, 4096 + i * 8, 8);
	}
	execute_all(&bed);
	bed_progress(&bed);
	expect_order(&bed, "02");
	CHECK_DOCA(doca_ctx_stop(bed.ctx), DOCA_ERROR_IN_PROGRESS);
	CHECK_EQ(bed_progress(&bed), 0);
	OK(doca_ctx_get_state(bed.ctx, &state));
	CHECK_EQ(state, DOCA_CTX_STATE_STOPPING);
	OK(doca_pe_request_notification(bed.pe));
	CHECK(!bed_readable(&bed, 5));
	OK(docaemu_release(1, DOCAEMU_ORDER_FIFO, NULL));
	CHECK(bed_readable(&bed, 10000));
	OK(doca_pe_clear_notification(bed.pe, 0));
	bed_progress(&bed);
	expect_order(&bed, "021");
	OK(doca_ctx_get_state(bed.ctx, &state));
	CHECK_EQ(state, DOCA_CTX_STATE_IDLE);
	bed_close(&bed);
}

/* What was in flight before is reported as it comes. */
static void
test_hold_in_the_middle(void)
{
	struct bed bed;

	configure("engine=manual");
	bed_open(&bed, 8192, 8);
	bed_start(&bed);
	bed_submit(&bed, 0, 0, 4096, 8);
	bed_submit(&bed, 1, 0, 4104, 8);
	OK(docaemu_step(1, DOCAEMU_ORDER_FIFO, NULL));
	OK(docaemu_hold(1));
	bed_submit(&bed, 2, 0, 4096, 8);
	OK(docaemu_step(2, DOCAEMU_ORDER_LIFO, NULL));
	CHECK_EQ(bed_progress(&bed), 2);
	CHECK_EQ(bed.num_ok, 2);
	OK(docaemu_release(1, DOCAEMU_ORDER_RANDOM, NULL));
	CHECK_EQ(bed_progress(&bed), 1);
	bed_close(&bed);
}

/* What was executed and not reported when a schedule begins comes first, in its order. */
static void
test_a_schedule_begins_late(void)
{
	for (int ordered = 0; ordered < 2; ordered++) {
		struct bed bed;

		configure("engine=manual hold=0");
		bed_open(&bed, 8192, 8);
		OK(doca_dma_set_ordered_completions(bed.dma, (uint8_t)ordered));
		bed_start(&bed);
		for (size_t i = 0; i < 4; i++) {
			bed_submit(&bed, i, 0, 4096 + i * 8, 8);
		}
		OK(docaemu_step(3, DOCAEMU_ORDER_FIFO, NULL));
		CHECK_EQ(doca_pe_progress(bed.pe), 1);
		configure("hold=1");
		bed_submit(&bed, 4, 0, 4096, 8);
		OK(docaemu_step(SIZE_MAX, DOCAEMU_ORDER_LIFO, NULL));
		CHECK_EQ(bed_progress(&bed), 3);
		OK(docaemu_release(1, DOCAEMU_ORDER_FIFO, NULL));
		CHECK_EQ(bed_progress(&bed), 1);
		expect_order(&bed, "01234");
		bed_close(&bed);
	}
}

/* ---- orders ---- */

static void
run_order(const char *settings, bool ordered, uint64_t order[16])
{
	struct bed bed;

	configure(settings);
	bed_open(&bed, 8192, 16);
	OK(doca_dma_set_ordered_completions(bed.dma, ordered));
	bed_start(&bed);
	for (size_t i = 0; i < 16; i++) {
		bed_submit(&bed, i, 0, 4096 + i * 8, 8);
	}
	execute_all(&bed);
	bed_drain(&bed);
	CHECK_EQ(bed.num_ok, 16);
	memcpy(order, bed.order, sizeof(bed.order[0]) * 16);
	bed_close(&bed);
}

static void
test_orders(void)
{
	uint64_t order[4][16];

	for (size_t e = 0; e < 3; e += 2) {
		configure(engines[e]);
		run_order("order=lifo hold=0 seed=1", false, order[0]);
		if (e == 2) {
			for (size_t i = 0; i < 16; i++) {
				CHECK_EQ(order[0][i], 15 - i);
			}
		}
		run_order("order=random seed=5", false, order[0]);
		run_order("order=random seed=5", false, order[1]);
		run_order("order=random seed=6", false, order[2]);
		run_order("order=random seed=6", true, order[3]);
		if (e == 2) {
			CHECK(memcmp(order[0], order[1], sizeof(order[0])) == 0);
			CHECK(memcmp(order[0], order[2], sizeof(order[0])) != 0);
		}
		for (size_t i = 0; i < 16; i++) {
			CHECK_EQ(order[3][i], i);
		}
	}
}

/* Ordered completions stay ordered when single ones are held, and in virtual time. */
static void
test_ordered_completions_win(void)
{
	struct bed bed;

	configure("order=lifo\nfault op=completion kind=hold");
	bed_open(&bed, 1 << 20, 16);
	OK(doca_dma_set_ordered_completions(bed.dma, 1));
	bed_start(&bed);
	bed_submit(&bed, 0, 0, 4096, 8);
	bed_submit(&bed, 1, 0, 4104, 8);
	execute_all(&bed);
	CHECK_EQ(bed_progress(&bed), 0);
	OK(docaemu_release(1, DOCAEMU_ORDER_FIFO, NULL));
	bed_drain(&bed);
	configure("profile=bf3");
	/* The memory of the one does not touch that of the other: both may be executed at once. */
	bed_submit(&bed, 2, 0, 1 << 19, 1 << 18);
	bed_submit(&bed, 3, 0, 1 << 18, 8);
	bed_drain(&bed);
	expect_order(&bed, "0123");
	bed_close(&bed);
}

/* ---- the same seed, the same events ---- */

#define MAX_EVENTS 4000

static uint64_t events[2][MAX_EVENTS];
static size_t num_events;
static uint64_t *event_log;
static uint32_t random_state;

static uint32_t
next_random(void)
{
	random_state = random_state * 1664525u + 1013904223u;
	return random_state >> 8;
}

static void
note(uint64_t event)
{
	CHECK(num_events < MAX_EVENTS);
	event_log[num_events++] = event;
}

static void
note_end(struct bed *bed, struct doca_dma_task_memcpy *task)
{
	size_t last = bed->num_ok + bed->num_error - 1;

	note(bed->order[last] << 32 | (uint64_t)bed->status[last]);
	note(virtual_ns());
	bed->num_ok = 0;
	bed->num_error = 0;
	bed_end_task(task);
}

static void
note_state(struct bed *bed, enum doca_ctx_states state)
{
	bed->num_states = 0;
	note(UINT64_MAX - state);
}

/* Submits, polls, arms, holds and releases as a script; the manual engine is stepped by it, too. */
static size_t
run_script(const char *settings, uint64_t *out)
{
	struct bed bed;

	event_log = out;
	num_events = 0;
	random_state = 99;
	OK(docaemu_reset());
	configure(settings);
	bed_open(&bed, 8 << 20, 64);
	bed.hook = note_end;
	bed.state_hook = note_state;
	bed_start(&bed);
	for (size_t i = 0; i < 600; i++) {
		enum doca_ctx_states state;
		size_t in_flight;

		OK(doca_ctx_get_state(bed.ctx, &state));
		OK(doca_pe_get_num_inflight_tasks(bed.pe, &in_flight));
		switch (state == DOCA_CTX_STATE_RUNNING ? next_random() % 6 : 6) {
		case 0:
		case 1:
		case 2:
			if (in_flight < 32) {
				bed_submit(&bed, i, 0, 8192 + i * 8192, 1 + next_random() % 8000);
			}
			break;
		case 3:
			doca_pe_progress(bed.pe);
			break;
		case 4:
			OK(docaemu_step(next_random() % 4, DOCAEMU_ORDER_RANDOM, NULL));
			break;
		case 5:
			OK(docaemu_release(next_random() % 4, DOCAEMU_ORDER_RANDOM, NULL));
			break;
		default:
			OK(docaemu_step(SIZE_MAX, DOCAEMU_ORDER_FIFO, NULL));
			OK(docaemu_release(SIZE_MAX, DOCAEMU_ORDER_FIFO, NULL));
			doca_pe_progress(bed.pe);
			if (state == DOCA_CTX_STATE_IDLE) {
				bed_start(&bed);
			}
			break;
		}
	}
	OK(docaemu_step(SIZE_MAX, DOCAEMU_ORDER_FIFO, NULL));
	OK(docaemu_release(SIZE_MAX, DOCAEMU_ORDER_FIFO, NULL));
	bed_drain(&bed);
	bed_close(&bed);
	return num_events;
}

static void
test_the_same_seed_gives_the_same_events(void)
{
	static const char *const settings[] = {
		"engine=manual order=random seed=3",
		"engine=manual profile=bf2 seed=4\nfault op=completion skip=20 interval=30 count=0",
		"engine=manual hold=1 order=lifo\nfault op=completion skip=50 count=2 interval=40",
		"profile=bf3 progress_cost=300 inline_max=64K\nfault op=completion skip=9 count=3 "
		"interval=70\nfault op=completion kind=hold skip=5 count=0 interval=10",
		"engine=worker profile=bf3 direction=pull seed=8\nfault op=completion skip=30",
	};

	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		size_t num = run_script(settings[i], events[0]);

		CHECK(num > 60);
		for (size_t j = 0; j < 3; j++) {
			size_t other = run_script(settings[i], events[1]);

			CHECK_EQ(other, num);
			for (size_t k = 0; k < num; k++) {
				if (events[0][k] != events[1][k]) {
					check_failed(__FILE__, __LINE__, "%s: event %zu differs",
						     settings[i], k);
				}
			}
		}
		printf("  %zu events, %llu ns\n", num, (unsigned long long)virtual_ns());
	}
}

/* ---- the engine that runs by the clock ---- */

/* Bytes move when the time has come, and not before; there are no workers. */
static void
test_late_engine(void)
{
	struct bed bed;

	configure("engine=late latency=1000 clock=manual");
	bed_open(&bed, 4096, 8);
	bed_start(&bed);
	CHECK_EQ(live().workers, 0);
	bed_submit(&bed, 0, 0, 2048, 64);
	bed_progress(&bed);
	OK(doca_pe_request_notification(bed.pe));
	OK(docaemu_time_advance(999));
	CHECK(!bed_readable(&bed, 0));
	CHECK(memcmp(bed.memory, bed.memory + 2048, 64) != 0);
	OK(docaemu_time_advance(1));
	CHECK(bed_readable(&bed, 0));
	CHECK(memcmp(bed.memory, bed.memory + 2048, 64) == 0);
	bed_drain(&bed);
	CHECK_EQ(bed.num_ok, 1);
	CHECK_EQ(counters().tasks_worker + counters().tasks_inline, 0);
	bed_close(&bed);
}

/* Without virtual time it is the progress call; sleeping and a submit to an armed engine do as well. */
static void
test_late_engine_without_latency(void)
{
	struct bed bed;

	configure("engine=late");
	bed_open(&bed, 4096, 8);
	bed_start(&bed);
	bed_submit(&bed, 0, 0, 2048, 64);
	CHECK(memcmp(bed.memory, bed.memory + 2048, 64) != 0);
	CHECK_EQ(bed_progress(&bed), 1);
	OK(doca_pe_request_notification(bed.pe));
	bed_submit(&bed, 1, 64, 2112, 64);
	CHECK(bed_readable(&bed, 0));
	bed_drain(&bed);
	CHECK_EQ(bed.num_ok, 2);
	bed_close(&bed);
}

/* A release to a program that sleeps: the time passes that it sleeps. */
static void
test_release_while_armed_in_virtual_time(void)
{
	for (size_t i = 0; i < 3; i++) {
		struct bed bed;

		configure(engines[i]);
		configure("latency=1000 hold=1");
		bed_open(&bed, 4096, 8);
		bed_start(&bed);
		bed_submit(&bed, 0, 0, 2048, 64);
		execute_all(&bed);
		OK(doca_pe_request_notification(bed.pe));
		CHECK(!bed_readable(&bed, 0));
		OK(docaemu_release(1, DOCAEMU_ORDER_FIFO, NULL));
		CHECK(bed_readable(&bed, 0));
		bed_drain(&bed);
		CHECK_EQ(bed.num_ok, 1);
		bed_close(&bed);
		OK(docaemu_reset());
	}
}

TESTS(TEST(test_release_while_armed_in_virtual_time), TEST(test_late_engine),
      TEST(test_late_engine_without_latency), TEST(test_rates_of_the_profiles),
      TEST(test_bytes_per_second), TEST(test_the_end_of_time), TEST(test_clock_by_hand),
      TEST(test_time_passes_without_waiting), TEST(test_two_engines_share_the_clock),
      TEST(test_a_fault_in_virtual_time), TEST(test_stop_does_not_wait_for_the_clock),
      TEST(test_hold_and_release), TEST(test_release_before_the_execution),
      TEST(test_hold_outlasts_a_stop), TEST(test_hold_in_the_middle),
      TEST(test_a_schedule_begins_late), TEST(test_orders), TEST(test_ordered_completions_win),
      TEST(test_the_same_seed_gives_the_same_events));
