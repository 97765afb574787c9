"""4.1: the codes each call gives."""

from __future__ import annotations

from aiodocadma.testing.conformance._bed import IDLE, STOPPING, Bed
from aiodocadma.testing.conformance._runner import case

PCI_READ_ONLY = 16
PCI_READ_WRITE = 32


# ---- devices ----


@case()
def test_4_1_devinfo_create_list(t: Bed) -> None:
    infos, number = t.ffi.new("struct doca_devinfo ***"), t.ffi.new("uint32_t *")
    t.expect("INVALID_VALUE", "devinfo_create_list", t.null, number)
    t.expect("INVALID_VALUE", "devinfo_create_list", infos, t.null)
    t.call("devinfo_create_list", infos, number)
    t.call("devinfo_destroy_list", infos[0])


@case()
def test_4_1_devinfo_destroy_list(t: Bed) -> None:
    t.expect("INVALID_VALUE", "devinfo_destroy_list", t.null)
    infos, number = t.ffi.new("struct doca_devinfo ***"), t.ffi.new("uint32_t *")
    t.call("devinfo_create_list", infos, number)
    first = infos[0][0]
    try:
        infos[0][0] = t.null
        t.expect("IN_USE", "devinfo_destroy_list", infos[0])
    finally:
        infos[0][0] = first
    t.call("devinfo_destroy_list", infos[0])


@case()
def test_4_1_devinfo_is_equal_pci_addr(t: Bed) -> None:
    equal = t.ffi.new("uint8_t *")
    t.expect("INVALID_VALUE", "devinfo_is_equal_pci_addr", t.devinfo, b"nonsense", equal)
    t.expect("INVALID_VALUE", "devinfo_is_equal_pci_addr", t.devinfo, t.null, equal)


@case()
def test_4_1_devinfo_get_pci_addr_str(t: Bed) -> None:
    t.expect("INVALID_VALUE", "devinfo_get_pci_addr_str", t.devinfo, t.null)
    text = t.ffi.new("char[16]", b"x" * 15)
    t.call("devinfo_get_pci_addr_str", t.devinfo, text)
    t.equal("what is behind the 13 bytes", t.ffi.buffer(text)[13:15], b"xx")
    t.check(t.ffi.buffer(text)[12:13] == b"\0", "the address is not of the form dddd:bb:dd.f")


def _needs_room(t: Bed, call: str, size: int, *, may_give: str = "SUCCESS") -> None:
    out = t.ffi.new("uint8_t[]", size)
    t.expect("INVALID_VALUE", call, t.devinfo, t.ffi.cast("void *", out), size - 1)
    t.expect(may_give, call, t.devinfo, t.ffi.cast("void *", out), size)


@case()
def test_4_1_devinfo_get_ibdev_name(t: Bed) -> None:
    _needs_room(t, "devinfo_get_ibdev_name", 64)


@case()
def test_4_1_devinfo_get_iface_name(t: Bed) -> None:
    _needs_room(t, "devinfo_get_iface_name", 256, may_give="SUCCESS OPERATING_SYSTEM")


@case()
def test_4_1_devinfo_get_mac_addr(t: Bed) -> None:
    _needs_room(t, "devinfo_get_mac_addr", 6, may_give="SUCCESS NOT_SUPPORTED")


@case()
def test_4_1_devinfo_get_ipv4_addr(t: Bed) -> None:
    _needs_room(t, "devinfo_get_ipv4_addr", 4, may_give="SUCCESS NOT_FOUND OPERATING_SYSTEM")


@case()
def test_4_1_dev_open(t: Bed) -> None:
    dev = t.ffi.new("struct doca_dev **")
    t.expect("INVALID_VALUE", "dev_open", t.null, dev)
    for info in t.devinfos():
        t.expect("INVALID_VALUE", "dev_open", info, t.null)


@case()
def test_4_1_dev_close(t: Bed) -> None:
    mapping = t.create("mmap")
    t.call("mmap_add_dev", mapping, t.dev)
    t.expect("IN_USE", "dev_close", t.dev)
    t.destroy("mmap", mapping)
    dma = t.create("dma", t.dev)
    t.expect("IN_USE", "dev_close", t.dev)
    t.destroy("dma", dma)
    t.close_dev(t.dev)


