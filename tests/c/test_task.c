/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks: rows 4.3, 4.6 and 4.7, in each engine mode. */
#include "check.h"

static const char *const engines[] = {"engine=default", "engine=worker", "engine=manual"};

#define FOR_ENGINES(i) for (size_t i = 0; i < 3 && (configure(engines[i]), true); i++)

/* Let everything that was submitted end. */
static void
run(struct bed *bed)
{
	size_t stepped;

	do {
		OK(docaemu_step(SIZE_MAX, DOCAEMU_ORDER_FIFO, &stepped));
		bed_progress(bed);
	} while (stepped != 0);
	bed_drain(bed);
}

static void
test_4_6_2_bytes_are_copied(void)
{
	static const size_t sizes[] = {1, 7, 64, 4095, 4096, 65536, 65537, 262144, 300001, 2 << 20};
	size_t half = 3 << 20;
	struct bed bed;

	FOR_ENGINES(e)
	{
		bed_open(&bed, 2 * half, 16);
		bed_start(&bed);
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			size_t src = i * 3 + 1;
			size_t dst = half + i * 5;

			fill(bed.memory, half, (uint32_t)(e * 100 + i));
			memset(bed.memory + half, 0xee, half);
			bed_submit(&bed, i, src, dst, sizes[i]);
			run(&bed);
			CHECK_EQ(bed.num_ok, i + 1);
			CHECK_EQ(bed.order[i], i);
			CHECK(memcmp(bed.memory + src, bed.memory + dst, sizes[i]) == 0);
			CHECK(bed.memory[dst + sizes[i]] == 0xee);
			CHECK(dst == half || bed.memory[dst - 1] == 0xee);
		}
		bed_close(&bed);
	}
}

static void
test_4_3_1_3_one_step_per_call(void)
{
	struct bed bed;

	FOR_ENGINES(e)
	{
		bed_open(&bed, 8192, 16);
		bed_start(&bed);
		CHECK_EQ(doca_pe_progress(bed.pe), 0);
		for (size_t i = 0; i < 8; i++) {
			bed_submit(&bed, i, i * 16, 4096 + i * 16, 16);
		}
		CHECK_EQ(bed.num_ok, 0);
		OK(docaemu_step(8, DOCAEMU_ORDER_FIFO, NULL));
		OK(doca_pe_request_notification(bed.pe));
		CHECK(bed_readable(&bed, 10000));
		OK(doca_pe_clear_notification(bed.pe, 0));
		CHECK_EQ(doca_pe_progress(bed.pe), 1);
		CHECK_EQ(bed.num_ok, 1);
		bed_drain(&bed);
		CHECK_EQ(bed.num_ok, 8);
		CHECK_EQ(doca_pe_progress(bed.pe), 0);
		bed_close(&bed);
	}
}

static void
progress_in_callback(struct bed *bed, struct doca_dma_task_memcpy *task)
{
	CHECK_EQ(doca_pe_progress(bed->pe), 0);
	bed_end_task(task);
}

static void
test_4_3_5_progress_from_a_callback_is_a_violation(void)
{
	struct bed bed;

	bed_open(&bed, 8192, 4);
	bed.hook = progress_in_callback;
	bed_start(&bed);
	bed_submit(&bed, 0, 0, 4096, 64);
	bed_submit(&bed, 1, 64, 4096 + 64, 64);
	bed_drain(&bed);
	CHECK_EQ(bed.num_ok, 2);
	expect_violations(2, "doca_pe_progress: pe");
	bed_close(&bed);
}

static size_t resubmits;

static void
resubmit(struct bed *bed, struct doca_dma_task_memcpy *task)
{
	if (resubmits-- == 0) {
		bed_end_task(task);
		return;
	}
	OK(doca_buf_reset_data_len(doca_dma_task_memcpy_get_dst(task)));
	OK(doca_buf_dec_refcount((struct doca_buf *)(uintptr_t)doca_dma_task_memcpy_get_src(task),
				 NULL));
	doca_dma_task_memcpy_set_src(task, bed_src(bed, 64 * resubmits, 64));
	doca_task_set_user_data(doca_dma_task_memcpy_as_task(task),
				(union doca_data){.u64 = resubmits});
	OK(doca_task_submit(doca_dma_task_memcpy_as_task(task)));
}

