/* SPDX-License-Identifier: Apache-2.0 */
/* Contract violations: each is reported with call, object and state, or aborts the process. */
#define _GNU_SOURCE
#include "check.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <sys/resource.h>
#include <sys/wait.h>

static void
run(struct bed *bed)
{
	OK(docaemu_step(SIZE_MAX, DOCAEMU_ORDER_FIFO, NULL));
	bed_drain(bed);
}

/* ---- bytes in flight ---- */

static void
expect_at(const char *what, size_t length, const void *address)
{
	char wanted[128];

	snprintf(wanted, sizeof(wanted), "%s: %zu bytes at %p", what, length, address);
	expect_violations(1, wanted);
}

static void
test_4_6_7_source_changed_in_flight(void)
{
	struct bed bed;

	configure("engine=manual checksum=1");
	bed_open(&bed, 4096, 4);
	bed_start(&bed);
	bed_submit(&bed, 0, 0, 2048, 64);
	bed.memory[63] ^= 1;
	run(&bed);
	expect_at("(submitted): the source changed in flight", 64, bed.memory);
	/* after the copy, before the report */
	bed_submit(&bed, 1, 0, 2048, 61);
	OK(docaemu_step(1, DOCAEMU_ORDER_FIFO, NULL));
	bed.memory[60] ^= 1;
	bed_drain(&bed);
	expect_violations(1, "the source changed in flight");
	/* a neighbour, or nothing, is no violation */
	bed_submit(&bed, 2, 0, 2048, 64);
	bed.memory[64] ^= 1;
	bed.memory[2048 + 64] ^= 1;
	run(&bed);
	bed_close(&bed);
}

static void
test_4_6_7_destination_written_in_flight(void)
{
	struct bed bed;

	configure("engine=manual checksum=1");
	bed_open(&bed, 4096, 4);
	bed_start(&bed);
	bed_submit(&bed, 0, 0, 2048, 64);
	bed.memory[2048] ^= 1;
	run(&bed);
	expect_at("the destination was written by another in flight", 64, bed.memory + 2048);
	bed_submit(&bed, 1, 0, 2048, 64);
	OK(docaemu_step(1, DOCAEMU_ORDER_FIFO, NULL));
	bed.memory[2048 + 63] ^= 1;
	bed_drain(&bed);
	expect_violations(1, "the destination was written by another in flight");
	/* two tasks with one destination */
	bed_submit(&bed, 2, 0, 2048, 64);
	bed_submit(&bed, 3, 64, 2048, 64);
	run(&bed);
	expect_violations(2, "the destination was written by another in flight");
	bed_close(&bed);
}

/* One buf for two tasks: which bytes it has in the end, and how many, nobody can tell. */
static void
test_4_6_7_a_buf_in_flight_as_destination(void)
{
	struct doca_dma_task_memcpy *tasks[3];
	union doca_data data = {.u64 = 0};
	struct doca_buf *src;
	struct doca_buf *dst;
	struct bed bed;

	configure("engine=manual");
	bed_open(&bed, 4096, 4);
	bed_start(&bed);
	bed.free_tasks = false;
	src = bed_src(&bed, 0, 32);
	dst = bed_dst(&bed, 2048, 128);
	for (size_t i = 0; i < 3; i++) {
		OK(doca_dma_task_memcpy_alloc_init(bed.dma, src, dst, data, &tasks[i]));
	}
	OK(doca_task_submit(doca_dma_task_memcpy_as_task(tasks[0])));
	OK(doca_task_submit(doca_dma_task_memcpy_as_task(tasks[1])));
	expect_violations(1, "another task is in flight on the destination");
	doca_dma_task_memcpy_set_src(tasks[2], bed_src(&bed, 1000, 8));
	doca_dma_task_memcpy_set_dst(tasks[2], src);
	OK(doca_buf_set_data_len(src, 24));
	expect_violations(1, "doca_buf_set_data_len");
	OK(doca_task_submit(doca_dma_task_memcpy_as_task(tasks[2])));
	expect_violations(1, "another task is in flight on the destination");
	run(&bed);
	CHECK_EQ(bed.num_ok, 3);
	OK(doca_buf_dec_refcount(
		(struct doca_buf *)(uintptr_t)doca_dma_task_memcpy_get_src(tasks[2]), NULL));
	/* One after the other is right, and so is a source for many. */
	for (size_t i = 0; i < 2; i++) {
		OK(doca_task_submit(doca_dma_task_memcpy_as_task(tasks[i])));
		run(&bed);
		doca_task_free(doca_dma_task_memcpy_as_task(tasks[i]));
	}
	doca_dma_task_memcpy_set_src(tasks[2], NULL);
	doca_dma_task_memcpy_set_dst(tasks[2], NULL);
	doca_task_free(doca_dma_task_memcpy_as_task(tasks[2]));
	OK(doca_buf_dec_refcount(src, NULL));
	OK(doca_buf_dec_refcount(dst, NULL));
	bed_close(&bed);
}