@case()
def test_4_1_dev_as_devinfo(t: Bed) -> None:
    t.check(t.abi.doca_dev_as_devinfo(t.null) == t.null, "dev_as_devinfo(NULL) is not NULL")
    t.check(t.devinfo != t.null, "dev_as_devinfo is NULL for an open device")


# ---- maps ----


@case()
def test_4_1_mmap_create(t: Bed) -> None:
    t.expect("INVALID_VALUE", "mmap_create", t.null)


@case()
def test_4_1_mmap_destroy(t: Bed) -> None:
    t.expect("INVALID_VALUE", "mmap_destroy", t.null)
    t.open(start=False)
    buf = t.src(0, 16)
    t.expect("NOT_PERMITTED", "mmap_destroy", t.mapping)
    t.drop(buf)
    t.destroy("mmap", t.mapping)


@case()
def test_4_1_mmap_start(t: Bed) -> None:
    t.expect("INVALID_VALUE", "mmap_start", t.null)
    mapping = t.create("mmap")
    t.expect("INVALID_VALUE", "mmap_start", mapping)
    t.call("mmap_add_dev", mapping, t.dev)
    t.expect("INVALID_VALUE", "mmap_start", mapping)
    memory = t.memory(4096)
    t.call("mmap_set_memrange", mapping, memory, 4096)
    t.call("mmap_start", mapping)


@case()
def test_4_1_mmap_stop(t: Bed) -> None:
    t.expect("INVALID_VALUE", "mmap_stop", t.null)
    t.open(start=False)
    buf = t.src(0, 16)
    t.expect("NOT_PERMITTED", "mmap_stop", t.mapping)
    t.drop(buf)
    t.call("mmap_stop", t.mapping)
    t.call("mmap_start", t.mapping)


@case()
def test_4_1_mmap_add_dev(t: Bed) -> None:
    mapping = t.create("mmap")
    t.expect("INVALID_VALUE", "mmap_add_dev", mapping, t.null)
    t.expect("INVALID_VALUE", "mmap_add_dev", t.null, t.dev)
    t.call("mmap_add_dev", mapping, t.dev)
    t.expect("ALREADY_EXIST", "mmap_add_dev", mapping, t.dev)
    t.call("mmap_set_memrange", mapping, t.memory(4096), 4096)
    t.call("mmap_start", mapping)
    t.expect("NOT_PERMITTED", "mmap_add_dev", mapping, t.dev)


@case()
def test_4_1_mmap_rm_dev(t: Bed) -> None:
    mapping = t.create("mmap")
    t.expect("INVALID_VALUE", "mmap_rm_dev", t.null, t.dev)
    t.expect("NOT_FOUND", "mmap_rm_dev", mapping, t.dev)
    t.call("mmap_add_dev", mapping, t.dev)
    t.call("mmap_rm_dev", mapping, t.dev)
    t.expect("NOT_FOUND", "mmap_rm_dev", mapping, t.dev)
    started = t.map(t.memory(4096))
    t.expect("NOT_PERMITTED", "mmap_rm_dev", started, t.dev)


@case()
def test_4_1_mmap_set_memrange(t: Bed) -> None:
    memory = t.memory(4096)
    mapping = t.create("mmap")
    t.expect("INVALID_VALUE", "mmap_set_memrange", t.null, memory, 4096)
    t.expect("INVALID_VALUE", "mmap_set_memrange", mapping, t.null, 4096)
    t.expect("INVALID_VALUE", "mmap_set_memrange", mapping, memory, 2**64 - 1)
    t.call("mmap_set_memrange", mapping, memory, 4096)
    t.expect("NOT_PERMITTED", "mmap_set_memrange", mapping, memory, 4096)
    t.call("mmap_add_dev", mapping, t.dev)
    t.call("mmap_start", mapping)
    t.expect("BAD_STATE", "mmap_set_memrange", mapping, memory, 4096)


@case()
def test_4_1_mmap_set_dmabuf_memrange(t: Bed) -> None:
    memory = t.memory(4096)
    mapping = t.create("mmap")
    t.expect("INVALID_VALUE", "mmap_set_dmabuf_memrange", t.null, 0, memory, 0, 4096)
    t.expect("INVALID_VALUE", "mmap_set_dmabuf_memrange", mapping, 0, memory, 0, 2**64 - 1)
    t.call("mmap_set_memrange", mapping, memory, 4096)
    t.expect("NOT_PERMITTED", "mmap_set_dmabuf_memrange", mapping, 0, memory, 0, 4096)
    started = t.map(memory)
    t.expect("BAD_STATE", "mmap_set_dmabuf_memrange", started, 0, memory, 0, 4096)


