/* SPDX-License-Identifier: Apache-2.0 */
/* The life cycle of a context: rows 4.4 and 4.10. */
#include "check.h"

static const char *const engines[] = {"engine=default", "engine=worker", "engine=manual"};

#define FOR_ENGINES(i) for (size_t i = 0; i < 3 && (configure(engines[i]), true); i++)

static enum doca_ctx_states
state_of(struct bed *bed)
{
	enum doca_ctx_states state;

	OK(doca_ctx_get_state(bed->ctx, &state));
	return state;
}

static void
test_4_4_1_start_needs_engine_and_tasks(void)
{
	union doca_data data = {.u64 = 3};
	struct doca_dma *dma;
	struct doca_dev *dev = open_dev(NULL);
	struct doca_pe *pe;
	struct doca_ctx *ctx;
	size_t num;

	OK(doca_pe_create(&pe));
	OK(doca_dma_create(dev, &dma));
	ctx = doca_dma_as_ctx(dma);
	CHECK_DOCA(doca_ctx_start(ctx), DOCA_ERROR_NOT_CONNECTED);
	CHECK_DOCA(doca_ctx_stop(ctx), DOCA_ERROR_NOT_CONNECTED);
	OK(doca_pe_connect_ctx(pe, ctx));
	CHECK_DOCA(doca_ctx_start(ctx), DOCA_ERROR_INITIALIZATION);
	CHECK_DOCA(doca_dma_task_memcpy_set_conf(dma, NULL, NULL, 1), DOCA_ERROR_INVALID_VALUE);
	OK(doca_ctx_set_user_data(ctx, data));
	data.u64 = 0;
	OK(doca_ctx_get_user_data(ctx, &data));
	CHECK_EQ(data.u64, 3);
	OK(doca_ctx_get_num_inflight_tasks(ctx, &num));
	CHECK_EQ(num, 0);
	OK(doca_dma_destroy(dma));
	OK(doca_pe_destroy(pe));
	OK(doca_dev_close(dev));
}

static void
ignore(struct doca_dma_task_memcpy *task, union doca_data a, union doca_data b)
{
	(void)task;
	(void)a;
	(void)b;
}

static void
test_4_4_4_running_is_frozen(void)
{
	union doca_data data = {.u64 = 3};
	struct bed bed;

	configure("max_num_tasks=8");
	bed_open(&bed, 4096, 8);
	CHECK_DOCA(doca_dma_task_memcpy_set_conf(bed.dma, ignore, ignore, 9),
		   DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_dma_task_memcpy_set_conf(bed.dma, ignore, ignore, 0),
		   DOCA_ERROR_INVALID_VALUE);
	bed_start(&bed);
	CHECK_EQ(bed.num_states, 1);
	CHECK_EQ(bed.states[0], DOCA_CTX_STATE_RUNNING);
	CHECK_DOCA(doca_ctx_start(bed.ctx), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_ctx_set_user_data(bed.ctx, data), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_ctx_set_state_changed_cb(bed.ctx, NULL), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_dma_task_memcpy_set_conf(bed.dma, ignore, ignore, 1), DOCA_ERROR_BAD_STATE);
	bed_close(&bed);
}

