/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks to DOCA and back: segments are cut from the waiting copies, submitted, and come home in the callbacks. */
#include "channel_impl.h"

#include <stdlib.h>

/* A copy sends this many full segments before the next waiting copy has its turn; only one while others are short. */
#define QUANTUM_SEGMENTS 4
/* A long copy is cut at least so often: one task does not use all that the engine can move. */
#define NUM_STRIPES 8
/* A short segment counts as this part of a full one: below some size a task's cost is not in its bytes. */
#define MIN_SHARE 32

/* ---- completion callbacks: run inside doca_pe_progress(), so they call no DOCA function that may call back ---- */

/* Give a buf back. One that DOCA keeps points into its map for ever: map and inventory must stay then. */
static void
drop_buf(struct adma_channel *ch, struct kept_buf *kept)
{
	doca_error_t result;

	if (kept->map == NULL) {
		return;
	}
	result = ch->lib->doca_buf_dec_refcount(kept->buf, NULL);
	if (result != DOCA_SUCCESS) {
		ch->stuck_buf = result;
		kept->map->stuck = 1;
	}
	*kept = (struct kept_buf){NULL, NULL};
}

static void
drop_list(struct adma_channel *ch, struct segment *segment)
{
	doca_error_t result;

	if (segment->list == NULL) {
		return;
	}
	result = ch->lib->doca_buf_dec_refcount(segment->list, NULL); /* the whole list */
	segment->list = NULL;
	if (result != DOCA_SUCCESS) {
		ch->stuck_buf = result;
		for (uint32_t i = 0; i < segment->num_sources; i++) {
			segment->sources[i].map->stuck = 1;
		}
	}
}

static void
drop_bufs(struct adma_channel *ch, struct segment *segment)
{
	drop_list(ch, segment);
	drop_buf(ch, &segment->src_buf);
	drop_buf(ch, &segment->dst_buf);
}

static void
free_task(struct adma_channel *ch, struct segment *segment)
{
	if (segment->task != NULL) {
		ch->lib->doca_task_free(segment->base);
		segment->task = NULL;
	}
}

void
adma_free_all_tasks(struct adma_channel *ch)
{
	for (uint32_t i = 0; i < ch->window; i++) {
		free_task(ch, &ch->segments[i]);
		drop_bufs(ch, &ch->segments[i]);
	}
}

/* Note the failure of an independent piece; without memory for the note, the whole copy fails. */
static bool
note_failure(struct adma_plan *plan, const struct adma_piece_failure *failure)
{
	for (uint64_t i = plan->num_failures; i > 0; i--) {
		if (plan->failures[i - 1].index == failure->index) {
			return true;
		}
	}
	if (plan->num_failures == plan->max_failures) {
		uint64_t max = plan->max_failures != 0 ? 2 * plan->max_failures : 8;
		struct adma_piece_failure *failures =
			realloc(plan->failures, max * sizeof(*failures));

		if (failures == NULL) {
			return false;
		}
		plan->failures = failures;
		plan->max_failures = max;
	}
	plan->failures[plan->num_failures++] = *failure;
	return true;
}

void
adma_plan_finish(struct adma_plan *plan)
{
	free(plan->failures);
	plan->failures = NULL;
	plan->num_failures = 0;
	plan->max_failures = 0;
}

/* A copy has failed, or was flushed: a copy of many counts with the first piece that failed for its own sake. */
void
adma_count_failure(struct adma_channel *ch, const struct adma_copy *copy)
{
	uint32_t code = copy->code;
	bool flushed = copy->flushed;

	if (copy->code == DOCA_SUCCESS && copy->plan != NULL && copy->plan->num_failures > 0) {
		const struct adma_piece_failure *failure = copy->plan->failures;
		const struct adma_piece_failure *end = failure + copy->plan->num_failures;

		while (failure < end && failure->flushed) {
			failure++;
		}
		flushed = failure == end;
		code = flushed ? 0 : failure->code;
	}
	if (flushed) {
		ch->counters.copies_flushed++;
		return;
	}
	ch->counters.copies_failed++;
	ch->failed[code < ADMA_NUM_CODES ? code : ADMA_NUM_CODES - 1]++;
}