@case()
def test_4_1_mmap_get_memrange(t: Bed) -> None:
    mapping = t.create("mmap")
    address, length = t.ffi.new("void **"), t.ffi.new("size_t *")
    t.expect("BAD_STATE", "mmap_get_memrange", mapping, address, length)
    memory = t.memory(4096)
    t.call("mmap_set_memrange", mapping, memory, 4096)
    t.call("mmap_get_memrange", mapping, address, length)
    t.equal("the range", (address[0], length[0]), (t.ffi.cast("void *", memory), 4096))
    t.expect("INVALID_VALUE", "mmap_get_memrange", mapping, t.null, length)


@case()
def test_4_1_mmap_set_permissions(t: Bed) -> None:
    mapping = t.create("mmap")
    t.expect("INVALID_VALUE", "mmap_set_permissions", mapping, 1 << 20)
    t.expect("INVALID_VALUE", "mmap_set_permissions", mapping, PCI_READ_ONLY | PCI_READ_WRITE)
    t.expect("INVALID_VALUE", "mmap_set_permissions", t.null, 1)
    t.call("mmap_set_permissions", mapping, 1)
    t.expect("BAD_STATE", "mmap_set_permissions", t.map(t.memory(4096)), 1)


@case()
def test_4_1_mmap_set_max_num_devices(t: Bed) -> None:
    mapping = t.create("mmap")
    t.expect("INVALID_VALUE", "mmap_set_max_num_devices", t.null, 4)
    t.expect("INVALID_VALUE", "mmap_set_max_num_devices", mapping, 0)
    t.call("mmap_set_max_num_devices", mapping, 1)
    t.equal("max_num_devices", t.make("uint32_t", "mmap_get_max_num_devices", mapping), 1)
    started = t.map(t.memory(4096))
    t.expect("NOT_PERMITTED", "mmap_set_max_num_devices", started, 4)
    t.call("mmap_stop", started)
    t.expect("NOT_PERMITTED", "mmap_set_max_num_devices", started, 4)


@case()
def test_4_1_mmap_set_free_cb(t: Bed) -> None:
    t.expect("INVALID_VALUE", "mmap_set_free_cb", t.null, t.null, t.null)
    t.expect("INVALID_VALUE", "mmap_set_user_data", t.null, 1)
    mapping = t.map(t.memory(4096), start=False)
    t.call("mmap_set_free_cb", mapping, t.null, t.null)
    t.call("mmap_set_user_data", mapping, 7)
    t.equal("the user data", t.make("uint64_t", "mmap_get_user_data", mapping), 7)
    t.call("mmap_start", mapping)
    t.expect("BAD_STATE", "mmap_set_free_cb", mapping, t.null, t.null)
    t.expect("BAD_STATE", "mmap_set_user_data", mapping, 1)


@case()
def test_4_1_mmap_export_pci(t: Bed) -> None:
    memory = t.memory(4096)
    out = t.ffi.new("void const **"), t.ffi.new("size_t *")
    for call, permission in (("mmap_export_pci", PCI_READ_ONLY), ("mmap_export_rdma", 2)):
        mapping = t.create("mmap")
        t.expect("INVALID_VALUE", call, t.null, t.dev, *out)
        t.expect("INVALID_VALUE", call, mapping, t.null, *out)
        t.call("mmap_set_memrange", mapping, memory, 4096)
        t.call("mmap_set_permissions", mapping, permission)
        t.expect("NOT_FOUND", call, mapping, t.dev, *out)
        t.call("mmap_add_dev", mapping, t.dev)
        t.expect("NOT_PERMITTED", call, mapping, t.dev, *out)
        t.expect("NOT_PERMITTED", call, t.map(memory, 1), t.dev, *out)


@case()
def test_4_1_mmap_create_from_export(t: Bed) -> None:
    out = t.ffi.new("struct doca_mmap **")
    nothing = t.ffi.new("char[]", 512)
    t.expect("INVALID_VALUE", "mmap_create_from_export", t.null, t.null, 512, t.dev, out)
    t.expect("INVALID_VALUE", "mmap_create_from_export", t.null, nothing, 0, t.dev, out)
    t.expect("INVALID_VALUE", "mmap_create_from_export", t.null, nothing, 512, t.null, out)
    code = t.expect("INVALID_VALUE NOT_SUPPORTED DRIVER", "mmap_create_from_export", t.null, nothing, 512, t.dev, out)
    t.note("importing 512 zero bytes", code)