static void
test_4_6_7_lists_in_flight(void)
{
	struct doca_dma_task_memcpy *task;
	union doca_data data = {.u64 = 0};
	struct doca_buf *src;
	struct doca_buf *dst;
	struct bed bed;

	configure("engine=manual checksum=1");
	for (int touch = 0; touch < 3; touch++) {
		bed_open(&bed, 4096, 4);
		bed_start(&bed);
		src = bed_src(&bed, 0, 33);
		OK(doca_buf_chain_list(src, bed_src(&bed, 100, 20)));
		dst = bed_dst(&bed, 2048, 17);
		OK(doca_buf_chain_list(dst, bed_dst(&bed, 3000, 64)));
		OK(doca_dma_task_memcpy_alloc_init(bed.dma, src, dst, data, &task));
		OK(doca_task_submit(doca_dma_task_memcpy_as_task(task)));
		if (touch != 0) {
			bed.memory[touch == 1 ? 119 : 3035] ^= 1;
		}
		run(&bed);
		if (touch != 0) {
			expect_violations(1, touch == 1 ? "source changed" : "destination was");
		}
		CHECK_EQ(bed.num_ok, 1);
		bed_close(&bed);
	}
}

static void
test_checksums_in_every_engine(void)
{
	static const char *const engines[] = {"engine=default", "engine=worker", "engine=manual"};
	struct bed bed;

	configure("checksum=1 inline_max=1K");
	for (size_t e = 0; e < 3; e++) {
		configure(engines[e]);
		bed_open(&bed, 1 << 16, 64);
		bed_start(&bed);
		for (size_t i = 0; i < 20; i++) {
			bed_submit(&bed, i, i * 7, 32768 + i * 1500, i % 3 == 0 ? 1500 : 13);
		}
		bed_submit(&bed, 20, 0, 2048, 0);
		run(&bed);
		CHECK_EQ(bed.num_ok + bed.num_error, 21);
		bed_close(&bed);
	}
}

/* A fault that corrupts is the engine's doing, not the program's. */
static void
test_a_corrupting_fault_is_no_violation(void)
{
	struct bed bed;

	configure("checksum=1\nfault op=completion kind=corrupt");
	bed_open(&bed, 4096, 4);
	bed_start(&bed);
	bed_submit(&bed, 0, 0, 2048, 64);
	run(&bed);
	CHECK_EQ(bed.num_ok, 1);
	CHECK(memcmp(bed.memory, bed.memory + 2048, 64) != 0);
	bed_close(&bed);
}

/* ---- two threads on one engine ---- */

struct submitter {
	struct bed *bed;
	struct doca_task *task;
};

static _Atomic int stop_submitting;

/* Submit one task over and over; the engine never begins it, so each but the first is refused. */
static void *
submit_again(void *arg)
{
	struct submitter *submitter = arg;

	while (!stop_submitting) {
		doca_task_submit(submitter->task);
		if (docaemu_violations(NULL, 0) != 0) {
			stop_submitting = 1;
		}
	}
	return NULL;
}

