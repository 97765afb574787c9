/* SPDX-License-Identifier: Apache-2.0 */
/* Devices: listing, properties, opening. */
#ifndef DOCA_DEV_H_
#define DOCA_DEV_H_

#include <stdint.h>

#include <doca_compat.h>
#include <doca_error.h>
#include <doca_types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DOCA_DEVINFO_PCI_ADDR_SIZE 13
#define DOCA_DEVINFO_PCI_BDF_SIZE 8
#define DOCA_DEVINFO_IBDEV_NAME_SIZE 64
#define DOCA_DEVINFO_IFACE_NAME_SIZE 256
#define DOCA_DEVINFO_MAC_ADDR_SIZE 6
#define DOCA_DEVINFO_IPV4_ADDR_SIZE 4
#define DOCA_DEVINFO_IPV6_ADDR_SIZE 16
#define DOCA_DEVINFO_VUID_SIZE 128
#define DOCA_DEVINFO_REP_VUID_SIZE 128
#define DOCA_DEVINFO_REP_PCI_ADDR_SIZE 13
#define DOCA_DEVINFO_REP_PCI_BDF_SIZE 8

/* Which representors to list. */
enum doca_devinfo_rep_filter {
	DOCA_DEVINFO_REP_FILTER_ALL = 0,
	DOCA_DEVINFO_REP_FILTER_NET = 2,
	DOCA_DEVINFO_REP_FILTER_EMULATED = 4,
};

struct doca_dev;
struct doca_devinfo;
struct doca_dev_rep;
struct doca_devinfo_rep;

/**
 * List the devices of this machine.
 * @param[out] dev_list array of entries, the caller's until doca_devinfo_destroy_list
 * @param[out] nb_devs number of entries; 0 is a valid answer
 * @retval DOCA_ERROR_INVALID_VALUE an argument is NULL
 * @retval DOCA_ERROR_NO_MEMORY
 * Any thread.
 */
DOCA_STABLE
doca_error_t
doca_devinfo_create_list(struct doca_devinfo ***dev_list, uint32_t *nb_devs);

/**
 * Give a list back; its entries die, devices opened from them stay.
 * @retval DOCA_ERROR_INVALID_VALUE not a list of doca_devinfo_create_list
 * @retval DOCA_ERROR_IN_USE an entry is damaged
 */
DOCA_STABLE
doca_error_t
doca_devinfo_destroy_list(struct doca_devinfo **dev_list);

/**
 * Compare with "dddd:bb:dd.f" or "bb:dd.f" (then domain 0000); 1 when equal, else 0.
 * @retval DOCA_ERROR_INVALID_VALUE not a PCI address
 */
DOCA_STABLE
doca_error_t
doca_devinfo_is_equal_pci_addr(const struct doca_devinfo *devinfo, const char *pci_addr_str,
			       uint8_t *is_equal);

/**
 * PCI address as "dddd:bb:dd.f".
 * @param[out] pci_addr_str DOCA_DEVINFO_PCI_ADDR_SIZE bytes; there is no size argument
 */
DOCA_STABLE
doca_error_t
doca_devinfo_get_pci_addr_str(const struct doca_devinfo *devinfo, char *pci_addr_str);

/**
 * Name of the RDMA device, for instance "mlx5_0".
 * @param[in] size at least DOCA_DEVINFO_IBDEV_NAME_SIZE
 * @retval DOCA_ERROR_INVALID_VALUE too small
 */
DOCA_STABLE
doca_error_t
doca_devinfo_get_ibdev_name(const struct doca_devinfo *devinfo, char *ibdev_name, uint32_t size);

/**
 * Name of the network interface, for instance "p0".
 * @param[in] size at least DOCA_DEVINFO_IFACE_NAME_SIZE
 * @retval DOCA_ERROR_INVALID_VALUE too small
 */
DOCA_STABLE
doca_error_t
doca_devinfo_get_iface_name(const struct doca_devinfo *devinfo, char *iface_name, uint32_t size);

/**
 * MAC address; `size` at least DOCA_DEVINFO_MAC_ADDR_SIZE.
 * @retval DOCA_ERROR_INVALID_VALUE too small
 */
