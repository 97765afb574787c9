"""
Scenarios, or parts of them, that need what the client or the emulator cannot do yet.

Each is expected to fail as long as that is so, and has to pass as soon as the API named in its mark is there.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import statistics
import time
from typing import Any

import pytest

from aiodocadma import _library, emulator
from tests.scenarios.conftest import opened, release, turns, until


def emulator_has(setting: str) -> bool:
    """Whether the emulator knows a setting; its own default is set, so nothing changes."""
    with emulator.using(_library.emulator_path()):
        try:
            emulator.configure(f"{setting}=0")
        except ValueError:
            return False
    return True


def option(function: Any, name: str) -> bool:
    """Whether a function has a parameter."""
    return name in inspect.signature(function).parameters


def needs(what: str, there: bool) -> pytest.MarkDecorator:
    """Expect a failure until it is there."""
    return pytest.mark.xfail(not there, reason=f"needs {what}", strict=True)


needs_latency = needs("the emulator's latency_real", emulator_has("latency_real"))
needs_slot_lag = needs("the emulator's slot_lag", emulator_has("slot_lag"))

worker = pytest.mark.matrix(engines=("worker",))


@needs_latency
@worker
async def test_b02_guessing_idle_with_a_latency_of_20_us(engine: str) -> None:
    """50 coroutines that yield for ever, 2,000 copies of 20 us one after another: each of the 50 makes 1,000 steps."""
    emulator.configure(latency_real=20)
    steps = [0] * 50

    async def spin(i: int) -> None:
        while True:
            steps[i] += 1
            await asyncio.sleep(0)

    async with opened() as dma, await dma.alloc(64) as src, await dma.alloc(64) as dst:
        spinners = [asyncio.ensure_future(spin(i)) for i in range(50)]
        for _ in range(2000):
            assert await dma.copy(src, dst) == 64
        for spinner in spinners:
            spinner.cancel()
        assert min(steps) >= 1000
        assert dma.statistics().arms <= dma.statistics().wakeups + 1


@needs_latency
@worker
async def test_b08_ping_pong_with_random_latency(engine: str) -> None:
    """1,000 dependent copies of 1 to 500 us: under 5 s in all, each under 50 ms, without a watchdog."""
    rng = random.Random(8)
    worst = 0.0
    async with (
        opened(stall_timeout=None) as dma,
        await dma.alloc(64) as ping,
        await dma.alloc(64) as pong,
    ):
        start = time.perf_counter()
        for i in range(1000):
            emulator.configure(latency_real=rng.randint(1, 500))
            began = time.perf_counter()
            await dma.copy(*((ping, pong) if i % 2 else (pong, ping)))
            worst = max(worst, time.perf_counter() - began)
        assert time.perf_counter() - start < 5
        assert worst < 0.05


@needs_latency
@worker
async def test_b11_fixed_sleeps_with_a_latency_of_50_us(engine: str) -> None:
    """1,000 copies of 50 us, one after another: the median is under 350 us, p99 under 2 ms."""
    emulator.configure(latency_real=50)
    waits = []
    async with opened() as dma, await dma.alloc(64) as src, await dma.alloc(64) as dst:
        for _ in range(1000):
            start = time.perf_counter()
            await dma.copy(src, dst)
            waits.append(time.perf_counter() - start)
    assert 50e-6 <= statistics.median(waits) < 350e-6
    assert statistics.quantiles(waits, n=100)[98] < 2e-3


@needs_slot_lag
@pytest.mark.parametrize("slot_lag", [1, 3])
async def test_b44_slots_that_become_free_late(engine: str, slot_lag: int) -> None:
    """Room for two, slots usable only some progress calls later, 2,000 copies, 30 % cancelled: no error, under 5 s."""
    emulator.configure(slot_lag=slot_lag)
    rng = random.Random(44)
    start = time.perf_counter()
    async with opened(num_tasks=2) as dma:
        left = 2000

        async def some() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                task = asyncio.ensure_future(dma.copy_coroutine(b"x" * 100, bytearray(100)))
                if rng.random() < 0.3:
                    await turns(rng.randrange(4))
                    task.cancel()
                await asyncio.wait([task])
                assert task.cancelled() or task.result() == 100

        await asyncio.gather(*[some() for _ in range(16)])
        await dma.drain()
        assert time.perf_counter() - start < 5
        assert emulator.counters().max_in_flight <= 2


@pytest.mark.usefixtures("held")
async def test_b50_producers_that_wait_for_room() -> None:
    """submit() with max_waiting: 1,000 copies by one producer, never more than the bound wait, none is lost."""
    async with opened(num_tasks=4, max_waiting=8) as dma:
        most = 0

        async def produce() -> list[Any]:
            nonlocal most
            futures = []
            for _ in range(1000):
                futures.append(await dma.submit(b"abc", bytearray(3)))
                most = max(most, dma.statistics().waiting)
            return futures

        producer = asyncio.ensure_future(produce())
        while not producer.done():
            release(3)
            await turns(1)
        futures = producer.result()
        await until(lambda: release() == 0 and not dma._pending, "the rest")
        assert await asyncio.gather(*futures) == [3] * 1000
        assert most <= 8
