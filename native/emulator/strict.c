/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contract violations, and what recognises them: dead objects that are not freed at once.
 *
 * Bufs and tasks live in pools and keep a magic word that says dead. Other objects, and the pools
 * themselves, go through a quarantine when they are destroyed, so that a use of them a while later
 * is still recognised.
 */
#define _GNU_SOURCE
#include "emu.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EMU_QUARANTINE_OBJECTS 256
#define EMU_QUARANTINE_BYTES (16u << 20)
#define EMU_KEPT_VIOLATIONS 64
#define EMU_VIOLATION_SIZE 256
#define EMU_KEPT_COPIES 64

pthread_mutex_t emu_lock = PTHREAD_MUTEX_INITIALIZER;
struct emu_global_stats emu_stats;

static struct {
	void *object;
	size_t size;
} quarantine[EMU_QUARANTINE_OBJECTS]; /* emu_lock; a ring */
static size_t quarantine_first;
static size_t quarantine_num;
static size_t quarantine_bytes;

static char violations[EMU_KEPT_VIOLATIONS][EMU_VIOLATION_SIZE]; /* emu_lock; a ring */
static uint64_t num_violations;

static struct {
	_Atomic uint64_t src;
	_Atomic uint64_t dst;
	_Atomic uint64_t length;
} copies[EMU_KEPT_COPIES];
static _Atomic uint64_t num_copies;

/* Mark an object as dead and free it later. */
void
emu_retire(void *object, size_t size)
{
	void *old[EMU_QUARANTINE_OBJECTS];
	size_t num_old = 0;
	size_t last;

	((struct emu_object *)object)->magic |= EMU_DEAD;
	if (size > EMU_QUARANTINE_BYTES) {
		free(object);
		return;
	}
	pthread_mutex_lock(&emu_lock);
	while (quarantine_num != 0 && (quarantine_num == EMU_QUARANTINE_OBJECTS ||
				       quarantine_bytes + size > EMU_QUARANTINE_BYTES)) {
		old[num_old++] = quarantine[quarantine_first].object;
		quarantine_bytes -= quarantine[quarantine_first].size;
		quarantine_first = (quarantine_first + 1) % EMU_QUARANTINE_OBJECTS;
		quarantine_num--;
	}
	last = (quarantine_first + quarantine_num) % EMU_QUARANTINE_OBJECTS;
	quarantine[last].object = object;
	quarantine[last].size = size;
	quarantine_num++;
	quarantine_bytes += size;
	pthread_mutex_unlock(&emu_lock);
	while (num_old != 0) {
		free(old[--num_old]);
	}
}

static const char *
kind_name(uint32_t magic)
{
	static const char *const names[] = {"object", "devinfo",       "dev", "mmap",
					    "buf",    "buf inventory", "pe",  "ctx",
					    "task",   "representor"};
	uint32_t kind = magic & 0xffff;

	return kind < sizeof(names) / sizeof(names[0]) ? names[kind] : names[0];
}

/* Say in what state an object is, as far as any thread may look. */
static void
describe(const void *object, uint32_t magic, char *text, size_t size)
{
	static const char *const states[] = {"idle", "starting", "running", "stopping"};
	static const char *const arms[] = {"unarmed", "armed", "signalled"};

	text[0] = '\0';
	if (magic == EMU_MAGIC_DEVINFO || !emu_is(object, magic)) {
		return;
	}
	if (magic == EMU_MAGIC_DEV) {
		snprintf(text, size, " (%u opens)", ((const struct doca_dev *)object)->opens);
	} else if (magic == EMU_MAGIC_MMAP) {
		const struct doca_mmap *mmap = object;

		snprintf(text, size, " (%s, %u bufs)", mmap->started ? "started" : "stopped",
			 atomic_load(&mmap->refs) - 1);
	} else if (magic == EMU_MAGIC_BUF) {
		const struct doca_buf *buf = object;

		snprintf(text, size, " (%u references, %u tasks in flight)", buf->refcount,
			 buf->in_flight);
	} else if (magic == EMU_MAGIC_INVENTORY) {
		const struct doca_buf_inventory *inventory = object;

		snprintf(text, size, " (%s, %u of %u free)",
			 inventory->started ? "started" : "stopped", inventory->num_free,
			 inventory->num);
	} else if (magic == EMU_MAGIC_PE) {
		const struct doca_pe *pe = object;

		snprintf(text, size, " (%s, %llu tasks in flight)", arms[atomic_load(&pe->arm)],
			 (unsigned long long)atomic_load(&pe->stats.in_flight));
	} else if (magic == EMU_MAGIC_CTX) {
		snprintf(text, size, " (%s)", states[((const struct doca_ctx *)object)->state]);
	} else if (magic == EMU_MAGIC_TASK) {
		snprintf(text, size, " (%s)",
			 ((const struct doca_task *)object)->state == EMU_TASK_SUBMITTED
				 ? "submitted"
				 : "not submitted");
	}
}

