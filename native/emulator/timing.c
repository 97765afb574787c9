/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a copy takes, in virtual time.
 *
 * A device has one pipe. A task takes up the pipe for the longer of one operation at the operation
 * ceiling and its bytes at the byte ceiling, behind the tasks before it; but tasks move side by side,
 * and none faster than one can alone:
 *
 *     pipe = max(now, pipe) + max(1 / ops, bytes / ceiling)
 *     due  = max(pipe, now + bytes / rate) + fixed
 *
 * So many small tasks are bound by operations, many large ones by the byte ceiling, one alone by its
 * own rate, and a few parts of a large copy are faster than the copy in one.
 */
#include "schedule.h"

#define PS_PER_NS 1000u
#define FS_PER_SECOND UINT64_C(1000000000000000)

struct model {
	uint64_t fixed_ps;
	uint64_t op_ps;	     /* 1 / operations per second */
	uint64_t ceiling_fs; /* per byte, all tasks together */
	uint64_t rate_fs;    /* per byte, one task alone */
};

enum profile { PROFILE_NONE, PROFILE_BF2, PROFILE_BF3 };
enum direction { DIRECTION_AUTO, DIRECTION_PUSH, DIRECTION_PULL };

/*
 * [profile][push]. Measured on cards: operations, byte ceilings, BF3's 1.9 us for 4 KiB and 10.8
 * GB/s for one task. A guess: BF2's fixed time and single rate, which are BF3's.
 */
static const struct model models[][2] = {
	[PROFILE_BF2] = {{1520741, 95238, 39063, 92593}, {1520741, 98039, 65789, 92593}},
	[PROFILE_BF3] = {{1520741, 281690, 26738, 92593}, {1520741, 248139, 31546, 92593}},
};

static uint64_t
add(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t
multiply(uint64_t a, uint64_t b)
{
	uint64_t product;

	return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/* Not by way of femtoseconds: a few bytes a second are a number of them that has no room. */
static uint64_t
bytes_ps(uint64_t length, uint64_t fs_per_byte)
{
	return add(multiply(length, fs_per_byte / 1000),
		   multiply(length, fs_per_byte % 1000) / 1000);
}

/* Whether the settings ask for virtual time. */
bool
emu_timing_on(void)
{
	return emu_get(EMU_PROFILE) != PROFILE_NONE || emu_get(EMU_LATENCY) != 0 ||
	       emu_get(EMU_BANDWIDTH) != 0;
}

/*
 * Put a task into the pipe of its device; the engine's lock is held.
 *
 * @param[in] now in picoseconds
 * @param[in] push whether the destination is across the bus
 * @return when it ends, in picoseconds, at least 1
 */
uint64_t
emu_timing_due(struct emu_device *device, uint64_t now, uint64_t length, bool push)
{
	uint64_t direction = emu_get(EMU_DIRECTION);
	struct model model = {0};
	uint64_t busy;
	uint64_t due;

	if (direction != DIRECTION_AUTO) {
		push = direction == DIRECTION_PUSH;
	}
	if (emu_get(EMU_PROFILE) != PROFILE_NONE) {
		model = models[emu_get(EMU_PROFILE)][push];
	}
	if (emu_get(EMU_LATENCY) != 0) {
		model.fixed_ps = emu_get(EMU_LATENCY) * PS_PER_NS;
	}
	if (emu_get(EMU_BANDWIDTH) != 0) {
		model.ceiling_fs = FS_PER_SECOND / emu_get(EMU_BANDWIDTH);
		model.rate_fs = model.ceiling_fs;
	}
	busy = bytes_ps(length, model.ceiling_fs);
	if (busy < model.op_ps) {
		busy = model.op_ps;
	}
	device->busy_until = add(now > device->busy_until ? now : device->busy_until, busy);
	due = add(now, bytes_ps(length, model.rate_fs));
	due = add(due > device->busy_until ? due : device->busy_until, model.fixed_ps);
	return due != 0 ? due : 1;
}