static bool
has_imported(const struct segment *segment)
{
	for (uint32_t i = 0; i < segment->num_sources; i++) {
		if (segment->sources[i].map->imported) {
			return true;
		}
	}
	return segment->dst_map->imported;
}

/* A segment will not be copied: its piece has failed if it is independent, else its copy. */
static void
fail_segment(struct adma_channel *ch, struct segment *segment, doca_error_t code,
	     enum adma_phase phase, bool flushed)
{
	struct adma_copy *copy = segment->copy;
	struct adma_piece_failure failure = {.index = segment->index,
					     .code = (uint16_t)code,
					     .phase = (uint8_t)phase,
					     .flushed = flushed};

	if (!flushed) {
		adma_recorder_note(&ch->recorder, (struct adma_event){.kind = ADMA_EVENT_FAILED,
								      .to = phase,
								      .code = code,
								      .bytes = segment->length});
		/* That is how DOCA reports it when an exporter ends, revokes or unmaps. */
		if (code == DOCA_ERROR_IO_FAILED && has_imported(segment)) {
			adma_channel_note(ch, ADMA_EVENT_PEER_LOST, 0, phase, code);
		}
	}
	if (copy->plan != NULL && copy->plan->independent && note_failure(copy->plan, &failure)) {
		return;
	}
	if (copy->code == DOCA_SUCCESS) {
		copy->flushed =
			flushed; /* if it is the first failure: else the copy has an error of its own */
	}
	adma_fail_copy(ch, copy, code, phase);
}

/* Flushed segments longer than the device takes since the restart cannot be replayed as they are. */
void
adma_drop_oversize(struct adma_channel *ch)
{
	struct segment *segment = ch->replay;

	ch->replay = NULL;
	ch->replay_tail = &ch->replay;
	while (segment != NULL) {
		struct segment *next = segment->next;

		if (segment->length <= ch->segment_bytes && segment->num_sources <= ch->list_len) {
			adma_replay_append(ch, segment);
		} else {
			struct adma_copy *copy = segment->copy;

			fail_segment(ch, segment, ch->culprit, ADMA_PHASE_COMPLETE, true);
			copy->segments--;
			adma_segment_free(ch, segment);
			adma_settle(ch, copy);
		}
		segment = next;
	}
}

void
adma_on_completed(struct doca_dma_task_memcpy *task, union doca_data task_data,
		  union doca_data ctx_data)
{
	struct adma_channel *ch = ctx_data.ptr;
	struct segment *segment = task_data.ptr;
	struct adma_copy *copy = segment->copy;

	(void)task;
	if (segment->list != NULL) {
		drop_list(ch, segment);
		drop_buf(ch, &segment->dst_buf);
	}
	ch->in_flight--;
	ch->in_flight_bytes -= segment->length;
	ch->faults_in_a_row = 0;
	ch->counters.segments_completed++;
	ch->counters.bytes_completed += segment->length;
	copy->completed += segment->length;
	copy->segments--;
	adma_segment_free(ch, segment);
	adma_settle(ch, copy);
}

/*
 * The first error of a burst is the culprit's own; those behind it were flushed because of it, whatever their status
 * (what DOCA puts there is not documented).
 */
static bool
may_replay(const struct adma_channel *ch, const struct segment *segment)
{
	const struct adma_copy *copy = segment->copy;

	/* Whether a flushed task has written is not known, and what a peer has seen cannot be taken back. */
	return ch->config.replay && !copy->cancelled && !copy->abandoned &&
	       copy->code == DOCA_SUCCESS && !copy->flushed && !segment->dst_map->imported &&
	       ch->culprit != DOCA_ERROR_DRIVER;
}

void
adma_on_failed(struct doca_dma_task_memcpy *task, union doca_data task_data,
	       union doca_data ctx_data)
{
	struct adma_channel *ch = ctx_data.ptr;
	struct segment *segment = task_data.ptr;
	struct adma_copy *copy = segment->copy;
	doca_error_t status =
		ch->lib->doca_task_get_status(ch->lib->doca_dma_task_memcpy_as_task(task));

