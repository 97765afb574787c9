/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The importing side: connections to exporters, and copies through them.
 *
 * All maps imported from one process share a connection, which carries one request at a time. Who
 * gives up a request, because nothing came for peer_timeout, closes the connection and lets the
 * staging go: a reply that comes later finds nobody, so no old data is ever taken for new. Those who
 * waited for the connection meanwhile give up with it. The next request connects again: an exporter
 * that was only frozen is there again.
 *
 * An exporter is not trusted either: the staging must be of the right size and sealed, so that no
 * access to it is a signal, and the process at the other end must be one that may import from us.
 */
#define _GNU_SOURCE
#include "peer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

struct emu_peer {
	struct emu_peer *next; /* peers_lock */
	uint32_t users;	       /* imported maps; peers_lock */
	uint8_t instance[16];
	char address[EMU_PEER_ADDRESS];
	_Atomic uint64_t breaks; /* how often the connection was given up */
	pthread_mutex_t lock;	 /* one request at a time; guards what follows */
	int fd;			 /* -1: not connected; changed with peers_lock as well */
	uint8_t *staging;
	uint64_t seq;
};

static pthread_mutex_t peers_lock = PTHREAD_MUTEX_INITIALIZER;
static struct emu_peer *peers;

/* ---- the connection; the lock of the peer is held ---- */

static uint64_t
now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void
disconnect(struct emu_peer *peer)
{
	if (peer->staging != NULL) {
		munmap(peer->staging, EMU_PEER_CONTROL + EMU_PEER_DATA);
		peer->staging = NULL;
	}
	pthread_mutex_lock(&peers_lock);
	if (peer->fd >= 0) {
		close(peer->fd);
		peer->fd = -1;
		atomic_fetch_add(&peer->breaks, 1);
	}
	pthread_mutex_unlock(&peers_lock);
}

/*
 * Connect to the exporter.
 *
 * @retval DOCA_SUCCESS
 * @retval DOCA_ERROR_NOT_PERMITTED nobody is there, or another user
 * @retval DOCA_ERROR_DRIVER it does not answer in time, or no socket is left
 */
static doca_error_t
open_socket(struct emu_peer *peer, uint64_t timeout_ns)
{
	const struct timeval timeout = {.tv_sec = (time_t)(timeout_ns / 1000000000u),
					.tv_usec = (suseconds_t)(timeout_ns % 1000000000u / 1000)};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t length = strlen(peer->address);
	int failed;

	memcpy(address.sun_path + 1, peer->address, length);
	pthread_mutex_lock(&peers_lock);
	peer->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	pthread_mutex_unlock(&peers_lock);
	if (peer->fd < 0) {
		return DOCA_ERROR_DRIVER;
	}
	/* The time connect may take while the exporter's queue is full. */
	setsockopt(peer->fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
	do {
		failed = connect(peer->fd, (struct sockaddr *)&address,
				 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length));
	} while (failed != 0 && errno == EINTR);
	if (failed != 0) {
		return errno == ECONNREFUSED ? DOCA_ERROR_NOT_PERMITTED : DOCA_ERROR_DRIVER;
	}
	return emu_peer_uid_allowed(peer->fd) ? DOCA_SUCCESS : DOCA_ERROR_NOT_PERMITTED;
}

