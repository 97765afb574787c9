/* SPDX-License-Identifier: Apache-2.0 */
/* DMA: copy memory by a device. */
#ifndef DOCA_DMA_H_
#define DOCA_DMA_H_

#include <inttypes.h>
#include <stddef.h>

#include <doca_compat.h>
#include <doca_error.h>
#include <doca_types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct doca_buf;
struct doca_ctx;
struct doca_dev;
struct doca_devinfo;
struct doca_dma;
struct doca_dma_task_memcpy;
struct doca_gpu_dma;
struct doca_task;

/** Called by doca_pe_progress for a finished copy; one for success, one for failure. */
typedef void (*doca_dma_task_memcpy_completion_cb_t)(struct doca_dma_task_memcpy *task,
						     union doca_data task_user_data,
						     union doca_data ctx_user_data);

/**
 * Create a DMA context on a device, the caller's until doca_dma_destroy.
 * @retval DOCA_ERROR_INVALID_VALUE
 * @retval DOCA_ERROR_NO_MEMORY
 */
DOCA_STABLE
doca_error_t
doca_dma_create(struct doca_dev *dev, struct doca_dma **dma);

/**
 * Destroy an idle DMA context and leave its progress engine.
 * @retval DOCA_ERROR_IN_USE not idle
 */
DOCA_STABLE
doca_error_t
doca_dma_destroy(struct doca_dma *dma);

/** The context of a DMA instance. */
DOCA_STABLE
struct doca_ctx *
doca_dma_as_ctx(struct doca_dma *dma);

/**
 * Whether the device copies memory.
 * @retval DOCA_ERROR_NOT_SUPPORTED it does not
 */
DOCA_STABLE
doca_error_t
doca_dma_cap_task_memcpy_is_supported(const struct doca_devinfo *devinfo);

/** The largest copy of one task, in bytes. */
DOCA_STABLE
doca_error_t
doca_dma_cap_task_memcpy_get_max_buf_size(const struct doca_devinfo *devinfo, uint64_t *buf_size);

/** The longest buf list of one task; 1 means no lists. */
DOCA_STABLE
doca_error_t
doca_dma_cap_task_memcpy_get_max_buf_list_len(const struct doca_devinfo *devinfo,
					      uint32_t *max_buf_list_len);

/** The largest pool doca_dma_task_memcpy_set_conf takes. */
DOCA_STABLE
doca_error_t
doca_dma_cap_get_max_num_tasks(struct doca_dma *dma, uint32_t *max_num_tasks);

/**
 * Set callbacks and number of tasks, before start.
 * @retval DOCA_ERROR_INVALID_VALUE no callback, no tasks, or too many
 * @retval DOCA_ERROR_NOT_SUPPORTED the device does not copy memory
 * @retval DOCA_ERROR_BAD_STATE not idle
 */
DOCA_STABLE
doca_error_t
doca_dma_task_memcpy_set_conf(struct doca_dma *dma,
			      doca_dma_task_memcpy_completion_cb_t task_completion_cb,
			      doca_dma_task_memcpy_completion_cb_t task_error_cb,
			      uint32_t num_memcpy_tasks);

/**
 * Take a task from the pool; src and dst may be NULL and be set later. Takes no reference on them.
 * @retval DOCA_ERROR_NO_MEMORY all tasks are out
 * @retval DOCA_ERROR_BAD_STATE not running
 * The caller frees it with doca_task_free.
 */
DOCA_STABLE
doca_error_t
doca_dma_task_memcpy_alloc_init(struct doca_dma *dma, const struct doca_buf *src,
				struct doca_buf *dst, union doca_data user_data,
				struct doca_dma_task_memcpy **task);

/** The task of a memcpy task. */
DOCA_STABLE
struct doca_task *
doca_dma_task_memcpy_as_task(struct doca_dma_task_memcpy *task);

/** Set the source: its data is copied. Not while submitted. */
DOCA_STABLE
void
doca_dma_task_memcpy_set_src(struct doca_dma_task_memcpy *task, const struct doca_buf *src);

/** The source. */
DOCA_STABLE
const struct doca_buf *
doca_dma_task_memcpy_get_src(const struct doca_dma_task_memcpy *task);

/** Set the destination: filled behind its data. Not while submitted. */
DOCA_STABLE
void
doca_dma_task_memcpy_set_dst(struct doca_dma_task_memcpy *task, struct doca_buf *dst);

/** The destination. */
DOCA_STABLE
struct doca_buf *
doca_dma_task_memcpy_get_dst(const struct doca_dma_task_memcpy *task);

/**
 * The GPU side of a DMA context.
 * @retval DOCA_ERROR_NOT_SUPPORTED always so on the emulator
 */
DOCA_EXPERIMENTAL
doca_error_t
doca_dma_get_gpu_handle(struct doca_dma *dma, struct doca_gpu_dma **gpu_dma);

/**
 * Report tasks in the order of their submission, if `ordered`; before start.
 * @retval DOCA_ERROR_BAD_STATE not idle
 */
DOCA_EXPERIMENTAL
doca_error_t
doca_dma_set_ordered_completions(struct doca_dma *dma, uint8_t ordered);

#ifdef __cplusplus
}
#endif

#endif /* DOCA_DMA_H_ */