static void
test_4_3_6_12_callback_may_resubmit(void)
{
	struct bed bed;

	FOR_ENGINES(e)
	{
		bed_open(&bed, 8192, 1);
		bed.hook = resubmit;
		resubmits = 10;
		bed_start(&bed);
		bed_submit(&bed, 100, 0, 4096, 64);
		run(&bed);
		CHECK_EQ(bed.num_ok, 11);
		CHECK_EQ(bed.order[10], 0);
		CHECK(memcmp(bed.memory, bed.memory + 4096, 64) == 0);
		bed_close(&bed);
	}
}

static void
test_4_3_13_pool_exhaustion_is_no_memory(void)
{
	struct doca_dma_task_memcpy *tasks[4];
	struct doca_dma_task_memcpy *more = NULL;
	union doca_data data = {.u64 = 0};
	struct bed bed;

	bed_open(&bed, 4096, 3);
	bed_start(&bed);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 3; i++) {
			OK(doca_dma_task_memcpy_alloc_init(bed.dma, NULL, NULL, data, &tasks[i]));
		}
		CHECK_DOCA(doca_dma_task_memcpy_alloc_init(bed.dma, NULL, NULL, data, &more),
			   DOCA_ERROR_NO_MEMORY);
		CHECK(more == NULL);
		for (int i = 0; i < 3; i++) {
			doca_task_free(doca_dma_task_memcpy_as_task(tasks[i]));
		}
	}
	CHECK_EQ(counters().no_memory, 3);
	bed_close(&bed);
}

static void
test_4_3_14_alloc_needs_running(void)
{
	struct doca_dma_task_memcpy *task;
	union doca_data data = {.u64 = 0};
	struct bed bed;

	bed_open(&bed, 4096, 3);
	CHECK_DOCA(doca_dma_task_memcpy_alloc_init(bed.dma, NULL, NULL, data, &task),
		   DOCA_ERROR_BAD_STATE);
	expect_violations(1, "not running");
	bed_close(&bed);
}

static void
test_4_3_16_bufs_may_follow(void)
{
	struct doca_dma_task_memcpy *task;
	union doca_data data = {.u64 = 5};
	struct bed bed;

	bed_open(&bed, 4096, 3);
	bed_start(&bed);
	OK(doca_dma_task_memcpy_alloc_init(bed.dma, NULL, NULL, data, &task));
	CHECK_DOCA(doca_task_try_submit(doca_dma_task_memcpy_as_task(task)),
		   DOCA_ERROR_INVALID_VALUE);
	doca_dma_task_memcpy_set_src(task, bed_src(&bed, 0, 10));
	doca_dma_task_memcpy_set_dst(task, bed_dst(&bed, 2048, 10));
	OK(doca_task_try_submit(doca_dma_task_memcpy_as_task(task)));
	CHECK_DOCA(doca_task_get_status(doca_dma_task_memcpy_as_task(task)),
		   DOCA_ERROR_IN_PROGRESS);
	CHECK_EQ(doca_task_get_user_data(doca_dma_task_memcpy_as_task(task)).u64, 5);
	CHECK(doca_task_get_ctx(doca_dma_task_memcpy_as_task(task)) == bed.ctx);
	bed_drain(&bed);
	CHECK_EQ(bed.num_ok, 1);
	bed_close(&bed);
}

/* Submit one task that cannot succeed, plainly and with try_submit. */
static void
bad_task(struct bed *bed, struct doca_buf *src, struct doca_buf *dst)
{
	struct doca_dma_task_memcpy *task;
	union doca_data data = {.u64 = 0};
	size_t before = bed->num_error;

	bed_start(bed);
	OK(doca_dma_task_memcpy_alloc_init(bed->dma, src, dst, data, &task));
	CHECK_DOCA(doca_task_try_submit(doca_dma_task_memcpy_as_task(task)),
		   DOCA_ERROR_INVALID_VALUE);
	OK(doca_task_submit(doca_dma_task_memcpy_as_task(task)));
	CHECK_EQ(bed->num_error, before);
	run(bed);
	CHECK_EQ(bed->num_error, before + 1);
	CHECK_DOCA(bed->status[bed->num_ok + before], DOCA_ERROR_IO_FAILED);
	bed_progress(bed);
	CHECK_EQ(bed->states[bed->num_states - 2], DOCA_CTX_STATE_STOPPING);
	CHECK_EQ(bed->states[bed->num_states - 1], DOCA_CTX_STATE_IDLE);
}