/* Receive a reply and the fd that may come with it, with room for one only; false if there is none that makes sense. */
static bool
receive(struct emu_peer *peer, struct emu_peer_reply *reply, int *fd)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = {reply, sizeof(*reply)};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.space,
			     .msg_controllen = CMSG_LEN(sizeof(int))};
	struct cmsghdr *header;
	ssize_t got;

	*fd = -1;
	got = recvmsg(peer->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (got < 0 && errno == ECONNRESET) {
		/* It hung up on what was sent; what it said before is still there. */
		got = recvmsg(peer->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	}
	header = got >= 0 ? CMSG_FIRSTHDR(&msg) : NULL;
	if (header != NULL && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
	    header->cmsg_len == CMSG_LEN(sizeof(int))) {
		memcpy(fd, CMSG_DATA(header), sizeof(*fd));
	}
	return got == (ssize_t)sizeof(*reply) && (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 &&
	       reply->magic == EMU_PEER_REPLY_MAGIC;
}

/* Send a request and wait for its reply; a failure leaves the connection to be closed. */
static bool
exchange(struct emu_peer *peer, const void *message, size_t size, uint64_t seq, uint64_t timeout_ns,
	 struct emu_peer_reply *reply, int *fd)
{
	uint64_t deadline = now_ns() + timeout_ns;
	struct pollfd pollfd = {.fd = peer->fd, .events = POLLIN};
	int ready;

	*fd = -1;
	if (send(peer->fd, message, size, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)size) {
		/* A refusal may be waiting, sent before it closed. */
		return receive(peer, reply, fd) && reply->status == EMU_PEER_REFUSED;
	}
	do {
		uint64_t now = now_ns();
		uint64_t left = now < deadline ? deadline - now : 0;
		struct timespec wait = {.tv_sec = (time_t)(left / 1000000000u),
					.tv_nsec = (long)(left % 1000000000u)};

		ready = ppoll(&pollfd, 1, &wait, NULL);
	} while (ready < 0 && errno == EINTR);
	if (ready != 1) {
		emu_log(DOCA_LOG_LEVEL_ERROR, __func__, "the exporter does not answer");
		return false;
	}
	if (!receive(peer, reply, fd)) {
		return false;
	}
	return reply->seq == seq || reply->status == EMU_PEER_REFUSED;
}

/* Map the staging that came, if it is one that cannot be cut short. */
static bool
map_staging(struct emu_peer *peer, int fd)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW;
	const size_t size = EMU_PEER_CONTROL + EMU_PEER_DATA;
	int got = fd >= 0 ? fcntl(fd, F_GET_SEALS) : -1; /* -1 as well for what knows no seals */
	struct stat stat;
	void *map;

	if (got < 0 || (got & seals) != seals || fstat(fd, &stat) != 0 ||
	    (uint64_t)stat.st_size != size) {
		return false;
	}
	map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED) {
		return false;
	}
	madvise(map, size, MADV_DONTFORK);
	peer->staging = map;
	return true;
}

static doca_error_t
status_code(uint32_t status)
{
	switch (status) {
	case EMU_PEER_OK:
		return DOCA_SUCCESS;
	case EMU_PEER_FORGED:
		return DOCA_ERROR_INVALID_VALUE;
	case EMU_PEER_REVOKED:
	case EMU_PEER_REFUSED:
		return DOCA_ERROR_NOT_PERMITTED;
	case EMU_PEER_NO_MEMORY:
		return DOCA_ERROR_NO_MEMORY;
	default:
		return DOCA_ERROR_DRIVER;
	}
}

/* Show the exporter a descriptor, connecting first if need be. */
static doca_error_t
attach(struct emu_peer *peer, const struct emu_descriptor *descriptor)
{
	uint64_t timeout = emu_get(EMU_PEER_TIMEOUT) * 1000000u;
	struct emu_peer_attach message = {
		.request = {.magic = EMU_PEER_REQUEST_MAGIC, .op = EMU_PEER_ATTACH},
		.descriptor = *descriptor,
	};
	struct emu_peer_reply reply;
	doca_error_t result = DOCA_SUCCESS;
	bool answered;
	int fd;

	if (peer->fd < 0) {
		result = open_socket(peer, timeout);
	}
	if (result == DOCA_SUCCESS) {
		message.request.seq = ++peer->seq;
		answered = exchange(peer, &message, sizeof(message), message.request.seq, timeout,
				    &reply, &fd);
		result = answered ? status_code(reply.status) : DOCA_ERROR_DRIVER;
		if (result == DOCA_SUCCESS && peer->staging == NULL && !map_staging(peer, fd)) {
			result = DOCA_ERROR_DRIVER;
		}
		if (fd >= 0) {
			close(fd);
		}
	}
	if (result == DOCA_ERROR_DRIVER || peer->staging == NULL) {
		disconnect(peer);
	}
	return result;
}

/* ---- imported maps ---- */

/* The connection to the exporter of a descriptor, with one more user. */
static struct emu_peer *
peer_get(const struct emu_descriptor *descriptor)
{
	struct emu_peer *peer;

	pthread_mutex_lock(&peers_lock);
	for (peer = peers; peer != NULL; peer = peer->next) {
		if (memcmp(peer->instance, descriptor->instance, sizeof(peer->instance)) == 0 &&
		    strcmp(peer->address, descriptor->address) == 0) {
			break;
		}
	}
	if (peer == NULL) {
		peer = calloc(1, sizeof(*peer));
		if (peer != NULL) {
			memcpy(peer->instance, descriptor->instance, sizeof(peer->instance));
			memcpy(peer->address, descriptor->address, sizeof(peer->address));
			pthread_mutex_init(&peer->lock, NULL);
			peer->fd = -1;
			peer->next = peers;
			peers = peer;
		}
	}
	if (peer != NULL) {
		peer->users++;
	}
	pthread_mutex_unlock(&peers_lock);
	return peer;
}

