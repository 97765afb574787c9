/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "peers.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

void *export_at;

/* Export fresh memory; the device is opened by name. */
void
export_open(struct exported *exported, const char *ibdev, size_t size, uint32_t permissions)
{
	exported->size = size;
	exported->memory =
		mmap(export_at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(exported->memory != MAP_FAILED);
	fill(exported->memory, size, 7);
	exported->dev = open_dev(ibdev);
	OK(doca_mmap_create(&exported->mmap));
	OK(doca_mmap_add_dev(exported->mmap, exported->dev));
	OK(doca_mmap_set_memrange(exported->mmap, exported->memory, size));
	OK(doca_mmap_set_permissions(exported->mmap, permissions));
	OK(doca_mmap_start(exported->mmap));
	OK(doca_mmap_export_pci(exported->mmap, exported->dev, &exported->desc,
				&exported->desc_len));
}

void
export_close(struct exported *exported)
{
	OK(doca_mmap_destroy(exported->mmap));
	OK(doca_dev_close(exported->dev));
	if (exported->memory != NULL) {
		munmap(exported->memory, exported->size);
	}
}

/* Submit a copy between the bed's memory and imported memory. */
void
import_copy(struct bed *bed, struct doca_mmap *imported, bool push, uint64_t id, size_t here,
	    uintptr_t there, size_t len)
{
	struct doca_dma_task_memcpy *task;
	union doca_data data = {.u64 = id};
	struct doca_buf *src;
	struct doca_buf *dst;

	if (push) {
		src = bed_src(bed, here, len);
		OK(doca_buf_inventory_buf_get_by_addr(bed->inventory, imported, (void *)there, len,
						      &dst));
	} else {
		OK(doca_buf_inventory_buf_get_by_data(bed->inventory, imported, (void *)there, len,
						      &src));
		dst = bed_dst(bed, here, len);
	}
	OK(doca_dma_task_memcpy_alloc_init(bed->dma, src, dst, data, &task));
	OK(doca_task_submit(doca_dma_task_memcpy_as_task(task)));
}

/* Start the context again if a failed task stopped it. */
void
import_restart(struct bed *bed)
{
	enum doca_ctx_states state;

	bed_progress(bed);
	OK(doca_ctx_get_state(bed->ctx, &state));
	if (state == DOCA_CTX_STATE_STOPPING) {
		bed_drain(bed);
		OK(doca_ctx_get_state(bed->ctx, &state));
	}
	if (state == DOCA_CTX_STATE_IDLE) {
		bed_start(bed);
	}
}

/* Do one copy and give its status; the context runs again afterwards. */
doca_error_t
import_one(struct bed *bed, struct doca_mmap *imported, bool push, size_t here, uintptr_t there,
	   size_t len)
{
	size_t n = bed->num_ok + bed->num_error;
	doca_error_t status;

	import_copy(bed, imported, push, 0, here, there, len);
	OK(docaemu_step(SIZE_MAX, DOCAEMU_ORDER_FIFO, NULL));
	bed_drain(bed);
	CHECK_EQ(bed->num_ok + bed->num_error, n + 1);
	status = bed->status[n];
	bed->num_ok = 0;
	bed->num_error = 0;
	bed->num_states = 0;
	import_restart(bed);
	return status;
}

/* ---- the protocol by hand ---- */

void
raw_connect(struct raw *raw, const void *desc, size_t len)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t length;

	memset(raw, 0, sizeof(*raw));
	CHECK(emu_descriptor_parse(desc, len, &raw->descriptor));
	length = strlen(raw->descriptor.address);
	memcpy(address.sun_path + 1, raw->descriptor.address, length);
	raw->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	CHECK(raw->fd >= 0);
	CHECK_EQ(connect(raw->fd, (struct sockaddr *)&address,
			 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)),
		 0);
}

/* False if the exporter hung up, or does not read. */
bool
raw_send(struct raw *raw, const void *message, size_t size)
{
	return send(raw->fd, message, size, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)size;
}

/* Wait for a reply, and map the staging that may come with it; false if the exporter hung up. */
bool
raw_reply(struct raw *raw, struct emu_peer_reply *reply)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = {reply, sizeof(*reply)};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.space,
			     .msg_controllen = sizeof(control.space)};
	struct pollfd pollfd = {.fd = raw->fd, .events = POLLIN};
	struct cmsghdr *header;
	ssize_t got;

	CHECK_EQ(poll(&pollfd, 1, 10000), 1);
	got = recvmsg(raw->fd, &msg, MSG_CMSG_CLOEXEC);
	if (got <= 0) {
		return false;
	}
	CHECK_EQ(got, sizeof(*reply));
	CHECK_EQ(reply->magic, EMU_PEER_REPLY_MAGIC);
	header = CMSG_FIRSTHDR(&msg);
	if (header != NULL) {
		int fd;

		memcpy(&fd, CMSG_DATA(header), sizeof(fd));
		CHECK(raw->staging == NULL);
		raw->staging =
			mmap(NULL, reply->staging, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		CHECK(raw->staging != MAP_FAILED);
		/* It can be neither cut nor grown. */
		CHECK(ftruncate(fd, 0) != 0 && errno == EPERM);
		CHECK(ftruncate(fd, 1 << 30) != 0 && errno == EPERM);
		close(fd);
	}
	return true;
}

void
raw_attach(struct raw *raw)
{
	struct emu_peer_attach attach = {
		.request = {.magic = EMU_PEER_REQUEST_MAGIC,
			    .op = EMU_PEER_ATTACH,
			    .seq = ++raw->seq},
		.descriptor = raw->descriptor,
	};
	struct emu_peer_reply reply;

	CHECK(raw_send(raw, &attach, sizeof(attach)));
	CHECK(raw_reply(raw, &reply));
	CHECK_EQ(reply.status, EMU_PEER_OK);
	CHECK_EQ(reply.seq, raw->seq);
	CHECK(raw->staging != NULL);
}

/* An honest request, with its turn taken. */
struct emu_peer_request
raw_request(struct raw *raw, enum emu_peer_op op, uint64_t addr, uint64_t length)
{
	struct emu_peer_request request = {
		.magic = EMU_PEER_REQUEST_MAGIC,
		.op = op,
		.seq = ++raw->seq,
		.id = raw->descriptor.id,
		.generation = raw->descriptor.generation,
		.addr = addr,
		.length = length,
	};

	memcpy(request.tag, raw->descriptor.tag, sizeof(request.tag));
	atomic_store((_Atomic uint64_t *)(void *)raw->staging, 2 * raw->seq);
	return request;
}

uint32_t
raw_call(struct raw *raw, enum emu_peer_op op, uint64_t addr, uint64_t length)
{
	struct emu_peer_request request = raw_request(raw, op, addr, length);
	struct emu_peer_reply reply;

	CHECK(raw_send(raw, &request, sizeof(request)));
	CHECK(raw_reply(raw, &reply));
	CHECK_EQ(reply.seq, raw->seq);
	return reply.status;
}

void
raw_close(struct raw *raw)
{
	close(raw->fd);
	if (raw->staging != NULL) {
		munmap(raw->staging, EMU_PEER_CONTROL + EMU_PEER_DATA);
	}
}
