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
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#define EMU_PEER_CLIENTS 64
/* What else the thread waits for, numbered behind the clients. */
#define EMU_PEER_WAKE 64u
#define EMU_PEER_LISTENER 65u
#define EMU_PEER_DEAF_MS 100

static struct {
	pthread_mutex_t life; /* starting and joining the thread; taken before lock */
	pthread_mutex_t lock; /* everything below */
	struct emu_export *exports;
	struct emu_client clients[EMU_PEER_CLIENTS];
	uint64_t arrivals;
	uint64_t next_id;
	uint8_t key[16];
	uint8_t instance[16];
	char address[EMU_PEER_ADDRESS];
	bool has_key;
	bool running;
	bool quit;
	bool deaf; /* the listener is not waited for; the thread's own */
	int listener;
	int epoll; /* what the thread waits for */
	int wake;  /* eventfd: quit */
	int spare; /* closed to accept, and drop, a client when no fd is left */
	pthread_t thread;
} server = {
	.life = PTHREAD_MUTEX_INITIALIZER,
	.lock = PTHREAD_MUTEX_INITIALIZER,
};

/* ---- what the clients ask for; the lock is held ---- */

/* The export of an id, NULL if it has ended. */
struct emu_export *
emu_export_find(uint64_t id, uint64_t generation)
{
	struct emu_export *export = server.exports;

	while (export != NULL &&
	       (export->descriptor.id != id || export->descriptor.generation != generation)) {
		export = export->all;
	}
	return export;
}

/* What a descriptor that somebody shows is worth. */
enum emu_peer_status
emu_export_check(const struct emu_descriptor *descriptor)
{
	struct emu_export *export;

	if (!server.has_key || !emu_descriptor_is_sealed(descriptor, server.key)) {
		return EMU_PEER_FORGED;
	}
	export = emu_export_find(descriptor->id, descriptor->generation);
	return export == NULL || export->revoked ? EMU_PEER_REVOKED : EMU_PEER_OK;
}

/* ---- clients ---- */

/* Let a client go that the thread waits for. */
static void
drop_client(struct emu_client *client)
{
	epoll_ctl(server.epoll, EPOLL_CTL_DEL, client->fd, NULL);
	emu_client_drop(client);
}

/* A place for a new client: a free one, or that of the oldest without a descriptor. */
static struct emu_client *
find_place(void)
{
	struct emu_client *oldest = NULL;

	for (size_t i = 0; i < EMU_PEER_CLIENTS; i++) {
		struct emu_client *client = &server.clients[i];

		if (client->fd < 0) {
			return client;
		}
		if (client->staging == NULL &&
		    (oldest == NULL || client->arrived < oldest->arrived)) {
			oldest = client;
		}
	}
	if (oldest != NULL) {
		drop_client(oldest);
	}
	return oldest;
}

static bool
wait_for(int fd, uint64_t which)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = which};

	return epoll_ctl(server.epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

/*
 * No fd is left to accept a client with: drop it with the spare one, or the listener would stay
 * readable and the thread never sleep. Without even that, do not listen for a while.
 */
static void
refuse_client(void)
{
	int fd;

	if (server.spare >= 0) {
		close(server.spare);
	}
	fd = accept4(server.listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0) {
		close(fd);
	} else if (errno != EAGAIN) {
		epoll_ctl(server.epoll, EPOLL_CTL_DEL, server.listener, NULL);
		server.deaf = true;
	}
	server.spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void
accept_client(void)
{
	int fd = accept4(server.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct emu_client *client;

	if (fd < 0) {
		if (errno == EMFILE || errno == ENFILE) {
			refuse_client();
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
	if (!wait_for(fd, (uint64_t)(client - server.clients))) {
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
	struct epoll_event events[EMU_PEER_CLIENTS];

	(void)arg;
	for (;;) {
		int num = epoll_wait(server.epoll, events, EMU_PEER_CLIENTS,
				     server.deaf ? EMU_PEER_DEAF_MS : -1);

		if (server.deaf) {
			server.deaf = !wait_for(server.listener, EMU_PEER_LISTENER);
		}
		for (int i = 0; i < num; i++) {
			uint64_t which = events[i].data.u64;
			bool quit = false;

			/* For each anew: an export may end, or the process fork, in between. */
			pthread_mutex_lock(&server.lock);
			if (which == EMU_PEER_WAKE) {
				quit = server.quit;
			} else if (which == EMU_PEER_LISTENER) {
				accept_client();
			} else if (server.clients[which].fd >= 0 &&
				   !emu_client_serve(&server.clients[which])) {
				drop_client(&server.clients[which]);
			}
			pthread_mutex_unlock(&server.lock);
			if (quit) {
				return NULL;
			}
		}
	}
}

static void
server_close(void)
{
	for (size_t i = 0; i < EMU_PEER_CLIENTS; i++) {
		emu_client_drop(&server.clients[i]);
	}
	close(server.listener);
	close(server.wake);
	close(server.epoll);
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
		server.clients[i] = (struct emu_client){.fd = -1};
	}
	server.epoll = epoll_create1(EPOLL_CLOEXEC);
	server.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	server.spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	server.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (server.epoll < 0 || server.wake < 0 || server.listener < 0 ||
	    bind(server.listener, (struct sockaddr *)&address,
		 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + used)) != 0 ||
	    listen(server.listener, EMU_PEER_CLIENTS) != 0 ||
	    !wait_for(server.wake, EMU_PEER_WAKE) ||
	    !wait_for(server.listener, EMU_PEER_LISTENER)) {
		goto close_all;
	}
	server.quit = false;
	server.deaf = false;
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
	if (!emu_peer_move_own(false, &probe, mmap->addr, 1)) {
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

		/* A parent's is in no list of its child. */
		while (*link != NULL && *link != export) {
			link = &(*link)->all;
		}
		if (*link != NULL) {
			*link = export->all;
		}
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
	status = emu_export_check(descriptor);
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
	emu_export_fork_parent();
}
