/* SPDX-License-Identifier: Apache-2.0 */
/* Memory maps, bufs and inventories: rows 4.1, 4.5 and 4.6. */
#include "check.h"

static uint8_t memory[4096];

static void
test_4_5_1_setters_fail_after_start(void)
{
	struct doca_dev *dev = open_dev(NULL);
	union doca_data data = {.u64 = 7};
	struct doca_mmap *mmap;
	void *addr;
	size_t len;

	OK(doca_mmap_create(&mmap));
	CHECK_DOCA(doca_mmap_start(mmap), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_mmap_get_memrange(mmap, &addr, &len), DOCA_ERROR_BAD_STATE);
	OK(doca_mmap_add_dev(mmap, dev));
	CHECK_DOCA(doca_mmap_start(mmap), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_mmap_add_dev(mmap, dev), DOCA_ERROR_ALREADY_EXIST);
	OK(doca_mmap_rm_dev(mmap, dev));
	CHECK_DOCA(doca_mmap_rm_dev(mmap, dev), DOCA_ERROR_NOT_FOUND);
	OK(doca_mmap_add_dev(mmap, dev));
	CHECK_DOCA(doca_mmap_set_memrange(mmap, memory, 0), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_mmap_set_memrange(mmap, memory, SIZE_MAX), DOCA_ERROR_INVALID_VALUE);
	OK(doca_mmap_set_memrange(mmap, memory, sizeof(memory)));
	OK(doca_mmap_set_user_data(mmap, data));
	OK(doca_mmap_start(mmap));
	CHECK_EQ(live().pinned_bytes, sizeof(memory));
	CHECK_DOCA(doca_mmap_set_memrange(mmap, memory, 1), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_mmap_set_permissions(mmap, 1), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_mmap_set_user_data(mmap, data), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_mmap_set_free_cb(mmap, NULL, NULL), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_mmap_add_dev(mmap, dev), DOCA_ERROR_NOT_PERMITTED);
	CHECK_DOCA(doca_mmap_rm_dev(mmap, dev), DOCA_ERROR_NOT_PERMITTED);
	CHECK_DOCA(doca_mmap_set_max_num_devices(mmap, 4), DOCA_ERROR_NOT_PERMITTED);
	CHECK_DOCA(doca_mmap_enable_thread_safety(mmap), DOCA_ERROR_NOT_PERMITTED);
	OK(doca_mmap_get_memrange(mmap, &addr, &len));
	CHECK(addr == memory && len == sizeof(memory));
	data.u64 = 0;
	OK(doca_mmap_get_user_data(mmap, &data));
	CHECK_EQ(data.u64, 7);
	OK(doca_mmap_stop(mmap));
	CHECK_EQ(live().pinned_bytes, 0);
	OK(doca_mmap_start(mmap));
	OK(doca_mmap_destroy(mmap));
	CHECK_EQ(live().pinned_bytes, 0);
	CHECK_DOCA(doca_mmap_destroy(mmap), DOCA_ERROR_INVALID_VALUE);
	expect_violations(1, "doca_mmap_destroy: mmap");
	OK(doca_dev_close(dev));
}

static void
test_4_5_2_memrange_once(void)
{
	struct doca_mmap *mmap;

	OK(doca_mmap_create(&mmap));
	OK(doca_mmap_set_memrange(mmap, memory, 10));
	CHECK_DOCA(doca_mmap_set_memrange(mmap, memory, 10), DOCA_ERROR_NOT_PERMITTED);
	OK(doca_mmap_destroy(mmap));
}

