/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "check.h"

#include <poll.h>
#include <stdarg.h>

static const char *current = "";
static uint64_t known_violations;

void
check_failed(const char *file, int line, const char *format, ...)
{
	char text[4096];
	va_list args;

	fprintf(stderr, "FAILED %s\n%s:%d: ", current, file, line);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	docaemu_violations(text, sizeof(text));
	fprintf(stderr, "\nviolations:\n%s", text);
	exit(1);
}

void
expect_violations(uint64_t num, const char *text)
{
	char all[64 * 256];
	uint64_t now = docaemu_violations(all, sizeof(all));
	char *last = all;

	CHECK_EQ(now - known_violations, num);
	known_violations = now;
	for (char *line = all; *line != '\0'; line = strchr(line, '\n') + 1) {
		last = line;
	}
	if (text != NULL && strstr(last, text) == NULL) {
		check_failed(__FILE__, __LINE__, "'%s' is not in '%s'", text, last);
	}
}

void
configure(const char *text)
{
	char error[256];

	if (docaemu_configure(text, error, sizeof(error)) != DOCA_SUCCESS) {
		check_failed(__FILE__, __LINE__, "%s", error);
	}
}

struct docaemu_counters
counters(void)
{
	struct docaemu_counters now;

	OK(docaemu_counters(&now, sizeof(now)));
	return now;
}

struct docaemu_live
live(void)
{
	struct docaemu_live now;

	OK(docaemu_live(&now, sizeof(now)));
	return now;
}

/* ---- the bed ---- */

void
fill(uint8_t *memory, size_t len, uint32_t seed)
{
	for (size_t i = 0; i < len; i++) {
		seed = seed * 1664525u + 1013904223u;
		memory[i] = (uint8_t)(seed >> 24);
	}
}

static void
ended(struct bed *bed, struct doca_dma_task_memcpy *task, union doca_data data)
{
	size_t n = bed->num_ok + bed->num_error;

	CHECK(n < BED_MAX_TASKS);
	bed->order[n] = data.u64;
	bed->status[n] = doca_task_get_status(doca_dma_task_memcpy_as_task(task));
}

static void
after(struct bed *bed, struct doca_dma_task_memcpy *task)
{
	if (bed->hook != NULL) {
		bed->hook(bed, task);
	} else if (bed->free_tasks) {
		bed_end_task(task);
	}
}

static void
on_ok(struct doca_dma_task_memcpy *task, union doca_data data, union doca_data ctx_data)
{
	struct bed *bed = ctx_data.ptr;

	ended(bed, task, data);
	CHECK_EQ(bed->status[bed->num_ok + bed->num_error], DOCA_SUCCESS);
	bed->num_ok++;
	after(bed, task);
}

static void
on_error(struct doca_dma_task_memcpy *task, union doca_data data, union doca_data ctx_data)
{
	struct bed *bed = ctx_data.ptr;

	ended(bed, task, data);
	CHECK(bed->status[bed->num_ok + bed->num_error] != DOCA_SUCCESS);
	bed->num_error++;
	after(bed, task);
}

static void
on_state(const union doca_data data, struct doca_ctx *ctx, enum doca_ctx_states prev,
	 enum doca_ctx_states next)
{
	struct bed *bed = data.ptr;
	enum doca_ctx_states state;

	OK(doca_ctx_get_state(ctx, &state));
	CHECK_EQ(state, next);
	CHECK(prev != next);
	CHECK(bed->num_states < BED_MAX_STATES);
	bed->states[bed->num_states++] = next;
	if (bed->state_hook != NULL) {
		bed->state_hook(bed, next);
	}
}

/* Open a device by name, the first one for NULL. */
struct doca_dev *
open_dev(const char *ibdev)
{
	char name[DOCA_DEVINFO_IBDEV_NAME_SIZE];
	struct doca_devinfo **list;
	struct doca_dev *dev = NULL;
	uint32_t num;

	OK(doca_devinfo_create_list(&list, &num));
	for (uint32_t i = 0; i < num && dev == NULL; i++) {
		OK(doca_devinfo_get_ibdev_name(list[i], name, sizeof(name)));
		if (ibdev == NULL || strcmp(name, ibdev) == 0) {
			OK(doca_dev_open(list[i], &dev));
		}
	}
	OK(doca_devinfo_destroy_list(list));
	CHECK(dev != NULL);
	return dev;
}

/* Get everything up to a configured context that is not started. */
void
bed_open(struct bed *bed, size_t size, uint32_t num_tasks)
{
	union doca_data data = {.ptr = bed};

	memset(bed, 0, sizeof(*bed));
	bed->free_tasks = true;
	bed->size = size;
	bed->memory = malloc(size);
	CHECK(bed->memory != NULL);
	fill(bed->memory, size, 1);
	bed->dev = open_dev(NULL);
	OK(doca_mmap_create(&bed->mmap));
	OK(doca_mmap_add_dev(bed->mmap, bed->dev));
	OK(doca_mmap_set_memrange(bed->mmap, bed->memory, size));
	OK(doca_mmap_start(bed->mmap));
	OK(doca_buf_inventory_create(2 * num_tasks + 64, &bed->inventory));
	OK(doca_buf_inventory_start(bed->inventory));
	OK(doca_pe_create(&bed->pe));
	OK(doca_pe_get_notification_handle(bed->pe, &bed->fd));
	OK(doca_dma_create(bed->dev, &bed->dma));
	bed->ctx = doca_dma_as_ctx(bed->dma);
	OK(doca_pe_connect_ctx(bed->pe, bed->ctx));
	OK(doca_ctx_set_user_data(bed->ctx, data));
	OK(doca_ctx_set_state_changed_cb(bed->ctx, on_state));
	OK(doca_dma_task_memcpy_set_conf(bed->dma, on_ok, on_error, num_tasks));
}

