/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exporting side: the exports of this process, and the thread that serves them.
 *
 * The thread runs from the first export to the last. It serves one message per client and turn, so
 * that a flood delays others by a turn, and it never waits for a client: one that does not read its
 * replies, or sends what is no message, is dropped. What it holds per client is one socket, and once
 * a genuine descriptor was shown, one staging of fixed size. It touches the exported memory under
 * the lock and only through the kernel; an export that was dropped under the lock is not read again.
 */
#define _GNU_SOURCE
#include "peer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

#define EMU_PEER_CLIENTS 64

struct client {
	int fd;		  /* -1: free */
	uint64_t arrived; /* order of arrival */
	uint8_t *staging; /* NULL until a genuine descriptor came */
};

static struct {
	pthread_mutex_t life; /* starting and joining the thread; taken before lock */
	pthread_mutex_t lock; /* everything below */
	struct emu_export *exports;
	struct client clients[EMU_PEER_CLIENTS];
	uint64_t arrivals;
	uint64_t next_id;
	uint8_t key[16];
	uint8_t instance[16];
	char address[EMU_PEER_ADDRESS];
	bool has_key;
	bool running;
	bool quit;
	int listener;
	int wake;  /* eventfd: quit */
	int spare; /* closed to accept, and drop, a client when no fd is left */
	pthread_t thread;
} server = {
	.life = PTHREAD_MUTEX_INITIALIZER,
	.lock = PTHREAD_MUTEX_INITIALIZER,
};

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

/* ---- clients; the lock is held ---- */

static void
client_drop(struct client *client)
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
staging_create(struct client *client)
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
reply(struct client *client, const struct emu_peer_reply *message, int fd)
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

/* Move bytes between the staging and memory of this process that may not exist. */
static bool
move_own(bool write, uint8_t *staging, uint8_t *memory, size_t len)
{
	while (len != 0) {
		struct iovec local = {staging, len};
		struct iovec own = {memory, len};
		ssize_t n = write ? process_vm_writev(getpid(), &local, 1, &own, 1, 0)
				  : process_vm_readv(getpid(), &local, 1, &own, 1, 0);

		if (n <= 0) {
			return false;
		}
		staging += n;
		memory += n;
		len -= (size_t)n;
	}
	return true;
}

static struct emu_export *
find_export(uint64_t id, uint64_t generation)
{
	struct emu_export *export = server.exports;

	while (export != NULL &&
	       (export->descriptor.id != id || export->descriptor.generation != generation)) {
		export = export->all;
	}
	return export;
}

static enum emu_peer_status
check_descriptor(const struct emu_descriptor *descriptor)
{
	struct emu_export *export;

	if (!server.has_key || !emu_descriptor_is_sealed(descriptor, server.key)) {
		return EMU_PEER_FORGED;
	}
	export = find_export(descriptor->id, descriptor->generation);
	return export == NULL || export->revoked ? EMU_PEER_REVOKED : EMU_PEER_OK;
}

/* Take the turn; false if the importer gave the request up. */
static bool
take_turn(struct client *client, uint64_t seq)
{
	uint64_t asked = 2 * seq;

	return atomic_compare_exchange_strong((_Atomic uint64_t *)(void *)client->staging, &asked,
					      asked + 1);
}

static enum emu_peer_status
transfer(struct client *client, const struct emu_peer_request *request)
{
	const struct emu_export *export = find_export(request->id, request->generation);
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
	if (!move_own(write, client->staging + EMU_PEER_CONTROL, export->addr + offset,
		      request->length)) {
		return EMU_PEER_UNMAPPED;
	}
	emu_add(write ? &emu_stats.peer_writes : &emu_stats.peer_reads, 1);
	return EMU_PEER_OK;
}

/* Serve one message; false if the client is to be dropped. */
static bool
serve(struct client *client)
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
		status = check_descriptor(&in.message.descriptor);
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

/* A place for a new client: a free one, or that of the oldest without a descriptor. */
static struct client *
find_place(void)
{
	struct client *oldest = NULL;

	for (size_t i = 0; i < EMU_PEER_CLIENTS; i++) {
		struct client *client = &server.clients[i];

		if (client->fd < 0) {
			return client;
		}
		if (client->staging == NULL &&
		    (oldest == NULL || client->arrived < oldest->arrived)) {
			oldest = client;
		}
	}
	if (oldest != NULL) {
		client_drop(oldest);
	}
	return oldest;
}