static void
test_4_5_4_permission_combinations(void)
{
	struct doca_mmap *mmap;

	OK(doca_mmap_create(&mmap));
	CHECK_DOCA(doca_mmap_set_permissions(mmap, DOCA_ACCESS_FLAG_PCI_READ_ONLY |
							   DOCA_ACCESS_FLAG_PCI_READ_WRITE),
		   DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_mmap_set_permissions(mmap, 128), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_mmap_set_permissions(mmap, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE |
							   DOCA_ACCESS_FLAG_PCI_READ_WRITE |
							   DOCA_ACCESS_FLAG_PCI_RELAXED_ORDERING),
		   DOCA_ERROR_INVALID_VALUE);
	OK(doca_mmap_set_permissions(mmap, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE |
						   DOCA_ACCESS_FLAG_PCI_RELAXED_ORDERING));
	OK(doca_mmap_set_permissions(mmap, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE |
						   DOCA_ACCESS_FLAG_PCI_READ_WRITE));
	OK(doca_mmap_destroy(mmap));
}

static void
test_4_1_mmap_set_max_num_devices(void)
{
	struct doca_mmap *mmap;
	struct doca_dev *a;
	struct doca_dev *b;
	uint32_t num;

	configure("device a\ndevice b");
	a = open_dev("a");
	b = open_dev("b");
	OK(doca_mmap_create(&mmap));
	CHECK_DOCA(doca_mmap_set_max_num_devices(mmap, 0), DOCA_ERROR_INVALID_VALUE);
	OK(doca_mmap_set_max_num_devices(mmap, 1));
	OK(doca_mmap_get_max_num_devices(mmap, &num));
	CHECK_EQ(num, 1);
	OK(doca_mmap_add_dev(mmap, a));
	CHECK_DOCA(doca_mmap_add_dev(mmap, b), DOCA_ERROR_NO_MEMORY);
	OK(doca_mmap_destroy(mmap));
	OK(doca_dev_close(a));
	OK(doca_dev_close(b));
}

static void
count_free(void *addr, size_t len, void *cookie)
{
	CHECK(addr == memory && len == sizeof(memory));
	++*(int *)cookie;
}

static void
test_4_5_14_free_callback(void)
{
	struct doca_dev *dev = open_dev(NULL);
	struct doca_mmap *mmap;
	int freed = 0;

	OK(doca_mmap_create(&mmap));
	OK(doca_mmap_set_memrange(mmap, memory, sizeof(memory)));
	OK(doca_mmap_set_free_cb(mmap, count_free, &freed));
	OK(doca_mmap_destroy(mmap));
	CHECK_EQ(freed, 0);
	OK(doca_mmap_create(&mmap));
	OK(doca_mmap_add_dev(mmap, dev));
	OK(doca_mmap_set_memrange(mmap, memory, sizeof(memory)));
	OK(doca_mmap_set_free_cb(mmap, count_free, &freed));
	OK(doca_mmap_start(mmap));
	OK(doca_mmap_destroy(mmap));
	CHECK_EQ(freed, 1);
	OK(doca_dev_close(dev));
}

static void
test_4_5_14_bufs_keep_the_map(void)
{
	struct bed bed;
	struct doca_buf *buf;
	uint32_t num;

	bed_open(&bed, 4096, 4);
	buf = bed_src(&bed, 0, 16);
	OK(doca_mmap_get_num_bufs(bed.mmap, &num));
	CHECK_EQ(num, 1);
	CHECK_DOCA(doca_mmap_destroy(bed.mmap), DOCA_ERROR_NOT_PERMITTED);
	CHECK_DOCA(doca_mmap_stop(bed.mmap), DOCA_ERROR_NOT_PERMITTED);
	expect_violations(2, "1 bufs point into it");
	OK(doca_buf_dec_refcount(buf, NULL));
	bed_close(&bed);
}

static void
test_map_lives_until_its_context_is_destroyed(void)
{
	struct bed bed;

	for (int bufs = 0; bufs < 2; bufs++) {
		configure(bufs ? "map_lifetime=bufs" : "map_lifetime=context");
		bed_open(&bed, 4096, 4);
		bed_start(&bed);
		bed_submit(&bed, 0, 0, 2048, 64);
		bed_drain(&bed);
		if (bufs) {
			struct doca_mmap *mmap;

			OK(doca_mmap_destroy(bed.mmap));
			OK(doca_mmap_create(&mmap));
			bed.mmap = mmap;
		} else {
			CHECK_DOCA(doca_mmap_destroy(bed.mmap), DOCA_ERROR_NOT_PERMITTED);
			expect_violations(1, "a context that used it");
		}
		bed_close(&bed);
	}
}

