/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chaos: an emulated device whose every decision is drawn from a seed, and what it decided.
 *
 * It is turned on by two settings of docaemu_configure(), and concerns the contexts started from then
 * on:
 *
 *     chaos=0                   a seed; 0: off. Setting it begins anew, with an empty record
 *     chaos_faults=0            one task in so many fails as by a fault (IO_FAILED, and the context
 *                               stops); 0: none
 *
 * In such a context
 *     each task takes a random virtual time, from one nanosecond to a quarter of a millisecond, so
 *         that tasks end in any order; the clock moves as docaemu.h says under clock
 *     its bytes move at once or not before it ends: by the thread that progresses or arms, for there
 *         are no workers
 *     submits are refused with AGAIN in storms of up to eight, each followed by one that is taken
 *     an arm is answered for no reason, now and then
 *
 * Nothing depends on the time of day or on other threads. The same calls after the same seed get the
 * same answers, and leave the same record.
 */
#ifndef DOCAEMU_CHAOS_H_
#define DOCAEMU_CHAOS_H_

#include <docaemu.h>

#ifdef __cplusplus
extern "C" {
#endif

enum docaemu_event_kind {
	DOCAEMU_EVENT_SUBMIT = 1,   /* taken; ends after value ns at the earliest */
	DOCAEMU_EVENT_AGAIN = 2,    /* a submit was refused; value: how many more will be */
	DOCAEMU_EVENT_RUN = 3,	    /* the bytes moved; value: how many */
	DOCAEMU_EVENT_REPORT = 4,   /* the task ended; value: its doca_error_t */
	DOCAEMU_EVENT_SPURIOUS = 5, /* an arm was answered for no reason */
};

/* One decision. */
struct docaemu_event {
	uint64_t time; /* virtual, nanoseconds */
	uint64_t kind; /* enum docaemu_event_kind */
	uint64_t task; /* the how-manyth submit that was taken since the seed was set; 0: none */
	uint64_t value;
};

/**
 * Read what was decided since the seed was set, or the last docaemu_reset(). The emulator keeps the
 * latest 65536.
 *
 * @param[out] events array of max elements: the latest ones, the oldest of them first
 * @param[in] max how many at most
 * @param[out] num how many were written
 * @param[out] total how many there were; may be NULL
 * @retval DOCA_SUCCESS
 * @retval DOCA_ERROR_INVALID_VALUE
 *
 * Any thread.
 */
DOCAEMU_API
doca_error_t
docaemu_chaos_events(struct docaemu_event *events, size_t max, size_t *num, uint64_t *total);

#ifdef __cplusplus
}
#endif

#endif /* DOCAEMU_CHAOS_H_ */
