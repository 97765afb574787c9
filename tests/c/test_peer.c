/* SPDX-License-Identifier: Apache-2.0 */
/* Export and import in one process: two devices are host and DPU to each other. */
#define _GNU_SOURCE
#include "peers.h"

#include <poll.h>
#include <unistd.h>

#include <sys/mman.h>

#define READ_ONLY DOCA_ACCESS_FLAG_PCI_READ_ONLY
#define READ_WRITE (DOCA_ACCESS_FLAG_LOCAL_READ_WRITE | DOCA_ACCESS_FLAG_PCI_READ_WRITE)
#define SIZE (64u << 10)

static const char *const engines[] = {"engine=default", "engine=worker", "engine=manual"};

/* A bed on device b, and memory exported on device a and imported there. */
static void
open_both(struct bed *bed, struct exported *exported, struct doca_mmap **imported, size_t size,
	  uint32_t permissions)
{
	configure("devices=none\ndevice b\ndevice a\nmap_lifetime=bufs");
	bed_open(bed, size, 64);
	bed_start(bed);
	export_open(exported, "a", size, permissions);
	OK(doca_mmap_create_from_export(NULL, exported->desc, exported->desc_len, bed->dev,
					imported));
}

static void
close_both(struct bed *bed, struct exported *exported, struct doca_mmap *imported)
{
	OK(doca_mmap_destroy(imported));
	export_close(exported);
	bed_close(bed);
}

static void
test_4_5_10_pull_and_push(void)
{
	static const size_t lengths[] = {1, 4096, SIZE, EMU_PEER_DATA + 1, 2 << 20};

	for (size_t e = 0; e < 3; e++) {
		struct exported exported;
		struct doca_mmap *imported;
		struct bed bed;

		configure(engines[e]);
		open_both(&bed, &exported, &imported, 4 << 20, READ_WRITE);
		for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
			uintptr_t there = (uintptr_t)exported.memory + i;

			OK(import_one(&bed, imported, false, 5, there, lengths[i]));
			CHECK(memcmp(bed.memory + 5, exported.memory + i, lengths[i]) == 0);
			fill(bed.memory, lengths[i], (uint32_t)(i + e));
			OK(import_one(&bed, imported, true, 0, there, lengths[i]));
			CHECK(memcmp(bed.memory, exported.memory + i, lengths[i]) == 0);
		}
		CHECK(counters().tasks_inline == 0);
		close_both(&bed, &exported, imported);
	}
	CHECK(counters().peer_reads >= 15 && counters().peer_writes >= 15);
}

static void
test_4_5_11_12_15_the_range_is_the_exporters(void)
{
	union doca_data data = {.u64 = 42};
	struct exported exported;
	struct doca_mmap *imported;
	struct doca_mmap *other;
	struct bed bed;
	const void *desc;
	uint8_t flag;
	void *addr;
	size_t len;

	open_both(&bed, &exported, &imported, SIZE, READ_ONLY);
	CHECK(exported.desc_len <= 512); /* 4.5.12 */
	OK(doca_mmap_get_memrange(imported, &addr, &len));
	CHECK(addr == exported.memory && len == SIZE);
	OK(doca_mmap_get_exported(exported.mmap, &flag));
	CHECK_EQ(flag, 1);
	OK(doca_mmap_get_from_export(imported, &flag));
	CHECK_EQ(flag, 1);
	/* 4.5.10: nothing can be set, and it goes no further. */
	CHECK_DOCA(doca_mmap_add_dev(imported, exported.dev), DOCA_ERROR_NOT_PERMITTED);
	CHECK_DOCA(doca_mmap_start(imported), DOCA_ERROR_NOT_PERMITTED);
	CHECK_DOCA(doca_mmap_stop(imported), DOCA_ERROR_NOT_PERMITTED);
	CHECK_DOCA(doca_mmap_export_pci(imported, bed.dev, &desc, &len), DOCA_ERROR_NOT_PERMITTED);
	/* The same export again gives the same descriptor; user data may come along. */
	OK(doca_mmap_export_pci(exported.mmap, exported.dev, &desc, &len));
	CHECK(desc == exported.desc && len == exported.desc_len);
	OK(doca_mmap_create_from_export(&data, desc, len, bed.dev, &other));
	data.u64 = 0;
	OK(doca_mmap_get_user_data(other, &data));
	CHECK_EQ(data.u64, 42);
	CHECK_EQ(live().exports, 1);
	CHECK_EQ(live().imports, 2);
	OK(doca_mmap_destroy(other));
	close_both(&bed, &exported, imported);
}

