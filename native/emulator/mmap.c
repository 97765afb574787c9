/* SPDX-License-Identifier: Apache-2.0 */
/* doca_mmap.h: memory maps. */
#include "emu.h"
#include "peer.h"

#include <stdlib.h>
#include <string.h>

/* How many devices a map takes unless told; the card's value is not known. */
#define EMU_DEFAULT_MAX_DEVICES 128

#define EMU_PCI_FLAGS ((uint32_t)(DOCA_ACCESS_FLAG_PCI_READ_ONLY | DOCA_ACCESS_FLAG_PCI_READ_WRITE))
/* A user of a card was refused the two together; the header does not say so. */
#define EMU_RELAXED_WRITE \
	((uint32_t)(DOCA_ACCESS_FLAG_PCI_READ_WRITE | DOCA_ACCESS_FLAG_PCI_RELAXED_ORDERING))
#define EMU_ALL_FLAGS \
	((uint32_t)(DOCA_ACCESS_FLAG_LOCAL_READ_WRITE | DOCA_ACCESS_FLAG_RDMA_READ | \
		    DOCA_ACCESS_FLAG_RDMA_WRITE | DOCA_ACCESS_FLAG_RDMA_ATOMIC | \
		    DOCA_ACCESS_FLAG_PCI_READ_ONLY | DOCA_ACCESS_FLAG_PCI_READ_WRITE | \
		    DOCA_ACCESS_FLAG_PCI_RELAXED_ORDERING))
#define EMU_WRITABLE_FLAGS \
	((uint32_t)(DOCA_ACCESS_FLAG_LOCAL_READ_WRITE | DOCA_ACCESS_FLAG_PCI_READ_WRITE))

static struct doca_mmap *all_mmaps; /* emu_lock */

/* Whether a device was added. */
bool
emu_mmap_has_dev(const struct doca_mmap *mmap, const struct doca_dev *dev)
{
	for (uint32_t i = 0; i < mmap->num_devs; i++) {
		if (mmap->devs[i] == dev) {
			return true;
		}
	}
	return false;
}

/* Take the mark of destroyed contexts off all maps; emu_lock is held. */
void
emu_mmaps_forget_user(uint64_t bit)
{
	for (struct doca_mmap *mmap = all_mmaps; mmap != NULL; mmap = mmap->next) {
		atomic_fetch_and(&mmap->users, ~bit);
	}
}

/* The parent's maps are not the child's. */
void
emu_mmap_fork_child(void)
{
	all_mmaps = NULL;
}

static struct doca_mmap *
mmap_new(void)
{
	struct doca_mmap *mmap = calloc(1, sizeof(*mmap));

	if (mmap != NULL) {
		mmap->object.magic = EMU_MAGIC_MMAP;
		mmap->max_devs = EMU_DEFAULT_MAX_DEVICES;
		mmap->permissions = DOCA_ACCESS_FLAG_LOCAL_READ_WRITE;
		mmap->writable = true;
		atomic_init(&mmap->refs, 1);
	}
	return mmap;
}

/* Put a map that is complete among the others. */
static void
mmap_list(struct doca_mmap *new_mmap)
{
	pthread_mutex_lock(&emu_lock);
	new_mmap->next = all_mmaps;
	if (all_mmaps != NULL) {
		all_mmaps->prev = new_mmap;
	}
	all_mmaps = new_mmap;
	pthread_mutex_unlock(&emu_lock);
	emu_add(&emu_stats.live_mmaps, 1);
}

doca_error_t
doca_mmap_create(struct doca_mmap **mmap)
{
	struct doca_mmap *new_mmap;

	EMU_ENTER("mmap_create");
	EMU_CHECK_OUT(mmap);
	new_mmap = mmap_new();
	if (new_mmap == NULL) {
		return DOCA_ERROR_NO_MEMORY;
	}
	mmap_list(new_mmap);
	*mmap = new_mmap;
	return DOCA_SUCCESS;
}

static uint32_t
bufs_of(const struct doca_mmap *mmap)
{
	return atomic_load(&mmap->refs) - 1;
}

/* How many bufs point into it, as far as DOCA knows: with thread safety it does not count them. */
static uint32_t
known_bufs(const struct doca_mmap *mmap)
{
	return mmap->thread_safe ? 0 : bufs_of(mmap);
}

/* Whether something still needs the registration; reports it as a violation. */
static bool
in_use(const char *func, struct doca_mmap *mmap)
{
	uint32_t num_bufs = known_bufs(mmap);

	if (num_bufs != 0) {
		emu_violation(func, mmap, EMU_MAGIC_MMAP, "%u bufs point into it", num_bufs);
		return true;
	}
	return false;
}

