/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The channel: one progress engine, one DMA context, its task pool, and the state of every copy. No Python in here; the
 * layer above makes one call to start a copy and one call per wake-up to collect all that ended.
 *
 * Words: a copy is what a user awaits; a segment is the part of it that one memcpy task carries; the window is how many
 * tasks may be with DOCA at once.
 *
 *                      fault in a completion callback: DOCA flushes and stops the context
 *             +-----------------------------> FAILING ----- IDLE, all tasks freed ------+
 *             |                                                                         v
 *  open -> RUNNING --- a recycle is due, or closing ---> DRAINING -- none with DOCA -> PARKED
 *             ^                                                                      |    |
 *             +------------------- adma_channel_recycle(), in a worker --------------+    |
 *                                          | it fails                                     | adma_channel_close(),
 *                                          v                                              v in a worker
 *                                        LOST --- adma_channel_close() --------------> CLOSED
 *
 * In RUNNING segments go to DOCA; in every other state copies only wait. PARKED means that DOCA holds nothing of ours
 * and the loop's thread stays away from the progress engine: the worker may use it.
 *
 * Notification: `armed` is set by doca_pe_request_notification() and cleared by doca_pe_clear_notification(). In event
 * mode SELECTIVE nothing may progress or clear between the two except after the fd turned readable; in mode ALL
 * progress is allowed at any time, and is run once more after arming, for a completion that slipped in between the last
 * empty progress and the arm may leave the fd silent. We arm only while something is with DOCA.
 *
 * Threads: every function is for the loop's thread with the GIL held, unless it says otherwise. Functions that may
 * block, log or reach firmware (open, recycle, close, register) are called without the GIL in a worker thread while the
 * loop's thread stays away (before the channel is published, PARKED, or LOST).
 */
#ifndef ADMA_CHANNEL_H
#define ADMA_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device.h"
#include "memory.h"
#include "recorder.h"

struct adma_channel;

/*
 * One copy. Embedded in the object that owns it; the channel links it and never allocates or frees it.
 *
 *   adma_copy_init   adma_channel_start     last segment ended, or withdrawn
 *    NEW ------------------> PENDING -------------------------------------> ENDED (on the done list until taken)
 */
enum adma_copy_state {
	ADMA_COPY_NEW,
	ADMA_COPY_PENDING,
	ADMA_COPY_ENDED,
};

/* A part of a copy that is one range to one range. */
struct adma_piece {
	struct adma_mmap *src_map;
	struct adma_mmap *dst_map;
	char *src;
	char *dst;
	uint64_t length; /* bytes; may be 0 */
};

/* A piece of a plan that failed by itself; a piece cut into several tasks is here once. */
struct adma_piece_failure {
	uint64_t index;
	uint16_t code;	 /* doca_error_t */
	uint8_t phase;	 /* enum adma_phase */
	uint8_t flushed; /* ended because another task failed, and not replayed */
};

/*
 * A copy of many pieces: lists on a side, or many pairs. Owned, and freed with adma_plan_finish(), by the owner of the
 * copy; the channel keeps its place in it while the copy is pending.
 */
struct adma_plan {
	const struct adma_piece *pieces; /* `num` of them from the piece `first` on */
	uint64_t first;
	uint64_t num;
	/* Have `pieces` hold the piece at `index`, and some behind it; not called where they are all there. */
	void (*load)(struct adma_plan *plan, uint64_t index);
	uint64_t count;	  /* pieces */
	bool independent; /* one that fails keeps no other from being copied */
	/* the channel's */
	uint64_t index;	 /* of the piece in which the next segment begins */
	uint64_t offset; /* where in it */
	uint64_t num_failures;
	uint64_t max_failures;
	struct adma_piece_failure
		*failures; /* of independent pieces, in the order in which they failed */
};

/** One of a plan's pieces; what was got before it may be gone. */
static inline const struct adma_piece *
adma_plan_piece(struct adma_plan *plan, uint64_t index)
{
	if (index - plan->first >= plan->num) { /* also if it is before the first */
		plan->load(plan, index);
	}
	return &plan->pieces[index - plan->first];
}

