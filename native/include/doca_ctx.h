/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: the life cycle of an engine instance. */
#ifndef DOCA_CTX_H_
#define DOCA_CTX_H_

#include <stddef.h>
#include <stdint.h>

#include <doca_compat.h>
#include <doca_error.h>
#include <doca_types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct doca_ctx;
struct doca_devinfo;
struct doca_dpa;
struct doca_gpu;

enum doca_ctx_states {
	DOCA_CTX_STATE_IDLE = 0,
	DOCA_CTX_STATE_STARTING = 1,
	DOCA_CTX_STATE_RUNNING = 2,
	DOCA_CTX_STATE_STOPPING = 3,
};

/** Called at each change of state, inside start, stop or progress. */
typedef void (*doca_ctx_state_changed_callback_t)(const union doca_data user_data,
						  struct doca_ctx *ctx,
						  enum doca_ctx_states prev_state,
						  enum doca_ctx_states next_state);

/**
 * Start a context; a DMA context is running when the call returns.
 * @retval DOCA_ERROR_NOT_CONNECTED no progress engine
 * @retval DOCA_ERROR_NOT_SUPPORTED the device cannot
 * @retval DOCA_ERROR_INITIALIZATION no task configured, or no resources
 * @retval DOCA_ERROR_BAD_STATE not idle
 */
DOCA_STABLE
doca_error_t
doca_ctx_start(struct doca_ctx *ctx);

/**
 * Stop a context. Tasks in flight are flushed; it is idle once every task was freed.
 * @retval DOCA_SUCCESS it is idle now
 * @retval DOCA_ERROR_IN_PROGRESS it is stopping; progress until the state callback says idle
 */
DOCA_STABLE
doca_error_t
doca_ctx_stop(struct doca_ctx *ctx);

/** The state. */
DOCA_STABLE
doca_error_t
doca_ctx_get_state(const struct doca_ctx *ctx, enum doca_ctx_states *state);

/**
 * Set what is called at each change of state; replaces an earlier one.
 * @retval DOCA_ERROR_BAD_STATE not idle
 */
DOCA_STABLE
doca_error_t
doca_ctx_set_state_changed_cb(struct doca_ctx *ctx, doca_ctx_state_changed_callback_t cb);

/**
 * Set the word that comes back in callbacks.
 * @retval DOCA_ERROR_BAD_STATE not idle
 */
DOCA_STABLE
doca_error_t
doca_ctx_set_user_data(struct doca_ctx *ctx, union doca_data user_data);

/** The word that comes back in callbacks. */
DOCA_STABLE
doca_error_t
doca_ctx_get_user_data(const struct doca_ctx *ctx, union doca_data *user_data);

/** Tasks submitted and not reported. */
DOCA_STABLE
doca_error_t
doca_ctx_get_num_inflight_tasks(const struct doca_ctx *ctx, size_t *num_inflight_tasks);

/** Number of completion vectors: 1 on the emulator. */
DOCA_EXPERIMENTAL
doca_error_t
doca_ctx_cap_get_num_completion_vectors(const struct doca_devinfo *devinfo,
					uint32_t *num_comp_vectors);

/**
 * Choose the completion vector.
 * @retval DOCA_ERROR_INVALID_VALUE no such vector
 * @retval DOCA_ERROR_BAD_STATE not idle
 */
DOCA_EXPERIMENTAL
doca_error_t
doca_ctx_set_completion_vector(struct doca_ctx *ctx, uint32_t comp_vector);

/**
 * Move the data path to a DPA.
 * @retval DOCA_ERROR_NOT_SUPPORTED always so on the emulator
 */
DOCA_EXPERIMENTAL
doca_error_t
doca_ctx_set_datapath_on_dpa(struct doca_ctx *ctx, struct doca_dpa *dpa_dev);

/**
 * Move the data path to a GPU.
 * @retval DOCA_ERROR_NOT_SUPPORTED always so on the emulator
 */
DOCA_EXPERIMENTAL
doca_error_t
doca_ctx_set_datapath_on_gpu(struct doca_ctx *ctx, struct doca_gpu *gpu_dev);

/** Begin all tasks that were submitted without the flush flag; the context must not be idle. */
DOCA_EXPERIMENTAL
void
doca_ctx_flush_tasks(struct doca_ctx *ctx);

#ifdef __cplusplus
}
#endif

#endif /* DOCA_CTX_H_ */
