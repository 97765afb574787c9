/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a channel and of its context. All of it runs in a worker, without the GIL, while the loop stays away. */
#include "channel_impl.h"

#include <poll.h>
#include <stdlib.h>

/* Tasks in the pool where the user names no number: enough to keep the engine busy with small copies. */
#define DEFAULT_NUM_TASKS 256
/* A stop that fails outright is tried this often: a driver may need a moment. */
#define STOP_ATTEMPTS 3
/* How long a context without tasks may take to become IDLE. */
#define IDLE_TIMEOUT_NS (5 * 1000000000LL)

static doca_error_t
failed(struct adma_failure *failure, doca_error_t code, enum adma_phase phase, const char *call)
{
	*failure = (struct adma_failure){.code = code, .phase = phase, .call = call};
	return code;
}

/*
 * Create, connect, configure and start the context and its buf inventory.
 *
 * On failure nothing of it is left.
 */
static doca_error_t
start_ctx(struct adma_channel *ch, struct adma_failure *failure)
{
	struct adma_library *lib = ch->lib;
	union doca_data user_data = {.ptr = ch};
	const char *call = "doca_dma_create";
	uint32_t wanted = ch->config.num_tasks != 0 ? ch->config.num_tasks : DEFAULT_NUM_TASKS;
	doca_error_t result;

	result = lib->doca_dma_create(ch->device->dev, &ch->dma);
	if (result != DOCA_SUCCESS) {
		ch->dma = NULL;
		return failed(failure, result, ADMA_PHASE_OPEN, call);
	}
	ch->ctx = lib->doca_dma_as_ctx(ch->dma);
	call = "doca_dma_cap_get_max_num_tasks";
	result = lib->doca_dma_cap_get_max_num_tasks(ch->dma, &ch->caps.max_num_tasks);
	if (result == DOCA_SUCCESS) {
		ch->num_tasks = wanted < ch->caps.max_num_tasks ? wanted : ch->caps.max_num_tasks;
		call = "doca_pe_connect_ctx";
		result = lib->doca_pe_connect_ctx(ch->pe, ch->ctx);
	}
	if (result == DOCA_SUCCESS) {
		call = "doca_ctx_set_user_data";
		result = lib->doca_ctx_set_user_data(ch->ctx, user_data);
	}
	if (result == DOCA_SUCCESS) {
		call = "doca_ctx_set_state_changed_cb";
		result = lib->doca_ctx_set_state_changed_cb(ch->ctx, adma_on_state_changed);
	}
	if (result == DOCA_SUCCESS) {
		call = "doca_dma_task_memcpy_set_conf";
		result = lib->doca_dma_task_memcpy_set_conf(ch->dma, adma_on_completed,
							    adma_on_failed, ch->num_tasks);
	}
	if (result == DOCA_SUCCESS) {
		call = "doca_ctx_start";
		result = lib->doca_ctx_start(ch->ctx);
	}
	if (result == DOCA_SUCCESS && ch->ctx_state != DOCA_CTX_STATE_RUNNING) {
		result = DOCA_ERROR_BAD_STATE; /* the start of a DMA context is synchronous */
	}
	if (result != DOCA_SUCCESS) {
		failed(failure, result, ADMA_PHASE_OPEN, call);
		lib->doca_dma_destroy(ch->dma);
		ch->dma = NULL;
		ch->ctx = NULL;
	}
	return result;
}

/* Wait in the worker, woken by the notification fd, until the context is IDLE. */
static doca_error_t
await_idle(struct adma_channel *ch)
{
	int64_t deadline = adma_now_ns() + IDLE_TIMEOUT_NS;
	struct pollfd pollfd = {.fd = ch->fd, .events = POLLIN};

	while (ch->ctx_state != DOCA_CTX_STATE_IDLE) {
		int64_t left = deadline - adma_now_ns();

		if (ch->lib->doca_pe_progress(ch->pe) != 0) {
			continue;
		}
		if (left <= 0) {
			return DOCA_ERROR_TIME_OUT;
		}
		if (ch->lib->doca_pe_request_notification(ch->pe) == DOCA_SUCCESS) {
			if (ch->mode_all && ch->lib->doca_pe_progress(ch->pe) != 0) {
				continue;
			}
			(void)poll(&pollfd, 1, (int)(left / 1000000) + 1);
			(void)ch->lib->doca_pe_clear_notification(ch->pe, ch->fd);
		}
	}
	return DOCA_SUCCESS;
}

