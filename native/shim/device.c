/* SPDX-License-Identifier: Apache-2.0 */
#include "device.h"

#include <stdlib.h>
#include <string.h>

#define FAIL(failure_, code_, call_) \
	(*(failure_) = (struct adma_failure){ \
		 .code = (code_), .phase = ADMA_PHASE_OPEN, .call = (call_)})

static doca_error_t
query_caps(struct adma_library *lib, const struct doca_devinfo *devinfo, struct adma_caps *caps,
	   struct adma_failure *failure)
{
	struct adma_caps answer = {0};
	doca_error_t result;

	result = lib->doca_dma_cap_task_memcpy_get_max_buf_size(devinfo, &answer.max_buf_size);
	if (result != DOCA_SUCCESS) {
		FAIL(failure, result, "doca_dma_cap_task_memcpy_get_max_buf_size");
		return result;
	}
	result = lib->doca_dma_cap_task_memcpy_get_max_buf_list_len(devinfo,
								    &answer.max_buf_list_len);
	if (result != DOCA_SUCCESS) {
		FAIL(failure, result, "doca_dma_cap_task_memcpy_get_max_buf_list_len");
		return result;
	}
	/* What cannot be asked cannot be done: a failing map query counts as "no", it is not needed for a local copy. */
	if (lib->doca_mmap_cap_is_export_pci_supported(devinfo, &answer.export_pci) !=
	    DOCA_SUCCESS) {
		answer.export_pci = 0;
	}
	if (lib->doca_mmap_cap_is_create_from_export_pci_supported(
		    devinfo, &answer.create_from_export_pci) != DOCA_SUCCESS) {
		answer.create_from_export_pci = 0;
	}
	*caps = answer;
	return DOCA_SUCCESS;
}

/* A name that the device does not have is an empty string, not a failure of the listing. */
static doca_error_t
describe(struct adma_library *lib, const struct doca_devinfo *devinfo, struct adma_devinfo *info,
	 struct adma_failure *failure)
{
	struct adma_devinfo answer = {0};
	doca_error_t result;

	result = lib->doca_devinfo_get_pci_addr_str(devinfo, answer.pci_addr);
	if (result != DOCA_SUCCESS) {
		FAIL(failure, result, "doca_devinfo_get_pci_addr_str");
		return result;
	}
	if (lib->doca_devinfo_get_ibdev_name(devinfo, answer.ibdev_name,
					     sizeof(answer.ibdev_name)) != DOCA_SUCCESS) {
		answer.ibdev_name[0] = '\0';
	}
	if (lib->doca_devinfo_get_iface_name(devinfo, answer.iface_name,
					     sizeof(answer.iface_name)) != DOCA_SUCCESS) {
		answer.iface_name[0] = '\0';
	}
	answer.memcpy_supported = lib->doca_dma_cap_task_memcpy_is_supported(devinfo);
	if (answer.memcpy_supported == DOCA_SUCCESS) {
		result = query_caps(lib, devinfo, &answer.caps, failure);
		if (result != DOCA_SUCCESS) {
			return result;
		}
	}
	*info = answer;
	return DOCA_SUCCESS;
}

doca_error_t
adma_devices_list(struct adma_library *lib, struct adma_devinfo **out, uint32_t *count,
		  struct adma_failure *failure)
{
	struct doca_devinfo **devinfos;
	struct adma_devinfo *list;
	uint32_t n = 0;
	doca_error_t result;

	result = lib->doca_devinfo_create_list(&devinfos, &n);
	if (result == DOCA_ERROR_NOT_FOUND) {
		*out = NULL;
		*count = 0;
		return DOCA_SUCCESS;
	}
	if (result != DOCA_SUCCESS) {
		FAIL(failure, result, "doca_devinfo_create_list");
		return result;
	}
	list = calloc(n > 0 ? n : 1, sizeof(*list));
	if (list == NULL) {
		result = DOCA_ERROR_NO_MEMORY;
		FAIL(failure, result, "calloc");
		goto destroy_list;
	}
	for (uint32_t i = 0; i < n; i++) {
		result = describe(lib, devinfos[i], &list[i], failure);
		if (result != DOCA_SUCCESS) {
			free(list);
			goto destroy_list;
		}
	}
	*out = list;
	*count = n;

destroy_list:
	lib->doca_devinfo_destroy_list(devinfos);
	return result;
}