DOCA_STABLE
doca_error_t
doca_devinfo_get_mac_addr(const struct doca_devinfo *devinfo, uint8_t *mac_addr, uint32_t size);

/**
 * IPv4 address; `size` at least DOCA_DEVINFO_IPV4_ADDR_SIZE.
 * @retval DOCA_ERROR_NOT_FOUND none assigned (always so on the emulator)
 */
DOCA_STABLE
doca_error_t
doca_devinfo_get_ipv4_addr(const struct doca_devinfo *devinfo, uint8_t *ipv4_addr, uint32_t size);

/**
 * IPv6 address; `size` at least DOCA_DEVINFO_IPV6_ADDR_SIZE.
 * @retval DOCA_ERROR_NOT_FOUND none assigned (always so on the emulator)
 */
DOCA_STABLE
doca_error_t
doca_devinfo_get_ipv6_addr(const struct doca_devinfo *devinfo, uint8_t *ipv6_addr, uint32_t size);

/**
 * InfiniBand LID.
 * @retval DOCA_ERROR_NOT_SUPPORTED the link is Ethernet (always so on the emulator)
 */
DOCA_STABLE
doca_error_t
doca_devinfo_get_lid(const struct doca_devinfo *devinfo, uint16_t *lid);

/**
 * Open a device; the same device opened twice is the same object and needs two closes.
 * @retval DOCA_ERROR_INVALID_VALUE an argument is NULL or no devinfo
 * @retval DOCA_ERROR_NO_MEMORY
 * Any thread. The caller closes it with doca_dev_close.
 */
DOCA_STABLE
doca_error_t
doca_dev_open(struct doca_devinfo *devinfo, struct doca_dev **dev);

/**
 * Close once; NULL is accepted.
 * @retval DOCA_ERROR_IN_USE the last close, and an mmap or a context still uses the device
 */
DOCA_STABLE
doca_error_t
doca_dev_close(struct doca_dev *dev);

/** The devinfo of an open device, valid as long as it is open; NULL for an invalid device. */
DOCA_STABLE
struct doca_devinfo *
doca_dev_as_devinfo(const struct doca_dev *dev);

/**
 * Free kernel resources sooner.
 * @retval DOCA_ERROR_NOT_SUPPORTED always so on the emulator
 */
DOCA_EXPERIMENTAL
doca_error_t
doca_dev_accelerate_resource_reclaim(struct doca_dev *dev);

/** Whether doca_dev_accelerate_resource_reclaim works: 0 on the emulator. */
DOCA_EXPERIMENTAL
doca_error_t
doca_devinfo_cap_is_accelerate_resource_reclaim_supported(const struct doca_devinfo *devinfo,
							  uint8_t *is_accelerate_resource_reclaim);

/** Whether notifications can be moderated: 0 on the emulator. */
DOCA_EXPERIMENTAL
doca_error_t
doca_devinfo_cap_is_notification_moderation_supported(
	const struct doca_devinfo *devinfo, uint8_t *is_notification_moderation_supported);

/** Link rate in bit/s. */
DOCA_EXPERIMENTAL
doca_error_t
doca_devinfo_get_active_rate(const struct doca_devinfo *devinfo, uint64_t *active_rate);

/** Number of the virtual HCA. */
DOCA_EXPERIMENTAL
doca_error_t
doca_devinfo_get_vhca_id(const struct doca_devinfo *devinfo, uint16_t *vhca_id);

/** Kind of PCI function: always a physical one on the emulator. */
DOCA_EXPERIMENTAL
doca_error_t
doca_devinfo_get_pci_func_type(const struct doca_devinfo *devinfo,
			       enum doca_pci_func_type *pci_func_type);

/**
 * Index of a sub-function.
 * @retval DOCA_ERROR_NOT_SUPPORTED not a sub-function (always so on the emulator)
 */
DOCA_EXPERIMENTAL
doca_error_t
doca_devinfo_get_sf_index(const struct doca_devinfo *devinfo, uint32_t *sf_index);