static void
test_4_4_5_7_12_stop_flushes_in_the_error_callback(void)
{
	struct doca_task *late;
	struct bed bed;

	configure("engine=manual");
	bed_open(&bed, 8192, 16);
	bed_start(&bed);
	for (size_t i = 0; i < 8; i++) {
		bed_submit(&bed, i, i * 8, 4096 + i * 8, 8);
	}
	late = bed_task(&bed, 99, 0, 4096, 8);
	OK(docaemu_step(3, DOCAEMU_ORDER_FIFO, NULL));
	CHECK_DOCA(doca_ctx_stop(bed.ctx), DOCA_ERROR_IN_PROGRESS);
	CHECK_EQ(state_of(&bed), DOCA_CTX_STATE_STOPPING);
	CHECK_DOCA(doca_ctx_stop(bed.ctx), DOCA_ERROR_IN_PROGRESS);
	CHECK_DOCA(doca_task_submit(late), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_ctx_start(bed.ctx), DOCA_ERROR_BAD_STATE);
	CHECK_EQ(bed.num_ok + bed.num_error, 0);
	CHECK_EQ(bed_progress(&bed), 8);
	CHECK_EQ(bed.num_ok, 3);
	CHECK_EQ(bed.num_error, 5);
	CHECK_EQ(counters().flushed, 5);
	/* 4.4.7: STOPPING until every task is freed, then one more step */
	CHECK_EQ(state_of(&bed), DOCA_CTX_STATE_STOPPING);
	CHECK_DOCA(doca_dma_destroy(bed.dma), DOCA_ERROR_IN_USE);
	expect_violations(1, "it is not idle");
	bed_end_task((struct doca_dma_task_memcpy *)late);
	CHECK_EQ(state_of(&bed), DOCA_CTX_STATE_STOPPING);
	CHECK_EQ(doca_pe_progress(bed.pe), 1);
	CHECK_EQ(state_of(&bed), DOCA_CTX_STATE_IDLE);
	CHECK_EQ(doca_pe_progress(bed.pe), 0);
	CHECK_EQ(bed.num_states, 3);
	CHECK_EQ(bed.states[1], DOCA_CTX_STATE_STOPPING);
	CHECK_EQ(bed.states[2], DOCA_CTX_STATE_IDLE);
	bed_close(&bed);
}

static void
test_4_4_8_11_stop_without_tasks_is_immediate(void)
{
	struct bed bed;

	FOR_ENGINES(e)
	{
		bed_open(&bed, 4096, 4);
		bed_start(&bed);
		OK(doca_ctx_stop(bed.ctx));
		CHECK_EQ(state_of(&bed), DOCA_CTX_STATE_IDLE);
		/* 4.4.11: and again on an idle one */
		OK(doca_ctx_stop(bed.ctx));
		bed_close(&bed);
	}
	configure("stop_idle=bad_state");
	bed_open(&bed, 4096, 4);
	CHECK_DOCA(doca_ctx_stop(bed.ctx), DOCA_ERROR_BAD_STATE);
	configure("stop_idle=success");
	bed_close(&bed);
}

static void
stop_at_eighth(struct bed *bed, struct doca_dma_task_memcpy *task)
{
	bed_end_task(task);
	if (bed->num_ok + bed->num_error == 8) {
		CHECK_DOCA(doca_ctx_stop(bed->ctx), DOCA_ERROR_IN_PROGRESS);
	}
}

static void
test_4_10_4_stop_in_a_callback(void)
{
	struct bed bed;

	FOR_ENGINES(e)
	{
		bed_open(&bed, 8192, 16);
		bed.hook = stop_at_eighth;
		bed_start(&bed);
		for (size_t i = 0; i < 16; i++) {
			bed_submit(&bed, i, i * 8, 4096 + i * 8, 8);
		}
		OK(docaemu_step(8, DOCAEMU_ORDER_FIFO, NULL));
		while (state_of(&bed) != DOCA_CTX_STATE_IDLE) {
			bed_drain(&bed);
		}
		CHECK_EQ(bed.num_ok + bed.num_error, 16);
		if (e == 2) {
			CHECK_EQ(bed.num_ok, 8);
		}
		bed_close(&bed);
	}
}

static void
test_strict_client_reports_stop_in_a_callback(void)
{
	struct bed bed;

	configure("strict_client=1");
	bed_open(&bed, 8192, 16);
	bed.hook = stop_at_eighth;
	bed_start(&bed);
	for (size_t i = 0; i < 16; i++) {
		bed_submit(&bed, i, i * 8, 4096 + i * 8, 8);
	}
	bed_progress(&bed);
	expect_violations(1, "doca_ctx_stop");
	bed_close(&bed);
}

