/* SPDX-License-Identifier: Apache-2.0 */
/* What a fuzz target has: the entry that libFuzzer calls, and where driver.c starts from. */
#ifndef FUZZ_H_
#define FUZZ_H_

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An input worth mutating; written into `data`, at most `max` bytes, the size is returned. */
size_t
fuzz_seed(uint32_t n, uint8_t *data, size_t max);

#define FUZZ_CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			abort(); \
		} \
	} while (0)

#endif /* FUZZ_H_ */
