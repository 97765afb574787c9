/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Schedules: when the completions of a context are reported, where that is not "as they come".
 *
 * A context becomes scheduled at the first submit that asks for it (timing, hold, an order, slot
 * lag, a fault of kind hold), and stays so until it is started again. From then on its submitted
 * tasks are kept in
 *
 *     heap   by due time, then by the key that the order gave, then by submission
 *     held   withheld until docaemu_release(), of all contexts, by submission
 *
 * and only the top of the heap may be reported: once it was executed and its time has come. What is
 * reported, and at which virtual time, so depends on the calls of the program alone, not on which
 * worker was faster. All of it is guarded by the engine's lock; contexts that are not scheduled
 * never come here.
 *
 * In a clocked context (engine=late, chaos) the clock takes the part of docaemu_step() in the manual
 * engine: whatever moves it, or looks at what is due, runs the tasks whose moment has come.
 *
 * The virtual clock is one for the process. It moves
 *     at an arm             to the time the next task of that progress engine is due
 *     in a progress call    by progress_cost; it stands still while a worker is at what is due, which
 *                           the call waits for
 *     by hand               docaemu_time_advance()
 * and never waits for anything real.
 */
#ifndef SCHEDULE_H_
#define SCHEDULE_H_

#include "emu.h"

EMU_COLD uint64_t
emu_sched_now(void);
EMU_COLD void
emu_sched_configured(void);
EMU_COLD void
emu_sched_reset(void);
EMU_COLD void
emu_sched_reseed(void);
EMU_COLD void
emu_sched_begin(struct doca_ctx *ctx);
EMU_COLD void
emu_sched_submit(struct doca_task *task);
EMU_COLD void
emu_sched_finished(struct doca_task *task);
EMU_COLD struct doca_task *
emu_sched_pop(struct doca_ctx *ctx);
EMU_COLD bool
emu_sched_wait(struct doca_ctx *ctx);
EMU_COLD bool
emu_sched_ready(struct doca_ctx *ctx);
EMU_COLD void
emu_sched_arm(struct doca_pe *pe);
EMU_COLD bool
emu_sched_tells(struct doca_task *task);
EMU_COLD bool
emu_sched_flushes(const struct doca_task *task);
EMU_COLD void
emu_sched_broken(struct doca_ctx *ctx);
EMU_COLD void
emu_sched_start(struct doca_ctx *ctx);
EMU_COLD bool
emu_sched_reap(struct doca_ctx *ctx);
EMU_COLD void
emu_sched_freed(struct doca_task *task);
EMU_COLD void
emu_sched_fork_child(void);

/* Model of the engine's speed (timing.c). */
EMU_COLD bool
emu_timing_on(void);
EMU_COLD uint64_t
emu_timing_due(struct emu_device *device, uint64_t now, uint64_t length, bool push);

/* Decisions drawn from a seed (chaos.c). */
EMU_COLD void
emu_chaos_configured(void);
EMU_COLD bool
emu_chaos_refuses(void);
EMU_COLD bool
emu_chaos_fails(void);
EMU_COLD bool
emu_chaos_spurious(void);
EMU_COLD uint64_t
emu_chaos_submit_locked(struct doca_task *task, uint64_t due);
EMU_COLD void
emu_chaos_ran_locked(const struct doca_task *task);
EMU_COLD void
emu_chaos_reported(const struct doca_task *task);

#endif /* SCHEDULE_H_ */
