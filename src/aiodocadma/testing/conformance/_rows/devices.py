"""4.8 and 4.9: devices, and the order of destruction."""

from __future__ import annotations

from aiodocadma.testing.conformance._bed import Bed
from aiodocadma.testing.conformance._runner import ENGINES, case


def address(t: Bed) -> bytes:
    """The PCI address of the device."""
    text = t.ffi.new("char[13]")
    t.call("devinfo_get_pci_addr_str", t.devinfo, text)
    return bytes(t.ffi.string(text))


@case()
def test_4_8_list(t: Bed) -> None:
    info = t.devinfo  # the list it came from is destroyed
    name = t.ffi.new("char[64]")
    t.call("devinfo_get_ibdev_name", info, name, 64)
    t.check(t.ffi.string(name), "the device has no name")
    t.call("dma_cap_task_memcpy_is_supported", info)


@case()
def test_4_8_open_counted(t: Bed) -> None:
    first = t.dev
    for info in t.devinfos():
        if t.code("dma_cap_task_memcpy_is_supported", info) == "SUCCESS":
            second = t.open_dev(info)
            break
    t.close_dev(second)
    t.check(t.abi.doca_dev_as_devinfo(first) != t.null, "one close of two closes the device")
    t.call("dma_cap_task_memcpy_is_supported", t.abi.doca_dev_as_devinfo(first))
    t.close_dev(first)


@case()
def test_4_8_close_null(t: Bed) -> None:
    code = t.code("dev_close", t.null)
    t.note("dev_close(NULL)", code)
    t.equal("dev_close(NULL)", code, "SUCCESS")


@case()
def test_4_8_pci_match(t: Bed) -> None:
    full = address(t)
    forms = {full: 1, full.upper(): 1, b"0000:ff:1f.7": 0, b"ff:1f.7": 0}
    if full.startswith(b"0000:"):
        forms |= {full[5:]: 1, b"0001:" + full[5:]: 0}
    for text, expected in forms.items():
        equal = t.make("uint8_t", "devinfo_is_equal_pci_addr", t.devinfo, text)
        t.equal(f"whether {text.decode()} is {full.decode()}", equal, expected)


@case()
def test_4_8_first_device(t: Bed) -> None:
    for name, ctype in (("max_buf_size", "uint64_t"), ("max_buf_list_len", "uint32_t")):
        limit = t.capability(name, ctype)
        t.check(limit >= 1, f"{name} is {limit}")
        if not t.abi.emulated:
            t.observed(name, str(limit))
    dma = t.create("dma", t.dev)
    limit = t.make("uint32_t", "dma_cap_get_max_num_tasks", dma)
    t.check(limit >= 1, f"max_num_tasks is {limit}")
    if not t.abi.emulated:
        t.observed("max_num_tasks", str(limit))
    t.set_conf(dma, limit)


@case()
def test_4_8_by_address(t: Bed) -> None:
    wanted = address(t)
    found = [t.make("uint8_t", "devinfo_is_equal_pci_addr", info, wanted) for info in t.devinfos()]
    t.equal("devices of that address", sum(found), 1)


@case()
def test_4_8_max_num_devices(t: Bed) -> None:
    limit = t.make("uint32_t", "mmap_get_max_num_devices", t.create("mmap"))
    t.note("max_num_devices of a new map", limit)
    t.check(limit >= 1, "a new map takes no device")
    if t.abi.emulated:
        t.configure("device a; device b")
        a, b = (t.open_dev(info) for info in t.devinfos())
        mapping = t.create("mmap")
        t.call("mmap_set_max_num_devices", mapping, 1)
        t.call("mmap_add_dev", mapping, a)
        t.expect("NO_MEMORY", "mmap_add_dev", mapping, b)


@case(engines=ENGINES, setting="map_lifetime", readings=("context", "bufs"))
def test_4_9_order(t: Bed) -> None:
    t.open()
    t.copy(0, 0, 4096, 64)
    t.run()
    code = t.expect("SUCCESS NOT_PERMITTED", "mmap_destroy", t.mapping)
    t.observed("map_lifetime", "bufs" if code == "SUCCESS" else "context")
    if code == "SUCCESS":
        t.forget(t.mapping)
    t.stop()
    t.expect("IN_USE", "pe_destroy", t.pe)
    t.destroy_ctx()
    t.destroy("pe", t.pe)
    t.call("buf_inventory_stop", t.bufs)
    t.destroy("buf_inventory", t.bufs)
    if code != "SUCCESS":
        t.call("mmap_stop", t.mapping)
        t.destroy("mmap", t.mapping)
    t.close_dev(t.dev)
