/* SPDX-License-Identifier: Apache-2.0 */
/* An exporter that breaks the protocol: the importer gets a code, never a signal, and leaks nothing. */
#define _GNU_SOURCE
#include "peers.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#define STAGING (EMU_PEER_CONTROL + EMU_PEER_DATA)

/* How the attach is answered, and how the copies after it. */
enum manner {
	HONEST,
	HANG_UP,
	SILENT,
	WRONG_SEQ,
	WRONG_MAGIC,
	TOO_SHORT,
	UNKNOWN_STATUS,
	NO_MEMORY,
	REFUSED,
	NO_STAGING,
	SMALL_STAGING,
	UNSEALED_STAGING,
	PLAIN_FILE,
	FOREIGN_FD,
	TWO_FDS,
	NUM_MANNERS,
};

struct liar {
	enum manner attach;
	enum manner copy;
	int listener;
	struct emu_descriptor descriptor;
	pthread_t thread;
};

static int
make_staging(enum manner manner)
{
	off_t size = manner == SMALL_STAGING ? 4096 : STAGING;
	int fd;

	if (manner == FOREIGN_FD) {
		return open("/dev/null", O_RDWR | O_CLOEXEC);
	}
	if (manner == PLAIN_FILE) {
		/* Of the right size, and of a kind that knows no seals: it can be cut short at any time. */
		char path[] = "/var/tmp/docaemu-liar-XXXXXX";

		fd = mkostemp(path, O_CLOEXEC);
		CHECK(fd >= 0 && unlink(path) == 0 && ftruncate(fd, size) == 0);
		return fd;
	}
	fd = memfd_create("liar", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	CHECK(fd >= 0 && ftruncate(fd, size) == 0);
	if (manner != UNSEALED_STAGING) {
		CHECK_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	}
	return fd;
}

/* Answer one request; false to hang up. */
static bool
answer(int client, enum manner manner, bool attach)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(2 * sizeof(int))];
	} control = {.header = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
	size_t num_fds = manner == TWO_FDS ? 2 : 1;
	struct emu_peer_reply reply = {.magic = EMU_PEER_REPLY_MAGIC, .staging = STAGING};
	struct iovec iov = {&reply, sizeof(reply)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	struct emu_peer_attach request;
	int fd = -1;

	if (recv(client, &request, sizeof(request), 0) <= 0 || manner == HANG_UP) {
		return false;
	}
	if (manner == SILENT) {
		return true;
	}
	reply.seq = request.request.seq + (manner == WRONG_SEQ);
	reply.magic += manner == WRONG_MAGIC;
	reply.status = manner == UNKNOWN_STATUS ? 77
		       : manner == NO_MEMORY	? EMU_PEER_NO_MEMORY
		       : manner == REFUSED	? EMU_PEER_REFUSED
						: EMU_PEER_OK;
	iov.iov_len -= manner == TOO_SHORT;
	/* Also where none is expected. */
	if ((attach && manner != NO_STAGING) || manner >= SMALL_STAGING) {
		fd = make_staging(manner);
		for (size_t i = 0; i < num_fds; i++) {
			memcpy(CMSG_DATA(&control.header) + i * sizeof(fd), &fd, sizeof(fd));
		}
		control.header.cmsg_len = CMSG_LEN(num_fds * sizeof(fd));
		msg.msg_control = control.space;
		msg.msg_controllen = CMSG_SPACE(num_fds * sizeof(fd));
	}
	CHECK(sendmsg(client, &msg, MSG_NOSIGNAL) > 0);
	if (fd >= 0) {
		close(fd);
	}
	return true;
}

static void *
liar_main(void *arg)
{
	struct liar *liar = arg;
	int client;

	while ((client = accept4(liar->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		bool attached = false;

		while (answer(client, attached ? liar->copy : liar->attach, !attached)) {
			attached = true;
		}
		close(client);
	}
	return NULL;
}

static void
liar_start(struct liar *liar, enum manner attach, enum manner copy)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct emu_descriptor *made = &liar->descriptor;
	static unsigned int number;
	size_t length;

	memset(liar, 0, sizeof(*liar));
	liar->attach = attach;
	liar->copy = copy;
	made->id = 1;
	made->base = 1 << 20;
	made->length = 1 << 20;
	made->access = DOCA_ACCESS_FLAG_PCI_READ_WRITE;
	length = (size_t)snprintf(made->address, sizeof(made->address), "docaemu-liar-%d-%u",
				  (int)getpid(), number++);
	emu_descriptor_seal(made, (const uint8_t *)"any key will do.");
	memcpy(address.sun_path + 1, made->address, length);
	liar->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	CHECK_EQ(bind(liar->listener, (struct sockaddr *)&address,
		      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)),
		 0);
	CHECK_EQ(listen(liar->listener, 8), 0);
	CHECK_EQ(pthread_create(&liar->thread, NULL, liar_main, liar), 0);
}

static void
liar_end(struct liar *liar)
{
	shutdown(liar->listener, SHUT_RDWR);
	CHECK_EQ(pthread_join(liar->thread, NULL), 0);
	close(liar->listener);
}

static size_t
num_fds(void)
{
	DIR *folder = opendir("/proc/self/fd");
	size_t num = 0;

	CHECK(folder != NULL);
	while (readdir(folder) != NULL) {
		num++;
	}
	closedir(folder);
	return num;
}

static void
test_lies_at_the_import(void)
{
	struct doca_dev *dev = open_dev(NULL);
	struct doca_mmap *mmap;
	size_t before = num_fds();

	configure("peer_timeout=100");
	for (int manner = HANG_UP; manner < NUM_MANNERS; manner++) {
		doca_error_t expected = manner == NO_MEMORY ? DOCA_ERROR_NO_MEMORY
					: manner == REFUSED ? DOCA_ERROR_NOT_PERMITTED
							    : DOCA_ERROR_DRIVER;
		struct liar liar;

		liar_start(&liar, (enum manner)manner, HONEST);
		CHECK_DOCA(doca_mmap_create_from_export(NULL, &liar.descriptor,
							sizeof(liar.descriptor), dev, &mmap),
			   expected);
		CHECK_EQ(live().imports, 0);
		liar_end(&liar);
		CHECK_EQ(num_fds(), before);
	}
	OK(doca_dev_close(dev));
}

static void
test_lies_at_the_copies(void)
{
	size_t before = 0;

	for (int manner = HONEST; manner < NUM_MANNERS; manner++) {
		/* What comes along and is of no use is closed. */
		doca_error_t expected =
			manner == HONEST || (manner >= NO_STAGING && manner != TWO_FDS)
				? DOCA_SUCCESS
				: DOCA_ERROR_IO_FAILED;
		struct doca_mmap *imported;
		struct liar liar;
		struct bed bed;

		configure("peer_timeout=100 map_lifetime=bufs");
		liar_start(&liar, HONEST, (enum manner)manner);
		bed_open(&bed, 8192, 4);
		bed_start(&bed);
		OK(doca_mmap_create_from_export(NULL, &liar.descriptor, sizeof(liar.descriptor),
						bed.dev, &imported));
		for (size_t i = 0; i < 2; i++) {
			CHECK_DOCA(import_one(&bed, imported, i == 0, 0, 1 << 20, 64), expected);
		}
		OK(doca_mmap_destroy(imported));
		bed_close(&bed);
		liar_end(&liar);
		CHECK(before == 0 || num_fds() == before);
		before = num_fds();
	}
}

/* The importer has no fd left for the socket; the exporter has none left to accept with. */
static void
test_no_fd_is_left(void)
{
	struct exported exported;
	struct rlimit limit;
	struct rlimit none;
	struct doca_mmap *imported;
	struct doca_dev *dev;
	struct raw raws[2];
	struct rusage used[2];
	struct pollfd pollfd = {.events = POLLIN};
	char byte;

	configure("devices=none\ndevice a\ndevice b");
	export_open(&exported, "a", 4096, DOCA_ACCESS_FLAG_PCI_READ_ONLY);
	dev = open_dev("b");
	OK(doca_mmap_create_from_export(NULL, exported.desc, exported.desc_len, dev, &imported));
	OK(doca_mmap_destroy(imported));
	CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = limit;
	none.rlim_cur = 1;
	raw_connect(&raws[0], exported.desc, exported.desc_len);
	raw_attach(&raws[0]);
	raws[1].fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
	CHECK_DOCA(doca_mmap_create_from_export(NULL, exported.desc, exported.desc_len, dev,
						&imported),
		   DOCA_ERROR_DRIVER);
	{
		struct sockaddr_un address = {.sun_family = AF_UNIX};
		const struct emu_descriptor *descriptor = exported.desc;
		size_t length = strlen(descriptor->address);

		memcpy(address.sun_path + 1, descriptor->address, length);
		CHECK_EQ(connect(raws[1].fd, (struct sockaddr *)&address,
				 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)),
			 0);
	}
	/* Those who are connected are served all the time. */
	for (size_t i = 0; i < 20; i++) {
		CHECK_EQ(raw_call(&raws[0], EMU_PEER_READ, (uintptr_t)exported.memory, 8),
			 EMU_PEER_OK);
	}
	/* It does not try again and again. */
	CHECK_EQ(getrusage(RUSAGE_SELF, &used[0]), 0);
	poll(NULL, 0, 300);
	CHECK_EQ(getrusage(RUSAGE_SELF, &used[1]), 0);
	CHECK((used[1].ru_utime.tv_sec - used[0].ru_utime.tv_sec + used[1].ru_stime.tv_sec -
	       used[0].ru_stime.tv_sec) *
			      1000000 +
		      used[1].ru_utime.tv_usec - used[0].ru_utime.tv_usec +
		      used[1].ru_stime.tv_usec - used[0].ru_stime.tv_usec <
	      100000);
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
	/* The one who was not accepted is dropped or accepted, but not forgotten. */
	raws[1].staging = NULL;
	pollfd.fd = raws[1].fd;
	if (poll(&pollfd, 1, 20) == 1) {
		CHECK(recv(raws[1].fd, &byte, 1, MSG_DONTWAIT) <= 0);
	}
	raw_close(&raws[0]);
	raw_close(&raws[1]);
	OK(doca_mmap_create_from_export(NULL, exported.desc, exported.desc_len, dev, &imported));
	OK(doca_mmap_destroy(imported));
	OK(doca_dev_close(dev));
	export_close(&exported);
}

