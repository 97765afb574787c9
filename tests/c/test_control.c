/* SPDX-License-Identifier: Apache-2.0 */
/* The control API: configuration, faults, counters; and the log. */
#define _GNU_SOURCE
#include "check.h"

#include <unistd.h>

static void
refuse(const char *text, const char *line, const char *key)
{
	char error[256] = "";

	CHECK_DOCA(docaemu_configure(text, error, sizeof(error)), DOCA_ERROR_INVALID_VALUE);
	if (strstr(error, line) == NULL || strstr(error, key) == NULL) {
		check_failed(__FILE__, __LINE__, "'%s' and '%s' are not in '%s'", line, key, error);
	}
}

static void
test_configuration_errors_name_line_and_key(void)
{
	refuse("seed=1\nnonsense=1", "line 2", "nonsense");
	refuse("seed=1;seed=x", "line 2", "seed");
	refuse("engine=fast", "line 1", "engine");
	refuse("# all right\n\ninline_max=1Q", "line 3", "inline_max");
	refuse("inline_max", "line 1", "inline_max");
	refuse("max_buf_size=0", "line 1", "max_buf_size");
	refuse("max_buf_size=99999999999999999999", "line 1", "max_buf_size");
	refuse("max_buf_size=99999999T", "line 1", "max_buf_size");
	refuse("flush_status=WHAT", "line 1", "flush_status");
	refuse("device", "line 1", "name");
	refuse("device x colour=red", "line 1", "colour");
	refuse("device x pci=1", "line 1", "pci");
	refuse("device x dma=2", "line 1", "dma");
	refuse("fault kind=fail", "line 1", "op");
	refuse("fault op=nonsense", "line 1", "op");
	refuse("fault op=ctx_start kind=corrupt", "line 1", "corrupt");
	refuse("fault op=ctx_start status=SUCCESS", "line 1", "status");
	refuse("fault op=ctx_start interval=0", "line 1", "interval");
	refuse("devices=some", "line 1", "devices");
	refuse("fault op=ctx_start kind=odd", "line 1", "kind");
	refuse("fault op=ctx_start nonsense=1", "line 1", "nonsense");
	refuse("fault op", "line 1", "op");
	CHECK_DOCA(docaemu_configure(NULL, NULL, 0), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(docaemu_counters(NULL, 8), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(docaemu_live(NULL, 8), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(docaemu_faults_pending(NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(docaemu_last_copies(NULL, 1, NULL), DOCA_ERROR_INVALID_VALUE);
	configure("devices=default");
	configure("  seed=7  strict=off # words behind\n;;device a dma=1;version=3.2.1025");
}

static void
test_reset_needs_no_live_objects(void)
{
	struct doca_pe *pe;
	size_t pending;

	configure("seed=9 inline_max=1\nfault op=ctx_start count=3");
	OK(doca_pe_create(&pe));
	CHECK_DOCA(docaemu_reset(), DOCA_ERROR_IN_USE);
	OK(docaemu_faults_pending(&pending));
	CHECK_EQ(pending, 3);
	OK(doca_pe_destroy(pe));
	OK(docaemu_reset());
	OK(docaemu_faults_pending(&pending));
	CHECK_EQ(pending, 0);
}

static void
test_engine_does_not_change_under_a_context(void)
{
	struct bed bed;

	bed_open(&bed, 4096, 4);
	bed_start(&bed);
	CHECK_DOCA(docaemu_configure("engine=manual", NULL, 0), DOCA_ERROR_IN_USE);
	bed_close(&bed);
}

static void
test_fault_skip_interval_count(void)
{
	static const int expected[] = {0, 0, 1, 0, 1, 0, 0, 0};
	struct doca_pe *pe;
	size_t pending;

	configure("fault op=pe_create status=NO_MEMORY skip=2 interval=2 count=2");
	for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
		doca_error_t result = doca_pe_create(&pe);

		CHECK_DOCA(result, expected[i] ? DOCA_ERROR_NO_MEMORY : DOCA_SUCCESS);
		if (result == DOCA_SUCCESS) {
			OK(doca_pe_destroy(pe));
		}
	}
	OK(docaemu_faults_pending(&pending));
	CHECK_EQ(pending, 0);
	CHECK_EQ(counters().faults, 2);
}

static void
test_faults_at_each_phase_then_a_good_copy(void)
{
	static const char *const ops[] = {
		"dev_open",	     "mmap_create",  "mmap_add_dev",
		"mmap_set_memrange", "mmap_start",   "buf_inventory_create",
		"pe_create",	     "dma_create",   "pe_connect_ctx",
		"ctx_start",	     "task_submit",  "dma_task_memcpy_alloc_init",
		"ctx_stop",	     "dma_destroy",  "pe_clear_notification",
		"mmap_stop",	     "mmap_destroy", "buf_dec_refcount",
	};

	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		char text[128];
		struct bed bed;
		size_t pending;
		int failed = 0;

		/* The fault is hit through a call of its own, with nothing to lose. */
		snprintf(text, sizeof(text), "fault op=%s status=DRIVER", ops[i]);
		configure(text);
		failed += doca_dev_open(NULL, NULL) == DOCA_ERROR_DRIVER;
		failed += doca_mmap_create(NULL) == DOCA_ERROR_DRIVER;
		failed += doca_mmap_add_dev(NULL, NULL) == DOCA_ERROR_DRIVER;
		failed += doca_mmap_set_memrange(NULL, NULL, 0) == DOCA_ERROR_DRIVER;
		failed += doca_mmap_start(NULL) == DOCA_ERROR_DRIVER;
		failed += doca_buf_inventory_create(0, NULL) == DOCA_ERROR_DRIVER;
		failed += doca_pe_create(NULL) == DOCA_ERROR_DRIVER;
		failed += doca_dma_create(NULL, NULL) == DOCA_ERROR_DRIVER;
		failed += doca_pe_connect_ctx(NULL, NULL) == DOCA_ERROR_DRIVER;
		failed += doca_ctx_start(NULL) == DOCA_ERROR_DRIVER;
		failed += doca_task_submit(NULL) == DOCA_ERROR_DRIVER;
		failed += doca_dma_task_memcpy_alloc_init(NULL, NULL, NULL,
							  (union doca_data){.u64 = 0},
							  NULL) == DOCA_ERROR_DRIVER;
		failed += doca_ctx_stop(NULL) == DOCA_ERROR_DRIVER;
		failed += doca_dma_destroy(NULL) == DOCA_ERROR_DRIVER;
		failed += doca_pe_clear_notification(NULL, 0) == DOCA_ERROR_DRIVER;
		failed += doca_mmap_stop(NULL) == DOCA_ERROR_DRIVER;
		failed += doca_mmap_destroy(NULL) == DOCA_ERROR_DRIVER;
		failed += doca_buf_dec_refcount(NULL, NULL) == DOCA_ERROR_DRIVER;
		CHECK_EQ(failed, 1);
		OK(docaemu_faults_pending(&pending));
		CHECK_EQ(pending, 0);
		bed_open(&bed, 4096, 4);
		bed_start(&bed);
		bed_submit(&bed, 0, 0, 2048, 100);
		bed_drain(&bed);
		CHECK_EQ(bed.num_ok, 1);
		bed_close(&bed);
	}
}

static void
test_fault_again_at_submit(void)
{
	struct doca_task *task;
	struct bed bed;

	configure("fault op=task_submit kind=again count=2");
	bed_open(&bed, 4096, 4);
	bed_start(&bed);
	task = bed_task(&bed, 0, 0, 2048, 8);
	CHECK_DOCA(doca_task_submit(task), DOCA_ERROR_AGAIN);
	CHECK_DOCA(doca_task_submit(task), DOCA_ERROR_AGAIN);
	OK(doca_task_submit(task));
	bed_drain(&bed);
	bed_close(&bed);
}

/* The submit reports a failure, and the task is on its way: the library that breaks rule 4.3.9. */
static void
test_fault_of_a_submit_that_was_accepted(void)
{
	struct doca_task *task;
	size_t num_tasks;
	struct bed bed;

	configure("fault op=task_submit kind=accepted status=DRIVER\n"
		  "fault op=task_try_submit kind=accepted status=AGAIN\n"
		  "fault op=task_submit_ex kind=accepted");
	bed_open(&bed, 4096, 4);
	bed_start(&bed);
	task = bed_task(&bed, 0, 0, 2048, 8);
	CHECK_DOCA(doca_task_submit(task), DOCA_ERROR_DRIVER);
	task = bed_task(&bed, 1, 0, 2056, 8);
	CHECK_DOCA(doca_task_try_submit(task), DOCA_ERROR_AGAIN);
	task = bed_task(&bed, 2, 0, 2064, 8);
	CHECK_DOCA(doca_task_submit_ex(task, DOCA_TASK_SUBMIT_FLAG_FLUSH), DOCA_ERROR_IO_FAILED);
	OK(doca_ctx_get_num_inflight_tasks(bed.ctx, &num_tasks));
	CHECK_EQ(num_tasks, 3);
	bed_drain(&bed);
	CHECK_EQ(bed.num_ok, 3);
	bed_close(&bed);
}

static void
test_fault_of_a_completion(void)
{
	struct bed bed;

	/* not fatal: the others go on */
	configure("fault op=completion status=IO_FAILED fatal=0 skip=1");
	bed_open(&bed, 4096, 4);
	bed_start(&bed);
	memset(bed.memory + 2048, 0, 1024);
	for (size_t i = 0; i < 3; i++) {
		bed_submit(&bed, i, 0, 2048 + i * 100, 100);
	}
	bed_drain(&bed);
	CHECK_EQ(bed.num_ok, 2);
	CHECK_EQ(bed.num_error, 1);
	CHECK_EQ(bed.order[1], 1);
	CHECK_EQ(bed.memory[2048 + 100], 0);
	CHECK_EQ(bed.num_states, 1);
	/* corrupt: success is reported, one byte is wrong */
	configure("fault op=completion kind=corrupt");
	bed_submit(&bed, 3, 0, 2048, 100);
	bed_drain(&bed);
	CHECK_EQ(bed.num_ok, 3);
	{
		size_t wrong = 0;

		for (size_t i = 0; i < 100; i++) {
			wrong += bed.memory[i] != bed.memory[2048 + i];
		}
		CHECK_EQ(wrong, 1);
	}
	/* fatal */
	configure("fault op=completion status=DEVICE_FATAL_ERROR");
	bed_submit(&bed, 4, 0, 2048, 100);
	bed_drain(&bed);
	CHECK_DOCA(bed.status[4], DOCA_ERROR_DEVICE_FATAL_ERROR);
	CHECK_EQ(bed.states[1], DOCA_CTX_STATE_STOPPING);
	bed_close(&bed);
}

static void
test_counters_and_trace(void)
{
	struct docaemu_counters now;
	struct docaemu_copy copies[3];
	struct docaemu_live alive;
	struct bed bed;
	size_t num;

	bed_open(&bed, 4096, 4);
	bed_start(&bed);
	bed_submit(&bed, 0, 0, 2048, 100);
	bed_submit(&bed, 1, 7, 3000, 50);
	alive = live();
	CHECK_EQ(alive.tasks, 2);
	CHECK_EQ(alive.in_flight, 2);
	CHECK_EQ(alive.bufs, 4);
	CHECK_EQ(alive.devs, 1);
	CHECK_EQ(alive.ctxs, 1);
	bed_progress(&bed);
	OK(docaemu_last_copies(copies, 3, &num));
	CHECK_EQ(num, 2);
	CHECK_EQ(copies[0].src, (uintptr_t)bed.memory + 7);
	CHECK_EQ(copies[0].dst, (uintptr_t)bed.memory + 3000);
	CHECK_EQ(copies[0].length, 50);
	CHECK_EQ(copies[1].length, 100);
	now = counters();
	CHECK_EQ(now.submits, 2);
	CHECK_EQ(now.doorbells, 2);
	CHECK_EQ(now.completions_ok, 2);
	CHECK_EQ(now.bytes, 150);
	CHECK_EQ(now.progress_calls, 3);
	CHECK_EQ(now.progress_empty, 1);
	CHECK_EQ(now.ctx_starts, 1);
	bed_close(&bed);
	/* those of a destroyed engine are kept, a short structure is filled in part */
	memset(&now, 0xff, sizeof(now));
	OK(docaemu_counters(&now, sizeof(uint64_t)));
	CHECK(now.progress_calls >= 3);
	CHECK_EQ(now.progress_empty, UINT64_MAX);
}

static void
test_strict_off(void)
{
	struct doca_pe *pe;

	configure("strict=off");
	OK(doca_pe_create(&pe));
	OK(doca_pe_destroy(pe));
	CHECK_DOCA(doca_pe_destroy(pe), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(docaemu_violations(NULL, 0), 0);
}

/* ---- the log ---- */

DOCA_LOG_REGISTER(TEST::CONTROL);

static size_t flushes;

static void
on_full(char *buf)
{
	CHECK(strchr(buf, '\n') != NULL);
	flushes++;
}

static void
test_4_10_10_log(void)
{
	struct doca_log_backend *buffer;
	struct doca_log_backend *sdk;
	static char app_text[400];
	static char sdk_text[400];
	char violation[64];
	int source;

	CHECK_EQ(doca_log_level_get_global_lower_limit(), DOCA_LOG_LEVEL_INFO);
	CHECK_EQ(doca_log_level_get_global_sdk_limit(), DOCA_LOG_LEVEL_INFO);
	CHECK_EQ(doca_log_level_get_global_upper_limit(), DOCA_LOG_LEVEL_CRIT);
	DOCA_LOG_INFO("nobody listens %s", "yet");
	OK(doca_log_backend_create_with_buf(app_text, sizeof(app_text), on_full, &buffer));
	OK(doca_log_backend_create_with_buf_sdk(sdk_text, sizeof(sdk_text), on_full, &sdk));
	DOCA_LOG_INFO("hello %d", 42);
	DOCA_LOG_DBG("not this");
	CHECK(strstr(app_text, "[TEST::CONTROL]") != NULL);
	CHECK(strstr(app_text, "hello 42\n") != NULL);
	CHECK(strstr(app_text, "not this") == NULL);
	CHECK_EQ(sdk_text[0], 0);
	OK(doca_log_backend_set_level_lower_limit(buffer, DOCA_LOG_LEVEL_DEBUG));
	DOCA_LOG_DBG("but this");
	CHECK(strstr(app_text, "but this") != NULL);
	for (int i = 0; i < 10; i++) {
		DOCA_LOG_ERR("fill %d", i);
	}
	CHECK(flushes > 0);
	CHECK_DOCA(doca_log_backend_set_sdk_level(buffer, DOCA_LOG_LEVEL_INFO),
		   DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_log_backend_set_sdk_level(sdk, 35), DOCA_ERROR_INVALID_VALUE);
	OK(doca_log_backend_set_sdk_level(sdk, DOCA_LOG_LEVEL_ERROR));
	/* a failure of the library is logged */
	CHECK_EQ(doca_pe_progress((struct doca_pe *)(void *)app_text), 0);
	CHECK(strstr(sdk_text, "doca_pe_progress") != NULL);
	docaemu_violations(violation, sizeof(violation));
	expect_violations(1, "doca_pe_progress");
	OK(doca_log_level_set_global_lower_limit(DOCA_LOG_LEVEL_CRIT));
	app_text[0] = '\0';
	DOCA_LOG_ERR("silent");
	CHECK(strstr(app_text, "silent") == NULL);
	OK(doca_log_level_set_global_lower_limit(DOCA_LOG_LEVEL_INFO));
	OK(doca_log_register_source("A", &source));
	OK(doca_log_unregister_source(source));
	CHECK_DOCA(doca_log_unregister_source(source), DOCA_ERROR_INVALID_VALUE);
}

static doca_error_t submitted[2];

static void
submit_in_callback(struct bed *bed, struct doca_dma_task_memcpy *task)
{
	if (bed->num_ok + bed->num_error == 1) {
		submitted[1] = doca_task_submit(bed_task(bed, 1, 0, 2048, 8));
	}
	bed_end_task(task);
}

/* A submit that lies does so wherever it is called. */
static void
test_accepted_in_a_callback(void)
{
	struct bed bed;

	configure("fault op=task_submit kind=accepted status=DRIVER skip=1");
	bed_open(&bed, 4096, 4);
	bed_start(&bed);
	bed.hook = submit_in_callback;
	submitted[0] = doca_task_submit(bed_task(&bed, 0, 0, 1024, 8));
	bed_drain(&bed);
	CHECK_DOCA(submitted[0], DOCA_SUCCESS);
	CHECK_DOCA(submitted[1], DOCA_ERROR_DRIVER);
	CHECK_EQ(bed.num_ok, 2);
	bed_close(&bed);
}

TESTS(TEST(test_configuration_errors_name_line_and_key), TEST(test_reset_needs_no_live_objects),
      TEST(test_engine_does_not_change_under_a_context), TEST(test_fault_skip_interval_count),
      TEST(test_faults_at_each_phase_then_a_good_copy), TEST(test_fault_again_at_submit),
      TEST(test_fault_of_a_submit_that_was_accepted), TEST(test_fault_of_a_completion),
      TEST(test_counters_and_trace), TEST(test_strict_off), TEST(test_4_10_10_log),
      TEST(test_accepted_in_a_callback));
