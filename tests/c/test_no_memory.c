/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory runs out: each allocation of each call fails in turn, the call gives NO_MEMORY, and all
 * goes on. This program's allocator stands in front of the C library's.
 */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "channel.h"

void *
__libc_malloc(size_t size);
void *
__libc_calloc(size_t num, size_t size);
void *
__libc_realloc(void *old, size_t size);
void *
__libc_memalign(size_t alignment, size_t size);

static _Thread_local int left = -1; /* allocations until the one that fails; -1: none does */

static bool
fails(void)
{
	if (left < 0 || left-- != 0) {
		return false;
	}
	errno = ENOMEM;
	return true;
}

void *
malloc(size_t size)
{
	return fails() ? NULL : __libc_malloc(size);
}

void *
calloc(size_t num, size_t size)
{
	return fails() ? NULL : __libc_calloc(num, size);
}

void *
realloc(void *old, size_t size)
{
	return fails() ? NULL : __libc_realloc(old, size);
}

void *
aligned_alloc(size_t alignment, size_t size)
{
	return fails() ? NULL : __libc_memalign(alignment, size);
}

static void *
	gap; /* where a mapping that failed has left one, "another thread" has mapped a page at once */

void *
mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset)
{
	void *result = (void *)syscall(SYS_mmap, addr, length, prot, flags, fd, offset);
	int error = errno;

	if (result == MAP_FAILED && (flags & MAP_FIXED) != 0) {
		gap = (void *)syscall(SYS_mmap, addr, 4096, PROT_READ,
				      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	}
	errno = error;
	return result;
}

/* Let the n-th allocation of a call fail for n = 0, 1, ..., until the call succeeds. */
#define EXHAUST(call) \
	do { \
		doca_error_t got_ = DOCA_ERROR_NO_MEMORY; \
		int n_; \
		for (n_ = 0; got_ != DOCA_SUCCESS && n_ < 16; n_++) { \
			left = n_; \
			got_ = (call); \
			left = -1; \
			if (got_ != DOCA_SUCCESS) { \
				CHECK_DOCA(got_, DOCA_ERROR_NO_MEMORY); \
			} \
		} \
		CHECK_DOCA(got_, DOCA_SUCCESS); \
		CHECK(n_ > 1); \
	} while (0)

static void
ignore(struct doca_dma_task_memcpy *task, union doca_data a, union doca_data b)
{
	(void)task;
	(void)a;
	(void)b;
}

static void
test_4_1_mmap_create__buf_inventory_create__pe_create__dma_create(void)
{
	struct doca_buf_inventory *inventory;
	struct doca_devinfo **list;
	struct doca_mmap *mmap;
	struct doca_dev *dev;
	struct doca_dma *dma;
	struct doca_pe *pe;
	uint32_t num;

	EXHAUST(doca_devinfo_create_list(&list, &num));
	EXHAUST(doca_dev_open(list[0], &dev));
	OK(doca_devinfo_destroy_list(list));
	EXHAUST(doca_mmap_create(&mmap));
	EXHAUST(doca_mmap_add_dev(mmap, dev));
	EXHAUST(doca_buf_inventory_create(4, &inventory));
	OK(doca_buf_inventory_start(inventory));
	EXHAUST(doca_buf_inventory_expand(inventory, 4));
	OK(doca_buf_inventory_get_num_elements(inventory, &num));
	CHECK_EQ(num, 8);
	EXHAUST(doca_pe_create(&pe));
	EXHAUST(doca_dma_create(dev, &dma));
	OK(doca_pe_connect_ctx(pe, doca_dma_as_ctx(dma)));
	OK(doca_dma_task_memcpy_set_conf(dma, ignore, ignore, 4));
	configure("engine=manual");
	EXHAUST(doca_ctx_start(doca_dma_as_ctx(dma)));
	OK(doca_ctx_stop(doca_dma_as_ctx(dma)));
	OK(doca_dma_task_memcpy_set_conf(dma, ignore, ignore, 6));
	EXHAUST(doca_ctx_start(doca_dma_as_ctx(dma)));
	OK(doca_ctx_stop(doca_dma_as_ctx(dma)));
	OK(doca_dma_destroy(dma));
	OK(doca_pe_destroy(pe));
	OK(doca_buf_inventory_destroy(inventory));
	OK(doca_mmap_destroy(mmap));
	OK(doca_dev_close(dev));
}

static void
test_configuration(void)
{
	struct doca_devinfo **list;
	uint32_t num;

	EXHAUST(docaemu_configure("seed=3", NULL, 0));
	EXHAUST(docaemu_configure("version=3.1.0", NULL, 0));
	EXHAUST(docaemu_configure("device a", NULL, 0));
	configure("devices=none");
	EXHAUST(docaemu_configure("devices=default", NULL, 0));
	OK(doca_devinfo_create_list(&list, &num));
	CHECK_EQ(num, 1);
	OK(doca_devinfo_destroy_list(list));
	EXHAUST(docaemu_configure("fault op=pe_create", NULL, 0));
}

/* All or nothing: a reset that cannot have its device leaves what there was. */
static void
test_reset(void)
{
	struct doca_devinfo **list;
	char name[DOCA_DEVINFO_IBDEV_NAME_SIZE];
	uint32_t num;

	configure("version=7.0.1\ndevice a\ndevice b\nfault op=pe_create");
	left = 0;
	CHECK_DOCA(docaemu_reset(), DOCA_ERROR_NO_MEMORY);
	left = -1;
	CHECK(strcmp(doca_version_runtime(), "7.0.1") == 0);
	OK(doca_devinfo_create_list(&list, &num));
	CHECK_EQ(num, 2);
	OK(doca_devinfo_destroy_list(list));
	EXHAUST(docaemu_reset());
	CHECK(strcmp(doca_version_runtime(), "7.0.1") != 0);
	OK(doca_devinfo_create_list(&list, &num));
	CHECK_EQ(num, 1);
	OK(doca_devinfo_get_ibdev_name(list[0], name, sizeof(name)));
	CHECK(strcmp(name, "mlx5_0") == 0);
	OK(doca_devinfo_destroy_list(list));
}

/* How many lines a message for the standard output makes. */
static size_t
lines_of_a_message(void)
{
	FILE *file = tmpfile();
	size_t lines = 0;
	int saved;
	int c;

	CHECK(file != NULL);
	fflush(stdout);
	saved = dup(STDOUT_FILENO);
	CHECK(saved >= 0 && dup2(fileno(file), STDOUT_FILENO) >= 0);
	OK(doca_log(DOCA_LOG_LEVEL_INFO, 0, "file", 1, "func", "%s", "hello"));
	CHECK(dup2(saved, STDOUT_FILENO) >= 0);
	close(saved);
	rewind(file);
	while ((c = getc(file)) != EOF) {
		lines += c == '\n';
	}
	fclose(file);
	return lines;
}

static void
test_log_backends(void)
{
	struct doca_log_backend *backend;

	CHECK_EQ(lines_of_a_message(), 0);
	EXHAUST(doca_log_backend_create_standard());
	CHECK_EQ(lines_of_a_message(), 1);
	EXHAUST(doca_log_backend_create_with_file(stderr, &backend));
	EXHAUST(doca_log_backend_create_with_syslog("docaemu-test", &backend));
}

/* The client's channel, too, undoes what it has opened. */
static void
test_opening_a_channel(void)
{
	struct adma_channel_config config = {.num_tasks = 4, .measure_latency = 1};
	struct adma_failure failure, failures[1];
	struct adma_channel *channel;
	struct adma_library *library;
	struct adma_device *device;
	struct docaemu_live before;
	char error[256];
	int num_calloc = 0;

	OK(adma_library_load(DOCAEMU_PATH, DOCAEMU_PATH, &library, error, sizeof(error)));
	EXHAUST(adma_device_open(library, "0000:03:00.0", &device, &failure));
	before = live();
	for (int n = -1; n < 16; n++) { /* none, then each in turn */
		struct docaemu_live after;
		doca_error_t result;

		left = n;
		result = adma_channel_open(device, &config, &channel, &failure);
		left = -1;
		if (result == DOCA_SUCCESS) {
			adma_channel_park(channel);
			(void)adma_channel_turn(channel);
			CHECK_EQ(adma_channel_close(channel, failures, 1), 0);
			adma_channel_free(channel);
		} else if (strcmp(failure.call, "calloc") == 0) {
			num_calloc++;
		}
		after = live();
		CHECK(memcmp(&before, &after, sizeof(before)) == 0);
	}
	CHECK_EQ(num_calloc, 4); /* the channel, its latencies, segments and sources */
	OK(adma_device_close(device));
}

/* A failed mapping in the place of another leaves a gap there, and what comes into it meanwhile is somebody else's. */
static void
test_huge_pages_that_are_not_there(void)
{
	struct adma_failure failure;
	struct adma_library *library;
	struct adma_device *device;
	struct adma_mmap *map;
	unsigned char resident;
	char error[256];

	OK(adma_library_load(DOCAEMU_PATH, DOCAEMU_PATH, &library, error, sizeof(error)));
	OK(adma_device_open(library, "0000:03:00.0", &device, &failure));
	for (uint64_t align = 0; align <= UINT64_C(1) << 30; align += UINT64_C(1) << 30) {
		gap = MAP_FAILED;
		CHECK_DOCA(adma_mmap_alloc(device, UINT64_C(1) << 40, align, 21,
					   DOCA_ACCESS_FLAG_LOCAL_READ_WRITE, &map, &failure),
			   DOCA_ERROR_NO_MEMORY);
		CHECK(strcmp(failure.call, "mmap") == 0);
		if (gap != MAP_FAILED) {
			CHECK_EQ(mincore(gap, 4096, &resident), 0);
			CHECK_EQ(munmap(gap, 4096), 0);
		}
	}
	OK(adma_device_close(device));
}

TESTS(TEST(test_4_1_mmap_create__buf_inventory_create__pe_create__dma_create),
      TEST(test_configuration), TEST(test_reset), TEST(test_log_backends),
      TEST(test_opening_a_channel), TEST(test_huge_pages_that_are_not_there));
