/* SPDX-License-Identifier: Apache-2.0 */
/* Memory maps: ranges that devices may reach. */
#ifndef DOCA_MMAP_H_
#define DOCA_MMAP_H_

#include <stddef.h>
#include <stdint.h>

#include <doca_compat.h>
#include <doca_error.h>
#include <doca_types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct doca_dev;
struct doca_devinfo;
struct doca_dpa;
struct doca_mmap;

/* A map as a DPA sees it. */
typedef uint32_t doca_dpa_dev_mmap_t;

/** Called when a map is destroyed: range, and the cookie given with the callback. */
typedef void(doca_mmap_memrange_free_cb_t)(void *addr, size_t len, void *cookie);

/**
 * Create an empty memory map, the caller's until doca_mmap_destroy.
 * @retval DOCA_ERROR_INVALID_VALUE
 * @retval DOCA_ERROR_NO_MEMORY
 */
DOCA_STABLE
doca_error_t
doca_mmap_create(struct doca_mmap **mmap);

/**
 * Destroy a memory map, stopping it first; calls the free callback if the map was ever started.
 * The memory itself is not touched.
 * @retval DOCA_ERROR_INVALID_VALUE
 * @retval DOCA_ERROR_NOT_PERMITTED bufs point into it, or a context that used it is not destroyed
 * (emulator setting map_lifetime)
 */
DOCA_STABLE
doca_error_t
doca_mmap_destroy(struct doca_mmap *mmap);

/**
 * Register the range with the devices.
 * @retval DOCA_ERROR_INVALID_VALUE no range or no device
 * @retval DOCA_ERROR_NO_MEMORY
 * @retval DOCA_ERROR_NOT_PERMITTED created from an export, or more memory than may be locked
 */
DOCA_STABLE
doca_error_t
doca_mmap_start(struct doca_mmap *mmap);

/**
 * Give up the registration; the map can be started again.
 * @retval DOCA_ERROR_NOT_PERMITTED created from an export, bufs point into it, or exported
 * (emulator setting export_stop)
 */
DOCA_STABLE
doca_error_t
doca_mmap_stop(struct doca_mmap *mmap);

/**
 * Let a device reach the memory; before start.
 * @retval DOCA_ERROR_NOT_PERMITTED started, or created from an export
 * @retval DOCA_ERROR_NO_MEMORY limit of doca_mmap_set_max_num_devices reached
 * @retval DOCA_ERROR_ALREADY_EXIST
 */
DOCA_STABLE
doca_error_t
doca_mmap_add_dev(struct doca_mmap *mmap, struct doca_dev *dev);

/**
 * Take a device away; before start.
 * @retval DOCA_ERROR_NOT_FOUND
 * @retval DOCA_ERROR_NOT_PERMITTED started, or created from an export
 */
DOCA_STABLE
doca_error_t
doca_mmap_rm_dev(struct doca_mmap *mmap, struct doca_dev *dev);

/**
 * Set the range, once in the life of the map.
 * @retval DOCA_ERROR_INVALID_VALUE NULL, empty, or past the end of the address space
 * @retval DOCA_ERROR_BAD_STATE started
 * @retval DOCA_ERROR_NOT_PERMITTED already set
 */
DOCA_STABLE
doca_error_t
doca_mmap_set_memrange(struct doca_mmap *mmap, void *addr, size_t len);

/**
 * The range; of an imported map the exporter's.
 * @retval DOCA_ERROR_BAD_STATE never set
 */
DOCA_STABLE
doca_error_t
doca_mmap_get_memrange(const struct doca_mmap *mmap, void **addr, size_t *len);

/**
 * Set the range to a dma-buf, once in the life of the map; codes as doca_mmap_set_memrange.
 * @retval DOCA_ERROR_NOT_SUPPORTED on the emulator for what is otherwise right
 */
DOCA_STABLE
doca_error_t
doca_mmap_set_dmabuf_memrange(struct doca_mmap *mmap, int dmabuf_fd, void *addr,
			      size_t dmabuf_offset, size_t len);

/**
 * Set who may touch the memory, or'ed from enum doca_access_flag; local read and write unless set.
 * @retval DOCA_ERROR_INVALID_VALUE undefined bit, or both PCI flags
 * @retval DOCA_ERROR_BAD_STATE started
 */
DOCA_STABLE
doca_error_t
doca_mmap_set_permissions(struct doca_mmap *mmap, uint32_t access_mask);

/**
 * Set how many devices may be added.
 * @retval DOCA_ERROR_INVALID_VALUE 0, or fewer than were added
 * @retval DOCA_ERROR_NOT_PERMITTED the map was started once
 */
DOCA_STABLE
doca_error_t
doca_mmap_set_max_num_devices(struct doca_mmap *mmap, uint32_t max_num_devices);

