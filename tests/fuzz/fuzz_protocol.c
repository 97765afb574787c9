/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process at the exporter's socket may send, which is anything.
 *
 * The input is a row of messages: a byte of length (0: the right one), a byte that says how many
 * bytes of an honest request are replaced, and those. Not a byte outside the export is read, not one
 * in it is written, and the exporter serves an honest request afterwards.
 */
#include "fuzz.h"

#include <string.h>

#include "peers.h"

/* The export is the middle third. */
static uint8_t memory[3 * 4096];
static struct doca_dev *dev;
static struct doca_mmap *map;
static const void *desc;
static size_t desc_len;

const struct test tests[1];
const size_t num_tests = 0;

static void
open_once(void)
{
	if (map != NULL) {
		return;
	}
	configure("strict=off");
	memset(memory, 0x5a, sizeof(memory));
	memset(memory + 4096, 0xa5, 4096);
	dev = open_dev(NULL);
	FUZZ_CHECK(doca_mmap_create(&map) == DOCA_SUCCESS);
	doca_mmap_add_dev(map, dev);
	doca_mmap_set_memrange(map, memory + 4096, 4096);
	doca_mmap_set_permissions(map, DOCA_ACCESS_FLAG_PCI_READ_ONLY);
	FUZZ_CHECK(doca_mmap_start(map) == DOCA_SUCCESS);
	FUZZ_CHECK(doca_mmap_export_pci(map, dev, &desc, &desc_len) == DOCA_SUCCESS);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct emu_peer_reply reply;
	struct raw raw;
	bool alive = true;

	open_once();
	raw_connect(&raw, desc, desc_len);
	raw_attach(&raw);
	while (alive && size >= 2) {
		uint8_t message[sizeof(struct emu_peer_attach) + 8] = {0};
		struct emu_peer_request request = raw_request(&raw, EMU_PEER_READ + data[1] % 2,
							      (uintptr_t)(memory + 4096), 4096);
		size_t length = data[0] != 0 ? data[0] : sizeof(request);
		size_t replaced = data[1] % 64;

		data += 2;
		size -= 2;
		if (replaced > size) {
			replaced = size;
		}
		memcpy(message, &request, sizeof(request));
		for (size_t i = 0; i + 2 <= replaced; i += 2) {
			message[data[i] % sizeof(message)] = data[i + 1];
		}
		data += replaced;
		size -= replaced;
		memset(raw.staging + EMU_PEER_CONTROL, 0, 4096);
		alive = raw_send(&raw, message,
				 length < sizeof(message) ? length : sizeof(message)) &&
			raw_reply(&raw, &reply);
		for (size_t i = 0; i < 4096; i++) {
			uint8_t got = raw.staging[EMU_PEER_CONTROL + i];

			FUZZ_CHECK(got == 0 || got == 0xa5);
		}
	}
	raw_close(&raw);
	for (size_t i = 0; i < sizeof(memory); i++) {
		FUZZ_CHECK(memory[i] == (i >= 4096 && i < 8192 ? 0xa5 : 0x5a));
	}
	raw_connect(&raw, desc, desc_len);
	raw_attach(&raw);
	FUZZ_CHECK(raw_call(&raw, EMU_PEER_READ, (uintptr_t)(memory + 4096), 4096) == EMU_PEER_OK);
	FUZZ_CHECK(raw.staging[EMU_PEER_CONTROL + 4095] == 0xa5);
	raw_close(&raw);
	return 0;
}

size_t
fuzz_seed(uint32_t n, uint8_t *data, size_t max)
{
	size_t size = 0;

	FUZZ_CHECK(max >= 64);
	for (uint32_t i = 0; i < 1 + n % 4; i++) {
		uint32_t random = (n * 4 + i) * 2654435761u;

		data[size++] = random % 16 == 0 ? (uint8_t)(random >> 8) : 0;
		data[size++] = (uint8_t)(random >> 16 & 15);
		for (uint32_t j = 0; j < (random >> 16 & 15); j++) {
			data[size++] = (uint8_t)(random >> j);
		}
	}
	return size;
}
