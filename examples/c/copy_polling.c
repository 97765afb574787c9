/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copy a megabyte and poll until it is there.
 *
 * Prints: copied 1048576 bytes
 */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE (1u << 20)

int
main(void)
{
	unsigned char *memory = malloc(2 * SIZE);
	struct engine engine;

	if (memory == NULL) {
		return EXIT_FAILURE;
	}
	for (size_t i = 0; i < SIZE; i++) {
		memory[i] = (unsigned char)(i * 2654435761u >> 13);
	}
	memset(memory + SIZE, 0, SIZE);

	engine_open(&engine, NULL, memory, 2 * SIZE, 1);
	engine_copy(&engine, memory, memory + SIZE, SIZE);
	while (engine.in_flight != 0) {
		doca_pe_progress(engine.pe);
	}
	engine_close(&engine);

	if (engine.failed != 0 || memcmp(memory, memory + SIZE, SIZE) != 0) {
		fprintf(stderr, "the copy is not the original\n");
		return EXIT_FAILURE;
	}
	printf("copied %u bytes\n", SIZE);
	free(memory);
	return EXIT_SUCCESS;
}
