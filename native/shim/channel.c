/* SPDX-License-Identifier: Apache-2.0 */
#include "channel_impl.h"

#include <poll.h>

/* A copy sends this many segments before the next waiting copy has its turn. */
#define QUANTUM_SEGMENTS 4
/* Attempts, one per turn of the loop, while DOCA refuses for lack of room although it holds nothing of ours. */
#define MAX_STARVED_TURNS 64
/* Progress calls between two looks at the clock. */
#define STEPS_PER_CLOCK 8

static uint64_t
min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* ---- lists ---- */

static void
list_append(struct copy_list *list, struct adma_copy *copy)
{
	copy->next = NULL;
	copy->prev = list->tail;
	if (list->tail != NULL) {
		list->tail->next = copy;
	} else {
		list->head = copy;
	}
	list->tail = copy;
}

static void
list_remove(struct copy_list *list, struct adma_copy *copy)
{
	if (copy->prev != NULL) {
		copy->prev->next = copy->next;
	} else {
		list->head = copy->next;
	}
	if (copy->next != NULL) {
		copy->next->prev = copy->prev;
	} else {
		list->tail = copy->prev;
	}
}

static void
wait_append(struct adma_channel *ch, struct adma_copy *copy)
{
	list_append(&ch->waiting, copy);
	copy->waiting = 1;
	ch->num_waiting++;
}

static void
wait_remove(struct adma_channel *ch, struct adma_copy *copy)
{
	if (ch->waiting.head == copy) {
		ch->tenure = 0;
	}
	list_remove(&ch->waiting, copy);
	copy->waiting = 0;
	ch->num_waiting--;
}

void
adma_segment_free(struct adma_channel *ch, struct segment *segment)
{
	segment->copy = NULL;
	segment->next = ch->free;
	ch->free = segment;
}

static void
replay_append(struct adma_channel *ch, struct segment *segment)
{
	segment->next = NULL;
	*ch->replay_tail = segment;
	ch->replay_tail = &segment->next;
}

static struct segment *
replay_take(struct adma_channel *ch)
{
	struct segment *segment = ch->replay;

	ch->replay = segment->next;
	if (ch->replay == NULL) {
		ch->replay_tail = &ch->replay;
	}
	return segment;
}

/* Drop the flushed segments of one copy, or of all (copy NULL). */
static void
replay_drop(struct adma_channel *ch, const struct adma_copy *copy)
{
	struct segment *segment = ch->replay;

	ch->replay = NULL;
	ch->replay_tail = &ch->replay;
	while (segment != NULL) {
		struct segment *next = segment->next;

		if (copy == NULL || segment->copy == copy) {
			segment->copy->segments--;
			adma_segment_free(ch, segment);
		} else {
			replay_append(ch, segment);
		}
		segment = next;
	}
}

/* ---- the end of a copy ---- */

static void
count_end(struct adma_channel *ch, const struct adma_copy *copy)
{
	if (copy->cancelled) {
		ch->counters.copies_cancelled++;
	} else if (copy->code != DOCA_SUCCESS || copy->flushed) {
		ch->counters.copies_failed++;
	} else if (copy->abandoned) {
		ch->counters.copies_abandoned++;
	} else {
		ch->counters.copies_completed++;
	}
}

/* End the copy if nothing of it is with DOCA, due for replay, or waiting. */
static void
settle(struct adma_channel *ch, struct adma_copy *copy)
{
	if (copy->segments > 0 || copy->waiting) {
		return;
	}
	if (copy->completed == copy->length) {
		copy->abandoned = 0; /* all of it was with DOCA when the rest was called off */
	}
	copy->state = ADMA_COPY_ENDED;
	ch->pending--;
	count_end(ch, copy);
	list_append(&ch->done, copy);
}

/* Record the first failure and let nothing more of the copy reach DOCA. */
static void
fail_copy(struct adma_channel *ch, struct adma_copy *copy, doca_error_t code, enum adma_phase phase)
{
	if (copy->code == DOCA_SUCCESS) {
		copy->code = (uint16_t)code;
		copy->phase = (uint8_t)phase;
	}
	if (copy->waiting) {
		wait_remove(ch, copy);
	}
}

/* ---- completion callbacks: run inside doca_pe_progress(), so they call no DOCA function that may call back ---- */