/** Free what the channel put into a plan, not the plan. */
void
adma_plan_finish(struct adma_plan *plan);

struct adma_copy {
	struct adma_copy *next; /* waiting list, then done list */
	struct adma_copy *prev;
	struct adma_mmap *src_map;
	struct adma_mmap *dst_map;
	char *src;
	char *dst;
	struct adma_plan *plan; /* NULL: one range to one range, the four above */
	uint64_t length;	/* bytes, at least 1 */
	uint64_t submitted; /* bytes handed out in segments so far: where the next segment begins */
	uint64_t completed; /* bytes the engine has written */
	uint32_t segments;  /* with DOCA, or flushed and due for replay */
	uint16_t code;	    /* first failure: a doca_error_t, DOCA_SUCCESS if none */
	uint8_t phase : 4;  /* enum adma_phase of that failure */
	uint8_t state : 4;  /* enum adma_copy_state */
	uint8_t cancelled : 1;
	uint8_t waiting : 1;   /* on the waiting list */
	uint8_t flushed : 1;   /* ended because another task failed and it could not be replayed */
	uint8_t abandoned : 1; /* ended by adma_channel_abandon(): never (wholly) given to DOCA */
};

/* Failed copies are counted by code; the last counter is for codes that no header has. */
#define ADMA_NUM_CODES 33

/*
 * Counted where it happens, by the loop's thread only. Each copy that was started ends in exactly one of five:
 * completed, failed, flushed, cancelled, abandoned.
 */
struct adma_counters {
	uint64_t copies_started;
	uint64_t copies_completed;
	uint64_t copies_failed;
	uint64_t copies_flushed; /* another's failure ended them, and they were not replayed */
	uint64_t copies_cancelled;
	uint64_t copies_abandoned;
	uint64_t copies_below_crossover; /* so short that the CPU's own copy costs less */
	uint64_t segments_submitted;
	uint64_t segments_completed;
	uint64_t segments_failed;
	uint64_t segments_flushed;
	uint64_t segments_replayed;
	uint64_t bytes_completed;
	uint64_t again;	    /* submits answered AGAIN */
	uint64_t no_memory; /* tasks or bufs refused for lack of room */
	uint64_t recycles;  /* contexts made anew, restarts included */
	uint64_t restarts;  /* of them, after a fault */
	uint64_t turns;
	uint64_t wakeups; /* the fd was readable */
	uint64_t arms;
	uint64_t clear_errors;
	uint64_t doorbells;
	uint64_t peak_in_flight; /* segments */
	uint64_t spins;		 /* short polls instead of sleeping at once */
	uint64_t spin_hits;	 /* of them, those that found a completion */
};

struct adma_channel_config {
	uint32_t
		num_tasks; /* task pool of the context; 0: what suits the device; never above its cap */
	uint32_t window;	  /* tasks with DOCA at once; 0: all of the pool */
	uint64_t graveyard_bytes; /* recycle the context when closed maps pin more than this, */
	uint32_t graveyard_maps;  /* or are more than this */
	uint64_t window_bytes;	  /* give DOCA no more while it holds this much; 0: what suits */
	uint64_t
		stripe_bytes; /* cut long copies, down to this, to use all of the engine; 0: at the limit only */
	uint64_t fair_bytes; /* cut long copies at this while short ones go beside them, */
	uint64_t
		fair_window_bytes; /* and give DOCA no more than this; a copy is short up to this */
	uint32_t turn_budget_ns;   /* a turn stops progressing after this long; 0: never */
	uint32_t spin_ns;	   /* poll so long for a completion before arming; 0: never */
	uint64_t crossover_bytes;  /* shorter copies are counted and told of; 0: none */
	uint8_t replay;		   /* replay segments that another task's failure flushed */
	uint8_t measure_latency;   /* keep the histogram of latencies */
};