@case(needs=("mmap_enable_thread_safety",))
def test_4_1_mmap_enable_thread_safety(t: Bed) -> None:
    mapping = t.map(t.memory(4096), start=False)
    t.call("mmap_enable_thread_safety", mapping)
    t.expect("NOT_PERMITTED", "mmap_enable_thread_safety", t.map(t.memory(4096)))
    t.expect("INVALID_VALUE", "mmap_enable_thread_safety", t.null)


# ---- bufs ----


@case()
def test_4_1_buf_inventory_create(t: Bed) -> None:
    inventory = t.ffi.new("struct doca_buf_inventory **")
    t.expect("INVALID_VALUE", "buf_inventory_create", 0, inventory)
    t.expect("INVALID_VALUE", "buf_inventory_create", 1, t.null)
    t.expect("INVALID_VALUE", "buf_inventory_start", t.null)
    t.expect("INVALID_VALUE", "buf_inventory_stop", t.null)
    made = t.inventory(8, start=False)
    t.equal("num_elements", t.make("uint32_t", "buf_inventory_get_num_elements", made), 8)
    t.call("buf_inventory_set_user_data", made, 5)
    t.equal("the user data", t.make("uint64_t", "buf_inventory_get_user_data", made), 5)
    t.call("buf_inventory_start", made)
    t.call("buf_inventory_stop", made)


@case()
def test_4_1_buf_inventory_destroy(t: Bed) -> None:
    t.expect("INVALID_VALUE", "buf_inventory_destroy", t.null)
    t.open(start=False)
    buf = t.src(0, 8)
    t.expect("IN_USE", "buf_inventory_destroy", t.bufs)
    t.drop(buf)
    t.destroy("buf_inventory", t.bufs)


@case()
def test_4_1_buf_inventory_buf_get_by_args(t: Bed) -> None:
    ram = t.memory(8192)
    mapping = t.create("mmap")
    t.call("mmap_add_dev", mapping, t.dev)
    t.call("mmap_set_memrange", mapping, ram + 4096, 2048)
    t.call("mmap_start", mapping)
    inventory = t.inventory(1)
    buf = t.ffi.new("struct doca_buf **")
    for offset, length in ((4095, 2), (4096, 2049), (6143, 2), (0, 1)):
        at = ram + offset
        t.expect("INVALID_VALUE", "buf_inventory_buf_get_by_args", inventory, mapping, at, length, at, 0, buf)
    at = ram + 4096
    t.call("buf_inventory_buf_get_by_args", inventory, mapping, at, 2048, at, 0, buf)
    more = t.ffi.new("struct doca_buf **")
    t.expect("NO_MEMORY", "buf_inventory_buf_get_by_args", inventory, mapping, at, 1, at, 0, more)
    t.drop(buf[0])
    t.call("buf_inventory_buf_get_by_args", inventory, mapping, at, 1, at, 0, more)
    t.drop(more[0])


@case()
def test_4_1_buf_inventory_buf_dup(t: Bed) -> None:
    t.open(start=False)
    head, tail = t.src(0, 8), t.src(8, 8)
    t.call("buf_chain_list", head, tail)
    out = t.ffi.new("struct doca_buf **")
    t.expect("NOT_PERMITTED", "buf_inventory_buf_dup", t.bufs, tail, out)
    other = t.inventory(1)
    t.expect("NO_MEMORY", "buf_inventory_buf_dup", other, head, out)
    stopped = t.inventory(2, start=False)
    t.expect("BAD_STATE", "buf_inventory_buf_dup", stopped, head, out)
    t.call("buf_inventory_buf_dup", t.bufs, head, out)
    t.equal("the length of the copy", t.make("uint32_t", "buf_get_list_len", out[0]), 2)
    t.drop(out[0], head)


@case(needs=("buf_inventory_expand",))
def test_4_1_buf_inventory_expand(t: Bed) -> None:
    inventory = t.inventory(2, start=False)
    t.expect("BAD_STATE", "buf_inventory_expand", inventory, 2)
    t.call("buf_inventory_start", inventory)
    t.expect("INVALID_VALUE", "buf_inventory_expand", inventory, 0)
    t.call("buf_inventory_expand", inventory, 3)
    t.equal("num_elements", t.make("uint32_t", "buf_inventory_get_num_elements", inventory), 5)
    t.equal("num_free_elements", t.make("uint32_t", "buf_inventory_get_num_free_elements", inventory), 5)


