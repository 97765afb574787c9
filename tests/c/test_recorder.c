/* SPDX-License-Identifier: Apache-2.0 */
/* The flight recorder, the buckets of latencies, and the sink of DOCA's log: no DOCA is needed for them but for the last. */
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "check.h"
#include "library.h"
#include "log.h"
#include "recorder.h"

static struct adma_recorder recorder;
static struct adma_event events[ADMA_RECORDER_EVENTS];

static void
note(uint32_t from)
{
	adma_recorder_note(&recorder,
			   (struct adma_event){.kind = ADMA_EVENT_STALLED, .from = from});
}

static void
test_numbers_and_order(void)
{
	adma_recorder_init(&recorder);
	CHECK_EQ(adma_recorder_read(&recorder, 0, events, ADMA_RECORDER_EVENTS), 0);
	for (uint32_t i = 0; i < 10; i++) {
		note(i);
	}
	CHECK_EQ(adma_recorder_read(&recorder, 4, events, ADMA_RECORDER_EVENTS), 6);
	for (uint32_t i = 0; i < 6; i++) {
		CHECK_EQ(events[i].number, 4 + i);
		CHECK_EQ(events[i].from, 4 + i);
		CHECK(i == 0 || events[i].time_ns >= events[i - 1].time_ns);
	}
	CHECK_EQ(adma_recorder_read(&recorder, 0, events, 3), 3);
	CHECK_EQ(events[2].number, 2);
	CHECK_EQ(adma_recorder_read(&recorder, 10, events, ADMA_RECORDER_EVENTS), 0);
	CHECK_EQ(adma_recorder_read(&recorder, UINT64_MAX, events, ADMA_RECORDER_EVENTS), 0);
	adma_recorder_finish(&recorder);
}

static void
test_the_oldest_are_overwritten(void)
{
	adma_recorder_init(&recorder);
	for (uint32_t i = 0; i < 3 * ADMA_RECORDER_EVENTS + 7; i++) {
		note(i);
	}
	CHECK_EQ(adma_recorder_read(&recorder, 0, events, ADMA_RECORDER_EVENTS),
		 ADMA_RECORDER_EVENTS);
	CHECK_EQ(events[0].from, 2 * ADMA_RECORDER_EVENTS + 7);
	CHECK_EQ(events[ADMA_RECORDER_EVENTS - 1].from, 3 * ADMA_RECORDER_EVENTS + 6);
	adma_recorder_finish(&recorder);
}

static void *
keep_noting(void *argument)
{
	(void)argument;
	for (uint32_t i = 0; i < 20000; i++) {
		note(i);
	}
	return NULL;
}

/* The loop's thread and the worker's note, and a third reads. */
static void
test_from_several_threads(void)
{
	pthread_t threads[2];
	uint64_t seen = 0;

	adma_recorder_init(&recorder);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(pthread_create(&threads[i], NULL, keep_noting, NULL), 0);
	}
	while (seen < 40000) {
		size_t count = adma_recorder_read(&recorder, seen, events, ADMA_RECORDER_EVENTS);

		for (size_t i = 0; i < count; i++) {
			CHECK(events[i].number >= seen);
			seen = events[i].number + 1;
		}
	}
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
	}
	adma_recorder_finish(&recorder);
}

static size_t
bucket_of(uint64_t ns)
{
	struct adma_latency latency = {0};

	adma_latency_observe(&latency, ns);
	CHECK_EQ(latency.count, 1);
	CHECK_EQ(latency.sum_ns, ns);
	for (size_t i = 0; i < ADMA_LATENCY_BUCKETS; i++) {
		if (latency.buckets[i] == 1) {
			return i;
		}
	}
	CHECK(false);
	return 0;
}

static void
test_buckets(void)
{
	CHECK_EQ(bucket_of(0), 0);
	CHECK_EQ(bucket_of(1023), 0);
	for (unsigned octave = 0; octave < 25; octave++) {
		for (unsigned part = 0; part < 4; part++) {
			uint64_t first = (uint64_t)(4 + part) << (8 + octave);

			CHECK_EQ(bucket_of(first), 1 + 4 * octave + part);
			CHECK_EQ(bucket_of(first - 1), 4 * octave + part);
		}
	}
	CHECK_EQ(bucket_of(UINT64_C(1) << 35), ADMA_LATENCY_BUCKETS - 1);
	CHECK_EQ(bucket_of(UINT64_MAX), ADMA_LATENCY_BUCKETS - 1);
}

/* Nobody reads: DOCA goes on, and what it wrote in vain is counted; then lines come again. */
static void
test_a_full_log_never_blocks(void)
{
	static struct adma_library *library; /* never freed, as in a client */
	static struct adma_log *log;
	char text[512];
	char *lines = malloc(1 << 20);
	int pipe_fds[2];
	ssize_t length;
	size_t total = 0;
	struct doca_mmap *map;

	CHECK(lines != NULL);
	OK(adma_library_load(DOCAEMU_PATH, DOCAEMU_PATH, &library, text, sizeof(text)));
	CHECK_EQ(pipe(pipe_fds), 0);
	CHECK_EQ(fcntl(pipe_fds[0], F_SETFL, O_NONBLOCK), 0);
	CHECK_EQ(fcntl(pipe_fds[1], F_SETFL, O_NONBLOCK), 0);
	OK(adma_log_open(library, pipe_fds[1], DOCA_LOG_LEVEL_TRACE, &log));
	OK(docaemu_configure("fault op=mmap_create kind=fail status=DRIVER count=0", text,
			     sizeof(text)));
	for (int i = 0; i < 5000; i++) {
		CHECK_DOCA(doca_mmap_create(&map), DOCA_ERROR_DRIVER); /* a line each */
	}
	CHECK(adma_log_dropped(log) > 1000);
	while ((length = read(pipe_fds[0], lines + total, (1 << 20) - total)) > 0) {
		total += (size_t)length;
	}
	CHECK(total > 32 * 1024);
	CHECK_EQ(lines[total - 1], '\n'); /* whole lines only */
	CHECK_DOCA(doca_mmap_create(&map), DOCA_ERROR_DRIVER);
	CHECK(read(pipe_fds[0], lines, 1 << 20) > 0);
	OK(adma_log_set_level(library, log, DOCA_LOG_LEVEL_DISABLE));
	CHECK_DOCA(doca_mmap_create(&map), DOCA_ERROR_DRIVER);
	CHECK(read(pipe_fds[0], lines, 1 << 20) < 0);
	free(lines);
	/* DOCA keeps the log for ever. */
}

TESTS(TEST(test_numbers_and_order), TEST(test_the_oldest_are_overwritten),
      TEST(test_from_several_threads), TEST(test_buckets), TEST(test_a_full_log_never_blocks));