static void
destroy_when_idle(struct bed *bed, enum doca_ctx_states state)
{
	if (state == DOCA_CTX_STATE_IDLE) {
		OK(doca_dma_destroy(bed->dma));
		bed->dma = NULL;
	}
}

static void
stop_at_last(struct bed *bed, struct doca_dma_task_memcpy *task)
{
	bed_end_task(task);
	if (bed->num_ok + bed->num_error == 16) {
		CHECK_DOCA(doca_ctx_stop(bed->ctx), DOCA_ERROR_IN_PROGRESS);
	}
}

static void
test_4_10_2_destroy_in_the_idle_callback(void)
{
	struct bed bed;

	FOR_ENGINES(e)
	{
		/* in progress */
		bed_open(&bed, 8192, 16);
		bed.hook = stop_at_last;
		bed.state_hook = destroy_when_idle;
		bed_start(&bed);
		for (size_t i = 0; i < 16; i++) {
			bed_submit(&bed, i, i * 8, 4096 + i * 8, 8);
		}
		OK(docaemu_step(SIZE_MAX, DOCAEMU_ORDER_FIFO, NULL));
		bed_drain(&bed);
		bed_progress(&bed);
		CHECK(bed.dma == NULL);
		CHECK_EQ(bed.num_ok, 16);
		bed_close(&bed);
		/* in stop */
		bed_open(&bed, 8192, 16);
		bed.state_hook = destroy_when_idle;
		bed_start(&bed);
		OK(doca_ctx_stop(bed.ctx));
		CHECK(bed.dma == NULL);
		bed_close(&bed);
	}
}

static void
submit_when_running(struct bed *bed, enum doca_ctx_states state)
{
	if (state == DOCA_CTX_STATE_RUNNING) {
		bed_submit(bed, 0, 0, 2048, 8);
	}
}

static void
test_4_3_7_submit_in_the_running_callback(void)
{
	struct bed bed;

	bed_open(&bed, 4096, 4);
	bed.state_hook = submit_when_running;
	bed_start(&bed);
	bed_drain(&bed);
	CHECK_EQ(bed.num_ok, 1);
	bed_close(&bed);
}

static void
test_4_10_3_one_failure_flushes_the_rest(void)
{
	struct bed bed;
	size_t culprits;

	FOR_ENGINES(e)
	{
		bed_open(&bed, 8192, 255);
		bed_start(&bed);
		for (size_t i = 0; i < 255; i++) {
			bed_submit(&bed, i, i * 8, 4096 + i * 8, i == 2 ? 0 : 8);
		}
		CHECK_EQ(state_of(&bed), DOCA_CTX_STATE_RUNNING);
		OK(docaemu_step(SIZE_MAX, DOCAEMU_ORDER_FIFO, NULL));
		CHECK_EQ(state_of(&bed), DOCA_CTX_STATE_RUNNING);
		while (state_of(&bed) != DOCA_CTX_STATE_IDLE) {
			bed_drain(&bed);
		}
		CHECK_EQ(bed.num_ok + bed.num_error, 255);
		/* the first error of the burst is the culprit, the flushed carry its code */
		culprits = 0;
		for (size_t i = 0; i < 255; i++) {
			if (bed.status[i] != DOCA_SUCCESS) {
				CHECK(culprits++ != 0 || bed.order[i] == 2);
				CHECK_DOCA(bed.status[i], DOCA_ERROR_IO_FAILED);
			}
		}
		if (e == 2) {
			CHECK_EQ(bed.num_ok, 2);
		}
		CHECK_EQ(bed.states[1], DOCA_CTX_STATE_STOPPING);
		CHECK_EQ(bed.states[2], DOCA_CTX_STATE_IDLE);
		CHECK_EQ(bed.num_states, 3);
		/* 4.4.14: it starts again, tasks are allocated anew */
		bed.num_ok = 0;
		bed.num_error = 0;
		bed_start(&bed);
		for (size_t i = 0; i < 255; i++) {
			bed_submit(&bed, i, i * 8, 4096 + i * 8, 8);
		}
		OK(docaemu_step(SIZE_MAX, DOCAEMU_ORDER_RANDOM, NULL));
		bed_drain(&bed);
		CHECK_EQ(bed.num_ok, 255);
		CHECK(memcmp(bed.memory, bed.memory + 4096, 255 * 8) == 0);
		bed_close(&bed);
	}
}