@case()
def test_4_1_buf_inc_refcount(t: Bed) -> None:
    t.open(start=False)
    head, tail = t.src(0, 8), t.src(8, 8)
    t.call("buf_chain_list", head, tail)
    count = t.ffi.new("uint16_t *")
    t.expect("NOT_PERMITTED", "buf_inc_refcount", tail, count)
    for expected in (1, 2):
        t.call("buf_inc_refcount", head, count)
        t.equal("the count before", count[0], expected)
    while count[0] < 65534:
        t.call("buf_inc_refcount", head, count)
    t.expect("TOO_BIG", "buf_inc_refcount", head, count)
    while count[0] != 1:
        t.call("buf_dec_refcount", head, count)


@case()
def test_4_1_buf_dec_refcount(t: Bed) -> None:
    t.open(start=False)
    head, tail = t.src(0, 8), t.src(8, 8)
    t.call("buf_chain_list", head, tail)
    t.expect("NOT_PERMITTED", "buf_dec_refcount", tail, t.null)
    t.call("buf_inc_refcount", head, t.null)
    t.call("buf_dec_refcount", head, t.null)
    count = t.ffi.new("uint16_t *")
    t.call("buf_dec_refcount", head, count)
    t.equal("the count before", count[0], 1)
    if t.abi.emulated:
        t.expect("BAD_STATE", "buf_dec_refcount", head, count)


@case()
def test_4_1_buf_chain_list(t: Bed) -> None:
    t.open(start=False)
    head, other = t.src(0, 8), t.src(8, 8)
    t.call("buf_inc_refcount", other, t.null)
    t.expect("NOT_PERMITTED", "buf_chain_list", head, other)
    t.drop(other)
    t.call("buf_chain_list", head, other)
    t.drop(head)


@case()
def test_4_1_buf_unchain_list(t: Bed) -> None:
    t.open(start=False)
    a, b, c = (t.src(8 * i, 8) for i in range(3))
    t.call("buf_chain_list", a, b)
    t.expect("INVALID_VALUE", "buf_unchain_list", a, c)
    t.call("buf_unchain_list", a, b)
    t.equal("the length", t.make("uint32_t", "buf_get_list_len", a), 1)
    t.drop(a, b, c)


@case()
def test_4_1_buf_get_last_in_list(t: Bed) -> None:
    t.open(start=False)
    a, b, c = (t.src(8 * i, 8) for i in range(3))
    t.call("buf_chain_list", a, b)
    t.call("buf_chain_list", a, c)
    for buf in (a, b, c):
        t.equal("the last", t.make("struct doca_buf *", "buf_get_last_in_list", buf), c)
    t.drop(a)


@case()
def test_4_1_buf_get_list_len(t: Bed) -> None:
    t.open(start=False)
    a, b = t.src(0, 8), t.src(8, 8)
    t.equal("the length", t.make("uint32_t", "buf_get_list_len", a), 1)
    t.call("buf_chain_list", a, b)
    t.equal("the length", t.make("uint32_t", "buf_get_list_len", a), 2)
    t.expect("NOT_PERMITTED", "buf_get_list_len", b, t.ffi.new("uint32_t *"))
    t.drop(a)


@case()
def test_4_1_buf_getters(t: Bed) -> None:
    t.open(start=False)
    a, b, lone = t.src(0, 8), t.src(8, 8), t.src(16, 8)
    t.call("buf_chain_list", a, b)
    t.equal("the next", t.make("struct doca_buf *", "buf_get_next_in_list", a), b)
    for buf, flags in ((a, (1, 0, 1)), (b, (0, 1, 1)), (lone, (1, 1, 0))):
        found = tuple(t.make("uint8_t", f"buf_is_{what}", buf) for what in ("first_in_list", "last_in_list", "in_list"))
        t.equal("first, last, in list", found, flags)
    t.call("buf_set_data", lone, t.ram + 18, 3)
    t.equal("data", t.make("void *", "buf_get_data", lone), t.ffi.cast("void *", t.ram + 18))
    if t.has("buf_set_data_len"):
        t.call("buf_set_data_len", lone, 2)
        t.equal("data_len", t.make("size_t", "buf_get_data_len", lone), 2)
    t.call("buf_reset_data_len", lone)
    t.equal("data_len", t.make("size_t", "buf_get_data_len", lone), 0)
    t.equal("refcount", t.make("uint16_t", "buf_get_refcount", lone), 1)
    t.drop(a, lone)


