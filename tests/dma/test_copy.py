"""Copies: bytes arrive, exactly those, for every size, limit and engine mode."""

from __future__ import annotations

import array
import asyncio
import ctypes
import mmap
import os
import random
from multiprocessing import shared_memory
from typing import Any

import numpy as np
import pytest

import aiodocadma
from aiodocadma import DMA, emulator
from aiodocadma.exceptions import AccessError, BoundsError, ClosedError, OverlapError, UsageError, WrongLoopError
from tests.dma.conftest import until

GUARD = 0xA5


def pattern(length: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(length)


async def copied(dma: DMA, data: bytes, *, offset: int = 0) -> None:
    """Copy data between two maps at an odd place, and check it and the bytes around it."""
    async with await dma.register(data) as src, await dma.alloc(len(data) + 64) as dst:
        memoryview(dst)[:] = bytes([GUARD]) * len(dst)
        assert await dma.copy(src, dst[offset : offset + len(data)]) == len(data)
        got = bytes(dst)
    assert got[offset : offset + len(data)] == data
    assert set(got[:offset] + got[offset + len(data) :]) == {GUARD}


@pytest.mark.parametrize("length", [1, 2, 63, 64, 4095, 4096, 65535, 65537, 300_001, 2**21 + 1])
async def test_every_size_at_odd_offsets(dma: DMA, length: int) -> None:
    await copied(dma, pattern(length), offset=length % 61)


@pytest.mark.rule("R14")
@pytest.mark.parametrize("list_len", [1, 2, 64])
@pytest.mark.parametrize("limit", [1, 4095, 2**21, 2**40])
async def test_every_limit_of_the_device(engine: str, limit: int, list_len: int) -> None:
    emulator.configure(max_buf_size=limit, max_buf_list_len=list_len, engine="worker" if engine == "manual" else engine)
    length = 5 if limit == 1 else 3 * min(limit, 2**21) + 17
    async with aiodocadma.open_dma() as dma:
        assert dma.capabilities.max_buf_size == limit
        assert dma.capabilities.max_buf_list_len == list_len
        before = emulator.counters()
        await copied(dma, pattern(length), offset=1)
        after = emulator.counters()
    # None above the limit, and no more than striping a long copy over 8 tasks or so needs.
    fewest = -(-length // limit)
    assert fewest <= after.submits - before.submits <= max(fewest, 9)
    assert after.bytes - before.bytes == length
    assert after.completions_error == 0


async def test_64_mib_in_pieces_of_4_kib_is_exact() -> None:
    emulator.configure(max_buf_size=4096)
    data = pattern(2**26)
    async with aiodocadma.open_dma() as dma:
        dst = bytearray(len(data))
        assert await dma.copy(data, dst) == len(data)
        assert dma.statistics().segments_completed == 2**14
    assert dst == data


async def test_10000_concurrent_copies_over_8_tasks(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All correct, no exception, no timer: completions alone drive the queue."""
    if engine == "manual":
        emulator.configure(engine="worker")
    loop = asyncio.get_running_loop()
    async with aiodocadma.open_dma(num_tasks=8) as dma:
        src, dst = await dma.alloc(2**20), await dma.alloc(2**20)
        data = pattern(2**20)
        memoryview(src)[:] = data
        timers: list[Any] = []
        with monkeypatch.context() as patch:
            if isinstance(loop, asyncio.SelectorEventLoop):
                call_at = loop.call_at
                patch.setattr(loop, "call_at", lambda *args, **kw: timers.append(args[1]) or call_at(*args, **kw))
            copies = [dma.copy(src[i * 100 : i * 100 + 100], dst[i * 100 : i * 100 + 100]) for i in range(10_000)]
            assert await asyncio.gather(*copies) == [100] * 10_000
        # The watchdog's, which only counts, is the one timer there may be; it was set once and never rang.
        assert [timer.__qualname__ for timer in timers] in ([], ["Watchdog._look"])
        assert dma.statistics().watchdog_hits == 0
        assert bytes(dst)[:1_000_000] == data[:1_000_000]
        assert bytes(dst)[1_000_000:] == bytes(2**20 - 1_000_000)
        counters = emulator.counters()
        assert counters.max_in_flight <= 8
        assert counters.submits == 10_000


async def test_temporaries_stay_alive(dma: DMA) -> None:
    for _ in range(100):
        dst = bytearray(70_000)
        data = os.urandom(70_000)
        future = dma.copy(bytes(data), memoryview(memoryview(dst)))
        await future
        assert dst == data


def numpy_2d() -> Any:
    return np.zeros((10, 10), np.uint64)


@pytest.mark.parametrize(
    "make",
    [
        bytearray,
        lambda n: memoryview(bytearray(n)),
        lambda n: array.array("Q", bytes(n)),
        lambda n: mmap.mmap(-1, n),
        lambda n: (ctypes.c_char * n)(),
        lambda n: np.zeros(n // 8, np.float64),
        lambda n: np.zeros((n // 80, 10), np.uint64),
    ],
    ids=["bytearray", "memoryview", "array", "mmap", "ctypes", "numpy", "numpy-2d"],
)
async def test_plain_objects_on_both_sides(dma: DMA, make: Any) -> None:
    data = pattern(800)
    dst, back = make(800), bytearray(800)
    await dma.copy(data, dst)
    await dma.copy(dst, back)
    assert back == data


async def test_shared_memory(dma: DMA) -> None:
    data = pattern(5000)
    shared = shared_memory.SharedMemory(create=True, size=5000)
    try:
        await dma.copy(data, shared.buf[:5000])
        assert bytes(shared.buf[:5000]) == data
    finally:
        shared.close()
        shared.unlink()


async def test_a_plain_buffer_beside_a_map(dma: DMA) -> None:
    data = pattern(1000)
    async with await dma.alloc(1000) as memory_map:
        await dma.copy(data, memory_map)
        back = bytearray(1000)
        await dma.copy(memory_map, back)
    assert back == data


@pytest.mark.parametrize("length", [1000, 2**20])
async def test_a_plain_buffer_is_locked_while_in_use_and_no_longer(held_dma: DMA, length: int) -> None:
    src, dst = bytearray(pattern(length)), bytearray(length)
    future = held_dma.copy(src, dst)
    for buffer in (src, dst):
        with pytest.raises(BufferError):
            buffer.append(1)
    await until(lambda: emulator.step(10), "the registration in a worker")
    await future
    assert src == dst
    src.append(1)
    dst.append(1)


async def test_no_bounce_buffer(dma: DMA) -> None:
    src, dst = bytearray(pattern(4096)), bytearray(4096)
    await dma.copy(src, dst)
    (copy,) = emulator.last_copies(1)
    assert copy.src == ctypes.addressof(ctypes.c_char.from_buffer(src))
    assert copy.dst == ctypes.addressof(ctypes.c_char.from_buffer(dst))


@pytest.mark.rule("R10")
async def test_zero_length_needs_no_engine(dma: DMA) -> None:
    before = emulator.counters().submits
    async with await dma.alloc(100) as memory_map:
        assert await dma.copy(b"", bytearray()) == 0
        assert await dma.copy(b"", bytearray(10)) == 0
        assert await dma.copy(memory_map[3:3], memory_map[50:60]) == 0
        assert await dma.copy(np.zeros(0), np.zeros(0)) == 0
    assert emulator.counters().submits == before


async def test_zero_length_beside_copies_in_flight(held_dma: DMA) -> None:
    future = held_dma.copy(b"abc", dst := bytearray(3))
    assert await held_dma.copy(b"", bytearray()) == 0
    assert not future.done()
    emulator.step()
    await future
    assert dst == b"abc"


@pytest.mark.rule("R26")
async def test_the_tag_comes_back(dma: DMA) -> None:
    tag = object()
    future = dma.copy(b"abc", bytearray(3), tag=tag)
    assert future.tag is tag
    await future


async def test_arguments_by_name(dma: DMA) -> None:
    dst = bytearray(3)
    assert await dma.copy(dst=dst, src=b"abc") == 3
    assert dst == b"abc"
    wrong: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        ((), {}, "'src'"),
        ((b"a",), {}, "'dst'"),
        ((b"a", dst, dst), {}, "3 given"),
        ((b"a", dst), {"src": b"a"}, "'src'"),
        ((b"a", dst), {"length": 1}, "'length'"),
    ]
    for args, kwargs, text in wrong:
        with pytest.raises(TypeError, match=text):
            dma.copy(*args, **kwargs)


async def test_retrieved_tells_whether_somebody_looked(held_dma: DMA) -> None:
    dst = await held_dma.alloc(64)
    awaited, asked, inspected, cancelled, _ = copies = [held_dma.copy(bytes(64), dst) for _ in range(5)]
    assert not any(copy.retrieved for copy in copies)
    with pytest.raises(asyncio.InvalidStateError):
        asked.result()
    assert not asked.retrieved
    waiter = asyncio.ensure_future(asyncio.wait_for(cancelled, None))
    await asyncio.sleep(0)  # it waits now
    waiter.cancel()
    await asyncio.sleep(0)  # and is told
    while emulator.step(1000):
        pass
    await held_dma.drain()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert cancelled.retrieved
    await asyncio.wait(copies)
    assert not any(copy.retrieved for copy in copies if copy is not cancelled)
    await awaited
    asked.result()
    inspected.exception()
    assert [copy.retrieved for copy in copies] == [True, True, True, True, False]


async def test_bytes_done_counts_segments(held_dma: DMA) -> None:
    async with await held_dma.alloc(5 * 2**21) as src, await held_dma.alloc(5 * 2**21) as dst:
        future = held_dma.copy(src, dst)
        assert future.bytes_done == 0
        emulator.step(2)
        await until(lambda: future.bytes_done, "the completions of two segments")
        assert future.bytes_done == sum(copy.length for copy in emulator.last_copies(64)[-2:])
        await until(lambda: emulator.step(1) == 0 and future.done(), "the rest")
        assert await future == 5 * 2**21
        assert future.bytes_done == 5 * 2**21


@pytest.mark.rule("X07")
async def test_a_shorter_source_fills_the_start_of_the_destination(dma: DMA) -> None:
    dst = bytearray(b"x" * 10)
    assert await dma.copy(b"abc", dst) == 3
    assert dst == b"abcxxxxxxx"


# ---- refusals: the typed error at the call, naming the argument; nothing pinned


class Case:
    """The memory a wrong call is made with."""

    def __init__(self, dma: DMA, src: aiodocadma.MemoryMap, dst: aiodocadma.MemoryMap, read_only: Any) -> None:
        self.dma, self.src, self.dst, self.read_only = dma, src, dst, read_only
        self.plain = bytearray(1000)


WRONG: dict[str, tuple[Any, type[BaseException], str]] = {
    "dst read-only map": (lambda c: (c.src, c.read_only), AccessError, "dst"),
    "dst bytes": (lambda c: (c.src, bytes(1000)), AccessError, "dst"),
    "dst too short": (lambda c: (c.src, c.dst[:999]), BoundsError, "dst has 999 bytes, but src has 1000"),
    "plain dst too short": (lambda c: (c.src, bytearray(10)), BoundsError, "dst has 10 bytes"),
    "overlap": (lambda c: (c.dst[:500], c.dst[499:999]), OverlapError, "dst"),
    "overlap, same map": (lambda c: (c.dst, c.dst), OverlapError, "dst"),
    "overlap, plain": (lambda c: (c.plain, c.plain), OverlapError, "dst"),
    "overlap, plain view of a map": (lambda c: (memoryview(c.dst)[:10], c.dst[5:20]), OverlapError, "dst"),
    "src not contiguous": (lambda c: (memoryview(c.plain)[::2], c.dst), ValueError, "src"),
    "dst not contiguous": (lambda c: (b"abc", np.zeros((10, 10), np.uint8)[:, ::2]), ValueError, "dst"),
    "src str": (lambda c: ("text", c.dst), TypeError, "src"),
    "dst str": (lambda c: (c.src, "text"), TypeError, "dst"),
    "src None": (lambda c: (None, c.dst), TypeError, "src"),
    "dst None": (lambda c: (c.src, None), TypeError, "dst"),
    "src int": (lambda c: (5, c.dst), TypeError, "src"),
    "src list of objects": (lambda c: ([object()], c.dst), TypeError, "src"),
}


@pytest.mark.rule("R01", "X17")
@pytest.mark.parametrize("name", WRONG)
async def test_wrong_input_is_refused_at_the_call(dma: DMA, name: str) -> None:
    make, error, text = WRONG[name]
    read_only_memory = bytes(1000)
    async with (
        await dma.register(pattern(1000)) as src,
        await dma.alloc(1000) as dst,
        await dma.register(read_only_memory) as read_only,
    ):
        case = Case(dma, src, dst, read_only)
        live, submits = emulator.live_objects(), emulator.counters().submits
        with pytest.raises(error, match=text) as caught:
            dma.copy(*make(case))
        if error not in (TypeError, ValueError):
            assert isinstance(caught.value, UsageError)
        del caught
        assert emulator.live_objects() == live
        assert emulator.counters().submits == submits
        case.plain.append(1)  # not locked
        assert await dma.copy(src, dst) == 1000  # and the engine still works


@pytest.mark.rule("R12")
async def test_a_closed_map_is_refused(dma: DMA) -> None:
    src, dst = await dma.alloc(100), await dma.alloc(100)
    part = src[10:20]
    src.close()
    for closed in (src, part):
        with pytest.raises(ClosedError, match="src"):
            dma.copy(closed, dst)
        with pytest.raises(ClosedError, match="dst"):
            dma.copy(dst, closed)
        with pytest.raises(ClosedError, match="src"):
            dma.copy(closed, bytearray(100))


@pytest.mark.rule("R123")
async def test_a_map_of_another_dma_is_refused(dma: DMA) -> None:
    async with aiodocadma.open_dma() as other:
        foreign, own = await other.alloc(100), await dma.alloc(100)
        with pytest.raises(WrongLoopError, match="src"):
            dma.copy(foreign, own)
        with pytest.raises(WrongLoopError, match="dst"):
            dma.copy(own, foreign)


@pytest.mark.rule("R36")
async def test_a_closed_dma_is_refused(engine: str) -> None:
    async with aiodocadma.open_dma() as dma:
        pass
    with pytest.raises(ClosedError):
        dma.copy(b"abc", bytearray(3))
    with pytest.raises(ClosedError):
        await dma.alloc(10)
    with pytest.raises(ClosedError):
        await dma.register(bytearray(10))


@pytest.mark.parametrize("nbytes", [0, -1, 2**63, 2**64])
async def test_alloc_needs_a_size_that_can_be(dma: DMA, nbytes: int) -> None:
    with pytest.raises(ValueError, match="nbytes"):
        await dma.alloc(nbytes)


async def test_register_refuses_what_it_cannot_pin(dma: DMA) -> None:
    with pytest.raises(ValueError, match="obj"):
        await dma.register(b"")
    with pytest.raises(TypeError, match="obj"):
        await dma.register("text")
    with pytest.raises(ValueError, match="obj"):
        await dma.register(memoryview(bytearray(10))[::2])
