/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a fuzz target where there is no libFuzzer: on the files named, or, named none, on inputs
 * mutated from the target's own with a fixed seed, so that every run is the same.
 */
#include "fuzz.h"

#include <string.h>

#define MAX_SIZE 4096

static uint32_t state = 20260101;

static uint32_t
next_random(uint32_t below)
{
	state = state * 1664525u + 1013904223u;
	return (uint32_t)((uint64_t)(state >> 4) * below >> 28);
}

static size_t
mutate(uint8_t *data, size_t size)
{
	for (uint32_t n = next_random(5); n != 0; n--) {
		size_t at = size != 0 ? next_random((uint32_t)size) : 0;

		switch (next_random(5)) {
		case 0:
			size = at;
			break;
		case 1:
			if (size < MAX_SIZE) {
				memmove(data + at + 1, data + at, size - at);
				data[at] = (uint8_t)next_random(256);
				size++;
			}
			break;
		case 2:
			if (size != 0) {
				data[at] ^= (uint8_t)(1u << next_random(8));
			}
			break;
		case 3:
			if (size != 0) {
				data[at] = "\0\xff =;#\n0"[next_random(8)];
			}
			break;
		default:
			if (size != 0) {
				size_t from = next_random((uint32_t)size);
				size_t len =
					next_random((uint32_t)(size - (at > from ? at : from)));

				memmove(data + at, data + from, len);
			}
			break;
		}
	}
	return size;
}

static int
run_file(const char *path)
{
	static uint8_t data[1 << 20];
	FILE *file = fopen(path, "rb");
	uint8_t *exact;
	size_t size;

	if (file == NULL) {
		perror(path);
		return 1;
	}
	size = fread(data, 1, sizeof(data), file);
	fclose(file);
	/* A block of just that size, so that a sanitizer sees a read past its end. */
	exact = malloc(size + 1);
	FUZZ_CHECK(exact != NULL);
	memcpy(exact, data, size);
	LLVMFuzzerTestOneInput(exact, size);
	free(exact);
	return 0;
}

int
main(int argc, char **argv)
{
	static uint8_t data[MAX_SIZE];

	for (int i = 1; i < argc; i++) {
		if (run_file(argv[i]) != 0) {
			return 1;
		}
	}
	for (uint32_t n = 0; argc == 1 && n < ROUNDS; n++) {
		size_t size = mutate(data, fuzz_seed(n, data, sizeof(data)));
		uint8_t *exact = malloc(size + 1);

		FUZZ_CHECK(exact != NULL);
		memcpy(exact, data, size);
		LLVMFuzzerTestOneInput(exact, size);
		free(exact);
	}
	printf("%d inputs\n", argc == 1 ? ROUNDS : argc - 1);
	return 0;
}