/*
 * Note that a rule was broken, as the setting `strict` says.
 *
 * @param[in] func the call that broke it
 * @param[in] object on which
 * @param[in] magic what kind of object was expected
 * @param[in] format what is wrong
 */
void
emu_violation(const char *func, const void *object, uint32_t magic, const char *format, ...)
{
	uint64_t strict = emu_get(EMU_STRICT);
	char text[EMU_VIOLATION_SIZE];
	char state[64];
	size_t used;
	va_list args;

	if (strict == EMU_STRICT_OFF) {
		return;
	}
	describe(object, magic, state, sizeof(state));
	snprintf(text, sizeof(text), "%s: %s %p%s: ", func, kind_name(magic), object, state);
	used = strlen(text);
	va_start(args, format);
	vsnprintf(text + used, sizeof(text) - used, format, args);
	va_end(args);
	pthread_mutex_lock(&emu_lock);
	memcpy(violations[num_violations++ % EMU_KEPT_VIOLATIONS], text, sizeof(text));
	pthread_mutex_unlock(&emu_lock);
	emu_add(&emu_stats.violations, 1);
	emu_log(DOCA_LOG_LEVEL_ERROR, func, "violation: %s", text);
	if (strict == EMU_STRICT_ABORT) {
		/* The one place that ends the process: the user asked for it. */
		used = strlen(text);
		text[used < sizeof(text) - 1 ? used++ : used] = '\n';
		if (write(STDERR_FILENO, text, used) < 0) {
			/* There is nobody to tell. */
		}
		abort();
	}
}

/*
 * Say what is wrong with an object that is not what a call needs. NULL is an ordinary error.
 *
 * @retval DOCA_ERROR_INVALID_VALUE always
 */
doca_error_t
emu_bad_object(const char *func, const void *object, uint32_t magic)
{
	if (object == NULL) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	if (emu_is(object, magic | EMU_DEAD)) {
		emu_violation(func, object, magic, "it is freed");
	} else {
		emu_violation(func, object, magic, "it is none of this library's");
	}
	return DOCA_ERROR_INVALID_VALUE;
}

uint64_t
docaemu_violations(char *buf, size_t size)
{
	uint64_t num;
	size_t used = 0;

	pthread_mutex_lock(&emu_lock);
	num = num_violations;
	if (buf != NULL && size != 0) {
		uint64_t i = num > EMU_KEPT_VIOLATIONS ? num - EMU_KEPT_VIOLATIONS : 0;

		buf[0] = '\0';
		for (; i < num && used < size; i++) {
			int len = snprintf(buf + used, size - used, "%s\n",
					   violations[i % EMU_KEPT_VIOLATIONS]);

			used += (size_t)len;
		}
	}
	pthread_mutex_unlock(&emu_lock);
	return num;
}

/* Forget the violations and the copies; emu_lock is held. */
void
emu_violations_forget(void)
{
	num_violations = 0;
	atomic_store(&num_copies, 0);
}

/* ---- bytes in flight ---- */

static uint64_t
sum(uint64_t before, const uint8_t *data, size_t len)
{
	for (; len >= sizeof(uint64_t); data += sizeof(uint64_t), len -= sizeof(uint64_t)) {
		uint64_t word;

		memcpy(&word, data, sizeof(word));
		before = (before ^ word) * UINT64_C(0x9e3779b97f4a7c15);
		before ^= before >> 32;
	}
	for (; len != 0; data++, len--) {
		before = (before ^ *data) * UINT64_C(0x100000001b3);
	}
	return before;
}

static uint64_t
sum_of_src(const struct doca_dma_task_memcpy *task)
{
	uint64_t total = 0;

	if ((task->special & EMU_TASK_LISTS) == 0) {
		return sum(0, task->from, task->len);
	}
	for (const struct doca_buf *src = task->src; src != NULL; src = src->next) {
		total = sum(total, src->data, src->data_len);
	}
	return total;
}

static uint64_t
sum_of_dst(const struct doca_dma_task_memcpy *task)
{
	size_t left = task->len;
	uint64_t total = 0;

	if ((task->special & EMU_TASK_LISTS) == 0) {
		return sum(0, task->to, task->len);
	}
	for (const struct doca_buf *dst = task->dst; dst != NULL && left != 0; dst = dst->next) {
		size_t room = emu_buf_room(dst);
		size_t part = left < room ? left : room;

		total = sum(total, dst->data + dst->data_len, part);
		left -= part;
	}
	return total;
}