static void
unpin(struct doca_mmap *mmap)
{
	/* First: when this returns, no peer reads or writes the memory. */
	emu_exports_drop(mmap);
	mmap->exported = false;
	if (mmap->started && !mmap->from_export) {
		emu_sub(&emu_stats.pinned_bytes, mmap->len);
	}
	mmap->started = false;
	mmap->num_registered = 0;
}

doca_error_t
doca_mmap_destroy(struct doca_mmap *mmap)
{
	EMU_ENTER("mmap_destroy");
	EMU_CHECK(mmap, EMU_MAGIC_MMAP);
	if (in_use(__func__, mmap)) {
		return DOCA_ERROR_NOT_PERMITTED;
	}
	if (emu_get(EMU_MAP_LIFETIME_BUFS) == 0 && atomic_load(&mmap->users) != 0) {
		emu_violation(__func__, mmap, EMU_MAGIC_MMAP,
			      "a context that used it is not destroyed");
		return DOCA_ERROR_NOT_PERMITTED;
	}
	unpin(mmap);
	pthread_mutex_lock(&emu_lock);
	if (mmap->prev != NULL) {
		mmap->prev->next = mmap->next;
	} else if (all_mmaps == mmap) {
		all_mmaps = mmap->next;
	}
	if (mmap->next != NULL) {
		mmap->next->prev = mmap->prev;
	}
	pthread_mutex_unlock(&emu_lock);
	for (uint32_t i = 0; i < mmap->num_devs; i++) {
		atomic_fetch_sub(&mmap->devs[i]->num_users, 1);
	}
	free(mmap->devs);
	mmap->devs = NULL;
	mmap->num_devs = 0;
	emu_import_close(mmap->import);
	mmap->import = NULL;
	emu_sub(&emu_stats.live_mmaps, 1);
	if (mmap->free_cb != NULL && mmap->ever_started && !mmap->free_cb_changed) {
		mmap->free_cb(mmap->addr, mmap->len, mmap->free_cookie);
	}
	mmap->object.magic |= EMU_DEAD;
	emu_mmap_put(mmap);
	return DOCA_SUCCESS;
}

doca_error_t
doca_mmap_start(struct doca_mmap *mmap)
{
	uint64_t limit = emu_get(EMU_MEMLOCK);
	uint64_t pinned;

	EMU_ENTER("mmap_start");
	EMU_CHECK(mmap, EMU_MAGIC_MMAP);
	if (mmap->from_export || mmap->exported) {
		return DOCA_ERROR_NOT_PERMITTED;
	}
	if (!mmap->range_set || mmap->num_devs == 0) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	if (mmap->started) {
		return DOCA_ERROR_BAD_STATE;
	}
	pinned = atomic_load(&emu_stats.pinned_bytes);
	do {
		if (limit != 0 && (pinned > limit || mmap->len > limit - pinned)) {
			emu_log(DOCA_LOG_LEVEL_ERROR, __func__, "the memlock limit is reached");
			return (doca_error_t)emu_get(EMU_MEMLOCK_STATUS);
		}
	} while (!atomic_compare_exchange_weak(&emu_stats.pinned_bytes, &pinned,
					       pinned + mmap->len));
	mmap->started = true;
	mmap->num_registered = mmap->num_devs;
	mmap->ever_started = true;
	mmap->free_cb_changed = false;
	return DOCA_SUCCESS;
}

doca_error_t
doca_mmap_stop(struct doca_mmap *mmap)
{
	EMU_ENTER("mmap_stop");
	EMU_CHECK(mmap, EMU_MAGIC_MMAP);
	if (mmap->from_export || (mmap->exported && emu_get(EMU_EXPORT_STOP_REVOKES) == 0) ||
	    in_use(__func__, mmap)) {
		return DOCA_ERROR_NOT_PERMITTED;
	}
	unpin(mmap);
	return DOCA_SUCCESS;
}

doca_error_t
doca_mmap_add_dev(struct doca_mmap *mmap, struct doca_dev *dev)
{
	struct doca_dev **devs;

	EMU_ENTER("mmap_add_dev");
	EMU_CHECK(mmap, EMU_MAGIC_MMAP);
	EMU_CHECK(dev, EMU_MAGIC_DEV);
	if (mmap->started || mmap->exported || mmap->from_export) {
		return DOCA_ERROR_NOT_PERMITTED;
	}
	if (emu_mmap_has_dev(mmap, dev)) {
		return DOCA_ERROR_ALREADY_EXIST;
	}
	if (mmap->num_devs >= mmap->max_devs) {
		return DOCA_ERROR_NO_MEMORY;
	}
	devs = realloc(mmap->devs, (mmap->num_devs + 1) * sizeof(struct doca_dev *));
	if (devs == NULL) {
		return DOCA_ERROR_NO_MEMORY;
	}
	mmap->devs = devs;
	mmap->devs[mmap->num_devs++] = dev;
	atomic_fetch_add(&dev->num_users, 1);
	return DOCA_SUCCESS;
}