void
bed_start(struct bed *bed)
{
	OK(doca_ctx_start(bed->ctx));
}

void
bed_close(struct bed *bed)
{
	if (bed->dma != NULL) {
		doca_error_t result = doca_ctx_stop(bed->ctx);

		if (result == DOCA_ERROR_IN_PROGRESS) {
			enum doca_ctx_states state = DOCA_CTX_STATE_STOPPING;

			while (state != DOCA_CTX_STATE_IDLE) {
				bed_drain(bed);
				OK(doca_ctx_get_state(bed->ctx, &state));
			}
		} else {
			OK(result);
		}
		OK(doca_dma_destroy(bed->dma));
	}
	OK(doca_pe_destroy(bed->pe));
	OK(doca_buf_inventory_stop(bed->inventory));
	OK(doca_buf_inventory_destroy(bed->inventory));
	OK(doca_mmap_stop(bed->mmap));
	OK(doca_mmap_destroy(bed->mmap));
	OK(doca_dev_close(bed->dev));
	free(bed->memory);
}

struct doca_buf *
bed_src(struct bed *bed, size_t offset, size_t len)
{
	struct doca_buf *buf;

	OK(doca_buf_inventory_buf_get_by_data(bed->inventory, bed->mmap, bed->memory + offset, len,
					      &buf));
	return buf;
}

struct doca_buf *
bed_dst(struct bed *bed, size_t offset, size_t len)
{
	struct doca_buf *buf;

	OK(doca_buf_inventory_buf_get_by_addr(bed->inventory, bed->mmap, bed->memory + offset, len,
					      &buf));
	return buf;
}

struct doca_task *
bed_task(struct bed *bed, uint64_t id, size_t src, size_t dst, size_t len)
{
	struct doca_dma_task_memcpy *task;
	union doca_data data = {.u64 = id};

	OK(doca_dma_task_memcpy_alloc_init(bed->dma, bed_src(bed, src, len), bed_dst(bed, dst, len),
					   data, &task));
	return doca_dma_task_memcpy_as_task(task);
}

void
bed_submit(struct bed *bed, uint64_t id, size_t src, size_t dst, size_t len)
{
	OK(doca_task_submit(bed_task(bed, id, src, dst, len)));
}

/* Free a task with its bufs. */
void
bed_end_task(struct doca_dma_task_memcpy *task)
{
	struct doca_buf *src = (struct doca_buf *)(uintptr_t)doca_dma_task_memcpy_get_src(task);
	struct doca_buf *dst = doca_dma_task_memcpy_get_dst(task);

	doca_task_free(doca_dma_task_memcpy_as_task(task));
	if (src != NULL) {
		OK(doca_buf_dec_refcount(src, NULL));
	}
	if (dst != NULL) {
		OK(doca_buf_dec_refcount(dst, NULL));
	}
}

/* Progress until there is nothing to do, and count the steps. */
size_t
bed_progress(struct bed *bed)
{
	size_t steps = 0;

	while (doca_pe_progress(bed->pe) != 0) {
		steps++;
	}
	return steps;
}

bool
bed_readable(struct bed *bed, int timeout_ms)
{
	struct pollfd pollfd = {.fd = bed->fd, .events = POLLIN};

	return poll(&pollfd, 1, timeout_ms) == 1;
}

/* Progress, sleeping on the handle, until nothing is in flight. */
void
bed_drain(struct bed *bed)
{
	size_t left;

	for (;;) {
		bed_progress(bed);
		OK(doca_pe_get_num_inflight_tasks(bed->pe, &left));
		if (left == 0) {
			return;
		}
		OK(doca_pe_request_notification(bed->pe));
		if (!bed_readable(bed, 10000)) {
			check_failed(__FILE__, __LINE__, "no notification, %zu tasks in flight",
				     left);
		}
		OK(doca_pe_clear_notification(bed->pe, bed->fd));
	}
}

#ifndef CHECK_NO_MAIN
int
main(int argc, char **argv)
{
	for (size_t i = 0; i < num_tests; i++) {
		struct docaemu_live alive;

		if (argc > 1 && strcmp(argv[1], tests[i].name) != 0) {
			continue;
		}
		current = tests[i].name;
		printf("%s\n", current);
		fflush(stdout);
		OK(docaemu_reset());
		known_violations = 0;
		tests[i].run();
		expect_violations(0, NULL);
		alive = live();
		for (size_t j = 0; j < sizeof(alive) / sizeof(uint64_t); j++) {
			if (((uint64_t *)&alive)[j] != 0) {
				check_failed(__FILE__, __LINE__,
					     "live object %zu of the list is %llu", j,
					     (unsigned long long)((uint64_t *)&alive)[j]);
			}
		}
	}
	return 0;
}
#endif