static void
test_two_submits_at_once(void)
{
	struct submitter submitters[2];
	pthread_t threads[2];
	char text[64 * 256];
	struct bed bed;

	/* A queue of none: a submit is refused without a trace, but it was inside the engine. */
	configure("engine=manual queue_depth=1");
	bed_open(&bed, 4096, 4);
	bed_start(&bed);
	bed_submit(&bed, 9, 0, 2048, 8);
	stop_submitting = 0;
	for (size_t i = 0; i < 2; i++) {
		submitters[i].bed = &bed;
		submitters[i].task = bed_task(&bed, i, 0, 2056 + 8 * i, 8);
	}
	for (size_t i = 0; i < 2; i++) {
		CHECK_EQ(pthread_create(&threads[i], NULL, submit_again, &submitters[i]), 0);
	}
	for (size_t i = 0; i < 2; i++) {
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	}
	CHECK(docaemu_violations(text, sizeof(text)) >= 1);
	CHECK(strstr(text, "doca_task_submit: pe") != NULL);
	CHECK(strstr(text, "(unarmed, 1 tasks in flight)") != NULL);
	CHECK(strstr(text, "another thread is inside") != NULL);
	expect_violations(docaemu_violations(NULL, 0), "another thread");
	for (size_t i = 0; i < 2; i++) {
		bed_end_task((struct doca_dma_task_memcpy *)submitters[i].task);
	}
	run(&bed);
	CHECK_EQ(bed.num_ok, 1);
	bed_close(&bed);
}

static void *
every_call(void *arg)
{
	struct doca_dma_task_memcpy *task = NULL;
	union doca_data data = {.u64 = 0};
	struct bed *bed = arg;

	CHECK_EQ(doca_pe_progress(bed->pe), 0);
	CHECK_DOCA(doca_pe_request_notification(bed->pe), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_pe_clear_notification(bed->pe, 0), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_pe_set_event_mode(bed->pe, DOCA_PE_EVENT_MODE_PROGRESS_ALL),
		   DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_pe_connect_ctx(bed->pe, bed->ctx), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_pe_destroy(bed->pe), DOCA_ERROR_IN_USE);
	CHECK_DOCA(doca_ctx_start(bed->ctx), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_ctx_stop(bed->ctx), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_dma_destroy(bed->dma), DOCA_ERROR_IN_USE);
	CHECK_DOCA(doca_dma_task_memcpy_alloc_init(bed->dma, NULL, NULL, data, &task),
		   DOCA_ERROR_BAD_STATE);
	doca_ctx_flush_tasks(bed->ctx);
	return NULL;
}

static struct doca_task *other_task;

static void *
free_task(void *arg)
{
	(void)arg;
	doca_task_free(other_task);
	CHECK_DOCA(doca_task_submit(other_task), DOCA_ERROR_BAD_STATE);
	return NULL;
}

static void
let_in(struct bed *bed, struct doca_dma_task_memcpy *task)
{
	void *(*const intruders[])(void *) = {every_call, free_task};
	pthread_t thread;

	for (size_t i = 0; i < 2; i++) {
		CHECK_EQ(pthread_create(&thread, NULL, intruders[i], bed), 0);
		CHECK_EQ(pthread_join(thread, NULL), 0);
	}
	bed_end_task(task);
}

static void
intrude_start(struct bed *bed, enum doca_ctx_states state)
{
	pthread_t thread;

	if (state == DOCA_CTX_STATE_RUNNING) {
		CHECK_EQ(pthread_create(&thread, NULL, every_call, bed), 0);
		CHECK_EQ(pthread_join(thread, NULL), 0);
	}
}

static void
test_every_call_notices_another_thread(void)
{
	struct bed bed;

	bed_open(&bed, 4096, 4);
	/* the state callback is inside the engine, too */
	bed.state_hook = intrude_start;
	bed_start(&bed);
	expect_violations(10, "another thread is inside");
	bed.hook = let_in;
	other_task = bed_task(&bed, 1, 0, 2056, 8);
	bed_submit(&bed, 0, 0, 2048, 8);
	run(&bed);
	expect_violations(12, "another thread is inside");
	bed_end_task((struct doca_dma_task_memcpy *)other_task);
	bed_close(&bed);
}

/* ---- objects ---- */

static void
destroy_pe(struct bed *bed, enum doca_ctx_states state)
{
	if (state == DOCA_CTX_STATE_IDLE) {
		OK(doca_dma_destroy(bed->dma));
		bed->dma = NULL;
		CHECK_DOCA(doca_pe_destroy(bed->pe), DOCA_ERROR_IN_USE);
	}
}

