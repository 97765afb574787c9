/* SPDX-License-Identifier: Apache-2.0 */
/* doca_ctx.h: the life cycle of a context. */
#include "emu.h"
#include "schedule.h"

#define EMU_USER_BITS 64

/* How many contexts share a bit of doca_mmap.users; emu_lock. */
static uint32_t bit_users[EMU_USER_BITS];
static uint32_t next_bit;

/* Set up the part of a DMA instance that every context has. */
void
emu_ctx_init(struct doca_ctx *ctx, struct doca_dev *dev)
{
	ctx->object.magic = EMU_MAGIC_CTX;
	ctx->state = DOCA_CTX_STATE_IDLE;
	ctx->dev = dev;
	pthread_mutex_lock(&emu_lock);
	for (uint32_t i = 0; i < EMU_USER_BITS && bit_users[next_bit] != 0; i++) {
		next_bit = (next_bit + 1) % EMU_USER_BITS;
	}
	bit_users[next_bit]++;
	ctx->user_bit = (uint64_t)1 << next_bit;
	next_bit = (next_bit + 1) % EMU_USER_BITS;
	pthread_mutex_unlock(&emu_lock);
	emu_add(&emu_stats.live_ctxs, 1);
}

/* Leave the progress engine and the maps that were used. */
void
emu_ctx_fini(struct doca_ctx *ctx)
{
	struct doca_pe *pe = ctx->pe;
	uint32_t bit = (uint32_t)__builtin_ctzll(ctx->user_bit);

	if (pe != NULL) {
		struct doca_ctx *before = ctx;

		while (before->pe_next != ctx) {
			before = before->pe_next;
		}
		before->pe_next = ctx->pe_next;
		if (pe->cursor == ctx) {
			pe->cursor = before != ctx ? ctx->pe_next : NULL;
		}
		pe->num_ctxs--;
	}
	pthread_mutex_lock(&emu_lock);
	if (--bit_users[bit] == 0) {
		emu_mmaps_forget_user(ctx->user_bit);
	}
	pthread_mutex_unlock(&emu_lock);
	emu_sub(&emu_stats.live_ctxs, 1);
}

/* Change the state and tell the user, whose callback may destroy an idle context. */
void
emu_ctx_set_state(struct doca_ctx *ctx, enum doca_ctx_states state)
{
	enum doca_ctx_states prev = ctx->state;

	ctx->state = state;
	ctx->watch_free = state == DOCA_CTX_STATE_STOPPING;
	if (ctx->state_cb != NULL) {
		ctx->state_cb(ctx->user_data, ctx, prev, state);
	}
}

/* Let nothing more begin; what has not begun is flushed by progress, or by workers. */
void
emu_ctx_break(struct doca_ctx *ctx, doca_error_t culprit)
{
	uint64_t status = emu_get(EMU_FLUSH_STATUS);
	uint32_t none = 0;

	emu_sched_broken(ctx);
	atomic_compare_exchange_strong(&ctx->broken, &none,
				       status != 0 ? (uint32_t)status : (uint32_t)culprit);
	/* Also what waited for a doorbell ends now. */
	atomic_store(&ctx->small.tail, ctx->small.pending);
	atomic_store(&ctx->large.tail, ctx->large.pending);
	if (ctx->in_flight != 0) {
		emu_pe_signal(ctx->pe);
	}
}

/* STOPPING to IDLE; nothing of the context may be touched afterwards. */
void
emu_ctx_to_idle(struct doca_ctx *ctx)
{
	emu_engine_remove(ctx);
	atomic_store(&ctx->broken, 0);
	emu_ctx_set_state(ctx, DOCA_CTX_STATE_IDLE);
}

doca_error_t
doca_ctx_start(struct doca_ctx *ctx)
{
	struct doca_pe *pe;
	doca_error_t result;

	EMU_ENTER("ctx_start");
	EMU_CHECK(ctx, EMU_MAGIC_CTX);
	if (ctx->state != DOCA_CTX_STATE_IDLE) {
		return DOCA_ERROR_BAD_STATE;
	}
	pe = ctx->pe;
	if (pe == NULL) {
		return DOCA_ERROR_NOT_CONNECTED;
	}
	if (emu_pe_is_foreign(pe, __func__)) {
		return DOCA_ERROR_BAD_STATE;
	}
	ctx->engine = (uint8_t)emu_get(EMU_ENGINE);
	ctx->inline_max = emu_get(EMU_INLINE_MAX);
	ctx->latency_real = emu_get(EMU_LATENCY_REAL);
	if (ctx->latency_real != 0 && ctx->engine == EMU_ENGINE_DEFAULT) {
		ctx->engine = EMU_ENGINE_WORKER;
	}
	ctx->chaos = emu_get(EMU_CHAOS) != 0;
	ctx->clocked = ctx->chaos || ctx->engine == EMU_ENGINE_LATE;
	if (ctx->clocked) {
		atomic_store(&pe->clocked, 1);
		ctx->engine = EMU_ENGINE_MANUAL;
		ctx->latency_real = 0;
	}
	result = emu_dma_start((struct doca_dma *)ctx);
	if (result != DOCA_SUCCESS) {
		return result;
	}
	emu_sched_start(ctx);
	if (ctx->clocked) {
		emu_sched_begin(ctx);
	}
	result = emu_engine_add(ctx);
	if (result != DOCA_SUCCESS) {
		return result;
	}
	emu_add(&emu_stats.ctx_starts, 1);
	if (emu_pe_enter(pe)) {
		emu_ctx_set_state(ctx, DOCA_CTX_STATE_RUNNING);
		emu_pe_leave(pe);
	} else {
		emu_ctx_set_state(ctx, DOCA_CTX_STATE_RUNNING);
	}
	return DOCA_SUCCESS;
}

