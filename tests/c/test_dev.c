/* SPDX-License-Identifier: Apache-2.0 */
/* Devices: rows 4.1 and 4.8. */
#include "check.h"

static void
test_4_8_first_device(void)
{
	char name[DOCA_DEVINFO_IBDEV_NAME_SIZE];
	char iface[DOCA_DEVINFO_IFACE_NAME_SIZE];
	char pci[DOCA_DEVINFO_PCI_ADDR_SIZE];
	struct doca_devinfo **list;
	uint64_t size;
	uint32_t num;
	uint32_t len;

	OK(doca_devinfo_create_list(&list, &num));
	CHECK_EQ(num, 1);
	OK(doca_devinfo_get_ibdev_name(list[0], name, sizeof(name)));
	CHECK(strcmp(name, "mlx5_0") == 0);
	OK(doca_devinfo_get_iface_name(list[0], iface, sizeof(iface)));
	CHECK(strcmp(iface, "p0") == 0);
	OK(doca_devinfo_get_pci_addr_str(list[0], pci));
	CHECK(strcmp(pci, "0000:03:00.0") == 0);
	OK(doca_dma_cap_task_memcpy_is_supported(list[0]));
	OK(doca_dma_cap_task_memcpy_get_max_buf_size(list[0], &size));
	CHECK_EQ(size, 2 << 20);
	OK(doca_dma_cap_task_memcpy_get_max_buf_list_len(list[0], &len));
	CHECK_EQ(len, 32);
	OK(doca_devinfo_destroy_list(list));
}