static void
peer_put(struct emu_peer *peer)
{
	struct emu_peer **link = &peers;
	bool last;

	pthread_mutex_lock(&peers_lock);
	last = --peer->users == 0;
	if (last) {
		/* A parent's is in no list of its child. */
		while (*link != NULL && *link != peer) {
			link = &(*link)->next;
		}
		if (*link != NULL) {
			*link = peer->next;
		}
	}
	pthread_mutex_unlock(&peers_lock);
	if (last) {
		disconnect(peer);
		pthread_mutex_destroy(&peer->lock);
		free(peer);
	}
}

/*
 * Import what a descriptor stands for.
 *
 * @param[in] data from anywhere
 * @param[in] dev the importing device; the exporting one of this very process imports what cannot be
 * copied
 * @param[out] import the caller's until emu_import_close
 * @retval DOCA_SUCCESS
 * @retval DOCA_ERROR_INVALID_VALUE no descriptor, or one its exporter did not make
 * @retval DOCA_ERROR_NOT_PERMITTED it is exported no longer, or not to this user
 * @retval DOCA_ERROR_DRIVER the exporter does not answer
 * @retval DOCA_ERROR_NO_MEMORY
 */
doca_error_t
emu_import_open(const void *data, size_t len, struct doca_dev *dev, struct emu_import **import)
{
	struct emu_descriptor descriptor;
	struct emu_import *opened;
	doca_error_t result;

	if (!emu_descriptor_parse(data, len, &descriptor)) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	opened = calloc(1, sizeof(*opened));
	if (opened == NULL) {
		return DOCA_ERROR_NO_MEMORY;
	}
	opened->descriptor = descriptor;
	opened->own = emu_export_is_own(&descriptor);
	if (opened->own && strcmp(descriptor.ibdev, dev->device->ibdev) == 0 &&
	    strcmp(descriptor.pci, dev->device->pci) == 0) {
		result = status_code(emu_export_find_own(&descriptor));
	} else {
		opened->peer = peer_get(&descriptor);
		if (opened->peer == NULL) {
			free(opened);
			return DOCA_ERROR_NO_MEMORY;
		}
		pthread_mutex_lock(&opened->peer->lock);
		result = attach(opened->peer, &descriptor);
		pthread_mutex_unlock(&opened->peer->lock);
	}
	if (result != DOCA_SUCCESS) {
		if (opened->peer != NULL) {
			peer_put(opened->peer);
		}
		free(opened);
		return result;
	}
	emu_add(&emu_stats.live_imports, 1);
	*import = opened;
	return DOCA_SUCCESS;
}

/* Let an import go; no copy of it may be at work. */
void
emu_import_close(struct emu_import *import)
{
	if (import == NULL) {
		return;
	}
	if (import->peer != NULL) {
		peer_put(import->peer);
	}
	emu_sub(&emu_stats.live_imports, 1);
	free(import);
}

/* Whether addresses of two maps are those of one process; an import of NULL is memory of this one. */
bool
emu_import_is_same_memory(const struct emu_import *a, const struct emu_import *b)
{
	bool a_is_here = a == NULL || a->own;
	bool b_is_here = b == NULL || b->own;

	if (a_is_here || b_is_here) {
		return a_is_here && b_is_here;
	}
	return memcmp(a->descriptor.instance, b->descriptor.instance,
		      sizeof(a->descriptor.instance)) == 0;
}

/* ---- copies ---- */

/*
 * Move one piece between this process and an exporter.
 *
 * @param[in] op EMU_PEER_READ or EMU_PEER_WRITE
 * @param[in] addr there
 * @param[in] local here: written by READ, read by WRITE
 * @param[in] len at most EMU_PEER_DATA
 * @return whether all of it was moved
 */