static void
test_4_7_zero_length__oversize__permission(void)
{
	struct doca_mmap *readonly;
	struct doca_buf *dst;
	struct doca_buf *src;
	struct bed bed;

	FOR_ENGINES(e)
	{
		configure("max_buf_size=1K max_buf_list_len=2");
		bed_open(&bed, 8192, 4);
		bad_task(&bed, bed_src(&bed, 0, 0), bed_dst(&bed, 4096, 10));
		bad_task(&bed, bed_src(&bed, 0, 1025), bed_dst(&bed, 4096, 1025));
		bad_task(&bed, bed_src(&bed, 0, 11), bed_dst(&bed, 4096, 10));
		src = bed_src(&bed, 0, 1);
		OK(doca_buf_chain_list(src, bed_src(&bed, 1, 1)));
		OK(doca_buf_chain_list(src, bed_src(&bed, 2, 1)));
		bad_task(&bed, src, bed_dst(&bed, 4096, 10));
		/* permission */
		OK(doca_mmap_create(&readonly));
		OK(doca_mmap_add_dev(readonly, bed.dev));
		OK(doca_mmap_set_memrange(readonly, bed.memory, bed.size));
		OK(doca_mmap_set_permissions(readonly, DOCA_ACCESS_FLAG_PCI_READ_ONLY));
		OK(doca_mmap_start(readonly));
		OK(doca_buf_inventory_buf_get_by_addr(bed.inventory, readonly, bed.memory + 4096,
						      10, &dst));
		bad_task(&bed, bed_src(&bed, 0, 10), dst);
		/* and after all that a good one */
		bed_start(&bed);
		bed_submit(&bed, 9, 0, 4096, 100);
		run(&bed);
		CHECK_EQ(bed.num_ok, 1);
		CHECK(memcmp(bed.memory, bed.memory + 4096, 100) == 0);
		CHECK_EQ(counters().ctx_faults, 5 * (e + 1));
		{
			struct doca_mmap *keep = readonly;

			OK(doca_ctx_stop(bed.ctx));
			OK(doca_dma_destroy(bed.dma));
			bed.dma = NULL;
			OK(doca_mmap_destroy(keep));
		}
		bed_close(&bed);
	}
}

/* Lengths whose sum is past 2^64 are too large, not small. */
static void
test_lengths_beyond_the_sum(void)
{
	void *upper = (void *)(UINT64_C(1) << 63); /* no process has memory there */
	size_t half = SIZE_MAX >> 1;
	struct doca_mmap *huge;
	struct doca_buf *src;
	struct doca_buf *buf;
	struct bed bed;

	FOR_ENGINES(e)
	{
		bed_open(&bed, 8192, 4);
		OK(doca_mmap_create(&huge));
		OK(doca_mmap_add_dev(huge, bed.dev));
		OK(doca_mmap_set_memrange(huge, upper, half));
		OK(doca_mmap_start(huge));
		OK(doca_buf_inventory_buf_get_by_data(bed.inventory, huge, upper, half, &src));
		OK(doca_buf_inventory_buf_get_by_data(bed.inventory, huge, upper, half, &buf));
		OK(doca_buf_chain_list(src, buf));
		OK(doca_buf_chain_list(src, bed_src(&bed, 0, 66)));
		bad_task(&bed, src, bed_dst(&bed, 4096, 64));
		OK(doca_dma_destroy(bed.dma));
		bed.dma = NULL;
		OK(doca_mmap_destroy(huge));
		bed_close(&bed);
	}
}

