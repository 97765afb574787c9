/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of host and DPU share: an exported range, an imported one, and the protocol by hand. */
#ifndef PEERS_H_
#define PEERS_H_

#include "check.h"
#include "peer.h"

/* Memory exported for a device; the descriptor is the map's. */
struct exported {
	struct doca_dev *dev;
	struct doca_mmap *mmap;
	uint8_t *memory; /* whole pages of its own */
	size_t size;
	const void *desc;
	size_t desc_len;
};

/* Where export_open maps the next memory if there is room; NULL: anywhere. */
extern void *export_at;

void
export_open(struct exported *exported, const char *ibdev, size_t size, uint32_t permissions);
void
export_close(struct exported *exported);

/* A map imported into a bed, whose bufs are taken by address on the exporter's side. */
void
import_copy(struct bed *bed, struct doca_mmap *imported, bool push, uint64_t id, size_t here,
	    uintptr_t there, size_t len);
doca_error_t
import_one(struct bed *bed, struct doca_mmap *imported, bool push, size_t here, uintptr_t there,
	   size_t len);
void
import_restart(struct bed *bed);

/* A client that may send anything. */
struct raw {
	int fd;
	uint8_t *staging;
	uint64_t seq;
	struct emu_descriptor descriptor;
};

void
raw_connect(struct raw *raw, const void *desc, size_t len);
bool
raw_send(struct raw *raw, const void *message, size_t size);
bool
raw_reply(struct raw *raw, struct emu_peer_reply *reply);
void
raw_attach(struct raw *raw);
struct emu_peer_request
raw_request(struct raw *raw, enum emu_peer_op op, uint64_t addr, uint64_t length);
uint32_t
raw_call(struct raw *raw, enum emu_peer_op op, uint64_t addr, uint64_t length);
void
raw_close(struct raw *raw);

#endif /* PEERS_H_ */
