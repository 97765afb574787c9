/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the channel share: channel.c (copies and turns), submit.c (tasks to DOCA and back), context.c (start,
 * recycle, close) and graveyard.c (closed maps).
 */
#ifndef ADMA_CHANNEL_IMPL_H
#define ADMA_CHANNEL_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "channel.h"

/* What is rare: out of the way, so that what is not needs no registers saved for it. */
#define ADMA_COLD __attribute__((noinline, cold))

/* Lists of bufs longer than this gain nothing. */
#define ADMA_MAX_LIST 16

/* One element of a segment's source list. */
struct source {
	struct adma_mmap *map;
	char *addr;
	uint64_t length;
};

/* A buf over all of a map, kept for the next segment that is in the same map; its data is set anew for each. */
struct kept_buf {
	struct doca_buf *buf;
	struct adma_mmap *map; /* NULL: no buf */
};

/*
 * One task's worth of a copy. There are as many as the window has places; one keeps its DOCA task and bufs from submit to submit.
 *
 *            take               submitted                    completed
 *    FREE ---------> (filling) -----------> with DOCA -------------------------------> FREE
 *                                               | flushed by another task's failure     ^
 *                                               +--------------------> REPLAY ----------+ submitted anew, or dropped
 */
struct segment {
	struct segment *next; /* free or replay list */
	struct adma_copy *copy;
	struct doca_dma_task_memcpy
		*task;		/* ours while the segment is not with DOCA; NULL: none allocated */
	struct doca_task *base; /* the same */
	struct kept_buf src_buf;
	struct kept_buf dst_buf;
	struct doca_buf
		*list; /* of several sources: its head; made for one submit, dst_buf with it */
	struct adma_mmap *dst_map;
	char *dst;
	uint64_t length; /* of all sources */
	uint64_t share;	 /* what it counts in its copy's turn */
	uint64_t index;	 /* where in the plan it begins */
	uint64_t offset;
	bool may_fail_again; /* its piece: by another segment, or this one, which DOCA refused and took */
	uint32_t num_sources;
	struct source *sources; /* room for as many as a buf list may have */
};

struct copy_list {
	struct adma_copy *head;
	struct adma_copy *tail;
};

struct adma_channel {
	/* fixed at open */
	struct adma_library *lib;
	struct adma_device *device;
	struct adma_channel_config config;
	bool mode_all;	/* event mode ALL: progress is allowed while armed */
	bool held_back; /* submit with NONE and flush once a turn */
	int fd;
	uint32_t num_segments; /* the window may be less: it follows the pool, the segments stay */
	uint32_t max_list_len; /* as many sources a segment has room for */

	/* replaced by a recycle, in the worker */
	struct doca_pe *pe;
	struct doca_buf_inventory *inventory;
	struct doca_dma *dma;
	struct doca_ctx *ctx;
	struct adma_caps caps;
	uint32_t num_tasks;
	uint32_t window;
	uint32_t list_len;	/* elements of a source list; at most max_list_len */
	uint64_t segment_bytes; /* most bytes a task moves */

	/* the loop's thread */
	enum adma_channel_state state;	/* see adma_parked() */
	enum doca_ctx_states ctx_state; /* as the state callback last said */
	bool fault;			/* a task failed and its burst is not over */
	doca_error_t culprit;		/* with this code */
	bool park;			/* park when DOCA holds nothing */
	bool armed;
	bool unflushed; /* submitted, doorbell not rung */
	struct adma_copy *
		alone; /* being tried for an end at once: it rings the doorbell itself, and goes to no list */
	bool suspect;		 /* what is in flight alone is a replayed segment */
	doca_error_t stuck_buf;	 /* what DOCA answered when it did not take a buf back */
	doca_error_t clear_code; /* of the last clear that failed */
	uint32_t in_flight;
	uint64_t in_flight_bytes;
	uint32_t faults_in_a_row;
	uint32_t num_transitions;
	uint8_t transitions[8];
	uint32_t starved;     /* turns in a row without room and with nothing in flight */
	uint32_t idle_turns;  /* turns in a row waiting for IDLE */
	uint32_t spin_misses; /* in a row */
	uint32_t skip_spins;  /* waits that are not worth one, after misses */
	uint64_t num_long;    /* pending copies longer than the fair window */
	bool contended;	      /* a short copy came beside a long one: they are cut short */
	uint64_t tenure;      /* bytes the head of the waiting list has sent in its turn */
	uint64_t pending;     /* copies started and not ended */
	uint64_t num_waiting; /* copies on the waiting list */
	struct copy_list waiting;
	struct copy_list done;
	struct segment *segments;
	struct source *sources; /* max_list_len for each segment */
	struct segment *free;
	struct segment *replay;
	struct segment **replay_tail;
	struct adma_counters counters;
	uint64_t failed[ADMA_NUM_CODES];
	struct adma_latency *latency; /* NULL: not measured */
	uint64_t flushed_before;      /* the fault that is on */
	doca_error_t refusal;	      /* why DOCA took no task when it last did not */