# ---- engines ----


@case()
def test_4_1_pe_create(t: Bed) -> None:
    t.expect("INVALID_VALUE", "pe_create", t.null)


@case()
def test_4_1_pe_destroy(t: Bed) -> None:
    t.expect("INVALID_VALUE", "pe_destroy", t.null)
    t.open(start=False)
    t.expect("IN_USE", "pe_destroy", t.pe)


@case()
def test_4_1_pe_connect_ctx(t: Bed) -> None:
    t.open(start=False)
    other = t.create("pe")
    t.expect("INVALID_VALUE", "pe_connect_ctx", t.null, t.ctx)
    t.expect("INVALID_VALUE", "pe_connect_ctx", other, t.null)
    t.expect("NOT_PERMITTED", "pe_connect_ctx", other, t.ctx)
    t.expect("NOT_PERMITTED", "pe_connect_ctx", t.pe, t.ctx)


@case()
def test_4_1_pe_get_notification_handle(t: Bed) -> None:
    handle = t.ffi.new("int *")
    t.expect("INVALID_VALUE", "pe_get_notification_handle", t.null, handle)
    t.expect("INVALID_VALUE", "pe_get_notification_handle", t.create("pe"), t.null)


@case()
def test_4_1_pe_request_notification(t: Bed) -> None:
    t.open()
    t.arm()
    t.clear()


@case()
def test_4_1_pe_clear_notification(t: Bed) -> None:
    t.open()
    t.clear()
    t.arm()
    t.clear()
    t.clear()


@case()
def test_4_1_pe_get_num_inflight_tasks(t: Bed) -> None:
    t.open()
    number = t.ffi.new("size_t *")
    t.expect("INVALID_VALUE", "pe_get_num_inflight_tasks", t.null, number)
    t.expect("INVALID_VALUE", "pe_get_num_inflight_tasks", t.pe, t.null)
    t.expect("INVALID_VALUE", "ctx_get_num_inflight_tasks", t.null, number)
    t.call("ctx_get_num_inflight_tasks", t.ctx, number)
    t.equal("num_inflight_tasks", number[0], 0)


@case(needs=("pe_set_event_mode",))
def test_4_1_pe_set_event_mode(t: Bed) -> None:
    pe = t.create("pe")
    t.expect("INVALID_VALUE", "pe_set_event_mode", t.null, 0)
    t.expect("INVALID_VALUE", "pe_set_event_mode", pe, 2)
    t.call("pe_set_event_mode", pe, 1)
    t.call("pe_set_event_mode", pe, 0)


# ---- contexts ----


@case()
def test_4_1_ctx_start(t: Bed) -> None:
    t.expect("INVALID_VALUE", "ctx_start", t.null)
    dma = t.create("dma", t.dev)
    t.set_conf(dma, 4)
    t.expect("NOT_CONNECTED", "ctx_start", t.abi.doca_dma_as_ctx(dma))


@case()
def test_4_1_ctx_stop(t: Bed) -> None:
    t.expect("INVALID_VALUE", "ctx_stop", t.null)
    t.expect("NOT_CONNECTED", "ctx_stop", t.abi.doca_dma_as_ctx(t.create("dma", t.dev)))
    t.open()
    task = t.task(t.src(0, 8), t.dst(4096, 8))
    t.expect("IN_PROGRESS", "ctx_stop", t.ctx)
    t.equal("the state", t.state(), STOPPING)
    t.free(task)
    t.wait_idle()


@case()
def test_4_1_ctx_setters(t: Bed) -> None:
    t.open(start=False)
    for name, args in (
        ("ctx_set_user_data", (1,)),
        ("ctx_set_state_changed_cb", (t.null,)),
        ("ctx_get_user_data", (t.ffi.new("uint64_t *"),)),
        ("ctx_get_state", (t.ffi.new("enum doca_ctx_states *"),)),
    ):
        t.expect("INVALID_VALUE", name, t.null, *args)
    t.expect("INVALID_VALUE", "ctx_get_state", t.ctx, t.null)
    t.call("ctx_set_user_data", t.ctx, 9)
    t.equal("the user data", t.make("uint64_t", "ctx_get_user_data", t.ctx), 9)
    t.equal("the state", t.state(), IDLE)


