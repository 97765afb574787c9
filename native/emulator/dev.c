/* SPDX-License-Identifier: Apache-2.0 */
/* doca_dev.h: the configured devices, their list, opening and closing. */
#include "emu.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A list given to the user: the array he holds is the last member. */
struct devinfo_list {
	struct devinfo_list *next;
	uint32_t num;
	struct doca_devinfo *infos;
	struct doca_devinfo *entries[];
};

static struct emu_device *devices;	/* in order; emu_lock */
static struct emu_device *past_devices; /* replaced ones, which may be open; emu_lock */
static struct devinfo_list *lists;	/* emu_lock */
static bool devices_are_default = true; /* emu_lock */
static uint16_t next_index;

/* ---- configuration ---- */

static struct emu_device *
device_new(const char *ibdev, const char *pci, const char *iface)
{
	struct emu_device *device = calloc(1, sizeof(*device));

	if (device != NULL) {
		snprintf(device->ibdev, sizeof(device->ibdev), "%s", ibdev);
		snprintf(device->pci, sizeof(device->pci), "%s", pci);
		snprintf(device->iface, sizeof(device->iface), "%s", iface);
		device->dma = true;
		device->export_pci = true;
		device->import_pci = true;
	}
	return device;
}

/* emu_lock is held */
static void
devices_drop(void)
{
	while (devices != NULL) {
		struct emu_device *device = devices;

		devices = device->next;
		device->next = past_devices;
		past_devices = device;
	}
	next_index = 0;
}

/* emu_lock is held */
static void
device_append(struct emu_device *device)
{
	struct emu_device **link = &devices;

	while (*link != NULL) {
		link = &(*link)->next;
	}
	*link = device;
	device->index = next_index++;
}

/*
 * Go back to the one default device.
 *
 * @retval DOCA_SUCCESS
 * @retval DOCA_ERROR_NO_MEMORY nothing was changed
 */
doca_error_t
emu_devices_default(void)
{
	struct emu_device *device = device_new("mlx5_0", "0000:03:00.0", "p0");

	if (device == NULL) {
		return DOCA_ERROR_NO_MEMORY;
	}
	pthread_mutex_lock(&emu_lock);
	devices_drop();
	device_append(device);
	devices_are_default = true;
	pthread_mutex_unlock(&emu_lock);
	return DOCA_SUCCESS;
}

/* Free the devices that were replaced; nothing that could know them is alive. */
void
emu_devices_forget_past(void)
{
	pthread_mutex_lock(&emu_lock);
	while (past_devices != NULL) {
		struct emu_device *device = past_devices;

		past_devices = device->next;
		free(device);
	}
	pthread_mutex_unlock(&emu_lock);
}

/* Have no device; device lines add to that. */
void
emu_devices_none(void)
{
	pthread_mutex_lock(&emu_lock);
	devices_drop();
	devices_are_default = false;
	pthread_mutex_unlock(&emu_lock);
}

/*
 * Read "dddd:bb:dd.f" or "bb:dd.f".
 *
 * @retval DOCA_SUCCESS
 * @retval DOCA_ERROR_INVALID_VALUE neither
 */
doca_error_t
emu_parse_pci(const char *text, char out[DOCA_DEVINFO_PCI_ADDR_SIZE])
{
	static const char domain[] = "0000:";
	static const char form[] = "xxxx:xx:xx.x";
	size_t skipped = strlen(text) == DOCA_DEVINFO_PCI_BDF_SIZE - 1 ? sizeof(domain) - 1 : 0;
	char address[DOCA_DEVINFO_PCI_ADDR_SIZE];

	if (strlen(text) != sizeof(form) - 1 - skipped) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	memcpy(address, domain, skipped);
	for (size_t i = skipped; i < sizeof(form); i++) {
		char c = text[i - skipped];

		if (form[i] == 'x' ? !isxdigit((unsigned char)c) : c != form[i]) {
			return DOCA_ERROR_INVALID_VALUE;
		}
		address[i] = (char)tolower((unsigned char)c);
	}
	memcpy(out, address, sizeof(address));
	return DOCA_SUCCESS;
}

