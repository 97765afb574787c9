"""``copy_many()``: thousands of copies behind one future, each for itself."""

from __future__ import annotations

import array
import asyncio
import random
import tracemalloc
from typing import Any

import numpy as np
import pytest

import aiodocadma
from aiodocadma import DMA, emulator
from aiodocadma.exceptions import (
    AccessError,
    BoundsError,
    ClosedError,
    CopyManyError,
    DocaIoFailedError,
    OverlapError,
    WrongLoopError,
)
from tests.dma.conftest import SUBMIT, turns, until


async def test_offset_arrays(dma: DMA) -> None:
    rng = np.random.default_rng(1)
    count = 3000
    lengths = rng.integers(0, 50, count)
    src_offsets = rng.integers(0, 100_000 - 50, count)
    dst_offsets = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    data = rng.bytes(100_000)
    async with await dma.register(data) as src, await dma.alloc(int(lengths.sum())) as dst:
        total = await dma.copy_many(src, dst, src_offsets=src_offsets, dst_offsets=dst_offsets, lengths=lengths)
        assert total == lengths.sum()
        assert bytes(dst) == b"".join(data[s : s + n] for s, n in zip(src_offsets, lengths, strict=True))


async def test_rows_of_a_matrix_and_pages_of_a_table(dma: DMA) -> None:
    """Strided copies by ranges; a block table by an array of page numbers times the page size."""
    matrix = np.arange(100 * 64, dtype=np.uint8).reshape(100, 64)
    table = np.array([7, 3, 99, 0, 42])
    async with (
        await dma.register(matrix) as src,
        await dma.alloc(100 * 16) as columns,
        await dma.alloc(5 * 64) as pages,
    ):
        assert (
            await dma.copy_many(
                src, columns, src_offsets=range(8, 100 * 64, 64), dst_offsets=range(0, 1600, 16), lengths=16
            )
            == 1600
        )
        assert (np.frombuffer(columns, np.uint8).reshape(100, 16) == matrix[:, 8:24]).all()
        await dma.copy_many(src, pages, src_offsets=table * 64, dst_offsets=range(0, 320, 64), lengths=64)
        assert (np.frombuffer(pages, np.uint8).reshape(5, 64) == matrix[table]).all()


async def test_pairs(dma: DMA) -> None:
    async with await dma.register(bytes(range(200))) as src, await dma.alloc(200) as dst:
        pairs = [(src[i * 10 : i * 10 + 5], dst[(19 - i) * 10 :][:7]) for i in range(20)]
        assert await dma.copy_many(iter(pairs)) == 100
        for i in range(20):
            assert bytes(dst)[(19 - i) * 10 :][:5] == bytes(range(i * 10, i * 10 + 5))


@pytest.mark.parametrize("limit", [7, 100, 2**21])
async def test_long_pairs_are_split(engine: str, limit: int) -> None:
    emulator.configure(max_buf_size=limit, engine="worker" if engine == "manual" else engine)
    data = random.Random(limit).randbytes(3000)
    async with aiodocadma.open_dma(num_tasks=5) as dma, await dma.register(data) as src, await dma.alloc(3000) as dst:
        offsets = array.array("q", [0, 1000, 2000])
        assert await dma.copy_many(src, dst, src_offsets=offsets, dst_offsets=offsets, lengths=1000) == 3000
        assert bytes(dst) == data


async def test_columns_of_a_block_table(dma: DMA) -> None:
    """Offsets that are a column of a table, forwards and backwards, and every second of a plain memoryview."""
    table = np.array([[0, 90], [10, 80], [20, 70], [30, 60]])
    async with await dma.register(bytes(range(100))) as src, await dma.alloc(100) as dst:
        for rows in (table, table[::-1]):
            memoryview(dst)[:] = bytes(100)
            future = dma.copy_many(src, dst, src_offsets=rows[:, 0], dst_offsets=rows[:, 1], lengths=10)
            assert await future == 40
            for origin, target in table:
                assert bytes(dst)[target : target + 10] == bytes(range(origin, origin + 10))
        every_second = memoryview(array.array("q", [50, 0, 40, 0]))[::2]
        assert await dma.copy_many(src, dst, src_offsets=every_second, dst_offsets=range(0, 20, 10), lengths=10) == 20
        assert bytes(dst)[:20] == bytes(range(50, 60)) + bytes(range(40, 50))


