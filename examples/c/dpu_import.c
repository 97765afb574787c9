/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The DPU: copies the host's memory here, and an answer back. See host_export.c. Prints:
 *
 *     imported 4096 bytes
 *     read: hello, DPU
 *     answered
 */
#include <poll.h>
#include <stdbool.h>
#include <string.h>

#include <doca_buf.h>
#include <doca_buf_inventory.h>
#include <doca_ctx.h>
#include <doca_dma.h>
#include <doca_pe.h>

#include "pair.h"

static bool done;

static void
on_end(struct doca_dma_task_memcpy *memcpy_task, union doca_data task_data,
       union doca_data ctx_data)
{
	struct doca_task *task = doca_dma_task_memcpy_as_task(memcpy_task);

	(void)ctx_data;
	*(doca_error_t *)task_data.ptr = doca_task_get_status(task);
	done = true;
	doca_task_free(task);
}

/* Copy, sleeping on the notification handle until it is done. */
static void
copy(struct doca_pe *pe, struct doca_dma *dma, struct doca_buf *src, struct doca_buf *dst)
{
	struct pollfd handle = {.events = POLLIN};
	doca_error_t status;
	union doca_data data = {.ptr = &status};
	struct doca_dma_task_memcpy *task;

	done = false;
	TRY(doca_pe_get_notification_handle(pe, &handle.fd));
	TRY(doca_dma_task_memcpy_alloc_init(dma, src, dst, data, &task));
	TRY(doca_task_submit(doca_dma_task_memcpy_as_task(task)));
	for (;;) {
		while (doca_pe_progress(pe) != 0) {
		}
		if (done) {
			break;
		}
		TRY(doca_pe_request_notification(pe));
		poll(&handle, 1, -1);
		TRY(doca_pe_clear_notification(pe, handle.fd));
	}
	TRY(status);
	TRY(doca_buf_dec_refcount(src, NULL));
	TRY(doca_buf_dec_refcount(dst, NULL));
}

int
main(int argc, char **argv)
{
	struct doca_dev *dev = open_device(doca_mmap_cap_is_create_from_export_pci_supported);
	struct doca_buf_inventory *inventory;
	struct doca_mmap *remote;
	struct doca_mmap *local;
	struct doca_dma *dma;
	struct doca_pe *pe;
	struct doca_buf *src;
	struct doca_buf *dst;
	char answer[1024];
	char desc[1024];
	size_t length;
	char *memory;
	void *there;
	FILE *file;

	file = fopen(argc == 2 ? argv[1] : "", "rb");
	if (file == NULL) {
		fprintf(stderr, "usage: %s FILE, which host_export wrote\n", argv[0]);
		return 2;
	}
	length = fread(desc, 1, sizeof(desc), file);
	fclose(file);
	TRY(doca_mmap_create_from_export(NULL, desc, length, dev, &remote));
	TRY(doca_mmap_get_memrange(remote, &there, &length));
	printf("imported %zu bytes\n", length);
	memory = malloc(length);
	if (memory == NULL) {
		return 1;
	}
	local = map_memory(dev, memory, length, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE);
	TRY(doca_buf_inventory_create(2, &inventory));
	TRY(doca_buf_inventory_start(inventory));
	TRY(doca_pe_create(&pe));
	TRY(doca_dma_create(dev, &dma));
	TRY(doca_pe_connect_ctx(pe, doca_dma_as_ctx(dma)));
	TRY(doca_dma_task_memcpy_set_conf(dma, on_end, on_end, 1));
	TRY(doca_ctx_start(doca_dma_as_ctx(dma)));

	TRY(doca_buf_inventory_buf_get_by_data(inventory, remote, there, length, &src));
	TRY(doca_buf_inventory_buf_get_by_addr(inventory, local, memory, length, &dst));
	copy(pe, dma, src, dst);
	printf("read: %s\n", memory);

	snprintf(answer, sizeof(answer), "got \"%.900s\"", memory);
	length = strlen(answer) + 1;
	memcpy(memory, answer, length);
	TRY(doca_buf_inventory_buf_get_by_data(inventory, local, memory, length, &src));
	TRY(doca_buf_inventory_buf_get_by_addr(inventory, remote, there, length, &dst));
	copy(pe, dma, src, dst);
	printf("answered\n");

	TRY(doca_ctx_stop(doca_dma_as_ctx(dma)));
	TRY(doca_dma_destroy(dma));
	TRY(doca_pe_destroy(pe));
	TRY(doca_buf_inventory_destroy(inventory));
	TRY(doca_mmap_destroy(remote));
	TRY(doca_mmap_destroy(local));
	TRY(doca_dev_close(dev));
	free(memory);
	return 0;
}