static void
test_4_5_6_permissions_that_allow_a_destination(void)
{
	static const struct {
		uint32_t mask;
		bool allowed;
	} cases[] = {
		{DOCA_ACCESS_FLAG_LOCAL_READ_ONLY, false},
		{DOCA_ACCESS_FLAG_LOCAL_READ_WRITE, true},
		{DOCA_ACCESS_FLAG_PCI_READ_ONLY, false},
		{DOCA_ACCESS_FLAG_PCI_READ_WRITE, true},
		{DOCA_ACCESS_FLAG_RDMA_WRITE, false},
	};
	struct bed bed;

	configure("permission=submit");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct doca_task *task;

		bed_open(&bed, 4096, 2);
		OK(doca_mmap_stop(bed.mmap));
		OK(doca_mmap_set_permissions(bed.mmap, cases[i].mask));
		OK(doca_mmap_start(bed.mmap));
		bed_start(&bed);
		task = bed_task(&bed, 0, 0, 2048, 100);
		if (cases[i].allowed) {
			OK(doca_task_submit(task));
			bed_drain(&bed);
			CHECK_EQ(bed.num_ok, 1);
		} else {
			CHECK_DOCA(doca_task_submit(task), DOCA_ERROR_NOT_PERMITTED);
			bed_end_task((struct doca_dma_task_memcpy *)task);
		}
		bed_close(&bed);
	}
}

static void
test_settings_that_refuse_early(void)
{
	struct doca_dma_task_memcpy *task = NULL;
	union doca_data data = {.u64 = 0};
	struct doca_task *empty;
	struct doca_buf *src;
	struct doca_buf *dst;
	struct bed bed;

	configure("oversize=alloc zero_length=submit max_buf_size=8");
	bed_open(&bed, 4096, 2);
	bed_start(&bed);
	src = bed_src(&bed, 0, 9);
	dst = bed_dst(&bed, 100, 9);
	CHECK_DOCA(doca_dma_task_memcpy_alloc_init(bed.dma, src, dst, data, &task),
		   DOCA_ERROR_INVALID_VALUE);
	OK(doca_buf_dec_refcount(src, NULL));
	OK(doca_buf_dec_refcount(dst, NULL));
	empty = bed_task(&bed, 0, 0, 100, 0);
	CHECK_DOCA(doca_task_submit(empty), DOCA_ERROR_INVALID_VALUE);
	bed_end_task((struct doca_dma_task_memcpy *)empty);
	bed_close(&bed);
}

static void
test_4_3_18_full_queue_is_again(void)
{
	struct doca_task *third;
	struct bed bed;

	FOR_ENGINES(e)
	{
		configure("queue_depth=2");
		bed_open(&bed, 8192, 4);
		bed_start(&bed);
		bed_submit(&bed, 0, 0, 4096, 8);
		bed_submit(&bed, 1, 8, 4104, 8);
		third = bed_task(&bed, 2, 16, 4112, 8);
		CHECK_DOCA(doca_task_submit(third), DOCA_ERROR_AGAIN);
		run(&bed);
		OK(doca_task_submit(third));
		run(&bed);
		CHECK_EQ(bed.num_ok, 3);
		CHECK_EQ(counters().again, e + 1);
		CHECK_EQ(counters().max_in_flight, 2);
		bed_close(&bed);
	}
}

static void
test_4_3_19_20_without_flush_nothing_begins(void)
{
	struct bed bed;

	FOR_ENGINES(e)
	{
		bed_open(&bed, 8192, 4);
		bed_start(&bed);
		OK(doca_task_submit_ex(bed_task(&bed, 0, 0, 4096, 8), DOCA_TASK_SUBMIT_FLAG_NONE));
		OK(doca_task_submit_ex(bed_task(&bed, 1, 8, 4104, 8),
				       DOCA_TASK_SUBMIT_FLAG_OPTIMIZE_REPORTS));
		CHECK_EQ(bed_progress(&bed), 0);
		OK(docaemu_step(8, DOCAEMU_ORDER_FIFO, NULL));
		CHECK_EQ(bed_progress(&bed), 0);
		OK(doca_pe_request_notification(bed.pe));
		CHECK(!bed_readable(&bed, 20));
		OK(doca_pe_clear_notification(bed.pe, 0));
		doca_ctx_flush_tasks(bed.ctx);
		run(&bed);
		CHECK_EQ(bed.num_ok, 2);
		OK(doca_task_submit_ex(bed_task(&bed, 2, 0, 4096, 8), DOCA_TASK_SUBMIT_FLAG_NONE));
		OK(doca_task_submit_ex(bed_task(&bed, 3, 8, 4104, 8), DOCA_TASK_SUBMIT_FLAG_FLUSH));
		run(&bed);
		CHECK_EQ(bed.num_ok, 4);
		bed_close(&bed);
	}
}

