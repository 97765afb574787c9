/* SPDX-License-Identifier: Apache-2.0 */
/* Rules, by the number in each name, that the tests by area do not show. */
#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>
#include <unistd.h>

#include <sys/epoll.h>

static const char *const engines[] = {"engine=default", "engine=worker", "engine=manual"};

#define FOR_ENGINES(i) for (size_t i = 0; i < 3 && (configure(engines[i]), true); i++)

static enum doca_ctx_states
state_of(struct bed *bed)
{
	enum doca_ctx_states state;

	OK(doca_ctx_get_state(bed->ctx, &state));
	return state;
}

/* Let everything that was submitted end. */
static void
run(struct bed *bed)
{
	OK(docaemu_step(SIZE_MAX, DOCAEMU_ORDER_FIFO, NULL));
	bed_drain(bed);
}

static void
run_to_idle(struct bed *bed)
{
	while (state_of(bed) != DOCA_CTX_STATE_IDLE) {
		run(bed);
	}
}

/* ---- 4.1 ---- */

static void
test_4_1_devinfo_is_equal_pci_addr__devinfo_get_pci_addr_str__dev_as_devinfo(void)
{
	struct doca_dev *dev = open_dev(NULL);
	struct doca_devinfo *info = doca_dev_as_devinfo(dev);
	char pci[DOCA_DEVINFO_PCI_ADDR_SIZE];
	uint8_t equal;

	CHECK(info != NULL);
	CHECK(doca_dev_as_devinfo(NULL) == NULL);
	CHECK_DOCA(doca_devinfo_is_equal_pci_addr(info, "03:00", &equal), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_devinfo_is_equal_pci_addr(info, NULL, &equal), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_devinfo_is_equal_pci_addr(NULL, "03:00.0", &equal),
		   DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_devinfo_get_pci_addr_str(info, NULL), DOCA_ERROR_INVALID_VALUE);
	OK(doca_devinfo_get_pci_addr_str(info, pci));
	OK(doca_devinfo_is_equal_pci_addr(info, pci, &equal));
	CHECK_EQ(equal, 1);
	OK(doca_dev_close(dev));
}