	/* any thread, under the lock */
	pthread_mutex_t maps_lock;
	struct adma_mmap *maps; /* registered for this channel and not buried */
	struct adma_mmap *graveyard;
	/* written under the lock, read without */
	_Atomic uint64_t buried_bytes;
	_Atomic uint32_t buried_maps;
	struct adma_recorder recorder;
};

static inline int64_t
adma_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

/* ---- lists, and the end of a copy ---- */

static inline void
adma_list_append(struct copy_list *list, struct adma_copy *copy)
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

static inline void
adma_list_remove(struct copy_list *list, struct adma_copy *copy)
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

static inline void
adma_wait_append(struct adma_channel *ch, struct adma_copy *copy)
{
	adma_list_append(&ch->waiting, copy);
	copy->waiting = 1;
	ch->num_waiting++;
}

static inline void
adma_wait_remove(struct adma_channel *ch, struct adma_copy *copy)
{
	if (ch->waiting.head == copy) {
		ch->tenure = 0;
	}
	adma_list_remove(&ch->waiting, copy);
	copy->waiting = 0;
	ch->num_waiting--;
}

static inline void
adma_segment_free(struct adma_channel *ch, struct segment *segment)
{
	segment->copy = NULL;
	segment->next = ch->free;
	ch->free = segment;
}

static inline void
adma_replay_append(struct adma_channel *ch, struct segment *segment)
{
	segment->next = NULL;
	*ch->replay_tail = segment;
	ch->replay_tail = &segment->next;
}

static inline struct segment *
adma_replay_take(struct adma_channel *ch)
{
	struct segment *segment = ch->replay;

	ch->replay = segment->next;
	if (ch->replay == NULL) {
		ch->replay_tail = &ch->replay;
	}
	return segment;
}

static inline void
adma_replay_put_back(struct adma_channel *ch, struct segment *segment)
{
	segment->next = ch->replay;
	if (ch->replay == NULL) {
		ch->replay_tail = &segment->next;
	}
	ch->replay = segment;
}

#define ADMA_ALL_PIECES UINT64_MAX

/* Drop the flushed segments of a copy, or those that begin in one piece of it. */
static inline void
adma_replay_drop(struct adma_channel *ch, struct adma_copy *copy, uint64_t piece)
{
	struct segment *segment = ch->replay;

	ch->replay = NULL;
	ch->replay_tail = &ch->replay;
	while (segment != NULL) {
		struct segment *next = segment->next;

		if (segment->copy == copy &&
		    (piece == ADMA_ALL_PIECES || segment->index == piece)) {
			copy->segments--;
			adma_segment_free(ch, segment);
		} else {
			adma_replay_append(ch, segment);
		}
		segment = next;
	}
}

/* ---- the end of a copy ---- */

/* submit.c */
void
adma_count_failure(struct adma_channel *ch, const struct adma_copy *copy);

