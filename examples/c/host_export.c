/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host: lets the DPU read and write some of its memory.
 *
 *     host_export FILE        in one shell
 *     dpu_import FILE         in another, then Enter in the first
 *
 * Writes the export descriptor to FILE and waits for a line on its input. A descriptor is as good as
 * the memory itself: whoever has it may use it. Prints:
 *
 *     exported 4096 bytes
 *     the DPU answered: got "hello, DPU"
 */
#include <string.h>

#include <sys/stat.h>

#include "pair.h"

int
main(int argc, char **argv)
{
	static char memory[4096] = "hello, DPU";
	const uint32_t permissions =
		DOCA_ACCESS_FLAG_LOCAL_READ_WRITE | DOCA_ACCESS_FLAG_PCI_READ_WRITE;
	struct doca_dev *dev = open_device(doca_mmap_cap_is_export_pci_supported);
	struct doca_mmap *mmap = map_memory(dev, memory, sizeof(memory), permissions);
	const void *desc;
	size_t length;
	FILE *file;

	if (argc != 2) {
		fprintf(stderr, "usage: %s FILE\n", argv[0]);
		return 2;
	}
	TRY(doca_mmap_export_pci(mmap, dev, &desc, &length));
	umask(077);
	file = fopen(argv[1], "wb");
	if (file == NULL || fwrite(desc, 1, length, file) != length || fclose(file) != 0) {
		perror(argv[1]);
		return 1;
	}
	printf("exported %zu bytes\n", sizeof(memory));
	fflush(stdout);
	getchar();
	printf("the DPU answered: %s\n", memory);
	TRY(doca_mmap_destroy(mmap));
	TRY(doca_dev_close(dev));
	return 0;
}
