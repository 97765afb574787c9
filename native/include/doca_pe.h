/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Progress engines and tasks.
 *
 * A progress engine with all that hangs on it (contexts, tasks, the bufs in them) is used by one
 * thread at a time; several engines run side by side.
 */
#ifndef DOCA_PE_H_
#define DOCA_PE_H_

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <doca_compat.h>
#include <doca_ctx.h> /* as in DOCA 2.6; programs of that time rely on it */
#include <doca_error.h>
#include <doca_types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct doca_ctx;
struct doca_pe;
struct doca_task;
struct doca_task_batch;

/* What doca_pe_progress serves between arming and clearing. */
enum doca_pe_event_mode {
	DOCA_PE_EVENT_MODE_PROGRESS_SELECTIVE = 0, /* what was pending when armed; the default */
	DOCA_PE_EVENT_MODE_PROGRESS_ALL = 1,	   /* everything; the next request clears */
};

enum doca_task_submit_flag {
	DOCA_TASK_SUBMIT_FLAG_NONE = 0,
	DOCA_TASK_SUBMIT_FLAG_FLUSH = 1,	    /* begin this and all that waits for a flush */
	DOCA_TASK_SUBMIT_FLAG_OPTIMIZE_REPORTS = 2, /* its report may come with a later one */
};

/** Called by doca_pe_progress for a finished task. */
typedef void (*doca_task_completion_cb_t)(struct doca_task *task, union doca_data task_user_data,
					  union doca_data ctx_user_data);

/**
 * Create a progress engine, the caller's until doca_pe_destroy.
 * @retval DOCA_ERROR_INVALID_VALUE
 * @retval DOCA_ERROR_NO_MEMORY
 */
DOCA_STABLE
doca_error_t
doca_pe_create(struct doca_pe **pe);

/**
 * Destroy a progress engine.
 * @retval DOCA_ERROR_IN_USE contexts are connected, or it is being progressed
 */
DOCA_STABLE
doca_error_t
doca_pe_destroy(struct doca_pe *pe);

/**
 * Connect an idle context, for its life.
 * @retval DOCA_ERROR_BAD_STATE not idle
 * @retval DOCA_ERROR_NOT_PERMITTED already connected
 */
DOCA_STABLE
doca_error_t
doca_pe_connect_ctx(struct doca_pe *pe, struct doca_ctx *ctx);

/**
 * Take one step: report one finished task through its callback, or one change of state.
 * @return 1 when there was something to do, else 0
 * Not from a callback; one thread at a time.
 */
DOCA_STABLE
uint8_t
doca_pe_progress(struct doca_pe *pe);

/**
 * The file descriptor to poll for reading; the same for the life of the engine, never to be read.
 */
DOCA_STABLE
doca_error_t
doca_pe_get_notification_handle(const struct doca_pe *pe, doca_notification_handle_t *handle);

/**
 * Arm: the handle becomes readable once there is something to report, at once if there already is.
 */
DOCA_STABLE
doca_error_t
doca_pe_request_notification(struct doca_pe *pe);

/**
 * Acknowledge a notification: the handle is no longer readable and the engine no longer armed.
 * @param[in] handle ignored on Linux
 * @retval DOCA_ERROR_OPERATING_SYSTEM
 */
DOCA_STABLE
doca_error_t
doca_pe_clear_notification(struct doca_pe *pe, doca_notification_handle_t handle);

/** Tasks submitted and not reported, over all contexts. */
DOCA_STABLE
doca_error_t
doca_pe_get_num_inflight_tasks(const struct doca_pe *pe, size_t *num_inflight_tasks);

/** Choose what progress serves while armed; not from a callback. */
DOCA_EXPERIMENTAL
doca_error_t
doca_pe_set_event_mode(struct doca_pe *pe, enum doca_pe_event_mode event_mode);

/**
 * Hand a task to the engine and let it begin: doca_task_submit_ex with DOCA_TASK_SUBMIT_FLAG_FLUSH.
 * The task is the engine's until its callback; after a failure it is still the caller's. Does not
 * validate.
 * @retval DOCA_ERROR_BAD_STATE the context is not running, or the task is submitted already
 * @retval DOCA_ERROR_AGAIN the queue is full
 */
DOCA_STABLE
doca_error_t
doca_task_submit(struct doca_task *task);

/**
 * Hand a task to the engine; without the flush flag it may wait for a later flush.
 * @param[in] flags or'ed from enum doca_task_submit_flag
 */
DOCA_EXPERIMENTAL
doca_error_t
doca_task_submit_ex(struct doca_task *task, uint32_t flags);

