"""Every counter, driven to a known value and compared with what the emulator counted of the same events."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import random
import time

import numpy as np
import pytest

import aiodocadma
from aiodocadma import DMA, Latency, Statistics, emulator
from aiodocadma.exceptions import ClosedError, CopyManyError, DocaError, FlushedError
from tests.dma.conftest import OPTIONAL, SUBMIT, turns, until

CODES = {code: cls.name.removeprefix("DOCA_ERROR_") for code, cls in DocaError._by_code.items() if code}


def balanced(statistics: Statistics) -> bool:
    """Whether each copy that was started is pending or ended in exactly one way."""
    return statistics.copies_started == (
        statistics.pending
        + statistics.copies_completed
        + statistics.copies_failed
        + statistics.copies_flushed
        + statistics.copies_cancelled
        + statistics.copies_abandoned
    ) and statistics.copies_failed == sum(statistics.failed.values())


def agrees(statistics: Statistics) -> None:
    """Compare all that both sides count; nothing may be in flight."""
    theirs = emulator.counters()
    assert statistics.segments_submitted == theirs.submits
    assert statistics.segments_completed == theirs.completions_ok
    assert statistics.segments_failed + statistics.segments_flushed == theirs.completions_error
    assert statistics.segments_flushed == theirs.flushed
    assert statistics.bytes_completed == theirs.bytes
    assert statistics.again == theirs.again
    assert statistics.no_memory == theirs.no_memory
    assert statistics.arms == theirs.arms
    # Without held-back tasks DOCA rings with each submit, which is not ours to count.
    assert statistics.doorbells == (theirs.doorbells if OPTIONAL["doca_task_submit_ex"] else 0)
    assert statistics.peak_in_flight == theirs.max_in_flight
    assert statistics.restarts == theirs.ctx_faults
    assert 1 + statistics.recycles == theirs.ctx_starts
    assert balanced(statistics)


async def test_what_goes_well(engine: str, dma: DMA) -> None:
    async with await dma.alloc(300_000) as src, await dma.alloc(300_000) as dst:
        await asyncio.gather(*[dma.copy(src[:1000], dst[i * 1000 :]) for i in range(200)])
        await dma.copy(src, dst)
        await dma.copy(src[:0], dst)
        statistics = dma.statistics()
        agrees(statistics)
        assert statistics.copies_started == statistics.copies_completed == 201  # nothing is no work for the engine
        assert statistics.bytes_completed == 200 * 1000 + 300_000
        assert (statistics.in_flight, statistics.waiting, statistics.pending) == (0, 0, 0)
        assert statistics.failed == {}
        assert statistics.latency is None


async def test_what_is_going_on() -> None:
    emulator.configure(engine="manual")
    async with aiodocadma.open_dma(num_tasks=4) as dma, await dma.alloc(10) as src, await dma.alloc(10) as dst:
        futures = [dma.copy(src[i : i + 1], dst[i : i + 1]) for i in range(10)]
        await turns()
        statistics = dma.statistics()
        assert (statistics.in_flight, statistics.waiting, statistics.pending) == (4, 6, 10)
        assert statistics.peak_in_flight == emulator.live_objects().in_flight == 4
        assert balanced(statistics)
        await until(lambda: (emulator.step(1), all(future.done() for future in futures))[1], "the copies")
        agrees(dma.statistics())


@pytest.mark.parametrize(("code", "name"), CODES.items(), ids=CODES.values())
async def test_each_code(code: int, name: str) -> None:
    emulator.inject(emulator.Fault("completion", status=code, skip=1, fatal=False))
    async with aiodocadma.open_dma() as dma:
        results = await asyncio.gather(*[dma.copy(b"abc", bytearray(3)) for _ in range(3)], return_exceptions=True)
        assert sum(isinstance(result, DocaError) for result in results) == 1
        statistics = dma.statistics()
        assert statistics.failed == {name: 1}
        assert (statistics.copies_failed, statistics.copies_completed) == (1, 2)
        agrees(statistics)


async def test_codes_that_no_header_has_are_counted_together() -> None:
    emulator.configure(engine="manual")
    async with aiodocadma.open_dma() as dma:
        for code in (77, 4711):
            future = dma.copy(b"abc", bytearray(3))
            dma._turn()
            assert emulator.complete(emulator.last_copies()[0].dst, code=code, fatal=False)
            with pytest.raises(DocaError):
                await future
        assert dma.statistics().failed == {"?": 2}


async def test_refused_at_submit_and_at_alloc() -> None:
    emulator.inject(
        emulator.Fault(SUBMIT, status="DRIVER"),
        emulator.Fault("dma_task_memcpy_alloc_init", status="INVALID_VALUE"),
    )
    async with aiodocadma.open_dma() as dma:
        results = await asyncio.gather(*[dma.copy(b"abc", bytearray(3)) for _ in range(4)], return_exceptions=True)
        assert sum(isinstance(result, DocaError) for result in results) == 2
        statistics = dma.statistics()
        assert statistics.failed == {"DRIVER": 1, "INVALID_VALUE": 1}
        assert statistics.segments_failed == 0  # DOCA never had them
        assert balanced(statistics)


async def test_backpressure() -> None:
    emulator.inject(
        emulator.Fault(SUBMIT, "again", skip=3, count=2),
        emulator.Fault("buf_inventory_buf_get_by_args", status="NO_MEMORY", skip=10, count=3),
    )
    async with aiodocadma.open_dma() as dma, await dma.alloc(30) as src, await dma.alloc(30) as dst:
        await asyncio.gather(*[dma.copy(src[i : i + 1], dst[i : i + 1]) for i in range(30)])
        statistics = dma.statistics()
        assert (statistics.again, statistics.copies_failed, statistics.copies_completed) == (2, 0, 30)
        assert statistics.no_memory == 3
        assert statistics.again + statistics.no_memory == emulator.counters().faults


async def test_a_restart_and_its_replay() -> None:
    emulator.configure(engine="manual")
    emulator.inject(emulator.Fault("completion", skip=2))
    async with aiodocadma.open_dma() as dma, await dma.alloc(8) as src, await dma.alloc(8) as dst:
        futures = [dma.copy(src[i : i + 1], dst[i : i + 1]) for i in range(8)]
        await until(lambda: (emulator.step(8), all(future.done() for future in futures))[1], "the copies")
        await asyncio.gather(*futures, return_exceptions=True)
        statistics = dma.statistics()
        assert (statistics.restarts, statistics.recycles) == (1, 1)
        assert (statistics.segments_completed, statistics.segments_failed) == (7, 1)
        assert statistics.segments_flushed == statistics.segments_replayed == 5
        assert statistics.failed == {"IO_FAILED": 1}
        agrees(statistics)


async def test_flushed_and_not_replayed() -> None:
    emulator.configure(engine="manual")
    emulator.inject(emulator.Fault("completion"))
    async with aiodocadma.open_dma(on_flush="fail") as dma, await dma.alloc(5) as src, await dma.alloc(5) as dst:
        futures = [dma.copy(src[i : i + 1], dst[i : i + 1]) for i in range(5)]
        await turns()
        emulator.step(5)
        results = await asyncio.gather(*futures, return_exceptions=True)
        assert sum(type(result) is FlushedError for result in results) == 4
        statistics = dma.statistics()
        assert (statistics.copies_failed, statistics.copies_flushed, statistics.segments_replayed) == (1, 4, 0)
        await until(lambda: dma.state is aiodocadma.DMAState.RUNNING, "the restart")
        agrees(dma.statistics())


async def test_a_copy_of_many_counts_with_the_first_that_failed() -> None:
    async with aiodocadma.open_dma(num_tasks=1) as dma, await dma.alloc(40) as src, await dma.alloc(40) as dst:
        address = int(np.frombuffer(src, np.uint8).ctypes.data)
        emulator.inject(
            emulator.Fault("completion", status="DRIVER", src=address + 10),
            emulator.Fault("completion", status="IO_FAILED", src=address + 20),
        )
        with pytest.raises(CopyManyError) as caught:
            await dma.copy_many([(src[i : i + 10], dst[i : i + 10]) for i in range(0, 40, 10)])
        assert sorted(caught.value.indices) == [1, 2]
        assert dma.statistics().failed == {"DRIVER": 1}
        assert balanced(dma.statistics())


async def test_cancelled_and_abandoned() -> None:
    emulator.configure(engine="manual")
    async with aiodocadma.open_dma(num_tasks=2) as dma, await dma.alloc(9) as src, await dma.alloc(9) as dst:
        futures = [dma.copy(src[i : i + 1], dst[i : i + 1]) for i in range(9)]
        await turns()
        futures[0].cancel()  # with DOCA
        futures[5].cancel()  # waiting
        await turns()
        closing = asyncio.ensure_future(dma.aclose())
        await turns()
        emulator.step(9)
        await closing
        results = await asyncio.gather(*futures, return_exceptions=True)
        statistics = dma.statistics()
        assert statistics.copies_cancelled == sum(type(result) is asyncio.CancelledError for result in results) == 2
        assert statistics.copies_abandoned == sum(type(result) is ClosedError for result in results) == 6
        assert statistics.copies_completed == 1
        assert balanced(statistics)
        assert statistics.segments_submitted == emulator.counters().submits == 2
        assert dma.statistics() == statistics  # readable after the end


async def test_the_notification() -> None:
    emulator.configure(engine="manual")
    emulator.inject(emulator.Fault("pe_clear_notification", status="OPERATING_SYSTEM", count=2))
    async with aiodocadma.open_dma() as dma:
        for _ in range(20):
            future = dma.copy(b"abc", bytearray(3))
            await turns()
            emulator.step()
            await future
        statistics = dma.statistics()
        assert statistics.clear_errors == 2
        assert statistics.arms == emulator.counters().arms >= 20
        assert statistics.wakeups == emulator.counters().clears + statistics.clear_errors >= 20
        assert statistics.turns >= statistics.wakeups


async def test_everything_at_once_balances(engine: str) -> None:
    emulator.configure(engine="worker" if engine == "manual" else engine)
    generator = random.Random(8)
    emulator.inject(emulator.Fault("completion", skip=20, interval=41, count=10))
    emulator.inject(emulator.Fault(SUBMIT, "again", skip=5, interval=7, count=20))
    async with aiodocadma.open_dma(num_tasks=16) as dma, await dma.alloc(4000) as src, await dma.alloc(4000) as dst:
        futures = [dma.copy(src[i : i + 8], dst[i : i + 8]) for i in range(0, 4000, 8)]
        for future in generator.sample(futures, 50):
            future.cancel()
        results = await asyncio.gather(*futures, return_exceptions=True)
        await dma.drain()
        statistics = dma.statistics()
        assert balanced(statistics)
        assert statistics.pending == 0
        assert statistics.copies_failed == sum(isinstance(result, DocaError) for result in results)
        assert statistics.segments_submitted == emulator.counters().submits
        assert statistics.bytes_completed == emulator.counters().bytes
    emulator.configure(faults="none")


# ---- latency


async def test_latency(engine: str) -> None:
    emulator.configure(engine="worker" if engine == "manual" else engine)
    async with aiodocadma.open_dma(measure_latency=True) as dma, await dma.alloc(10) as src, await dma.alloc(10) as dst:
        start = time.monotonic()
        for _ in range(100):
            await dma.copy(src, dst)
        took = time.monotonic() - start
        latency = dma.statistics().latency
        assert latency is not None
        assert latency.count == sum(latency.buckets) == 100
        assert 0 < latency.total < 100 * took
        assert 0 < latency.percentile(50) <= latency.percentile(99) <= 1.25 * took


async def test_only_success_counts_as_latency() -> None:
    emulator.configure(engine="manual")
    async with aiodocadma.open_dma(measure_latency=True) as dma:
        future = dma.copy(b"abc", bytearray(3))
        dma._turn()
        await asyncio.sleep(0.02)
        assert emulator.complete(emulator.last_copies()[0].dst, code=17, fatal=False)
        with pytest.raises(DocaError):
            await future
        future = dma.copy(b"abc", bytearray(3))
        dma._turn()
        await asyncio.sleep(0.02)
        emulator.step()
        await future
        latency = dma.statistics().latency
        assert latency is not None
        assert latency.count == 1
        assert 0.02 <= latency.total < 5
        assert latency.percentile(0) >= 0.02


def test_percentiles() -> None:
    bounds = (0.5, 1.0, 2.0, math.inf)
    latency = Latency(100, 60.0, bounds, (90, 9, 0, 1))
    assert [latency.percentile(percent) for percent in (0, 50, 90, 90.1, 99, 99.1, 100)] == [
        *[0.5] * 3,
        1.0,
        1.0,
        math.inf,
        math.inf,
    ]
    assert dataclasses.replace(latency, count=0, buckets=(0,) * 4).percentile(99) == 0
    for percent in (-1, 101, math.nan):
        with pytest.raises(ValueError, match="percent"):
            latency.percentile(percent)


async def test_the_buckets_are_a_quarter_of_an_octave() -> None:
    async with aiodocadma.open_dma(measure_latency=True) as dma:
        latency = dma.statistics().latency
    assert latency is not None
    assert len(latency.bounds) == len(latency.buckets)
    assert latency.bounds[:6] == (1.024e-6, 1.28e-6, 1.536e-6, 1.792e-6, 2.048e-6, 2.56e-6)
    assert latency.bounds[-1] == math.inf
    assert all(b / a <= 1.2500001 for a, b in zip(latency.bounds, latency.bounds[1:-1], strict=False))
    assert 30 < latency.bounds[-2] < 40