async def test_numbers_make_one_pair(dma: DMA) -> None:
    async with await dma.register(b"abcdef") as src, await dma.alloc(6) as dst:
        assert await dma.copy_many(src, dst, src_offsets=1, dst_offsets=2, lengths=3) == 3
        assert bytes(dst) == b"\0\0bcd\0"


async def test_nothing_to_copy(dma: DMA) -> None:
    before = emulator.counters().submits
    async with await dma.alloc(10) as src, await dma.alloc(10) as dst:
        assert await dma.copy_many([]) == 0
        assert await dma.copy_many(src, dst, src_offsets=np.zeros(0, np.int64), lengths=5) == 0
        assert await dma.copy_many(src, dst, src_offsets=range(10), lengths=0) == 0
    assert emulator.counters().submits == before


async def test_offsets_may_change_while_the_copy_runs(held_dma: DMA) -> None:
    offsets = np.arange(0, 100, 10)
    async with await held_dma.register(bytes(range(100))) as src, await held_dma.alloc(100) as dst:
        future = held_dma.copy_many(src, dst, src_offsets=offsets, dst_offsets=offsets, lengths=10)
        offsets[:] = 2**62
        held_dma._turn()
        emulator.step(1000)
        assert await future == 100
        assert bytes(dst) == bytes(range(100))


@pytest.mark.parametrize("bad", [[3], [0, 17, 499], list(range(0, 500, 25))])
async def test_failed_pairs_are_named_and_all_others_are_done(engine: str, bad: list[int]) -> None:
    if engine == "manual":
        emulator.configure(engine="worker")
    async with aiodocadma.open_dma(num_tasks=16) as dma, await dma.alloc(5000) as src, await dma.alloc(5000) as dst:
        memoryview(src)[:] = b"x" * 5000
        # As broken pages would: whenever a task reads from there it fails, also when it is replayed.
        for index in bad:
            emulator.inject(emulator.Fault("completion", src=address_of(src) + index * 10, count=0))
        with pytest.raises(CopyManyError) as caught:
            await dma.copy_many(
                src, dst, src_offsets=range(0, 5000, 10), dst_offsets=range(0, 5000, 10), lengths=10, tag="t"
            )
        emulator.configure(faults="none")
        assert caught.value.indices == tuple(bad)
        assert caught.value.num_pairs == 500
        assert all(isinstance(error, DocaIoFailedError) and error.tag == "t" for error in caught.value.exceptions)
        del caught
        expected = bytearray(b"x" * 5000)
        for index in bad:
            expected[index * 10 : index * 10 + 10] = bytes(10)
        assert bytes(dst) == bytes(expected)
        assert await dma.copy(src[:10], dst[:10]) == 10  # after the last restart
        assert dma.statistics().restarts == len(bad)


@pytest.mark.parametrize("bad", [0, 1, 2])
async def test_last_pair_is_refused_when_no_other_is_with_the_engine(bad: int) -> None:
    """Nothing comes home any more that could end the copy."""
    async with aiodocadma.open_dma(num_tasks=1) as dma, await dma.alloc(200) as src, await dma.alloc(200) as dst:
        emulator.inject(emulator.Fault(SUBMIT, "fail", status="UNEXPECTED", skip=bad))
        pairs = range(bad + 1)
        with pytest.raises(CopyManyError) as caught:
            async with asyncio.timeout(10):
                await dma.copy_many(src, dst, src_offsets=pairs, dst_offsets=pairs, lengths=1)
        assert caught.value.indices == (bad,)
        del caught
        assert await dma.copy(src, dst) == 200


EDGES = (0, 1, 29, 30, 31, 2**31, 2**62, 2**63 - 1, -1, -30, -(2**63))  # of int64