/* What is found is told once: the sum of what is there now goes on. */
static void
compare_src(struct doca_dma_task_memcpy *task)
{
	uint64_t now = sum_of_src(task);

	if (now != task->src_sum) {
		task->src_sum = now;
		emu_violation("doca_task_submit", task, EMU_MAGIC_TASK,
			      "the source changed in flight: %zu bytes at %p", task->len,
			      (const void *)task->from);
	}
}

static void
compare_dst(struct doca_dma_task_memcpy *task)
{
	uint64_t now = sum_of_dst(task);

	if (now != task->dst_sum) {
		task->dst_sum = now;
		emu_violation("doca_task_submit", task, EMU_MAGIC_TASK,
			      "the destination was written by another in flight: %zu bytes at %p",
			      task->len, (void *)task->to);
	}
}

/* The task will succeed, if nothing happens to it: sum its bytes. Not those of another process. */
void
emu_sum_submitted(struct doca_dma_task_memcpy *task)
{
	if (task->planned != DOCA_SUCCESS || task->src->mmap->from_export ||
	    task->dst->mmap->from_export) {
		return;
	}
	task->src_sum = sum_of_src(task);
	task->dst_sum = sum_of_dst(task);
	task->summed = true;
}

/* Nobody has touched the bytes before the copy begins. */
void
emu_sum_begins(struct doca_dma_task_memcpy *task)
{
	compare_src(task);
	compare_dst(task);
}

/* Nor while it ran. From here on the destination holds what was copied. */
void
emu_sum_done(struct doca_dma_task_memcpy *task)
{
	compare_src(task);
	if (task->special == 0) {
		task->dst_sum = task->src_sum;
		compare_dst(task);
	} else {
		task->dst_sum = sum_of_dst(task);
	}
}

/* Nor has anybody since, or since the submission if the task was flushed. */
void
emu_sum_reported(struct doca_dma_task_memcpy *task)
{
	compare_src(task);
	compare_dst(task);
	task->summed = false;
}

/* ---- the end of the process ---- */

/* Say what is still alive, if strict_exit asks for it. */
__attribute__((destructor)) static void
report_at_exit(void)
{
	struct docaemu_live live;
	char text[EMU_VIOLATION_SIZE];
	int len;

	if (emu_get(EMU_STRICT_EXIT) == 0 || emu_get(EMU_STRICT) == EMU_STRICT_OFF) {
		return;
	}
	emu_read_live(&live);
	if (live.devinfo_lists + live.devs + live.mmaps + live.inventories + live.bufs + live.pes +
		    live.ctxs + live.tasks ==
	    0) {
		return;
	}
	len = snprintf(text, sizeof(text),
		       "docaemu: alive at exit: %llu devinfo lists, %llu devs, %llu mmaps, "
		       "%llu inventories, %llu bufs, %llu pes, %llu ctxs, %llu tasks\n",
		       (unsigned long long)live.devinfo_lists, (unsigned long long)live.devs,
		       (unsigned long long)live.mmaps, (unsigned long long)live.inventories,
		       (unsigned long long)live.bufs, (unsigned long long)live.pes,
		       (unsigned long long)live.ctxs, (unsigned long long)live.tasks);
	if (write(STDERR_FILENO, text, (size_t)len) < 0) {
		/* There is nobody to tell. */
	}
	if (emu_get(EMU_STRICT) == EMU_STRICT_ABORT) {
		abort();
	}
}

/* Remember a submitted copy. */
void
emu_trace_copy(const void *src, const void *dst, size_t length)
{
	uint64_t i =
		atomic_fetch_add_explicit(&num_copies, 1, memory_order_relaxed) % EMU_KEPT_COPIES;

	atomic_store_explicit(&copies[i].src, (uintptr_t)src, memory_order_relaxed);
	atomic_store_explicit(&copies[i].dst, (uintptr_t)dst, memory_order_relaxed);
	atomic_store_explicit(&copies[i].length, length, memory_order_relaxed);
}

doca_error_t
docaemu_last_copies(struct docaemu_copy *out, size_t max, size_t *num)
{
	uint64_t total = atomic_load(&num_copies);
	size_t got = 0;

	if (num == NULL || (out == NULL && max != 0)) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	for (; got < max && got < total && got < EMU_KEPT_COPIES; got++) {
		uint64_t i = (total - 1 - got) % EMU_KEPT_COPIES;

		out[got].src = atomic_load_explicit(&copies[i].src, memory_order_relaxed);
		out[got].dst = atomic_load_explicit(&copies[i].dst, memory_order_relaxed);
		out[got].length = atomic_load_explicit(&copies[i].length, memory_order_relaxed);
	}
	*num = got;
	return DOCA_SUCCESS;
}