@case()
def test_4_1_task_submit(t: Bed) -> None:
    t.open()
    late = t.task(t.src(0, 8), t.dst(4096, 8))
    t.expect("IN_PROGRESS", "ctx_stop", t.ctx)
    task = t.as_task(late)
    t.check(t.code("task_submit", task) != "SUCCESS", "a stopping context takes tasks")
    if t.has("task_submit_ex"):
        t.check(t.code("task_submit_ex", task, 1) != "SUCCESS", "a stopping context takes tasks")
    t.free(late)
    t.wait_idle()
    t.equal("the events", t.events, [])


@case()
def test_4_1_task_try_submit(t: Bed) -> None:
    t.open()
    task = t.task(t.null, t.null)
    t.expect("INVALID_VALUE", "task_try_submit", t.as_task(task))
    t.equal("in flight", t.in_flight(), 0)
    t.abi.doca_dma_task_memcpy_set_src(task, t.src(0, 8))
    t.abi.doca_dma_task_memcpy_set_dst(task, t.dst(4096, 8))
    t.call("task_try_submit", t.as_task(task))
    t.run()
    t.equal("the ends", [event.status for event in t.events], ["SUCCESS"])


@case()
def test_4_1_dma_create(t: Bed) -> None:
    t.expect("INVALID_VALUE", "dma_create", t.null, t.ffi.new("struct doca_dma **"))
    t.expect("INVALID_VALUE", "dma_create", t.dev, t.null)


@case()
def test_4_1_dma_destroy(t: Bed) -> None:
    t.open()
    t.expect("IN_USE", "dma_destroy", t.dma)


@case()
def test_4_1_dma_task_memcpy_set_conf(t: Bed) -> None:
    dma = t.create("dma", t.dev)
    ok, error = t.task_callback(ok=True), t.task_callback(ok=False)
    t.expect("INVALID_VALUE", "dma_task_memcpy_set_conf", t.null, ok, error, 1)
    t.expect("INVALID_VALUE", "dma_task_memcpy_set_conf", dma, t.null, error, 1)
    t.expect("INVALID_VALUE", "dma_task_memcpy_set_conf", dma, ok, t.null, 1)
    t.expect("INVALID_VALUE", "dma_task_memcpy_set_conf", dma, ok, error, 0)
    limit = t.make("uint32_t", "dma_cap_get_max_num_tasks", dma)
    if limit < 2**32 - 1:
        t.expect("INVALID_VALUE", "dma_task_memcpy_set_conf", dma, ok, error, limit + 1)
    t.call("dma_task_memcpy_set_conf", dma, ok, error, 1)


@case()
def test_4_1_dma_task_memcpy_alloc_init(t: Bed) -> None:
    t.open(1, start=False)
    out = t.ffi.new("struct doca_dma_task_memcpy **")
    t.expect("BAD_STATE", "dma_task_memcpy_alloc_init", t.dma, t.null, t.null, 0, out)
    t.call("ctx_start", t.ctx)
    task = t.task(t.null, t.null)
    t.expect("NO_MEMORY", "dma_task_memcpy_alloc_init", t.dma, t.null, t.null, 0, out)
    t.free(task)


@case()
def test_4_1_dma_caps(t: Bed) -> None:
    number = t.ffi.new("uint64_t *")
    t.expect("INVALID_VALUE", "dma_cap_task_memcpy_is_supported", t.null)
    t.expect("INVALID_VALUE", "dma_cap_task_memcpy_get_max_buf_size", t.null, number)
    t.expect("INVALID_VALUE", "dma_cap_task_memcpy_get_max_buf_size", t.devinfo, t.null)
    t.expect("INVALID_VALUE", "dma_cap_task_memcpy_get_max_buf_list_len", t.devinfo, t.null)
    t.expect("INVALID_VALUE", "dma_cap_get_max_num_tasks", t.null, t.ffi.new("uint32_t *"))
    for info in t.devinfos():
        t.expect("SUCCESS NOT_SUPPORTED DRIVER", "dma_cap_task_memcpy_is_supported", info)
    if t.abi.emulated:
        t.configure("device other dma=0")
        infos = [t.code("dma_cap_task_memcpy_is_supported", info) for info in t.devinfos()]
        t.equal("is_supported", infos, ["NOT_SUPPORTED"])
