/* SPDX-License-Identifier: Apache-2.0 */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>

void
need(doca_error_t result, const char *call)
{
	if (result != DOCA_SUCCESS) {
		fprintf(stderr, "%s: %s\n", call, doca_error_get_descr(result));
		exit(EXIT_FAILURE);
	}
}

static void
open_device(struct engine *engine, const char *pci)
{
	struct doca_devinfo **list;
	uint32_t num;

	NEED(doca_devinfo_create_list(&list, &num));
	for (uint32_t i = 0; i < num && engine->dev == NULL; i++) {
		uint8_t wanted = pci == NULL;

		if (pci != NULL) {
			NEED(doca_devinfo_is_equal_pci_addr(list[i], pci, &wanted));
		}
		if (wanted && doca_dma_cap_task_memcpy_is_supported(list[i]) == DOCA_SUCCESS) {
			NEED(doca_dma_cap_task_memcpy_get_max_buf_size(list[i], &engine->max_copy));
			NEED(doca_dev_open(list[i], &engine->dev));
		}
	}
	NEED(doca_devinfo_destroy_list(list));
	if (engine->dev == NULL) {
		fprintf(stderr, "no device that does DMA\n");
		exit(EXIT_FAILURE);
	}
}

/* A task has ended: give back what it used. */
static void
release(struct engine *engine, struct doca_dma_task_memcpy *task)
{
	/* The source is ours to drop, as we made it; a task only reads it. */
	NEED(doca_buf_dec_refcount((struct doca_buf *)doca_dma_task_memcpy_get_src(task), NULL));
	NEED(doca_buf_dec_refcount(doca_dma_task_memcpy_get_dst(task), NULL));
	doca_task_free(doca_dma_task_memcpy_as_task(task));
	engine->in_flight--;
}

static void
on_done(struct doca_dma_task_memcpy *task, union doca_data user_data, union doca_data ctx_data)
{
	(void)user_data;
	release(ctx_data.ptr, task);
}

static void
on_failed(struct doca_dma_task_memcpy *task, union doca_data user_data, union doca_data ctx_data)
{
	struct engine *engine = ctx_data.ptr;
	doca_error_t status = doca_task_get_status(doca_dma_task_memcpy_as_task(task));

	(void)user_data;
	fprintf(stderr, "a copy failed: %s\n", doca_error_get_descr(status));
	engine->failed++;
	release(engine, task);
}

void
engine_open(struct engine *engine, const char *pci, void *memory, size_t size, uint32_t tasks)
{
	*engine = (struct engine){0};
	open_device(engine, pci);

	NEED(doca_mmap_create(&engine->map));
	NEED(doca_mmap_add_dev(engine->map, engine->dev));
	NEED(doca_mmap_set_permissions(engine->map, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE));
	NEED(doca_mmap_set_memrange(engine->map, memory, size));
	NEED(doca_mmap_start(engine->map));

	/* Two bufs for each task: where from, where to. */
	NEED(doca_buf_inventory_create(2 * (size_t)tasks, &engine->inventory));
	NEED(doca_buf_inventory_start(engine->inventory));

	NEED(doca_pe_create(&engine->pe));
	NEED(doca_dma_create(engine->dev, &engine->dma));
	engine->ctx = doca_dma_as_ctx(engine->dma);
	NEED(doca_pe_connect_ctx(engine->pe, engine->ctx));
	NEED(doca_dma_task_memcpy_set_conf(engine->dma, on_done, on_failed, tasks));
	NEED(doca_ctx_set_user_data(engine->ctx, (union doca_data){.ptr = engine}));
	NEED(doca_ctx_start(engine->ctx));
}

void
engine_copy(struct engine *engine, const void *src, void *dst, size_t size)
{
	struct doca_dma_task_memcpy *task;
	struct doca_buf *from;
	struct doca_buf *to;

	NEED(doca_buf_inventory_buf_get_by_data(engine->inventory, engine->map, (void *)src, size,
						&from));
	/* Empty: a copy appends to what the destination holds. */
	NEED(doca_buf_inventory_buf_get_by_addr(engine->inventory, engine->map, dst, size, &to));
	NEED(doca_dma_task_memcpy_alloc_init(engine->dma, from, to, (union doca_data){0}, &task));
	NEED(doca_task_submit(doca_dma_task_memcpy_as_task(task)));
	engine->in_flight++;
}

void
engine_close(struct engine *engine)
{
	enum doca_ctx_states state;
	doca_error_t result = doca_ctx_stop(engine->ctx);

	if (result != DOCA_ERROR_IN_PROGRESS) {
		NEED(result);
	}
	do {
		doca_pe_progress(engine->pe);
		NEED(doca_ctx_get_state(engine->ctx, &state));
	} while (state != DOCA_CTX_STATE_IDLE);
	NEED(doca_dma_destroy(engine->dma));
	NEED(doca_pe_destroy(engine->pe));
	NEED(doca_buf_inventory_destroy(engine->inventory));
	NEED(doca_mmap_destroy(engine->map));
	NEED(doca_dev_close(engine->dev));
}
