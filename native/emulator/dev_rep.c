/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doca_dev.h: representors and the capabilities the emulator does not have.
 *
 * No representor is ever listed, so whatever is given as one is a foreign object.
 */
#include "emu.h"

#include <stdlib.h>

#define EMU_MAGIC_REP 0x0e5d0009u

/* The array of an empty list; its address tells it from others. */
static struct doca_devinfo_rep *no_reps[1];

static doca_error_t
answer_no(const struct doca_devinfo *devinfo, uint8_t *answer, const char *func)
{
	if (!emu_is(devinfo, EMU_MAGIC_DEVINFO)) {
		return emu_bad_object(func, devinfo, EMU_MAGIC_DEVINFO);
	}
	EMU_CHECK_OUT(answer);
	*answer = 0;
	return DOCA_SUCCESS;
}

doca_error_t
doca_devinfo_cap_is_accelerate_resource_reclaim_supported(const struct doca_devinfo *devinfo,
							  uint8_t *is_accelerate_resource_reclaim)
{
	EMU_ENTER("devinfo_cap_is_accelerate_resource_reclaim_supported");
	return answer_no(devinfo, is_accelerate_resource_reclaim, __func__);
}

doca_error_t
doca_devinfo_cap_is_notification_moderation_supported(const struct doca_devinfo *devinfo,
						      uint8_t *is_notification_moderation_supported)
{
	EMU_ENTER("devinfo_cap_is_notification_moderation_supported");
	return answer_no(devinfo, is_notification_moderation_supported, __func__);
}

doca_error_t
doca_devinfo_cap_is_hotplug_manager_supported(const struct doca_devinfo *devinfo,
					      uint8_t *is_hotplug_manager)
{
	EMU_ENTER("devinfo_cap_is_hotplug_manager_supported");
	return answer_no(devinfo, is_hotplug_manager, __func__);
}

doca_error_t
doca_devinfo_rep_cap_is_filter_all_supported(const struct doca_devinfo *devinfo,
					     uint8_t *filter_all_supported)
{
	EMU_ENTER("devinfo_rep_cap_is_filter_all_supported");
	return answer_no(devinfo, filter_all_supported, __func__);
}

doca_error_t
doca_devinfo_rep_cap_is_filter_emulated_supported(const struct doca_devinfo *devinfo,
						  uint8_t *filter_emulated_supported)
{
	EMU_ENTER("devinfo_rep_cap_is_filter_emulated_supported");
	return answer_no(devinfo, filter_emulated_supported, __func__);
}

doca_error_t
doca_devinfo_rep_cap_is_filter_net_supported(const struct doca_devinfo *devinfo,
					     uint8_t *filter_net_supported)
{
	EMU_ENTER("devinfo_rep_cap_is_filter_net_supported");
	return answer_no(devinfo, filter_net_supported, __func__);
}

doca_error_t
doca_devinfo_rep_create_list(struct doca_dev *dev, int filter,
			     struct doca_devinfo_rep ***dev_list_rep, uint32_t *nb_devs_rep)
{
	EMU_ENTER("devinfo_rep_create_list");
	EMU_CHECK(dev, EMU_MAGIC_DEV);
	EMU_CHECK_OUT(dev_list_rep);
	EMU_CHECK_OUT(nb_devs_rep);
	if (filter != DOCA_DEVINFO_REP_FILTER_ALL && filter != DOCA_DEVINFO_REP_FILTER_NET &&
	    filter != DOCA_DEVINFO_REP_FILTER_EMULATED) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	*dev_list_rep = no_reps;
	*nb_devs_rep = 0;
	return DOCA_SUCCESS;
}

doca_error_t
doca_devinfo_rep_destroy_list(struct doca_devinfo_rep **dev_list_rep)
{
	EMU_ENTER("devinfo_rep_destroy_list");
	return dev_list_rep == no_reps ? DOCA_SUCCESS : DOCA_ERROR_INVALID_VALUE;
}

doca_error_t
doca_devinfo_rep_get_iface_name(const struct doca_devinfo_rep *devinfo_rep, char *iface_name,
				uint32_t size)
{
	(void)iface_name;
	(void)size;
	EMU_ENTER("devinfo_rep_get_iface_name");
	return emu_bad_object(__func__, devinfo_rep, EMU_MAGIC_REP);
}

doca_error_t
doca_devinfo_rep_get_vhca_id(const struct doca_devinfo_rep *devinfo_rep, uint16_t *vhca_id)
{
	(void)vhca_id;
	EMU_ENTER("devinfo_rep_get_vhca_id");
	return emu_bad_object(__func__, devinfo_rep, EMU_MAGIC_REP);
}

doca_error_t
doca_devinfo_rep_get_is_hotplug(const struct doca_devinfo_rep *devinfo_rep, uint8_t *is_hotplug)
{
	(void)is_hotplug;
	EMU_ENTER("devinfo_rep_get_is_hotplug");
	return emu_bad_object(__func__, devinfo_rep, EMU_MAGIC_REP);
}

doca_error_t
doca_devinfo_rep_get_pci_addr_str(const struct doca_devinfo_rep *devinfo_rep, char *pci_addr_str)
{
	(void)pci_addr_str;
	EMU_ENTER("devinfo_rep_get_pci_addr_str");
	return emu_bad_object(__func__, devinfo_rep, EMU_MAGIC_REP);
}

doca_error_t
doca_devinfo_rep_get_pci_func_type(const struct doca_devinfo_rep *devinfo_rep,
				   enum doca_pci_func_type *pci_func_type)
{
	(void)pci_func_type;
	EMU_ENTER("devinfo_rep_get_pci_func_type");
	return emu_bad_object(__func__, devinfo_rep, EMU_MAGIC_REP);
}

doca_error_t
doca_devinfo_rep_get_vuid(const struct doca_devinfo_rep *devinfo_rep, char *rep_vuid, uint32_t size)
{
	(void)rep_vuid;
	(void)size;
	EMU_ENTER("devinfo_rep_get_vuid");
	return emu_bad_object(__func__, devinfo_rep, EMU_MAGIC_REP);
}

doca_error_t
doca_devinfo_rep_is_equal_pci_addr(const struct doca_devinfo_rep *devinfo_rep,
				   const char *pci_addr_str, uint8_t *is_equal)
{
	(void)pci_addr_str;
	(void)is_equal;
	EMU_ENTER("devinfo_rep_is_equal_pci_addr");
	return emu_bad_object(__func__, devinfo_rep, EMU_MAGIC_REP);
}

doca_error_t
doca_dev_rep_open(struct doca_devinfo_rep *devinfo, struct doca_dev_rep **dev_rep)
{
	(void)dev_rep;
	EMU_ENTER("dev_rep_open");
	return emu_bad_object(__func__, devinfo, EMU_MAGIC_REP);
}

doca_error_t
doca_dev_rep_close(struct doca_dev_rep *dev)
{
	EMU_ENTER("dev_rep_close");
	if (dev == NULL) {
		return DOCA_SUCCESS;
	}
	return emu_bad_object(__func__, dev, EMU_MAGIC_REP);
}

struct doca_devinfo_rep *
doca_dev_rep_as_devinfo(struct doca_dev_rep *dev_rep)
{
	emu_bad_object(__func__, dev_rep, EMU_MAGIC_REP);
	return NULL;
}