/* Give a buf back. One that DOCA keeps points into its map for ever, so the map and the inventory must stay. */
static void
release_buf(struct adma_channel *ch, struct adma_mmap *map, struct doca_buf **buf)
{
	doca_error_t result;

	if (*buf == NULL) {
		return;
	}
	result = ch->lib->doca_buf_dec_refcount(*buf, NULL);
	*buf = NULL;
	if (result != DOCA_SUCCESS) {
		map->stuck = 1;
		ch->stuck_buf = result;
	}
}

static void
release_bufs(struct adma_channel *ch, struct segment *segment)
{
	release_buf(ch, segment->copy->src_map, &segment->src_buf);
	release_buf(ch, segment->copy->dst_map, &segment->dst_buf);
}

static void
free_task(struct adma_channel *ch, struct segment *segment)
{
	if (segment->task != NULL) {
		ch->lib->doca_task_free(ch->lib->doca_dma_task_memcpy_as_task(segment->task));
		segment->task = NULL;
	}
}

void
adma_on_completed(struct doca_dma_task_memcpy *task, union doca_data task_data, union doca_data ctx_data)
{
	struct adma_channel *ch = ctx_data.ptr;
	struct segment *segment = task_data.ptr;
	struct adma_copy *copy = segment->copy;

	(void)task;
	release_bufs(ch, segment);
	ch->in_flight--;
	ch->counters.segments_completed++;
	ch->counters.bytes_completed += segment->length;
	copy->completed += segment->length;
	copy->segments--;
	adma_segment_free(ch, segment);
	settle(ch, copy);
}

/*
 * The first error of a burst is the culprit's own; those behind it were flushed because of it, whatever their status
 * (what DOCA puts there is not documented).
 */
static bool
may_replay(const struct adma_channel *ch, const struct adma_copy *copy, doca_error_t culprit)
{
	return ch->config.replay && !copy->cancelled && !copy->abandoned && copy->code == DOCA_SUCCESS &&
	       !copy->flushed && culprit != DOCA_ERROR_DRIVER;
}

void
adma_on_failed(struct doca_dma_task_memcpy *task, union doca_data task_data, union doca_data ctx_data)
{
	struct adma_channel *ch = ctx_data.ptr;
	struct segment *segment = task_data.ptr;
	struct adma_copy *copy = segment->copy;
	doca_error_t status = ch->lib->doca_task_get_status(ch->lib->doca_dma_task_memcpy_as_task(task));

	release_bufs(ch, segment);
	free_task(ch, segment);
	ch->in_flight--;
	if (!ch->fault) {
		ch->fault = true;
		ch->culprit = status;
		if (ch->state == ADMA_CHANNEL_RUNNING || ch->state == ADMA_CHANNEL_DRAINING) {
			ch->state = ADMA_CHANNEL_FAILING;
		}
		ch->counters.segments_failed++;
		fail_copy(ch, copy, status, ADMA_PHASE_COMPLETE);
	} else {
		ch->counters.segments_flushed++;
		if (may_replay(ch, copy, ch->culprit)) {
			replay_append(ch, segment);
			return;
		}
		if (copy->code == DOCA_SUCCESS) {
			copy->flushed = 1; /* else a segment of its own is the culprit */
		}
		fail_copy(ch, copy, status, ADMA_PHASE_COMPLETE);
	}
	copy->segments--;
	adma_segment_free(ch, segment);
	settle(ch, copy);
}

void
adma_on_state_changed(const union doca_data user_data, struct doca_ctx *ctx, enum doca_ctx_states prev,
		 enum doca_ctx_states next)
{
	struct adma_channel *ch = user_data.ptr;

	(void)ctx;
	(void)prev;
	ch->ctx_state = next;
}

/* ---- giving DOCA work ---- */

/* Wait for room? AGAIN at submit and NO_MEMORY from either pool mean the same. */
static bool
is_backpressure(struct adma_channel *ch, doca_error_t code)
{
	if (code == DOCA_ERROR_AGAIN) {
		ch->counters.again++;
		return true;
	}
	if (code == DOCA_ERROR_NO_MEMORY) {
		ch->counters.no_memory++;
		return true;
	}
	return false;
}

static doca_error_t
get_buf(struct adma_channel *ch, struct adma_mmap *map, char *addr, uint64_t length, uint64_t data_length,
	struct doca_buf **buf)
{
	map->used = 1;
	return ch->lib->doca_buf_inventory_buf_get_by_args(ch->inventory, map->mmap, addr, length, addr, data_length,
							   buf);
}