static void
test_4_3_21_ordered_completions(void)
{
	struct bed bed;

	FOR_ENGINES(e)
	{
		bed_open(&bed, 8 << 20, 64);
		OK(doca_dma_set_ordered_completions(bed.dma, 1));
		bed_start(&bed);
		CHECK_DOCA(doca_dma_set_ordered_completions(bed.dma, 0), DOCA_ERROR_BAD_STATE);
		for (size_t i = 0; i < 60; i++) {
			bed_submit(&bed, i, 0, (2 << 20) + i * 100000, i % 7 == 0 ? 100000 : 64);
		}
		OK(docaemu_step(SIZE_MAX, DOCAEMU_ORDER_LIFO, NULL));
		bed_drain(&bed);
		CHECK_EQ(bed.num_ok, 60);
		for (size_t i = 0; i < 60; i++) {
			CHECK_EQ(bed.order[i], i);
		}
		bed_close(&bed);
	}
}

static void
test_4_6_4_destination_is_appended_to(void)
{
	struct doca_dma_task_memcpy *task;
	union doca_data data = {.u64 = 0};
	struct doca_buf *dst;
	struct bed bed;
	void *at;
	size_t len;

	bed_open(&bed, 4096, 2);
	bed_start(&bed);
	bed.free_tasks = false;
	dst = bed_dst(&bed, 2048, 100);
	OK(doca_dma_task_memcpy_alloc_init(bed.dma, bed_src(&bed, 0, 40), dst, data, &task));
	for (int i = 0; i < 2; i++) {
		OK(doca_task_submit(doca_dma_task_memcpy_as_task(task)));
		bed_drain(&bed);
	}
	OK(doca_buf_get_data_len(dst, &len));
	CHECK_EQ(len, 80);
	OK(doca_buf_get_data(dst, &at));
	CHECK(at == bed.memory + 2048);
	CHECK(memcmp(bed.memory, bed.memory + 2048, 40) == 0);
	CHECK(memcmp(bed.memory, bed.memory + 2088, 40) == 0);
	bed_end_task(task);
	bed_close(&bed);
}

static void
test_4_6_9_10_lists_on_both_sides(void)
{
	struct doca_dma_task_memcpy *task;
	union doca_data data = {.u64 = 0};
	uint8_t expected[300];
	struct doca_buf *src;
	struct doca_buf *dst;
	struct bed bed;
	size_t len;

	FOR_ENGINES(e)
	{
		bed_open(&bed, 4096, 2);
		bed_start(&bed);
		bed.free_tasks = false;
		src = bed_src(&bed, 0, 100);
		OK(doca_buf_chain_list(src, bed_src(&bed, 500, 0)));
		OK(doca_buf_chain_list(src, bed_src(&bed, 1000, 200)));
		memcpy(expected, bed.memory, 100);
		memcpy(expected + 100, bed.memory + 1000, 200);
		dst = bed_dst(&bed, 2000, 33);
		OK(doca_buf_chain_list(dst, bed_dst(&bed, 2500, 150)));
		OK(doca_buf_chain_list(dst, bed_dst(&bed, 3000, 200)));
		OK(doca_dma_task_memcpy_alloc_init(bed.dma, src, dst, data, &task));
		OK(doca_task_submit(doca_dma_task_memcpy_as_task(task)));
		run(&bed);
		CHECK_EQ(bed.num_ok, 1);
		CHECK(memcmp(bed.memory + 2000, expected, 33) == 0);
		CHECK(memcmp(bed.memory + 2500, expected + 33, 150) == 0);
		CHECK(memcmp(bed.memory + 3000, expected + 183, 117) == 0);
		OK(doca_buf_get_last_in_list(dst, &dst));
		OK(doca_buf_get_data_len(dst, &len));
		CHECK_EQ(len, 117);
		bed_end_task(task);
		bed_close(&bed);
	}
}