doca_error_t
doca_mmap_rm_dev(struct doca_mmap *mmap, struct doca_dev *dev)
{
	uint32_t i;

	EMU_ENTER("mmap_rm_dev");
	EMU_CHECK(mmap, EMU_MAGIC_MMAP);
	EMU_CHECK(dev, EMU_MAGIC_DEV);
	if (mmap->started || mmap->exported || mmap->from_export) {
		return DOCA_ERROR_NOT_PERMITTED;
	}
	for (i = 0; i < mmap->num_devs && mmap->devs[i] != dev; i++) {
	}
	if (i == mmap->num_devs) {
		return DOCA_ERROR_NOT_FOUND;
	}
	mmap->devs[i] = mmap->devs[--mmap->num_devs];
	atomic_fetch_sub(&dev->num_users, 1);
	return DOCA_SUCCESS;
}

/* What both kinds of range ask for. */
static doca_error_t
may_set_range(const struct doca_mmap *mmap, const void *addr, size_t len)
{
	if (addr == NULL || len == 0 || (uintptr_t)addr > UINTPTR_MAX - len) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	if (mmap->started) {
		return DOCA_ERROR_BAD_STATE;
	}
	return mmap->range_set || mmap->from_export ? DOCA_ERROR_NOT_PERMITTED : DOCA_SUCCESS;
}

doca_error_t
doca_mmap_set_memrange(struct doca_mmap *mmap, void *addr, size_t len)
{
	doca_error_t result;

	EMU_ENTER("mmap_set_memrange");
	EMU_CHECK(mmap, EMU_MAGIC_MMAP);
	result = may_set_range(mmap, addr, len);
	if (result != DOCA_SUCCESS) {
		return result;
	}
	mmap->addr = addr;
	mmap->len = len;
	mmap->range_set = true;
	return DOCA_SUCCESS;
}

doca_error_t
doca_mmap_get_memrange(const struct doca_mmap *mmap, void **addr, size_t *len)
{
	EMU_ENTER("mmap_get_memrange");
	EMU_CHECK(mmap, EMU_MAGIC_MMAP);
	EMU_CHECK_OUT(addr);
	EMU_CHECK_OUT(len);
	if (!mmap->range_set) {
		return DOCA_ERROR_BAD_STATE;
	}
	*addr = mmap->addr;
	*len = mmap->len;
	return DOCA_SUCCESS;
}

doca_error_t
doca_mmap_set_dmabuf_memrange(struct doca_mmap *mmap, int dmabuf_fd, void *addr,
			      size_t dmabuf_offset, size_t len)
{
	doca_error_t result;

	EMU_ENTER("mmap_set_dmabuf_memrange");
	EMU_CHECK(mmap, EMU_MAGIC_MMAP);
	result = may_set_range(mmap, addr, len);
	if (result == DOCA_SUCCESS && (dmabuf_fd < 0 || dmabuf_offset > SIZE_MAX - len)) {
		result = DOCA_ERROR_INVALID_VALUE;
	}
	return result != DOCA_SUCCESS ? result : DOCA_ERROR_NOT_SUPPORTED;
}

doca_error_t
doca_mmap_set_permissions(struct doca_mmap *mmap, uint32_t access_mask)
{
	EMU_ENTER("mmap_set_permissions");
	EMU_CHECK(mmap, EMU_MAGIC_MMAP);
	if ((access_mask & ~EMU_ALL_FLAGS) != 0 || (access_mask & EMU_PCI_FLAGS) == EMU_PCI_FLAGS ||
	    (access_mask & EMU_RELAXED_WRITE) == EMU_RELAXED_WRITE) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	if (mmap->started) {
		return DOCA_ERROR_BAD_STATE;
	}
	if (mmap->from_export) {
		return DOCA_ERROR_NOT_PERMITTED;
	}
	mmap->permissions = access_mask;
	mmap->writable = (access_mask & EMU_WRITABLE_FLAGS) != 0;
	return DOCA_SUCCESS;
}

