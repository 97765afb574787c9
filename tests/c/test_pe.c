/* SPDX-License-Identifier: Apache-2.0 */
/* Progress engines and notification: rows 4.1 and 4.2. */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>

static void
test_4_1_pe_create__pe_destroy__pe_connect_ctx__pe_set_event_mode(void)
{
	struct doca_pe *pe;
	struct doca_pe *other;
	struct bed bed;
	size_t num;

	CHECK_DOCA(doca_pe_create(NULL), DOCA_ERROR_INVALID_VALUE);
	OK(doca_pe_create(&other));
	bed_open(&bed, 4096, 2);
	CHECK_DOCA(doca_pe_connect_ctx(NULL, bed.ctx), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_pe_connect_ctx(other, bed.ctx), DOCA_ERROR_NOT_PERMITTED);
	CHECK_DOCA(doca_pe_destroy(bed.pe), DOCA_ERROR_IN_USE);
	expect_violations(1, "1 contexts are connected");
	OK(doca_pe_get_num_inflight_tasks(bed.pe, &num));
	CHECK_EQ(num, 0);
	CHECK_DOCA(doca_pe_set_event_mode(other, (enum doca_pe_event_mode)2),
		   DOCA_ERROR_INVALID_VALUE);
	pe = other;
	OK(doca_pe_destroy(other));
	CHECK_EQ(doca_pe_progress(pe), 0);
	expect_violations(1, "doca_pe_progress: pe");
	bed_close(&bed);
}

static void
test_4_2_1_one_handle_close_on_exec(void)
{
	struct doca_pe *pe;
	int a;
	int b;

	OK(doca_pe_create(&pe));
	OK(doca_pe_get_notification_handle(pe, &a));
	OK(doca_pe_get_notification_handle(pe, &b));
	CHECK_EQ(a, b);
	CHECK((fcntl(a, F_GETFD) & FD_CLOEXEC) != 0);
	CHECK((fcntl(a, F_GETFL) & O_NONBLOCK) != 0);
	OK(doca_pe_destroy(pe));
}

static void
test_4_2_4_arming_with_a_completion_pending(void)
{
	struct bed bed;

	for (int mode = 0; mode < 2; mode++) {
		configure("engine=manual");
		bed_open(&bed, 4096, 2);
		OK(doca_pe_set_event_mode(bed.pe, (enum doca_pe_event_mode)mode));
		bed_start(&bed);
		bed_submit(&bed, 0, 0, 2048, 8);
		OK(docaemu_step(1, DOCAEMU_ORDER_FIFO, NULL));
		CHECK(!bed_readable(&bed, 0));
		OK(doca_pe_request_notification(bed.pe));
		CHECK(bed_readable(&bed, 0));
		OK(doca_pe_clear_notification(bed.pe, 0));
		CHECK(!bed_readable(&bed, 0));
		CHECK_EQ(doca_pe_progress(bed.pe), 1);
		OK(doca_pe_request_notification(bed.pe));
		CHECK(!bed_readable(&bed, 0));
		OK(doca_pe_clear_notification(bed.pe, 0));
		bed_close(&bed);
	}
}

static void
test_4_2_5_6_readable_once_until_cleared(void)
{
	struct docaemu_counters before;
	struct bed bed;

	configure("engine=manual");
	bed_open(&bed, 4096, 4);
	bed_start(&bed);
	bed_submit(&bed, 0, 0, 2048, 8);
	bed_submit(&bed, 1, 8, 2056, 8);
	OK(doca_pe_request_notification(bed.pe));
	CHECK(!bed_readable(&bed, 0));
	before = counters();
	OK(docaemu_step(2, DOCAEMU_ORDER_FIFO, NULL));
	CHECK(bed_readable(&bed, 0));
	CHECK(bed_readable(&bed, 0));
	CHECK_EQ(counters().notifications - before.notifications, 1);
	OK(doca_pe_clear_notification(bed.pe, bed.fd));
	CHECK(!bed_readable(&bed, 0));
	CHECK_EQ(bed_progress(&bed), 2);
	bed_close(&bed);
}

static void
test_4_2_7_unarmed_does_not_signal(void)
{
	struct bed bed;

	configure("engine=manual");
	bed_open(&bed, 4096, 4);
	bed_start(&bed);
	bed_submit(&bed, 0, 0, 2048, 8);
	OK(docaemu_step(2, DOCAEMU_ORDER_FIFO, NULL));
	CHECK(!bed_readable(&bed, 0));
	bed_progress(&bed);
	bed_close(&bed);
}

static void
test_4_2_8_11_selective_serves_only_what_was_pending(void)
{
	struct bed bed;

	configure("engine=manual");
	bed_open(&bed, 4096, 4);
	bed_start(&bed);
	bed_submit(&bed, 0, 0, 2048, 8);
	bed_submit(&bed, 1, 8, 2056, 8);
	OK(docaemu_step(1, DOCAEMU_ORDER_FIFO, NULL));
	OK(doca_pe_request_notification(bed.pe));
	OK(docaemu_step(1, DOCAEMU_ORDER_FIFO, NULL));
	CHECK_EQ(bed_progress(&bed), 1);
	CHECK_EQ(bed.num_ok, 1);
	OK(doca_pe_clear_notification(bed.pe, 0));
	CHECK_EQ(bed_progress(&bed), 1);
	CHECK_EQ(bed.num_ok, 2);
	bed_close(&bed);
}