static doca_error_t
prepare(struct adma_channel *ch, struct segment *segment)
{
	struct adma_library *lib = ch->lib;
	struct adma_copy *copy = segment->copy;
	union doca_data user_data = {.ptr = segment};
	doca_error_t result;

	result = get_buf(ch, copy->src_map, copy->src + segment->offset, segment->length, segment->length,
			 &segment->src_buf);
	if (result != DOCA_SUCCESS) {
		return result;
	}
	result = get_buf(ch, copy->dst_map, copy->dst + segment->offset, segment->length, 0, &segment->dst_buf);
	if (result != DOCA_SUCCESS) {
		return result;
	}
	if (segment->task == NULL) {
		return lib->doca_dma_task_memcpy_alloc_init(ch->dma, segment->src_buf, segment->dst_buf, user_data,
							    &segment->task);
	}
	lib->doca_dma_task_memcpy_set_src(segment->task, segment->src_buf);
	lib->doca_dma_task_memcpy_set_dst(segment->task, segment->dst_buf);
	return DOCA_SUCCESS;
}

static doca_error_t
submit(struct adma_channel *ch, struct segment *segment)
{
	struct doca_task *task = ch->lib->doca_dma_task_memcpy_as_task(segment->task);
	doca_error_t result;

	if (!ch->held_back) {
		return ch->lib->doca_task_submit(task);
	}
	result = ch->lib->doca_task_submit_ex(task, DOCA_TASK_SUBMIT_FLAG_NONE);
	if (result == DOCA_SUCCESS) {
		ch->unflushed = true;
	}
	return result;
}

/*
 * Hand a filled segment to DOCA.
 *
 * @retval true it is with DOCA, or its copy has failed: go on with the next
 * @retval false no room, or the context is not RUNNING any more: the segment is the caller's
 */
static bool
send(struct adma_channel *ch, struct segment *segment)
{
	enum adma_phase phase = ADMA_PHASE_ALLOC;
	doca_error_t result = prepare(ch, segment);

	if (result == DOCA_SUCCESS) {
		phase = ADMA_PHASE_SUBMIT;
		result = submit(ch, segment);
	}
	if (result == DOCA_SUCCESS) {
		ch->starved = 0;
		ch->in_flight++;
		ch->counters.segments_submitted++;
		if (ch->in_flight > ch->counters.peak_in_flight) {
			ch->counters.peak_in_flight = ch->in_flight;
		}
		return true;
	}
	release_bufs(ch, segment);
	if (is_backpressure(ch, result)) {
		if (ch->in_flight > 0 || ch->starved < MAX_STARVED_TURNS) {
			return false;
		}
		ch->starved = 0; /* no completion will ever make room: this copy is told, the next may try */
	} else if (result == DOCA_ERROR_BAD_STATE && ch->ctx_state != DOCA_CTX_STATE_RUNNING) {
		ch->state = ADMA_CHANNEL_FAILING;
		return false;
	}
	segment->copy->segments--;
	fail_copy(ch, segment->copy, result, phase);
	settle(ch, segment->copy);
	adma_segment_free(ch, segment);
	return true;
}

/* Cut the next segment of the copy whose turn it is. */
static void
cut(struct adma_channel *ch, struct segment *segment)
{
	struct adma_copy *copy = ch->waiting.head;

	segment->copy = copy;
	segment->offset = copy->submitted;
	segment->length = min_u64(copy->length - copy->submitted, ch->caps.max_buf_size);
	copy->submitted += segment->length;
	copy->segments++;
	ch->tenure += segment->length;
}

static void
uncut(struct adma_channel *ch, struct segment *segment)
{
	struct adma_copy *copy = segment->copy;

	copy->submitted -= segment->length;
	copy->segments--;
	ch->tenure -= segment->length;
	adma_segment_free(ch, segment);
}

/* The copy at the head leaves the list when all of it is handed out, and goes to the tail after its quantum. */
static void
rotate(struct adma_channel *ch, struct adma_copy *copy)
{
	if (!copy->waiting) {
		return; /* it failed */
	}
	if (copy->submitted == copy->length) {
		wait_remove(ch, copy);
	} else if (ch->tenure / QUANTUM_SEGMENTS >= ch->caps.max_buf_size) {
		wait_remove(ch, copy);
		wait_append(ch, copy);
	}
}