doca_error_t
doca_mmap_set_max_num_devices(struct doca_mmap *mmap, uint32_t max_num_devices)
{
	EMU_ENTER("mmap_set_max_num_devices");
	EMU_CHECK(mmap, EMU_MAGIC_MMAP);
	if (max_num_devices == 0 || max_num_devices < mmap->num_devs) {
		return DOCA_ERROR_INVALID_VALUE;
	}
	if (mmap->ever_started || mmap->from_export) {
		return DOCA_ERROR_NOT_PERMITTED;
	}
	mmap->max_devs = max_num_devices;
	return DOCA_SUCCESS;
}

doca_error_t
doca_mmap_get_max_num_devices(const struct doca_mmap *mmap, uint32_t *max_num_devices)
{
	EMU_ENTER("mmap_get_max_num_devices");
	EMU_CHECK(mmap, EMU_MAGIC_MMAP);
	EMU_CHECK_OUT(max_num_devices);
	*max_num_devices = mmap->max_devs;
	return DOCA_SUCCESS;
}

doca_error_t
doca_mmap_set_free_cb(struct doca_mmap *mmap, doca_mmap_memrange_free_cb_t *free_cb, void *opaque)
{
	EMU_ENTER("mmap_set_free_cb");
	EMU_CHECK(mmap, EMU_MAGIC_MMAP);
	if (mmap->started) {
		return DOCA_ERROR_BAD_STATE;
	}
	mmap->free_cb = free_cb;
	mmap->free_cookie = opaque;
	mmap->free_cb_changed = true;
	return DOCA_SUCCESS;
}

doca_error_t
doca_mmap_set_user_data(struct doca_mmap *mmap, union doca_data user_data)
{
	EMU_ENTER("mmap_set_user_data");
	EMU_CHECK(mmap, EMU_MAGIC_MMAP);
	if (mmap->started) {
		return DOCA_ERROR_BAD_STATE;
	}
	mmap->user_data = user_data;
	return DOCA_SUCCESS;
}

doca_error_t
doca_mmap_get_user_data(const struct doca_mmap *mmap, union doca_data *user_data)
{
	EMU_ENTER("mmap_get_user_data");
	EMU_CHECK(mmap, EMU_MAGIC_MMAP);
	EMU_CHECK_OUT(user_data);
	*user_data = mmap->user_data;
	return DOCA_SUCCESS;
}

doca_error_t
doca_mmap_get_num_bufs(const struct doca_mmap *mmap, uint32_t *num_bufs)
{
	EMU_ENTER("mmap_get_num_bufs");
	EMU_CHECK(mmap, EMU_MAGIC_MMAP);
	EMU_CHECK_OUT(num_bufs);
	*num_bufs = known_bufs(mmap);
	return DOCA_SUCCESS;
}

/* What both kinds of export ask for. */
static doca_error_t
may_export(struct doca_mmap *mmap, const struct doca_dev *dev, uint32_t needs)
{
	if (!emu_mmap_has_dev(mmap, dev)) {
		return DOCA_ERROR_NOT_FOUND;
	}
	if (!mmap->started || mmap->from_export || (mmap->permissions & needs) == 0) {
		return DOCA_ERROR_NOT_PERMITTED;
	}
	return DOCA_SUCCESS;
}

doca_error_t
doca_mmap_export_pci(struct doca_mmap *mmap, const struct doca_dev *dev, const void **export_desc,
		     size_t *export_desc_len)
{
	const struct emu_descriptor *descriptor;
	doca_error_t result;

	EMU_ENTER("mmap_export_pci");
	EMU_CHECK(mmap, EMU_MAGIC_MMAP);
	EMU_CHECK(dev, EMU_MAGIC_DEV);
	EMU_CHECK_OUT(export_desc);
	EMU_CHECK_OUT(export_desc_len);
	result = may_export(mmap, dev, EMU_PCI_FLAGS);
	if (result != DOCA_SUCCESS) {
		return result;
	}
	if (!dev->device->export_pci) {
		return DOCA_ERROR_NOT_SUPPORTED;
	}
	result = emu_export_add(mmap, dev, mmap->permissions & EMU_PCI_FLAGS, &descriptor);
	if (result != DOCA_SUCCESS) {
		return result;
	}
	mmap->exported = true;
	*export_desc = descriptor;
	*export_desc_len = sizeof(*descriptor);
	return DOCA_SUCCESS;
}

doca_error_t
doca_mmap_export_rdma(struct doca_mmap *mmap, const struct doca_dev *dev, const void **export_desc,
		      size_t *export_desc_len)
{
	doca_error_t result;

	EMU_ENTER("mmap_export_rdma");
	EMU_CHECK(mmap, EMU_MAGIC_MMAP);
	EMU_CHECK(dev, EMU_MAGIC_DEV);
	EMU_CHECK_OUT(export_desc);
	EMU_CHECK_OUT(export_desc_len);
	result = may_export(mmap, dev,
			    DOCA_ACCESS_FLAG_RDMA_READ | DOCA_ACCESS_FLAG_RDMA_WRITE |
				    DOCA_ACCESS_FLAG_RDMA_ATOMIC);
	return result != DOCA_SUCCESS ? result : DOCA_ERROR_NOT_SUPPORTED;
}