static void
test_destroying_an_engine_inside_it(void)
{
	struct bed bed;

	bed_open(&bed, 4096, 4);
	bed.state_hook = destroy_pe;
	bed_start(&bed);
	OK(doca_ctx_stop(bed.ctx));
	expect_violations(1, "it is being progressed");
	bed_close(&bed);
}

static void
test_states_in_the_text(void)
{
	struct doca_devinfo **list;
	struct doca_buf *buf;
	struct bed bed;
	uint32_t num;

	configure("engine=manual");
	bed_open(&bed, 4096, 4);
	bed_start(&bed);
	CHECK_DOCA(doca_dev_close(bed.dev), DOCA_ERROR_IN_USE);
	expect_violations(1, "(1 opens): 2 maps and contexts use it");
	buf = bed_src(&bed, 0, 8);
	CHECK_DOCA(doca_mmap_destroy(bed.mmap), DOCA_ERROR_NOT_PERMITTED);
	expect_violations(1, "(started, 1 bufs)");
	CHECK_DOCA(doca_buf_inventory_destroy(bed.inventory), DOCA_ERROR_IN_USE);
	expect_violations(1, "(started, 71 of 72 free)");
	CHECK_DOCA(doca_buf_set_data_len(buf, 9), DOCA_ERROR_INVALID_VALUE);
	expect_violations(1, "(1 references, 0 tasks in flight)");
	OK(doca_buf_dec_refcount(buf, NULL));
	bed_submit(&bed, 0, 0, 2048, 8);
	OK(doca_pe_request_notification(bed.pe));
	CHECK_DOCA(doca_pe_destroy(bed.pe), DOCA_ERROR_IN_USE);
	expect_violations(1, "(armed, 1 tasks in flight)");
	OK(docaemu_step(1, DOCAEMU_ORDER_FIFO, NULL));
	CHECK_DOCA(doca_pe_destroy(bed.pe), DOCA_ERROR_IN_USE);
	expect_violations(1, "(signalled, 1 tasks in flight)");
	OK(doca_pe_clear_notification(bed.pe, 0));
	bed_drain(&bed);
	OK(doca_devinfo_create_list(&list, &num));
	OK(doca_devinfo_destroy_list(list));
	CHECK_DOCA(doca_devinfo_destroy_list(list), DOCA_ERROR_INVALID_VALUE);
	expect_violations(1, "doca_devinfo_destroy_list: devinfo");
	bed_close(&bed);
}

static void
test_uses_of_freed_objects(void)
{
	union doca_data data = {.u64 = 0};
	struct doca_buf_inventory *inventory;
	struct doca_dma_task_memcpy *task;
	struct doca_devinfo *info;
	struct doca_task *base;
	struct doca_mmap *mmap;
	struct doca_dma *dma;
	struct doca_buf *buf;
	struct doca_ctx *ctx;
	struct doca_dev *dev;
	struct doca_pe *pe;
	struct bed bed;
	size_t len;

	bed_open(&bed, 4096, 4);
	bed_start(&bed);
	base = bed_task(&bed, 0, 0, 2048, 8);
	task = (struct doca_dma_task_memcpy *)base;
	bed_end_task(task);
	CHECK(doca_dma_task_memcpy_as_task(task) == NULL);
	CHECK(doca_dma_task_memcpy_get_src(task) == NULL);
	CHECK(doca_dma_task_memcpy_get_dst(task) == NULL);
	doca_dma_task_memcpy_set_src(task, NULL);
	doca_dma_task_memcpy_set_dst(task, NULL);
	CHECK_DOCA(doca_task_try_submit(base), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_task_submit_ex(base, 0), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_task_get_status(base), DOCA_ERROR_INVALID_VALUE);
	doca_task_set_user_data(base, data);
	CHECK_EQ(doca_task_get_user_data(base).u64, 0);
	CHECK(doca_task_get_ctx(base) == NULL);
	expect_violations(11, "it is freed");
	dev = bed.dev;
	pe = bed.pe;
	dma = bed.dma;
	ctx = bed.ctx;
	mmap = bed.mmap;
	inventory = bed.inventory;
	buf = bed_src(&bed, 0, 8);
	OK(doca_buf_dec_refcount(buf, NULL));
	info = doca_dev_as_devinfo(dev);
	OK(doca_ctx_stop(ctx));
	doca_ctx_flush_tasks(ctx);
	expect_violations(1, "(idle): it is idle");
	bed_close(&bed);
	CHECK(doca_dev_as_devinfo(dev) == NULL);
	CHECK_DOCA(doca_dma_cap_task_memcpy_is_supported(info), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_dma_create(dev, &dma), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_pe_connect_ctx(pe, ctx), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_pe_request_notification(pe), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_ctx_start(ctx), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_ctx_stop(ctx), DOCA_ERROR_INVALID_VALUE);
	doca_ctx_flush_tasks(ctx);
	CHECK(doca_dma_as_ctx(dma) == NULL);
	CHECK_DOCA(doca_dma_destroy(dma), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_mmap_start(mmap), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_buf_inventory_start(inventory), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_buf_get_len(buf, &len), DOCA_ERROR_INVALID_VALUE);
	expect_violations(13, "it is freed");
}