static bool
move_piece(struct emu_import *import, enum emu_peer_op op, uintptr_t addr, uint8_t *local,
	   size_t len)
{
	struct emu_peer *peer = import->peer;
	struct emu_peer_request request = {
		.magic = EMU_PEER_REQUEST_MAGIC,
		.op = op,
		.id = import->descriptor.id,
		.generation = import->descriptor.generation,
		.addr = addr,
		.length = len,
	};
	_Atomic uint64_t *turn;
	struct emu_peer_reply reply;
	uint64_t breaks;
	uint64_t asked;
	bool answered;
	bool moved = false;
	int fd;

	if (peer == NULL) {
		emu_log(DOCA_LOG_LEVEL_ERROR, __func__, "the memory was exported by this device");
		return false;
	}
	memcpy(request.tag, import->descriptor.tag, sizeof(request.tag));
	breaks = atomic_load(&peer->breaks);
	pthread_mutex_lock(&peer->lock);
	if (atomic_load(&peer->breaks) != breaks) {
		goto unlock;
	}
	if (peer->staging == NULL && attach(peer, &import->descriptor) != DOCA_SUCCESS) {
		goto unlock;
	}
	turn = (_Atomic uint64_t *)(void *)peer->staging;
	if (op == EMU_PEER_WRITE) {
		emu_copy(peer->staging + EMU_PEER_CONTROL, local, len);
	}
	request.seq = ++peer->seq;
	asked = 2 * request.seq;
	atomic_store(turn, asked);
	answered = exchange(peer, &request, sizeof(request), request.seq,
			    emu_get(EMU_PEER_TIMEOUT) * 1000000u, &reply, &fd);
	if (fd >= 0) {
		close(fd);
	}
	if (!answered) {
		atomic_compare_exchange_strong(turn, &asked, 0);
		disconnect(peer);
		goto unlock;
	}
	moved = reply.status == EMU_PEER_OK;
	if (!moved) {
		emu_log(DOCA_LOG_LEVEL_ERROR, __func__, "the exporter refused with %u",
			reply.status);
	} else if (op == EMU_PEER_READ) {
		emu_copy(local, peer->staging + EMU_PEER_CONTROL, len);
	}
unlock:
	pthread_mutex_unlock(&peer->lock);
	return moved;
}

/*
 * Copy where at least one side is imported. May wait for peer_timeout.
 *
 * @param[in] to_import of the destination; NULL: `to` is an address here
 * @param[in] from_import of the source; NULL: `from` is an address here
 * @retval DOCA_SUCCESS
 * @retval DOCA_ERROR_IO_FAILED the exporter ended, refused, or does not answer
 */
doca_error_t
emu_peer_copy(struct emu_import *to_import, uint8_t *to, struct emu_import *from_import,
	      const uint8_t *from, size_t len)
{
	uint8_t *bounce = NULL;
	bool moved = true;

	if (to_import != NULL && from_import != NULL) {
		bounce = malloc(len < EMU_PEER_DATA ? len : EMU_PEER_DATA);
		if (bounce == NULL) {
			return DOCA_ERROR_IO_FAILED;
		}
	}
	for (size_t part; moved && len != 0; len -= part, to += part, from += part) {
		part = len < EMU_PEER_DATA ? len : EMU_PEER_DATA;
		if (from_import != NULL) {
			moved = move_piece(from_import, EMU_PEER_READ, (uintptr_t)from,
					   bounce != NULL ? bounce : to, part);
		}
		if (moved && to_import != NULL) {
			moved = move_piece(to_import, EMU_PEER_WRITE, (uintptr_t)to,
					   bounce != NULL ? bounce : (uint8_t *)(uintptr_t)from,
					   part);
		}
	}
	free(bounce);
	return moved ? DOCA_SUCCESS : DOCA_ERROR_IO_FAILED;
}

/* ---- fork ---- */

void
emu_import_fork_prepare(void)
{
	pthread_mutex_lock(&peers_lock);
}

void
emu_import_fork_parent(void)
{
	pthread_mutex_unlock(&peers_lock);
}

/* The child imports nothing; it closes its copies of the sockets, the stagings are not mapped. */
void
emu_import_fork_child(void)
{
	for (struct emu_peer *peer = peers; peer != NULL; peer = peer->next) {
		if (peer->fd >= 0) {
			close(peer->fd);
			peer->fd = -1;
		}
		peer->staging = NULL;
	}
	peers = NULL;
	emu_import_fork_parent();
}
