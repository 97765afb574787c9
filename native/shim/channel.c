/* SPDX-License-Identifier: Apache-2.0 */
/* Copies from above, and the turn of the pump. */
#include "channel_impl.h"

#include <poll.h>

/* Progress calls between two looks at the clock. */
#define STEPS_PER_CLOCK 8
/* From so many misses in a row on, one wait in 64 is spun for. */
#define MAX_SPIN_MISSES 6

void
adma_channel_park(struct adma_channel *ch)
{
	ch->park = true;
	if (ch->state == ADMA_CHANNEL_RUNNING) {
		adma_set_state(ch, ADMA_CHANNEL_DRAINING);
	}
}

void
adma_channel_start(struct adma_channel *ch, struct adma_copy *copy)
{
	copy->state = ADMA_COPY_PENDING;
	ch->pending++;
	if (copy->length > ch->config.fair_window_bytes) {
		ch->num_long++;
	} else if (ch->num_long > 0) {
		ch->contended =
			true; /* until the long ones are through: the next short one may follow */
	}
	ch->counters.copies_started++;
	if (copy->length < ch->config.crossover_bytes &&
	    ch->counters.copies_below_crossover++ == 0) {
		adma_recorder_note(&ch->recorder,
				   (struct adma_event){.kind = ADMA_EVENT_BELOW_CROSSOVER,
						       .bytes = copy->length});
	}
	if (adma_graveyard_full(ch)) {
		adma_channel_park(ch);
	}
	adma_take(ch, copy);
}

/* May progress be called now? In mode SELECTIVE not between the arm and the event. */
static bool
may_progress(const struct adma_channel *ch)
{
	return ch->mode_all || !ch->armed;
}

bool
adma_channel_start_alone(struct adma_channel *ch, struct adma_copy *copy)
{
	ch->alone = copy;
	adma_channel_start(ch, copy);
	adma_flush(ch);
	if (ch->in_flight > 0 && may_progress(ch)) {
		ch->lib->doca_pe_progress(ch->pe);
	}
	ch->alone = NULL;
	return copy->state == ADMA_COPY_ENDED;
}

void
adma_channel_cancel(struct adma_channel *ch, struct adma_copy *copy)
{
	if (copy->state != ADMA_COPY_PENDING || copy->cancelled) {
		return;
	}
	copy->cancelled = 1;
	if (copy->waiting) {
		adma_wait_remove(ch, copy);
	}
	adma_replay_drop(ch, copy, ADMA_ALL_PIECES);
	adma_settle(ch, copy);
}

void
adma_channel_abandon(struct adma_channel *ch)
{
	struct adma_copy *copy = ch->waiting.head;
	struct segment *segment;

	for (segment = ch->replay; segment != NULL; segment = segment->next) {
		segment->copy->abandoned = 1;
		if (segment->copy->waiting) {
			adma_wait_remove(ch, segment->copy);
		}
	}
	copy = ch->waiting.head;
	while (copy != NULL) {
		struct adma_copy *next = copy->next;

		copy->abandoned = 1;
		adma_wait_remove(ch, copy);
		adma_settle(ch, copy);
		copy = next;
	}
	while (ch->replay != NULL) {
		segment = adma_replay_take(ch);
		copy = segment->copy;
		copy->segments--;
		adma_segment_free(ch, segment);
		adma_settle(ch, copy);
	}
}

struct adma_copy *
adma_channel_take_done(struct adma_channel *ch)
{
	struct adma_copy *head = ch->done.head;

	ch->done = (struct copy_list){NULL, NULL};
	return head;
}

/* ---- the turn ---- */

void
adma_channel_resume(struct adma_channel *ch, bool recycled)
{
	ch->park = false;
	adma_set_state(ch, recycled ? ADMA_CHANNEL_RUNNING : ADMA_CHANNEL_LOST);
	if (recycled) {
		adma_drop_oversize(ch);
	}
}

/* The loop's thread stays away from now on: the fd must not wake it, which in mode ALL may be armed still. */
static void
come_to_rest(struct adma_channel *ch)
{
	adma_disarm(ch);
	adma_set_state(ch, ADMA_CHANNEL_PARKED);
}

/*
 * DOCA holds nothing: move on from FAILING or DRAINING.
 *
 * @return turn bits
 */