static void
test_4_2_9_10_all_serves_everything(void)
{
	struct bed bed;

	configure("engine=manual");
	bed_open(&bed, 4096, 4);
	OK(doca_pe_set_event_mode(bed.pe, DOCA_PE_EVENT_MODE_PROGRESS_ALL));
	bed_start(&bed);
	bed_submit(&bed, 0, 0, 2048, 8);
	OK(doca_pe_request_notification(bed.pe));
	OK(docaemu_step(1, DOCAEMU_ORDER_FIFO, NULL));
	CHECK_EQ(bed_progress(&bed), 1);
	CHECK(bed_readable(&bed, 0));
	/* the next request clears */
	OK(doca_pe_request_notification(bed.pe));
	CHECK(!bed_readable(&bed, 0));
	bed_close(&bed);
}

static void
test_4_2_14_submitting_while_armed(void)
{
	static const char *const engines[] = {"engine=default", "engine=worker"};
	struct bed bed;

	for (size_t e = 0; e < 2; e++) {
		for (int mode = 0; mode < 2; mode++) {
			configure(engines[e]);
			bed_open(&bed, 4096, 4);
			OK(doca_pe_set_event_mode(bed.pe, (enum doca_pe_event_mode)mode));
			bed_start(&bed);
			for (size_t i = 0; i < 50; i++) {
				OK(doca_pe_request_notification(bed.pe));
				CHECK(!bed_readable(&bed, 0));
				bed_submit(&bed, i, 0, 2048, 8);
				CHECK(bed_readable(&bed, 10000));
				OK(doca_pe_clear_notification(bed.pe, 0));
				CHECK_EQ(bed_progress(&bed), 1);
			}
			bed_close(&bed);
		}
	}
}

static void
test_4_2_12_strict_edge_is_silent_in_mode_all_only(void)
{
	struct bed bed;

	configure("engine=manual edge=strict");
	for (int mode = 0; mode < 2; mode++) {
		bed_open(&bed, 4096, 4);
		OK(doca_pe_set_event_mode(bed.pe, (enum doca_pe_event_mode)mode));
		bed_start(&bed);
		bed_submit(&bed, 0, 0, 2048, 8);
		bed_submit(&bed, 1, 8, 2056, 8);
		OK(docaemu_step(1, DOCAEMU_ORDER_FIFO, NULL));
		OK(doca_pe_request_notification(bed.pe));
		CHECK_EQ(bed_readable(&bed, 0), mode == DOCA_PE_EVENT_MODE_PROGRESS_SELECTIVE);
		OK(docaemu_step(1, DOCAEMU_ORDER_FIFO, NULL));
		CHECK(bed_readable(&bed, 0));
		OK(doca_pe_clear_notification(bed.pe, 0));
		CHECK_EQ(bed_progress(&bed), 2);
		bed_close(&bed);
	}
}

static void
test_spurious_notification(void)
{
	struct bed bed;

	bed_open(&bed, 4096, 4);
	bed_start(&bed);
	for (int armed = 0; armed < 2; armed++) {
		if (armed) {
			OK(doca_pe_request_notification(bed.pe));
		}
		OK(docaemu_spurious_notification());
		CHECK(bed_readable(&bed, 0));
		OK(doca_pe_clear_notification(bed.pe, 0));
		CHECK(!bed_readable(&bed, 0));
		CHECK_EQ(bed_progress(&bed), 0);
	}
	bed_close(&bed);
}

static void
test_pending_state_change_signals(void)
{
	struct doca_task *task;
	struct bed bed;

	for (int before = 0; before < 2; before++) {
		bed_open(&bed, 4096, 4);
		bed_start(&bed);
		task = bed_task(&bed, 0, 0, 2048, 8);
		CHECK_DOCA(doca_ctx_stop(bed.ctx), DOCA_ERROR_IN_PROGRESS);
		if (before) {
			bed_end_task((struct doca_dma_task_memcpy *)task);
		}
		OK(doca_pe_request_notification(bed.pe));
		if (!before) {
			CHECK(!bed_readable(&bed, 0));
			bed_end_task((struct doca_dma_task_memcpy *)task);
		}
		CHECK(bed_readable(&bed, 0));
		OK(doca_pe_clear_notification(bed.pe, 0));
		CHECK_EQ(bed_progress(&bed), 1);
		CHECK_EQ(bed.states[bed.num_states - 1], DOCA_CTX_STATE_IDLE);
		bed_close(&bed);
	}
}

static void
test_several_contexts_share_an_engine(void)
{
	struct doca_dma *more[3];
	struct bed bed;

	bed_open(&bed, 4096, 4);
	for (int i = 0; i < 3; i++) {
		OK(doca_dma_create(bed.dev, &more[i]));
		OK(doca_pe_connect_ctx(bed.pe, doca_dma_as_ctx(more[i])));
	}
	bed_start(&bed);
	bed_submit(&bed, 0, 0, 2048, 8);
	OK(doca_dma_destroy(more[1]));
	bed_submit(&bed, 1, 8, 2056, 8);
	CHECK_EQ(bed_progress(&bed), 2);
	OK(doca_dma_destroy(more[0]));
	OK(doca_dma_destroy(more[2]));
	bed_submit(&bed, 2, 8, 2056, 8);
	CHECK_EQ(bed_progress(&bed), 1);
	bed_close(&bed);
}

TESTS(TEST(test_4_1_pe_create__pe_destroy__pe_connect_ctx__pe_set_event_mode),
      TEST(test_4_2_1_one_handle_close_on_exec), TEST(test_4_2_4_arming_with_a_completion_pending),
      TEST(test_4_2_5_6_readable_once_until_cleared), TEST(test_4_2_7_unarmed_does_not_signal),
      TEST(test_4_2_8_11_selective_serves_only_what_was_pending),
      TEST(test_4_2_9_10_all_serves_everything), TEST(test_4_2_14_submitting_while_armed),
      TEST(test_4_2_12_strict_edge_is_silent_in_mode_all_only), TEST(test_spurious_notification),
      TEST(test_pending_state_change_signals), TEST(test_several_contexts_share_an_engine));