doca_error_t
doca_ctx_stop(struct doca_ctx *ctx)
{
	struct doca_pe *pe;
	doca_error_t result = DOCA_ERROR_IN_PROGRESS;

	EMU_ENTER("ctx_stop");
	EMU_CHECK(ctx, EMU_MAGIC_CTX);
	pe = ctx->pe;
	if (pe == NULL) {
		return DOCA_ERROR_NOT_CONNECTED;
	}
	if (emu_pe_is_foreign(pe, __func__)) {
		return DOCA_ERROR_BAD_STATE;
	}
	if (emu_pe_in_callback(pe) && emu_get(EMU_STRICT_CLIENT) != 0) {
		emu_violation(__func__, ctx, EMU_MAGIC_CTX, "called from a callback");
	}
	if (ctx->state == DOCA_CTX_STATE_IDLE) {
		return emu_get(EMU_STOP_IDLE_BAD_STATE) != 0 ? DOCA_ERROR_BAD_STATE : DOCA_SUCCESS;
	}
	if (ctx->state == DOCA_CTX_STATE_STOPPING) {
		return DOCA_ERROR_IN_PROGRESS;
	}
	emu_ctx_break(ctx, DOCA_ERROR_IO_FAILED);
	if (!emu_pe_enter(pe)) {
		/* In a callback: becoming idle is left to a step of progress. */
		emu_ctx_set_state(ctx, DOCA_CTX_STATE_STOPPING);
		if (ctx->allocated == 0) {
			emu_pe_signal(pe);
		}
		return DOCA_ERROR_IN_PROGRESS;
	}
	emu_ctx_set_state(ctx, DOCA_CTX_STATE_STOPPING);
	if (ctx->allocated == 0) {
		emu_ctx_to_idle(ctx);
		result = DOCA_SUCCESS;
	}
	emu_pe_leave(pe);
	return result;
}

doca_error_t
doca_ctx_get_state(const struct doca_ctx *ctx, enum doca_ctx_states *state)
{
	EMU_ENTER("ctx_get_state");
	EMU_CHECK(ctx, EMU_MAGIC_CTX);
	EMU_CHECK_OUT(state);
	*state = ctx->state;
	return DOCA_SUCCESS;
}

doca_error_t
doca_ctx_set_state_changed_cb(struct doca_ctx *ctx, doca_ctx_state_changed_callback_t cb)
{
	EMU_ENTER("ctx_set_state_changed_cb");
	EMU_CHECK(ctx, EMU_MAGIC_CTX);
	if (ctx->state != DOCA_CTX_STATE_IDLE) {
		return DOCA_ERROR_BAD_STATE;
	}
	ctx->state_cb = cb;
	return DOCA_SUCCESS;
}

doca_error_t
doca_ctx_set_user_data(struct doca_ctx *ctx, union doca_data user_data)
{
	EMU_ENTER("ctx_set_user_data");
	EMU_CHECK(ctx, EMU_MAGIC_CTX);
	if (ctx->state != DOCA_CTX_STATE_IDLE) {
		return DOCA_ERROR_BAD_STATE;
	}
	ctx->user_data = user_data;
	return DOCA_SUCCESS;
}

doca_error_t
doca_ctx_get_user_data(const struct doca_ctx *ctx, union doca_data *user_data)
{
	EMU_ENTER("ctx_get_user_data");
	EMU_CHECK(ctx, EMU_MAGIC_CTX);
	EMU_CHECK_OUT(user_data);
	*user_data = ctx->user_data;
	return DOCA_SUCCESS;
}

doca_error_t
doca_ctx_get_num_inflight_tasks(const struct doca_ctx *ctx, size_t *num_inflight_tasks)
{
	EMU_ENTER("ctx_get_num_inflight_tasks");
	EMU_CHECK(ctx, EMU_MAGIC_CTX);
	EMU_CHECK_OUT(num_inflight_tasks);
	*num_inflight_tasks = ctx->in_flight;
	return DOCA_SUCCESS;
}

doca_error_t
doca_ctx_cap_get_num_completion_vectors(const struct doca_devinfo *devinfo,
					uint32_t *num_comp_vectors)
{
	EMU_ENTER("ctx_cap_get_num_completion_vectors");
	EMU_CHECK(devinfo, EMU_MAGIC_DEVINFO);
	EMU_CHECK_OUT(num_comp_vectors);
	*num_comp_vectors = 1;
	return DOCA_SUCCESS;
}

doca_error_t
doca_ctx_set_completion_vector(struct doca_ctx *ctx, uint32_t comp_vector)
{
	EMU_ENTER("ctx_set_completion_vector");
	EMU_CHECK(ctx, EMU_MAGIC_CTX);
	if (ctx->state != DOCA_CTX_STATE_IDLE) {
		return DOCA_ERROR_BAD_STATE;
	}
	return comp_vector == 0 ? DOCA_SUCCESS : DOCA_ERROR_INVALID_VALUE;
}

doca_error_t
doca_ctx_set_datapath_on_dpa(struct doca_ctx *ctx, struct doca_dpa *dpa_dev)
{
	(void)dpa_dev;
	EMU_ENTER("ctx_set_datapath_on_dpa");
	EMU_CHECK(ctx, EMU_MAGIC_CTX);
	return DOCA_ERROR_NOT_SUPPORTED;
}

doca_error_t
doca_ctx_set_datapath_on_gpu(struct doca_ctx *ctx, struct doca_gpu *gpu_dev)
{
	(void)gpu_dev;
	EMU_ENTER("ctx_set_datapath_on_gpu");
	EMU_CHECK(ctx, EMU_MAGIC_CTX);
	return DOCA_ERROR_NOT_SUPPORTED;
}