/** Interface name of a representor. The emulator lists no representor, so none can be asked. */
DOCA_EXPERIMENTAL
doca_error_t
doca_devinfo_rep_get_iface_name(const struct doca_devinfo_rep *devinfo_rep, char *iface_name,
				uint32_t size);

/** Virtual HCA of a representor. */
DOCA_EXPERIMENTAL
doca_error_t
doca_devinfo_rep_get_vhca_id(const struct doca_devinfo_rep *devinfo_rep, uint16_t *vhca_id);

/** Close a representor; NULL is accepted. */
DOCA_STABLE
doca_error_t
doca_dev_rep_close(struct doca_dev_rep *dev);

/**
 * Open a representor.
 * @retval DOCA_ERROR_INVALID_VALUE not a representor (always so on the emulator)
 */
DOCA_STABLE
doca_error_t
doca_dev_rep_open(struct doca_devinfo_rep *devinfo, struct doca_dev_rep **dev_rep);

/** Whether the device manages hot-plug: 0 on the emulator. */
DOCA_STABLE
doca_error_t
doca_devinfo_cap_is_hotplug_manager_supported(const struct doca_devinfo *devinfo,
					      uint8_t *is_hotplug_manager);

/** Whether DOCA_DEVINFO_REP_FILTER_ALL works: 0 on the emulator. */
DOCA_STABLE
doca_error_t
doca_devinfo_rep_cap_is_filter_all_supported(const struct doca_devinfo *devinfo,
					     uint8_t *filter_all_supported);

/** Whether DOCA_DEVINFO_REP_FILTER_EMULATED works: 0 on the emulator. */
DOCA_STABLE
doca_error_t
doca_devinfo_rep_cap_is_filter_emulated_supported(const struct doca_devinfo *devinfo,
						  uint8_t *filter_emulated_supported);

/** Whether DOCA_DEVINFO_REP_FILTER_NET works: 0 on the emulator. */
DOCA_STABLE
doca_error_t
doca_devinfo_rep_cap_is_filter_net_supported(const struct doca_devinfo *devinfo,
					     uint8_t *filter_net_supported);

/**
 * List the representors of an open device: an empty list on the emulator.
 * @retval DOCA_ERROR_INVALID_VALUE
 */
DOCA_STABLE
doca_error_t
doca_devinfo_rep_create_list(struct doca_dev *dev, int filter,
			     struct doca_devinfo_rep ***dev_list_rep, uint32_t *nb_devs_rep);

/** Give a list of representors back. */
DOCA_STABLE
doca_error_t
doca_devinfo_rep_destroy_list(struct doca_devinfo_rep **dev_list_rep);

/** Whether a representor was hot-plugged. */
DOCA_STABLE
doca_error_t
doca_devinfo_rep_get_is_hotplug(const struct doca_devinfo_rep *devinfo_rep, uint8_t *is_hotplug);

/** PCI address of a representor. */
DOCA_STABLE
doca_error_t
doca_devinfo_rep_get_pci_addr_str(const struct doca_devinfo_rep *devinfo_rep, char *pci_addr_str);

/** Kind of PCI function behind a representor. */
DOCA_STABLE
doca_error_t
doca_devinfo_rep_get_pci_func_type(const struct doca_devinfo_rep *devinfo_rep,
				   enum doca_pci_func_type *pci_func_type);

/** VUID of a representor; `size` at least DOCA_DEVINFO_REP_VUID_SIZE. */
DOCA_STABLE
doca_error_t
doca_devinfo_rep_get_vuid(const struct doca_devinfo_rep *devinfo_rep, char *rep_vuid,
			  uint32_t size);

/** Compare a representor with a PCI address. */
DOCA_STABLE
doca_error_t
doca_devinfo_rep_is_equal_pci_addr(const struct doca_devinfo_rep *devinfo_rep,
				   const char *pci_addr_str, uint8_t *is_equal);

/** The devinfo of an open representor; NULL for an invalid one. */
DOCA_STABLE
struct doca_devinfo_rep *
doca_dev_rep_as_devinfo(struct doca_dev_rep *dev_rep);

#ifdef __cplusplus
}
#endif

#endif /* DOCA_DEV_H_ */
