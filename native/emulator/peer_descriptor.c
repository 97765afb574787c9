/* SPDX-License-Identifier: Apache-2.0 */
/* Export descriptors: made, sealed and read. A descriptor comes from anywhere: nothing in it is
 * believed before it was checked. */
#include "peer.h"

#include <string.h>

static const char descriptor_magic[8] = "DOCAEMU";
static const uint8_t no_key[16];

/* ---- SipHash-2-4 with 128 bits (Aumasson and Bernstein) ---- */

static uint64_t
rotate(uint64_t x, unsigned int bits)
{
	return x << bits | x >> (64 - bits);
}

static void
sip_rounds(uint64_t v[4], unsigned int rounds)
{
	while (rounds-- != 0) {
		v[0] += v[1];
		v[1] = rotate(v[1], 13) ^ v[0];
		v[0] = rotate(v[0], 32);
		v[2] += v[3];
		v[3] = rotate(v[3], 16) ^ v[2];
		v[0] += v[3];
		v[3] = rotate(v[3], 21) ^ v[0];
		v[2] += v[1];
		v[1] = rotate(v[1], 17) ^ v[2];
		v[2] = rotate(v[2], 32);
	}
}

/* Hash with a key; both sides are one machine, so its order of bytes will do. */
void
emu_siphash(const uint8_t key[16], const void *data, size_t len, uint8_t out[16])
{
	const uint8_t *bytes = data;
	uint64_t k[2];
	uint64_t v[4];
	uint64_t word;
	uint64_t hash;

	memcpy(k, key, sizeof(k));
	v[0] = k[0] ^ UINT64_C(0x736f6d6570736575);
	v[1] = k[1] ^ UINT64_C(0x646f72616e646f6d) ^ 0xee;
	v[2] = k[0] ^ UINT64_C(0x6c7967656e657261);
	v[3] = k[1] ^ UINT64_C(0x7465646279746573);
	for (size_t i = 0; i + 8 <= len; i += 8) {
		memcpy(&word, bytes + i, sizeof(word));
		v[3] ^= word;
		sip_rounds(v, 2);
		v[0] ^= word;
	}
	word = (uint64_t)len << 56;
	for (size_t i = 0; i < len % 8; i++) {
		word |= (uint64_t)bytes[len - len % 8 + i] << (8 * i);
	}
	v[3] ^= word;
	sip_rounds(v, 2);
	v[0] ^= word;
	v[2] ^= 0xee;
	sip_rounds(v, 4);
	hash = v[0] ^ v[1] ^ v[2] ^ v[3];
	memcpy(out, &hash, sizeof(hash));
	v[1] ^= 0xdd;
	sip_rounds(v, 4);
	hash = v[0] ^ v[1] ^ v[2] ^ v[3];
	memcpy(out + 8, &hash, sizeof(hash));
}

/* ---- descriptors ---- */

static uint64_t
checksum(const struct emu_descriptor *descriptor)
{
	uint8_t hash[16];
	uint64_t sum;

	emu_siphash(no_key, descriptor, offsetof(struct emu_descriptor, checksum), hash);
	memcpy(&sum, hash, sizeof(sum));
	return sum;
}

/*
 * Read what somebody says is a descriptor.
 *
 * @param[in] data any bytes
 * @param[in] len how many
 * @param[out] descriptor a copy
 * @return whether it is whole and undamaged; only its exporter can say whether it is genuine
 */
bool
emu_descriptor_parse(const void *data, size_t len, struct emu_descriptor *descriptor)
{
	struct emu_descriptor read;

	if (len != sizeof(read)) {
		return false;
	}
	memcpy(&read, data, sizeof(read));
	if (memcmp(read.magic, descriptor_magic, sizeof(descriptor_magic)) != 0 ||
	    read.version != EMU_PEER_VERSION || read.size != sizeof(read) ||
	    read.checksum != checksum(&read)) {
		return false;
	}
	if (read.address[0] == '\0' || read.address[sizeof(read.address) - 1] != '\0' ||
	    read.ibdev[sizeof(read.ibdev) - 1] != '\0' || read.pci[sizeof(read.pci) - 1] != '\0') {
		return false;
	}
	if (read.base == 0 || read.length == 0 || read.base > UINTPTR_MAX - read.length ||
	    (read.access != DOCA_ACCESS_FLAG_PCI_READ_ONLY &&
	     read.access != DOCA_ACCESS_FLAG_PCI_READ_WRITE)) {
		return false;
	}
	*descriptor = read;
	return true;
}

/* Complete a descriptor whose contents are set: magic, version, tag, checksum. */
void
emu_descriptor_seal(struct emu_descriptor *descriptor, const uint8_t key[16])
{
	memcpy(descriptor->magic, descriptor_magic, sizeof(descriptor_magic));
	descriptor->version = EMU_PEER_VERSION;
	descriptor->size = sizeof(*descriptor);
	emu_siphash(key, descriptor, offsetof(struct emu_descriptor, tag), descriptor->tag);
	descriptor->checksum = checksum(descriptor);
}

/* Whether a descriptor was sealed with this key, in a time that does not depend on the answer. */
bool
emu_descriptor_is_sealed(const struct emu_descriptor *descriptor, const uint8_t key[16])
{
	uint8_t tag[EMU_PEER_TAG];
	uint8_t differ = 0;

	emu_siphash(key, descriptor, offsetof(struct emu_descriptor, tag), tag);
	for (size_t i = 0; i < sizeof(tag); i++) {
		differ |= tag[i] ^ descriptor->tag[i];
	}
	return differ == 0;
}