/**
 * As doca_task_submit, validating first.
 * @retval DOCA_ERROR_INVALID_VALUE the task cannot succeed; it was not submitted
 */
DOCA_STABLE
doca_error_t
doca_task_try_submit(struct doca_task *task);

/** Give a task back to its pool; not while it is submitted. Does not drop its bufs. */
DOCA_STABLE
void
doca_task_free(struct doca_task *task);

/** How a task ended; DOCA_ERROR_IN_PROGRESS while it is submitted. */
DOCA_STABLE
doca_error_t
doca_task_get_status(const struct doca_task *task);

/** Change the word that comes back in the callback; not while submitted. */
DOCA_STABLE
void
doca_task_set_user_data(struct doca_task *task, union doca_data user_data);

/** The word that comes back in the callback. */
DOCA_STABLE
union doca_data
doca_task_get_user_data(const struct doca_task *task);

/** The context of a task. */
DOCA_STABLE
struct doca_ctx *
doca_task_get_ctx(const struct doca_task *task);

/*
 * Batches: several tasks handled as one. A library has its own call to allocate a batch of its
 * tasks; DMA has none, so no batch exists on the emulator, and these calls are there for programs
 * that hold them. Whatever pointer they get is a contract violation, NULL is an ordinary error.
 */

/* How many tasks a batch has room for. */
enum doca_task_batch_max_tasks_number {
	DOCA_TASK_BATCH_MAX_TASKS_NUMBER_16 = 0,
	DOCA_TASK_BATCH_MAX_TASKS_NUMBER_32 = 1,
	DOCA_TASK_BATCH_MAX_TASKS_NUMBER_64 = 2,
	DOCA_TASK_BATCH_MAX_TASKS_NUMBER_128 = 3,
};

/* How many events are reported at once; the numbers are those since DOCA 3.0. */
enum doca_event_batch_events_number {
	DOCA_EVENT_BATCH_EVENTS_NUMBER_1 = 0,
	DOCA_EVENT_BATCH_EVENTS_NUMBER_2 = 1,
	DOCA_EVENT_BATCH_EVENTS_NUMBER_4 = 2,
	DOCA_EVENT_BATCH_EVENTS_NUMBER_8 = 3,
	DOCA_EVENT_BATCH_EVENTS_NUMBER_16 = 4,
	DOCA_EVENT_BATCH_EVENTS_NUMBER_32 = 5,
	DOCA_EVENT_BATCH_EVENTS_NUMBER_64 = 6,
	DOCA_EVENT_BATCH_EVENTS_NUMBER_128 = 7,
};

/**
 * Submit a batch.
 * @retval DOCA_ERROR_INVALID_VALUE always so on the emulator
 */
DOCA_EXPERIMENTAL
doca_error_t
doca_task_batch_submit(struct doca_task_batch *task_batch);

/**
 * Submit a batch, validating first.
 * @retval DOCA_ERROR_INVALID_VALUE always so on the emulator
 */
DOCA_EXPERIMENTAL
doca_error_t
doca_task_batch_try_submit(struct doca_task_batch *task_batch);

/**
 * How a batch ended.
 * @retval DOCA_ERROR_INVALID_VALUE always so on the emulator
 */
DOCA_EXPERIMENTAL
doca_error_t
doca_task_batch_get_status(const struct doca_task_batch *task_batch);

/** The context of a batch; NULL on the emulator. */
DOCA_EXPERIMENTAL
struct doca_ctx *
doca_task_batch_get_ctx(const struct doca_task_batch *task_batch);

/** How many tasks a batch has; 0 on the emulator. */
DOCA_EXPERIMENTAL
uint16_t
doca_task_batch_get_tasks_num(struct doca_task_batch *task_batch);

/** The word of a batch's context; 0 on the emulator. */
DOCA_EXPERIMENTAL
union doca_data
doca_task_batch_get_ctx_user_data(const struct doca_task_batch *task_batch);

/** The word of a batch; 0 on the emulator. */
DOCA_EXPERIMENTAL
union doca_data
doca_task_batch_get_user_data(const struct doca_task_batch *task_batch);

/** Change the word of a batch; does nothing on the emulator. */
DOCA_EXPERIMENTAL
void
doca_task_batch_set_user_data(struct doca_task_batch *task_batch, union doca_data user_data);

/** Give a batch back; does nothing on the emulator. */
DOCA_EXPERIMENTAL
void
doca_task_batch_free(struct doca_task_batch *task_batch);

#ifdef __cplusplus
}
#endif

#endif /* DOCA_PE_H_ */