static inline void
adma_count_end(struct adma_channel *ch, const struct adma_copy *copy)
{
	if (copy->cancelled) {
		ch->counters.copies_cancelled++;
	} else if (copy->code != DOCA_SUCCESS || copy->flushed ||
		   (copy->plan != NULL && copy->plan->num_failures > 0)) {
		adma_count_failure(ch, copy);
	} else if (copy->abandoned) {
		ch->counters.copies_abandoned++;
	} else {
		ch->counters.copies_completed++;
	}
}

/* The channel's state as the recorder sees it. */
static inline void
adma_set_state(struct adma_channel *ch, enum adma_channel_state state)
{
	if (ch->state != state) {
		adma_channel_note(ch, ADMA_EVENT_CHANNEL, ch->state, state, 0);
		__atomic_store_n(&ch->state, state, __ATOMIC_RELAXED);
	}
}

/* Ask for no notification any more. */
static inline void
adma_disarm(struct adma_channel *ch)
{
	if (ch->armed) {
		(void)ch->lib->doca_pe_clear_notification(ch->pe, ch->fd);
		ch->armed = false;
	}
}

/*
 * Has the loop's thread nothing to do but wait for a worker, or for the end? A turn that was scheduled before may ask so
 * while the worker makes PARKED or LOST into CLOSED: the answer is the same. Then nothing else is asked of the state.
 */
static inline bool
adma_parked(const struct adma_channel *ch)
{
	enum adma_channel_state state = __atomic_load_n(&ch->state, __ATOMIC_RELAXED);

	return state == ADMA_CHANNEL_PARKED || state >= ADMA_CHANNEL_LOST;
}

/* End the copy if nothing of it is with DOCA, due for replay, or waiting. */
static inline void
adma_settle(struct adma_channel *ch, struct adma_copy *copy)
{
	if (copy->segments > 0 || copy->waiting) {
		return;
	}
	if (copy->completed == copy->length) {
		copy->abandoned = 0; /* all of it was with DOCA when the rest was called off */
	}
	copy->state = ADMA_COPY_ENDED;
	ch->pending--;
	ch->num_long -= copy->length > ch->config.fair_window_bytes;
	ch->contended = ch->contended && ch->num_long > 0;
	adma_count_end(ch, copy);
	if (copy != ch->alone) {
		adma_list_append(&ch->done, copy);
	}
}

/* Record the first failure and let nothing more of the copy reach DOCA. */
static inline void
adma_fail_copy(struct adma_channel *ch, struct adma_copy *copy, doca_error_t code,
	       enum adma_phase phase)
{
	if (copy->code == DOCA_SUCCESS) {
		copy->code = (uint16_t)code;
		copy->phase = (uint8_t)phase;
	}
	if (copy->waiting) {
		adma_wait_remove(ch, copy);
	}
	adma_replay_drop(ch, copy, ADMA_ALL_PIECES);
}

static inline uint64_t
adma_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t
adma_max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* How often DOCA is asked again, once a turn, while it refuses for lack of room and holds nothing of ours. */
#define ADMA_MAX_STARVED_TURNS 64

/* submit.c */
void
adma_on_completed(struct doca_dma_task_memcpy *task, union doca_data task_data,
		  union doca_data ctx_data);
void
adma_on_failed(struct doca_dma_task_memcpy *task, union doca_data task_data,
	       union doca_data ctx_data);
void
adma_on_state_changed(const union doca_data user_data, struct doca_ctx *ctx,
		      enum doca_ctx_states prev, enum doca_ctx_states next);
void
adma_fill(struct adma_channel *ch);
bool
adma_worth_filling(const struct adma_channel *ch);
void
adma_flush(struct adma_channel *ch);
void
adma_take(struct adma_channel *ch, struct adma_copy *copy);
void
adma_free_all_tasks(struct adma_channel *ch);
void
adma_drop_oversize(struct adma_channel *ch);

/* graveyard.c: is a recycle due because closed maps pin too much? */
bool
adma_graveyard_full(const struct adma_channel *ch);
/* The first failure, if any; what could not be unregistered stays pinned. */
doca_error_t
adma_graveyard_empty(struct adma_channel *ch);
doca_error_t
adma_unregister_live_maps(struct adma_channel *ch);

#endif