doca_error_t
doca_mmap_create_from_export(const union doca_data *user_data, const void *export_desc,
			     size_t export_desc_len, struct doca_dev *dev, struct doca_mmap **mmap)
{
	struct doca_mmap *new_mmap;
	struct emu_import *import;
	doca_error_t result;

	EMU_ENTER("mmap_create_from_export");
	EMU_CHECK_OUT(export_desc);
	EMU_CHECK_OUT(mmap);
	EMU_CHECK(dev, EMU_MAGIC_DEV);
	if (!dev->device->import_pci) {
		return DOCA_ERROR_NOT_SUPPORTED;
	}
	result = emu_import_open(export_desc, export_desc_len, dev, &import);
	if (result != DOCA_SUCCESS) {
		return result;
	}
	result = DOCA_ERROR_NO_MEMORY;
	new_mmap = mmap_new();
	if (new_mmap == NULL) {
		goto close_import;
	}
	new_mmap->devs = malloc(sizeof(struct doca_dev *));
	if (new_mmap->devs == NULL) {
		goto free_mmap;
	}
	new_mmap->devs[0] = dev;
	new_mmap->num_devs = 1;
	new_mmap->num_registered = 1;
	new_mmap->max_devs = 1;
	new_mmap->addr = (uint8_t *)(uintptr_t)import->descriptor.base;
	new_mmap->len = import->descriptor.length;
	new_mmap->range_set = true;
	new_mmap->permissions = import->descriptor.access;
	new_mmap->writable = (new_mmap->permissions & EMU_WRITABLE_FLAGS) != 0;
	new_mmap->from_export = true;
	new_mmap->started = true;
	new_mmap->import = import;
	if (user_data != NULL) {
		new_mmap->user_data = *user_data;
	}
	atomic_fetch_add(&dev->num_users, 1);
	atomic_fetch_or(&emu_special, EMU_SPECIAL_IMPORTS);
	mmap_list(new_mmap);
	*mmap = new_mmap;
	return DOCA_SUCCESS;

free_mmap:
	free(new_mmap);
close_import:
	emu_import_close(import);
	return result;
}

doca_error_t
doca_mmap_get_exported(const struct doca_mmap *mmap, uint8_t *exported)
{
	EMU_ENTER("mmap_get_exported");
	EMU_CHECK(mmap, EMU_MAGIC_MMAP);
	EMU_CHECK_OUT(exported);
	*exported = mmap->exported;
	return DOCA_SUCCESS;
}

doca_error_t
doca_mmap_get_from_export(const struct doca_mmap *mmap, uint8_t *from_export)
{
	EMU_ENTER("mmap_get_from_export");
	EMU_CHECK(mmap, EMU_MAGIC_MMAP);
	EMU_CHECK_OUT(from_export);
	*from_export = mmap->from_export;
	return DOCA_SUCCESS;
}

doca_error_t
doca_mmap_cap_is_export_pci_supported(const struct doca_devinfo *devinfo, uint8_t *mmap_export)
{
	EMU_ENTER("mmap_cap_is_export_pci_supported");
	EMU_CHECK(devinfo, EMU_MAGIC_DEVINFO);
	EMU_CHECK_OUT(mmap_export);
	*mmap_export = devinfo->device->export_pci;
	return DOCA_SUCCESS;
}

doca_error_t
doca_mmap_cap_is_create_from_export_pci_supported(const struct doca_devinfo *devinfo,
						  uint8_t *from_export)
{
	EMU_ENTER("mmap_cap_is_create_from_export_pci_supported");
	EMU_CHECK(devinfo, EMU_MAGIC_DEVINFO);
	EMU_CHECK_OUT(from_export);
	*from_export = devinfo->device->import_pci;
	return DOCA_SUCCESS;
}

doca_error_t
doca_mmap_enable_thread_safety(struct doca_mmap *mmap)
{
	EMU_ENTER("mmap_enable_thread_safety");
	EMU_CHECK(mmap, EMU_MAGIC_MMAP);
	if (mmap->started || bufs_of(mmap) != 0) {
		return DOCA_ERROR_NOT_PERMITTED;
	}
	mmap->thread_safe = true;
	return DOCA_SUCCESS;
}
