"""
Taking times: what is compared runs side by side in one process, in every round.

One statistic, fixed beforehand: the median of the ratios of the rounds. A machine that is twice as slow for a second
makes both sides of a round slow. A ratio of a run whose lowest is less than half its median is called unsteady.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import aiodocadma
from benchmarks._bodies import LENGTH, MANY, WORKING_SET, Bench, opened
from benchmarks._peers import Naive, address_of, build

ROUNDS = 9
clock = time.perf_counter


@dataclass
class Ratios:
    """
    A quotient for each round, and what it was made of.

    Args:
        measured: The client's figure of each round.
        peer: The peer's.
        ratios: Their quotients, the way round that the goal has it.
    """

    measured: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)

    def add(self, measured: float, peer: float, ratio: float) -> None:
        """Note a round."""
        self.measured.append(measured)
        self.peer.append(peer)
        self.ratios.append(ratio)

    @property
    def ratio(self) -> float:
        """The median."""
        return statistics.median(self.ratios)


def percentile(samples: Sequence[float], part: float) -> float:
    """The sample below which that part lies."""
    return sorted(samples)[min(len(samples) - 1, int(part * len(samples)))]


async def _seconds(work: Awaitable[object]) -> float:
    start = clock()
    await work
    return clock() - start


@contextlib.contextmanager
def busy_neighbour() -> Iterator[None]:
    """Another process that never sleeps."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def busy_thread() -> Iterator[None]:
    """A thread of this process that computes in Python."""
    stop = False

    def spin() -> None:
        while not stop:
            sum(range(100))

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        yield
    finally:
        stop = True
        thread.join()


# ---- P3


async def many_against_poll(bench: Bench) -> Ratios:
    """copy_many of 10,000 x 4 KiB against the C program that polls: copies per second, the same bytes."""
    address = bench.offsets.buffer_info()[0]
    result = Ratios()
    for _ in range(ROUNDS + 1):
        start = clock()
        bench.program.poll(MANY, LENGTH, address)
        peer = MANY / (clock() - start)
        work = bench.dma.copy_many(
            bench.src_map, bench.dst_map, src_offsets=bench.offsets, dst_offsets=bench.offsets, lengths=LENGTH
        )
        measured = MANY / await _seconds(work)
        result.add(measured, peer, measured / peer)
    return _warm(result)


def _warm(result: Ratios) -> Ratios:
    """The first round was to warm up."""
    return Ratios(result.measured[1:], result.peer[1:], result.ratios[1:])


# ---- P2, through the notification


async def events_against_c(bench: Bench) -> Ratios:
    """Copies one after another, asleep while the engine's threads work, against the C program that sleeps: time."""
    address, count = bench.offsets.buffer_info()[0], 500
    result = Ratios()

    async def copies() -> None:
        for _ in range(count):
            await bench.dma.copy(bench.src, bench.dst)

    for _ in range(ROUNDS + 1):
        start = clock()
        bench.program.events(count, LENGTH, address)
        peer = (clock() - start) / count
        measured = await _seconds(copies()) / count
        result.add(measured, peer, measured / peer)
    return _warm(result)


# ---- P4


async def _latencies(operation: Callable[[], Awaitable[object]], count: int) -> list[float]:
    samples = []
    for _ in range(count):
        start = clock()
        await operation()
        samples.append(clock() - start)
    return samples


async def latency_against_to_thread(bench: Bench, part: float) -> Ratios:
    """A percentile of `await copy(4 KiB)` against `to_thread(memmove)`; how many times lower."""
    src, dst = address_of(bench.src_view), address_of(bench.dst_view)
    result = Ratios()
    for _ in range(ROUNDS + 1):
        measured = percentile(await _latencies(lambda: bench.dma.copy(bench.src, bench.dst), 4000), part)
        samples = await _latencies(lambda: asyncio.to_thread(ctypes.memmove, dst, src, LENGTH), 400)
        peer = percentile(samples, part)
        result.add(measured, peer, peer / measured)
    return _warm(result)


