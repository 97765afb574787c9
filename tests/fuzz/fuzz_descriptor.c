/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Import of descriptors that anybody may have written.
 *
 * The first byte says what the rest is: 0: the descriptor itself; else changes to a genuine one,
 * three bytes each (offset, value), and 2 repairs the checksum behind them. Nothing but a genuine
 * descriptor is imported.
 */
#include "fuzz.h"

#include <string.h>

#include <doca_dev.h>
#include <doca_mmap.h>
#include <docaemu.h>

#include "peer.h"

static struct doca_dev *exporter;
static struct doca_dev *importer;
static struct doca_mmap *map;
static uint8_t memory[8192];
static const void *genuine;
static size_t genuine_len;

static void
open_once(void)
{
	struct doca_devinfo **list;
	uint32_t num;

	if (map != NULL) {
		return;
	}
	FUZZ_CHECK(docaemu_configure("device a\ndevice b\nstrict=off\npeer_timeout=5000", NULL,
				     0) == DOCA_SUCCESS);
	FUZZ_CHECK(doca_devinfo_create_list(&list, &num) == DOCA_SUCCESS && num == 2);
	FUZZ_CHECK(doca_dev_open(list[0], &exporter) == DOCA_SUCCESS);
	FUZZ_CHECK(doca_dev_open(list[1], &importer) == DOCA_SUCCESS);
	doca_devinfo_destroy_list(list);
	FUZZ_CHECK(doca_mmap_create(&map) == DOCA_SUCCESS);
	doca_mmap_add_dev(map, exporter);
	doca_mmap_set_memrange(map, memory, sizeof(memory));
	doca_mmap_set_permissions(map, DOCA_ACCESS_FLAG_PCI_READ_ONLY);
	FUZZ_CHECK(doca_mmap_start(map) == DOCA_SUCCESS);
	FUZZ_CHECK(doca_mmap_export_pci(map, exporter, &genuine, &genuine_len) == DOCA_SUCCESS);
}

/* Give a descriptor the checksum of its bytes, as a forger would: he has not the key of the tag. */
static void
repair(uint8_t *bytes)
{
	const uint8_t key[16] = {0};
	uint8_t hash[16];

	emu_siphash(key, bytes, offsetof(struct emu_descriptor, checksum), hash);
	memcpy(bytes + offsetof(struct emu_descriptor, checksum), hash, sizeof(uint64_t));
}

static void
try_import(const uint8_t *data, size_t size)
{
	struct doca_dev *devs[] = {importer, exporter};

	for (size_t i = 0; i < 2; i++) {
		struct doca_mmap *imported = NULL;
		doca_error_t result =
			doca_mmap_create_from_export(NULL, data, size, devs[i], &imported);

		if (result != DOCA_SUCCESS) {
			FUZZ_CHECK(imported == NULL);
			continue;
		}
		FUZZ_CHECK(size == genuine_len && memcmp(data, genuine, size) == 0);
		FUZZ_CHECK(doca_mmap_destroy(imported) == DOCA_SUCCESS);
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t bytes[sizeof(struct emu_descriptor)];

	open_once();
	if (size == 0) {
		return 0;
	}
	if (data[0] == 0) {
		try_import(data + 1, size - 1);
		return 0;
	}
	memcpy(bytes, genuine, sizeof(bytes));
	for (size_t i = 1; i + 3 <= size; i += 3) {
		bytes[(data[i] | data[i + 1] << 8) % sizeof(bytes)] = data[i + 2];
	}
	if (data[0] == 2) {
		repair(bytes);
	}
	try_import(bytes, sizeof(bytes));
	return 0;
}

size_t
fuzz_seed(uint32_t n, uint8_t *data, size_t max)
{
	open_once();
	data[0] = (uint8_t)(n % 3);
	if (n % 3 == 0) {
		FUZZ_CHECK(genuine_len < max);
		memcpy(data + 1, genuine, genuine_len);
		return 1 + genuine_len;
	}
	for (size_t i = 1; i < 10; i++) {
		data[i] = (uint8_t)(n * 2654435761u >> (3 * i));
	}
	return 1 + n % 4 * 3;
}