/* Stop the context, DOCA holding nothing of ours, and wait for IDLE. */
static doca_error_t
stop_ctx(struct adma_channel *ch, struct adma_failure *failure)
{
	enum doca_ctx_states state;
	doca_error_t result = DOCA_SUCCESS;

	adma_free_all_tasks(ch);
	adma_disarm(ch);
	for (int attempt = 0; attempt < STOP_ATTEMPTS; attempt++) {
		if (ch->lib->doca_ctx_get_state(ch->ctx, &state) != DOCA_SUCCESS) {
			state = ch->ctx_state; /* as the callback last said */
		}
		ch->ctx_state = state;
		if (state == DOCA_CTX_STATE_IDLE) {
			return DOCA_SUCCESS;
		}
		if (state == DOCA_CTX_STATE_RUNNING) {
			result = ch->lib->doca_ctx_stop(ch->ctx);
		}
		if (result == DOCA_SUCCESS || result == DOCA_ERROR_IN_PROGRESS) {
			result = await_idle(ch);
			return result == DOCA_SUCCESS
				       ? result
				       : failed(failure, result, ADMA_PHASE_STOP, "doca_ctx_stop");
		}
	}
	return failed(failure, result, ADMA_PHASE_STOP, "doca_ctx_stop");
}

static doca_error_t
destroy_ctx(struct adma_channel *ch, struct adma_failure *failure)
{
	doca_error_t result;

	if (ch->dma == NULL) {
		return DOCA_SUCCESS;
	}
	result = stop_ctx(ch, failure);
	if (result != DOCA_SUCCESS) {
		return result;
	}
	result = ch->lib->doca_dma_destroy(ch->dma);
	if (result != DOCA_SUCCESS) {
		return failed(failure, result, ADMA_PHASE_STOP, "doca_dma_destroy");
	}
	ch->dma = NULL;
	ch->ctx = NULL;
	return DOCA_SUCCESS;
}

/* ---- open, recycle, close ---- */

static uint32_t
list_len_of(const struct adma_caps *caps)
{
	return caps->max_buf_list_len == 0
		       ? 1
		       : (uint32_t)adma_min(caps->max_buf_list_len, ADMA_MAX_LIST);
}

/* What follows from the capabilities. */
static void
apply_caps(struct adma_channel *ch)
{
	ch->segment_bytes = ch->caps.max_buf_size;
	ch->list_len = (uint32_t)adma_min(list_len_of(&ch->caps), ch->max_list_len);
}

doca_error_t
adma_channel_open(struct adma_device *device, const struct adma_channel_config *config,
		  struct adma_channel **out, struct adma_failure *failure)
{
	struct adma_library *lib = device->library;
	struct adma_channel *ch = calloc(1, sizeof(*ch));
	const char *call = "doca_pe_create";
	doca_error_t result;

	if (ch == NULL) {
		return failed(failure, DOCA_ERROR_NO_MEMORY, ADMA_PHASE_OPEN, "calloc");
	}
	ch->lib = lib;
	ch->device = device;
	ch->config = *config;
	ch->caps = device->info.caps;
	ch->replay_tail = &ch->replay;
	ch->held_back = lib->doca_task_submit_ex != NULL && lib->doca_ctx_flush_tasks != NULL;
	pthread_mutex_init(&ch->maps_lock, NULL);
	adma_recorder_init(&ch->recorder);
	if (config->measure_latency) {
		ch->latency = calloc(1, sizeof(*ch->latency));
		if (ch->latency == NULL) {
			result = failed(failure, DOCA_ERROR_NO_MEMORY, ADMA_PHASE_OPEN, "calloc");
			goto free_channel;
		}
	}

