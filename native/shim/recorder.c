/* SPDX-License-Identifier: Apache-2.0 */
#include "recorder.h"

#include "channel_impl.h"

void
adma_recorder_init(struct adma_recorder *recorder)
{
	pthread_mutex_init(&recorder->lock, NULL);
	atomic_init(&recorder->num, 0);
}

void
adma_recorder_finish(struct adma_recorder *recorder)
{
	pthread_mutex_destroy(&recorder->lock);
}

void
adma_recorder_note(struct adma_recorder *recorder, struct adma_event event)
{
	uint64_t num;

	pthread_mutex_lock(&recorder->lock);
	num = atomic_load_explicit(&recorder->num, memory_order_relaxed);
	event.number = num;
	event.time_ns = adma_now_ns();
	recorder->events[num % ADMA_RECORDER_EVENTS] = event;
	atomic_store_explicit(&recorder->num, num + 1, memory_order_release);
	pthread_mutex_unlock(&recorder->lock);
}

size_t
adma_recorder_read(struct adma_recorder *recorder, uint64_t from, struct adma_event *events,
		   size_t max)
{
	size_t count = 0;
	uint64_t num;

	pthread_mutex_lock(&recorder->lock);
	num = atomic_load_explicit(&recorder->num, memory_order_relaxed);
	if (num > ADMA_RECORDER_EVENTS) {
		from = adma_max(from, num - ADMA_RECORDER_EVENTS);
	}
	while (from < num && count < max) {
		events[count++] = recorder->events[from++ % ADMA_RECORDER_EVENTS];
	}
	pthread_mutex_unlock(&recorder->lock);
	return count;
}

int64_t
adma_clock_ns(void)
{
	return adma_now_ns();
}

uint64_t
adma_channel_num_events(const struct adma_channel *ch)
{
	return atomic_load_explicit(&ch->recorder.num, memory_order_acquire);
}

size_t
adma_channel_events(struct adma_channel *ch, uint64_t from, struct adma_event *events, size_t max)
{
	return adma_recorder_read(&ch->recorder, from, events, max);
}

void
adma_channel_note(struct adma_channel *ch, enum adma_event_kind kind, uint32_t from, uint32_t to,
		  uint32_t code)
{
	adma_recorder_note(&ch->recorder,
			   (struct adma_event){.kind = kind, .from = from, .to = to, .code = code});
}

void
adma_channel_get_failed(const struct adma_channel *ch, uint64_t *failed)
{
	for (size_t i = 0; i < ADMA_NUM_CODES; i++) {
		failed[i] = ch->failed[i];
	}
}

bool
adma_channel_get_latency(const struct adma_channel *ch, struct adma_latency *latency)
{
	if (ch->latency == NULL) {
		return false;
	}
	*latency = *ch->latency;
	return true;
}

struct adma_latency *
adma_channel_latency(struct adma_channel *ch)
{
	return ch->latency;
}