/* The elements of a list are the task's as well; a change of one does not send it astray. */
static void
test_elements_of_a_list_in_flight(void)
{
	struct doca_dma_task_memcpy *task;
	union doca_data data = {.u64 = 0};
	struct doca_buf *src[2];
	struct doca_buf *dst[2];
	struct bed bed;

	for (int change = 0; change < 6; change++) {
		configure("engine=manual");
		bed_open(&bed, 4096, 2);
		bed_start(&bed);
		for (size_t i = 0; i < 2; i++) {
			src[i] = bed_src(&bed, i * 1024, 64);
			OK(doca_buf_set_data_len(src[i], 32));
			dst[i] = bed_dst(&bed, 2048 + i * 1024, 32);
		}
		OK(doca_buf_chain_list(src[0], src[1]));
		OK(doca_buf_chain_list(dst[0], dst[1]));
		OK(doca_dma_task_memcpy_alloc_init(bed.dma, src[0], dst[0], data, &task));
		OK(doca_task_submit(doca_dma_task_memcpy_as_task(task)));
		switch (change) {
		case 0:
			OK(doca_buf_set_data_len(src[1], 8));
			break;
		case 1:
			OK(doca_buf_set_data_len(src[1], 64));
			break;
		case 2:
			OK(doca_buf_set_data(src[1], bed.memory + 1032, 16));
			break;
		case 3:
			OK(doca_buf_set_data_len(dst[1], 32));
			break;
		case 4:
			OK(doca_buf_reset_data_len(src[1]));
			break;
		default:
			OK(doca_buf_unchain_list(src[0], src[1]));
			break;
		}
		expect_violations(1, "a task is in flight on it");
		run(&bed);
		CHECK_EQ(bed.num_ok, change == 1 ? 1 : 0);
		CHECK_EQ(bed.num_error, change == 1 ? 0 : 1);
		if (change == 5) {
			OK(doca_buf_dec_refcount(src[1], NULL));
		}
		bed_close(&bed);
	}
	/* Nor does a fault that looks for the first byte written. */
	configure("fault op=completion kind=corrupt");
	bed_open(&bed, 4096, 2);
	bed_start(&bed);
	dst[0] = bed_dst(&bed, 2048, 32);
	OK(doca_dma_task_memcpy_alloc_init(bed.dma, bed_src(&bed, 0, 32), dst[0], data, &task));
	OK(doca_task_submit(doca_dma_task_memcpy_as_task(task)));
	OK(doca_buf_set_data_len(dst[0], 32));
	expect_violations(1, "a task is in flight on it");
	run(&bed);
	CHECK_EQ(bed.num_ok, 1);
	bed_close(&bed);
}

/* Nobody holds an element but its list: its head may go, and take it along, while a task is at work on it. */
static void
test_4_6_8_elements_are_not_held(void)
{
	for (int side = 0; side < 2; side++) {
		struct doca_dma_task_memcpy *task;
		union doca_data data = {.u64 = 0};
		struct doca_buf *head;
		struct doca_buf *element;
		struct doca_buf *other;
		struct bed bed;

		configure("engine=manual");
		bed_open(&bed, 4096, 4);
		bed_start(&bed);
		bed.free_tasks = false;
		head = side == 0 ? bed_src(&bed, 0, 32) : bed_dst(&bed, 0, 32);
		element = side == 0 ? bed_src(&bed, 32, 32) : bed_dst(&bed, 32, 32);
		other = side == 0 ? bed_dst(&bed, 2048, 32) : bed_src(&bed, 2048, 32);
		OK(doca_buf_chain_list(head, element));
		OK(doca_dma_task_memcpy_alloc_init(bed.dma, side == 0 ? element : other,
						   side == 0 ? other : element, data, &task));
		CHECK_DOCA(doca_task_try_submit(doca_dma_task_memcpy_as_task(task)),
			   DOCA_ERROR_INVALID_VALUE);
		expect_violations(0, NULL);
		OK(doca_task_submit(doca_dma_task_memcpy_as_task(task)));
		expect_violations(1, "an element of a list, not its head");
		OK(doca_buf_dec_refcount(head, NULL));
		expect_violations(0, NULL);
		/* Others get what was freed, and keep it. */
		head = bed_src(&bed, 0, 8);
		element = bed_src(&bed, 8, 8);
		run(&bed);
		CHECK_EQ(bed.num_error, 1);
		CHECK_EQ(bed.status[0], DOCA_ERROR_IO_FAILED);
		doca_task_free(doca_dma_task_memcpy_as_task(task));
		OK(doca_buf_dec_refcount(head, NULL));
		OK(doca_buf_dec_refcount(element, NULL));
		OK(doca_buf_dec_refcount(other, NULL));
		expect_violations(0, NULL);
		CHECK_EQ(live().bufs, 0);
		bed_close(&bed);
	}
}

