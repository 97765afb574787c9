"""Scatter and gather: lists on either side, at every list length the device may have."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import aiodocadma
from aiodocadma import DMA, emulator
from aiodocadma.exceptions import AccessError, BoundsError, ClosedError, OverlapError, WrongLoopError
from tests.dma.conftest import until


def cut(rng: random.Random, total: int, parts: int) -> list[int]:
    """Lengths that add up to total; some may be 0."""
    marks = sorted(rng.randint(0, total) for _ in range(parts - 1))
    return [b - a for a, b in zip([0, *marks], [*marks, total], strict=True)]


@pytest.mark.rule("R15", "R39")
@pytest.mark.parametrize("list_len", [1, 2, 16, 64])
@pytest.mark.parametrize("limit", [100, 2**21])
async def test_any_lists_on_either_side(engine: str, list_len: int, limit: int) -> None:
    emulator.configure(max_buf_size=limit, max_buf_list_len=list_len, engine="worker" if engine == "manual" else engine)
    rng = random.Random(list_len * limit)
    async with (
        aiodocadma.open_dma() as dma,
        await dma.register(rng.randbytes(5000)) as src,
        await dma.alloc(5000) as dst,
    ):
        for _ in range(20):
            total = rng.randint(1, 5000)
            at = rng.randint(0, 5000 - total)
            memoryview(dst)[:] = bytes(5000)
            srcs, dsts, s, d = [], [], at, at
            for length in cut(rng, total, rng.randint(1, 30)):
                srcs.append(src[s : s + length])
                s += length
            for length in cut(rng, total, rng.randint(1, 30)):
                dsts.append(dst[d : d + length])
                d += length
            rng.shuffle(srcs)
            rng.shuffle(dsts)  # parts that do not lie side by side are no one range
            data = b"".join(bytes(memoryview(part)) for part in srcs)
            expected = bytearray(5000)
            for part in dsts:
                expected[part.offset : part.offset + part.nbytes] = data[: part.nbytes]
                data = data[part.nbytes :]
            assert await dma.copy(srcs, dsts) == total
            assert bytes(dst) == bytes(expected)


async def test_parts_that_touch_do_not_overlap(dma: DMA) -> None:
    async with await dma.alloc(30) as memory:
        memoryview(memory)[:] = bytes(range(30))
        assert await dma.copy([memory[5:9], memory[16:20]], [memory[:5], memory[20:23]]) == 8
        assert bytes(memory)[:5] == bytes([5, 6, 7, 8, 16])
        assert bytes(memory)[20:23] == bytes([17, 18, 19])
        with pytest.raises(OverlapError):
            dma.copy([memory[5:9], memory[16:21]], [memory[:5], memory[20:24]])
        with pytest.raises(OverlapError):
            dma.copy([memory[4:8], memory[16:20]], [memory[:5], memory[20:23]])


@pytest.mark.rule("R15")
async def test_a_gather_is_one_task_where_the_device_has_lists(dma: DMA) -> None:
    async with await dma.alloc(1000) as src, await dma.alloc(1000) as dst:
        memoryview(src)[:] = bytes(range(250)) * 4
        before = emulator.counters().submits
        assert await dma.copy([src[i * 100 : i * 100 + 10] for i in range(10)], dst) == 100
        assert emulator.counters().submits - before == 1
        assert bytes(dst)[:100] == b"".join(bytes(src)[i * 100 : i * 100 + 10] for i in range(10))


async def test_empty_plain_objects_in_lists(dma: DMA) -> None:
    for nbytes in (3, 1 << 20):  # the latter is registered in a worker
        dst = bytearray(nbytes)
        assert await dma.copy([b"", b"x" * nbytes, bytearray()], [bytearray(), dst]) == nbytes
        assert dst == b"x" * nbytes


async def test_plain_objects_in_lists(dma: DMA) -> None:
    dst = [bytearray(3), bytearray(b"xxxx")]
    assert await dma.copy([b"ab", np.frombuffer(b"cd", np.uint8), memoryview(b"e")], dst) == 5
    assert dst == [bytearray(b"abc"), bytearray(b"dexx")]


async def test_a_list_with_large_plain_objects(dma: DMA) -> None:
    """Registered in a worker while the copy waits."""
    parts = [random.Random(i).randbytes(300_000) for i in range(3)]
    dst = bytearray(900_000)
    assert await dma.copy(parts, dst) == 900_000
    assert dst == b"".join(parts)
    dst.append(1)


async def test_empty_lists(dma: DMA) -> None:
    assert await dma.copy([], []) == 0
    assert await dma.copy([], bytearray(3)) == 0
    assert await dma.copy([b"", b""], [bytearray(3)]) == 0


WRONG: dict[str, tuple[Any, type[BaseException], str]] = {
    "too short": (lambda m: ([m[:10], m[10:20]], [m[100:105]]), BoundsError, "dst has 5 bytes, but src has 20"),
    "plain too short": (lambda m: ([b"abc"], [bytearray(1), bytearray(1)]), BoundsError, "dst has 2 bytes"),
    "read-only part": (lambda m: ([b"abc"], [bytearray(1), b"xx"]), AccessError, r"dst\[1\]"),
    "source overlaps": (lambda m: ([m[:10], m[20:30]], [m[50:60], m[25:35]]), OverlapError, "dst overlaps src"),
    "written twice": (lambda m: ([m[:10], m[20:30]], [m[50:60], m[55:65]]), OverlapError, "dst"),
    "not a buffer": (lambda m: ([m[:10], None], [m[50:70]]), TypeError, r"src\[1\]"),
    "not contiguous": (lambda m: ([b"ab"], [memoryview(bytearray(8))[::2]]), ValueError, r"dst\[0\]"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_wrong_lists_are_refused_at_the_call(dma: DMA, name: str) -> None:
    make, error, text = WRONG[name]
    async with await dma.alloc(1000) as memory_map:
        live, submits = emulator.live_objects(), emulator.counters().submits
        with pytest.raises(error, match=text) as caught:
            dma.copy(*make(memory_map))
        del caught
        assert emulator.live_objects() == live
        assert emulator.counters().submits == submits


async def test_what_is_beyond_the_source_is_not_written(dma: DMA) -> None:
    """A destination longer than the source may overlap it behind what is written."""
    async with await dma.alloc(100) as memory_map:
        memoryview(memory_map)[:] = bytes(range(100))
        assert await dma.copy([memory_map[50:60]], memory_map[0:55]) == 10
        assert bytes(memory_map) == bytes(range(50, 60)) + bytes(range(10, 100))


async def test_closed_and_foreign_parts(dma: DMA) -> None:
    closed = await dma.alloc(10)
    closed.close()
    async with aiodocadma.open_dma() as other, await dma.alloc(100) as own:
        foreign = await other.alloc(10)
        with pytest.raises(ClosedError, match=r"src\[1\]"):
            dma.copy([own[:1], closed], own[50:])
        with pytest.raises(WrongLoopError, match=r"src\[1\]"):
            dma.copy([own[:1], foreign], own[50:])


async def test_a_map_in_a_list_is_in_use(held_dma: DMA) -> None:
    src, dst = await held_dma.alloc(10), await held_dma.alloc(10)
    future = held_dma.copy([src[:5], src[5:]], [dst])
    for memory_map in (src, dst):
        with pytest.raises(aiodocadma.BufferInUseError):
            memory_map.close()
    held_dma._turn()
    emulator.step(10)
    assert await future == 10
    src.close()
    dst.close()


async def test_one_failing_task_fails_the_copy() -> None:
    emulator.configure(max_buf_list_len=1)
    emulator.inject(emulator.Fault("completion", status="IO_FAILED", skip=1))
    async with aiodocadma.open_dma() as dma, await dma.alloc(100) as src, await dma.alloc(100) as dst:
        with pytest.raises(aiodocadma.DocaIoFailedError):
            await dma.copy([src[:10], src[20:30], src[40:50]], dst)
        assert await dma.copy([src[:10], src[20:30]], dst) == 20


async def test_lists_follow_the_cap_up_and_down() -> None:
    """The cap is read anew with each context: down, and up again to the lists of the first time."""
    emulator.configure(max_buf_list_len=8)
    async with aiodocadma.open_dma() as dma, await dma.alloc(160) as src, await dma.alloc(80) as dst:
        memoryview(src)[:] = bytes(range(160))
        wanted = b"".join(bytes(src[at : at + 10]) for at in range(0, 160, 20))
        tasks = []
        for cap in (8, 2, 16, 8):
            emulator.configure(max_buf_list_len=cap)
            emulator.inject(emulator.Fault("completion", status="IO_FAILED"))
            with pytest.raises(aiodocadma.DocaIoFailedError):
                await dma.copy(src[:10], dst[:10])
            await until(lambda: dma.state is aiodocadma.DMAState.RUNNING, "the restart")
            memoryview(dst)[:] = bytes(80)
            before = emulator.counters().submits
            assert await dma.copy([src[at : at + 10] for at in range(0, 160, 20)], dst) == 80
            assert bytes(dst) == wanted
            tasks.append(emulator.counters().submits - before)
        assert tasks == [1, 4, 1, 1]
