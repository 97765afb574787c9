/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flight recorder: the latest notable events of a channel, the oldest overwritten, and the histogram of latencies.
 *
 * Copies that go well leave no event: there are a million a second of them, which would push out the rest within a
 * millisecond, and telling the time for each costs more than starting it. What is under way is known without.
 */
#ifndef ADMA_RECORDER_H
#define ADMA_RECORDER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define ADMA_RECORDER_EVENTS 512

enum adma_event_kind {
	ADMA_EVENT_CONTEXT, /* the context went from one enum doca_ctx_states to another */
	ADMA_EVENT_CHANNEL, /* the same for enum adma_channel_state */
	ADMA_EVENT_FAILED,  /* a task failed for its own sake: code, bytes; to is enum adma_phase */
	ADMA_EVENT_FLUSHED, /* DOCA ended as many tasks as to says because of a failure */
	ADMA_EVENT_REFUSED, /* DOCA takes nothing although it holds nothing: code */
	ADMA_EVENT_RECYCLED,	 /* a fresh context */
	ADMA_EVENT_RESTARTED,	 /* a fresh context after a fault */
	ADMA_EVENT_CAPABILITIES, /* the device answers differently than before */
	ADMA_EVENT_UNCLEARED,	 /* doca_pe_clear_notification() failed: code */
	ADMA_EVENT_STALLED,	 /* nothing ended for long: from is the cause, of the layer above */
	ADMA_EVENT_PEER_LOST,	 /* that task's memory is a peer's, who has gone or taken it back */
	ADMA_EVENT_BELOW_CROSSOVER, /* the first copy that the CPU's own would have beaten: bytes */
	ADMA_EVENT_LOST,	    /* the engine is lost: code, if a call of DOCA said so */
};

struct adma_event {
	uint64_t number; /* from 0 */
	int64_t time_ns; /* CLOCK_MONOTONIC */
	uint64_t bytes;
	uint32_t kind; /* enum adma_event_kind */
	uint32_t from;
	uint32_t to;
	uint32_t code; /* doca_error_t */
};

struct adma_recorder {
	pthread_mutex_t lock; /* events come from the loop's thread and from the worker's */
	_Atomic uint64_t num; /* ever noted; written under the lock, read without */
	struct adma_event events[ADMA_RECORDER_EVENTS];
};

void
adma_recorder_init(struct adma_recorder *recorder);

void
adma_recorder_finish(struct adma_recorder *recorder);

/** Note an event; its number and time are filled in. Threads: any. */
void
adma_recorder_note(struct adma_recorder *recorder, struct adma_event event);

/**
 * Read events.
 *
 * @param[in] recorder
 * @param[in] from number of the first that is wanted
 * @param[out] events oldest first; those overwritten meanwhile are missing
 * @param[in] max room at events
 * @return how many were written to events
 * Threads: any.
 */
size_t
adma_recorder_read(struct adma_recorder *recorder, uint64_t from, struct adma_event *events,
		   size_t max);

/*
 * Latencies of copies, from start to success. Four buckets to an octave: bucket 0 is for less than 1024 ns, bucket
 * 1 + 4 * k + j for [(4 + j) << (8 + k), (5 + j) << (8 + k)) ns, and the last takes all that is longer.
 */
#define ADMA_LATENCY_SHIFT 10
#define ADMA_LATENCY_BUCKETS 102

struct adma_latency {
	uint64_t count;
	uint64_t sum_ns;
	uint64_t buckets[ADMA_LATENCY_BUCKETS];
};

static inline void
adma_latency_observe(struct adma_latency *latency, uint64_t ns)
{
	unsigned bucket = 0;

	if (ns >> ADMA_LATENCY_SHIFT != 0) {
		unsigned octave = 63 - (unsigned)__builtin_clzll(ns);

		bucket = 1 + 4 * (octave - ADMA_LATENCY_SHIFT) + (unsigned)(ns >> (octave - 2) & 3);
		if (bucket >= ADMA_LATENCY_BUCKETS) {
			bucket = ADMA_LATENCY_BUCKETS - 1;
		}
	}
	latency->count++;
	latency->sum_ns += ns;
	latency->buckets[bucket]++;
}

#endif