static void
fill(struct adma_channel *ch)
{
	while (ch->state == ADMA_CHANNEL_RUNNING && ch->in_flight < ch->window) {
		struct segment *segment;

		if (ch->replay != NULL) {
			segment = replay_take(ch);
			if (!send(ch, segment)) {
				segment->next = ch->replay;
				if (ch->replay == NULL) {
					ch->replay_tail = &segment->next;
				}
				ch->replay = segment;
				return;
			}
			ch->counters.segments_replayed++;
		} else if (ch->waiting.head != NULL) {
			struct adma_copy *copy = ch->waiting.head;

			segment = ch->free;
			ch->free = segment->next;
			cut(ch, segment);
			if (!send(ch, segment)) {
				uncut(ch, segment);
				return;
			}
			rotate(ch, copy);
		} else {
			return;
		}
	}
}

void
adma_flush(struct adma_channel *ch)
{
	if (ch->unflushed) {
		ch->unflushed = false;
		ch->counters.doorbells++;
		ch->lib->doca_ctx_flush_tasks(ch->ctx);
	}
}

/* ---- copies, from above ---- */

void
adma_copy_init(struct adma_copy *copy, struct adma_mmap *src_map, char *src, struct adma_mmap *dst_map, char *dst,
	       uint64_t length)
{
	*copy = (struct adma_copy){
		.src_map = src_map, .src = src, .dst_map = dst_map, .dst = dst, .length = length};
}

/* Is a recycle due because closed maps pin too much? */
static bool
graveyard_full(const struct adma_channel *ch)
{
	return atomic_load_explicit(&ch->buried_bytes, memory_order_relaxed) > ch->config.graveyard_bytes ||
	       atomic_load_explicit(&ch->buried_maps, memory_order_relaxed) > ch->config.graveyard_maps;
}

void
adma_channel_park(struct adma_channel *ch)
{
	ch->park = true;
	if (ch->state == ADMA_CHANNEL_RUNNING) {
		ch->state = ADMA_CHANNEL_DRAINING;
	}
}

void
adma_channel_start(struct adma_channel *ch, struct adma_copy *copy)
{
	copy->state = ADMA_COPY_PENDING;
	ch->pending++;
	ch->counters.copies_started++;
	wait_append(ch, copy);
	if (graveyard_full(ch)) {
		adma_channel_park(ch);
	}
	fill(ch);
}

/* May progress be called now? In mode SELECTIVE not between the arm and the event. */
static bool
may_progress(const struct adma_channel *ch)
{
	return ch->mode_all || !ch->armed;
}

bool
adma_channel_finish_now(struct adma_channel *ch, struct adma_copy *copy)
{
	adma_flush(ch);
	if (ch->in_flight > 0 && may_progress(ch)) {
		ch->lib->doca_pe_progress(ch->pe);
	}
	if (copy->state != ADMA_COPY_ENDED) {
		return false;
	}
	list_remove(&ch->done, copy);
	return true;
}

void
adma_channel_cancel(struct adma_channel *ch, struct adma_copy *copy)
{
	if (copy->state != ADMA_COPY_PENDING || copy->cancelled) {
		return;
	}
	copy->cancelled = 1;
	if (copy->waiting) {
		wait_remove(ch, copy);
	}
	replay_drop(ch, copy);
	settle(ch, copy);
}

