/* SPDX-License-Identifier: Apache-2.0 */
/* What host_export.c and dpu_import.c share. */
#ifndef PAIR_H_
#define PAIR_H_

#include <stdio.h>
#include <stdlib.h>

#include <doca_dev.h>
#include <doca_error.h>
#include <doca_mmap.h>

#define TRY(call) \
	do { \
		doca_error_t result_ = (call); \
		if (result_ != DOCA_SUCCESS) { \
			fprintf(stderr, "%s: %s\n", #call, doca_error_get_descr(result_)); \
			exit(1); \
		} \
	} while (0)

/* Open the first device that can export, or that can import. */
static inline struct doca_dev *
open_device(doca_error_t (*can)(const struct doca_devinfo *, uint8_t *))
{
	struct doca_devinfo **list;
	struct doca_dev *dev = NULL;
	uint32_t num;
	uint8_t able;

	TRY(doca_devinfo_create_list(&list, &num));
	for (uint32_t i = 0; i < num && dev == NULL; i++) {
		if (can(list[i], &able) == DOCA_SUCCESS && able) {
			TRY(doca_dev_open(list[i], &dev));
		}
	}
	TRY(doca_devinfo_destroy_list(list));
	if (dev == NULL) {
		fprintf(stderr, "no device is able to\n");
		exit(1);
	}
	return dev;
}

/* A started map of memory. */
static inline struct doca_mmap *
map_memory(struct doca_dev *dev, void *memory, size_t size, uint32_t permissions)
{
	struct doca_mmap *mmap;

	TRY(doca_mmap_create(&mmap));
	TRY(doca_mmap_add_dev(mmap, dev));
	TRY(doca_mmap_set_memrange(mmap, memory, size));
	TRY(doca_mmap_set_permissions(mmap, permissions));
	TRY(doca_mmap_start(mmap));
	return mmap;
}

#endif /* PAIR_H_ */
