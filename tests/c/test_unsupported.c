/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that link and have nothing to work on: a documented answer for NULL and for anything else. */
#include "check.h"

static void
batches(void)
{
	int word = 0;
	struct doca_task_batch *foreign = (struct doca_task_batch *)&word;
	union doca_data data = {.u64 = 7};

	OK(docaemu_reset());
	CHECK_DOCA(doca_task_batch_submit(NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_task_batch_try_submit(NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_task_batch_get_status(NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK(doca_task_batch_get_ctx(NULL) == NULL);
	CHECK_EQ(doca_task_batch_get_tasks_num(NULL), 0);
	CHECK_EQ(doca_task_batch_get_user_data(NULL).u64, 0);
	CHECK_EQ(doca_task_batch_get_ctx_user_data(NULL).u64, 0);
	doca_task_batch_set_user_data(NULL, data);
	doca_task_batch_free(NULL);
	expect_violations(0, NULL);

	CHECK_DOCA(doca_task_batch_submit(foreign), DOCA_ERROR_INVALID_VALUE);
	expect_violations(1, "doca_task_batch_submit");
	CHECK_DOCA(doca_task_batch_try_submit(foreign), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_task_batch_get_status(foreign), DOCA_ERROR_INVALID_VALUE);
	CHECK(doca_task_batch_get_ctx(foreign) == NULL);
	CHECK_EQ(doca_task_batch_get_tasks_num(foreign), 0);
	CHECK_EQ(doca_task_batch_get_user_data(foreign).u64, 0);
	CHECK_EQ(doca_task_batch_get_ctx_user_data(foreign).u64, 0);
	doca_task_batch_set_user_data(foreign, data);
	doca_task_batch_free(foreign);
	expect_violations(8, "doca_task_batch_free");
}

static void
dpa_memory(void)
{
	struct doca_mmap *mmap;
	doca_dpa_dev_mmap_t handle = 5;

	CHECK_DOCA(doca_mmap_set_dpa_memrange(NULL, NULL, 0, 64), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_mmap_dev_get_dpa_handle(NULL, NULL, &handle), DOCA_ERROR_INVALID_VALUE);
	OK(doca_mmap_create(&mmap));
	CHECK_DOCA(doca_mmap_set_dpa_memrange(mmap, NULL, 0, 64), DOCA_ERROR_NOT_SUPPORTED);
	CHECK_DOCA(doca_mmap_dev_get_dpa_handle(mmap, NULL, &handle), DOCA_ERROR_NOT_SUPPORTED);
	CHECK_EQ(handle, 5);
	OK(doca_mmap_destroy(mmap));
}

TESTS(TEST(batches), TEST(dpa_memory));