static void
test_4_5_13_importing_ones_own_export(void)
{
	struct exported exported;
	struct doca_mmap *imported;
	struct bed bed;

	configure("map_lifetime=bufs");
	bed_open(&bed, SIZE, 4);
	bed_start(&bed);
	export_open(&exported, NULL, SIZE, READ_WRITE);
	OK(doca_mmap_create_from_export(NULL, exported.desc, exported.desc_len, bed.dev,
					&imported));
	CHECK_DOCA(import_one(&bed, imported, false, 0, (uintptr_t)exported.memory, 64),
		   DOCA_ERROR_IO_FAILED);
	CHECK_DOCA(import_one(&bed, imported, true, 0, (uintptr_t)exported.memory, 64),
		   DOCA_ERROR_IO_FAILED);
	close_both(&bed, &exported, imported);
}

/* What this process exported is its memory by either way. */
static void
test_4_6_6_overlap_with_what_was_exported(void)
{
	struct exported exported;
	struct doca_mmap *imported;
	struct doca_mmap *local;
	struct bed bed;

	open_both(&bed, &exported, &imported, SIZE, READ_WRITE);
	OK(doca_mmap_create(&local));
	OK(doca_mmap_add_dev(local, bed.dev));
	OK(doca_mmap_set_memrange(local, exported.memory, SIZE));
	OK(doca_mmap_start(local));
	for (size_t distance = 63; distance <= 64; distance++) {
		struct doca_dma_task_memcpy *task;
		union doca_data data = {.u64 = 0};
		struct doca_buf *src;
		struct doca_buf *dst;

		OK(doca_buf_inventory_buf_get_by_data(bed.inventory, local, exported.memory, 64,
						      &src));
		OK(doca_buf_inventory_buf_get_by_addr(bed.inventory, imported,
						      exported.memory + distance, 64, &dst));
		OK(doca_dma_task_memcpy_alloc_init(bed.dma, src, dst, data, &task));
		OK(doca_task_submit(doca_dma_task_memcpy_as_task(task)));
		bed_drain(&bed);
		CHECK_EQ(bed.num_error, 0);
		expect_violations(distance == 63, distance == 63 ? "overlap" : NULL);
	}
	OK(doca_mmap_destroy(local));
	close_both(&bed, &exported, imported);
}

static void
test_damaged_descriptors(void)
{
	struct exported exported;
	struct doca_mmap *imported;
	struct doca_mmap *bad;
	uint8_t copy[1024] = {0};
	struct bed bed;

	open_both(&bed, &exported, &imported, SIZE, READ_WRITE);
	for (size_t len = 0; len < sizeof(copy); len++) {
		memcpy(copy, exported.desc, exported.desc_len);
		if (len != exported.desc_len) {
			CHECK_DOCA(doca_mmap_create_from_export(NULL, copy, len, bed.dev, &bad),
				   DOCA_ERROR_INVALID_VALUE);
		}
	}
	for (size_t bit = 0; bit < exported.desc_len * 8; bit++) {
		struct emu_descriptor forged;

		copy[bit / 8] ^= (uint8_t)(1 << bit % 8);
		CHECK_DOCA(
			doca_mmap_create_from_export(NULL, copy, exported.desc_len, bed.dev, &bad),
			DOCA_ERROR_INVALID_VALUE);
		copy[bit / 8] ^= (uint8_t)(1 << bit % 8);
		/* A forger repairs the checksum, but has not the key. */
		memcpy(&forged, copy, sizeof(forged));
		((uint8_t *)&forged)[bit / 8] ^= (uint8_t)(1 << bit % 8);
		if (bit / 8 >= offsetof(struct emu_descriptor, id) &&
		    bit / 8 < offsetof(struct emu_descriptor, instance)) {
			doca_error_t result;

			emu_descriptor_seal(&forged, (const uint8_t *)"not the true key");
			result = doca_mmap_create_from_export(NULL, &forged, sizeof(forged),
							      bed.dev, &bad);
			CHECK_DOCA(result, DOCA_ERROR_INVALID_VALUE);
		}
	}
	CHECK(memcmp(copy, exported.desc, exported.desc_len) == 0);
	OK(doca_mmap_create_from_export(NULL, copy, exported.desc_len, bed.dev, &bad));
	OK(doca_mmap_destroy(bad));
	close_both(&bed, &exported, imported);
}