# ---- P5


async def _gather_copies(bench: Bench) -> None:
    dma, src, dst = bench.dma, bench.src, bench.dst
    await asyncio.gather(*[dma.copy(src, dst) for _ in range(MANY)])


async def fan_out_against_to_thread(bench: Bench) -> Ratios:
    """10,000 concurrent copies against 10,000 gathered to_thread(memmove): how many times as many per second."""
    src, dst = address_of(bench.src_view), address_of(bench.dst_view)
    result = Ratios()
    for _ in range(ROUNDS + 1):
        measured = MANY / await _seconds(_gather_copies(bench))
        threads = [asyncio.to_thread(ctypes.memmove, dst, src, LENGTH) for _ in range(MANY // 4)]
        peer = MANY // 4 / await _seconds(asyncio.gather(*threads))
        result.add(measured, peer, measured / peer)
    return _warm(result)


async def fan_out_against_executor(bench: Bench) -> Ratios:
    """The same against one ThreadPoolExecutor."""
    loop = asyncio.get_running_loop()
    src, dst = address_of(bench.src_view), address_of(bench.dst_view)
    result = Ratios()
    with ThreadPoolExecutor(2) as pool:
        for _ in range(ROUNDS + 1):
            measured = MANY / await _seconds(_gather_copies(bench))
            calls = [loop.run_in_executor(pool, ctypes.memmove, dst, src, LENGTH) for _ in range(MANY)]
            peer = MANY / await _seconds(asyncio.gather(*calls))
            result.add(measured, peer, measured / peer)
    return _warm(result)


async def fan_out_against_naive(bench: Bench) -> Ratios:
    """The same against a naive binding."""
    result = Ratios()
    naive = Naive(build(), bench.src_view, bench.dst_view)
    for _ in range(ROUNDS + 1):
        measured = MANY / await _seconds(_gather_copies(bench))
        copies = [naive.copy(0, LENGTH) for _ in range(MANY)]
        peer = MANY / await _seconds(asyncio.gather(*copies))
        result.add(measured, peer, measured / peer)
    await naive.aclose()
    return _warm(result)


# ---- P6


async def slow_down_by_thread(bench: Bench) -> Ratios:
    """The time of a copy beside a thread that computes, its turns with the GIL included, against that alone."""
    count = 100_000
    dma, src, dst = bench.dma, bench.src, bench.dst
    result = Ratios()

    async def copies() -> None:
        for _ in range(count):
            await dma.copy(src, dst)

    for _ in range(ROUNDS + 1):
        alone = await _seconds(copies()) / count
        with busy_thread():
            beside = await _seconds(copies()) / count
        result.add(beside, alone, beside / alone)
    return _warm(result)


# ---- P8

LARGE = 1 << 30


@contextlib.asynccontextmanager
async def ticker() -> AsyncIterator[list[float]]:
    """A 1 ms ticker in the loop; the list gets by how much each tick was late."""
    late: list[float] = []

    async def tick() -> None:
        while True:
            start = clock()
            await asyncio.sleep(0.001)
            late.append(clock() - start - 0.001)

    task = asyncio.ensure_future(tick())
    try:
        yield late
    finally:
        task.cancel()
        await asyncio.wait([task])


async def large_against_to_thread() -> tuple[Ratios, Ratios]:
    """1 GiB in one copy against to_thread(memmove): GB/s; and the largest lag of a round, against the ticker's own."""
    rates, lags = Ratios(), Ratios()
    async with aiodocadma.open_dma() as dma:
        src, dst = await dma.alloc(LARGE), await dma.alloc(LARGE)
        src_view, dst_view = memoryview(src), memoryview(dst)
        src_address, dst_address = address_of(src_view), address_of(dst_view)
        for _ in range(ROUNDS + 1):
            async with ticker() as own:
                await asyncio.sleep(0.1)
            async with ticker() as late:
                measured = LARGE / await _seconds(dma.copy(src, dst)) / 1e9
            peer = LARGE / await _seconds(asyncio.to_thread(ctypes.memmove, dst_address, src_address, LARGE)) / 1e9
            rates.add(measured, peer, measured / peer)
            lags.add(max(late), max(own), max(late) * 1e3)
        src_view.release()
        dst_view.release()
    return _warm(rates), _warm(lags)


# ---- P9


async def idle_cpu(seconds: float = 2.0) -> float:
    """The part of a CPU that the process takes with a DMA open and nothing to do."""
    await asyncio.sleep(0.1)
    before = resource.getrusage(resource.RUSAGE_SELF)
    start = clock()
    await asyncio.sleep(seconds)
    after = resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used / (clock() - start)


async def wake_ups(bench: Bench) -> float:
    """How often the notification fd woke the loop for 100 completions in fan-out."""
    await _gather_copies(bench)
    before = bench.dma.statistics()
    for _ in range(3):
        bench.open_queue()
        await _gather_copies(bench)
    after = bench.dma.statistics()
    return 100 * (after.wakeups - before.wakeups) / (after.copies_completed - before.copies_completed)


# ---- P7 and P11: processes of their own

_RESIDENT = """
import asyncio, gc, sys
import aiodocadma

COUNT = 100_000

def resident():
    gc.collect()
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096

async def main(what):
    loop = asyncio.get_running_loop()
    async with aiodocadma.open_dma() as dma:
        src, dst = await dma.alloc(4096), await dma.alloc(4096)
        src, dst = src[:64], dst[:64]
        opener = [src[:8], src[16:24]], [dst[:8], dst[16:24]]
        await dma.copy(*opener)
        warm = [dma.copy(src, dst) for _ in range(1000)]  # the pool of the context, and what is made once
        await dma.drain()
        del warm
        before = resident()
        if what == "future":
            kept = [loop.create_future() for _ in range(COUNT)]
        elif what == "copy":
            first = dma.copy(*opener)
            kept = [dma.copy(src, dst) for _ in range(COUNT)]
        else:
            first = dma.copy(*opener)
            import array
            offsets = array.array("q", [0]) * COUNT
            before = resident()
            kept = dma.copy_many(src, dst, src_offsets=offsets, dst_offsets=offsets, lengths=offsets_of(offsets))
        print((resident() - before) / COUNT)
        await dma.drain()

def offsets_of(offsets):
    import array
    return array.array("q", [8]) * len(offsets)

asyncio.run(main(sys.argv[1]))
"""


def resident_bytes(what: str) -> float:
    """Resident bytes of each of 100,000 that wait: ``future``, ``copy``, or a ``pair`` of copy_many."""
    result = subprocess.run([sys.executable, "-c", _RESIDENT, what], capture_output=True, text=True, check=True)
    return float(result.stdout)


def _import_seconds(module: str, cache: str) -> float:
    """How long an interpreter takes for one import; an installed package has its bytecode cached."""
    program = f"import time; start = time.perf_counter(); import {module}; print(time.perf_counter() - start)"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = cache
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env)
    return float(result.stdout)


def import_against_asyncio() -> Ratios:
    """Importing aiodocadma against importing asyncio."""
    result = Ratios()
    with tempfile.TemporaryDirectory() as cache:
        for _ in range(ROUNDS + 1):
            measured, peer = _import_seconds("aiodocadma", cache), _import_seconds("asyncio", cache)
            result.add(measured, peer, measured / peer)
    return _warm(result)


async def first_copy() -> float:
    """Seconds from open_dma() to the end of the first copy, the median of several."""
    samples = []
    for _ in range(ROUNDS):
        start = clock()
        async with aiodocadma.open_dma() as dma:
            src, dst = await dma.alloc(LENGTH), await dma.alloc(LENGTH)
            await dma.copy(src, dst)
            samples.append(clock() - start)
    return statistics.median(samples)


__all__ = ["WORKING_SET", "opened"]