/* What a turn asks of the layer above; bits. */
enum adma_turn {
	ADMA_TURN_AGAIN = 1,  /* call adma_channel_turn() in the loop's next turn */
	ADMA_TURN_PARKED = 2, /* PARKED was reached: recycle or close */
	ADMA_TURN_IDLE = 4,   /* no copy is pending */
	ADMA_TURN_ARMED = 8,  /* waits for the notification */
	ADMA_TURN_FAULT = 16, /* FAILING: DOCA flushes */
	ADMA_TURN_CLEAR_FAILED =
		32, /* clearing the notification failed; see adma_channel_clear_code() */
};

/**
 * Open a channel: progress engine, context, pool, started; the loop's thread owns it from then on.
 *
 * @param[in] device open device; must outlive the channel
 * @param[in] config
 * @param[out] channel
 * @param[out] failure the call that failed
 * @retval DOCA_SUCCESS RUNNING
 * @retval other the code of failure->call; nothing is left open
 * Threads: a worker's, without the GIL.
 */
doca_error_t
adma_channel_open(struct adma_device *device, const struct adma_channel_config *config,
		  struct adma_channel **channel, struct adma_failure *failure);

/** The progress engine's notification fd; fixed for the channel's life. */
int
adma_channel_fd(const struct adma_channel *channel);

static inline void
adma_copy_init(struct adma_copy *copy, struct adma_mmap *src_map, char *src,
	       struct adma_mmap *dst_map, char *dst, uint64_t length)
{
	*copy = (struct adma_copy){
		.src_map = src_map, .src = src, .dst_map = dst_map, .dst = dst, .length = length};
}

/**
 * Start a copy: take it into the waiting list and give DOCA what the window allows, without ringing the doorbell.
 * Always succeeds; a failure ends the copy. The channel owns the copy until it hands it back in the done list.
 */
void
adma_channel_start(struct adma_channel *channel, struct adma_copy *copy);

/**
 * Start a copy when nothing else is pending, and try to finish it: ring the doorbell and progress at most once.
 *
 * @return true if the copy has ended; it is then not on the done list and is the caller's again
 */
bool
adma_channel_start_alone(struct adma_channel *channel, struct adma_copy *copy);

/**
 * Cancel a started copy: segments not yet given to DOCA are dropped. A copy with none at DOCA ends at once (it is put
 * on the done list). No effect on an ended or cancelled one.
 */
void
adma_channel_cancel(struct adma_channel *channel, struct adma_copy *copy);

/** End every copy of which DOCA holds nothing, as abandoned: closing, or a lost engine. */
void
adma_channel_abandon(struct adma_channel *channel);

/**
 * One turn: flush, progress until nothing is left or the budget is spent, give DOCA more, spin if that is wanted and
 * has paid off lately, arm.
 *
 * @return enum adma_turn bits
 */
unsigned
adma_channel_turn(struct adma_channel *channel);

/** The fd's reader: if the fd is readable (it may not be), clear it, then do a turn. */
unsigned
adma_channel_readable(struct adma_channel *channel);

/** Copies started and not ended of which something was not yet given to DOCA. */
uint64_t
adma_channel_num_waiting(const struct adma_channel *channel);
/** Segments that DOCA has reported, whatever became of them: whether this grows is whether the engine lives. */
uint64_t
adma_channel_num_reported(const struct adma_channel *channel);

/** What doca_pe_clear_notification() answered when it last failed. */
doca_error_t
adma_channel_clear_code(const struct adma_channel *channel);

/** Take the list of ended copies, oldest first; linked by next. */
struct adma_copy *
adma_channel_take_done(struct adma_channel *channel);

/** Make the channel park as soon as DOCA holds nothing; no new copy reaches DOCA until it is recycled. */
void
adma_channel_park(struct adma_channel *channel);

/**
 * Destroy the context, unregister the buried maps, query the device anew, make and start a context.
 *
 * @param[out] caps_changed 1 if the device's answers differ from those at open
 * @retval DOCA_SUCCESS a context runs
 * @retval other the code of failure->call; there may be no context any more
 * Threads: a worker's, without the GIL; state PARKED, which it stays until adma_channel_resume().
 */
doca_error_t
adma_channel_recycle(struct adma_channel *channel, struct adma_failure *failure, int *caps_changed);

