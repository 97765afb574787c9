"""A short copy beside a long one, in the virtual time of a card's profile."""

from __future__ import annotations

import asyncio
import statistics

import pytest

import aiodocadma
from aiodocadma import emulator
from tests.dma.conftest import turns

PROFILES = ["bf2", "bf3"]


@pytest.mark.parametrize("direction", ["push", "pull"])
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("length", [2**28, pytest.param(2**30, marks=pytest.mark.deep)])
async def test_latency_beside_a_long_copy(profile: str, direction: str, length: int) -> None:
    """
    The median of 4 KiB copies is at most 5 times that on an idle engine, and the long copy loses at most 5 %.

    The long one is 1 GiB; for every commit it is a quarter of that, long enough for hundreds of short ones.
    """
    emulator.configure(profile=profile, direction=direction)
    async with (
        aiodocadma.open_dma() as dma,
        await dma.alloc(length) as src,
        await dma.alloc(length) as dst,
        await dma.alloc(4096) as small_src,
        await dma.alloc(4096) as small_dst,
    ):

        async def short() -> int:
            start = emulator.time_ns()
            await dma.copy(small_src, small_dst)
            return emulator.time_ns() - start

        idle = statistics.median([await short() for _ in range(50)])

        start = emulator.time_ns()
        await dma.copy(src, dst)
        alone = emulator.time_ns() - start

        start = emulator.time_ns()
        long = dma.copy(src, dst)
        beside = []
        while not long.done():
            beside.append(await short())
            await turns(20)
        await long
        together = emulator.time_ns() - start
        assert len(beside) > 100
        assert statistics.median(beside) <= 5 * idle
        assert alone / together >= 0.95, len(beside)


async def test_short_copies_pass_a_long_one_within_a_few_segments(engine: str) -> None:
    """In tasks instead of time: a 4 KiB copy is submitted within a window and a quantum of the long one."""
    emulator.configure(engine="manual")
    async with aiodocadma.open_dma() as dma, await dma.alloc(2**26) as src, await dma.alloc(2**26) as dst:
        long = dma.copy(src, dst)
        first = dma.copy(b"abc", bytearray(3))
        dma._turn()
        steps = 0
        while not first.done():
            assert emulator.step(1) == 1
            dma._readable()
            dma._turn()
            steps += 1
        assert steps <= 24
        # From now on the long one is cut short, and DOCA holds little of it.
        second = dma.copy(b"abc", bytearray(3))
        before = emulator.counters().bytes
        while not second.done():
            assert emulator.step(1) == 1
            dma._readable()
            dma._turn()
        assert emulator.counters().bytes - before <= 20 * 2**21
        while not long.done():
            emulator.step(100)
            dma._turn()
            dma._readable()
            await asyncio.sleep(0)
        await asyncio.gather(first, second, long)
