/* SPDX-License-Identifier: Apache-2.0 */
/* What every example needs: a device, one registered range of memory, and a DMA context. */
#ifndef COMMON_H_
#define COMMON_H_

#include <stddef.h>
#include <stdint.h>

#include <doca_buf.h>
#include <doca_buf_inventory.h>
#include <doca_ctx.h>
#include <doca_dev.h>
#include <doca_dma.h>
#include <doca_error.h>
#include <doca_mmap.h>
#include <doca_pe.h>

#ifdef __cplusplus
extern "C" {
#endif

struct engine {
	struct doca_dev *dev;
	struct doca_mmap *map;
	struct doca_buf_inventory *inventory;
	struct doca_pe *pe;
	struct doca_dma *dma;
	struct doca_ctx *ctx;
	uint64_t max_copy; /* bytes one task may copy */
	size_t in_flight;
	size_t failed;
};

/* End the program with a message unless a DOCA call succeeds. */
#define NEED(call) need((call), #call)
void
need(doca_error_t result, const char *call);

/* Open the device at a PCI address (NULL: the first that does DMA) for copies within the memory. */
void
engine_open(struct engine *engine, const char *pci, void *memory, size_t size, uint32_t tasks);

/* Begin a copy; it counts as in flight until doca_pe_progress reports it. */
void
engine_copy(struct engine *engine, const void *src, void *dst, size_t size);

/* Stop and free everything; nothing may be in flight. */
void
engine_close(struct engine *engine);

#ifdef __cplusplus
}
#endif

#endif /* COMMON_H_ */