	result = lib->doca_pe_create(&ch->pe);
	if (result != DOCA_SUCCESS) {
		failed(failure, result, ADMA_PHASE_OPEN, call);
		goto free_channel;
	}
	if (lib->doca_pe_set_event_mode != NULL) {
		call = "doca_pe_set_event_mode";
		result = lib->doca_pe_set_event_mode(ch->pe, DOCA_PE_EVENT_MODE_PROGRESS_ALL);
		ch->mode_all = true;
	}
	if (result == DOCA_SUCCESS) {
		call = "doca_pe_get_notification_handle";
		result = lib->doca_pe_get_notification_handle(ch->pe, &ch->fd);
	}
	if (result != DOCA_SUCCESS) {
		failed(failure, result, ADMA_PHASE_OPEN, call);
		goto destroy_pe;
	}
	result = start_ctx(ch, failure);
	if (result != DOCA_SUCCESS) {
		goto destroy_pe;
	}
	ch->max_list_len = list_len_of(&ch->caps);
	apply_caps(ch);
	ch->window = config->window != 0 && config->window < ch->num_tasks ? config->window
									   : ch->num_tasks;
	ch->segments = calloc(ch->window, sizeof(*ch->segments));
	ch->sources = calloc((size_t)ch->window * ch->max_list_len, sizeof(*ch->sources));
	if (ch->segments == NULL || ch->sources == NULL) {
		result = failed(failure, DOCA_ERROR_NO_MEMORY, ADMA_PHASE_OPEN, "calloc");
		goto free_segments;
	}
	ch->num_segments = ch->window;
	for (uint32_t i = ch->num_segments; i > 0; i--) {
		ch->segments[i - 1].sources = &ch->sources[(size_t)(i - 1) * ch->max_list_len];
		adma_segment_free(ch, &ch->segments[i - 1]);
	}
	result = lib->doca_buf_inventory_create((1 + (size_t)ch->max_list_len) * ch->window,
						&ch->inventory);
	if (result != DOCA_SUCCESS) {
		failed(failure, result, ADMA_PHASE_OPEN, "doca_buf_inventory_create");
		goto free_segments;
	}
	result = lib->doca_buf_inventory_start(ch->inventory);
	if (result != DOCA_SUCCESS) {
		failed(failure, result, ADMA_PHASE_OPEN, "doca_buf_inventory_start");
		goto destroy_inventory;
	}
	ch->state = ADMA_CHANNEL_RUNNING;
	*out = ch;
	return DOCA_SUCCESS;

destroy_inventory:
	lib->doca_buf_inventory_destroy(ch->inventory);
free_segments:
	free(ch->sources);
	free(ch->segments);
	ch->num_segments = 0;
	{
		struct adma_failure ignored;

		destroy_ctx(ch, &ignored);
	}
destroy_pe:
	lib->doca_pe_destroy(ch->pe);
free_channel:
	free(ch->latency);
	adma_recorder_finish(&ch->recorder);
	pthread_mutex_destroy(&ch->maps_lock);
	free(ch);
	return result;
}

static bool
caps_equal(const struct adma_caps *a, const struct adma_caps *b)
{
	return a->max_buf_size == b->max_buf_size && a->max_buf_list_len == b->max_buf_list_len &&
	       a->max_num_tasks == b->max_num_tasks && a->export_pci == b->export_pci &&
	       a->create_from_export_pci == b->create_from_export_pci;
}