static unsigned
advance(struct adma_channel *ch)
{
	if (ch->state == ADMA_CHANNEL_DRAINING) {
		come_to_rest(ch);
	} else if (ch->state == ADMA_CHANNEL_FAILING) {
		/* The context reaches IDLE only when every allocated task has been freed. */
		adma_free_all_tasks(ch);
		if (ch->fault && ch->counters.segments_flushed != ch->flushed_before) {
			adma_channel_note(
				ch, ADMA_EVENT_FLUSHED, 0,
				(uint32_t)(ch->counters.segments_flushed - ch->flushed_before), 0);
		}
		ch->fault = false;
		if (ch->ctx_state == DOCA_CTX_STATE_RUNNING) {
			/* The failure was not fatal to the context. */
			ch->idle_turns = 0;
			if (!ch->park) {
				adma_set_state(ch, ADMA_CHANNEL_RUNNING);
				return ADMA_TURN_AGAIN;
			}
			come_to_rest(ch);
		} else if (ch->ctx_state == DOCA_CTX_STATE_IDLE) {
			ch->idle_turns = 0;
			come_to_rest(ch);
		} else {
			/* STOPPING: the next progress calls perform the transition; then wait for the event. */
			return ch->idle_turns++ < ADMA_MAX_STARVED_TURNS ? ADMA_TURN_AGAIN : 0;
		}
	}
	return ch->state == ADMA_CHANNEL_PARKED ? ADMA_TURN_PARKED : 0;
}

/*
 * Progress until nothing is left, refilling the window on the way.
 *
 * @return true if the budget was spent first
 */
static bool
progress(struct adma_channel *ch)
{
	int64_t deadline =
		ch->config.turn_budget_ns != 0 ? adma_now_ns() + ch->config.turn_budget_ns : 0;
	unsigned steps = STEPS_PER_CLOCK;

	while (ch->lib->doca_pe_progress(ch->pe) != 0) {
		if (ch->in_flight < ch->window / 2) {
			adma_fill(ch);
			adma_flush(ch);
		}
		if (--steps == 0) {
			steps = STEPS_PER_CLOCK;
			if (deadline != 0 && adma_now_ns() > deadline) {
				return true;
			}
		}
	}
	return false;
}

/* Something to wait for: tasks with DOCA, or a context on its way to IDLE. */
static bool
awaits_event(const struct adma_channel *ch)
{
	return ch->in_flight > 0 ||
	       (ch->state == ADMA_CHANNEL_FAILING && ch->ctx_state != DOCA_CTX_STATE_IDLE);
}

/*
 * Poll a little for a completion rather than go to sleep, which costs a wake-up. After n misses in a row 2^n - 1 waits
 * are not polled for: an engine slower than the spin costs no CPU.
 */
static bool
spin(struct adma_channel *ch)
{
	int64_t deadline;

	if (ch->config.spin_ns == 0 || ch->in_flight == 0 || ch->armed) {
		return false;
	}
	if (ch->skip_spins > 0) {
		ch->skip_spins--;
		return false;
	}
	ch->counters.spins++;
	deadline = adma_now_ns() + ch->config.spin_ns;
	do {
		if (ch->lib->doca_pe_progress(ch->pe) != 0) {
			ch->counters.spin_hits++;
			ch->spin_misses = 0;
			return true;
		}
	} while (adma_now_ns() < deadline);
	if (ch->spin_misses < MAX_SPIN_MISSES) {
		ch->spin_misses++;
	}
	ch->skip_spins = (1u << ch->spin_misses) - 1;
	return false;
}

static bool
arm(struct adma_channel *ch)
{
	if (ch->lib->doca_pe_request_notification(ch->pe) != DOCA_SUCCESS) {
		return false;
	}
	ch->armed = true;
	ch->counters.arms++;
	return true;
}

/* Progress, refill and flush until neither yields anything; true if the budget was spent. */
static bool
work(struct adma_channel *ch)
{
	uint64_t submitted;

	do {
		if (may_progress(ch) && progress(ch)) {
			adma_fill(ch);
			adma_flush(ch);
			return true;
		}
		submitted = ch->counters.segments_submitted;
		adma_fill(ch);
		adma_flush(ch);
	} while (may_progress(ch) && ch->counters.segments_submitted != submitted);
	return false;
}