/* What cannot be read cannot be exported. */
static void
test_unreadable_memory(void)
{
	struct doca_dev *dev = open_dev(NULL);
	void *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct doca_mmap *mmap;
	const void *desc;
	size_t len;

	CHECK(page != MAP_FAILED);
	OK(doca_mmap_create(&mmap));
	OK(doca_mmap_add_dev(mmap, dev));
	OK(doca_mmap_set_memrange(mmap, page, 4096));
	OK(doca_mmap_set_permissions(mmap, DOCA_ACCESS_FLAG_PCI_READ_ONLY));
	OK(doca_mmap_start(mmap));
	CHECK_DOCA(doca_mmap_export_pci(mmap, dev, &desc, &len), DOCA_ERROR_DRIVER);
	OK(doca_mmap_stop(mmap));
	OK(doca_mmap_destroy(mmap));
	OK(doca_dev_close(dev));
	munmap(page, 4096);
}

/* Faults of both calls, by name; afterwards they work. */
static void
test_faults_of_export_and_import(void)
{
	struct exported exported;
	struct doca_mmap *imported;
	struct doca_dev *dev;
	const void *desc;
	size_t len;

	configure("devices=none\ndevice a\ndevice b");
	export_open(&exported, "a", 4096, DOCA_ACCESS_FLAG_PCI_READ_ONLY);
	dev = open_dev("b");
	configure("fault op=mmap_export_pci status=NO_MEMORY\n"
		  "fault op=mmap_create_from_export status=DRIVER");
	CHECK_DOCA(doca_mmap_export_pci(exported.mmap, exported.dev, &desc, &len),
		   DOCA_ERROR_NO_MEMORY);
	CHECK_DOCA(doca_mmap_create_from_export(NULL, exported.desc, exported.desc_len, dev,
						&imported),
		   DOCA_ERROR_DRIVER);
	OK(doca_mmap_export_pci(exported.mmap, exported.dev, &desc, &len));
	OK(doca_mmap_create_from_export(NULL, desc, len, dev, &imported));
	OK(doca_mmap_destroy(imported));
	OK(doca_dev_close(dev));
	export_close(&exported);
}

TESTS(TEST(test_lies_at_the_import), TEST(test_lies_at_the_copies), TEST(test_no_fd_is_left),
      TEST(test_unreadable_memory), TEST(test_faults_of_export_and_import));