/** How many devices may be added. */
DOCA_STABLE
doca_error_t
doca_mmap_get_max_num_devices(const struct doca_mmap *mmap, uint32_t *max_num_devices);

/**
 * Set what is called with range and `opaque` when the map is destroyed.
 * @retval DOCA_ERROR_BAD_STATE started
 */
DOCA_STABLE
doca_error_t
doca_mmap_set_free_cb(struct doca_mmap *mmap, doca_mmap_memrange_free_cb_t *free_cb, void *opaque);

/**
 * Keep a word of the user's.
 * @retval DOCA_ERROR_BAD_STATE started
 */
DOCA_STABLE
doca_error_t
doca_mmap_set_user_data(struct doca_mmap *mmap, union doca_data user_data);

/** The word kept by doca_mmap_set_user_data. */
DOCA_STABLE
doca_error_t
doca_mmap_get_user_data(const struct doca_mmap *mmap, union doca_data *user_data);

/** How many bufs point into the map. Not maintained after doca_mmap_enable_thread_safety. */
DOCA_STABLE
doca_error_t
doca_mmap_get_num_bufs(const struct doca_mmap *mmap, uint32_t *num_bufs);

/**
 * Make a descriptor with which the other side of the PCI bus reaches the memory. It belongs to the
 * map and dies when the map is stopped or destroyed.
 * @retval DOCA_ERROR_NOT_FOUND the device was not added
 * @retval DOCA_ERROR_NOT_PERMITTED not started, created from an export, or no PCI permission
 * @retval DOCA_ERROR_NOT_SUPPORTED the device cannot
 * @retval DOCA_ERROR_DRIVER no socket or thread is left to serve it
 */
DOCA_STABLE
doca_error_t
doca_mmap_export_pci(struct doca_mmap *mmap, const struct doca_dev *dev, const void **export_desc,
		     size_t *export_desc_len);

/**
 * Make a descriptor for RDMA peers; codes as doca_mmap_export_pci.
 * @retval DOCA_ERROR_NOT_SUPPORTED always so on the emulator
 */
DOCA_STABLE
doca_error_t
doca_mmap_export_rdma(struct doca_mmap *mmap, const struct doca_dev *dev, const void **export_desc,
		      size_t *export_desc_len);

/**
 * Make a map of the memory another process exported; usable at once, without start.
 * @param[in] user_data may be NULL
 * @retval DOCA_ERROR_INVALID_VALUE not a descriptor, or a forged one
 * @retval DOCA_ERROR_NOT_SUPPORTED the device cannot
 * @retval DOCA_ERROR_NOT_PERMITTED exported no longer, or not to this user
 * @retval DOCA_ERROR_DRIVER the exporter does not answer
 */
DOCA_STABLE
doca_error_t
doca_mmap_create_from_export(const union doca_data *user_data, const void *export_desc,
			     size_t export_desc_len, struct doca_dev *dev, struct doca_mmap **mmap);

/** 1 once the map was exported, else 0. */
DOCA_STABLE
doca_error_t
doca_mmap_get_exported(const struct doca_mmap *mmap, uint8_t *exported);

/** 1 for a map created from an export, else 0. */
DOCA_STABLE
doca_error_t
doca_mmap_get_from_export(const struct doca_mmap *mmap, uint8_t *from_export);

/** Whether doca_mmap_export_pci works with this device. */
DOCA_STABLE
doca_error_t
doca_mmap_cap_is_export_pci_supported(const struct doca_devinfo *devinfo, uint8_t *mmap_export);

/** Whether doca_mmap_create_from_export works with this device. */
DOCA_STABLE
doca_error_t
doca_mmap_cap_is_create_from_export_pci_supported(const struct doca_devinfo *devinfo,
						  uint8_t *from_export);

/**
 * Allow bufs of this map to be taken and dropped in several threads at once.
 * @retval DOCA_ERROR_NOT_PERMITTED started, or bufs point into it
 */
DOCA_EXPERIMENTAL
doca_error_t
doca_mmap_enable_thread_safety(struct doca_mmap *mmap);

/**
 * Map memory of a DPA.
 * @retval DOCA_ERROR_NOT_SUPPORTED always so on the emulator
 */
DOCA_EXPERIMENTAL
doca_error_t
doca_mmap_set_dpa_memrange(struct doca_mmap *mmap, struct doca_dpa *dpa, uint64_t dpa_addr,
			   size_t len);

/**
 * The map as a DPA sees it.
 * @retval DOCA_ERROR_NOT_SUPPORTED always so on the emulator
 */
DOCA_EXPERIMENTAL
doca_error_t
doca_mmap_dev_get_dpa_handle(struct doca_mmap *mmap, const struct doca_dev *dev,
			     doca_dpa_dev_mmap_t *dpa_mmap_handle);

#ifdef __cplusplus
}
#endif

#endif /* DOCA_MMAP_H_ */
