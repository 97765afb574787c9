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
	for (uint32_t i = 0; i < ch->num_segments; i++) {
		free_task(ch, &ch->segments[i]);
		drop_bufs(ch, &ch->segments[i]);
	}
}

/* Has the segment's piece failed before? */
static bool
piece_has_failed(const struct segment *segment)
{
	const struct adma_plan *plan = segment->copy->plan;

	if (!segment->may_fail_again || plan == NULL) {
		return false; /* as nearly always: there may be many failures to look through */
	}
	for (uint64_t i = plan->num_failures; i > 0; i--) {
		if (plan->failures[i - 1].index == segment->index) {
			return true;
		}
	}
	return false;
}

/* Note the failure of an independent piece; without memory for the note, the whole copy fails. */
static bool
note_failure(struct adma_plan *plan, const struct adma_piece_failure *failure)
{
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

/* An independent piece has failed: nothing more of it reaches DOCA. */
static void
skip_piece(struct adma_channel *ch, struct adma_copy *copy, uint64_t index)
{
	struct adma_plan *plan = copy->plan;

	if (plan->index == index) {
		copy->submitted += adma_plan_piece(plan, index)->length - plan->offset;
		plan->index++;
		plan->offset = 0;
		if (copy->submitted == copy->length && copy->waiting) {
			adma_wait_remove(ch, copy);
		}
	}
	adma_replay_drop(ch, copy, index);
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
	if (copy->plan != NULL && copy->plan->independent &&
	    (piece_has_failed(segment) || note_failure(copy->plan, &failure))) {
		if (segment->may_fail_again) {
			skip_piece(ch, copy, segment->index);
		}
		return;
	}
	if (copy->code == DOCA_SUCCESS) {
		copy->flushed =
			flushed; /* if it is the first failure: else the copy has an error of its own */
	}
	adma_fail_copy(ch, copy, code, phase);
}

/* A flushed segment that the device, as it is since the restart, does not take. */
static struct segment *
find_oversize(const struct adma_channel *ch)
{
	struct segment *segment = ch->replay;

	while (segment != NULL && segment->length <= ch->segment_bytes &&
	       segment->num_sources <= ch->list_len) {
		segment = segment->next;
	}
	return segment;
}

/* Flushed segments longer than the device takes since the restart cannot be replayed as they are. */
void
adma_drop_oversize(struct adma_channel *ch)
{
	struct segment *segment;

	while ((segment = find_oversize(ch)) != NULL) {
		struct adma_copy *copy = segment->copy;
		uint64_t index = segment->index;

		fail_segment(ch, segment, ch->culprit, ADMA_PHASE_COMPLETE, true);
		adma_replay_drop(ch, copy, index);
		adma_settle(ch, copy);
	}
}

static inline void
complete(struct adma_channel *ch, struct segment *segment)
{
	struct adma_copy *copy = segment->copy;

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

ADMA_COLD static void
complete_list(struct adma_channel *ch, struct segment *segment)
{
	drop_list(ch, segment);
	drop_buf(ch, &segment->dst_buf);
	complete(ch, segment);
}

void
adma_on_completed(struct doca_dma_task_memcpy *task, union doca_data task_data,
		  union doca_data ctx_data)
{
	struct adma_channel *ch = ctx_data.ptr;
	struct segment *segment = task_data.ptr;

	(void)task;
	if (doca_unlikely(segment->list != NULL)) {
		complete_list(ch, segment);
		return;
	}
	complete(ch, segment);
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
	       copy->code == DOCA_SUCCESS && !copy->flushed && !piece_has_failed(segment) &&
	       !segment->dst_map->imported && ch->culprit != DOCA_ERROR_DRIVER;
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

/* Keep a buf of another map. */
ADMA_COLD static doca_error_t
replace_buf(struct adma_channel *ch, struct kept_buf *kept, struct adma_mmap *map, char *data,
	    uint64_t data_length)
{
	doca_error_t result;

	drop_buf(ch, kept);
	result = get_buf(ch, map, map->addr, map->length, data, data_length, &kept->buf);
	if (result == DOCA_SUCCESS) {
		kept->map = map;
	}
	return result;
}

/* Have a kept buf hold these bytes of a map. */
static inline doca_error_t
keep_buf(struct adma_channel *ch, struct kept_buf *kept, struct adma_mmap *map, char *data,
	 uint64_t data_length)
{
	if (doca_likely(kept->map == map)) {
		return ch->lib->doca_buf_set_data(kept->buf, data, data_length);
	}
	return replace_buf(ch, kept, map, data, data_length);
}

/*
 * The list of a segment's sources, and a buf of just its destination: a list ends where its destination does. What was
 * made is in the segment also after a failure.
 */
ADMA_COLD static doca_error_t
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

/* Since a restart the pool may have fewer tasks than there are segments: one that is free gives up the task it keeps. */
static void
free_spare_task(struct adma_channel *ch)
{
	struct segment *segment = ch->free;

	while (segment != NULL && segment->task == NULL) {
		segment = segment->next;
	}
	if (segment != NULL) {
		free_task(ch, segment);
	}
}

ADMA_COLD static doca_error_t
alloc_task(struct adma_channel *ch, struct segment *segment, struct doca_buf *src)
{
	union doca_data user_data = {.ptr = segment};
	doca_error_t result;

	if (ch->num_segments > ch->num_tasks) {
		free_spare_task(ch);
	}
	result = ch->lib->doca_dma_task_memcpy_alloc_init(ch->dma, src, segment->dst_buf.buf,
							  user_data, &segment->task);
	if (result == DOCA_SUCCESS) {
		segment->base = ch->lib->doca_dma_task_memcpy_as_task(segment->task);
	}
	return result;
}

/* Bufs and a task for a segment, from its `num_sources`, the first of which is `source`, to `dst`. */
static inline doca_error_t
prepare(struct adma_channel *ch, struct segment *segment, const struct source source, char *dst)
{
	struct doca_buf *src;
	doca_error_t result;

	if (doca_likely(segment->num_sources == 1)) {
		result = keep_buf(ch, &segment->src_buf, source.map, source.addr, source.length);
		if (doca_likely(result == DOCA_SUCCESS)) {
			result = keep_buf(ch, &segment->dst_buf, segment->dst_map, dst, 0);
		}
		src = segment->src_buf.buf;
	} else {
		result = get_list(ch, segment);
		src = segment->list;
	}
	if (doca_unlikely(result != DOCA_SUCCESS)) {
		return result;
	}
	if (doca_unlikely(segment->task == NULL)) {
		return alloc_task(ch, segment, src);
	}
	ch->lib->doca_dma_task_memcpy_set_src(segment->task, src);
	ch->lib->doca_dma_task_memcpy_set_dst(segment->task, segment->dst_buf.buf);
	return DOCA_SUCCESS;
}

static inline doca_error_t
submit(struct adma_channel *ch, struct segment *segment)
{
	struct doca_task *task = segment->base;
	doca_error_t result;

	if (doca_unlikely(!ch->held_back)) {
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
static inline void
note_submitted(struct adma_channel *ch, struct segment *segment)
{
	ch->in_flight++;
	ch->in_flight_bytes += segment->length;
}

/* Count what was submitted since DOCA held so many: no task comes home in between. */
static inline void
count_submitted(struct adma_channel *ch, uint32_t in_flight)
{
	if (ch->in_flight == in_flight) {
		return;
	}
	ch->starved = 0;
	ch->counters.segments_submitted += ch->in_flight - in_flight;
	if (ch->in_flight > ch->counters.peak_in_flight) {
		ch->counters.peak_in_flight = ch->in_flight;
	}
}

/* What became of a segment. */
enum sent {
	SENT,	    /* it is with DOCA */
	ENDED,	    /* its copy has failed, or its piece: go on with the next */
	TAKEN_BACK, /* no room, or the context is not RUNNING any more: it is the caller's */
};

/* DOCA did not say yes to a segment. */
ADMA_COLD static enum sent
not_sent(struct adma_channel *ch, struct segment *segment, doca_error_t result,
	 enum adma_phase phase)
{
	if (phase == ADMA_PHASE_SUBMIT && was_accepted(ch)) {
		ch->unflushed = ch->held_back;
		note_submitted(ch, segment);
		if (!is_backpressure(ch, result)) {
			fail_segment(ch, segment, result, phase,
				     false); /* its copy ends when DOCA lets go */
			segment->may_fail_again = true;
			return ENDED;
		}
		return SENT;
	}
	drop_bufs(ch, segment);
	if (is_backpressure(ch, result)) {
		if (ch->in_flight > 0 || ch->starved < ADMA_MAX_STARVED_TURNS) {
			return TAKEN_BACK;
		}
		/* No completion will ever make room: this copy is told, the next may try. */
		ch->starved = 0;
	} else if (result == DOCA_ERROR_BAD_STATE && ch->ctx_state != DOCA_CTX_STATE_RUNNING) {
		adma_set_state(ch, ADMA_CHANNEL_FAILING);
		return TAKEN_BACK;
	}
	segment->copy->segments--;
	fail_segment(ch, segment, result, phase, false);
	adma_settle(ch, segment->copy);
	adma_segment_free(ch, segment);
	return ENDED;
}

/* Hand a filled segment to DOCA; see prepare(). */
static inline enum sent
send(struct adma_channel *ch, struct segment *segment, const struct source source, char *dst)
{
	doca_error_t result = prepare(ch, segment, source, dst);

	if (doca_unlikely(result != DOCA_SUCCESS)) {
		return not_sent(ch, segment, result, ADMA_PHASE_ALLOC);
	}
	result = submit(ch, segment);
	if (doca_unlikely(result != DOCA_SUCCESS)) {
		return not_sent(ch, segment, result, ADMA_PHASE_SUBMIT);
	}
	note_submitted(ch, segment);
	return SENT;
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

/* The piece in which the next segment of a plan begins; empty ones are passed over. */
static inline const struct adma_piece *
next_piece(struct adma_plan *plan)
{
	const struct adma_piece *piece = adma_plan_piece(plan, plan->index);

	while (doca_unlikely(plan->offset >= piece->length)) {
		plan->offset = 0;
		piece = adma_plan_piece(plan, ++plan->index);
	}
	return piece;
}

/* Join pieces whose destination goes on where the segment ends: their sources become a list. */
static void
join_pieces(struct adma_channel *ch, struct segment *segment, struct adma_plan *plan,
	    uint64_t limit)
{
	while (segment->num_sources < ch->list_len && segment->length < limit &&
	       plan->index + 1 < plan->count) {
		const struct adma_piece *piece = adma_plan_piece(plan, plan->index + 1);

		if (piece->dst_map != segment->dst_map ||
		    piece->dst != segment->dst + segment->length || piece->length == 0 ||
		    piece->length > limit - segment->length) {
			return;
		}
		segment->sources[segment->num_sources++] =
			(struct source){piece->src_map, piece->src, piece->length};
		segment->length += piece->length;
		plan->index++;
	}
}

/* Begin a segment with what is left of a range, no longer than the limit; gives its first source. */
static inline struct source
begin_segment(struct segment *segment, struct adma_copy *copy, const struct adma_piece *piece,
	      uint64_t offset, uint64_t limit)
{
	struct source source = {piece->src_map, piece->src + offset,
				adma_min(piece->length - offset, limit)};

	segment->sources[0] = source;
	segment->num_sources = 1;
	segment->copy = copy;
	segment->dst_map = piece->dst_map;
	segment->dst = piece->dst + offset;
	segment->length = source.length;
	return source;
}

/* Cut the next segment of a plan, no longer than the limit; gives its first source. */
static inline struct source
cut_plan(struct adma_channel *ch, struct segment *segment, struct adma_copy *copy, uint64_t limit)
{
	struct adma_plan *plan = copy->plan;
	const struct adma_piece *piece = next_piece(plan);
	uint64_t index = plan->index, offset = plan->offset;
	bool is_rest = piece->length - offset <= limit;
	struct source source = begin_segment(segment, copy, piece, offset, limit);

	segment->index = index;
	segment->offset = offset;
	segment->may_fail_again = offset != 0 || !is_rest;
	if (!is_rest) {
		plan->offset = offset + source.length;
		return source;
	}
	if (!plan->independent) {
		join_pieces(ch, segment, plan, limit);
	}
	plan->index++; /* all of the piece, and of those joined to it */
	plan->offset = 0;
	return source;
}

/* Cut the next segment of the copy whose turn it is, no longer than the limit; gives its first source. */
static inline struct source
cut(struct adma_channel *ch, struct segment *segment, struct adma_copy *copy, uint64_t limit)
{
	struct source source;

	if (copy->plan != NULL) {
		source = cut_plan(ch, segment, copy, limit);
	} else {
		const struct adma_piece whole = {copy->src_map, copy->dst_map, copy->src, copy->dst,
						 copy->length};

		source = begin_segment(segment, copy, &whole, copy->submitted, limit);
	}
	copy->submitted += segment->length;
	copy->segments++;
	segment->share = adma_max(segment->length, limit / MIN_SHARE);
	ch->tenure += segment->share;
	return source;
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
	uint32_t in_flight = ch->in_flight;
	enum sent sent;

	ch->suspect = false;
	do {
		struct segment *segment = ch->free;
		struct source source;

		ch->free = segment->next;
		source = cut(ch, segment, copy, limit);
		sent = send(ch, segment, source, segment->dst);
		if (doca_unlikely(sent != SENT)) {
			if (sent == TAKEN_BACK) {
				uncut(ch, segment);
				break;
			}
			if (!copy->waiting) {
				break; /* it failed */
			}
		}
		if (copy->submitted == copy->length) {
			adma_wait_remove(ch, copy);
			adma_settle(ch,
				    copy); /* if its last pieces failed and no other is with DOCA */
			break;
		}
	} while (ch->tenure < quantum && ch->in_flight < ch->window && ch->in_flight_bytes < room);
	count_submitted(ch, in_flight);
	if (sent != TAKEN_BACK && copy->waiting && ch->tenure >= quantum) {
		adma_wait_remove(ch, copy);
		adma_wait_append(ch, copy);
	}
	return sent != TAKEN_BACK;
}

/* Give DOCA as much as it has room for. */
void
adma_fill(struct adma_channel *ch)
{
	while (adma_worth_filling(ch)) {
		struct segment *segment;
		uint32_t in_flight = ch->in_flight;

		if (ch->replay == NULL) {
			if (!send_turn(ch, ch->waiting.head)) {
				return;
			}
			continue;
		}
		segment = adma_replay_take(ch);
		if (send(ch, segment, segment->sources[0], segment->dst) == TAKEN_BACK) {
			adma_replay_put_back(ch, segment);
			return;
		}
		count_submitted(ch, in_flight);
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
	const struct source source = {copy->src_map, copy->src, copy->length};
	struct segment *segment = ch->free;
	uint32_t in_flight = ch->in_flight;

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
	segment->sources[0] = source;
	segment->num_sources = 1;
	copy->submitted = copy->length;
	copy->segments = 1;
	if (send(ch, segment, source, copy->dst) == TAKEN_BACK) {
		uncut(ch, segment);
		adma_wait_append(ch, copy);
	}
	count_submitted(ch, in_flight);
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