static void
test_4_4_6_flush_status(void)
{
	struct bed bed;

	configure("engine=manual flush_status=SHUTDOWN\n"
		  "fault op=completion status=DRIVER skip=1");
	bed_open(&bed, 8192, 8);
	bed_start(&bed);
	for (size_t i = 0; i < 4; i++) {
		bed_submit(&bed, i, i * 8, 4096 + i * 8, 8);
	}
	OK(docaemu_step(2, DOCAEMU_ORDER_FIFO, NULL));
	bed_progress(&bed);
	CHECK_DOCA(bed.status[0], DOCA_SUCCESS);
	CHECK_DOCA(bed.status[1], DOCA_ERROR_DRIVER);
	CHECK_DOCA(bed.status[2], DOCA_ERROR_SHUTDOWN);
	CHECK_DOCA(bed.status[3], DOCA_ERROR_SHUTDOWN);
	CHECK_EQ(state_of(&bed), DOCA_CTX_STATE_IDLE);
	bed_close(&bed);
}

static void
test_unbegun_tasks_without_flush_end_at_stop(void)
{
	struct bed bed;

	FOR_ENGINES(e)
	{
		bed_open(&bed, 8192, 8);
		bed_start(&bed);
		OK(doca_task_submit_ex(bed_task(&bed, 0, 0, 4096, 8), DOCA_TASK_SUBMIT_FLAG_NONE));
		CHECK_DOCA(doca_ctx_stop(bed.ctx), DOCA_ERROR_IN_PROGRESS);
		bed_drain(&bed);
		CHECK_EQ(bed.num_error, 1);
		bed_close(&bed);
	}
}

static void
test_stop_while_armed_signals(void)
{
	struct bed bed;

	for (int mode = 0; mode < 2; mode++) {
		configure("engine=manual");
		bed_open(&bed, 8192, 8);
		OK(doca_pe_set_event_mode(bed.pe, (enum doca_pe_event_mode)mode));
		bed_start(&bed);
		bed_submit(&bed, 0, 0, 4096, 8);
		OK(doca_pe_request_notification(bed.pe));
		CHECK(!bed_readable(&bed, 0));
		CHECK_DOCA(doca_ctx_stop(bed.ctx), DOCA_ERROR_IN_PROGRESS);
		CHECK(bed_readable(&bed, 0));
		OK(doca_pe_clear_notification(bed.pe, 0));
		CHECK_EQ(bed_progress(&bed), 2);
		CHECK_EQ(bed.num_error, 1);
		bed_close(&bed);
	}
}

TESTS(TEST(test_4_4_1_start_needs_engine_and_tasks), TEST(test_4_4_4_running_is_frozen),
      TEST(test_4_4_5_7_12_stop_flushes_in_the_error_callback),
      TEST(test_4_4_8_11_stop_without_tasks_is_immediate), TEST(test_4_10_4_stop_in_a_callback),
      TEST(test_strict_client_reports_stop_in_a_callback),
      TEST(test_4_10_2_destroy_in_the_idle_callback),
      TEST(test_4_3_7_submit_in_the_running_callback),
      TEST(test_4_10_3_one_failure_flushes_the_rest), TEST(test_4_4_6_flush_status),
      TEST(test_unbegun_tasks_without_flush_end_at_stop), TEST(test_stop_while_armed_signals));