doca_error_t
adma_channel_recycle(struct adma_channel *ch, struct adma_failure *failure, int *caps_changed)
{
	struct adma_caps before = ch->caps;
	bool after_fault = ch->ctx_state == DOCA_CTX_STATE_IDLE;
	doca_error_t result;

	result = destroy_ctx(ch, failure);
	if (result == DOCA_SUCCESS) {
		(void)adma_graveyard_empty(ch);
		result = adma_device_query(ch->device, &ch->caps, failure);
	}
	if (result == DOCA_SUCCESS) {
		result = start_ctx(ch, failure);
	}
	if (result != DOCA_SUCCESS) {
		return result;
	}
	ch->window = (uint32_t)adma_min(ch->num_segments, ch->num_tasks);
	apply_caps(ch);
	*caps_changed = !caps_equal(&before, &ch->caps);
	adma_channel_note(ch, after_fault ? ADMA_EVENT_RESTARTED : ADMA_EVENT_RECYCLED, 0, 0, 0);
	if (*caps_changed) {
		adma_channel_note(ch, ADMA_EVENT_CAPABILITIES, 0, 0, 0);
	}
	ch->counters.recycles++;
	ch->counters.restarts += after_fault;
	return DOCA_SUCCESS;
}

static unsigned
note(struct adma_failure *failures, unsigned max, unsigned count, doca_error_t code,
     const char *call)
{
	if (code == DOCA_SUCCESS) {
		return count;
	}
	if (count < max) {
		failed(&failures[count], code, ADMA_PHASE_STOP, call);
	}
	return count + 1;
}

unsigned
adma_channel_close(struct adma_channel *ch, struct adma_failure *failures, unsigned max)
{
	struct adma_library *lib = ch->lib;
	struct adma_failure failure = {0};
	doca_error_t result;
	unsigned count = 0;

	if (ch->state == ADMA_CHANNEL_CLOSED) {
		return 0;
	}
	adma_set_state(ch, ADMA_CHANNEL_CLOSED);
	result = destroy_ctx(ch, &failure);
	count = note(failures, max, count, result, failure.call);
	if (ch->dma != NULL) {
		return count; /* the device may still touch memory: all that hangs on the context is leaked */
	}
	count = note(failures, max, count, ch->stuck_buf, "doca_buf_dec_refcount");
	count = note(failures, max, count, adma_graveyard_empty(ch), "doca_mmap_destroy");
	count = note(failures, max, count, adma_unregister_live_maps(ch), "doca_mmap_destroy");
	if (ch->stuck_buf == DOCA_SUCCESS) {
		result = lib->doca_buf_inventory_destroy(ch->inventory);
		count = note(failures, max, count, result, "doca_buf_inventory_destroy");
	}
	count = note(failures, max, count, lib->doca_pe_destroy(ch->pe), "doca_pe_destroy");
	return count;
}

bool
adma_channel_finalize(struct adma_channel *ch, uint64_t timeout_ns)
{
	int64_t deadline = adma_now_ns() + (int64_t)timeout_ns;
	struct pollfd pollfd = {.fd = ch->fd, .events = POLLIN};
	struct adma_failure failure;

	if (ch->state == ADMA_CHANNEL_CLOSED) {
		return true;
	}
	adma_channel_abandon(ch);
	ch->park = true;
	adma_disarm(ch);
	adma_flush(ch);
	while (ch->in_flight > 0) {
		int64_t left = deadline - adma_now_ns();

		if (ch->lib->doca_pe_progress(ch->pe) != 0) {
			continue;
		}
		if (left <= 0) {
			return false;
		}
		if (ch->lib->doca_pe_request_notification(ch->pe) == DOCA_SUCCESS &&
		    !(ch->mode_all && ch->lib->doca_pe_progress(ch->pe) != 0)) {
			(void)poll(&pollfd, 1, (int)(left / 1000000) + 1);
			(void)ch->lib->doca_pe_clear_notification(ch->pe, ch->fd);
		}
	}
	adma_channel_abandon(ch); /* what was flushed meanwhile */
	return adma_channel_close(ch, &failure, 1) == 0;
}

void
adma_channel_free(struct adma_channel *ch)
{
	adma_recorder_finish(&ch->recorder);
	pthread_mutex_destroy(&ch->maps_lock);
	free(ch->latency);
	free(ch->sources);
	free(ch->segments);
	free(ch);
}