void
adma_channel_abandon(struct adma_channel *ch)
{
	struct adma_copy *copy = ch->waiting.head;
	struct segment *segment;

	for (segment = ch->replay; segment != NULL; segment = segment->next) {
		segment->copy->abandoned = 1;
		if (segment->copy->waiting) {
			wait_remove(ch, segment->copy);
		}
	}
	copy = ch->waiting.head;
	while (copy != NULL) {
		struct adma_copy *next = copy->next;

		copy->abandoned = 1;
		wait_remove(ch, copy);
		settle(ch, copy);
		copy = next;
	}
	while (ch->replay != NULL) {
		segment = replay_take(ch);
		copy = segment->copy;
		copy->segments--;
		adma_segment_free(ch, segment);
		settle(ch, copy);
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
adma_free_all_tasks(struct adma_channel *ch)
{
	for (uint32_t i = 0; i < ch->window; i++) {
		free_task(ch, &ch->segments[i]);
	}
}

void
adma_channel_resume(struct adma_channel *ch, bool recycled)
{
	ch->park = false;
	ch->state = recycled ? ADMA_CHANNEL_RUNNING : ADMA_CHANNEL_LOST;
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
		ch->state = ADMA_CHANNEL_PARKED;
	} else if (ch->state == ADMA_CHANNEL_FAILING) {
		/* The context reaches IDLE only when every allocated task has been freed. */
		adma_free_all_tasks(ch);
		ch->fault = false;
		if (ch->ctx_state == DOCA_CTX_STATE_RUNNING) {
			/* The failure was not fatal to the context. */
			ch->state = ch->park ? ADMA_CHANNEL_PARKED : ADMA_CHANNEL_RUNNING;
			ch->idle_turns = 0;
			return ch->park ? ADMA_TURN_PARKED : ADMA_TURN_AGAIN;
		}
		if (ch->ctx_state == DOCA_CTX_STATE_IDLE) {
			ch->state = ADMA_CHANNEL_PARKED;
			ch->idle_turns = 0;
		} else {
			/* STOPPING: the next progress calls perform the transition; then wait for the event. */
			return ch->idle_turns++ < MAX_STARVED_TURNS ? ADMA_TURN_AGAIN : 0;
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
	int64_t deadline = ch->config.turn_budget_ns != 0 ? adma_now_ns() + ch->config.turn_budget_ns : 0;
	unsigned steps = 0;

	while (ch->lib->doca_pe_progress(ch->pe) != 0) {
		if (ch->in_flight < ch->window / 2) {
			fill(ch);
			adma_flush(ch);
		}
		if (++steps % STEPS_PER_CLOCK == 0 && deadline != 0 && adma_now_ns() > deadline) {
			return true;
		}
	}
	return false;
}

/* Something to wait for: tasks with DOCA, or a context on its way to IDLE. */
static bool
awaits_event(const struct adma_channel *ch)
{
	return ch->in_flight > 0 || (ch->state == ADMA_CHANNEL_FAILING && ch->ctx_state != DOCA_CTX_STATE_IDLE);
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

static bool
worth_filling(const struct adma_channel *ch)
{
	return ch->state == ADMA_CHANNEL_RUNNING && ch->in_flight < ch->window &&
	       (ch->waiting.head != NULL || ch->replay != NULL);
}

/* Progress, refill and flush until neither yields anything; true if the budget was spent. */
static bool
work(struct adma_channel *ch)
{
	uint64_t submitted;

	do {
		if (may_progress(ch) && progress(ch)) {
			fill(ch);
			adma_flush(ch);
			return true;
		}
		submitted = ch->counters.segments_submitted;
		fill(ch);
		adma_flush(ch);
	} while (may_progress(ch) && ch->counters.segments_submitted != submitted);
	return false;
}

unsigned
adma_channel_turn(struct adma_channel *ch)
{
	unsigned bits = 0;
	bool again = false;

	if (ch->state == ADMA_CHANNEL_PARKED || ch->state >= ADMA_CHANNEL_LOST) {
		return ch->pending == 0 ? ADMA_TURN_IDLE : 0;
	}
	ch->counters.turns++;
	if (graveyard_full(ch)) {
		adma_channel_park(ch);
	}
	adma_flush(ch);
	again = work(ch);
	if (!again && ch->in_flight == 0) {
		bits |= advance(ch);
		if (worth_filling(ch)) {
			/* Refused for lack of room with nothing of ours to wait for. */
			ch->starved++;
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
	}
	return bits;
}

unsigned
adma_channel_readable(struct adma_channel *ch)
{
	struct pollfd pollfd = {.fd = ch->fd, .events = POLLIN};
	doca_error_t result;
	unsigned bits = 0;

	if (ch->state == ADMA_CHANNEL_PARKED || ch->state == ADMA_CHANNEL_CLOSED || poll(&pollfd, 1, 0) <= 0) {
		return 0;
	}
	ch->counters.wakeups++;
	/* Whatever clear says, completions may be there: it never keeps us from the drain. */
	result = ch->lib->doca_pe_clear_notification(ch->pe, ch->fd);
	if (result != DOCA_SUCCESS && result != DOCA_ERROR_AGAIN) {
		ch->counters.clear_errors++;
		ch->clear_code = result;
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
		.pending = ch->pending,
		.waiting = ch->num_waiting,
		.buried_bytes = ch->buried_bytes,
		.buried_maps = ch->buried_maps,
		.event_mode_all = ch->mode_all,
		.armed = ch->armed,
	};
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