unsigned
adma_channel_turn(struct adma_channel *ch)
{
	unsigned bits = 0;
	bool again = false;

	if (adma_parked(ch)) {
		return ch->pending == 0 ? ADMA_TURN_IDLE : 0;
	}
	ch->counters.turns++;
	if (adma_graveyard_full(ch)) {
		adma_channel_park(ch);
	}
	adma_flush(ch);
	again = work(ch);
	if (!again && spin(ch)) {
		again = work(ch);
	}
	if (!again && ch->in_flight == 0) {
		bits |= advance(ch);
		if (adma_worth_filling(ch)) {
			/* Refused for lack of room with nothing of ours to wait for. */
			if (ch->starved++ == 0) {
				adma_channel_note(ch, ADMA_EVENT_REFUSED, 0, 0, ch->refusal);
			}
			again = true;
		}
	}
	while (!again && bits == 0 && !ch->armed && awaits_event(ch)) {
		if (!arm(ch)) {
			again = true;
		} else if (ch->mode_all) {
			/* What slipped in between the last empty progress and the arm. */
			again = work(ch) || ch->in_flight == 0;
		}
	}
	if (again) {
		bits |= ADMA_TURN_AGAIN;
	}
	if (ch->pending == 0) {
		bits |= ADMA_TURN_IDLE;
	} else if (ch->armed) {
		bits |= ADMA_TURN_ARMED;
	}
	if (ch->state == ADMA_CHANNEL_FAILING) {
		bits |= ADMA_TURN_FAULT;
	}
	return bits;
}

unsigned
adma_channel_readable(struct adma_channel *ch)
{
	struct pollfd pollfd = {.fd = ch->fd, .events = POLLIN};
	doca_error_t result;
	unsigned bits = 0;

	if (ch->state == ADMA_CHANNEL_PARKED || ch->state == ADMA_CHANNEL_CLOSED ||
	    poll(&pollfd, 1, 0) <= 0) {
		return 0;
	}
	ch->counters.wakeups++;
	/* Whatever clear says, completions may be there: it never keeps us from the drain. */
	result = ch->lib->doca_pe_clear_notification(ch->pe, ch->fd);
	if (result != DOCA_SUCCESS && result != DOCA_ERROR_AGAIN) {
		ch->counters.clear_errors++;
		ch->clear_code = result;
		adma_channel_note(ch, ADMA_EVENT_UNCLEARED, 0, 0, result);
		bits = ADMA_TURN_CLEAR_FAILED;
	}
	ch->armed = false;
	return bits | adma_channel_turn(ch);
}

doca_error_t
adma_channel_clear_code(const struct adma_channel *ch)
{
	return ch->clear_code;
}

/* ---- what the layer above reads ---- */

uint64_t
adma_channel_num_reported(const struct adma_channel *ch)
{
	return ch->counters.segments_completed + ch->counters.segments_failed +
	       ch->counters.segments_flushed;
}

uint64_t
adma_channel_num_waiting(const struct adma_channel *ch)
{
	return ch->num_waiting;
}

int
adma_channel_fd(const struct adma_channel *ch)
{
	return ch->fd;
}

void
adma_channel_get_status(const struct adma_channel *ch, struct adma_channel_status *status)
{
	*status = (struct adma_channel_status){
		.state = (int)ch->state,
		.num_tasks = ch->num_tasks,
		.window = ch->window,
		.in_flight = ch->in_flight,
		.in_flight_bytes = ch->in_flight_bytes,
		.faults_in_a_row = ch->faults_in_a_row,
		.pending = ch->pending,
		.waiting = ch->num_waiting,
		.buried_bytes = ch->buried_bytes,
		.buried_maps = ch->buried_maps,
		.event_mode_all = ch->mode_all,
		.armed = ch->armed,
	};
	for (uint32_t i = 0; i < sizeof(status->transitions); i++) {
		status->transitions[i] =
			ch->transitions[(ch->num_transitions + i) % sizeof(ch->transitions)];
	}
}

void
adma_channel_get_counters(const struct adma_channel *ch, struct adma_counters *counters)
{
	*counters = ch->counters;
}

void
adma_channel_get_caps(const struct adma_channel *ch, struct adma_caps *caps)
{
	*caps = ch->caps;
}