@pytest.mark.parametrize("form", ["columns", "one length", "steps"])
async def test_bounds_are_those_of_integers_without_end(dma: DMA, form: str) -> None:
    """Whatever is given, a pair is refused if and only if it leaves a side, and then nothing has begun."""
    rng = random.Random(form)
    async with await dma.alloc(30) as src, await dma.alloc(30) as dst:
        for _ in range(600):
            few = EDGES[: rng.choice((2, 5, 11))]
            if form == "steps":
                starts, steps = (rng.choice(few), rng.choice(few)), (rng.choice((0, 1, 13)), rng.choice((0, 1, 13)))
                offsets: list[Any] = [range(a, a + 3 * b, b) if b else a for a, b in zip(starts, steps, strict=True)]
                if all(isinstance(side, int) for side in offsets):
                    continue
                values = [[a + i * b for i in range(3)] for a, b in zip(starts, steps, strict=True)]
            else:
                values = [[rng.choice(few) for _ in range(3)] for _ in range(2)]
                offsets = [array.array("q", side) for side in values]
            lengths = [rng.choice(few) for _ in range(3)] if form == "columns" else [rng.choice(few)] * 3
            given = array.array("q", lengths) if form == "columns" else lengths[0]
            good = all(n >= 0 and o >= 0 and o + n <= 30 for side in values for o, n in zip(side, lengths, strict=True))
            if good:
                assert await dma.copy_many(
                    src, dst, src_offsets=offsets[0], dst_offsets=offsets[1], lengths=given
                ) == sum(lengths)
            else:
                with pytest.raises(BoundsError):
                    dma.copy_many(src, dst, src_offsets=offsets[0], dst_offsets=offsets[1], lengths=given)


def address_of(memory_map: aiodocadma.MemoryMap) -> int:
    return int(np.frombuffer(memory_map, np.uint8).ctypes.data)