static doca_error_t
device_set(struct emu_device *device, const char *key, const char *value)
{
	uint64_t number;
	struct {
		const char *key;
		uint64_t *size;
		bool *flag;
		uint64_t max;
	} keys[] = {
		{"dma", NULL, &device->dma, 1},
		{"export_pci", NULL, &device->export_pci, 1},
		{"import_pci", NULL, &device->import_pci, 1},
		{"max_buf_size", &device->max_buf_size, NULL, UINT64_MAX},
		{"max_buf_list_len", &device->max_buf_list_len, NULL, UINT32_MAX},
		{"max_num_tasks", &device->max_num_tasks, NULL, 1u << 30},
	};

	if (strcmp(key, "pci") == 0) {
		return emu_parse_pci(value, device->pci);
	}
	if (strcmp(key, "iface") == 0) {
		if (strlen(value) >= sizeof(device->iface)) {
			return DOCA_ERROR_INVALID_VALUE;
		}
		snprintf(device->iface, sizeof(device->iface), "%s", value);
		return DOCA_SUCCESS;
	}
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		if (strcmp(key, keys[i].key) != 0) {
			continue;
		}
		if (emu_parse_number(value, &number) != DOCA_SUCCESS || number > keys[i].max ||
		    (keys[i].size != NULL && number == 0)) {
			return DOCA_ERROR_INVALID_VALUE;
		}
		if (keys[i].size != NULL) {
			*keys[i].size = number;
		} else {
			*keys[i].flag = number != 0;
		}
		return DOCA_SUCCESS;
	}
	return DOCA_ERROR_NOT_FOUND;
}

