"""4.7: failures as seen on a card."""

from __future__ import annotations

from typing import Any

from aiodocadma.testing.conformance._bed import IDLE, RUNNING, STOPPING, Bed
from aiodocadma.testing.conformance._rows.maps import PCI_READ_WRITE, exporter, import_map
from aiodocadma.testing.conformance._runner import ENGINES, case

LATE = ("completion", "submit")


def refused(t: Bed, setting: str, early: str, where: str) -> None:
    """A task was refused somewhere; a card may do so where the emulator has no setting for it."""
    if where == early or t.abi.emulated:
        t.observed(setting, where)
    else:
        t.note(f"{setting}: the task is refused at", where)


def fails_late(t: Bed, setting: str, early: str, code: str, src: Any, dst: Any) -> None:
    """A task fails at its completion, or with a code, early as the setting has it; observe which."""
    out = t.ffi.new("struct doca_dma_task_memcpy **")
    result = t.code("dma_task_memcpy_alloc_init", t.dma, src, dst, 0, out)
    if result != "SUCCESS":
        t.equal("alloc_init", result, code)
        refused(t, setting, early, "alloc")
        t.drop(src, dst)
        return
    result = t.code("task_submit", t.as_task(out[0]))
    if result != "SUCCESS":
        t.equal("submit", result, code)
        refused(t, setting, early, "submit")
        t.free(out[0])
        return
    t.run()
    t.equal("the end", [event.status for event in t.events], ["IO_FAILED"])
    t.wait_idle()
    t.equal("the states", t.states, [RUNNING, STOPPING, IDLE])
    t.observed(setting, "completion")


@case(engines=ENGINES, setting="zero_length", readings=LATE)
def test_4_7_zero_length(t: Bed) -> None:
    t.open()
    fails_late(t, "zero_length", "submit", "INVALID_VALUE", t.src(0, 0), t.dst(4096, 64))


@case(engines=ENGINES, setting="oversize", readings=("completion", "alloc"))
def test_4_7_oversize(t: Bed) -> None:
    t.configure("max_buf_size=4K")
    size = t.capability("max_buf_size", "uint64_t")
    t.note("max_buf_size", size)
    t.open(size=4 * (size + 4096))
    half = 2 * (size + 4096)
    t.copy(1, 0, half, size)
    t.run()
    t.equal("the end at the limit", [event.status for event in t.events], ["SUCCESS"])
    t.events.clear()
    fails_late(t, "oversize", "alloc", "INVALID_VALUE", t.src(0, size + 1), t.dst(half, size + 1))


@case(engines=ENGINES)
def test_4_7_vanished(t: Bed) -> None:
    with exporter(t, PCI_READ_WRITE) as (descriptor, address, _, process):
        t.open()
        remote = import_map(t, descriptor)
        at = t.ffi.cast("void *", address)
        buf = t.make("struct doca_buf *", "buf_inventory_buf_get_by_args", t.bufs, remote, at, 64, at, 64)
        process.kill()
        process.wait()
        t.call("task_submit", t.as_task(t.task(buf, t.dst(4096, 64))))
        t.run()
        t.equal("the end", [event.status for event in t.events], ["IO_FAILED"])
        t.wait_idle()
        t.call("ctx_start", t.ctx)
        t.copy(1, 0, 4096, 64)
        t.run()
        t.equal("a good copy then", t.events[-1].status, "SUCCESS")
        t.stop()
        t.destroy_ctx()


@case(engines=ENGINES)
def test_4_7_after_reset(t: Bed) -> None:
    t.open()
    late = t.task(t.src(0, 64), t.dst(5000, 64), 1)
    t.call("task_submit", t.as_task(t.task(t.src(0, 0), t.dst(4096, 8))))
    t.until(lambda: t.events, "the failure")
    t.expect("BAD_STATE", "task_submit", t.as_task(late))
    t.expect("BAD_STATE", "task_try_submit", t.as_task(late))
    t.free(late)
    t.wait_idle()


@case(engines=ENGINES, setting="permission", readings=LATE)
def test_4_7_permission(t: Bed) -> None:
    t.open()
    read_only = t.map(t.ram, 0)
    before = t.data(4096, 64)
    fails_late(t, "permission", "submit", "NOT_PERMITTED", t.src(0, 64), t.dst(4096, 64, read_only))
    t.equal("the destination", t.data(4096, 64), before)
    if t.state():
        t.stop()
    t.destroy_ctx()


@case()
def test_4_7_description(t: Bed) -> None:
    text = t.ffi.string(t.abi.doca_error_get_descr(17)).decode()
    t.equal("the description", text, "Input/Output Operation Failed")
    for code in range(32):
        t.note(f"error {code}", t.ffi.string(t.abi.doca_error_get_descr(code)).decode())
    unknown = [t.ffi.string(function(77)) for function in (t.abi.doca_error_get_name, t.abi.doca_error_get_descr)]
    t.equal("an unknown code", unknown, [b"unrecognized error code"] * 2)
    t.equal("the name of 17", t.ffi.string(t.abi.doca_error_get_name(17)), b"DOCA_ERROR_IO_FAILED")
