/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host and DPU: memory that one process exports and another one copies from or to.
 *
 *     importer                                    exporter
 *     --------                                    --------
 *     worker or step                              server thread (peer_export.c)
 *       |  ATTACH: the descriptor  ------------->   whose process? sealed by us? still exported?
 *       |  <--- status, and the staging memfd ---
 *       |
 *       |  READ: tag, address, length ---------->   tag, range; process_vm_readv on itself
 *       |  <--- status ---------------------------  into the staging
 *       |  copies the staging to its own memory
 *       |
 *       |  copies its own memory to the staging
 *       |  WRITE: tag, address, length --------->   tag, range, permission; process_vm_writev
 *       |  <--- status ---------------------------  on itself, out of the staging
 *
 * The importer never maps the exporter's memory and is never trusted: whatever it sends, permission,
 * bounds, generation and whether the memory still exists are decided by the exporter, which reaches
 * its own memory through the kernel and so gets an error where a plain load would be a signal.
 * Neither side waits for the other without end: the exporter never waits, the importer does so for
 * the setting peer_timeout.
 *
 * Messages are those below, whole, over a Unix socket that keeps their bounds (SOCK_SEQPACKET).
 * The staging begins with a page whose first word says whose turn it is: a request that the
 * importer gave up is not served later.
 *
 *     word           0 ----> 2*seq ------> 2*seq+1        importer: asks; exporter: takes it
 *                    ^         |
 *                    +---------+                          importer: gives it up
 */
#ifndef PEER_H_
#define PEER_H_

#include "emu.h"

#define EMU_PEER_VERSION 1
#define EMU_PEER_REQUEST_MAGIC 0x71657264u
#define EMU_PEER_REPLY_MAGIC 0x79707264u
#define EMU_PEER_CONTROL 4096u	 /* bytes of the staging before its data */
#define EMU_PEER_DATA (1u << 20) /* bytes of data in the staging: the longest request */
#define EMU_PEER_TAG 16
#define EMU_PEER_ADDRESS 48

/* What doca_mmap_export_pci gives. All of it is plain data; its size is a part of the version. */
struct emu_descriptor {
	char magic[8];
	uint32_t version;
	uint32_t size;
	uint64_t id; /* of the export; never used again */
	uint64_t generation;
	uint64_t base;
	uint64_t length;
	uint32_t access; /* one of the PCI flags */
	uint32_t reserved;
	uint8_t instance[16];		/* of the exporting process */
	char address[EMU_PEER_ADDRESS]; /* abstract, without the leading NUL */
	char ibdev[DOCA_DEVINFO_IBDEV_NAME_SIZE];
	char pci[16];
	uint8_t tag[EMU_PEER_TAG]; /* of all before, with a key only the exporter has */
	uint64_t checksum;	   /* of all before, with no key: damage is seen without asking */
};

_Static_assert(sizeof(struct emu_descriptor) == 224, "the layout is a part of the version");

enum emu_peer_op { EMU_PEER_ATTACH = 1, EMU_PEER_READ, EMU_PEER_WRITE };

enum emu_peer_status {
	EMU_PEER_OK,
	EMU_PEER_FORGED,
	EMU_PEER_REVOKED,
	EMU_PEER_REFUSED,
	EMU_PEER_BOUNDS,
	EMU_PEER_READ_ONLY,
	EMU_PEER_UNMAPPED,
	EMU_PEER_NO_MEMORY,
	EMU_PEER_CANCELLED,
};

struct emu_peer_request {
	uint32_t magic;
	uint32_t op;
	uint64_t seq;
	uint64_t id;
	uint64_t generation;
	uint64_t addr;
	uint64_t length;
	uint8_t tag[EMU_PEER_TAG];
};

struct emu_peer_attach {
	struct emu_peer_request request;
	struct emu_descriptor descriptor;
};

struct emu_peer_reply {
	uint32_t magic;
	uint32_t status;
	uint64_t seq;
	uint64_t staging; /* bytes of the memfd that comes with this reply; 0: none comes */
};

/* An export of a map for one device; the descriptor is what the user holds. */
struct emu_export {
	struct emu_export *next; /* of the map; the map's thread */
	struct emu_export *all;	 /* of the process; the server's lock */
	const struct doca_dev *dev;
	uint8_t *addr;
	size_t len;
	bool writable;
	bool revoked; /* the server's lock */
	struct emu_descriptor descriptor;
};

/* Who is connected to the server of the exports. */
struct emu_client {
	int fd;		  /* -1: free */
	uint64_t arrived; /* order of arrival */
	uint8_t *staging; /* NULL until a genuine descriptor came */
};

struct emu_peer;

/* What an imported map has more than others. */
struct emu_import {
	struct emu_peer *peer; /* NULL for the process' own export by the same device */
	bool own;	       /* exported by this process */
	struct emu_descriptor descriptor;
};

/* peer_descriptor.c */
void
emu_siphash(const uint8_t key[16], const void *data, size_t len, uint8_t out[16]);
bool
emu_descriptor_parse(const void *data, size_t len, struct emu_descriptor *descriptor);
void
emu_descriptor_seal(struct emu_descriptor *descriptor, const uint8_t key[16]);
bool
emu_descriptor_is_sealed(const struct emu_descriptor *descriptor, const uint8_t key[16]);

/* peer_export.c */
doca_error_t
emu_export_add(struct doca_mmap *mmap, const struct doca_dev *dev, uint32_t access,
	       const struct emu_descriptor **descriptor);
void
emu_exports_drop(struct doca_mmap *mmap);
bool
emu_export_is_own(const struct emu_descriptor *descriptor);
enum emu_peer_status
emu_export_find_own(const struct emu_descriptor *descriptor);
struct emu_export *
emu_export_find(uint64_t id, uint64_t generation);
enum emu_peer_status
emu_export_check(const struct emu_descriptor *descriptor);
void
emu_export_fork_prepare(void);
void
emu_export_fork_parent(void);
void
emu_export_fork_child(void);

/* peer_serve.c */
bool
emu_peer_uid_allowed(int fd);
void
emu_client_drop(struct emu_client *client);
bool
emu_client_serve(struct emu_client *client);
bool
emu_peer_move_own(bool to_memory, uint8_t *staging, uint8_t *memory, size_t len);

/* peer_import.c */
doca_error_t
emu_import_open(const void *data, size_t len, struct doca_dev *dev, struct emu_import **import);
void
emu_import_close(struct emu_import *import);
bool
emu_import_is_same_memory(const struct emu_import *a, const struct emu_import *b);
doca_error_t
emu_peer_copy(struct emu_import *to_import, uint8_t *to, struct emu_import *from_import,
	      const uint8_t *from, size_t len);
void
emu_import_fork_prepare(void);
void
emu_import_fork_parent(void);
void
emu_import_fork_child(void);

#endif /* PEER_H_ */