/* Add a device from the words behind "device"; the first one replaces the default. */
doca_error_t
emu_device_add(char *words, char *error, size_t error_size)
{
	struct emu_device *device;
	char pci[DOCA_DEVINFO_PCI_ADDR_SIZE];
	char iface[16];
	char *save = NULL;
	char *word = strtok_r(words, " \t", &save);
	uint32_t index;

	if (word == NULL || strchr(word, '=') != NULL ||
	    strlen(word) >= DOCA_DEVINFO_IBDEV_NAME_SIZE) {
		snprintf(error, error_size, "device: a name is missing or too long");
		return DOCA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_lock(&emu_lock);
	index = devices_are_default ? 0 : next_index;
	pthread_mutex_unlock(&emu_lock);
	snprintf(pci, sizeof(pci), "0000:%02x:00.0", (3 + index) & 0xff);
	snprintf(iface, sizeof(iface), "p%u", index);
	device = device_new(word, pci, iface);
	if (device == NULL) {
		return DOCA_ERROR_NO_MEMORY;
	}
	while ((word = strtok_r(NULL, " \t", &save)) != NULL) {
		char *value = strchr(word, '=');
		doca_error_t result = DOCA_ERROR_NOT_FOUND;

		if (value != NULL) {
			*value++ = '\0';
			result = device_set(device, word, value);
		}
		if (result != DOCA_SUCCESS) {
			snprintf(error, error_size, "device %s: %s '%s'", device->ibdev,
				 result == DOCA_ERROR_NOT_FOUND ? "unknown key" : "bad value of",
				 word);
			free(device);
			return DOCA_ERROR_INVALID_VALUE;
		}
	}
	pthread_mutex_lock(&emu_lock);
	if (devices_are_default) {
		devices_drop();
		devices_are_default = false;
	}
	device_append(device);
	pthread_mutex_unlock(&emu_lock);
	return DOCA_SUCCESS;
}

uint64_t
emu_device_max_buf_size(const struct emu_device *device)
{
	return device->max_buf_size != 0 ? device->max_buf_size : emu_get(EMU_MAX_BUF_SIZE);
}

uint64_t
emu_device_max_list_len(const struct emu_device *device)
{
	return device->max_buf_list_len != 0 ? device->max_buf_list_len
					     : emu_get(EMU_MAX_BUF_LIST_LEN);
}

uint64_t
emu_device_max_tasks(const struct emu_device *device)
{
	return device->max_num_tasks != 0 ? device->max_num_tasks : emu_get(EMU_MAX_NUM_TASKS);
}

/* What the parent opened is not the child's. */
void
emu_dev_fork_child(void)
{
	for (struct emu_device *device = devices; device != NULL; device = device->next) {
		device->open = NULL;
	}
	lists = NULL;
}

/* ---- lists ---- */

doca_error_t
doca_devinfo_create_list(struct doca_devinfo ***dev_list, uint32_t *nb_devs)
{
	struct devinfo_list *list;
	struct emu_device *device;
	uint32_t num = 0;

	EMU_ENTER("devinfo_create_list");
	EMU_CHECK_OUT(dev_list);
	EMU_CHECK_OUT(nb_devs);
	pthread_mutex_lock(&emu_lock);
	for (device = devices; device != NULL; device = device->next) {
		num++;
	}
	list = calloc(1, sizeof(*list) + (num + 1) * sizeof(list->entries[0]));
	if (list == NULL) {
		goto unlock;
	}
	list->infos = calloc(num + 1, sizeof(*list->infos));
	if (list->infos == NULL) {
		goto free_list;
	}
	list->num = num;
	num = 0;
	for (device = devices; device != NULL; device = device->next) {
		list->infos[num].object.magic = EMU_MAGIC_DEVINFO;
		list->infos[num].device = device;
		list->entries[num] = &list->infos[num];
		num++;
	}
	list->next = lists;
	lists = list;
	pthread_mutex_unlock(&emu_lock);
	emu_add(&emu_stats.live_lists, 1);
	*dev_list = list->entries;
	*nb_devs = num;
	return DOCA_SUCCESS;

free_list:
	free(list);
unlock:
	pthread_mutex_unlock(&emu_lock);
	return DOCA_ERROR_NO_MEMORY;
}

doca_error_t
doca_devinfo_destroy_list(struct doca_devinfo **dev_list)
{
	struct devinfo_list **link;
	struct devinfo_list *list;
	doca_error_t result = DOCA_SUCCESS;

	EMU_ENTER("devinfo_destroy_list");
	EMU_CHECK_OUT(dev_list);
	pthread_mutex_lock(&emu_lock);
	for (link = &lists; *link != NULL && (*link)->entries != dev_list; link = &(*link)->next) {
	}
	list = *link;
	if (list == NULL) {
		result = DOCA_ERROR_INVALID_VALUE;
	} else {
		for (uint32_t i = 0; i < list->num; i++) {
			if (list->entries[i] != &list->infos[i]) {
				result = DOCA_ERROR_IN_USE;
			}
		}
	}
	if (result == DOCA_SUCCESS) {
		*link = list->next;
	}
	pthread_mutex_unlock(&emu_lock);
	if (result != DOCA_SUCCESS) {
		emu_violation(__func__, dev_list, EMU_MAGIC_DEVINFO, "no list, or a damaged one");
		return result;
	}
	for (uint32_t i = 0; i < list->num; i++) {
		list->infos[i].object.magic |= EMU_DEAD;
	}
	emu_sub(&emu_stats.live_lists, 1);
	emu_retire(list->infos, (list->num + 1) * sizeof(*list->infos));
	free(list);
	return DOCA_SUCCESS;
}

/* ---- properties ---- */

doca_error_t
doca_devinfo_is_equal_pci_addr(const struct doca_devinfo *devinfo, const char *pci_addr_str,
			       uint8_t *is_equal)
{
	char pci[DOCA_DEVINFO_PCI_ADDR_SIZE];

	EMU_ENTER("devinfo_is_equal_pci_addr");
	EMU_CHECK(devinfo, EMU_MAGIC_DEVINFO);
	EMU_CHECK_OUT(pci_addr_str);
	EMU_CHECK_OUT(is_equal);
	if (emu_parse_pci(pci_addr_str, pci) != DOCA_SUCCESS) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	*is_equal = strcmp(pci, devinfo->device->pci) == 0;
	return DOCA_SUCCESS;
}

doca_error_t
doca_devinfo_get_pci_addr_str(const struct doca_devinfo *devinfo, char *pci_addr_str)
{
	EMU_ENTER("devinfo_get_pci_addr_str");
	EMU_CHECK(devinfo, EMU_MAGIC_DEVINFO);
	EMU_CHECK_OUT(pci_addr_str);
	memcpy(pci_addr_str, devinfo->device->pci, DOCA_DEVINFO_PCI_ADDR_SIZE);
	return DOCA_SUCCESS;
}

doca_error_t
doca_devinfo_get_ibdev_name(const struct doca_devinfo *devinfo, char *ibdev_name, uint32_t size)
{
	EMU_ENTER("devinfo_get_ibdev_name");
	EMU_CHECK(devinfo, EMU_MAGIC_DEVINFO);
	EMU_CHECK_OUT(ibdev_name);
	if (size < DOCA_DEVINFO_IBDEV_NAME_SIZE) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	memcpy(ibdev_name, devinfo->device->ibdev, DOCA_DEVINFO_IBDEV_NAME_SIZE);
	return DOCA_SUCCESS;
}

doca_error_t
doca_devinfo_get_iface_name(const struct doca_devinfo *devinfo, char *iface_name, uint32_t size)
{
	EMU_ENTER("devinfo_get_iface_name");
	EMU_CHECK(devinfo, EMU_MAGIC_DEVINFO);
	EMU_CHECK_OUT(iface_name);
	if (size < DOCA_DEVINFO_IFACE_NAME_SIZE) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	memcpy(iface_name, devinfo->device->iface, DOCA_DEVINFO_IFACE_NAME_SIZE);
	return DOCA_SUCCESS;
}

doca_error_t
doca_devinfo_get_mac_addr(const struct doca_devinfo *devinfo, uint8_t *mac_addr, uint32_t size)
{
	EMU_ENTER("devinfo_get_mac_addr");
	EMU_CHECK(devinfo, EMU_MAGIC_DEVINFO);
	EMU_CHECK_OUT(mac_addr);
	if (size < DOCA_DEVINFO_MAC_ADDR_SIZE) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	/* A locally administered address, one per device. */
	memset(mac_addr, 0, DOCA_DEVINFO_MAC_ADDR_SIZE);
	mac_addr[0] = 2;
	mac_addr[4] = (uint8_t)(devinfo->device->index >> 8);
	mac_addr[5] = (uint8_t)devinfo->device->index;
	return DOCA_SUCCESS;
}

doca_error_t
doca_devinfo_get_ipv4_addr(const struct doca_devinfo *devinfo, uint8_t *ipv4_addr, uint32_t size)
{
	EMU_ENTER("devinfo_get_ipv4_addr");
	EMU_CHECK(devinfo, EMU_MAGIC_DEVINFO);
	EMU_CHECK_OUT(ipv4_addr);
	return size < DOCA_DEVINFO_IPV4_ADDR_SIZE ? DOCA_ERROR_INVALID_VALUE : DOCA_ERROR_NOT_FOUND;
}

doca_error_t
doca_devinfo_get_ipv6_addr(const struct doca_devinfo *devinfo, uint8_t *ipv6_addr, uint32_t size)
{
	EMU_ENTER("devinfo_get_ipv6_addr");
	EMU_CHECK(devinfo, EMU_MAGIC_DEVINFO);
	EMU_CHECK_OUT(ipv6_addr);
	return size < DOCA_DEVINFO_IPV6_ADDR_SIZE ? DOCA_ERROR_INVALID_VALUE : DOCA_ERROR_NOT_FOUND;
}

doca_error_t
doca_devinfo_get_lid(const struct doca_devinfo *devinfo, uint16_t *lid)
{
	EMU_ENTER("devinfo_get_lid");
	EMU_CHECK(devinfo, EMU_MAGIC_DEVINFO);
	EMU_CHECK_OUT(lid);
	return DOCA_ERROR_NOT_SUPPORTED;
}

doca_error_t
doca_devinfo_get_active_rate(const struct doca_devinfo *devinfo, uint64_t *active_rate)
{
	EMU_ENTER("devinfo_get_active_rate");
	EMU_CHECK(devinfo, EMU_MAGIC_DEVINFO);
	EMU_CHECK_OUT(active_rate);
	*active_rate = UINT64_C(200000000000);
	return DOCA_SUCCESS;
}

doca_error_t
doca_devinfo_get_vhca_id(const struct doca_devinfo *devinfo, uint16_t *vhca_id)
{
	EMU_ENTER("devinfo_get_vhca_id");
	EMU_CHECK(devinfo, EMU_MAGIC_DEVINFO);
	EMU_CHECK_OUT(vhca_id);
	*vhca_id = devinfo->device->index;
	return DOCA_SUCCESS;
}

doca_error_t
doca_devinfo_get_pci_func_type(const struct doca_devinfo *devinfo,
			       enum doca_pci_func_type *pci_func_type)
{
	EMU_ENTER("devinfo_get_pci_func_type");
	EMU_CHECK(devinfo, EMU_MAGIC_DEVINFO);
	EMU_CHECK_OUT(pci_func_type);
	*pci_func_type = DOCA_PCI_FUNC_TYPE_PF;
	return DOCA_SUCCESS;
}

doca_error_t
doca_devinfo_get_sf_index(const struct doca_devinfo *devinfo, uint32_t *sf_index)
{
	EMU_ENTER("devinfo_get_sf_index");
	EMU_CHECK(devinfo, EMU_MAGIC_DEVINFO);
	EMU_CHECK_OUT(sf_index);
	return DOCA_ERROR_NOT_SUPPORTED;
}

/* ---- opening ---- */

doca_error_t
doca_dev_open(struct doca_devinfo *devinfo, struct doca_dev **dev)
{
	struct emu_device *device;
	struct doca_dev *opened;

	EMU_ENTER("dev_open");
	EMU_CHECK(devinfo, EMU_MAGIC_DEVINFO);
	EMU_CHECK_OUT(dev);
	device = devinfo->device;
	pthread_mutex_lock(&emu_lock);
	opened = device->open;
	if (opened == NULL) {
		opened = calloc(1, sizeof(*opened));
		if (opened == NULL) {
			pthread_mutex_unlock(&emu_lock);
			return DOCA_ERROR_NO_MEMORY;
		}
		opened->object.magic = EMU_MAGIC_DEV;
		opened->device = device;
		opened->info.object.magic = EMU_MAGIC_DEVINFO;
		opened->info.device = device;
		device->open = opened;
		emu_add(&emu_stats.live_devs, 1);
	}
	opened->opens++;
	pthread_mutex_unlock(&emu_lock);
	*dev = opened;
	return DOCA_SUCCESS;
}

doca_error_t
doca_dev_close(struct doca_dev *dev)
{
	uint32_t users = 0;
	bool last = false;

	EMU_ENTER("dev_close");
	if (dev == NULL) {
		return DOCA_SUCCESS;
	}
	EMU_CHECK(dev, EMU_MAGIC_DEV);
	pthread_mutex_lock(&emu_lock);
	if (dev->opens == 1) {
		users = atomic_load(&dev->num_users);
	}
	last = users == 0 && --dev->opens == 0;
	if (last) {
		dev->device->open = NULL;
		dev->object.magic |= EMU_DEAD;
		dev->info.object.magic |= EMU_DEAD;
	}
	pthread_mutex_unlock(&emu_lock);
	if (users != 0) {
		emu_violation(__func__, dev, EMU_MAGIC_DEV, "%u maps and contexts use it", users);
		return DOCA_ERROR_IN_USE;
	}
	if (last) {
		emu_sub(&emu_stats.live_devs, 1);
		emu_retire(dev, sizeof(*dev));
	}
	return DOCA_SUCCESS;
}

struct doca_devinfo *
doca_dev_as_devinfo(const struct doca_dev *dev)
{
	if (!emu_is(dev, EMU_MAGIC_DEV)) {
		emu_bad_object(__func__, dev, EMU_MAGIC_DEV);
		return NULL;
	}
	return (struct doca_devinfo *)(uintptr_t)&dev->info;
}

doca_error_t
doca_dev_accelerate_resource_reclaim(struct doca_dev *dev)
{
	EMU_ENTER("dev_accelerate_resource_reclaim");
	EMU_CHECK(dev, EMU_MAGIC_DEV);
	return DOCA_ERROR_NOT_SUPPORTED;
}