/* What is chained in flight, which is told, can go with its new head, but not before its own task ends. */
static void
test_4_6_8_freed_with_a_list_in_flight(void)
{
	for (int side = 0; side < 2; side++) {
		struct doca_dma_task_memcpy *task;
		struct doca_buf *others[3];
		struct doca_buf *chained;
		struct doca_buf *head;
		struct bed bed;

		configure("engine=manual");
		bed_open(&bed, 4096, 4);
		bed_start(&bed);
		bed.free_tasks = false;
		task = (struct doca_dma_task_memcpy *)bed_task(&bed, 0, 0, 2048, 64);
		OK(doca_task_submit(doca_dma_task_memcpy_as_task(task)));
		chained = side == 0
				  ? (struct doca_buf *)(uintptr_t)doca_dma_task_memcpy_get_src(task)
				  : doca_dma_task_memcpy_get_dst(task);
		head = bed_src(&bed, 1000, 8);
		OK(doca_buf_chain_list(head, chained));
		OK(doca_buf_chain_list(head, bed_src(&bed, 1008, 8)));
		expect_violations(1, "a task is in flight on it");
		OK(doca_buf_dec_refcount(head, NULL));
		CHECK_EQ(live().bufs, 2);
		CHECK_DOCA(doca_buf_inc_refcount(chained, NULL), DOCA_ERROR_INVALID_VALUE);
		expect_violations(1, "it is freed");
		for (size_t i = 0; i < 3; i++) {
			others[i] = bed_src(&bed, i, 1);
			CHECK(others[i] != chained);
		}
		run(&bed);
		CHECK_EQ(bed.num_ok, 1);
		CHECK(memcmp(bed.memory, bed.memory + 2048, 64) == 0);
		CHECK_EQ(live().bufs, 4);
		for (size_t i = 0; i < 3; i++) {
			OK(doca_buf_dec_refcount(others[i], NULL));
		}
		OK(doca_buf_dec_refcount(
			side == 0
				? doca_dma_task_memcpy_get_dst(task)
				: (struct doca_buf *)(uintptr_t)doca_dma_task_memcpy_get_src(task),
			NULL));
		doca_task_free(doca_dma_task_memcpy_as_task(task));
		bed_close(&bed);
	}
}

