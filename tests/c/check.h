/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small test harness and a test bed: one device, one map, one inventory, one context.
 *
 * Each test runs on a reset emulator and must leave no object alive and no violation it did not
 * expect. The first failed check ends the program with 1.
 */
#ifndef CHECK_H_
#define CHECK_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <doca_buf.h>
#include <doca_buf_inventory.h>
#include <doca_ctx.h>
#include <doca_dev.h>
#include <doca_dma.h>
#include <doca_error.h>
#include <doca_log.h>
#include <doca_mmap.h>
#include <doca_pe.h>
#include <doca_version.h>
#include <docaemu.h>

struct test {
	const char *name;
	void (*run)(void);
};

#define TEST(function) {#function, function}

extern const struct test tests[];
extern const size_t num_tests;

#define TESTS(...) \
	const struct test tests[] = {__VA_ARGS__}; \
	const size_t num_tests = sizeof(tests) / sizeof(tests[0])

_Noreturn void
check_failed(const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			check_failed(__FILE__, __LINE__, "%s", #condition); \
		} \
	} while (0)

#define CHECK_EQ(a, b) \
	do { \
		long long a_ = (long long)(a); \
		long long b_ = (long long)(b); \
		if (a_ != b_) { \
			check_failed(__FILE__, __LINE__, "%s is %lld, %s is %lld", #a, a_, #b, \
				     b_); \
		} \
	} while (0)

/* The result of a DOCA call. */
#define CHECK_DOCA(call, expected) \
	do { \
		doca_error_t result_ = (call); \
		if (result_ != (expected)) { \
			check_failed(__FILE__, __LINE__, "%s gives %s, not %s", #call, \
				     doca_error_get_name(result_), doca_error_get_name(expected)); \
		} \
	} while (0)

#define OK(call) CHECK_DOCA(call, DOCA_SUCCESS)

/* Check that there were that many violations since the last call, the last one with this text. */
void
expect_violations(uint64_t num, const char *text);
void
configure(const char *text);
struct docaemu_counters
counters(void);
struct docaemu_live
live(void);

#define BED_MAX_TASKS 1024
#define BED_MAX_STATES 32

struct bed {
	struct doca_dev *dev;
	struct doca_mmap *mmap;
	struct doca_buf_inventory *inventory;
	struct doca_pe *pe;
	struct doca_dma *dma;
	struct doca_ctx *ctx;
	int fd;
	uint8_t *memory;
	size_t size;
	/* what callbacks saw */
	size_t num_ok;
	size_t num_error;
	uint64_t order[BED_MAX_TASKS]; /* user data, in the order of the callbacks */
	doca_error_t status[BED_MAX_TASKS];
	enum doca_ctx_states states[BED_MAX_STATES];
	size_t num_states;
	/* what callbacks do */
	bool free_tasks;
	void (*hook)(struct bed *bed, struct doca_dma_task_memcpy *task);
	void (*state_hook)(struct bed *bed, enum doca_ctx_states state);
};

void
bed_open(struct bed *bed, size_t size, uint32_t num_tasks);
void
bed_start(struct bed *bed);
void
bed_close(struct bed *bed);
struct doca_dev *
open_dev(const char *ibdev);
struct doca_buf *
bed_src(struct bed *bed, size_t offset, size_t len);
struct doca_buf *
bed_dst(struct bed *bed, size_t offset, size_t len);
struct doca_task *
bed_task(struct bed *bed, uint64_t id, size_t src, size_t dst, size_t len);
void
bed_submit(struct bed *bed, uint64_t id, size_t src, size_t dst, size_t len);
void
bed_end_task(struct doca_dma_task_memcpy *task);
size_t
bed_progress(struct bed *bed);
void
bed_drain(struct bed *bed);
bool
bed_readable(struct bed *bed, int timeout_ms);
void
fill(uint8_t *memory, size_t len, uint32_t seed);

#endif /* CHECK_H_ */
