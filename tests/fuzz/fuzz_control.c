/* SPDX-License-Identifier: Apache-2.0 */
/* The control text: any text is obeyed or refused with a reason, and the library works afterwards. */
#include "fuzz.h"

#include <string.h>

#include <doca_dev.h>
#include <docaemu.h>

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	struct doca_devinfo **list;
	char error[64] = "";
	doca_error_t result;
	uint32_t num;

	FUZZ_CHECK(text != NULL);
	memcpy(text, data, size);
	text[size] = '\0';
	result = docaemu_configure(text, error, sizeof(error));
	FUZZ_CHECK(memchr(error, '\0', sizeof(error)) != NULL);
	FUZZ_CHECK((result == DOCA_SUCCESS) == (error[0] == '\0'));
	/* What it did to the library may be anything but lasting. */
	if (doca_devinfo_create_list(&list, &num) == DOCA_SUCCESS) {
		while (doca_devinfo_destroy_list(list) != DOCA_SUCCESS) {
			FUZZ_CHECK(docaemu_configure("strict=off", NULL, 0) == DOCA_SUCCESS);
			/* A fault without end: nothing but a reset could take it away. */
			if (strstr(text, "devinfo_destroy_list") != NULL) {
				exit(0);
			}
		}
	}
	FUZZ_CHECK(docaemu_reset() == DOCA_SUCCESS);
	FUZZ_CHECK(doca_devinfo_create_list(&list, &num) == DOCA_SUCCESS && num == 1);
	FUZZ_CHECK(doca_devinfo_destroy_list(list) == DOCA_SUCCESS);
	free(text);
	return 0;
}

size_t
fuzz_seed(uint32_t n, uint8_t *data, size_t max)
{
	static const char *const texts[] = {
		"engine=manual inline_max=4K nt_min=1M queue_depth=7\nstrict=report # why",
		"device a pci=03:00.1 iface=p1 dma=1 max_buf_size=1M\ndevice b dma=0;device c",
		"fault op=task_submit kind=again skip=1 interval=2 count=3",
		"fault op=task_try_submit kind=accepted status=NO_MEMORY",
		"fault op=completion kind=hold\nfault op=notification kind=late count=0",
		"profile=bf3 direction=pull clock=manual progress_cost=5\nlatency=7 bandwidth=9G",
		"order=random seed=0x10 slot_lag=4 hold=1 notify=suppress",
		"version=3.1.2;devices=none;memlock=10M memlock_status=NO_MEMORY",
		"flush_status=DRIVER peer_timeout=10 peer_users=any export_stop=revoke",
	};
	const char *text = texts[n % (sizeof(texts) / sizeof(texts[0]))];
	size_t size = strlen(text);

	FUZZ_CHECK(size < max);
	memcpy(data, text, size);
	return size;
}