	drop_bufs(ch, segment);
	free_task(ch, segment);
	ch->in_flight--;
	ch->in_flight_bytes -= segment->length;
	if (!ch->fault) {
		ch->fault = true;
		ch->faults_in_a_row++;
		ch->culprit = status;
		ch->flushed_before = ch->counters.segments_flushed;
		if (ch->state == ADMA_CHANNEL_RUNNING || ch->state == ADMA_CHANNEL_DRAINING) {
			adma_set_state(ch, ADMA_CHANNEL_FAILING);
		}
		ch->counters.segments_failed++;
		fail_segment(ch, segment, status, ADMA_PHASE_COMPLETE, false);
	} else {
		ch->counters.segments_flushed++;
		if (may_replay(ch, segment)) {
			adma_replay_append(ch, segment);
			return;
		}
		if (!copy->abandoned) { /* else that is what ends it */
			fail_segment(ch, segment, status, ADMA_PHASE_COMPLETE, true);
		}
	}
	copy->segments--;
	adma_segment_free(ch, segment);
	adma_settle(ch, copy);
}

void
adma_on_state_changed(const union doca_data user_data, struct doca_ctx *ctx,
		      enum doca_ctx_states prev, enum doca_ctx_states next)
{
	struct adma_channel *ch = user_data.ptr;

	(void)ctx;
	ch->ctx_state = next;
	adma_channel_note(ch, ADMA_EVENT_CONTEXT, prev, next, 0);
	ch->transitions[ch->num_transitions++ % sizeof(ch->transitions)] =
		(uint8_t)(16 * prev + next);
}

/* ---- giving DOCA work ---- */

