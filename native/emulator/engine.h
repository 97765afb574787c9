/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the engine share: workers, manual steps, schedules. */
#ifndef ENGINE_H_
#define ENGINE_H_

#include "emu.h"

/* engine.c */
void
emu_engine_lock(void);
void
emu_engine_unlock(void);
struct doca_ctx *
emu_engine_ctxs(void);
void
emu_engine_execute(struct doca_task *task);
void
emu_engine_finish(struct doca_task *task);

extern pthread_mutex_t *const emu_engine_mutex;

/* manual.c */
uint64_t
emu_engine_random(void);
void
emu_engine_deliver_late(void);

#endif /* ENGINE_H_ */
