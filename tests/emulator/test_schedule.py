"""Steering the emulator from Python: what the client makes of held, late, slow and reordered completions."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Iterator
from typing import Literal

import pytest

import aiodocadma
from aiodocadma import DMA, emulator
from aiodocadma.emulator import Fault

ENGINES = ("default", "worker")


@pytest.fixture(autouse=True)
def clean_emulator() -> Iterator[None]:
    """Start from the defaults; afterwards no object is alive, no fault unused, no rule of DOCA broken."""
    emulator.reset()
    yield
    live = emulator.live_objects()
    assert live == type(live)(*[0] * len(live)), live
    assert emulator.faults_pending() == 0
    assert emulator.violations() == []
    emulator.reset()


@pytest.fixture(params=ENGINES)
async def dma(request: pytest.FixtureRequest) -> AsyncIterator[DMA]:
    """Open a DMA whose copies run by themselves."""
    emulator.configure(engine=request.param)
    async with aiodocadma.open_dma() as opened:
        yield opened


@pytest.mark.parametrize(("order", "expected"), [("fifo", [0, 1, 2, 3, 4]), ("lifo", [4, 3, 2, 1, 0])])
async def test_held_copies_end_in_the_order_of_their_release(
    dma: DMA, order: Literal["fifo", "lifo"], expected: list[int]
) -> None:
    src, dst = await dma.register(b"x" * 4096), await dma.alloc(5 * 4096)
    ended: list[int] = []
    emulator.hold()
    copies = [dma.copy(src, dst[i * 4096 : (i + 1) * 4096]) for i in range(5)]
    for i, copy in enumerate(copies):
        copy.add_done_callback(lambda _, i=i: ended.append(i))
    while emulator.live_objects().held < 5:
        await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)
    assert ended == []
    assert emulator.live_objects().held == 5
    for n in range(1, 6):
        assert emulator.release(1, order=order) == 1
        done, _ = await asyncio.wait(copies, return_when="FIRST_COMPLETED", timeout=10)
        await asyncio.sleep(0)
        assert len(ended) == n
        copies = [copy for copy in copies if copy not in done]
    emulator.hold(False)
    assert ended == expected


async def test_one_held_copy_does_not_keep_others(dma: DMA) -> None:
    src, dst = await dma.register(b"x" * 64), await dma.alloc(1024)
    emulator.inject(Fault("completion", kind="hold"))
    held = dma.copy(src, dst[:64])
    for _ in range(20):
        assert await dma.copy(src, dst[64:128]) == 64
    assert not held.done()
    assert emulator.release() == 1
    assert await held == 64


async def test_virtual_time_does_not_wait(dma: DMA) -> None:
    src, dst = await dma.register(b"x" * 4096), await dma.alloc(4096)
    emulator.configure(latency=10**9)
    before, started = emulator.time_ns(), time.monotonic()
    for _ in range(50):
        await dma.copy(src, dst)
    assert 50 * 10**9 <= emulator.time_ns() - before < 51 * 10**9
    assert time.monotonic() - started < 20
    emulator.time_advance(5)


async def test_a_profile_tells_striping_from_one_task() -> None:
    """A long copy is cut for that: one task at a time takes its time alone, all at once a third of it."""
    took = []
    for window in (1, None):
        emulator.configure(profile="bf3", direction="push", progress_cost=0)
        async with aiodocadma.open_dma(window=window) as dma:
            src, dst = await dma.register(bytes(1 << 20)), await dma.alloc(1 << 20)
            before = emulator.time_ns()
            await dma.copy(src, dst)
            took.append(emulator.time_ns() - before)
    assert 95_000 < took[0] < 115_000
    assert took[0] / 3.4 < took[1] < took[0] / 2.5


@pytest.mark.rule("X16")
async def test_orders_and_slow_slots_lose_nothing(dma: DMA) -> None:
    src, dst = await dma.register(bytes(range(256)) * 16), await dma.alloc(256 * 4096)
    emulator.configure(order="random", seed=7, slot_lag=5)
    copies = [dma.copy(src, dst[i * 4096 : (i + 1) * 4096]) for i in range(256)]
    assert await asyncio.gather(*copies) == [4096] * 256
    assert bytes(memoryview(dst)) == bytes(range(256)) * 16 * 256


@pytest.mark.rule("R49")
async def test_late_and_spurious_notifications_lose_nothing(dma: DMA) -> None:
    # Long enough to be cut into tasks that workers take.
    src, dst = await dma.register(b"x" * 3_000_000), await dma.alloc(3_000_000)
    emulator.configure(notify="late")
    emulator.inject(Fault("notification", kind="spurious", interval=2, count=0))
    for _ in range(20):
        assert await dma.copy(src, dst) == 3_000_000
    counters = emulator.counters()
    assert counters.notifications_late > 0
    assert counters.notifications_spurious > 0


async def test_latency_of_real_time() -> None:
    emulator.configure(latency_real=20_000)
    async with aiodocadma.open_dma() as dma:
        src, dst = await dma.register(b"x" * 64), await dma.alloc(32 * 64)
        took = []
        for _ in range(3):
            started = time.monotonic()
            await asyncio.gather(*(dma.copy(src, dst[i * 64 : (i + 1) * 64]) for i in range(32)))
            took.append(time.monotonic() - started)
        assert min(took) >= 0.02
        assert statistics.median(took) < 0.3, took


def test_what_makes_no_sense_is_refused() -> None:
    for fault in (Fault("pe_progress"), Fault("notification"), Fault("ctx_start", kind="hold")):
        with pytest.raises(ValueError, match="fault"):
            emulator.inject(fault)
    with pytest.raises(RuntimeError, match="docaemu_time_advance"):
        emulator.time_advance(2**63)
    emulator.revoke_exports()
    assert emulator.release() == 0
