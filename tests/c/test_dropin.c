/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linked against libdoca_common.so.2, libdoca_dma.so.2 and libdoca_argp.so.2 as any DOCA program:
 * the stubs and the emulator opened by its path must be one instance.
 */
#define _GNU_SOURCE
#define DOCA_ALLOW_EXPERIMENTAL_API
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

#include <doca_argp.h>
#include <doca_dev.h>
#include <doca_dma.h>
#include <doca_version.h>

int
main(int argc, char **argv)
{
	const char *const names[] = {"libdoca_common.so.2", "libdoca_dma.so.2",
				     "libdoca_argp.so.2"};
	const char *const symbols[] = {"doca_dev_open", "doca_dma_create", "doca_argp_init"};
	struct doca_devinfo **list;
	struct doca_dev *dev;
	struct doca_dma *dma;
	uint32_t num;
	void *emulator;

	if (argc != 2 || doca_devinfo_create_list(&list, &num) != DOCA_SUCCESS || num != 1 ||
	    doca_dev_open(list[0], &dev) != DOCA_SUCCESS ||
	    doca_dma_create(dev, &dma) != DOCA_SUCCESS || doca_dma_destroy(dma) != DOCA_SUCCESS ||
	    doca_dev_close(dev) != DOCA_SUCCESS ||
	    doca_devinfo_destroy_list(list) != DOCA_SUCCESS || doca_version_runtime() == NULL ||
	    doca_argp_init("test", NULL) != DOCA_SUCCESS || doca_argp_destroy() != DOCA_SUCCESS) {
		fprintf(stderr, "the calls fail\n");
		return 1;
	}
	emulator = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
	if (emulator == NULL) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	for (int i = 0; i < 3; i++) {
		void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
		const char *symbol = symbols[i];
		void *theirs = library != NULL ? dlsym(library, symbol) : NULL;

		if (theirs == NULL || theirs != dlsym(emulator, symbol)) {
			fprintf(stderr, "%s: %s is another one\n", names[i], symbol);
			return 1;
		}
	}
	return 0;
}