static void
test_4_5_8_export_checks_come_first(void)
{
	struct doca_dev *dev = open_dev(NULL);
	struct doca_mmap *mmap;
	const void *desc;
	uint8_t flag = 1;
	size_t len;

	OK(doca_mmap_create(&mmap));
	CHECK_DOCA(doca_mmap_export_pci(mmap, dev, &desc, &len), DOCA_ERROR_NOT_FOUND);
	OK(doca_mmap_add_dev(mmap, dev));
	OK(doca_mmap_set_memrange(mmap, memory, sizeof(memory)));
	CHECK_DOCA(doca_mmap_export_pci(mmap, dev, &desc, &len), DOCA_ERROR_NOT_PERMITTED);
	OK(doca_mmap_start(mmap));
	CHECK_DOCA(doca_mmap_export_pci(mmap, dev, &desc, &len), DOCA_ERROR_NOT_PERMITTED);
	OK(doca_mmap_stop(mmap));
	OK(doca_mmap_set_permissions(mmap, DOCA_ACCESS_FLAG_PCI_READ_ONLY));
	OK(doca_mmap_start(mmap));
	CHECK_DOCA(doca_mmap_export_rdma(mmap, dev, &desc, &len), DOCA_ERROR_NOT_PERMITTED);
	CHECK_DOCA(doca_mmap_create_from_export(NULL, memory, 0, dev, &mmap),
		   DOCA_ERROR_INVALID_VALUE);
	OK(doca_mmap_get_exported(mmap, &flag));
	CHECK_EQ(flag, 0);
	OK(doca_mmap_get_from_export(mmap, &flag));
	CHECK_EQ(flag, 0);
	OK(doca_mmap_destroy(mmap));
	OK(doca_dev_close(dev));
}

static void
test_memlock_limit(void)
{
	struct doca_dev *dev = open_dev(NULL);
	struct doca_mmap *maps[2];

	configure("memlock=6K");
	for (int i = 0; i < 2; i++) {
		OK(doca_mmap_create(&maps[i]));
		OK(doca_mmap_add_dev(maps[i], dev));
		OK(doca_mmap_set_memrange(maps[i], memory, sizeof(memory)));
	}
	OK(doca_mmap_start(maps[0]));
	CHECK_DOCA(doca_mmap_start(maps[1]), DOCA_ERROR_NOT_PERMITTED);
	configure("memlock_status=NO_MEMORY");
	CHECK_DOCA(doca_mmap_start(maps[1]), DOCA_ERROR_NO_MEMORY);
	OK(doca_mmap_stop(maps[0]));
	OK(doca_mmap_start(maps[1]));
	OK(doca_mmap_destroy(maps[0]));
	OK(doca_mmap_destroy(maps[1]));
	OK(doca_dev_close(dev));
}

