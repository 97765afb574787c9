/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chaos: see docaemu_chaos.h. A context in chaos is a clocked one (schedule.h) whose times are drawn.
 * Functions ending in _locked want the engine's lock, which guards everything here.
 */
#include <docaemu_chaos.h>

#include "engine.h"
#include "schedule.h"

#include <stdlib.h>

#define MAX_LATENCY_SHIFT 18 /* of nanoseconds: the longest is twice that, less one */
#define STORM_ODDS 16
#define MAX_STORM 8
#define SPURIOUS_ODDS 16
#define PS_PER_NS 1000u
#define MAX_EVENTS 65536u

static uint64_t state; /* of the random numbers */
static uint64_t storm; /* submits still to be refused */
static bool calm;      /* the next submit is taken */
static uint64_t num_tasks;
static struct docaemu_event *kept; /* a ring; allocated at the first event */
static uint64_t num_events;

/* Splitmix: neighbouring seeds have nothing in common. */
static uint64_t
random_locked(void)
{
	uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static void
note_locked(enum docaemu_event_kind kind, uint64_t task, uint64_t value)
{
	if (kept == NULL) {
		kept = calloc(MAX_EVENTS, sizeof(*kept));
	}
	if (kept != NULL) {
		kept[num_events % MAX_EVENTS] =
			(struct docaemu_event){emu_sched_now() / PS_PER_NS, kind, task, value};
	}
	num_events++;
}

/* Begin anew with the seed of the settings. */
void
emu_chaos_configured(void)
{
	emu_engine_lock();
	state = emu_get(EMU_CHAOS);
	storm = 0;
	calm = true;
	num_tasks = 0;
	num_events = 0;
	emu_sched_reseed(); /* the orders of what is due together */
	emu_engine_unlock();
}

/* Whether a submit is refused. */
bool
emu_chaos_refuses(void)
{
	bool refuses = true;

	emu_engine_lock();
	if (storm != 0) {
		storm--;
	} else if (!calm && random_locked() % STORM_ODDS == 0) {
		storm = random_locked() % MAX_STORM;
	} else {
		refuses = false;
	}
	calm = refuses && storm == 0;
	if (refuses) {
		note_locked(DOCAEMU_EVENT_AGAIN, 0, storm);
	}
	emu_engine_unlock();
	return refuses;
}

/* Whether a task that is being submitted is to fail. */
bool
emu_chaos_fails(void)
{
	uint64_t odds = emu_get(EMU_CHAOS_FAULTS);
	bool fails;

	if (odds == 0) {
		return false;
	}
	emu_engine_lock();
	fails = random_locked() % odds == 0;
	emu_engine_unlock();
	if (fails) {
		emu_add(&emu_stats.faults, 1);
	}
	return fails;
}

/* Whether an arm is answered for no reason. */
bool
emu_chaos_spurious(void)
{
	bool spurious;

	emu_engine_lock();
	spurious = random_locked() % SPURIOUS_ODDS == 0;
	if (spurious) {
		note_locked(DOCAEMU_EVENT_SPURIOUS, 0, 0);
	}
	emu_engine_unlock();
	return spurious;
}

/*
 * Decide when a task ends, and when its bytes move.
 *
 * @param[in] due when it would end by the model of the engine's speed, picoseconds; 0: at once
 * @return when it ends
 */
uint64_t
emu_chaos_submit_locked(struct doca_task *task, uint64_t due)
{
	uint64_t now = emu_sched_now();
	uint64_t longest = UINT64_C(2) << random_locked() % MAX_LATENCY_SHIFT;
	uint64_t latency = (1 + random_locked() % (longest - 1)) * PS_PER_NS;

	due = due > now ? due : now;
	due = due < UINT64_MAX - latency ? due + latency : UINT64_MAX;
	task->run_at = random_locked() % 2 == 0 ? now : due;
	task->number = ++num_tasks;
	note_locked(DOCAEMU_EVENT_SUBMIT, task->number, (due - now) / PS_PER_NS);
	return due;
}

/* Note that a task ran. */
void
emu_chaos_ran_locked(const struct doca_task *task)
{
	note_locked(DOCAEMU_EVENT_RUN, task->number,
		    ((const struct doca_dma_task_memcpy *)task)->len);
}

/* Note how a task ended. */
void
emu_chaos_reported(const struct doca_task *task)
{
	emu_engine_lock();
	note_locked(DOCAEMU_EVENT_REPORT, task->number, task->result);
	emu_engine_unlock();
}

/* ---- the control API ---- */

doca_error_t
docaemu_chaos_events(struct docaemu_event *events, size_t max, size_t *num, uint64_t *total)
{
	uint64_t n;

	if (num == NULL || (events == NULL && max != 0)) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	emu_init();
	emu_engine_lock();
	n = num_events < MAX_EVENTS ? num_events : MAX_EVENTS;
	n = kept == NULL ? 0 : n < max ? n : max;
	for (uint64_t i = 0; i < n; i++) {
		events[i] = kept[(num_events - n + i) % MAX_EVENTS];
	}
	*num = n;
	if (total != NULL) {
		*total = num_events;
	}
	emu_engine_unlock();
	return DOCA_SUCCESS;
}
