/* SPDX-License-Identifier: Apache-2.0 */
/* One client of the exporting side: its staging, and its requests. The server's lock is held. */
#define _GNU_SOURCE
#include "peer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

/* ---- who may ask ---- */

/* Whether the process at the other end of a socket runs as this user, as root, or may be anyone. */
bool
emu_peer_uid_allowed(int fd)
{
	struct ucred cred;
	socklen_t size = sizeof(cred);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) != 0) {
		return false;
	}
	return cred.uid == geteuid() || cred.uid == 0 || emu_get(EMU_PEER_USERS) != 0;
}

/* ---- a client ---- */

/* Let a client go. */
void
emu_client_drop(struct emu_client *client)
{
	if (client->fd >= 0) {
		close(client->fd);
		client->fd = -1;
	}
	if (client->staging != NULL) {
		munmap(client->staging, EMU_PEER_CONTROL + EMU_PEER_DATA);
		client->staging = NULL;
	}
}

/*
 * Make the staging of a client; returns the memfd, or -1.
 *
 * It cannot be resized, and has its pages, so that no access to the mapping is a signal.
 */
static int
staging_create(struct emu_client *client)
{
	const size_t size = EMU_PEER_CONTROL + EMU_PEER_DATA;
	int fd = memfd_create("docaemu-staging", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *map;

	if (fd < 0) {
		return -1;
	}
	if (posix_fallocate(fd, 0, (off_t)size) != 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
		goto close_fd;
	}
	map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED) {
		goto close_fd;
	}
	madvise(map, size, MADV_DONTFORK);
	client->staging = map;
	return fd;

close_fd:
	close(fd);
	return -1;
}

/* Send a reply, with a memfd if there is one; false if the client does not take it at once. */
static bool
reply(struct emu_client *client, const struct emu_peer_reply *message, int fd)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = {(void *)(uintptr_t)message, sizeof(*message)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	if (fd >= 0) {
		memset(&control, 0, sizeof(control));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
		msg.msg_control = &control;
		msg.msg_controllen = sizeof(control.space);
	}
	return sendmsg(client->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof(*message);
}

#define EMU_PIPE_BYTES (64u << 10)

/*
 * Move bytes through the kernel by way of a pipe, in twice the time. By plain system calls: those of the C
 * library are watched by sanitizers, which take them for accesses of the program.
 */
static bool
move_by_pipe(const uint8_t *from, uint8_t *to, size_t len)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
		return false;
	}
	while (len != 0) {
		long n = syscall(SYS_write, ends[1], from,
				 len < EMU_PIPE_BYTES ? len : EMU_PIPE_BYTES);

		if (n <= 0 || syscall(SYS_read, ends[0], to, n) != n) {
			break;
		}
		from += n;
		to += n;
		len -= (size_t)n;
	}
	close(ends[0]);
	close(ends[1]);
	return len == 0;
}

/* Move bytes between the staging and memory of this process that may not exist. */
bool
emu_peer_move_own(bool to_memory, uint8_t *staging, uint8_t *memory, size_t len)
{
	while (len != 0) {
		struct iovec local = {staging, len};
		struct iovec own = {memory, len};
		ssize_t n = to_memory ? process_vm_writev(getpid(), &local, 1, &own, 1, 0)
				      : process_vm_readv(getpid(), &local, 1, &own, 1, 0);

		if (n < 0 && (errno == ENOSYS || errno == EPERM)) {
			/* An emulator of machines does not know the calls, a sandbox forbids them. */
			return to_memory ? move_by_pipe(staging, memory, len)
					 : move_by_pipe(memory, staging, len);
		}
		if (n <= 0) {
			return false;
		}
		staging += n;
		memory += n;
		len -= (size_t)n;
	}
	return true;
}

/* Take the turn; false if the importer gave the request up. */
static bool
take_turn(struct emu_client *client, uint64_t seq)
{
	uint64_t asked = 2 * seq;

	return atomic_compare_exchange_strong((_Atomic uint64_t *)(void *)client->staging, &asked,
					      asked + 1);
}

static enum emu_peer_status
transfer(struct emu_client *client, const struct emu_peer_request *request)
{
	const struct emu_export *export = emu_export_find(request->id, request->generation);
	bool write = request->op == EMU_PEER_WRITE;
	uint8_t differ = 0;
	uint64_t offset;

	if (export == NULL || export->revoked) {
		return EMU_PEER_REVOKED;
	}
	for (size_t i = 0; i < EMU_PEER_TAG; i++) {
		differ |= request->tag[i] ^ export->descriptor.tag[i];
	}
	if (differ != 0) {
		return EMU_PEER_FORGED;
	}
	offset = request->addr - (uintptr_t)export->addr;
	if (request->addr < (uintptr_t)export->addr || request->length == 0 ||
	    request->length > EMU_PEER_DATA || offset > export->len ||
	    request->length > export->len - offset) {
		return EMU_PEER_BOUNDS;
	}
	if (write && !export->writable) {
		return EMU_PEER_READ_ONLY;
	}
	if (!take_turn(client, request->seq)) {
		return EMU_PEER_CANCELLED;
	}
	if (!emu_peer_move_own(write, client->staging + EMU_PEER_CONTROL, export->addr + offset,
			       request->length)) {
		return EMU_PEER_UNMAPPED;
	}
	emu_add(write ? &emu_stats.peer_writes : &emu_stats.peer_reads, 1);
	return EMU_PEER_OK;
}

/* Serve one message; false if the client is to be dropped. */
bool
emu_client_serve(struct emu_client *client)
{
	struct {
		struct emu_peer_attach message;
		uint8_t more;
	} in;
	struct emu_peer_reply out = {.magic = EMU_PEER_REPLY_MAGIC};
	const struct emu_peer_request *request = &in.message.request;
	ssize_t got = recv(client->fd, &in, sizeof(in), MSG_DONTWAIT);
	enum emu_peer_status status;
	bool sent;
	int fd = -1;

	if (got < 0) {
		return errno == EAGAIN || errno == EINTR;
	}
	if (got < (ssize_t)sizeof(*request) || request->magic != EMU_PEER_REQUEST_MAGIC) {
		return false;
	}
	if (request->op == EMU_PEER_ATTACH && got == (ssize_t)sizeof(in.message)) {
		status = emu_export_check(&in.message.descriptor);
		if (status == EMU_PEER_OK && client->staging == NULL) {
			fd = staging_create(client);
			if (fd < 0) {
				status = EMU_PEER_NO_MEMORY;
			} else {
				out.staging = EMU_PEER_CONTROL + EMU_PEER_DATA;
			}
		}
	} else if ((request->op == EMU_PEER_READ || request->op == EMU_PEER_WRITE) &&
		   got == (ssize_t)sizeof(*request) && client->staging != NULL) {
		status = transfer(client, request);
	} else {
		return false;
	}
	if (status != EMU_PEER_OK) {
		emu_add(&emu_stats.peer_refused, 1);
	}
	out.status = status;
	out.seq = request->seq;
	sent = reply(client, &out, fd);
	if (fd >= 0) {
		close(fd);
	}
	return sent;
}
