/* SPDX-License-Identifier: Apache-2.0 */
/* What channel.c (the data path), context.c (start, recycle, close) and graveyard.c (closed maps) share. */
#ifndef ADMA_CHANNEL_IMPL_H
#define ADMA_CHANNEL_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "channel.h"

/*
 * One task's worth of a copy. There are as many as the window has places; one keeps its DOCA task from submit to submit.
 *
 *            take               submitted                    completed
 *    FREE ---------> (filling) -----------> with DOCA -------------------------------> FREE
 *                                               | flushed by another task's failure     ^
 *                                               +--------------------> REPLAY ----------+ submitted anew, or dropped
 */
struct segment {
	struct segment *next; /* free or replay list */
	struct adma_copy *copy;
	struct doca_dma_task_memcpy *task; /* ours while the segment is not with DOCA; NULL: none allocated */
	struct doca_buf *src_buf;
	struct doca_buf *dst_buf;
	uint64_t offset; /* of the copy */
	uint64_t length;
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
	bool mode_all; /* event mode ALL: progress is allowed while armed */
	bool held_back; /* submit with NONE and flush once a turn */
	int fd;

	/* replaced by a recycle, in the worker */
	struct doca_pe *pe;
	struct doca_buf_inventory *inventory;
	struct doca_dma *dma;
	struct doca_ctx *ctx;
	struct adma_caps caps;
	uint32_t num_tasks;
	uint32_t window;

	/* the loop's thread */
	enum adma_channel_state state;
	enum doca_ctx_states ctx_state; /* as the state callback last said */
	bool fault;			/* a task failed and its burst is not over */
	doca_error_t culprit;		/* with this code */
	bool park;			/* park when DOCA holds nothing */
	bool armed;
	bool unflushed; /* submitted, doorbell not rung */
	doca_error_t stuck_buf;	 /* what DOCA answered when it did not take a buf back */
	doca_error_t clear_code; /* of the last clear that failed */
	uint32_t in_flight;
	uint32_t starved;     /* turns in a row without room and with nothing in flight */
	uint32_t idle_turns;  /* turns in a row waiting for IDLE */
	uint64_t tenure;      /* bytes the head of the waiting list has sent in its turn */
	uint64_t pending;     /* copies started and not ended */
	uint64_t num_waiting; /* copies on the waiting list */
	struct copy_list waiting;
	struct copy_list done;
	struct segment *segments;
	struct segment *free;
	struct segment *replay;
	struct segment **replay_tail;
	struct adma_counters counters;

	/* any thread, under the lock */
	pthread_mutex_t maps_lock;
	struct adma_mmap *maps; /* registered for this channel and not buried */
	struct adma_mmap *graveyard;
	/* written under the lock, read without */
	_Atomic uint64_t buried_bytes;
	_Atomic uint32_t buried_maps;
};

static inline int64_t
adma_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

/* channel.c */
void
adma_on_completed(struct doca_dma_task_memcpy *task, union doca_data task_data, union doca_data ctx_data);
void
adma_on_failed(struct doca_dma_task_memcpy *task, union doca_data task_data, union doca_data ctx_data);
void
adma_on_state_changed(const union doca_data user_data, struct doca_ctx *ctx, enum doca_ctx_states prev,
		      enum doca_ctx_states next);
void
adma_segment_free(struct adma_channel *ch, struct segment *segment);
void
adma_free_all_tasks(struct adma_channel *ch);
void
adma_flush(struct adma_channel *ch);

/* graveyard.c: the first failure, if any; what could not be unregistered stays pinned. */
doca_error_t
adma_graveyard_empty(struct adma_channel *ch);
doca_error_t
adma_unregister_live_maps(struct adma_channel *ch);

#endif