static void
keep_bufs(struct bed *bed, struct doca_dma_task_memcpy *task)
{
	(void)bed;
	doca_task_free(doca_dma_task_memcpy_as_task(task));
}

/* A submit without a look at the bufs takes them, reports them, and fails; one with a look refuses. */
static void
refuse(struct bed *bed, struct doca_buf *src, void *from, struct doca_buf *dst)
{
	struct doca_dma_task_memcpy *task;
	union doca_data data = {.u64 = 0};

	bed->hook = keep_bufs;
	bed->num_error = 0;
	bed->num_states = 0;
	bed_start(bed);
	OK(doca_buf_set_data(src, from, 64));
	OK(doca_buf_reset_data_len(dst));
	OK(doca_dma_task_memcpy_alloc_init(bed->dma, src, dst, data, &task));
	CHECK_DOCA(doca_task_try_submit(doca_dma_task_memcpy_as_task(task)),
		   DOCA_ERROR_INVALID_VALUE);
	expect_violations(0, NULL);
	OK(doca_task_submit(doca_dma_task_memcpy_as_task(task)));
	expect_violations(1, "a buf points into a map that is not started");
	bed_drain(bed);
	CHECK_EQ(bed->num_error, 1);
	CHECK_EQ(bed->status[0], DOCA_ERROR_IO_FAILED);
}

/* A map with thread safety stops, and ends, although bufs point into it: what is then done with them is wrong. */
static void
test_4_5_16_bufs_of_a_map_that_was_stopped(void)
{
	static uint8_t memory[64];
	struct doca_mmap *mmap;
	struct doca_buf *there;
	struct doca_buf *here;
	struct doca_buf *copy;
	struct bed bed;

	configure("map_lifetime=bufs");
	bed_open(&bed, 4096, 4);
	here = bed_src(&bed, 0, 64);
	OK(doca_mmap_create(&mmap));
	OK(doca_mmap_add_dev(mmap, bed.dev));
	OK(doca_mmap_set_memrange(mmap, memory, sizeof(memory)));
	OK(doca_mmap_enable_thread_safety(mmap));
	OK(doca_mmap_start(mmap));
	OK(doca_buf_inventory_buf_get_by_addr(bed.inventory, mmap, memory, 64, &there));
	OK(doca_mmap_stop(mmap));
	CHECK_DOCA(doca_mmap_enable_thread_safety(mmap), DOCA_ERROR_NOT_PERMITTED);
	for (int i = 0; i < 2; i++) {
		refuse(&bed, here, bed.memory, there);
		refuse(&bed, there, memory, here);
		CHECK_DOCA(doca_buf_inventory_buf_dup(bed.inventory, there, &copy),
			   DOCA_ERROR_BAD_STATE);
		if (i == 0) {
			OK(doca_mmap_destroy(mmap));
			CHECK_DOCA(doca_mmap_stop(mmap), DOCA_ERROR_INVALID_VALUE);
			expect_violations(1, "it is freed");
		}
		/* Long after: what was destroyed is out of the quarantine as well. */
		for (size_t j = 0; j < 300; j++) {
			struct doca_pe *pe;

			OK(doca_pe_create(&pe));
			OK(doca_pe_destroy(pe));
		}
	}
	OK(doca_buf_dec_refcount(there, NULL));
	OK(doca_buf_dec_refcount(here, NULL));
	bed_close(&bed);
}