static void
test_4_1_devinfo_create_list__devinfo_destroy_list__dev_open(void)
{
	struct doca_devinfo **list;
	struct doca_devinfo *saved;
	struct doca_devinfo *info;
	struct doca_dev *dev;
	uint32_t num;

	CHECK_DOCA(doca_devinfo_create_list(NULL, &num), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_devinfo_create_list(&list, NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_devinfo_destroy_list(NULL), DOCA_ERROR_INVALID_VALUE);
	OK(doca_devinfo_create_list(&list, &num));
	saved = list[0];
	list[0] = NULL;
	CHECK_DOCA(doca_devinfo_destroy_list(list), DOCA_ERROR_IN_USE);
	expect_violations(1, "doca_devinfo_destroy_list");
	list[0] = saved;
	info = list[0];
	OK(doca_devinfo_destroy_list(list));
	CHECK_DOCA(doca_dev_open(info, &dev), DOCA_ERROR_INVALID_VALUE);
	expect_violations(1, "doca_dev_open: devinfo");
}

static void
test_4_8_pci_match__by_address(void)
{
	static const char *const no_addresses[] = {
		"",	    "nonsense",	    "3a:0.1",	     "3a:00.",	 "3a:00.11",
		" 3a:00.1", "3a: 0.1",	    "0x3a:00.1",     "+a:00.1",	 "-1:00.1",
		"3a:00.g",  "0:3a:00.1",    "00000:3a:00.1", "3a:00:00", "000:03a:00.1",
		"3a.00.1",  "0000.3a:00.1",
	};
	struct doca_devinfo **list;
	uint32_t num;
	uint8_t equal = 2;

	configure("device mlx5_1 pci=0000:3a:00.1");
	OK(doca_devinfo_create_list(&list, &num));
	OK(doca_devinfo_is_equal_pci_addr(list[0], "3a:00.1", &equal));
	CHECK_EQ(equal, 1);
	OK(doca_devinfo_is_equal_pci_addr(list[0], "0000:3a:00.1", &equal));
	CHECK_EQ(equal, 1);
	OK(doca_devinfo_is_equal_pci_addr(list[0], "3A:00.1", &equal));
	CHECK_EQ(equal, 1);
	OK(doca_devinfo_is_equal_pci_addr(list[0], "3a:00.0", &equal));
	CHECK_EQ(equal, 0);
	OK(doca_devinfo_is_equal_pci_addr(list[0], "0001:3a:00.1", &equal));
	CHECK_EQ(equal, 0);
	CHECK_DOCA(doca_devinfo_is_equal_pci_addr(list[0], "3a:00.1x", &equal),
		   DOCA_ERROR_INVALID_VALUE);
	for (size_t i = 0; i < sizeof(no_addresses) / sizeof(no_addresses[0]); i++) {
		CHECK_DOCA(doca_devinfo_is_equal_pci_addr(list[0], no_addresses[i], &equal),
			   DOCA_ERROR_INVALID_VALUE);
	}
	OK(doca_devinfo_destroy_list(list));
}

static void
test_4_1_devinfo_get_ibdev_name__devinfo_get_iface_name__devinfo_get_mac_addr__devinfo_get_ipv4_addr(
	void)
{
	struct doca_dev *dev = open_dev(NULL);
	struct doca_devinfo *info = doca_dev_as_devinfo(dev);
	uint8_t mac[DOCA_DEVINFO_MAC_ADDR_SIZE];
	uint8_t ip[DOCA_DEVINFO_IPV6_ADDR_SIZE];
	char name[DOCA_DEVINFO_IFACE_NAME_SIZE];
	enum doca_pci_func_type type;
	uint32_t index;
	uint64_t rate;
	uint16_t id;

	CHECK_DOCA(doca_devinfo_get_ibdev_name(info, name, DOCA_DEVINFO_IBDEV_NAME_SIZE - 1),
		   DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_devinfo_get_iface_name(info, name, DOCA_DEVINFO_IFACE_NAME_SIZE - 1),
		   DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_devinfo_get_mac_addr(info, mac, 5), DOCA_ERROR_INVALID_VALUE);
	OK(doca_devinfo_get_mac_addr(info, mac, sizeof(mac)));
	CHECK_DOCA(doca_devinfo_get_ipv4_addr(info, ip, 4), DOCA_ERROR_NOT_FOUND);
	CHECK_DOCA(doca_devinfo_get_ipv6_addr(info, ip, 16), DOCA_ERROR_NOT_FOUND);
	CHECK_DOCA(doca_devinfo_get_lid(info, &id), DOCA_ERROR_NOT_SUPPORTED);
	OK(doca_devinfo_get_vhca_id(info, &id));
	OK(doca_devinfo_get_active_rate(info, &rate));
	OK(doca_devinfo_get_pci_func_type(info, &type));
	CHECK_EQ(type, DOCA_PCI_FUNC_TYPE_PF);
	CHECK_DOCA(doca_devinfo_get_sf_index(info, &index), DOCA_ERROR_NOT_SUPPORTED);
	OK(doca_dev_close(dev));
	CHECK(doca_dev_as_devinfo(NULL) == NULL);
}

static void
test_4_8_open_counted__list(void)
{
	struct doca_dev *first = open_dev(NULL);
	struct doca_dev *second = open_dev(NULL);
	struct doca_devinfo *info;

	CHECK(first == second);
	CHECK_EQ(live().devs, 1);
	OK(doca_dev_close(first));
	info = doca_dev_as_devinfo(first);
	CHECK(info != NULL);
	OK(doca_dma_cap_task_memcpy_is_supported(info));
	OK(doca_dev_close(first));
	CHECK_EQ(live().devs, 0);
	CHECK_DOCA(doca_dev_close(first), DOCA_ERROR_INVALID_VALUE);
	expect_violations(1, "doca_dev_close: dev");
}

static void
test_4_8_close_null(void)
{
	OK(doca_dev_close(NULL));
}

static void
test_4_1_dev_close(void)
{
	struct doca_dev *dev = open_dev(NULL);
	struct doca_mmap *mmap;
	struct doca_dma *dma;

	OK(doca_mmap_create(&mmap));
	OK(doca_mmap_add_dev(mmap, dev));
	CHECK_DOCA(doca_dev_close(dev), DOCA_ERROR_IN_USE);
	expect_violations(1, "doca_dev_close");
	OK(doca_mmap_destroy(mmap));
	OK(doca_dma_create(dev, &dma));
	CHECK_DOCA(doca_dev_close(dev), DOCA_ERROR_IN_USE);
	expect_violations(1, "doca_dev_close");
	OK(doca_dma_destroy(dma));
	OK(doca_dev_close(dev));
}

static void
test_devices_as_configured(void)
{
	struct doca_devinfo **list;
	struct doca_dma *dma;
	struct doca_dev *dev;
	struct doca_pe *pe;
	uint64_t size;
	uint32_t num;
	uint8_t flag;

	configure("device a max_buf_size=4K max_buf_list_len=1 max_num_tasks=7\n"
		  "device b dma=0 export_pci=0 ; max_buf_size=1M");
	OK(doca_devinfo_create_list(&list, &num));
	CHECK_EQ(num, 2);
	OK(doca_dma_cap_task_memcpy_get_max_buf_size(list[0], &size));
	CHECK_EQ(size, 4096);
	OK(doca_dma_cap_task_memcpy_get_max_buf_list_len(list[0], &num));
	CHECK_EQ(num, 1);
	CHECK_DOCA(doca_dma_cap_task_memcpy_is_supported(list[1]), DOCA_ERROR_NOT_SUPPORTED);
	CHECK_DOCA(doca_dma_cap_task_memcpy_get_max_buf_size(list[1], &size),
		   DOCA_ERROR_NOT_SUPPORTED);
	OK(doca_mmap_cap_is_export_pci_supported(list[0], &flag));
	CHECK_EQ(flag, 1);
	OK(doca_mmap_cap_is_export_pci_supported(list[1], &flag));
	CHECK_EQ(flag, 0);
	OK(doca_mmap_cap_is_create_from_export_pci_supported(list[1], &flag));
	CHECK_EQ(flag, 1);
	OK(doca_devinfo_destroy_list(list));

	dev = open_dev("a");
	OK(doca_dma_create(dev, &dma));
	OK(doca_dma_cap_get_max_num_tasks(dma, &num));
	CHECK_EQ(num, 7);
	OK(doca_dma_destroy(dma));
	OK(doca_dev_close(dev));

	dev = open_dev("b");
	OK(doca_pe_create(&pe));
	OK(doca_dma_create(dev, &dma));
	OK(doca_pe_connect_ctx(pe, doca_dma_as_ctx(dma)));
	CHECK_DOCA(doca_ctx_start(doca_dma_as_ctx(dma)), DOCA_ERROR_NOT_SUPPORTED);
	OK(doca_dma_destroy(dma));
	OK(doca_pe_destroy(pe));
	OK(doca_dev_close(dev));

	configure("devices=none");
	OK(doca_devinfo_create_list(&list, &num));
	CHECK_EQ(num, 0);
	OK(doca_devinfo_destroy_list(list));
}

static void
test_representors_are_none(void)
{
	struct doca_dev *dev = open_dev(NULL);
	struct doca_devinfo *info = doca_dev_as_devinfo(dev);
	int foreign[16] = {0};
	struct doca_devinfo_rep *rep = (struct doca_devinfo_rep *)(void *)foreign;
	struct doca_devinfo_rep **list;
	struct doca_dev_rep *opened;
	enum doca_pci_func_type type;
	char text[256];
	uint16_t id;
	uint8_t flag = 1;
	uint32_t num = 9;

	OK(doca_devinfo_rep_cap_is_filter_all_supported(info, &flag));
	CHECK_EQ(flag, 0);
	OK(doca_devinfo_rep_create_list(dev, DOCA_DEVINFO_REP_FILTER_ALL, &list, &num));
	CHECK_EQ(num, 0);
	OK(doca_devinfo_rep_destroy_list(list));
	CHECK_DOCA(doca_devinfo_rep_create_list(dev, 77, &list, &num), DOCA_ERROR_INVALID_VALUE);
	OK(doca_devinfo_rep_cap_is_filter_emulated_supported(info, &flag));
	CHECK_EQ(flag, 0);
	OK(doca_devinfo_rep_cap_is_filter_net_supported(info, &flag));
	CHECK_EQ(flag, 0);
	OK(doca_devinfo_cap_is_hotplug_manager_supported(info, &flag));
	CHECK_EQ(flag, 0);
	OK(doca_devinfo_cap_is_notification_moderation_supported(info, &flag));
	CHECK_EQ(flag, 0);
	OK(doca_devinfo_cap_is_accelerate_resource_reclaim_supported(info, &flag));
	CHECK_EQ(flag, 0);
	CHECK_DOCA(doca_devinfo_cap_is_hotplug_manager_supported(NULL, &flag),
		   DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_dev_accelerate_resource_reclaim(dev), DOCA_ERROR_NOT_SUPPORTED);
	CHECK_DOCA(doca_devinfo_rep_destroy_list(NULL), DOCA_ERROR_INVALID_VALUE);
	/* whatever is given as a representor is none */
	CHECK_DOCA(doca_devinfo_rep_get_iface_name(rep, text, sizeof(text)),
		   DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_devinfo_rep_get_vhca_id(rep, &id), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_devinfo_rep_get_is_hotplug(rep, &flag), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_devinfo_rep_get_pci_addr_str(rep, text), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_devinfo_rep_get_pci_func_type(rep, &type), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_devinfo_rep_get_vuid(rep, text, sizeof(text)), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_devinfo_rep_is_equal_pci_addr(rep, "03:00.0", &flag),
		   DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_dev_rep_open(rep, &opened), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_dev_rep_close((struct doca_dev_rep *)(void *)foreign),
		   DOCA_ERROR_INVALID_VALUE);
	CHECK(doca_dev_rep_as_devinfo((struct doca_dev_rep *)(void *)foreign) == NULL);
	expect_violations(10, "none of this library's");
	OK(doca_dev_rep_close(NULL));
	OK(doca_dev_close(dev));
}

static void
test_2_1_error_names(void)
{
	CHECK(strcmp(doca_error_get_name(DOCA_SUCCESS), "DOCA_SUCCESS") == 0);
	CHECK(strcmp(doca_error_get_name(DOCA_ERROR_IO_FAILED), "DOCA_ERROR_IO_FAILED") == 0);
	CHECK(strcmp(doca_error_get_name((doca_error_t)31), "DOCA_ERROR_DEVICE_FATAL_ERROR") == 0);
	CHECK(strcmp(doca_error_get_descr(DOCA_ERROR_IO_FAILED), "Input/Output Operation Failed") ==
	      0);
	CHECK(strcmp(doca_error_get_name((doca_error_t)32), "unrecognized error code") == 0);
	CHECK(strcmp(doca_error_get_descr((doca_error_t)-1), "unrecognized error code") == 0);
	for (int i = 0; i < 32; i++) {
		CHECK(strncmp(doca_error_get_name((doca_error_t)i), "DOCA_", 5) == 0);
		CHECK(doca_error_get_descr((doca_error_t)i)[0] != '\0');
	}
}

static void
test_1_5_version(void)
{
	CHECK(strcmp(doca_version_runtime(), "3.0.0058") == 0);
	CHECK(strcmp(doca_version(), "3.0.0058") == 0);
	CHECK_EQ(DOCA_VERSION_EXACT, 0x300003a);
	CHECK_EQ(DOCA_VERSION_OFFICIAL, 0x300e290);
	configure("version=2.9.0072");
	CHECK(strcmp(doca_version_runtime(), "2.9.0072") == 0);
	CHECK_DOCA(docaemu_configure("version=3", NULL, 0), DOCA_ERROR_INVALID_VALUE);
}

TESTS(TEST(test_4_8_first_device),
      TEST(test_4_1_devinfo_create_list__devinfo_destroy_list__dev_open),
      TEST(test_4_8_pci_match__by_address),
      TEST(test_4_1_devinfo_get_ibdev_name__devinfo_get_iface_name__devinfo_get_mac_addr__devinfo_get_ipv4_addr),
      TEST(test_4_8_open_counted__list), TEST(test_4_8_close_null), TEST(test_4_1_dev_close),
      TEST(test_devices_as_configured), TEST(test_representors_are_none),
      TEST(test_2_1_error_names), TEST(test_1_5_version));
