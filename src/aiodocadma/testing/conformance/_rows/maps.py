"""4.5: memory maps."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiodocadma.testing.conformance._bed import Bed, SkipError
from aiodocadma.testing.conformance._runner import ENGINES, case

LOCAL_READ_ONLY, LOCAL_READ_WRITE, RDMA_READ, RDMA_WRITE = 0, 1, 2, 4
PCI_READ_ONLY, PCI_READ_WRITE, RELAXED_ORDERING = 16, 32, 64


def export(t: Bed, mapping: Any) -> bytes:
    """The descriptor of a map, or skip."""
    if not t.make("uint8_t", "mmap_cap_is_export_pci_supported", t.devinfo):
        raise SkipError("the device does not export")
    descriptor, length = t.ffi.new("void const **"), t.ffi.new("size_t *")
    code = t.expect("SUCCESS NOT_SUPPORTED DRIVER", "mmap_export_pci", mapping, t.dev, descriptor, length)
    if code != "SUCCESS":
        raise SkipError(f"exporting gives {code}")
    return bytes(t.ffi.buffer(descriptor[0], length[0]))


def import_map(t: Bed, descriptor: bytes) -> Any:
    """The map of another process, or skip."""
    if not t.make("uint8_t", "mmap_cap_is_create_from_export_pci_supported", t.devinfo):
        raise SkipError("the device does not import")
    out = t.ffi.new("struct doca_mmap **")
    code = t.code("mmap_create_from_export", t.null, descriptor, len(descriptor), t.dev, out)
    if code != "SUCCESS":
        raise SkipError(f"importing gives {code}")
    t._undo.append((out[0], lambda: t.abi.doca_mmap_destroy(out[0])))
    return out[0]


@contextmanager
def exporter(t: Bed, permission: int) -> Iterator[tuple[bytes, int, int, subprocess.Popen[str]]]:
    """Another process that exports 64 KiB: descriptor, address, length."""
    t.emulator_only()
    command = [sys.executable, "-m", "aiodocadma.testing.conformance._exporter", t.abi.path, str(permission)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        try:
            if len(words) != 3:
                raise SkipError(" ".join(words) or "the exporter did not start")
            yield bytes.fromhex(words[0]), int(words[1]), int(words[2]), process
        finally:
            process.kill()


@case()
def test_4_5_1_setters_before_the_start(t: Bed) -> None:
    mapping = t.create("mmap")
    memory = t.memory(4096)
    t.call("mmap_set_user_data", mapping, 1)
    t.call("mmap_set_permissions", mapping, LOCAL_READ_WRITE)
    t.call("mmap_set_memrange", mapping, memory, 4096)
    t.call("mmap_set_max_num_devices", mapping, 2)
    t.call("mmap_add_dev", mapping, t.dev)
    t.call("mmap_start", mapping)
    for name, *args in (
        ("mmap_set_user_data", 1),
        ("mmap_set_permissions", LOCAL_READ_WRITE),
        ("mmap_set_memrange", memory, 4096),
        ("mmap_set_max_num_devices", 2),
        ("mmap_set_free_cb", t.null, t.null),
        ("mmap_add_dev", t.dev),
        ("mmap_rm_dev", t.dev),
    ):
        t.check(t.code(name, mapping, *args) != "SUCCESS", f"doca_{name} succeeds on a started map")


@case()
def test_4_5_2_the_range_is_set_once(t: Bed) -> None:
    mapping = t.create("mmap")
    memory = t.memory(4096)
    t.call("mmap_set_memrange", mapping, memory, 2048)
    t.expect("NOT_PERMITTED", "mmap_set_memrange", mapping, memory, 2048)
    t.call("mmap_add_dev", mapping, t.dev)
    t.call("mmap_start", mapping)
    t.call("mmap_stop", mapping)
    t.expect("NOT_PERMITTED", "mmap_set_memrange", mapping, memory, 2048)


@case(engines=ENGINES)
def test_4_5_3_the_default_permission(t: Bed) -> None:
    t.open()
    t.copy(0, 0, 4096, 64)
    t.run()
    t.equal("a copy without set_permissions", [event.status for event in t.events], ["SUCCESS"])
    t.equal("the bytes", t.data(4096, 64), t.data(0, 64))


@case()
def test_4_5_4_permissions_that_exclude_each_other(t: Bed) -> None:
    mapping = t.create("mmap")
    t.expect("INVALID_VALUE", "mmap_set_permissions", mapping, PCI_READ_ONLY | PCI_READ_WRITE)
    t.expect("INVALID_VALUE", "mmap_set_permissions", mapping, 1 << 31)
    t.call("mmap_set_permissions", mapping, PCI_READ_ONLY)
    code = t.code("mmap_set_permissions", mapping, PCI_READ_WRITE | RELAXED_ORDERING)
    t.note("PCI read-write with relaxed ordering", code)


@case(engines=ENGINES)
def test_4_5_4a_own_devices_are_local(t: Bed) -> None:
    t.open()
    source, destination = t.map(t.ram, LOCAL_READ_ONLY), t.map(t.ram, LOCAL_READ_WRITE)
    t.call("task_submit", t.as_task(t.task(t.src(0, 64, source), t.dst(4096, 64, destination))))
    t.run()
    t.equal("the ends", [event.status for event in t.events], ["SUCCESS"])
    t.stop()
    t.destroy_ctx()


@case()
def test_4_5_5_permissions_that_combine(t: Bed) -> None:
    for mask in (
        LOCAL_READ_WRITE | PCI_READ_WRITE,
        LOCAL_READ_WRITE | PCI_READ_WRITE | RDMA_READ | RDMA_WRITE,
        LOCAL_READ_WRITE | RELAXED_ORDERING,
    ):
        t.call("mmap_set_permissions", t.create("mmap"), mask)


@case(engines=ENGINES)
def test_4_5_6_pci_write_allows_a_destination(t: Bed) -> None:
    t.open()
    destination = t.map(t.ram, PCI_READ_WRITE)
    t.call("task_submit", t.as_task(t.task(t.src(0, 64), t.dst(4096, 64, destination))))
    t.run()
    t.equal("the ends", [event.status for event in t.events], ["SUCCESS"])
    t.equal("the bytes", t.data(4096, 64), t.data(0, 64))
    t.stop()
    t.destroy_ctx()


@case(engines=ENGINES)
def test_4_5_7_any_map_can_be_read(t: Bed) -> None:
    t.open()
    masks = (LOCAL_READ_ONLY, LOCAL_READ_WRITE, PCI_READ_ONLY, PCI_READ_WRITE, RDMA_READ)
    for i, mask in enumerate(masks):
        t.call("task_submit", t.as_task(t.task(t.src(64 * i, 64, t.map(t.ram, mask)), t.dst(4096 + 64 * i, 64), i)))
        t.run()
    t.equal("the ends", [event.status for event in t.events], ["SUCCESS"] * len(masks))
    t.stop()
    t.destroy_ctx()


@case()
def test_4_5_8_what_an_export_needs(t: Bed) -> None:
    memory = t.memory(4096)
    out = t.ffi.new("void const **"), t.ffi.new("size_t *")
    mapping = t.map(memory, PCI_READ_ONLY, start=False)
    t.expect("NOT_PERMITTED", "mmap_export_pci", mapping, t.dev, *out)
    t.expect("NOT_PERMITTED", "mmap_export_pci", t.map(memory, LOCAL_READ_WRITE), t.dev, *out)
    t.call("mmap_start", mapping)
    t.equal("exported", t.make("uint8_t", "mmap_get_exported", mapping), 0)
    export(t, mapping)
    t.equal("exported", t.make("uint8_t", "mmap_get_exported", mapping), 1)


@case(engines=ENGINES)
def test_4_5_9_what_a_peer_may_do(t: Bed) -> None:
    for permission, may_write in ((PCI_READ_ONLY, False), (PCI_READ_WRITE, True)):
        with exporter(t, permission) as (descriptor, address, _, _):
            t.events.clear()
            t.open()
            remote = import_map(t, descriptor)
            at = t.ffi.cast("void *", address)
            for write in (False, True):
                args = (t.bufs, remote, at, 64, at, 0 if write else 64)
                buf = t.make("struct doca_buf *", "buf_inventory_buf_get_by_args", *args)
                pair = (t.src(0, 64), buf) if write else (buf, t.dst(4096, 64))
                code = t.code("task_submit", t.as_task(task := t.task(*pair, int(write))))
                if code != "SUCCESS":
                    t.free(task)
                    t.check(write and not may_write, f"submitting a read gives {code}")
                t.run()
            t.check(t.events[0].ok, "a peer cannot read")
            t.check(may_write == (len(t.events) > 1 and t.events[1].ok), "writing does not follow the permission")
            t.progress()
            if t.state():
                t.stop()
            t.destroy_ctx()


@case()
def test_4_5_10_an_imported_map(t: Bed) -> None:
    with exporter(t, PCI_READ_WRITE) as (descriptor, _, _, _):
        remote = import_map(t, descriptor)
        t.equal("from_export", t.make("uint8_t", "mmap_get_from_export", remote), 1)
        t.expect("NOT_PERMITTED", "mmap_start", remote)
        t.expect("NOT_PERMITTED", "mmap_add_dev", remote, t.dev)
        t.expect("NOT_PERMITTED", "mmap_rm_dev", remote, t.dev)
        t.check(t.code("mmap_set_permissions", remote, 1) != "SUCCESS", "an imported map takes permissions")
        out = t.ffi.new("void const **"), t.ffi.new("size_t *")
        t.expect("NOT_PERMITTED NOT_FOUND", "mmap_export_pci", remote, t.dev, *out)


@case()
def test_4_5_11_the_range_of_an_imported_map(t: Bed) -> None:
    with exporter(t, PCI_READ_WRITE) as (descriptor, address, length, _):
        remote = import_map(t, descriptor)
        base, size = t.ffi.new("void **"), t.ffi.new("size_t *")
        t.call("mmap_get_memrange", remote, base, size)
        t.equal("the range", (int(t.ffi.cast("uintptr_t", base[0])), size[0]), (address, length))


@case()
def test_4_5_12_length_of_a_descriptor(t: Bed) -> None:
    length = len(export(t, t.map(t.memory(4096), PCI_READ_ONLY)))
    t.note("length of a descriptor", length)
    t.check(0 < length <= 512, f"a descriptor has {length} bytes")


@case(engines=ENGINES)
def test_4_5_13_importing_the_own_export(t: Bed) -> None:
    t.open()
    source = t.map(t.ram, PCI_READ_WRITE)
    out = t.ffi.new("struct doca_mmap **")
    descriptor = export(t, source)
    code = t.code("mmap_create_from_export", t.null, descriptor, len(descriptor), t.dev, out)
    t.note("importing the own export", code)
    if code != "SUCCESS":
        return
    t._undo.append((out[0], lambda: t.abi.doca_mmap_destroy(out[0])))
    t.call("task_submit", t.as_task(t.task(t.src(0, 64, out[0]), t.dst(4096, 64))))
    t.run()
    t.equal("the end", [event.status for event in t.events], ["IO_FAILED"])
    t.wait_idle()
    t.destroy_ctx()


@case()
def test_4_5_14_the_free_callback(t: Bed) -> None:
    freed: list[tuple[int, int]] = []
    made = t.callback(
        "void (*)(void *, size_t, void *)",
        lambda at, length, cookie: freed.append((int(length), int(t.ffi.cast("uintptr_t", cookie)))),
    )
    memory = t.memory(4096)
    for started in (False, True):
        mapping = t.map(memory, start=False)
        t.call("mmap_set_free_cb", mapping, made, t.ffi.cast("void *", 7))
        if started:
            t.call("mmap_start", mapping)
        t.destroy("mmap", mapping)
        t.equal("the calls", freed, [(4096, 7)] if started else [])
    mapping = t.map(memory)
    t.call("mmap_stop", mapping)
    t.call("mmap_set_free_cb", mapping, made, t.ffi.cast("void *", 8))
    t.destroy("mmap", mapping)
    t.equal("the calls when set after the start", len(freed), 1)


@case()
def test_4_5_15_destroying_an_exported_map(t: Bed) -> None:
    mapping = t.map(t.memory(4096), PCI_READ_ONLY)
    export(t, mapping)
    t.destroy("mmap", mapping)


@case(needs=("mmap_enable_thread_safety",))
def test_4_5_16_bufs_do_not_keep_a_thread_safe_map(t: Bed) -> None:
    t.ram = t.memory(4096)
    mapping = t.map(t.ram, start=False)
    t.call("mmap_enable_thread_safety", mapping)
    t.call("mmap_start", mapping)
    t.bufs = t.inventory()
    buf = t.src(0, 64, mapping)
    t.call("mmap_stop", mapping)
    t.drop(buf)


@case()
def test_4_5_17_destroy_does_not_touch_the_memory(t: Bed) -> None:
    memory = t.memory(4096)
    mapping = t.map(memory)
    before = bytes(t.ffi.buffer(memory))
    t.ffi.release(memory)
    area = t._keep.pop()
    t.equal("the memory", bytes(area), before)
    area.close()
    t.destroy("mmap", mapping)


@case(engines=ENGINES)
def test_4_5_18_no_alignment(t: Bed) -> None:
    t.ram = t.memory(16384)
    t.mapping = t.create("mmap")
    t.call("mmap_add_dev", t.mapping, t.dev)
    t.call("mmap_set_memrange", t.mapping, t.ram + 3, 12001)
    t.call("mmap_start", t.mapping)
    t.bufs = t.inventory()
    t.engine_with_ctx()
    t.call("ctx_start", t.ctx)
    for i, (src, dst, length) in enumerate(((3, 6001, 1), (17, 6005, 63), (1000, 8001, 4003))):
        t.copy(i, src, dst, length)
        t.run()
        t.equal("the bytes", t.data(dst, length), t.data(src, length))
