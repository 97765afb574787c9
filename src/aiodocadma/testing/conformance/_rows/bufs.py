"""4.6: bufs."""

from __future__ import annotations

from typing import Any

from aiodocadma.testing.conformance._bed import Bed, SkipError
from aiodocadma.testing.conformance._runner import ENGINES, case


def segment(t: Bed, buf: Any) -> tuple[int, int]:
    """Where the data of a buf begin in ``ram``, and how many they are."""
    at = t.make("void *", "buf_get_data", buf)
    begin = int(t.ffi.cast("uintptr_t", at)) - int(t.ffi.cast("uintptr_t", t.ram))
    return begin, int(t.make("size_t", "buf_get_data_len", buf))


def run_kept(t: Bed, src: Any, dst: Any) -> Any:
    """Run a task and keep it with its bufs."""
    t.on_task = lambda task, event: None
    task = t.task(src, dst)
    t.call("task_submit", t.as_task(task))
    t.run()
    return task


@case()
def test_4_6_1_head_and_data(t: Bed) -> None:
    t.open(start=False)
    src, dst = t.src(100, 50), t.dst(200, 60)
    t.equal("the data of a source", segment(t, src), (100, 50))
    t.equal("the data of a destination", segment(t, dst), (200, 0))
    t.equal("the head", t.make("void *", "buf_get_head", dst), t.ffi.cast("void *", t.ram + 200))
    t.equal("the length", t.make("size_t", "buf_get_len", dst), 60)
    t.call("buf_set_data", src, t.ram + 110, 30)
    t.equal("the data", segment(t, src), (110, 30))
    t.equal("the bufs of the map", t.make("uint32_t", "mmap_get_num_bufs", t.mapping), 2)
    t.drop(src, dst)
    t.equal("the bufs of the map", t.make("uint32_t", "mmap_get_num_bufs", t.mapping), 0)


@case(engines=ENGINES)
def test_4_6_2_the_data_are_copied(t: Bed) -> None:
    t.open(size=1 << 20)
    sizes = (1, 7, 64, 4095, 65536, 65537, 300001)
    for size in sizes:
        if size > t.capability("max_buf_size", "uint64_t"):
            continue
        src = t.src(0, size + 8)
        t.call("buf_set_data", src, t.ram + 5, size)
        behind = t.data((1 << 19) + size, 8)
        t.call("task_submit", t.as_task(t.task(src, t.dst(1 << 19, size + 8))))
        t.run()
        t.equal("the end", t.events[-1].status, "SUCCESS")
        t.check(t.data(1 << 19, size) == t.data(5, size), f"{size} bytes are not those of the data segment")
        t.equal("what is behind", t.data((1 << 19) + size, 8), behind)


@case(engines=ENGINES)
def test_4_6_3_the_destination_holds_what_was_copied(t: Bed) -> None:
    t.open()
    dst = t.dst(4096, 100)
    task = run_kept(t, t.src(0, 64), dst)
    t.equal("the data", segment(t, dst), (4096, 64))
    t.free(task)


@case(engines=ENGINES)
def test_4_6_4_a_destination_is_appended_to(t: Bed) -> None:
    t.open()
    dst = t.dst(4096, 100)
    task = run_kept(t, t.src(0, 40), dst)
    t.call("task_submit", t.as_task(task))
    t.run()
    found = segment(t, dst)
    t.note("a destination that holds data is", "appended to" if found == (4096, 80) else f"left with data {found}")
    if t.abi.emulated:
        t.equal("the data", found, (4096, 80))
        t.equal("the bytes", t.data(4096, 80), t.data(0, 40) * 2)
    t.call("buf_reset_data_len", dst)
    t.call("task_submit", t.as_task(task))
    t.run()
    t.equal("the data after a reset", segment(t, dst), (4096, 40))
    t.free(task)


@case(engines=ENGINES)
def test_4_6_5_a_destination_too_small(t: Bed) -> None:
    t.open()
    task = t.task(t.src(0, 65), t.dst(4096, 64))
    t.expect("INVALID_VALUE", "task_try_submit", t.as_task(task))
    behind = t.data(4160, 8)
    code = t.code("task_submit", t.as_task(task))
    if code == "SUCCESS":
        t.run()
        t.note("a destination too small, plainly submitted, ends with", t.events[0].status)
        t.check(not t.events[0].ok, "65 bytes fit into 64")
        t.wait_idle()
    else:
        t.note("a destination too small, plainly submitted, gives", code)
        t.free(task)
    t.equal("what is behind", t.data(4160, 8), behind)


@case(engines=ENGINES)
def test_4_6_6_a_failure_leaves_the_lengths(t: Bed) -> None:
    t.open()
    dst = t.dst(4096, 64)
    task = run_kept(t, t.src(0, 0), dst)
    t.check(not t.events[0].ok, "a source without data succeeds")
    t.equal("the data", segment(t, dst), (4096, 0))
    t.free(task)
    t.wait_idle()
    if t.abi.emulated:
        t.call("ctx_start", t.ctx)
        t.on_task = lambda task, event: t.free(task)
        noted = t.violations()
        t.copy(0, 0, 63, 64)
        t.run()
        t.equal("violations by an overlap", t.violations() - noted, 1)
        t.copy(1, 0, 64, 64)
        t.run()
        t.equal("violations by neighbours", t.violations() - noted, 1)


