/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Closed maps. A map that a context has used stays registered until that context is gone, so it is buried here; the
 * graveyard is bounded, and emptied when the context is recycled or closed.
 */
#include "channel_impl.h"

static void
link_map(struct adma_mmap **list, struct adma_mmap *map)
{
	map->next = *list;
	map->link = list;
	if (map->next != NULL) {
		map->next->link = &map->next;
	}
	*list = map;
}

static void
unlink_map(struct adma_mmap *map)
{
	if (map->link != NULL) {
		*map->link = map->next;
		if (map->next != NULL) {
			map->next->link = map->link;
		}
		map->link = NULL;
	}
}

void
adma_channel_adopt(struct adma_channel *ch, struct adma_mmap *map)
{
	pthread_mutex_lock(&ch->maps_lock);
	link_map(&ch->maps, map);
	pthread_mutex_unlock(&ch->maps_lock);
}

bool
adma_graveyard_full(const struct adma_channel *ch)
{
	return atomic_load_explicit(&ch->buried_bytes, memory_order_relaxed) >
		       ch->config.graveyard_bytes ||
	       atomic_load_explicit(&ch->buried_maps, memory_order_relaxed) >
		       ch->config.graveyard_maps;
}

bool
adma_channel_retire(struct adma_channel *ch, struct adma_mmap *map)
{
	bool bury;

	pthread_mutex_lock(&ch->maps_lock);
	map->released = 1;
	unlink_map(map);
	bury = map->used && map->mmap != NULL;
	if (bury) {
		link_map(&ch->graveyard, map);
		atomic_fetch_add(&ch->buried_bytes, map->length);
		atomic_fetch_add(&ch->buried_maps, 1);
	}
	pthread_mutex_unlock(&ch->maps_lock);
	if (!bury && adma_mmap_unregister(map) == DOCA_SUCCESS) {
		adma_mmap_free(map);
	}
	return adma_graveyard_full(ch);
}

/* No context is left that could know a map: unregister and free the buried ones. */
doca_error_t
adma_graveyard_empty(struct adma_channel *ch)
{
	struct adma_mmap *map, *next;
	doca_error_t first = DOCA_SUCCESS;

	pthread_mutex_lock(&ch->maps_lock);
	map = ch->graveyard;
	ch->graveyard = NULL;
	atomic_store(&ch->buried_bytes, 0);
	atomic_store(&ch->buried_maps, 0);
	for (struct adma_mmap *live = ch->maps; live != NULL; live = live->next) {
		live->used = 0;
	}
	pthread_mutex_unlock(&ch->maps_lock);
	for (; map != NULL; map = next) {
		doca_error_t result = adma_mmap_unregister(map);

		next = map->next;
		if (result == DOCA_SUCCESS) {
			adma_mmap_free(map);
		} else if (first == DOCA_SUCCESS) {
			first = result; /* leaked: pinned for ever rather than freed under the device */
		}
	}
	return first;
}

/* Unregister the maps that objects above still hold; those free them later. */
doca_error_t
adma_unregister_live_maps(struct adma_channel *ch)
{
	doca_error_t first = DOCA_SUCCESS;

	pthread_mutex_lock(&ch->maps_lock);
	for (struct adma_mmap *map = ch->maps; map != NULL; map = map->next) {
		doca_error_t result = adma_mmap_unregister(map);

		map->closed = 1;
		if (result != DOCA_SUCCESS && first == DOCA_SUCCESS) {
			first = result;
		}
	}
	pthread_mutex_unlock(&ch->maps_lock);
	return first;
}
