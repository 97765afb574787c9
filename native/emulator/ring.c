/* SPDX-License-Identifier: Apache-2.0 */
/* Rings of submitted tasks, and how bytes are copied. */
#include "emu.h"

#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include <emmintrin.h>
#define EMU_HAVE_NT 1
#endif

/* ---- moving bytes ---- */

#ifdef EMU_HAVE_NT
static void
copy_nt(uint8_t *dst, const uint8_t *src, size_t len)
{
	size_t head = (16 - ((uintptr_t)dst & 15)) & 15;
	size_t i;

	if (head > len) {
		head = len;
	}
	memcpy(dst, src, head);
	dst += head;
	src += head;
	len -= head;
	for (i = 0; i + 64 <= len; i += 64) {
		_mm_prefetch((const char *)(src + i + 512), _MM_HINT_NTA);
		__m128i a = _mm_loadu_si128((const __m128i *)(const void *)(src + i));
		__m128i b = _mm_loadu_si128((const __m128i *)(const void *)(src + i + 16));
		__m128i c = _mm_loadu_si128((const __m128i *)(const void *)(src + i + 32));
		__m128i d = _mm_loadu_si128((const __m128i *)(const void *)(src + i + 48));
		_mm_stream_si128((__m128i *)(void *)(dst + i), a);
		_mm_stream_si128((__m128i *)(void *)(dst + i + 16), b);
		_mm_stream_si128((__m128i *)(void *)(dst + i + 32), c);
		_mm_stream_si128((__m128i *)(void *)(dst + i + 48), d);
	}
	_mm_sfence();
	memcpy(dst + i, src + i, len - i);
}
#endif

/* Copy bytes, past the caches when there are many; ranges that overlap are moved. */
void
emu_copy(uint8_t *dst, const uint8_t *src, size_t len)
{
	if (doca_unlikely(src < dst + len && dst < src + len)) {
		memmove(dst, src, len);
		return;
	}
#ifdef EMU_HAVE_NT
	if (len >= emu_get(EMU_NT_MIN)) {
		copy_nt(dst, src, len);
		return;
	}
#endif
	memcpy(dst, src, len);
}

/* ---- rings ---- */

doca_error_t
emu_ring_create(struct emu_ring *ring, uint32_t size)
{
	_Atomic(struct doca_task *) *slots = calloc(size, sizeof(*slots));

	if (slots == NULL) {
		return DOCA_ERROR_NO_MEMORY;
	}
	memset(ring, 0, sizeof(*ring));
	ring->slots = slots;
	ring->mask = size - 1;
	return DOCA_SUCCESS;
}

void
emu_ring_destroy(struct emu_ring *ring)
{
	free(ring->slots);
	ring->slots = NULL;
}

/*
 * Claim the oldest task before `limit`, which is a tail the ring had; NULL if none.
 *
 * A slot is overwritten only after the head passed it, so a successful exchange proves that the
 * slot read before was the claimed one.
 */
struct doca_task *
emu_ring_claim(struct emu_ring *ring, uint32_t limit)
{
	uint32_t head = atomic_load_explicit(&ring->head, memory_order_acquire);

	while ((int32_t)(limit - head) > 0) {
		struct doca_task *task =
			atomic_load_explicit(&ring->slots[head & ring->mask], memory_order_relaxed);

		if (atomic_compare_exchange_weak_explicit(&ring->head, &head, head + 1,
							  memory_order_acq_rel,
							  memory_order_acquire)) {
			return task;
		}
	}
	return NULL;
}

/* Take the index-th waiting task out, keeping the others in order; the engine's lock is held. */
struct doca_task *
emu_ring_take(struct emu_ring *ring, uint32_t index)
{
	uint32_t head = atomic_load(&ring->head);
	struct doca_task *task = atomic_load(&ring->slots[(head + index) & ring->mask]);

	for (uint32_t i = index; i > 0; i--) {
		atomic_store(&ring->slots[(head + i) & ring->mask],
			     atomic_load(&ring->slots[(head + i - 1) & ring->mask]));
	}
	atomic_store(&ring->head, head + 1);
	return task;
}