static void
accept_client(void)
{
	int fd = accept4(server.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct client *client;

	if (fd < 0) {
		if ((errno == EMFILE || errno == ENFILE) && server.spare >= 0) {
			/* Otherwise the listener stays readable and this thread never sleeps. */
			close(server.spare);
			fd = accept4(server.listener, NULL, NULL, SOCK_CLOEXEC);
			if (fd >= 0) {
				close(fd);
			}
			server.spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
		}
		return;
	}
	if (!emu_peer_uid_allowed(fd)) {
		const struct emu_peer_reply refused = {.magic = EMU_PEER_REPLY_MAGIC,
						       .status = EMU_PEER_REFUSED};

		emu_add(&emu_stats.peer_refused, 1);
		if (send(fd, &refused, sizeof(refused), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
			/* It sees the end of the connection instead. */
		}
		close(fd);
		return;
	}
	client = find_place();
	if (client == NULL) {
		close(fd);
		return;
	}
	client->fd = fd;
	client->arrived = server.arrivals++;
}

/* ---- the thread ---- */

static void *
server_main(void *arg)
{
	struct pollfd fds[2 + EMU_PEER_CLIENTS];

	(void)arg;
	fds[0] = (struct pollfd){.fd = server.wake, .events = POLLIN};
	fds[1] = (struct pollfd){.fd = server.listener, .events = POLLIN};
	for (;;) {
		bool quit;

		/* Only this thread changes the clients; a negative fd is passed over. */
		for (size_t i = 0; i < EMU_PEER_CLIENTS; i++) {
			fds[2 + i] = (struct pollfd){.fd = server.clients[i].fd, .events = POLLIN};
		}
		if (poll(fds, 2 + EMU_PEER_CLIENTS, -1) < 0 && errno != EINTR) {
			/* Out of memory: the next turn may do better. */
			continue;
		}
		pthread_mutex_lock(&server.lock);
		quit = server.quit;
		if (!quit && (fds[1].revents & POLLIN) != 0) {
			accept_client();
		}
		pthread_mutex_unlock(&server.lock);
		if (quit) {
			return NULL;
		}
		for (size_t i = 0; i < EMU_PEER_CLIENTS; i++) {
			struct client *client = &server.clients[i];

			if (fds[2 + i].revents == 0 || fds[2 + i].fd != client->fd) {
				continue;
			}
			pthread_mutex_lock(&server.lock);
			if (!serve(client)) {
				client_drop(client);
			}
			pthread_mutex_unlock(&server.lock);
		}
	}
}

static void
server_close(void)
{
	for (size_t i = 0; i < EMU_PEER_CLIENTS; i++) {
		client_drop(&server.clients[i]);
	}
	close(server.listener);
	close(server.wake);
	if (server.spare >= 0) {
		close(server.spare);
	}
	server.running = false;
}

/* Open what the thread needs and start it; life and lock are held. */
static doca_error_t
server_start(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	uint8_t random[16];
	sigset_t all;
	sigset_t old;
	size_t used;
	int failed;

	if (!server.has_key) {
		if (getrandom(server.key, sizeof(server.key), 0) != sizeof(server.key) ||
		    getrandom(server.instance, sizeof(server.instance), 0) !=
			    sizeof(server.instance)) {
			return DOCA_ERROR_DRIVER;
		}
		server.has_key = true;
	}
	if (getrandom(random, sizeof(random), 0) != sizeof(random)) {
		return DOCA_ERROR_DRIVER;
	}
	used = (size_t)snprintf(server.address, sizeof(server.address), "docaemu-");
	for (size_t i = 0; i < sizeof(random); i++) {
		used += (size_t)snprintf(server.address + used, sizeof(server.address) - used,
					 "%02x", random[i]);
	}
	memcpy(address.sun_path + 1, server.address, used);
	for (size_t i = 0; i < EMU_PEER_CLIENTS; i++) {
		server.clients[i] = (struct client){.fd = -1};
	}
	server.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	server.spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	server.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (server.wake < 0 || server.listener < 0 ||
	    bind(server.listener, (struct sockaddr *)&address,
		 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + used)) != 0 ||
	    listen(server.listener, EMU_PEER_CLIENTS) != 0) {
		goto close_all;
	}
	server.quit = false;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	failed = pthread_create(&server.thread, NULL, server_main, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (failed != 0) {
		goto close_all;
	}
	pthread_setname_np(server.thread, "docaemu-peer");
	server.running = true;
	return DOCA_SUCCESS;

close_all:
	server_close();
	return DOCA_ERROR_DRIVER;
}

/* End the thread if nothing is exported any more; life is held. */
static void
server_stop_if_unused(void)
{
	const uint64_t one = 1;
	bool stop;

	pthread_mutex_lock(&server.lock);
	stop = server.running && server.exports == NULL;
	if (stop) {
		server.quit = true;
		if (write(server.wake, &one, sizeof(one)) < 0) {
			/* Only a full counter cannot be written, and that is readable. */
		}
	}
	pthread_mutex_unlock(&server.lock);
	if (stop) {
		pthread_join(server.thread, NULL);
		pthread_mutex_lock(&server.lock);
		server_close();
		pthread_mutex_unlock(&server.lock);
	}
}

/* ---- exports ---- */

/*
 * Export a started map for one of its devices; an export that is there already is given again.
 *
 * @param[in] access the PCI flag of the map
 * @param[out] descriptor belongs to the map until emu_exports_drop
 * @retval DOCA_SUCCESS
 * @retval DOCA_ERROR_NO_MEMORY
 * @retval DOCA_ERROR_DRIVER no socket, no thread, or the kernel does not let a process copy its own
 * memory
 */
doca_error_t
emu_export_add(struct doca_mmap *mmap, const struct doca_dev *dev, uint32_t access,
	       const struct emu_descriptor **descriptor)
{
	doca_error_t result = DOCA_SUCCESS;
	struct emu_export *export;
	uint8_t probe;

	pthread_mutex_lock(&server.lock);
	export = mmap->exports;
	while (export != NULL && (export->dev != dev || export->revoked)) {
		export = export->next;
	}
	pthread_mutex_unlock(&server.lock);
	if (export != NULL) {
		*descriptor = &export->descriptor;
		return DOCA_SUCCESS;
	}
	if (!move_own(false, &probe, mmap->addr, 1)) {
		emu_log(DOCA_LOG_LEVEL_ERROR, __func__, "cannot read the memory: %s",
			strerror(errno));
		return DOCA_ERROR_DRIVER;
	}
	export = calloc(1, sizeof(*export));
	if (export == NULL) {
		return DOCA_ERROR_NO_MEMORY;
	}
	export->dev = dev;
	export->addr = mmap->addr;
	export->len = mmap->len;
	export->writable = access == DOCA_ACCESS_FLAG_PCI_READ_WRITE;
	pthread_mutex_lock(&server.life);
	pthread_mutex_lock(&server.lock);
	if (!server.running) {
		result = server_start();
	}
	if (result == DOCA_SUCCESS) {
		struct emu_descriptor *made = &export->descriptor;

		made->id = ++server.next_id;
		made->generation = mmap->generation;
		made->base = (uintptr_t)mmap->addr;
		made->length = mmap->len;
		made->access = access;
		memcpy(made->instance, server.instance, sizeof(made->instance));
		memcpy(made->address, server.address, sizeof(made->address));
		memcpy(made->ibdev, dev->device->ibdev, sizeof(made->ibdev));
		memcpy(made->pci, dev->device->pci, sizeof(dev->device->pci));
		emu_descriptor_seal(made, server.key);
		export->all = server.exports;
		server.exports = export;
		export->next = mmap->exports;
		mmap->exports = export;
		emu_add(&emu_stats.live_exports, 1);
	}
	pthread_mutex_unlock(&server.lock);
	pthread_mutex_unlock(&server.life);
	if (result != DOCA_SUCCESS) {
		free(export);
		return result;
	}
	*descriptor = &export->descriptor;
	return DOCA_SUCCESS;
}

/* End all exports of a map: when this returns nobody reads or writes the memory any more. */
void
emu_exports_drop(struct doca_mmap *mmap)
{
	struct emu_export *export = mmap->exports;

	if (export == NULL) {
		return;
	}
	pthread_mutex_lock(&server.life);
	pthread_mutex_lock(&server.lock);
	for (; export != NULL; export = export->next) {
		struct emu_export **link = &server.exports;

		while (*link != export) {
			link = &(*link)->all;
		}
		*link = export->all;
	}
	pthread_mutex_unlock(&server.lock);
	server_stop_if_unused();
	pthread_mutex_unlock(&server.life);
	while (mmap->exports != NULL) {
		export = mmap->exports;
		mmap->exports = export->next;
		emu_sub(&emu_stats.live_exports, 1);
		free(export);
	}
	mmap->generation++;
}

doca_error_t
docaemu_revoke_exports(void)
{
	pthread_mutex_lock(&server.lock);
	for (struct emu_export *export = server.exports; export != NULL; export = export->all) {
		export->revoked = true;
	}
	pthread_mutex_unlock(&server.lock);
	return DOCA_SUCCESS;
}

/* Whether this process made a descriptor, as far as it says. */
bool
emu_export_is_own(const struct emu_descriptor *descriptor)
{
	bool own;

	pthread_mutex_lock(&server.lock);
	own = server.has_key &&
	      memcmp(descriptor->instance, server.instance, sizeof(server.instance)) == 0;
	pthread_mutex_unlock(&server.lock);
	return own;
}

/* What an ATTACH with a descriptor of this process would be answered. */
enum emu_peer_status
emu_export_find_own(const struct emu_descriptor *descriptor)
{
	enum emu_peer_status status;

	pthread_mutex_lock(&server.lock);
	status = check_descriptor(descriptor);
	pthread_mutex_unlock(&server.lock);
	return status;
}

/* ---- fork ---- */

void
emu_export_fork_prepare(void)
{
	pthread_mutex_lock(&server.life);
	pthread_mutex_lock(&server.lock);
}

void
emu_export_fork_parent(void)
{
	pthread_mutex_unlock(&server.lock);
	pthread_mutex_unlock(&server.life);
}

/*
 * The child exports nothing. It closes its copies of the sockets, or a client would not see the
 * parent end; the stagings are not mapped in it.
 */
void
emu_export_fork_child(void)
{
	if (server.running) {
		for (size_t i = 0; i < EMU_PEER_CLIENTS; i++) {
			server.clients[i].staging = NULL;
		}
		server_close();
	}
	server.exports = NULL;
	server.has_key = false;
	pthread_mutex_init(&server.lock, NULL);
	pthread_mutex_init(&server.life, NULL);
}