static void
test_4_5_9_capabilities_and_permissions(void)
{
	struct exported exported;
	struct doca_mmap *imported;
	struct doca_dev *dev;
	struct bed bed;
	const void *desc;
	size_t len;

	configure("device x export_pci=0 import_pci=0");
	open_both(&bed, &exported, &imported, SIZE, READ_ONLY);
	configure("device x export_pci=0 import_pci=0");
	dev = open_dev("x");
	CHECK_DOCA(doca_mmap_create_from_export(NULL, exported.desc, exported.desc_len, dev,
						&imported),
		   DOCA_ERROR_NOT_SUPPORTED);
	{
		struct doca_mmap *mmap;

		OK(doca_mmap_create(&mmap));
		OK(doca_mmap_add_dev(mmap, dev));
		OK(doca_mmap_set_memrange(mmap, bed.memory, SIZE));
		OK(doca_mmap_set_permissions(mmap, READ_WRITE));
		OK(doca_mmap_start(mmap));
		CHECK_DOCA(doca_mmap_export_pci(mmap, dev, &desc, &len), DOCA_ERROR_NOT_SUPPORTED);
		OK(doca_mmap_destroy(mmap));
	}
	OK(doca_dev_close(dev));
	/* X02: reading is what PCI_READ_ONLY is for, writing fails, and nothing is written. */
	OK(import_one(&bed, imported, false, 0, (uintptr_t)exported.memory, 64));
	memset(bed.memory, 0xee, 64);
	CHECK_DOCA(import_one(&bed, imported, true, 0, (uintptr_t)exported.memory, 64),
		   DOCA_ERROR_IO_FAILED);
	CHECK(memcmp(bed.memory, exported.memory, 64) != 0);
	close_both(&bed, &exported, imported);
}

/* X22 and 4.5.8: the end of an export is the end of what was imported from it. */
static void
test_4_5_8_an_export_ends(void)
{
	for (int how = 0; how < 3; how++) {
		struct exported exported;
		struct doca_mmap *imported;
		struct doca_mmap *again;
		struct bed bed;
		uint8_t copy[512];

		open_both(&bed, &exported, &imported, SIZE, READ_WRITE);
		memcpy(copy, exported.desc, exported.desc_len);
		OK(import_one(&bed, imported, false, 0, (uintptr_t)exported.memory, 64));
		if (how == 0) {
			CHECK_DOCA(doca_mmap_stop(exported.mmap), DOCA_ERROR_NOT_PERMITTED);
			configure("export_stop=revoke");
			OK(doca_mmap_stop(exported.mmap));
		} else if (how == 1) {
			OK(docaemu_revoke_exports());
		} else {
			struct exported other;

			export_open(&other, "a", SIZE, READ_ONLY);
			OK(doca_mmap_destroy(exported.mmap));
			exported.mmap = other.mmap;
			munmap(exported.memory, SIZE);
			exported.memory = other.memory;
			OK(doca_dev_close(other.dev));
		}
		memset(bed.memory, 0xee, 64);
		CHECK_DOCA(import_one(&bed, imported, false, 0,
				      (uintptr_t)((struct emu_descriptor *)(void *)copy)->base, 64),
			   DOCA_ERROR_IO_FAILED);
		for (size_t i = 0; i < 64; i++) {
			CHECK_EQ(bed.memory[i], 0xee);
		}
		CHECK_DOCA(doca_mmap_create_from_export(NULL, copy, exported.desc_len, bed.dev,
							&again),
			   DOCA_ERROR_NOT_PERMITTED);
		if (how == 0) {
			OK(doca_mmap_start(exported.mmap));
		}
		/* Exported again, it is another export: the old map stays dead. */
		OK(doca_mmap_export_pci(exported.mmap, exported.dev, &exported.desc,
					&exported.desc_len));
		CHECK(memcmp(copy, exported.desc, exported.desc_len) != 0);
		OK(doca_mmap_create_from_export(NULL, exported.desc, exported.desc_len, bed.dev,
						&again));
		OK(import_one(&bed, again, false, 0, (uintptr_t)exported.memory, 64));
		CHECK_DOCA(import_one(&bed, imported, false, 0,
				      (uintptr_t)((struct emu_descriptor *)(void *)copy)->base, 64),
			   DOCA_ERROR_IO_FAILED);
		OK(doca_mmap_destroy(again));
		close_both(&bed, &exported, imported);
	}
}

