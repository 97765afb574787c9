/* SPDX-License-Identifier: Apache-2.0 */
/* Chaos: every decision comes from the seed, and is recorded. */
#include "check.h"

#include <docaemu_chaos.h>

#define NUM_TASKS 64
#define LENGTH 96
#define DST (NUM_TASKS * LENGTH)
#define MAX_EVENTS 4096

struct record {
	struct docaemu_event events[MAX_EVENTS];
	size_t num;
};

static void
take(struct record *record)
{
	uint64_t total;

	memset(record, 0, sizeof(*record));
	OK(docaemu_chaos_events(record->events, MAX_EVENTS, &record->num, &total));
	CHECK_EQ(total, record->num);
}

static size_t
count(const struct record *record, enum docaemu_event_kind kind)
{
	size_t num = 0;

	for (size_t i = 0; i < record->num; i++) {
		num += record->events[i].kind == (uint64_t)kind;
	}
	return num;
}

/* Submit, as often as it takes; how often it was refused. */
static size_t
insist(struct doca_task *task)
{
	size_t refused = 0;
	doca_error_t result;

	while ((result = doca_task_submit(task)) == DOCA_ERROR_AGAIN) {
		refused++;
		CHECK(refused <= 8);
	}
	OK(result);
	return refused;
}

/* A program: copies in two waves, sleeping on the handle between them. */
static void
copy_all(const char *settings, struct record *record, bool check)
{
	struct bed bed;

	configure(settings);
	bed_open(&bed, 2 * DST, NUM_TASKS);
	bed_start(&bed);
	for (size_t wave = 0; wave < 2; wave++) {
		for (size_t i = wave * NUM_TASKS / 2; i < (wave + 1) * NUM_TASKS / 2; i++) {
			insist(bed_task(&bed, i, i * LENGTH, DST + i * LENGTH, LENGTH));
		}
		bed_drain(&bed);
	}
	CHECK_EQ(bed.num_ok + bed.num_error, NUM_TASKS);
	CHECK_EQ(live().workers, 0);
	if (check) {
		CHECK_EQ(bed.num_ok, NUM_TASKS);
		CHECK(memcmp(bed.memory, bed.memory + DST, DST) == 0);
	}
	take(record);
	bed_close(&bed);
	OK(docaemu_reset());
}

static struct record one, two;

static void
test_same_seed_same_events(void)
{
	copy_all("chaos=7", &one, true);
	for (int i = 0; i < 20; i++) {
		copy_all("chaos=7", &two, true);
		CHECK_EQ(one.num, two.num);
		CHECK(memcmp(&one, &two, sizeof(one)) == 0);
	}
	copy_all("chaos=8", &two, true);
	CHECK(memcmp(&one, &two, sizeof(one)) != 0);
}

static void
test_seed_begins_anew(void)
{
	copy_all("chaos=7", &one, true);
	copy_all("chaos=5;chaos=7", &two, true);
	CHECK(memcmp(&one, &two, sizeof(one)) == 0);
	take(&two);
	CHECK_EQ(two.num, 0);
}

/* Also the order of tasks that are due together. */
static void
test_orders_begin_anew(void)
{
	static const char *const orders[] = {"order=lifo", "order=random"};

	for (size_t i = 0; i < 2; i++) {
		uint64_t reports[2][NUM_TASKS];

		for (size_t run = 0; run < 2; run++) {
			struct bed bed;

			configure(orders[i]);
			configure("chaos=7");
			bed_open(&bed, 2 * DST, NUM_TASKS);
			bed_start(&bed);
			/* So many that some are due together, and no whole number of blocks. */
			for (size_t n = 0; n < NUM_TASKS - 7; n++) {
				insist(bed_task(&bed, n, n * LENGTH, DST + n * LENGTH, LENGTH));
			}
			bed_drain(&bed);
			memcpy(reports[run], bed.order, sizeof(reports[run]));
			bed_close(&bed);
		}
		CHECK(memcmp(reports[0], reports[1], sizeof(reports[0])) == 0);
	}
}

static void
test_what_happens(void)
{
	size_t at_once = 0;
	size_t at_the_end = 0;
	size_t overtaken = 0;
	uint64_t last = 0;

	copy_all("chaos=1", &one, true);
	CHECK_EQ(count(&one, DOCAEMU_EVENT_SUBMIT), NUM_TASKS);
	CHECK_EQ(count(&one, DOCAEMU_EVENT_RUN), NUM_TASKS);
	CHECK_EQ(count(&one, DOCAEMU_EVENT_REPORT), NUM_TASKS);
	CHECK(count(&one, DOCAEMU_EVENT_AGAIN) > 0);
	CHECK(count(&one, DOCAEMU_EVENT_SPURIOUS) > 0);
	for (size_t i = 0; i < one.num; i++) {
		const struct docaemu_event *event = &one.events[i];

		CHECK(i == 0 || event->time >= one.events[i - 1].time);
		if (event->kind == DOCAEMU_EVENT_REPORT) {
			overtaken += event->task < last;
			last = event->task;
		}
		if (event->kind != DOCAEMU_EVENT_RUN) {
			continue;
		}
		CHECK_EQ(event->value, LENGTH);
		for (size_t j = 0; j < one.num; j++) {
			const struct docaemu_event *other = &one.events[j];

			if (other->task != event->task) {
				continue;
			}
			if (other->kind == DOCAEMU_EVENT_SUBMIT) {
				CHECK(other->value >= 1 && other->value < 262144);
				at_once += event->time < other->time + other->value;
			} else if (other->kind == DOCAEMU_EVENT_REPORT) {
				CHECK(j > i);
				at_the_end += event->time >= other->time - 1000;
			}
		}
	}
	CHECK(overtaken > 8);
	CHECK(at_once > 8);
	CHECK(at_the_end > 8);
}

