/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reverse the blocks of a buffer with many copies at once, asleep while the engine works.
 *
 * Arming makes the descriptor readable at once if there is something to report, so nothing is missed
 * between the last progress and the wait.
 *
 * Prints: moved 64 blocks of 65536 bytes
 */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define BLOCK (64u << 10)
#define BLOCKS 64u
#define SIZE (BLOCK * BLOCKS)

static void
wait_for_all(struct engine *engine, int epoll)
{
	doca_notification_handle_t fd;
	struct epoll_event event = {.events = EPOLLIN};

	NEED(doca_pe_get_notification_handle(engine->pe, &fd));
	if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
		perror("epoll_ctl");
		exit(EXIT_FAILURE);
	}
	while (engine->in_flight != 0) {
		NEED(doca_pe_request_notification(engine->pe));
		if (epoll_wait(epoll, &event, 1, -1) < 0) {
			perror("epoll_wait");
			exit(EXIT_FAILURE);
		}
		NEED(doca_pe_clear_notification(engine->pe, fd));
		while (doca_pe_progress(engine->pe) != 0) {
		}
	}
}

int
main(void)
{
	unsigned char *memory = malloc(2 * SIZE);
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	struct engine engine;

	if (memory == NULL || epoll < 0) {
		return EXIT_FAILURE;
	}
	for (size_t i = 0; i < SIZE; i++) {
		memory[i] = (unsigned char)(i * 2654435761u >> 13);
	}
	engine_open(&engine, NULL, memory, 2 * SIZE, BLOCKS);
	for (size_t i = 0; i < BLOCKS; i++) {
		engine_copy(&engine, memory + i * BLOCK, memory + SIZE + (BLOCKS - 1 - i) * BLOCK,
			    BLOCK);
	}
	wait_for_all(&engine, epoll);
	engine_close(&engine);

	for (size_t i = 0; i < BLOCKS; i++) {
		if (memcmp(memory + i * BLOCK, memory + SIZE + (BLOCKS - 1 - i) * BLOCK, BLOCK) !=
		    0) {
			fprintf(stderr, "block %zu is not the original\n", i);
			return EXIT_FAILURE;
		}
	}
	printf("moved %u blocks of %u bytes\n", BLOCKS, BLOCK);
	close(epoll);
	free(memory);
	return engine.failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