static void
test_violations_of_tasks(void)
{
	struct doca_dma_task_memcpy *task;
	struct doca_task *base;
	struct doca_buf *dst;
	struct bed bed;
	char foreign[256] __attribute__((aligned(8))) = "";

	configure("engine=manual");
	bed_open(&bed, 4096, 2);
	bed_start(&bed);
	base = bed_task(&bed, 0, 0, 2048, 100);
	task = (struct doca_dma_task_memcpy *)base;
	bed.free_tasks = false;
	OK(doca_task_submit(base));
	CHECK_DOCA(doca_task_submit(base), DOCA_ERROR_BAD_STATE);
	expect_violations(1, "submitted already");
	doca_task_free(base);
	expect_violations(1, "doca_task_free");
	doca_dma_task_memcpy_set_src(task, NULL);
	expect_violations(1, "doca_dma_task_memcpy_set_src");
	/* dropping a buf in flight: it is freed when the task ends */
	dst = doca_dma_task_memcpy_get_dst(task);
	OK(doca_buf_dec_refcount(dst, NULL));
	expect_violations(1, "in flight on it");
	CHECK_EQ(live().bufs, 2);
	/* for its user it is freed at once */
	CHECK_DOCA(doca_buf_inc_refcount(dst, NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_buf_dec_refcount(dst, NULL), DOCA_ERROR_BAD_STATE);
	expect_violations(2, "it is freed");
	run(&bed);
	CHECK_EQ(bed.num_ok, 1);
	CHECK_EQ(live().bufs, 1);
	/* the task now has a dead destination */
	OK(doca_task_submit(base));
	expect_violations(1, "no live buf");
	run(&bed);
	CHECK_EQ(bed.num_error, 1);
	OK(doca_buf_dec_refcount((struct doca_buf *)(uintptr_t)doca_dma_task_memcpy_get_src(task),
				 NULL));
	doca_task_free(base);
	doca_task_free(base);
	expect_violations(1, "doca_task_free: task");
	CHECK_DOCA(doca_task_submit(base), DOCA_ERROR_INVALID_VALUE);
	expect_violations(1, "it is freed");
	CHECK_DOCA(doca_task_submit((struct doca_task *)(void *)foreign), DOCA_ERROR_INVALID_VALUE);
	expect_violations(1, "none of this library's");
	CHECK_DOCA(doca_task_submit(NULL), DOCA_ERROR_INVALID_VALUE);
	bed_close(&bed);
}

static void
test_4_6_6_overlap_is_a_violation(void)
{
	struct bed bed;

	bed_open(&bed, 4096, 2);
	bed_start(&bed);
	bed_submit(&bed, 0, 0, 99, 100);
	bed_drain(&bed);
	expect_violations(1, "overlap");
	bed_submit(&bed, 0, 0, 100, 100);
	bed_drain(&bed);
	/* Of a list it is the bytes that are written, not all there is room for. */
	for (size_t overlap = 0; overlap < 2; overlap++) {
		struct doca_dma_task_memcpy *task;
		union doca_data data = {.u64 = 0};
		struct doca_buf *src = bed_src(&bed, 1024, 32);
		struct doca_buf *dst = bed_dst(&bed, 512, 40);

		OK(doca_buf_chain_list(src, bed_src(&bed, 2072 - overlap, 32)));
		OK(doca_buf_chain_list(dst, bed_dst(&bed, 2048, 2048)));
		OK(doca_dma_task_memcpy_alloc_init(bed.dma, src, dst, data, &task));
		OK(doca_task_submit(doca_dma_task_memcpy_as_task(task)));
		bed_drain(&bed);
		expect_violations(overlap, overlap != 0 ? "overlap" : NULL);
	}
	bed_close(&bed);
}

TESTS(TEST(test_4_6_2_bytes_are_copied), TEST(test_4_3_1_3_one_step_per_call),
      TEST(test_4_3_5_progress_from_a_callback_is_a_violation),
      TEST(test_4_3_6_12_callback_may_resubmit), TEST(test_4_3_13_pool_exhaustion_is_no_memory),
      TEST(test_4_3_14_alloc_needs_running), TEST(test_4_3_16_bufs_may_follow),
      TEST(test_4_7_zero_length__oversize__permission), TEST(test_lengths_beyond_the_sum),
      TEST(test_4_5_6_permissions_that_allow_a_destination), TEST(test_settings_that_refuse_early),
      TEST(test_4_3_18_full_queue_is_again), TEST(test_4_3_19_20_without_flush_nothing_begins),
      TEST(test_4_3_21_ordered_completions), TEST(test_4_6_4_destination_is_appended_to),
      TEST(test_4_6_9_10_lists_on_both_sides), TEST(test_elements_of_a_list_in_flight),
      TEST(test_4_6_8_elements_are_not_held), TEST(test_4_6_8_freed_with_a_list_in_flight),
      TEST(test_violations_of_tasks), TEST(test_4_6_6_overlap_is_a_violation));