void
adma_devices_free(struct adma_devinfo *list)
{
	free(list);
}

/* Open the listed device with this address; the entry dies with the list, the opened device does not. */
static doca_error_t
open_listed(struct adma_library *lib, const char *pci_addr, struct doca_dev **dev,
	    struct adma_failure *failure)
{
	struct doca_devinfo **devinfos;
	char address[DOCA_DEVINFO_PCI_ADDR_SIZE];
	uint32_t n = 0;
	doca_error_t result;

	result = lib->doca_devinfo_create_list(&devinfos, &n);
	if (result != DOCA_SUCCESS) {
		FAIL(failure, result, "doca_devinfo_create_list");
		return result;
	}
	result = DOCA_ERROR_NOT_FOUND;
	FAIL(failure, result, "doca_devinfo_create_list");
	for (uint32_t i = 0; i < n; i++) {
		if (lib->doca_devinfo_get_pci_addr_str(devinfos[i], address) == DOCA_SUCCESS &&
		    strcmp(address, pci_addr) == 0) {
			result = lib->doca_dev_open(devinfos[i], dev);
			if (result != DOCA_SUCCESS) {
				FAIL(failure, result, "doca_dev_open");
			}
			break;
		}
	}
	lib->doca_devinfo_destroy_list(devinfos);
	return result;
}

doca_error_t
adma_device_open(struct adma_library *lib, const char *pci_addr, struct adma_device **out,
		 struct adma_failure *failure)
{
	struct adma_device *device = calloc(1, sizeof(*device));
	doca_error_t result;

	if (device == NULL) {
		FAIL(failure, DOCA_ERROR_NO_MEMORY, "calloc");
		return DOCA_ERROR_NO_MEMORY;
	}
	device->library = lib;
	result = open_listed(lib, pci_addr, &device->dev, failure);
	if (result != DOCA_SUCCESS) {
		goto free_device;
	}
	result = describe(lib, lib->doca_dev_as_devinfo(device->dev), &device->info, failure);
	if (result != DOCA_SUCCESS) {
		goto close_dev;
	}
	if (device->info.memcpy_supported != DOCA_SUCCESS) {
		result = device->info.memcpy_supported;
		FAIL(failure, result, "doca_dma_cap_task_memcpy_is_supported");
		goto close_dev;
	}
	*out = device;
	return DOCA_SUCCESS;

close_dev:
	lib->doca_dev_close(device->dev);
free_device:
	free(device);
	return result;
}

doca_error_t
adma_device_close(struct adma_device *device)
{
	doca_error_t result = device->library->doca_dev_close(device->dev);

	if (result == DOCA_SUCCESS) {
		free(device);
	}
	return result;
}

void *
adma_device_doca(const struct adma_device *device)
{
	return device->dev;
}

doca_error_t
adma_device_query(struct adma_device *device, struct adma_caps *caps, struct adma_failure *failure)
{
	struct adma_library *lib = device->library;
	const struct doca_devinfo *devinfo = lib->doca_dev_as_devinfo(device->dev);
	doca_error_t result = lib->doca_dma_cap_task_memcpy_is_supported(devinfo);

	if (result != DOCA_SUCCESS) {
		FAIL(failure, result, "doca_dma_cap_task_memcpy_is_supported");
		return result;
	}
	return query_caps(lib, devinfo, caps, failure);
}

doca_error_t
adma_device_num_tasks(struct adma_library *lib, const char *pci_addr, uint32_t *num_tasks,
		      struct adma_failure *failure)
{
	struct doca_dev *dev;
	struct doca_dma *dma;
	uint32_t answer;
	doca_error_t result;

	result = open_listed(lib, pci_addr, &dev, failure);
	if (result != DOCA_SUCCESS) {
		return result;
	}
	result = lib->doca_dma_create(dev, &dma);
	if (result != DOCA_SUCCESS) {
		FAIL(failure, result, "doca_dma_create");
		goto close_dev;
	}
	result = lib->doca_dma_cap_get_max_num_tasks(dma, &answer);
	if (result != DOCA_SUCCESS) {
		FAIL(failure, result, "doca_dma_cap_get_max_num_tasks");
	} else {
		*num_tasks = answer;
	}
	lib->doca_dma_destroy(dma);
close_dev:
	lib->doca_dev_close(dev);
	return result;
}