/* Storms end, also with nothing in flight: insist() checks it. */
static void
test_storms_are_bounded(void)
{
	struct bed bed;
	size_t refused = 0;

	configure("chaos=3");
	bed_open(&bed, 2 * DST, NUM_TASKS);
	bed_start(&bed);
	for (size_t i = 0; i < 1000; i++) {
		refused += insist(bed_task(&bed, 0, 0, DST, LENGTH));
		bed_drain(&bed);
		bed.num_ok = 0;
	}
	CHECK(refused > 50);
	CHECK_EQ(counters().again, refused);
	bed_close(&bed);
}

static void
test_faults(void)
{
	copy_all("chaos=2;chaos_faults=0", &one, true);
	CHECK_EQ(counters().faults, 0);
	configure("chaos=2;chaos_faults=1");

	struct bed bed;

	bed_open(&bed, 2 * DST, NUM_TASKS);
	bed_start(&bed);
	insist(bed_task(&bed, 0, 0, DST, LENGTH));
	bed_drain(&bed);
	CHECK_EQ(bed.num_error, 1);
	CHECK_EQ(bed.status[0], DOCA_ERROR_IO_FAILED);
	CHECK_EQ(counters().faults, 1);
	CHECK_EQ(counters().ctx_faults, 1);
	CHECK(memcmp(bed.memory, bed.memory + DST, LENGTH) != 0);
	bed_progress(&bed);
	take(&one);
	CHECK_EQ(count(&one, DOCAEMU_EVENT_RUN), 0);
	CHECK_EQ(one.events[one.num - 1].kind, DOCAEMU_EVENT_REPORT);
	CHECK_EQ(one.events[one.num - 1].value, DOCA_ERROR_IO_FAILED);
	bed_close(&bed);
}

/* A failed task flushes those that would have ended later, and all end once. */
static void
test_flush(void)
{
	struct bed bed;
	size_t num = 0;

	configure("chaos=11;chaos_faults=16");
	bed_open(&bed, 2 * DST, NUM_TASKS);
	bed_start(&bed);
	for (; num < 32; num++) {
		insist(bed_task(&bed, num, num * LENGTH, DST + num * LENGTH, LENGTH));
	}
	bed_drain(&bed);
	CHECK(bed.num_error > 0);
	CHECK_EQ(bed.num_ok + bed.num_error, num);
	CHECK(counters().flushed > 0);
	bed_close(&bed);
}

/* A submit to an engine that is armed already makes the handle readable, in either mode. */
static void
test_submit_while_armed(void)
{
	static const enum doca_pe_event_mode modes[] = {DOCA_PE_EVENT_MODE_PROGRESS_ALL,
							DOCA_PE_EVENT_MODE_PROGRESS_SELECTIVE};

	for (size_t i = 0; i < 2; i++) {
		for (uint64_t seed = 1; seed < 50; seed++) {
			char text[32];
			struct bed bed;

			snprintf(text, sizeof(text), "chaos=%d", (int)seed);
			configure(text);
			bed_open(&bed, 2 * DST, NUM_TASKS);
			OK(doca_pe_set_event_mode(bed.pe, modes[i]));
			bed_start(&bed);
			OK(doca_pe_request_notification(bed.pe));
			insist(bed_task(&bed, 0, 0, DST, LENGTH));
			CHECK(bed_readable(&bed, 0));
			OK(doca_pe_clear_notification(bed.pe, bed.fd));
			bed_drain(&bed);
			CHECK_EQ(bed.num_ok, 1);
			bed_close(&bed);
			OK(docaemu_reset());
		}
	}
}

/* A program that only polls gets there, too: each call takes its time. */
static void
test_polling(void)
{
	struct bed bed;

	configure("chaos=4");
	bed_open(&bed, 2 * DST, NUM_TASKS);
	bed_start(&bed);
	insist(bed_task(&bed, 0, 0, DST, LENGTH));
	for (size_t i = 0; bed.num_ok == 0; i++) {
		CHECK(i < 10000);
		doca_pe_progress(bed.pe);
	}
	bed_close(&bed);
}

/* A context keeps the mode it was started in. */
static void
test_turned_off_while_started(void)
{
	struct bed bed;

	configure("chaos=4");
	bed_open(&bed, 2 * DST, NUM_TASKS);
	bed_start(&bed);
	configure("chaos=0");
	insist(bed_task(&bed, 0, 0, DST, LENGTH));
	bed_drain(&bed);
	CHECK_EQ(bed.num_ok, 1);
	bed_close(&bed);
}

static void
test_arguments(void)
{
	struct docaemu_event event;
	uint64_t total;
	size_t num;

	CHECK_DOCA(docaemu_chaos_events(NULL, 1, &num, NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(docaemu_chaos_events(&event, 1, NULL, NULL), DOCA_ERROR_INVALID_VALUE);
	OK(docaemu_chaos_events(NULL, 0, &num, &total));
	CHECK_EQ(num, 0);
	CHECK_EQ(total, 0);
	copy_all("chaos=1", &one, true);
}

TESTS(TEST(test_same_seed_same_events), TEST(test_seed_begins_anew), TEST(test_orders_begin_anew),
      TEST(test_what_happens), TEST(test_storms_are_bounded), TEST(test_faults), TEST(test_flush),
      TEST(test_submit_while_armed), TEST(test_polling), TEST(test_turned_off_while_started),
      TEST(test_arguments));