/* Memory that the exporter gave back to the system, wholly or in the middle, or made read-only. */
static void
test_unmapped_memory_is_an_error(void)
{
	struct exported exported;
	struct doca_mmap *imported;
	struct bed bed;

	open_both(&bed, &exported, &imported, SIZE, READ_WRITE);
	munmap(exported.memory + 8192, 4096);
	CHECK_DOCA(import_one(&bed, imported, false, 0, (uintptr_t)exported.memory + 8000, 4096),
		   DOCA_ERROR_IO_FAILED);
	CHECK_DOCA(import_one(&bed, imported, true, 0, (uintptr_t)exported.memory + 8192, 8),
		   DOCA_ERROR_IO_FAILED);
	OK(import_one(&bed, imported, false, 0, (uintptr_t)exported.memory, 8192));
	CHECK_EQ(mprotect(exported.memory, 4096, PROT_READ), 0);
	CHECK_DOCA(import_one(&bed, imported, true, 0, (uintptr_t)exported.memory, 8),
		   DOCA_ERROR_IO_FAILED);
	OK(import_one(&bed, imported, true, 0, (uintptr_t)exported.memory + 12288, 8));
	close_both(&bed, &exported, imported);
}

/* Lists of bufs of both kinds, and copies from one import to another. */
static void
test_lists_and_two_imports(void)
{
	struct exported exported;
	struct exported second;
	struct doca_mmap *imported;
	struct doca_mmap *to;
	struct doca_dma_task_memcpy *task;
	struct doca_buf *head;
	struct doca_buf *element;
	struct doca_buf *dst;
	struct bed bed;

	open_both(&bed, &exported, &imported, SIZE, READ_ONLY);
	export_open(&second, "a", SIZE, READ_WRITE);
	OK(doca_mmap_create_from_export(NULL, second.desc, second.desc_len, bed.dev, &to));
	OK(doca_buf_inventory_buf_get_by_data(bed.inventory, imported, exported.memory + 9, 100,
					      &head));
	element = bed_src(&bed, 300, 50);
	OK(doca_buf_chain_list(head, element));
	OK(doca_buf_inventory_buf_get_by_addr(bed.inventory, to, second.memory, 150, &dst));
	OK(doca_dma_task_memcpy_alloc_init(bed.dma, head, dst, (union doca_data){.u64 = 0}, &task));
	OK(doca_task_submit(doca_dma_task_memcpy_as_task(task)));
	bed_drain(&bed);
	CHECK_EQ(bed.num_ok, 1);
	CHECK(memcmp(second.memory, exported.memory + 9, 100) == 0);
	CHECK(memcmp(second.memory + 100, bed.memory + 300, 50) == 0);
	/* A copy that is made to go wrong is wrong on the other side, too. */
	configure("fault op=completion kind=corrupt");
	bed.num_ok = 0;
	OK(import_one(&bed, to, true, 0, (uintptr_t)second.memory, 8));
	CHECK_EQ(second.memory[0], bed.memory[0] ^ 0xff);
	CHECK(memcmp(second.memory + 1, bed.memory + 1, 7) == 0);
	OK(doca_mmap_destroy(to));
	export_close(&second);
	close_both(&bed, &exported, imported);
}

/* A failed copy of imported memory flushes the others, as any other does. */
static void
test_4_7_vanished(void)
{
	struct exported exported;
	struct doca_mmap *imported;
	struct bed bed;

	open_both(&bed, &exported, &imported, SIZE, READ_ONLY);
	OK(docaemu_revoke_exports());
	for (size_t i = 0; i < 16; i++) {
		import_copy(&bed, imported, false, i, i * 64, (uintptr_t)exported.memory, 64);
	}
	bed_drain(&bed);
	CHECK_EQ(bed.num_error, 16);
	CHECK_EQ(counters().ctx_faults, 1);
	bed_progress(&bed);
	CHECK_EQ(bed.states[bed.num_states - 1], DOCA_CTX_STATE_IDLE);
	bed_start(&bed);
	bed_submit(&bed, 0, 0, 2048, 8);
	bed_drain(&bed);
	CHECK_EQ(bed.num_ok, 1);
	close_both(&bed, &exported, imported);
}

