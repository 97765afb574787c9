/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that programs link with and that have nothing to work on here: batches, and DPA memory. */
#include "emu.h"

/* Answer a call on a batch: there is none, so a pointer to one comes from somewhere else. */
static doca_error_t
no_batch(const char *func, const struct doca_task_batch *batch)
{
	if (batch != NULL) {
		emu_violation(func, batch, 0, "it is no task batch: DMA has none");
	}
	return DOCA_ERROR_INVALID_VALUE;
}

doca_error_t
doca_task_batch_submit(struct doca_task_batch *task_batch)
{
	EMU_ENTER("task_batch_submit");
	return no_batch(__func__, task_batch);
}

doca_error_t
doca_task_batch_try_submit(struct doca_task_batch *task_batch)
{
	EMU_ENTER("task_batch_try_submit");
	return no_batch(__func__, task_batch);
}

doca_error_t
doca_task_batch_get_status(const struct doca_task_batch *task_batch)
{
	EMU_ENTER("task_batch_get_status");
	return no_batch(__func__, task_batch);
}

struct doca_ctx *
doca_task_batch_get_ctx(const struct doca_task_batch *task_batch)
{
	no_batch(__func__, task_batch);
	return NULL;
}

uint16_t
doca_task_batch_get_tasks_num(struct doca_task_batch *task_batch)
{
	no_batch(__func__, task_batch);
	return 0;
}

union doca_data
doca_task_batch_get_ctx_user_data(const struct doca_task_batch *task_batch)
{
	no_batch(__func__, task_batch);
	return (union doca_data){.u64 = 0};
}

union doca_data
doca_task_batch_get_user_data(const struct doca_task_batch *task_batch)
{
	no_batch(__func__, task_batch);
	return (union doca_data){.u64 = 0};
}

void
doca_task_batch_set_user_data(struct doca_task_batch *task_batch, union doca_data user_data)
{
	(void)user_data;
	no_batch(__func__, task_batch);
}

void
doca_task_batch_free(struct doca_task_batch *task_batch)
{
	no_batch(__func__, task_batch);
}

doca_error_t
doca_mmap_set_dpa_memrange(struct doca_mmap *mmap, struct doca_dpa *dpa, uint64_t dpa_addr,
			   size_t len)
{
	(void)dpa;
	(void)dpa_addr;
	(void)len;
	EMU_ENTER("mmap_set_dpa_memrange");
	EMU_CHECK(mmap, EMU_MAGIC_MMAP);
	return DOCA_ERROR_NOT_SUPPORTED;
}

doca_error_t
doca_mmap_dev_get_dpa_handle(struct doca_mmap *mmap, const struct doca_dev *dev,
			     doca_dpa_dev_mmap_t *dpa_mmap_handle)
{
	(void)dev;
	(void)dpa_mmap_handle;
	EMU_ENTER("mmap_dev_get_dpa_handle");
	EMU_CHECK(mmap, EMU_MAGIC_MMAP);
	return DOCA_ERROR_NOT_SUPPORTED;
}