static void
test_4_1_mmap_create__mmap_start__mmap_add_dev__mmap_rm_dev__mmap_set_memrange__mmap_get_memrange(
	void)
{
	struct doca_dev *dev = open_dev(NULL);
	struct doca_mmap *mmap;
	uint8_t memory[64];
	void *addr;
	size_t len;

	CHECK_DOCA(doca_mmap_create(NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_mmap_start(NULL), DOCA_ERROR_INVALID_VALUE);
	OK(doca_mmap_create(&mmap));
	CHECK_DOCA(doca_mmap_add_dev(mmap, NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_mmap_rm_dev(mmap, dev), DOCA_ERROR_NOT_FOUND);
	CHECK_DOCA(doca_mmap_start(mmap), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_mmap_get_memrange(mmap, &addr, &len), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_mmap_set_memrange(mmap, NULL, 1), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_mmap_set_memrange(mmap, memory, SIZE_MAX), DOCA_ERROR_INVALID_VALUE);
	OK(doca_mmap_set_memrange(mmap, memory, sizeof(memory)));
	CHECK_DOCA(doca_mmap_set_memrange(mmap, memory, 1), DOCA_ERROR_NOT_PERMITTED);
	CHECK_DOCA(doca_mmap_start(mmap), DOCA_ERROR_INVALID_VALUE);
	OK(doca_mmap_add_dev(mmap, dev));
	CHECK_DOCA(doca_mmap_add_dev(mmap, dev), DOCA_ERROR_ALREADY_EXIST);
	OK(doca_mmap_start(mmap));
	CHECK_DOCA(doca_mmap_start(mmap), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_mmap_set_memrange(mmap, memory, 1), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_mmap_add_dev(mmap, dev), DOCA_ERROR_NOT_PERMITTED);
	CHECK_DOCA(doca_mmap_rm_dev(mmap, dev), DOCA_ERROR_NOT_PERMITTED);
	OK(doca_mmap_destroy(mmap));
	OK(doca_dev_close(dev));
}

static void
test_4_1_mmap_set_dmabuf_memrange(void)
{
	struct bed bed;
	struct doca_mmap *mmap;
	uint8_t memory[64];

	bed_open(&bed, 4096, 2);
	OK(doca_mmap_create(&mmap));
	CHECK_DOCA(doca_mmap_set_dmabuf_memrange(mmap, 0, NULL, 0, 64), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_mmap_set_dmabuf_memrange(mmap, -1, memory, 0, 64),
		   DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_mmap_set_dmabuf_memrange(mmap, 0, memory, SIZE_MAX, 64),
		   DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_mmap_set_dmabuf_memrange(mmap, 0, memory, 0, 64), DOCA_ERROR_NOT_SUPPORTED);
	OK(doca_mmap_set_memrange(mmap, memory, sizeof(memory)));
	CHECK_DOCA(doca_mmap_set_dmabuf_memrange(mmap, 0, memory, 0, 64), DOCA_ERROR_NOT_PERMITTED);
	CHECK_DOCA(doca_mmap_set_dmabuf_memrange(bed.mmap, 0, memory, 0, 64), DOCA_ERROR_BAD_STATE);
	OK(doca_mmap_destroy(mmap));
	bed_close(&bed);
}

static void
test_4_1_mmap_destroy__mmap_stop__mmap_set_permissions__mmap_set_free_cb__mmap_enable_thread_safety(
	void)
{
	struct bed bed;
	struct doca_mmap *fresh;
	struct doca_buf *buf;

	CHECK_DOCA(doca_mmap_destroy(NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_mmap_stop(NULL), DOCA_ERROR_INVALID_VALUE);
	bed_open(&bed, 4096, 2);
	buf = bed_src(&bed, 0, 8);
	CHECK_DOCA(doca_mmap_stop(bed.mmap), DOCA_ERROR_NOT_PERMITTED);
	CHECK_DOCA(doca_mmap_destroy(bed.mmap), DOCA_ERROR_NOT_PERMITTED);
	expect_violations(2, "1 bufs point into it");
	OK(doca_buf_dec_refcount(buf, NULL));
	CHECK_DOCA(doca_mmap_set_permissions(bed.mmap, 1), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_mmap_set_free_cb(bed.mmap, NULL, NULL), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_mmap_enable_thread_safety(bed.mmap), DOCA_ERROR_NOT_PERMITTED);
	OK(doca_mmap_create(&fresh));
	CHECK_DOCA(doca_mmap_set_permissions(fresh, 1u << 20), DOCA_ERROR_INVALID_VALUE);
	OK(doca_mmap_set_permissions(fresh, DOCA_ACCESS_FLAG_PCI_READ_ONLY));
	OK(doca_mmap_set_free_cb(fresh, NULL, NULL));
	OK(doca_mmap_enable_thread_safety(fresh));
	OK(doca_mmap_destroy(fresh));
	bed_close(&bed);
}

static void
test_4_1_mmap_export_pci__mmap_create_from_export(void)
{
	struct bed bed;
	struct doca_mmap *mmap;
	const void *desc;
	size_t len;

	bed_open(&bed, 4096, 2);
	OK(doca_mmap_create(&mmap));
	CHECK_DOCA(doca_mmap_export_pci(mmap, bed.dev, &desc, &len), DOCA_ERROR_NOT_FOUND);
	CHECK_DOCA(doca_mmap_export_rdma(mmap, bed.dev, &desc, &len), DOCA_ERROR_NOT_FOUND);
	CHECK_DOCA(doca_mmap_export_pci(mmap, NULL, &desc, &len), DOCA_ERROR_INVALID_VALUE);
	OK(doca_mmap_destroy(mmap));
	CHECK_DOCA(doca_mmap_export_pci(bed.mmap, bed.dev, &desc, &len), DOCA_ERROR_NOT_PERMITTED);
	CHECK_DOCA(doca_mmap_export_rdma(bed.mmap, bed.dev, &desc, &len), DOCA_ERROR_NOT_PERMITTED);
	CHECK_DOCA(doca_mmap_export_pci(bed.mmap, bed.dev, NULL, &len), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_mmap_create_from_export(NULL, NULL, 8, bed.dev, &mmap),
		   DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_mmap_create_from_export(NULL, "", 0, bed.dev, &mmap),
		   DOCA_ERROR_INVALID_VALUE);
	bed_close(&bed);
}

static void
test_4_1_buf_inventory_buf_dup__buf_inc_refcount__buf_dec_refcount__buf_getters(void)
{
	struct doca_buf_inventory *stopped;
	struct doca_buf *head;
	struct doca_buf *tail;
	struct doca_buf *copy;
	struct bed bed;
	uint16_t count = 0;
	uint8_t flag;

	bed_open(&bed, 4096, 2);
	OK(doca_buf_inventory_create(1, &stopped));
	head = bed_src(&bed, 0, 8);
	tail = bed_src(&bed, 8, 8);
	OK(doca_buf_chain_list(head, tail));
	CHECK_DOCA(doca_buf_inventory_buf_dup(stopped, head, &copy), DOCA_ERROR_BAD_STATE);
	OK(doca_buf_inventory_start(stopped));
	CHECK_DOCA(doca_buf_inventory_buf_dup(stopped, head, &copy), DOCA_ERROR_NO_MEMORY);
	CHECK_DOCA(doca_buf_inventory_buf_dup(stopped, tail, &copy), DOCA_ERROR_NOT_PERMITTED);
	OK(doca_buf_inventory_destroy(stopped));
	CHECK_DOCA(doca_buf_inc_refcount(tail, &count), DOCA_ERROR_NOT_PERMITTED);
	CHECK_DOCA(doca_buf_dec_refcount(tail, &count), DOCA_ERROR_NOT_PERMITTED);
	while (count < UINT16_MAX - 1) {
		OK(doca_buf_inc_refcount(head, &count));
	}
	CHECK_DOCA(doca_buf_inc_refcount(head, &count), DOCA_ERROR_TOO_BIG);
	while (count > 1) {
		OK(doca_buf_dec_refcount(head, &count));
	}
	CHECK_DOCA(doca_buf_dec_refcount(head, NULL), DOCA_ERROR_BAD_STATE);
	expect_violations(1, "freed already");
	head = bed_src(&bed, 0, 8);
	OK(doca_buf_is_in_list(head, &flag));
	CHECK_EQ(flag, 0);
	OK(doca_buf_is_first_in_list(head, &flag));
	CHECK_EQ(flag, 1);
	OK(doca_buf_is_last_in_list(head, &flag));
	CHECK_EQ(flag, 1);
	OK(doca_buf_get_next_in_list(head, &copy));
	CHECK(copy == NULL);
	OK(doca_buf_dec_refcount(head, NULL));
	bed_close(&bed);
}

static void
test_4_1_buf_chain_list__buf_unchain_list__buf_get_last_in_list__buf_get_list_len(void)
{
	struct doca_buf *b[3];
	struct doca_buf *got;
	struct bed bed;
	uint32_t num;

	bed_open(&bed, 4096, 2);
	for (size_t i = 0; i < 3; i++) {
		b[i] = bed_src(&bed, 8 * i, 8);
	}
	CHECK_DOCA(doca_buf_chain_list(b[0], b[0]), DOCA_ERROR_NOT_PERMITTED);
	OK(doca_buf_inc_refcount(b[1], NULL));
	CHECK_DOCA(doca_buf_chain_list(b[0], b[1]), DOCA_ERROR_NOT_PERMITTED);
	OK(doca_buf_dec_refcount(b[1], NULL));
	OK(doca_buf_chain_list(b[0], b[1]));
	CHECK_DOCA(doca_buf_chain_list_tail(b[0], b[0], b[2]), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_buf_unchain_list(b[0], b[2]), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_buf_unchain_list(b[0], b[0]), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_buf_get_list_len(b[1], &num), DOCA_ERROR_NOT_PERMITTED);
	OK(doca_buf_chain_list(b[0], b[2]));
	for (size_t i = 0; i < 3; i++) {
		OK(doca_buf_get_last_in_list(b[i], &got));
		CHECK(got == b[2]);
	}
	CHECK_DOCA(doca_buf_get_last_in_list(b[0], NULL), DOCA_ERROR_INVALID_VALUE);
	OK(doca_buf_get_list_len(b[0], &num));
	CHECK_EQ(num, 3);
	OK(doca_buf_unchain_list(b[0], b[1]));
	OK(doca_buf_get_list_len(b[1], &num));
	CHECK_EQ(num, 2);
	OK(doca_buf_dec_refcount(b[0], NULL));
	OK(doca_buf_dec_refcount(b[1], NULL));
	bed_close(&bed);
}

static void
test_4_1_pe_get_notification_handle__pe_request_notification__pe_clear_notification__pe_get_num_inflight_tasks(
	void)
{
	struct bed bed;
	size_t num;
	int fd;

	CHECK_DOCA(doca_pe_get_notification_handle(NULL, &fd), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_pe_get_num_inflight_tasks(NULL, &num), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_ctx_get_num_inflight_tasks(NULL, &num), DOCA_ERROR_INVALID_VALUE);
	bed_open(&bed, 4096, 2);
	CHECK_DOCA(doca_pe_get_notification_handle(bed.pe, NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_pe_get_num_inflight_tasks(bed.pe, NULL), DOCA_ERROR_INVALID_VALUE);
	OK(doca_pe_clear_notification(bed.pe, 0));
	OK(doca_pe_request_notification(bed.pe));
	OK(doca_pe_clear_notification(bed.pe, 0));
	bed_close(&bed);
}

static void
nothing(struct doca_dma_task_memcpy *task, union doca_data a, union doca_data b)
{
	(void)task;
	(void)a;
	(void)b;
}

static void
test_4_1_ctx_start__ctx_stop__ctx_setters__dma_create__dma_destroy__dma_task_memcpy_set_conf__dma_caps(
	void)
{
	union doca_data data = {.u64 = 1};
	enum doca_ctx_states state;
	struct doca_gpu_dma *gpu;
	struct doca_dma *dma;
	struct bed bed;
	uint64_t size;
	uint32_t num;

	CHECK_DOCA(doca_ctx_start(NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_ctx_stop(NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_ctx_get_state(NULL, &state), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_ctx_set_user_data(NULL, data), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_ctx_get_user_data(NULL, &data), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_ctx_set_state_changed_cb(NULL, NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_dma_create(NULL, &dma), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_dma_destroy(NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK(doca_dma_as_ctx(NULL) == NULL);
	bed_open(&bed, 4096, 2);
	/* what a DMA context has of other kinds of contexts */
	OK(doca_ctx_cap_get_num_completion_vectors(doca_dev_as_devinfo(bed.dev), &num));
	CHECK_EQ(num, 1);
	OK(doca_ctx_set_completion_vector(bed.ctx, 0));
	CHECK_DOCA(doca_ctx_set_completion_vector(bed.ctx, 1), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_ctx_set_datapath_on_dpa(bed.ctx, NULL), DOCA_ERROR_NOT_SUPPORTED);
	CHECK_DOCA(doca_ctx_set_datapath_on_gpu(bed.ctx, NULL), DOCA_ERROR_NOT_SUPPORTED);
	CHECK_DOCA(doca_dma_get_gpu_handle(bed.dma, &gpu), DOCA_ERROR_NOT_SUPPORTED);
	CHECK_DOCA(doca_dma_create(bed.dev, NULL), DOCA_ERROR_INVALID_VALUE);
	OK(doca_dma_create(bed.dev, &dma));
	CHECK_DOCA(doca_dma_task_memcpy_set_conf(dma, NULL, nothing, 1), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_dma_task_memcpy_set_conf(dma, nothing, NULL, 1), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_dma_task_memcpy_set_conf(dma, nothing, nothing, 0),
		   DOCA_ERROR_INVALID_VALUE);
	OK(doca_dma_task_memcpy_set_conf(dma, nothing, nothing, 1));
	CHECK_DOCA(doca_ctx_start(doca_dma_as_ctx(dma)), DOCA_ERROR_NOT_CONNECTED);
	OK(doca_dma_destroy(dma));
	CHECK_DOCA(doca_dma_cap_task_memcpy_is_supported(NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_dma_cap_task_memcpy_get_max_buf_size(NULL, &size),
		   DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_dma_cap_task_memcpy_get_max_buf_list_len(NULL, &num),
		   DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_dma_cap_get_max_num_tasks(NULL, &num), DOCA_ERROR_INVALID_VALUE);
	bed_start(&bed);
	CHECK_DOCA(doca_dma_destroy(bed.dma), DOCA_ERROR_IN_USE);
	expect_violations(1, "(running): it is not idle");
	CHECK_DOCA(doca_ctx_set_completion_vector(bed.ctx, 0), DOCA_ERROR_BAD_STATE);
	bed_close(&bed);
}

static void
test_4_1_task_submit__task_try_submit__dma_task_memcpy_alloc_init(void)
{
	struct doca_dma_task_memcpy *task;
	struct doca_dma_task_memcpy *more;
	union doca_data data = {.u64 = 0};
	struct doca_task *base;
	struct bed bed;

	bed_open(&bed, 4096, 1);
	CHECK_DOCA(doca_dma_task_memcpy_alloc_init(bed.dma, NULL, NULL, data, &task),
		   DOCA_ERROR_BAD_STATE);
	expect_violations(1, "(idle): the context is not running");
	bed_start(&bed);
	OK(doca_dma_task_memcpy_alloc_init(bed.dma, NULL, NULL, data, &task));
	CHECK_DOCA(doca_dma_task_memcpy_alloc_init(bed.dma, NULL, NULL, data, &more),
		   DOCA_ERROR_NO_MEMORY);
	base = doca_dma_task_memcpy_as_task(task);
	CHECK_DOCA(doca_task_try_submit(base), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_task_submit_ex(base, 8), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_ctx_stop(bed.ctx), DOCA_ERROR_IN_PROGRESS);
	CHECK_DOCA(doca_task_submit(base), DOCA_ERROR_BAD_STATE);
	doca_task_free(base);
	bed_close(&bed);
}

/* ---- 4.2 ---- */

static void
test_4_2_2_3_the_cycle(void)
{
	struct bed bed;

	FOR_ENGINES(e)
	{
		bed_open(&bed, 4096, 4);
		bed_start(&bed);
		for (size_t i = 0; i < 4; i++) {
			OK(doca_pe_request_notification(bed.pe));
			bed_submit(&bed, i, 0, 2048, 8);
			OK(docaemu_step(1, DOCAEMU_ORDER_FIFO, NULL));
			CHECK(bed_readable(&bed, 10000));
			OK(doca_pe_clear_notification(bed.pe, 0));
			CHECK_EQ(bed_progress(&bed), 1);
		}
		/* and as the sample does: progress, arm, wait, clear */
		bed_submit(&bed, 4, 0, 2048, 8);
		run(&bed);
		CHECK_EQ(bed.num_ok, 5);
		bed_close(&bed);
	}
}

static void
change_mode(struct bed *bed, struct doca_dma_task_memcpy *task)
{
	OK(doca_pe_set_event_mode(bed->pe, DOCA_PE_EVENT_MODE_PROGRESS_ALL));
	bed_end_task(task);
}

static void
test_4_2_13_event_mode_in_a_callback(void)
{
	struct bed bed;

	bed_open(&bed, 4096, 4);
	bed_start(&bed);
	OK(doca_pe_set_event_mode(bed.pe, DOCA_PE_EVENT_MODE_PROGRESS_ALL));
	bed.hook = change_mode;
	bed_submit(&bed, 0, 0, 2048, 8);
	run(&bed);
	expect_violations(1, "doca_pe_set_event_mode");
	bed_close(&bed);
}

static void
test_4_2_15_16_in_an_epoll_set_armed_twice(void)
{
	struct epoll_event event = {.events = EPOLLIN};
	struct bed bed;
	int set = epoll_create1(EPOLL_CLOEXEC);

	CHECK(set >= 0);
	bed_open(&bed, 4096, 4);
	bed_start(&bed);
	CHECK_EQ(epoll_ctl(set, EPOLL_CTL_ADD, bed.fd, &event), 0);
	OK(doca_pe_request_notification(bed.pe));
	OK(doca_pe_request_notification(bed.pe));
	CHECK_EQ(epoll_wait(set, &event, 1, 0), 0);
	bed_submit(&bed, 0, 0, 2048, 8);
	CHECK_EQ(epoll_wait(set, &event, 1, 10000), 1);
	OK(doca_pe_clear_notification(bed.pe, 0));
	CHECK_EQ(epoll_wait(set, &event, 1, 0), 0);
	run(&bed);
	bed_close(&bed);
	close(set);
}

/* ---- 4.3 ---- */

static void
test_4_3_2_11_an_error_has_its_callback_and_status(void)
{
	struct bed bed;

	FOR_ENGINES(e)
	{
		bed_open(&bed, 4096, 4);
		bed_start(&bed);
		bed_submit(&bed, 0, 0, 2048, 0);
		OK(docaemu_step(1, DOCAEMU_ORDER_FIFO, NULL));
		while (doca_pe_progress(bed.pe) == 0) {
		}
		CHECK_EQ(bed.num_error, 1);
		CHECK_DOCA(bed.status[0], DOCA_ERROR_IO_FAILED);
		bed_close(&bed);
	}
}

static pthread_t callback_thread;

static void
note_thread(struct bed *bed, struct doca_dma_task_memcpy *task)
{
	(void)bed;
	callback_thread = pthread_self();
	bed_end_task(task);
}

static void
test_4_3_4_23_callbacks_and_counts(void)
{
	struct bed bed;
	size_t num;

	FOR_ENGINES(e)
	{
		bed_open(&bed, 4096, 4);
		bed.hook = note_thread;
		bed_start(&bed);
		bed_submit(&bed, 0, 0, 2048, 8);
		bed_submit(&bed, 1, 0, 2056, 8);
		CHECK_EQ(bed.num_ok, 0);
		OK(doca_ctx_get_num_inflight_tasks(bed.ctx, &num));
		CHECK_EQ(num, 2);
		OK(doca_pe_get_num_inflight_tasks(bed.pe, &num));
		CHECK_EQ(num, 2);
		run(&bed);
		OK(doca_ctx_get_num_inflight_tasks(bed.ctx, &num));
		CHECK_EQ(num, 0);
		CHECK(pthread_equal(callback_thread, pthread_self()));
		bed_close(&bed);
	}
}

static struct doca_dma_task_memcpy *kept;

static void
keep(struct bed *bed, struct doca_dma_task_memcpy *task)
{
	(void)bed;
	kept = task;
}

static void
test_4_3_9_10_17_ownership_of_tasks(void)
{
	struct doca_task *task;
	struct bed bed;

	bed_open(&bed, 4096, 1);
	bed_start(&bed);
	task = bed_task(&bed, 0, 0, 2048, 8);
	doca_dma_task_memcpy_set_dst(
		(struct doca_dma_task_memcpy *)task,
		doca_dma_task_memcpy_get_dst((struct doca_dma_task_memcpy *)task));
	configure("fault op=task_submit status=DRIVER");
	CHECK_DOCA(doca_task_submit(task), DOCA_ERROR_DRIVER);
	bed.hook = keep;
	OK(doca_task_try_submit(task));
	run(&bed);
	CHECK_EQ(bed.num_ok, 1);
	bed_end_task(kept);
	bed_end_task((struct doca_dma_task_memcpy *)bed_task(&bed, 1, 0, 2048, 8));
	bed_close(&bed);
}

static void
test_4_3_15_submit_after_a_fault(void)
{
	struct doca_task *late;
	struct bed bed;

	FOR_ENGINES(e)
	{
		bed_open(&bed, 4096, 4);
		bed_start(&bed);
		late = bed_task(&bed, 1, 0, 2048, 8);
		bed_submit(&bed, 0, 0, 2048, 0);
		run(&bed);
		CHECK_EQ(state_of(&bed), DOCA_CTX_STATE_STOPPING);
		CHECK_DOCA(doca_task_submit(late), DOCA_ERROR_BAD_STATE);
		bed_end_task((struct doca_dma_task_memcpy *)late);
		bed_close(&bed);
	}
}

static void
test_4_7_after_reset(void)
{
	test_4_3_15_submit_after_a_fault();
}

/* ---- 4.4 ---- */

static void
test_4_4_2_3_connection_and_start(void)
{
	struct doca_dma *more;
	struct bed bed;

	bed_open(&bed, 4096, 4);
	OK(doca_dma_create(bed.dev, &more));
	OK(doca_pe_connect_ctx(bed.pe, doca_dma_as_ctx(more)));
	bed_start(&bed);
	CHECK_EQ(bed.num_states, 1);
	CHECK_EQ(bed.states[0], DOCA_CTX_STATE_RUNNING);
	CHECK_DOCA(doca_pe_destroy(bed.pe), DOCA_ERROR_IN_USE);
	expect_violations(1, "2 contexts are connected");
	OK(doca_dma_destroy(more));
	bed_close(&bed);
}

static size_t stop_at;
static doca_error_t stop_code;

static void
stop_once(struct bed *bed, struct doca_dma_task_memcpy *task)
{
	bed_end_task(task);
	if (bed->num_ok + bed->num_error == stop_at) {
		stop_code = doca_ctx_stop(bed->ctx);
	}
}

static void
test_4_4_9_10_stop_in_a_callback(void)
{
	struct bed bed;

	FOR_ENGINES(e)
	{
		for (stop_at = 1; stop_at <= 4; stop_at += 3) {
			bed_open(&bed, 4096, 4);
			bed.hook = stop_once;
			bed_start(&bed);
			for (size_t i = 0; i < 4; i++) {
				bed_submit(&bed, i, 0, 2048 + 8 * i, 8);
			}
			run_to_idle(&bed);
			CHECK_DOCA(stop_code, DOCA_ERROR_IN_PROGRESS);
			CHECK_EQ(bed.num_ok + bed.num_error, 4);
			bed_close(&bed);
		}
	}
}

static void
test_4_4_13_14_a_failure_and_a_restart(void)
{
	struct bed bed;

	FOR_ENGINES(e)
	{
		bed_open(&bed, 4096, 4);
		for (int round = 0; round < 3; round++) {
			bed.num_ok = 0;
			bed.num_error = 0;
			bed_start(&bed);
			bed_submit(&bed, 0, 0, 2048, 0);
			bed_submit(&bed, 1, 0, 2048, 8);
			run_to_idle(&bed);
			CHECK_EQ(bed.num_error + bed.num_ok, 2);
			CHECK(bed.order[0] != 0 || bed.status[0] != DOCA_SUCCESS);
		}
		bed_start(&bed);
		bed_submit(&bed, 2, 0, 2048, 8);
		run(&bed);
		CHECK_EQ(bed.num_ok, bed.order[0] == 1 ? 2 : 1 + (bed.status[1] == DOCA_SUCCESS));
		bed_close(&bed);
	}
}

static uint64_t seen_data[4];

static void
first_state_cb(const union doca_data data, struct doca_ctx *ctx, enum doca_ctx_states prev,
	       enum doca_ctx_states next)
{
	(void)data;
	(void)ctx;
	(void)prev;
	(void)next;
	check_failed(__FILE__, __LINE__, "a replaced callback was called");
}

static void
second_state_cb(const union doca_data data, struct doca_ctx *ctx, enum doca_ctx_states prev,
		enum doca_ctx_states next)
{
	(void)ctx;
	(void)prev;
	seen_data[next] = data.u64;
}

static void
test_4_4_15_16_state_callbacks(void)
{
	union doca_data data = {.u64 = 41};
	struct bed bed;

	bed_open(&bed, 4096, 4);
	OK(doca_ctx_set_state_changed_cb(bed.ctx, first_state_cb));
	OK(doca_ctx_set_state_changed_cb(bed.ctx, second_state_cb));
	OK(doca_ctx_set_user_data(bed.ctx, data));
	bed_start(&bed);
	OK(doca_ctx_stop(bed.ctx));
	CHECK_EQ(seen_data[DOCA_CTX_STATE_RUNNING], 41);
	CHECK_EQ(seen_data[DOCA_CTX_STATE_IDLE], 41);
	bed_close(&bed);
}

/* ---- 4.5 ---- */

static struct doca_mmap *
map_of(struct bed *bed, uint8_t *memory, size_t len, uint32_t permissions)
{
	struct doca_mmap *mmap;

	OK(doca_mmap_create(&mmap));
	OK(doca_mmap_add_dev(mmap, bed->dev));
	OK(doca_mmap_set_memrange(mmap, memory, len));
	OK(doca_mmap_set_permissions(mmap, permissions));
	OK(doca_mmap_start(mmap));
	return mmap;
}

static void
test_4_5_3_4a_5_7_permissions(void)
{
	static const uint32_t masks[] = {
		DOCA_ACCESS_FLAG_LOCAL_READ_ONLY,
		DOCA_ACCESS_FLAG_PCI_READ_ONLY,
		DOCA_ACCESS_FLAG_RDMA_READ,
		DOCA_ACCESS_FLAG_LOCAL_READ_WRITE | DOCA_ACCESS_FLAG_PCI_READ_WRITE,
		DOCA_ACCESS_FLAG_LOCAL_READ_WRITE | DOCA_ACCESS_FLAG_PCI_READ_WRITE |
			DOCA_ACCESS_FLAG_RDMA_READ | DOCA_ACCESS_FLAG_RDMA_WRITE,
		DOCA_ACCESS_FLAG_LOCAL_READ_WRITE | DOCA_ACCESS_FLAG_PCI_RELAXED_ORDERING,
	};
	union doca_data data = {.u64 = 0};

	/* Each may be read; the destination has the default permission. */
	for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++) {
		struct doca_dma_task_memcpy *task;
		struct doca_mmap *mmap;
		struct doca_buf *src;
		struct bed bed;

		bed_open(&bed, 4096, 2);
		mmap = map_of(&bed, bed.memory, 1024, masks[i]);
		OK(doca_buf_inventory_buf_get_by_data(bed.inventory, mmap, bed.memory, 64, &src));
		bed_start(&bed);
		OK(doca_dma_task_memcpy_alloc_init(bed.dma, src, bed_dst(&bed, 2048, 64), data,
						   &task));
		OK(doca_task_submit(doca_dma_task_memcpy_as_task(task)));
		run(&bed);
		CHECK_EQ(bed.num_ok, 1);
		CHECK(memcmp(bed.memory, bed.memory + 2048, 64) == 0);
		OK(doca_ctx_stop(bed.ctx));
		OK(doca_dma_destroy(bed.dma));
		bed.dma = NULL;
		OK(doca_mmap_destroy(mmap));
		bed_close(&bed);
	}
}

static void
test_4_5_16_17_18_thread_safety_freed_memory_alignment(void)
{
	uint8_t *memory = malloc(4096);
	struct doca_mmap *mmap;
	struct doca_buf *buf;
	struct bed bed;

	CHECK(memory != NULL);
	bed_open(&bed, 4096, 4);
	OK(doca_mmap_create(&mmap));
	OK(doca_mmap_add_dev(mmap, bed.dev));
	OK(doca_mmap_set_memrange(mmap, memory + 1, 4095));
	OK(doca_mmap_enable_thread_safety(mmap));
	OK(doca_mmap_start(mmap));
	OK(doca_buf_inventory_buf_get_by_data(bed.inventory, mmap, memory + 3, 7, &buf));
	OK(doca_mmap_stop(mmap));
	OK(doca_buf_dec_refcount(buf, NULL));
	OK(doca_mmap_start(mmap));
	OK(doca_buf_inventory_buf_get_by_data(bed.inventory, mmap, memory + 3, 7, &buf));
	free(memory);
	OK(doca_mmap_destroy(mmap));
	/* Long after: the map is out of the quarantine as well. */
	for (size_t i = 0; i < 300; i++) {
		struct doca_pe *pe;

		OK(doca_pe_create(&pe));
		OK(doca_pe_destroy(pe));
	}
	OK(doca_buf_dec_refcount(buf, NULL));
	bed_start(&bed);
	bed_submit(&bed, 0, 1, 2051, 63);
	run(&bed);
	CHECK(memcmp(bed.memory + 1, bed.memory + 2051, 63) == 0);
	bed_close(&bed);
}

/* ---- 4.6 ---- */

static void
test_4_6_3_11_12_13_bufs_of_a_task(void)
{
	union doca_data data = {.u64 = 0};
	struct doca_buf *src;
	struct doca_buf *dst;
	struct bed bed;
	uint16_t refs;
	size_t len;
	void *at;

	FOR_ENGINES(e)
	{
		struct doca_dma_task_memcpy *task;

		bed_open(&bed, 4096, 2);
		bed.hook = keep;
		bed_start(&bed);
		src = bed_src(&bed, 0, 40);
		dst = bed_dst(&bed, 2048, 64);
		OK(doca_dma_task_memcpy_alloc_init(bed.dma, src, dst, data, &task));
		CHECK(doca_dma_task_memcpy_get_src(task) == src);
		CHECK(doca_dma_task_memcpy_get_dst(task) == dst);
		OK(doca_task_submit(doca_dma_task_memcpy_as_task(task)));
		OK(doca_buf_get_refcount(src, &refs));
		CHECK_EQ(refs, 1);
		run(&bed);
		OK(doca_buf_get_data_len(dst, &len));
		CHECK_EQ(len, 40);
		OK(doca_buf_get_data(dst, &at));
		CHECK(at == bed.memory + 2048);
		doca_task_free(doca_dma_task_memcpy_as_task(task));
		CHECK_EQ(live().bufs, 2);
		OK(doca_buf_dec_refcount(src, NULL));
		OK(doca_buf_dec_refcount(dst, NULL));
		bed_close(&bed);
	}
}

static size_t dst_len_in_callback;

static void
look_at_dst(struct bed *bed, struct doca_dma_task_memcpy *task)
{
	(void)bed;
	OK(doca_buf_get_data_len(doca_dma_task_memcpy_get_dst(task), &dst_len_in_callback));
	bed_end_task(task);
}

static void
test_4_10_6_destination_in_the_callback(void)
{
	struct bed bed;

	bed_open(&bed, 4096, 2);
	bed.hook = look_at_dst;
	bed_start(&bed);
	bed_submit(&bed, 0, 0, 2048, 40);
	run(&bed);
	CHECK_EQ(dst_len_in_callback, 40);
	bed_close(&bed);
}

static void
test_4_6_5_destination_too_small(void)
{
	struct doca_dma_task_memcpy *task;
	union doca_data data = {.u64 = 0};
	struct bed bed;
	uint8_t behind;

	FOR_ENGINES(e)
	{
		bed_open(&bed, 4096, 2);
		bed_start(&bed);
		behind = bed.memory[2048 + 64];
		OK(doca_dma_task_memcpy_alloc_init(bed.dma, bed_src(&bed, 0, 65),
						   bed_dst(&bed, 2048, 64), data, &task));
		CHECK_DOCA(doca_task_try_submit(doca_dma_task_memcpy_as_task(task)),
			   DOCA_ERROR_INVALID_VALUE);
		OK(doca_task_submit(doca_dma_task_memcpy_as_task(task)));
		run(&bed);
		CHECK_EQ(bed.num_error, 1);
		CHECK_EQ(bed.memory[2048 + 64], behind);
		bed_close(&bed);
	}
}

static void
test_4_6_10_lists_as_destination_may_fail(void)
{
	struct doca_dma_task_memcpy *task;
	union doca_data data = {.u64 = 0};
	struct doca_buf *dst;
	struct bed bed;

	configure("dst_list=completion");
	bed_open(&bed, 4096, 2);
	bed_start(&bed);
	dst = bed_dst(&bed, 2048, 32);
	OK(doca_buf_chain_list(dst, bed_dst(&bed, 3000, 64)));
	OK(doca_dma_task_memcpy_alloc_init(bed.dma, bed_src(&bed, 0, 65), dst, data, &task));
	OK(doca_task_submit(doca_dma_task_memcpy_as_task(task)));
	run(&bed);
	CHECK_EQ(bed.num_error, 1);
	bed_close(&bed);
}

/* ---- 4.7 to 4.9 ---- */

static void
test_4_7_description(void)
{
	CHECK(strcmp(doca_error_get_descr(DOCA_ERROR_IO_FAILED), "Input/Output Operation Failed") ==
	      0);
}

static void
test_4_8_max_num_devices(void)
{
	struct doca_mmap *mmap;
	uint32_t num = 0;

	OK(doca_mmap_create(&mmap));
	OK(doca_mmap_get_max_num_devices(mmap, &num));
	CHECK(num >= 1);
	OK(doca_mmap_destroy(mmap));
}

static void
test_4_9_order(void)
{
	struct bed bed;

	bed_open(&bed, 4096, 2);
	bed_start(&bed);
	bed_submit(&bed, 0, 0, 2048, 8);
	run(&bed);
	OK(doca_ctx_stop(bed.ctx));
	CHECK_DOCA(doca_dev_close(bed.dev), DOCA_ERROR_IN_USE);
	CHECK_DOCA(doca_pe_destroy(bed.pe), DOCA_ERROR_IN_USE);
	CHECK_DOCA(doca_mmap_destroy(bed.mmap), DOCA_ERROR_NOT_PERMITTED);
	expect_violations(3, "a context that used it");
	OK(doca_dma_destroy(bed.dma));
	bed.dma = NULL;
	bed_close(&bed);
}

TESTS(TEST(test_4_1_devinfo_is_equal_pci_addr__devinfo_get_pci_addr_str__dev_as_devinfo),
      TEST(test_4_1_mmap_create__mmap_start__mmap_add_dev__mmap_rm_dev__mmap_set_memrange__mmap_get_memrange),
      TEST(test_4_1_mmap_set_dmabuf_memrange),
      TEST(test_4_1_mmap_destroy__mmap_stop__mmap_set_permissions__mmap_set_free_cb__mmap_enable_thread_safety),
      TEST(test_4_1_mmap_export_pci__mmap_create_from_export),
      TEST(test_4_1_buf_inventory_buf_dup__buf_inc_refcount__buf_dec_refcount__buf_getters),
      TEST(test_4_1_buf_chain_list__buf_unchain_list__buf_get_last_in_list__buf_get_list_len),
      TEST(test_4_1_pe_get_notification_handle__pe_request_notification__pe_clear_notification__pe_get_num_inflight_tasks),
      TEST(test_4_1_ctx_start__ctx_stop__ctx_setters__dma_create__dma_destroy__dma_task_memcpy_set_conf__dma_caps),
      TEST(test_4_1_task_submit__task_try_submit__dma_task_memcpy_alloc_init),
      TEST(test_4_2_2_3_the_cycle), TEST(test_4_2_13_event_mode_in_a_callback),
      TEST(test_4_2_15_16_in_an_epoll_set_armed_twice),
      TEST(test_4_3_2_11_an_error_has_its_callback_and_status),
      TEST(test_4_3_4_23_callbacks_and_counts), TEST(test_4_3_9_10_17_ownership_of_tasks),
      TEST(test_4_3_15_submit_after_a_fault), TEST(test_4_7_after_reset),
      TEST(test_4_4_2_3_connection_and_start), TEST(test_4_4_9_10_stop_in_a_callback),
      TEST(test_4_4_13_14_a_failure_and_a_restart), TEST(test_4_4_15_16_state_callbacks),
      TEST(test_4_5_3_4a_5_7_permissions),
      TEST(test_4_5_16_17_18_thread_safety_freed_memory_alignment),
      TEST(test_4_6_3_11_12_13_bufs_of_a_task), TEST(test_4_10_6_destination_in_the_callback),
      TEST(test_4_6_5_destination_too_small), TEST(test_4_6_10_lists_as_destination_may_fail),
      TEST(test_4_7_description), TEST(test_4_8_max_num_devices), TEST(test_4_9_order));