/* ---- a hostile importer ---- */

static void
test_bounds_and_permissions_are_the_exporters(void)
{
	uint8_t before[64];
	struct exported exported;
	struct doca_mmap *imported;
	struct emu_peer_request request;
	struct emu_peer_reply reply;
	struct bed bed;
	struct raw raw;
	uintptr_t base;

	open_both(&bed, &exported, &imported, SIZE, READ_ONLY);
	base = (uintptr_t)exported.memory;
	memcpy(before, exported.memory, sizeof(before));
	raw_connect(&raw, exported.desc, exported.desc_len);
	raw_attach(&raw);
	CHECK_EQ(raw_call(&raw, EMU_PEER_READ, base, 64), EMU_PEER_OK);
	CHECK(memcmp(raw.staging + EMU_PEER_CONTROL, before, 64) == 0);
	memset(raw.staging + EMU_PEER_CONTROL, 0xee, 64);
	{
		const struct {
			uint64_t addr;
			uint64_t length;
		} outside[] = {
			{base - 1, 1},
			{base + SIZE, 1},
			{base + SIZE - 1, 2},
			{base, SIZE + 1},
			{base, 0},
			{base, EMU_PEER_DATA + 1},
			{base, UINT64_MAX},
			{base + 1, UINT64_MAX},
			{base + SIZE, UINT64_MAX - SIZE + 1},
			{0, 1},
			{0, UINT64_MAX},
			{UINT64_MAX, 1},
			{UINT64_MAX - 1, 64},
			{(uintptr_t)bed.memory, 64},
			{(uintptr_t)&raw, 8},
		};

		for (size_t i = 0; i < sizeof(outside) / sizeof(outside[0]); i++) {
			CHECK_EQ(raw_call(&raw, EMU_PEER_READ, outside[i].addr, outside[i].length),
				 EMU_PEER_BOUNDS);
			CHECK_EQ(raw_call(&raw, EMU_PEER_WRITE, outside[i].addr, outside[i].length),
				 EMU_PEER_BOUNDS);
		}
	}
	for (size_t i = 0; i < 64; i++) {
		CHECK_EQ(raw.staging[EMU_PEER_CONTROL + i], 0xee);
	}
	CHECK_EQ(raw_call(&raw, EMU_PEER_WRITE, base, 64), EMU_PEER_READ_ONLY);
	CHECK(memcmp(exported.memory, before, 64) == 0);
	/* Another export, a wrong tag, a request that was given up. */
	request = raw_request(&raw, EMU_PEER_READ, base, 8);
	request.id++;
	CHECK(raw_send(&raw, &request, sizeof(request)) && raw_reply(&raw, &reply));
	CHECK_EQ(reply.status, EMU_PEER_REVOKED);
	request = raw_request(&raw, EMU_PEER_READ, base, 8);
	request.generation++;
	CHECK(raw_send(&raw, &request, sizeof(request)) && raw_reply(&raw, &reply));
	CHECK_EQ(reply.status, EMU_PEER_REVOKED);
	for (size_t i = 0; i < sizeof(request.tag); i++) {
		request = raw_request(&raw, EMU_PEER_READ, base, 8);
		request.tag[i] ^= 0x10;
		CHECK(raw_send(&raw, &request, sizeof(request)) && raw_reply(&raw, &reply));
		CHECK_EQ(reply.status, EMU_PEER_FORGED);
	}
	request = raw_request(&raw, EMU_PEER_READ, base, 8);
	atomic_store((_Atomic uint64_t *)(void *)raw.staging, 0);
	CHECK(raw_send(&raw, &request, sizeof(request)) && raw_reply(&raw, &reply));
	CHECK_EQ(reply.status, EMU_PEER_CANCELLED);
	raw_close(&raw);
	OK(import_one(&bed, imported, false, 0, base, 64));
	close_both(&bed, &exported, imported);
}

static uint32_t random_state;

static uint32_t
next_random(void)
{
	random_state = random_state * 1664525u + 1013904223u;
	return random_state >> 8;
}