WRONG: dict[str, tuple[dict[str, Any], type[BaseException], str]] = {
    "beyond src": ({"src_offsets": [0, 95], "lengths": 10}, BoundsError, "pair 1: 10 bytes at offset 95 of src"),
    "beyond dst": ({"dst_offsets": [0, 91], "lengths": 10}, BoundsError, "pair 1: 10 bytes at offset 91 of dst"),
    "negative": ({"src_offsets": [5, -1], "lengths": 1}, BoundsError, "pair 1: 1 byte at offset -1 of src"),
    "negative length": ({"src_offsets": [5], "lengths": -1}, BoundsError, "pair 0: -1 bytes"),
    "no int64": ({"src_offsets": 2**63, "lengths": 1}, BoundsError, f"src_offsets: {2**63} is beyond any memory"),
    "no int64, negative": (
        {"dst_offsets": -(2**70), "lengths": 1},
        BoundsError,
        "dst_offsets: -1180591620717411303424",
    ),
    "no length": ({"src_offsets": 0, "lengths": 2**64}, BoundsError, f"lengths: {2**64} is beyond"),
    "no such start": ({"src_offsets": range(2**63, 2**63 + 2), "lengths": 1}, BoundsError, "src_offsets: "),
    "no such end": ({"src_offsets": range(0, 2**65, 2**62), "lengths": 1}, BoundsError, f"src_offsets: {7 * 2**62} is"),
    "no such step": ({"src_offsets": range(-1, 2**63, 2**63), "lengths": 1}, BoundsError, f"src_offsets: {2**63} is"),
    "as many as there are": ({"src_offsets": range(2**63 - 1), "lengths": 1}, BoundsError, "pair 100: "),
    "more than there are": ({"src_offsets": range(-(2**63), 2**63 - 1), "lengths": 1}, BoundsError, "pair 0: "),
    "wraps": ({"src_offsets": [2**63 - 1], "lengths": 2**63 - 1}, BoundsError, "pair 0"),
    "other counts": ({"src_offsets": [1, 2], "dst_offsets": [1, 2, 3], "lengths": 1}, ValueError, "2 src_offsets"),
    "float": ({"src_offsets": 1.5, "lengths": 1}, TypeError, "src_offsets"),
    "int32": ({"src_offsets": np.zeros(3, np.int32), "lengths": 1}, TypeError, "src_offsets must be .* int64"),
    "2-d": ({"src_offsets": np.zeros((3, 2), np.int64), "lengths": 1}, TypeError, "one-dimensional"),
    "strided int32": (
        {"src_offsets": np.zeros(8, np.int32)[::2], "lengths": 1},
        TypeError,
        "src_offsets must be .* int64",
    ),
    "strided, beyond": ({"src_offsets": np.array([0, 0, 95, 0])[::2], "lengths": 10}, BoundsError, "pair 1: 10 bytes"),
    "no lengths": ({"src_offsets": [1]}, TypeError, "lengths"),
    # Looked at one by one that would take a quarter of an hour.
    "no end": ({"src_offsets": range(2**40), "lengths": 1}, BoundsError, "pair 100: 1 byte at offset 100 of src"),
    "no end of lengths": ({"lengths": range(2**40)}, BoundsError, "pair 101: 101 bytes at offset 0 of src"),
    "beyond numbers": ({"dst_offsets": range(9, 2**62, 2**61), "lengths": 1}, BoundsError, "pair 1: 1 byte"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_wrong_offsets_are_refused_at_the_call(dma: DMA, name: str) -> None:
    given, error, text = WRONG[name]
    given = {key: np.array(value) if isinstance(value, list) else value for key, value in given.items()}
    async with await dma.alloc(100) as src, await dma.alloc(100) as dst:
        with pytest.raises(error, match=text):
            dma.copy_many(src, dst, **given)
        assert dma.statistics().copies_started == 0


async def test_wrong_pairs_are_refused_at_the_call(dma: DMA) -> None:
    closed = await dma.alloc(10)
    closed.close()
    async with (
        aiodocadma.open_dma() as other,
        await dma.alloc(100) as own,
        await dma.register(b"read-only") as read_only,
    ):
        foreign = await other.alloc(10)
        good = (own[:10], own[50:60])
        cases: list[tuple[Any, type[BaseException], str]] = [
            ((own[:10], own[50:55]), BoundsError, "pair 1: dst has 5 bytes, but src has 10"),
            ((own[:10], own[5:15]), OverlapError, "pair 1"),
            ((own[:9], read_only), AccessError, r"dst\[1\]"),
            ((closed, own), ClosedError, r"src\[1\]"),
            ((foreign, own), WrongLoopError, r"src\[1\]"),
            ((b"plain", own), TypeError, "Buffers"),
        ]
        for pair, error, text in cases:
            with pytest.raises(error, match=text):
                dma.copy_many([good, pair])
        with pytest.raises(OverlapError, match="pair 0"):
            dma.copy_many(own, own, lengths=10)


async def test_cancelled_as_one(held_dma: DMA) -> None:
    rows = range(0, 100_000, 10)
    async with await held_dma.alloc(100_000) as src, await held_dma.alloc(100_000) as dst:
        future = held_dma.copy_many(src, dst, src_offsets=rows, dst_offsets=rows, lengths=10)
        await until(lambda: emulator.live_objects().in_flight == 256, "a full window")
        future.cancel()
        await turns(5)
        assert not future.done()
        assert emulator.step(10_000) == 256
        with pytest.raises(asyncio.CancelledError):
            await future
        assert emulator.counters().submits == 256
        assert src._users == dst._users == 0


async def test_a_small_copy_passes_a_large_batch(held_dma: DMA) -> None:
    rows = range(0, 1_000_000, 100)
    async with await held_dma.alloc(1_000_000) as src, await held_dma.alloc(1_000_000) as dst:
        many = held_dma.copy_many(src, dst, src_offsets=rows, dst_offsets=rows, lengths=100)
        small = held_dma.copy(b"abc", bytearray(3))
        await until(lambda: emulator.step(100) and small.done(), "the small copy")
        assert not many.done()
        await until(lambda: emulator.step(1000) == 0 and many.done(), "the batch")


async def test_memory_per_pair() -> None:
    """At most 32 bytes for each pair, offsets included."""
    count = 100_000
    emulator.configure(engine="manual")
    async with aiodocadma.open_dma() as dma, await dma.alloc(count) as src, await dma.alloc(count) as dst:
        offsets = np.arange(count)
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        future = dma.copy_many(src, dst, src_offsets=offsets, dst_offsets=offsets, lengths=1)
        used = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert used <= 32 * count
        future.cancel()
        await until(lambda: emulator.step(1000) or future.done(), "the cancelled batch")
        await asyncio.wait([future])