/* Wait for room? AGAIN at submit and NO_MEMORY from either pool mean the same. */
static bool
is_backpressure(struct adma_channel *ch, doca_error_t code)
{
	ch->refusal = code;
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

/* A new buf of a range of a map, with data in it. */
static doca_error_t
get_buf(struct adma_channel *ch, struct adma_mmap *map, char *addr, uint64_t length, char *data,
	uint64_t data_length, struct doca_buf **buf)
{
	map->used = 1;
	return ch->lib->doca_buf_inventory_buf_get_by_args(ch->inventory, map->mmap, addr, length,
							   data, data_length, buf);
}

/* Have a kept buf hold these bytes of a map. */
static inline doca_error_t
keep_buf(struct adma_channel *ch, struct kept_buf *kept, struct adma_mmap *map, char *data,
	 uint64_t data_length)
{
	doca_error_t result;

	if (kept->map == map) {
		return ch->lib->doca_buf_set_data(kept->buf, data, data_length);
	}
	drop_buf(ch, kept);
	result = get_buf(ch, map, map->addr, map->length, data, data_length, &kept->buf);
	if (result == DOCA_SUCCESS) {
		kept->map = map;
	}
	return result;
}

/*
 * The list of a segment's sources, and a buf of just its destination: a list ends where its destination does. What was
 * made is in the segment also after a failure.
 */
static doca_error_t
get_list(struct adma_channel *ch, struct segment *segment)
{
	const struct source *source = segment->sources;
	doca_error_t result;

	drop_bufs(ch, segment);
	result = get_buf(ch, source->map, source->addr, source->length, source->addr,
			 source->length, &segment->list);
	for (uint32_t i = 1; result == DOCA_SUCCESS && i < segment->num_sources; i++) {
		struct doca_buf *buf;

		source = &segment->sources[i];
		result = get_buf(ch, source->map, source->addr, source->length, source->addr,
				 source->length, &buf);
		if (result == DOCA_SUCCESS) {
			result = ch->lib->doca_buf_chain_list(segment->list, buf);
			if (result != DOCA_SUCCESS) {
				ch->lib->doca_buf_dec_refcount(buf, NULL);
			}
		}
	}
	if (result == DOCA_SUCCESS) {
		result = get_buf(ch, segment->dst_map, segment->dst, segment->length, segment->dst,
				 0, &segment->dst_buf.buf);
	}
	if (result == DOCA_SUCCESS) {
		segment->dst_buf.map = segment->dst_map;
	}
	return result;
}

static doca_error_t
get_bufs(struct adma_channel *ch, struct segment *segment)
{
	const struct source *source = segment->sources;
	doca_error_t result;

	if (segment->num_sources > 1) {
		return get_list(ch, segment);
	}
	result = keep_buf(ch, &segment->src_buf, source->map, source->addr, source->length);
	if (result != DOCA_SUCCESS) {
		return result;
	}
	return keep_buf(ch, &segment->dst_buf, segment->dst_map, segment->dst, 0);
}

static inline doca_error_t
prepare(struct adma_channel *ch, struct segment *segment)
{
	struct adma_library *lib = ch->lib;
	union doca_data user_data = {.ptr = segment};
	doca_error_t result = get_bufs(ch, segment);
	struct doca_buf *src = segment->list != NULL ? segment->list : segment->src_buf.buf;

	if (result != DOCA_SUCCESS) {
		return result;
	}
	if (segment->task == NULL) {
		result = lib->doca_dma_task_memcpy_alloc_init(ch->dma, src, segment->dst_buf.buf,
							      user_data, &segment->task);
		if (result == DOCA_SUCCESS) {
			segment->base = lib->doca_dma_task_memcpy_as_task(segment->task);
		}
		return result;
	}
	lib->doca_dma_task_memcpy_set_src(segment->task, src);
	lib->doca_dma_task_memcpy_set_dst(segment->task, segment->dst_buf.buf);
	return DOCA_SUCCESS;
}

static doca_error_t
submit(struct adma_channel *ch, struct segment *segment)
{
	struct doca_task *task = segment->base;
	doca_error_t result;

	if (!ch->held_back) {
		return ch->lib->doca_task_submit(task);
	}
	if (ch->alone != NULL) {
		result = ch->lib->doca_task_submit_ex(task, DOCA_TASK_SUBMIT_FLAG_FLUSH);
		if (result == DOCA_SUCCESS) {
			ch->unflushed = false;
			ch->counters.doorbells++;
		}
		return result;
	}
	result = ch->lib->doca_task_submit_ex(task, DOCA_TASK_SUBMIT_FLAG_NONE);
	if (result == DOCA_SUCCESS) {
		ch->unflushed = true;
	}
	return result;
}

/*
 * A submit has failed: has DOCA the task all the same? By its rules the task is the user's again; the number of tasks
 * in flight tells whether it is so. If it is not, freeing task or bufs would hand memory back that is still written.
 */
static bool
was_accepted(struct adma_channel *ch)
{
	size_t num_tasks;

	return ch->lib->doca_ctx_get_num_inflight_tasks(ch->ctx, &num_tasks) == DOCA_SUCCESS &&
	       num_tasks > ch->in_flight;
}

/* The segment is with DOCA. */
static void
note_submitted(struct adma_channel *ch, struct segment *segment)
{
	ch->starved = 0;
	ch->in_flight++;
	ch->in_flight_bytes += segment->length;
	ch->counters.segments_submitted++;
	if (ch->in_flight > ch->counters.peak_in_flight) {
		ch->counters.peak_in_flight = ch->in_flight;
	}
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
		note_submitted(ch, segment);
		return true;
	}
	if (phase == ADMA_PHASE_SUBMIT && was_accepted(ch)) {
		ch->unflushed = ch->held_back;
		note_submitted(ch, segment);
		if (!is_backpressure(ch, result)) {
			fail_segment(ch, segment, result, phase,
				     false); /* its copy ends when DOCA lets go */
		}
		return true;
	}
	drop_bufs(ch, segment);
	if (is_backpressure(ch, result)) {
		if (ch->in_flight > 0 || ch->starved < ADMA_MAX_STARVED_TURNS) {
			return false;
		}
		/* No completion will ever make room: this copy is told, the next may try. */
		ch->starved = 0;
	} else if (result == DOCA_ERROR_BAD_STATE && ch->ctx_state != DOCA_CTX_STATE_RUNNING) {
		adma_set_state(ch, ADMA_CHANNEL_FAILING);
		return false;
	}
	segment->copy->segments--;
	fail_segment(ch, segment, result, phase, false);
	adma_settle(ch, segment->copy);
	adma_segment_free(ch, segment);
	return true;
}