@case(engines=("manual",))
def test_4_6_7_touching_a_buf_in_flight(t: Bed) -> None:
    t.emulator_only()
    t.configure("checksum=1")
    t.open()
    for touched in (None, 10, 4100):
        noted = t.violations()
        t.copy(0, 0, 4096, 64)
        if touched is not None:
            t.ram[touched] ^= 0xFF
        t.run()
        t.equal("violations", t.violations() - noted, 0 if touched is None else 1)


@case()
def test_4_6_8_lists_count_at_the_head(t: Bed) -> None:
    t.open(start=False)
    free = t.make("uint32_t", "buf_inventory_get_num_free_elements", t.bufs)
    a, b, c = (t.src(8 * i, 8) for i in range(3))
    t.call("buf_chain_list", b, c)
    t.call("buf_chain_list", a, b)
    t.equal("the length", t.make("uint32_t", "buf_get_list_len", a), 3)
    t.drop(a)
    t.equal("free bufs", t.make("uint32_t", "buf_inventory_get_num_free_elements", t.bufs), free)


@case(engines=ENGINES)
def test_4_6_9_a_list_as_source(t: Bed) -> None:
    t.open(size=1 << 17)
    longest = min(t.capability("max_buf_list_len", "uint32_t"), 16)
    head = t.src(0, 100)
    expected = t.data(0, 100)
    for i in range(1, longest):
        t.call("buf_chain_list", head, t.src(1000 * i, 10 + i))
        expected += t.data(1000 * i, 10 + i)
    dst = t.dst(1 << 16, 4096)
    task = run_kept(t, head, dst)
    t.equal("the end", t.events[0].status, "SUCCESS")
    t.check(t.data(1 << 16, len(expected)) == expected, "the elements are not gathered in order")
    t.equal("the data", segment(t, dst), (1 << 16, len(expected)))
    t.free(task)


@case(engines=ENGINES, setting="dst_list", readings=("fill", "completion"))
def test_4_6_10_a_list_as_destination(t: Bed) -> None:
    if t.capability("max_buf_list_len", "uint32_t") < 2:
        raise SkipError("the device takes no lists")
    t.open()
    head, second = t.dst(8192, 33), t.dst(9000, 100)
    t.call("buf_chain_list", head, second)
    t.on_task = lambda task, event: None
    task = t.task(t.src(0, 100), head)
    code = t.code("task_submit", t.as_task(task))
    if code != "SUCCESS":
        t.note("a list as destination gives at submit", code)
        t.free(task)
        return
    t.run()
    t.observed("dst_list", "fill" if t.events[0].ok else "completion")
    if t.events[0].ok:
        t.equal("the first element", t.data(8192, 33), t.data(0, 33))
        t.equal("the second element", t.data(9000, 67), t.data(33, 67))
        t.equal("the data", (segment(t, head), segment(t, second)), ((8192, 33), (9000, 67)))
    t.free(task)
    t.progress()


@case(engines=ENGINES)
def test_4_6_11_tasks_do_not_own_bufs(t: Bed) -> None:
    t.open()
    free = t.make("uint32_t", "buf_inventory_get_num_free_elements", t.bufs)
    for bufs_first in (False, True):
        src, dst = t.src(0, 64), t.dst(4096, 64)
        task = run_kept(t, src, dst)
        if bufs_first:
            t.drop(src, dst)
            t.abi.doca_task_free(t.as_task(task))
        else:
            t.abi.doca_task_free(t.as_task(task))
            t.equal("bufs out", free - t.make("uint32_t", "buf_inventory_get_num_free_elements", t.bufs), 2)
            t.drop(src, dst)
        t.equal("free bufs", t.make("uint32_t", "buf_inventory_get_num_free_elements", t.bufs), free)


@case(engines=ENGINES)
def test_4_6_12_tasks_take_no_references(t: Bed) -> None:
    t.open()
    src, dst = t.src(0, 64), t.dst(4096, 64)
    task = t.task(src, dst)
    t.equal("refcount", t.make("uint16_t", "buf_get_refcount", src), 1)
    t.call("task_submit", t.as_task(task))
    t.equal("refcount", t.make("uint16_t", "buf_get_refcount", dst), 1)
    t.run()


@case()
def test_4_6_13_the_bufs_of_a_task(t: Bed) -> None:
    t.open()
    src, dst = t.src(0, 64), t.dst(4096, 64)
    task = t.task(src, dst)
    t.check(t.abi.doca_dma_task_memcpy_get_src(task) == src, "get_src gives another buf")
    t.check(t.abi.doca_dma_task_memcpy_get_dst(task) == dst, "get_dst gives another buf")
    t.free(task)