static void
test_4_6_1_head_and_data(void)
{
	struct bed bed;
	struct doca_buf *src;
	struct doca_buf *dst;
	uint16_t refs;
	size_t len;
	void *at;

	bed_open(&bed, 4096, 4);
	src = bed_src(&bed, 100, 50);
	dst = bed_dst(&bed, 200, 60);
	OK(doca_buf_get_data_len(src, &len));
	CHECK_EQ(len, 50);
	OK(doca_buf_get_data_len(dst, &len));
	CHECK_EQ(len, 0);
	OK(doca_buf_get_len(dst, &len));
	CHECK_EQ(len, 60);
	OK(doca_buf_get_head(dst, &at));
	CHECK(at == bed.memory + 200);
	OK(doca_buf_get_data(dst, &at));
	CHECK(at == bed.memory + 200);
	OK(doca_buf_set_data(src, bed.memory + 110, 40));
	OK(doca_buf_get_data(src, &at));
	CHECK(at == bed.memory + 110);
	CHECK_DOCA(doca_buf_set_data(src, bed.memory + 110, 41), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_buf_set_data(src, bed.memory + 99, 1), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_buf_set_data_len(src, 41), DOCA_ERROR_INVALID_VALUE);
	expect_violations(3, "doca_buf_set_data_len");
	OK(doca_buf_set_data_len(src, 3));
	OK(doca_buf_reset_data_len(src));
	OK(doca_buf_get_data_len(src, &len));
	CHECK_EQ(len, 0);
	OK(doca_buf_inc_refcount(src, &refs));
	CHECK_EQ(refs, 1);
	OK(doca_buf_get_refcount(src, &refs));
	CHECK_EQ(refs, 2);
	OK(doca_buf_dec_refcount(src, &refs));
	CHECK_EQ(refs, 2);
	OK(doca_buf_dec_refcount(src, &refs));
	CHECK_EQ(refs, 1);
	CHECK_DOCA(doca_buf_dec_refcount(src, &refs), DOCA_ERROR_BAD_STATE);
	expect_violations(1, "freed already");
	CHECK_DOCA(doca_buf_get_len(src, &len), DOCA_ERROR_INVALID_VALUE);
	expect_violations(1, "doca_buf_get_len: buf");
	OK(doca_buf_dec_refcount(dst, NULL));
	bed_close(&bed);
}

static void
test_4_6_8_chains(void)
{
	struct doca_buf *b[4];
	struct doca_buf *got;
	struct bed bed;
	uint32_t num;
	uint8_t flag;

	bed_open(&bed, 4096, 4);
	for (int i = 0; i < 4; i++) {
		b[i] = bed_src(&bed, (size_t)i * 16, 16);
	}
	OK(doca_buf_inc_refcount(b[1], NULL));
	CHECK_DOCA(doca_buf_chain_list(b[0], b[1]), DOCA_ERROR_NOT_PERMITTED);
	OK(doca_buf_dec_refcount(b[1], NULL));
	OK(doca_buf_chain_list(b[0], b[1]));
	OK(doca_buf_chain_list(b[2], b[3]));
	OK(doca_buf_chain_list_tail(b[0], b[1], b[2]));
	OK(doca_buf_get_list_len(b[0], &num));
	CHECK_EQ(num, 4);
	CHECK_DOCA(doca_buf_get_list_len(b[1], &num), DOCA_ERROR_NOT_PERMITTED);
	CHECK_DOCA(doca_buf_inc_refcount(b[1], NULL), DOCA_ERROR_NOT_PERMITTED);
	CHECK_DOCA(doca_buf_dec_refcount(b[3], NULL), DOCA_ERROR_NOT_PERMITTED);
	OK(doca_buf_get_next_in_list(b[1], &got));
	CHECK(got == b[2]);
	OK(doca_buf_get_last_in_list(b[1], &got));
	CHECK(got == b[3]);
	OK(doca_buf_is_first_in_list(b[0], &flag));
	CHECK_EQ(flag, 1);
	OK(doca_buf_is_last_in_list(b[3], &flag));
	CHECK_EQ(flag, 1);
	OK(doca_buf_is_in_list(b[2], &flag));
	CHECK_EQ(flag, 1);
	CHECK_DOCA(doca_buf_inventory_buf_dup(bed.inventory, b[1], &got), DOCA_ERROR_NOT_PERMITTED);
	OK(doca_buf_inventory_buf_dup(bed.inventory, b[0], &got));
	OK(doca_buf_get_list_len(got, &num));
	CHECK_EQ(num, 4);
	OK(doca_buf_dec_refcount(got, NULL));
	OK(doca_buf_unchain_list(b[0], b[2]));
	CHECK_DOCA(doca_buf_unchain_list(b[0], b[3]), DOCA_ERROR_INVALID_VALUE);
	OK(doca_buf_get_list_len(b[0], &num));
	CHECK_EQ(num, 2);
	OK(doca_buf_get_list_len(b[2], &num));
	CHECK_EQ(num, 2);
	OK(doca_buf_get_last_in_list(b[0], &got));
	CHECK(got == b[1]);
	OK(doca_buf_dec_refcount(b[0], NULL));
	CHECK_EQ(live().bufs, 2);
	OK(doca_buf_dec_refcount(b[2], NULL));
	CHECK_EQ(live().bufs, 0);
	bed_close(&bed);
}