/* How long a segment of this copy may be. */
static uint64_t
segment_limit(const struct adma_channel *ch, const struct adma_copy *copy)
{
	const struct adma_channel_config *config = &ch->config;

	if (config->stripe_bytes == 0) {
		return ch->segment_bytes;
	}
	if (ch->contended) {
		return adma_min(config->fair_bytes, ch->segment_bytes);
	}
	return adma_min(adma_max(config->stripe_bytes, copy->length / NUM_STRIPES),
			ch->segment_bytes);
}

/* How much DOCA may hold: while a short copy goes beside a long one just what keeps the engine busy. */
static uint64_t
window_bytes(const struct adma_channel *ch)
{
	uint64_t bound = ch->config.window_bytes != 0 ? ch->config.window_bytes : UINT64_MAX;

	if (ch->config.stripe_bytes == 0) {
		return bound;
	}
	return adma_min(bound, ch->contended ? ch->config.fair_window_bytes
					     : NUM_STRIPES * ch->segment_bytes);
}

/* The piece in which the next segment of a plan begins, what was cut of it left out; empty ones are passed over. */
static void
next_piece(struct adma_plan *plan, struct adma_piece *piece)
{
	for (;;) {
		plan->piece(plan, plan->index, piece);
		if (plan->offset < piece->length) {
			break;
		}
		plan->index++;
		plan->offset = 0;
	}
	piece->src += plan->offset;
	piece->dst += plan->offset;
	piece->length -= plan->offset;
}

/* Join pieces whose destination goes on where the segment ends: their sources become a list. */
static void
join_pieces(struct adma_channel *ch, struct segment *segment, struct adma_plan *plan,
	    uint64_t limit)
{
	struct adma_piece piece;

	while (segment->num_sources < ch->list_len && segment->length < limit &&
	       plan->index + 1 < plan->count) {
		plan->piece(plan, plan->index + 1, &piece);
		if (piece.dst_map != segment->dst_map ||
		    piece.dst != segment->dst + segment->length || piece.length == 0 ||
		    piece.length > limit - segment->length) {
			return;
		}
		segment->sources[segment->num_sources++] =
			(struct source){piece.src_map, piece.src, piece.length};
		segment->length += piece.length;
		plan->index++;
	}
}

/* Cut the next segment of the copy whose turn it is, no longer than the limit. */
static inline void
cut(struct adma_channel *ch, struct segment *segment, struct adma_copy *copy, uint64_t limit)
{
	struct adma_plan *plan = copy->plan;
	struct adma_piece piece;

	if (plan == NULL) {
		piece = (struct adma_piece){
			copy->src_map, copy->dst_map, copy->src + copy->submitted,
			copy->dst + copy->submitted, copy->length - copy->submitted};
	} else {
		next_piece(plan, &piece);
		segment->index = plan->index;
		segment->offset = plan->offset;
	}
	segment->copy = copy;
	segment->dst_map = piece.dst_map;
	segment->dst = piece.dst;
	segment->length = adma_min(piece.length, limit);
	segment->sources[0] = (struct source){piece.src_map, piece.src, segment->length};
	segment->num_sources = 1;
	if (plan != NULL) {
		plan->offset += segment->length;
		if (segment->length == piece.length) {
			if (!plan->independent) {
				join_pieces(ch, segment, plan, limit);
			}
			plan->index++; /* all of the piece, and of those joined to it */
			plan->offset = 0;
		}
	}
	copy->submitted += segment->length;
	copy->segments++;
	segment->share = adma_max(segment->length, limit / MIN_SHARE);
	ch->tenure += segment->share;
}

