/* SPDX-License-Identifier: Apache-2.0 */
/* Devices: what the library lists, what each can do, and one of them opened. */
#ifndef ADMA_DEVICE_H
#define ADMA_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "library.h"

/* What the device answered, asked once per snapshot; every size decision reads this and nothing else. */
struct adma_caps {
	uint64_t max_buf_size;	   /* bytes a memcpy task may move */
	uint32_t max_buf_list_len; /* elements a buf list may have; 1: no lists */
	uint32_t max_num_tasks;	   /* per context; 0 until a context was created */
	uint8_t export_pci;
	uint8_t create_from_export_pci;
};

struct adma_devinfo {
	char pci_addr[DOCA_DEVINFO_PCI_ADDR_SIZE];
	char ibdev_name[DOCA_DEVINFO_IBDEV_NAME_SIZE];
	char iface_name[DOCA_DEVINFO_IFACE_NAME_SIZE];
	doca_error_t memcpy_supported; /* what doca_dma_cap_task_memcpy_is_supported() answered */
	struct adma_caps caps;	       /* zero where memcpy is not supported */
};

struct adma_device {
	struct adma_library *library;
	struct doca_dev *dev;
	struct adma_devinfo info; /* of the opened device, not of a sibling */
};

/**
 * List the devices with their capabilities.
 *
 * @param[in] library a loaded library
 * @param[out] list array of count entries, to be freed with adma_devices_free()
 * @param[out] count entries
 * @param[out] failure the call that failed
 * @retval DOCA_SUCCESS listed (perhaps none)
 * Threads: any; may reach firmware.
 */
doca_error_t
adma_devices_list(struct adma_library *library, struct adma_devinfo **list, uint32_t *count,
		  struct adma_failure *failure);

void
adma_devices_free(struct adma_devinfo *list);

/**
 * Open the device with this PCI address and query it again.
 *
 * @param[in] library a loaded library
 * @param[in] pci_addr as adma_devices_list() gave it
 * @param[out] device to be closed with adma_device_close()
 * @param[out] failure the call that failed
 * @retval DOCA_SUCCESS open
 * @retval DOCA_ERROR_NOT_FOUND no such device
 * Threads: any; may reach firmware.
 */
doca_error_t
adma_device_open(struct adma_library *library, const char *pci_addr, struct adma_device **device,
		 struct adma_failure *failure);

/** Close and free; the code is doca_dev_close()'s, and on an error the struct is leaked with the device. */
doca_error_t
adma_device_close(struct adma_device *device);

/** The doca_dev of an open device. */
void *
adma_device_doca(const struct adma_device *device);

/**
 * Ask an opened device anew: whether it can, and how much; max_num_tasks is 0, for that needs a context.
 *
 * @retval DOCA_SUCCESS caps are filled
 * @retval other what failure->call answered
 * Threads: any; may reach firmware.
 */
doca_error_t
adma_device_query(struct adma_device *device, struct adma_caps *caps, struct adma_failure *failure);

/**
 * How many tasks a context of a listed device may have: opens the device and makes a context, which is never started.
 *
 * @param[in] library a loaded library
 * @param[in] pci_addr as adma_devices_list() gave it
 * @param[out] num_tasks
 * @param[out] failure the call that failed
 * @retval DOCA_SUCCESS answered; nothing is left open
 * Threads: any; may reach firmware.
 */
doca_error_t
adma_device_num_tasks(struct adma_library *library, const char *pci_addr, uint32_t *num_tasks,
		      struct adma_failure *failure);

#endif
