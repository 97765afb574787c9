// SPDX-License-Identifier: Apache-2.0
//
// The same from C++17: objects that free themselves, errors as exceptions.
//
// Prints: copied 300000 bytes
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include <doca_buf.h>
#include <doca_buf_inventory.h>
#include <doca_ctx.h>
#include <doca_dev.h>
#include <doca_dma.h>
#include <doca_error.h>
#include <doca_mmap.h>
#include <doca_pe.h>

namespace
{

void
need(doca_error_t result, const char *what)
{
	if (result != DOCA_SUCCESS) {
		throw std::runtime_error(std::string(what) + ": " + doca_error_get_descr(result));
	}
}

template <auto Destroy> struct Deleter {
	template <typename T>
	void
	operator()(T *object) const
	{
		Destroy(object);
	}
};

template <typename T, auto Destroy> using Owned = std::unique_ptr<T, Deleter<Destroy>>;

using Device = Owned<doca_dev, doca_dev_close>;
using Map = Owned<doca_mmap, doca_mmap_destroy>;
using Inventory = Owned<doca_buf_inventory, doca_buf_inventory_destroy>;
using Engine = Owned<doca_pe, doca_pe_destroy>;
using Dma = Owned<doca_dma, doca_dma_destroy>;

// Call a function that gives an object through its last parameter.
template <typename Owner, typename Make, typename... Arguments>
Owner
make(const char *what, Make &&create, Arguments... arguments)
{
	typename Owner::pointer object = nullptr;

	need(create(arguments..., &object), what);
	return Owner(object);
}

Device
open_first()
{
	doca_devinfo **list;
	std::uint32_t num;

	need(doca_devinfo_create_list(&list, &num), "list");
	Owned<doca_devinfo *, doca_devinfo_destroy_list> owner(list);
	auto *found = std::find_if(list, list + num, [](const doca_devinfo *info) {
		return doca_dma_cap_task_memcpy_is_supported(info) == DOCA_SUCCESS;
	});
	if (found == list + num) {
		throw std::runtime_error("no device that does DMA");
	}
	return make<Device>("open", doca_dev_open, *found);
}

// The status of the one task of this program goes where its user data points.
void
finished(doca_dma_task_memcpy *task, doca_data user_data, doca_data)
{
	auto *generic = doca_dma_task_memcpy_as_task(task);

	*static_cast<doca_error_t *>(user_data.ptr) = doca_task_get_status(generic);
	doca_task_free(generic);
}

void
run()
{
	std::vector<unsigned char> memory(600000);
	auto *const src = memory.data();
	auto *const dst = src + memory.size() / 2;
	std::iota(src, dst, static_cast<unsigned char>(1));

	// Destroyed in the reverse order: the DMA first, the device last.
	auto device = open_first();
	auto map = make<Map>("map", doca_mmap_create);
	need(doca_mmap_add_dev(map.get(), device.get()), "map");
	need(doca_mmap_set_memrange(map.get(), memory.data(), memory.size()), "map");
	need(doca_mmap_start(map.get()), "map");
	auto inventory = make<Inventory>("inventory", doca_buf_inventory_create, std::size_t{2});
	need(doca_buf_inventory_start(inventory.get()), "inventory");
	auto engine = make<Engine>("engine", doca_pe_create);
	auto dma = make<Dma>("dma", doca_dma_create, device.get());
	auto *ctx = doca_dma_as_ctx(dma.get());
	need(doca_pe_connect_ctx(engine.get(), ctx), "dma");
	need(doca_dma_task_memcpy_set_conf(dma.get(), finished, finished, 1), "dma");
	need(doca_ctx_start(ctx), "dma");

	doca_buf *from;
	doca_buf *to;
	const std::size_t size = dst - src;
	need(doca_buf_inventory_buf_get_by_data(inventory.get(), map.get(), src, size, &from),
	     "buf");
	need(doca_buf_inventory_buf_get_by_addr(inventory.get(), map.get(), dst, size, &to), "buf");
	auto status = DOCA_ERROR_IN_PROGRESS;
	doca_data user_data;
	user_data.ptr = &status;
	doca_dma_task_memcpy *task;
	need(doca_dma_task_memcpy_alloc_init(dma.get(), from, to, user_data, &task), "task");
	need(doca_task_submit(doca_dma_task_memcpy_as_task(task)), "submit");
	while (status == DOCA_ERROR_IN_PROGRESS) {
		doca_pe_progress(engine.get());
	}
	need(doca_buf_dec_refcount(from, nullptr), "buf");
	need(doca_buf_dec_refcount(to, nullptr), "buf");
	need(doca_ctx_stop(ctx), "stop");
	need(status, "copy");
	if (!std::equal(src, dst, dst)) {
		throw std::runtime_error("the copy is not the original");
	}
	std::cout << "copied " << size << " bytes\n";
}

} // namespace

int
main()
{
	try {
		run();
	} catch (const std::exception &error) {
		std::cerr << error.what() << '\n';
		return EXIT_FAILURE;
	}
	return EXIT_SUCCESS;
}