static void
uncut(struct adma_channel *ch, struct segment *segment)
{
	struct adma_copy *copy = segment->copy;

	if (copy->plan != NULL) {
		copy->plan->index = segment->index;
		copy->plan->offset = segment->offset;
	}
	copy->submitted -= segment->length;
	copy->segments--;
	ch->tenure -= segment->share;
	adma_segment_free(ch, segment);
}

/*
 * May DOCA have one more? Flushed segments are suspects: what status DOCA gives a flushed task is not known, so one that
 * was flushed may as well have failed by itself. They are replayed one at a time; alone, a failure is its own.
 */
static bool
has_room(const struct adma_channel *ch)
{
	if (ch->replay != NULL || (ch->suspect && ch->in_flight > 0)) {
		return ch->in_flight == 0;
	}
	return ch->in_flight < ch->window && ch->in_flight_bytes < window_bytes(ch);
}

/* Would filling give DOCA anything, if it took it? */
bool
adma_worth_filling(const struct adma_channel *ch)
{
	return ch->state == ADMA_CHANNEL_RUNNING &&
	       (ch->waiting.head != NULL || ch->replay != NULL) && has_room(ch);
}

/*
 * Give DOCA what it has room for of the copy whose turn it is. The copy leaves the waiting list when all of it is handed
 * out, and goes to the tail after its quantum.
 *
 * @return false if DOCA took a segment back
 */
static bool
send_turn(struct adma_channel *ch, struct adma_copy *copy)
{
	uint64_t limit = segment_limit(ch, copy);
	uint64_t quantum = limit * (ch->contended ? 1 : QUANTUM_SEGMENTS);
	uint64_t room = window_bytes(ch);

	ch->suspect = false;
	do {
		struct segment *segment = ch->free;

		ch->free = segment->next;
		cut(ch, segment, copy, limit);
		if (!send(ch, segment)) {
			uncut(ch, segment);
			return false;
		}
		if (!copy->waiting) {
			return true; /* it failed */
		}
		if (copy->submitted == copy->length) {
			adma_wait_remove(ch, copy);
			return true;
		}
	} while (ch->tenure < quantum && ch->in_flight < ch->window && ch->in_flight_bytes < room);
	if (ch->tenure >= quantum) {
		adma_wait_remove(ch, copy);
		adma_wait_append(ch, copy);
	}
	return true;
}

/* Give DOCA as much as it has room for. */
void
adma_fill(struct adma_channel *ch)
{
	while (adma_worth_filling(ch)) {
		struct segment *segment;

		if (ch->replay == NULL) {
			if (!send_turn(ch, ch->waiting.head)) {
				return;
			}
			continue;
		}
		segment = adma_replay_take(ch);
		if (!send(ch, segment)) {
			adma_replay_put_back(ch, segment);
			return;
		}
		ch->suspect = true;
		ch->counters.segments_replayed++;
	}
}

/* May this copy go to DOCA past the waiting list: does nothing wait before it, and does one segment carry it? */
static bool
goes_at_once(const struct adma_channel *ch, const struct adma_copy *copy)
{
	return ch->waiting.head == NULL && ch->replay == NULL && copy->plan == NULL &&
	       ch->state == ADMA_CHANNEL_RUNNING && has_room(ch) &&
	       copy->length <= segment_limit(ch, copy);
}

/* Take a new copy: give DOCA what it has room for, the rest waits. */
void
adma_take(struct adma_channel *ch, struct adma_copy *copy)
{
	struct segment *segment = ch->free;

	if (!goes_at_once(ch, copy)) {
		adma_wait_append(ch, copy);
		adma_fill(ch);
		return;
	}
	ch->suspect = false;
	ch->free = segment->next;
	segment->copy = copy;
	segment->dst_map = copy->dst_map;
	segment->dst = copy->dst;
	segment->length = copy->length;
	segment->share = 0;
	segment->sources[0] = (struct source){copy->src_map, copy->src, copy->length};
	segment->num_sources = 1;
	copy->submitted = copy->length;
	copy->segments = 1;
	if (!send(ch, segment)) {
		uncut(ch, segment);
		adma_wait_append(ch, copy);
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