static void
test_4_1_buf_inventory_create__buf_inventory_destroy__buf_inventory_buf_get_by_args__buf_inventory_expand(
	void)
{
	struct doca_buf_inventory *inventory;
	struct doca_buf *a;
	struct doca_buf *b;
	struct bed bed;
	uint32_t num;

	bed_open(&bed, 4096, 4);
	CHECK_DOCA(doca_buf_inventory_create(0, &inventory), DOCA_ERROR_INVALID_VALUE);
	OK(doca_buf_inventory_create(1, &inventory));
	CHECK_DOCA(doca_buf_inventory_expand(inventory, 1), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_buf_inventory_buf_get_by_addr(inventory, bed.mmap, bed.memory, 1, &a),
		   DOCA_ERROR_BAD_STATE);
	expect_violations(1, "not started");
	OK(doca_buf_inventory_start(inventory));
	CHECK_DOCA(doca_buf_inventory_buf_get_by_addr(inventory, bed.mmap, bed.memory, 4097, &a),
		   DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_buf_inventory_buf_get_by_addr(inventory, bed.mmap, bed.memory - 1, 2, &a),
		   DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(
		doca_buf_inventory_buf_get_by_addr(inventory, bed.mmap, bed.memory + 4095, 2, &a),
		DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_buf_inventory_buf_get_by_args(inventory, bed.mmap, bed.memory, 10,
						      bed.memory + 5, 6, &a),
		   DOCA_ERROR_INVALID_VALUE);
	expect_violations(1, "does not lie inside it");
	OK(doca_buf_inventory_buf_get_by_addr(inventory, bed.mmap, bed.memory, 1, &a));
	CHECK_DOCA(doca_buf_inventory_buf_get_by_addr(inventory, bed.mmap, bed.memory, 1, &b),
		   DOCA_ERROR_NO_MEMORY);
	CHECK_EQ(counters().no_memory, 1);
	OK(doca_buf_inventory_expand(inventory, 2));
	OK(doca_buf_inventory_get_num_elements(inventory, &num));
	CHECK_EQ(num, 3);
	OK(doca_buf_inventory_get_num_free_elements(inventory, &num));
	CHECK_EQ(num, 2);
	OK(doca_buf_inventory_buf_get_by_addr(inventory, bed.mmap, bed.memory, 1, &b));
	CHECK_DOCA(doca_buf_inventory_destroy(inventory), DOCA_ERROR_IN_USE);
	expect_violations(1, "2 bufs are out");
	OK(doca_buf_dec_refcount(a, NULL));
	OK(doca_buf_dec_refcount(b, NULL));
	OK(doca_buf_inventory_destroy(inventory));
	CHECK_DOCA(doca_buf_inventory_destroy(inventory), DOCA_ERROR_INVALID_VALUE);
	expect_violations(1, "it is freed");
	bed_close(&bed);
}

TESTS(TEST(test_4_5_1_setters_fail_after_start), TEST(test_4_5_2_memrange_once),
      TEST(test_4_5_4_permission_combinations), TEST(test_4_1_mmap_set_max_num_devices),
      TEST(test_4_5_14_free_callback), TEST(test_4_5_14_bufs_keep_the_map),
      TEST(test_map_lives_until_its_context_is_destroyed),
      TEST(test_4_5_8_export_checks_come_first), TEST(test_memlock_limit),
      TEST(test_4_6_1_head_and_data), TEST(test_4_6_8_chains),
      TEST(test_4_1_buf_inventory_create__buf_inventory_destroy__buf_inventory_buf_get_by_args__buf_inventory_expand));