/* What a task is at work on is not unregistered: told when the task ends, on either side and of any element. */
static void
test_4_5_16_a_map_stopped_in_flight(void)
{
	static uint8_t memory[256];
	static const char *const what = "a map was stopped while it was in flight";

	for (int i = 0; i < 4; i++) {
		struct doca_dma_task_memcpy *task;
		union doca_data data = {.u64 = 0};
		struct doca_mmap *mmap;
		struct doca_buf *there;
		struct doca_buf *here;
		struct doca_buf *last;
		struct bed bed;

		configure("engine=manual map_lifetime=bufs");
		bed_open(&bed, 4096, 4);
		bed_start(&bed);
		OK(doca_mmap_create(&mmap));
		OK(doca_mmap_add_dev(mmap, bed.dev));
		OK(doca_mmap_set_memrange(mmap, memory, sizeof(memory)));
		OK(doca_mmap_enable_thread_safety(mmap));
		OK(doca_mmap_start(mmap));
		OK(doca_buf_inventory_buf_get_by_data(bed.inventory, mmap, memory, 64, &there));
		here = bed_src(&bed, 0, 64);
		last = there;
		if (i >= 2) {
			last = bed_src(&bed, 100, 64);
			OK(doca_buf_chain_list(last, there));
		}
		OK(doca_buf_reset_data_len(i % 2 == 0 ? here : last));
		OK(doca_dma_task_memcpy_alloc_init(bed.dma, i % 2 == 0 ? last : here,
						   i % 2 == 0 ? here : last, data, &task));
		if (i == 2) {
			OK(doca_buf_set_data_len(last, 32));
			OK(doca_buf_set_data_len(there, 32));
		}
		OK(doca_task_submit(doca_dma_task_memcpy_as_task(task)));
		OK(doca_mmap_stop(mmap));
		expect_violations(0, NULL);
		run(&bed);
		expect_violations(1, what);
		CHECK_EQ(bed.num_ok, 1);
		OK(doca_mmap_destroy(mmap));
		bed_close(&bed);
	}
}

/* The quarantine keeps what was destroyed for a while, not for ever. */
static void
test_quarantine_is_bounded(void)
{
	struct doca_buf_inventory *inventory;
	struct doca_pe *pe;

	for (int i = 0; i < 600; i++) {
		OK(doca_pe_create(&pe));
		OK(doca_pe_destroy(pe));
	}
	for (int i = 0; i < 4; i++) {
		OK(doca_buf_inventory_create(100000, &inventory));
		OK(doca_buf_inventory_destroy(inventory));
	}
	CHECK_DOCA(doca_buf_inventory_destroy(inventory), DOCA_ERROR_INVALID_VALUE);
	expect_violations(1, "it is freed");
	/* What is too large to be kept displaces nothing: a quarantine that is full, and one that is not. */
	for (int i = 0; i < 2; i++) {
		OK(doca_buf_inventory_create(300000, &inventory));
		for (int j = 0; j < 300; j++) {
			OK(doca_pe_create(&pe));
			OK(doca_pe_destroy(pe));
		}
		OK(doca_buf_inventory_destroy(inventory));
		CHECK_DOCA(doca_pe_destroy(pe), DOCA_ERROR_INVALID_VALUE);
		expect_violations(1, "it is freed");
	}
}

static void
test_only_the_latest_violations_are_kept(void)
{
	char text[64 * 256] __attribute__((aligned(8))) = "";
	size_t lines = 0;

	for (int i = 0; i < 70; i++) {
		CHECK_DOCA(doca_pe_destroy((struct doca_pe *)(void *)text),
			   DOCA_ERROR_INVALID_VALUE);
		memset(text, 0, sizeof(text));
	}
	CHECK_EQ(docaemu_violations(text, sizeof(text)), 70);
	for (char *c = text; (c = strchr(c, '\n')) != NULL; c++) {
		lines++;
	}
	CHECK_EQ(lines, 64);
	CHECK_EQ(docaemu_violations(text, 10), 70);
	CHECK_EQ(strlen(text), 9);
	expect_violations(70, NULL);
}