/** After adma_channel_recycle() returned, back in the loop's thread: RUNNING if it succeeded, else LOST. */
void
adma_channel_resume(struct adma_channel *channel, bool recycled);

/**
 * Stop, destroy in reverse order of creation, unregister every map made for this channel. Idempotent. A step that fails
 * does not keep the others from being tried, except those that would free what the device may still touch.
 *
 * @param[out] failures the calls that failed, in order
 * @param[in] max room at failures
 * @return how many calls failed; what they could not undo is leaked. The state is CLOSED in any case.
 * Threads: a worker's, without the GIL; state PARKED or LOST.
 */
unsigned
adma_channel_close(struct adma_channel *channel, struct adma_failure *failures, unsigned max);

/**
 * For a channel whose loop is gone: progress for at most timeout_ns, then close if DOCA let go of everything, else leak.
 * Ended copies are on the done list afterwards.
 *
 * @return true if it was closed
 * Threads: any one.
 */
bool
adma_channel_finalize(struct adma_channel *channel, uint64_t timeout_ns);

/** Free the struct of a CLOSED channel that no map was made for any more, or that is leaked with all it holds. */
void
adma_channel_free(struct adma_channel *channel);

/** Take note of a map made for this channel, so that closing unregisters it. Threads: any. */
void
adma_channel_adopt(struct adma_channel *channel, struct adma_mmap *map);

/**
 * The layer above is done with a map (no users, no views): free it, at once if no context has used it, else when the
 * context is recycled or closed. Its pages stay until then. Threads: any; never blocks for long.
 *
 * @return whether the context is to be recycled in the next turn, for closed maps pin too much
 */
bool
adma_channel_retire(struct adma_channel *channel, struct adma_mmap *map);

enum adma_channel_state {
	ADMA_CHANNEL_RUNNING,
	ADMA_CHANNEL_FAILING,
	ADMA_CHANNEL_DRAINING,
	ADMA_CHANNEL_PARKED,
	ADMA_CHANNEL_LOST,
	ADMA_CHANNEL_CLOSED,
};

struct adma_channel_status {
	int state;	    /* enum adma_channel_state */
	uint32_t num_tasks; /* in the context's pool */
	uint32_t window;    /* tasks with DOCA at once, at most */
	uint32_t in_flight; /* segments with DOCA */
	uint64_t in_flight_bytes;
	uint32_t faults_in_a_row; /* without one completed segment between them */
	uint8_t transitions[8];	  /* the context's last states, the latest last: 16 * from + to */
	uint64_t pending;	  /* copies started and not ended */
	uint64_t waiting;	  /* of them, with something not yet given to DOCA */
	uint64_t buried_bytes;	  /* pinned by closed maps that wait for a recycle */
	uint32_t buried_maps;
	int event_mode_all;
	int armed;
};

void
adma_channel_get_status(const struct adma_channel *channel, struct adma_channel_status *status);

void
adma_channel_get_counters(const struct adma_channel *channel, struct adma_counters *counters);

void
adma_channel_get_caps(const struct adma_channel *channel, struct adma_caps *caps);

/** How many copies failed with each code; ADMA_NUM_CODES numbers. */
void
adma_channel_get_failed(const struct adma_channel *channel, uint64_t *failed);

/** @return false if latencies are not measured; latency is untouched then */
bool
adma_channel_get_latency(const struct adma_channel *channel, struct adma_latency *latency);

/** The histogram, for the layer above to fill; NULL if latencies are not measured. */
struct adma_latency *
adma_channel_latency(struct adma_channel *channel);

/** How many events were ever noted. Threads: any. */
uint64_t
adma_channel_num_events(const struct adma_channel *channel);

/** See adma_recorder_read(). Threads: any. */
size_t
adma_channel_events(struct adma_channel *channel, uint64_t from, struct adma_event *events,
		    size_t max);

/** Note an event that the layer above has seen. Threads: any. */
void
adma_channel_note(struct adma_channel *channel, enum adma_event_kind kind, uint32_t from,
		  uint32_t to, uint32_t code);

/** CLOCK_MONOTONIC in nanoseconds. */
int64_t
adma_clock_ns(void);

#endif