/* Messages of any size and content, most of them nearly right. */
static void
test_any_message(void)
{
	struct exported exported;
	struct doca_mmap *imported;
	struct bed bed;
	struct raw raw;
	size_t dropped = 0;

	open_both(&bed, &exported, &imported, SIZE, READ_ONLY);
	random_state = 20260101;
	raw_connect(&raw, exported.desc, exported.desc_len);
	raw_attach(&raw);
	for (size_t i = 0; i < 3000; i++) {
		uint8_t message[2048];
		size_t size = next_random() % 8 == 0 ? next_random() % sizeof(message)
						     : sizeof(struct emu_peer_request);
		struct emu_peer_request request = raw_request(
			&raw, EMU_PEER_READ + next_random() % 2,
			(uintptr_t)exported.memory + next_random() % SIZE, next_random() % 4096);
		struct emu_peer_reply reply;

		fill(message, sizeof(message), next_random());
		memcpy(message, &request, sizeof(request));
		for (uint32_t flips = next_random() % 4; flips != 0; flips--) {
			message[next_random() % sizeof(request)] ^= (uint8_t)next_random();
		}
		if (!raw_send(&raw, message, size) || !raw_reply(&raw, &reply)) {
			dropped++;
			raw_close(&raw);
			raw_connect(&raw, exported.desc, exported.desc_len);
			raw_attach(&raw);
			continue;
		}
		CHECK(request.op == EMU_PEER_READ || reply.status != EMU_PEER_OK ||
		      message[4] == EMU_PEER_READ);
	}
	printf("  dropped %zu times\n", dropped);
	CHECK(dropped > 100 && dropped < 2900);
	raw_close(&raw);
	{
		uint8_t *expected = malloc(SIZE);

		CHECK(expected != NULL);
		fill(expected, SIZE, 7);
		CHECK(memcmp(expected, exported.memory, SIZE) == 0);
		free(expected);
	}
	OK(import_one(&bed, imported, false, 0, (uintptr_t)exported.memory, 64));
	close_both(&bed, &exported, imported);
}

/* Clients that do not read, that say nothing, that come in numbers, that send fds. */
static void
test_floods_and_slow_clients(void)
{
	static struct raw raws[200];
	struct emu_peer_request request;
	struct exported exported;
	struct doca_mmap *imported;
	struct bed bed;
	size_t sent = 0;

	open_both(&bed, &exported, &imported, SIZE, READ_WRITE);
	OK(import_one(&bed, imported, false, 0, (uintptr_t)exported.memory, 64));
	for (size_t i = 0; i < 200; i++) {
		raw_connect(&raws[i], exported.desc, exported.desc_len);
	}
	/* The import in use was not pushed out, and another one still finds a place. */
	OK(import_one(&bed, imported, false, 0, (uintptr_t)exported.memory, 64));
	raw_connect(&raws[0], exported.desc, exported.desc_len);
	raw_attach(&raws[0]);
	request = raw_request(&raws[0], EMU_PEER_READ, (uintptr_t)exported.memory, 64);
	for (;;) {
		struct pollfd pollfd = {.fd = raws[0].fd, .events = POLLOUT};

		if (poll(&pollfd, 1, 10000) != 1 ||
		    !raw_send(&raws[0], &request, sizeof(request))) {
			break;
		}
		CHECK(++sent < 1000000);
	}
	printf("  dropped after %zu requests without a reply read\n", sent);
	OK(import_one(&bed, imported, false, 0, (uintptr_t)exported.memory, 64));
	for (size_t i = 0; i < 200; i++) {
		raw_close(&raws[i]);
	}
	OK(import_one(&bed, imported, true, 0, (uintptr_t)exported.memory, 64));
	close_both(&bed, &exported, imported);
}

TESTS(TEST(test_4_5_10_pull_and_push), TEST(test_4_5_11_12_15_the_range_is_the_exporters),
      TEST(test_4_5_13_importing_ones_own_export), TEST(test_4_6_6_overlap_with_what_was_exported),
      TEST(test_damaged_descriptors), TEST(test_4_5_9_capabilities_and_permissions),
      TEST(test_4_5_8_an_export_ends), TEST(test_unmapped_memory_is_an_error),
      TEST(test_lists_and_two_imports), TEST(test_4_7_vanished),
      TEST(test_bounds_and_permissions_are_the_exporters), TEST(test_any_message),
      TEST(test_floods_and_slow_clients));