/* ---- what needs a process of its own ---- */

/* Run something in a child and give what it wrote to stderr; its status is returned. */
static int
in_child(void (*what)(void), char *text, size_t size)
{
	size_t used = 0;
	int pipes[2];
	int status;
	ssize_t got;
	pid_t child;

	CHECK_EQ(pipe(pipes), 0);
	fflush(stdout);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		const struct rlimit none = {0, 0};

		setrlimit(RLIMIT_CORE, &none);
		signal(SIGABRT, SIG_DFL);
		dup2(pipes[1], STDERR_FILENO);
		close(pipes[0]);
		close(pipes[1]);
		what();
		exit(0);
	}
	close(pipes[1]);
	while ((got = read(pipes[0], text + used, size - 1 - used)) > 0) {
		used += (size_t)got;
	}
	text[used] = '\0';
	close(pipes[0]);
	CHECK_EQ(waitpid(child, &status, 0), child);
	return status;
}

static void
leave_objects(void)
{
	static struct bed bed;

	bed_open(&bed, 4096, 4);
	bed_start(&bed);
	bed_submit(&bed, 0, 0, 2048, 8);
}

static void
leave_and_say_so(void)
{
	configure("engine=manual strict_exit=1");
	leave_objects();
}

static void
leave_and_abort(void)
{
	configure("engine=manual strict_exit=1 strict=abort");
	leave_objects();
}

static void
leave_silently(void)
{
	configure("engine=manual");
	leave_objects();
}

static void
leave_nothing(void)
{
	configure("strict_exit=1 strict=abort");
}

static void
test_what_is_left_at_exit(void)
{
	char text[1024];

	CHECK_EQ(in_child(leave_and_say_so, text, sizeof(text)), 0);
	CHECK(strstr(text, "alive at exit: 0 devinfo lists, 1 devs, 1 mmaps, 1 inventories, "
			   "2 bufs, 1 pes, 1 ctxs, 1 tasks\n") != NULL);
	CHECK(WIFSIGNALED(in_child(leave_and_abort, text, sizeof(text))));
	CHECK(strstr(text, "alive at exit") != NULL);
	CHECK_EQ(in_child(leave_silently, text, sizeof(text)), 0);
	CHECK(strstr(text, "alive at exit") == NULL);
	CHECK_EQ(in_child(leave_nothing, text, sizeof(text)), 0);
	CHECK(strstr(text, "alive at exit") == NULL);
}

static void
touch_and_abort(void)
{
	struct bed bed;

	configure("engine=manual checksum=1 strict=abort");
	bed_open(&bed, 4096, 4);
	bed_start(&bed);
	bed_submit(&bed, 0, 0, 2048, 64);
	bed.memory[0] ^= 1;
	run(&bed);
}

static void
test_abort_names_the_violation(void)
{
	char text[1024];
	int status = in_child(touch_and_abort, text, sizeof(text));

	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	CHECK(strstr(text, "doca_task_submit: task") != NULL);
	CHECK(strstr(text, "the source changed in flight: ") != NULL);
}

TESTS(TEST(test_4_6_7_source_changed_in_flight), TEST(test_4_6_7_destination_written_in_flight),
      TEST(test_4_6_7_a_buf_in_flight_as_destination), TEST(test_4_6_7_lists_in_flight),
      TEST(test_checksums_in_every_engine), TEST(test_a_corrupting_fault_is_no_violation),
      TEST(test_two_submits_at_once), TEST(test_every_call_notices_another_thread),
      TEST(test_destroying_an_engine_inside_it), TEST(test_states_in_the_text),
      TEST(test_uses_of_freed_objects), TEST(test_4_5_16_bufs_of_a_map_that_was_stopped),
      TEST(test_4_5_16_a_map_stopped_in_flight), TEST(test_quarantine_is_bounded),
      TEST(test_only_the_latest_violations_are_kept), TEST(test_what_is_left_at_exit),
      TEST(test_abort_names_the_violation));
