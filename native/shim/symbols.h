/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every DOCA symbol the client uses, by the library it lives in. Prototypes come from the doca_*.h headers; this is the
 * one list of names. A required symbol that is missing fails the load; an optional one (experimental in DOCA) is probed.
 * The only task type is memcpy's.
 */
#ifndef ADMA_SYMBOLS_H
#define ADMA_SYMBOLS_H

/* clang-format off */
#define ADMA_REQUIRED_SYMBOLS(X) \
	X(common, doca_error_get_name) \
	X(common, doca_error_get_descr) \
	X(common, doca_devinfo_create_list) \
	X(common, doca_devinfo_destroy_list) \
	X(common, doca_devinfo_get_pci_addr_str) \
	X(common, doca_devinfo_get_ibdev_name) \
	X(common, doca_devinfo_get_iface_name) \
	X(common, doca_dev_open) \
	X(common, doca_dev_close) \
	X(common, doca_dev_as_devinfo) \
	X(common, doca_mmap_create) \
	X(common, doca_mmap_destroy) \
	X(common, doca_mmap_start) \
	X(common, doca_mmap_add_dev) \
	X(common, doca_mmap_set_memrange) \
	X(common, doca_mmap_set_permissions) \
	X(common, doca_mmap_get_memrange) \
	X(common, doca_mmap_export_pci) \
	X(common, doca_mmap_create_from_export) \
	X(common, doca_mmap_cap_is_export_pci_supported) \
	X(common, doca_mmap_cap_is_create_from_export_pci_supported) \
	X(common, doca_buf_dec_refcount) \
	X(common, doca_buf_chain_list) \
	X(common, doca_buf_set_data) \
	X(common, doca_buf_inventory_create) \
	X(common, doca_buf_inventory_destroy) \
	X(common, doca_buf_inventory_start) \
	X(common, doca_buf_inventory_buf_get_by_args) \
	X(common, doca_pe_create) \
	X(common, doca_pe_destroy) \
	X(common, doca_pe_connect_ctx) \
	X(common, doca_pe_progress) \
	X(common, doca_pe_get_notification_handle) \
	X(common, doca_pe_request_notification) \
	X(common, doca_pe_clear_notification) \
	X(common, doca_task_submit) \
	X(common, doca_task_free) \
	X(common, doca_task_get_status) \
	X(common, doca_ctx_start) \
	X(common, doca_ctx_stop) \
	X(common, doca_ctx_get_state) \
	X(common, doca_ctx_get_num_inflight_tasks) \
	X(common, doca_ctx_set_state_changed_cb) \
	X(common, doca_ctx_set_user_data) \
	X(dma, doca_dma_create) \
	X(dma, doca_dma_destroy) \
	X(dma, doca_dma_as_ctx) \
	X(dma, doca_dma_cap_task_memcpy_is_supported) \
	X(dma, doca_dma_cap_task_memcpy_get_max_buf_size) \
	X(dma, doca_dma_cap_task_memcpy_get_max_buf_list_len) \
	X(dma, doca_dma_cap_get_max_num_tasks) \
	X(dma, doca_dma_task_memcpy_set_conf) \
	X(dma, doca_dma_task_memcpy_alloc_init) \
	X(dma, doca_dma_task_memcpy_as_task) \
	X(dma, doca_dma_task_memcpy_set_src) \
	X(dma, doca_dma_task_memcpy_set_dst)

#define ADMA_OPTIONAL_SYMBOLS(X) \
	X(common, doca_version_runtime) \
	X(common, doca_mmap_set_dmabuf_memrange) \
	X(common, doca_pe_set_event_mode) \
	X(common, doca_task_submit_ex) \
	X(common, doca_ctx_flush_tasks) \
	X(common, doca_log_backend_create_with_file_sdk) \
	X(common, doca_log_backend_set_sdk_level)
/* clang-format on */

#endif
