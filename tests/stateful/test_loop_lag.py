"""Beside 512 copies in flight that complete at once and are started again, the loop serves its timers in time."""

from __future__ import annotations

import asyncio

import pytest

import aiodocadma
from aiodocadma import CopyFuture, emulator
from tests.scenarios.conftest import Ticker

COPIES = 512
NBYTES = 64
ROUNDS = 3  # the best two count: the machine has other work, too
SECONDS = 1.0  # of each round
PERIOD = 0.005
BOUND = 0.025


@pytest.fixture(params=["default", "worker"], autouse=True)
def engine(request: pytest.FixtureRequest) -> None:
    """Execute inside the progress call, or in a worker."""
    emulator.reset()
    emulator.configure(engine=request.param)


async def test_loop_lag() -> None:
    async with aiodocadma.open_dma(num_tasks=COPIES) as dma:
        src, dst = await dma.alloc(NBYTES * COPIES), await dma.alloc(NBYTES * COPIES)
        loop = asyncio.get_running_loop()
        worst = []
        for _ in range(ROUNDS):
            end = loop.time() + SECONDS
            started = 0

            def again(i: int, end: float = end) -> None:
                nonlocal started
                if loop.time() < end:
                    started += 1
                    part = slice(i * NBYTES, (i + 1) * NBYTES)
                    dma.copy(src[part], dst[part]).add_done_callback(lambda ended: check(i, ended))

            def check(i: int, ended: CopyFuture) -> None:
                assert ended.result() == NBYTES
                again(i)

            async with Ticker(PERIOD) as ticker:
                for i in range(COPIES):
                    again(i)
                await asyncio.sleep(SECONDS)
                await dma.drain()
            worst.append(ticker.worst)
            assert ticker.ticks > 10
            assert started > 10 * COPIES
        assert sorted(worst)[1] <= BOUND, worst
        assert dma.statistics().watchdog_hits == 0
