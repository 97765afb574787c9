"""
The bodies whose instructions or system calls are counted, and the process that runs them.

``_counts`` starts it as ``python -m benchmarks._bodies LOOP ENGINE BUDGET PEERS BODY:COUNT[-COUNT]...``: each body runs
once to warm up, then once for each count between callgrind's marks. What is compared runs the same statements around
what differs. BUDGET is ``none`` under callgrind: there a turn's share of real time is worth a fiftieth of the copies.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import gc
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import aiodocadma
from aiodocadma import _engine
from benchmarks._peers import CProgram, load

LENGTH = 4096  # bytes per copy, and
SMALL = 64  # where the queue is measured, against futures that move no bytes
WORKING_SET = 1 << 20
FAN_OUT = 1000  # copies per gather
TASKS = 64
MANY = 10_000  # copies per copy_many

Body: TypeAlias = Callable[["Bench", int], Awaitable[None]]


@dataclass
class Bench:
    """What the bodies work with."""

    dma: aiodocadma.DMA
    src_map: aiodocadma.MemoryMap
    dst_map: aiodocadma.MemoryMap
    src_view: memoryview
    dst_view: memoryview
    program: CProgram

    def __post_init__(self) -> None:
        self.src = self.src_map[:LENGTH]
        self.dst = self.dst_map[:LENGTH]
        self.small_src = self.src_map[:SMALL]
        self.small_dst = self.dst_map[:SMALL]
        # One byte more than a task carries: one progress call does not finish it, and what is started behind it queues.
        self.opener = self.src_map[: LENGTH + 1], self.dst_map[: LENGTH + 1]
        self.offsets = array.array("q", [i * LENGTH % WORKING_SET for i in range(MANY)])

    def open_queue(self) -> Awaitable[int]:
        """Start a copy that is pending until the loop's next turn: everything started meanwhile is queued."""
        return self.dma.copy(*self.opener)


# ---- one after another


async def nothing(bench: Bench, count: int) -> None:
    """The loop around the others."""
    for _ in range(count):
        pass


async def slices(bench: Bench, count: int) -> None:
    """Assign a slice of a memoryview, with local integers."""
    src, dst = bench.src_view, bench.dst_view
    a, b, c, d = 0, LENGTH, 0, LENGTH
    for _ in range(count):
        dst[a:b] = src[c:d]


async def copies(bench: Bench, count: int) -> None:
    """Await copies that the engine may finish at once."""
    dma, src, dst = bench.dma, bench.src, bench.dst
    for _ in range(count):
        await dma.copy(src, dst)


async def futures_each(bench: Bench, count: int) -> None:
    """Await bare futures, each resolved in the loop's next turn."""
    loop = asyncio.get_running_loop()
    for _ in range(count):
        future = loop.create_future()
        loop.call_soon(future.set_result, None)
        await future


async def copies_each(bench: Bench, count: int) -> None:
    """Await copies that are suspended: in engine "halves" each is cut in two, and one progress call does not do."""
    dma, src, dst = bench.dma, bench.small_src, bench.small_dst
    for _ in range(count):
        await dma.copy(src, dst)


# ---- gather


async def futures_gather(bench: Bench, count: int) -> None:
    """Gather bare futures, resolved together in the next turn."""
    loop = asyncio.get_running_loop()

    def resolve(futures: list[asyncio.Future[None]]) -> None:
        for future in futures:
            future.set_result(None)

    for _ in range(count // FAN_OUT):
        futures = [loop.create_future() for _ in range(FAN_OUT)]
        loop.call_soon(resolve, futures)
        await asyncio.gather(*futures)


async def copies_gather(bench: Bench, count: int) -> None:
    """Gather copies that take the queue."""
    dma, src, dst = bench.dma, bench.small_src, bench.small_dst
    for _ in range(count // FAN_OUT):
        bench.open_queue()
        await asyncio.gather(*[dma.copy(src, dst) for _ in range(FAN_OUT)])


# ---- tasks


async def futures_tasks(bench: Bench, count: int) -> None:
    """Bare futures in 64 tasks, resolved together in each turn."""
    loop = asyncio.get_running_loop()
    pending: list[asyncio.Future[None]] = []
    indexes = iter(range(count))

    def resolve() -> None:
        futures = pending[:]
        pending.clear()
        for future in futures:
            future.set_result(None)
        if futures:
            loop.call_soon(resolve)

    async def worker() -> None:
        for _ in indexes:
            future = loop.create_future()
            pending.append(future)
            await future

    loop.call_soon(lambda: loop.call_soon(resolve))
    await asyncio.gather(*[worker() for _ in range(TASKS)])


async def copies_tasks(bench: Bench, count: int) -> None:
    """Copies in 64 tasks that take the queue."""
    dma, src, dst = bench.dma, bench.small_src, bench.small_dst
    indexes = iter(range(count))

    async def worker() -> None:
        for _ in indexes:
            await dma.copy(src, dst)

    async def opener() -> None:  # resumed first in each turn, for it started first
        for _ in indexes:
            await bench.open_queue()

    await asyncio.gather(opener(), *[worker() for _ in range(TASKS - 1)])


# ---- many


async def poll_loop(bench: Bench, count: int) -> None:
    """The C program that polls."""
    address = bench.offsets.buffer_info()[0]
    for _ in range(count // MANY):
        bench.program.poll(MANY, LENGTH, address)


async def copy_many(bench: Bench, count: int) -> None:
    """Copies behind one future."""
    offsets = bench.offsets
    for _ in range(count // MANY):
        await bench.dma.copy_many(
            bench.src_map, bench.dst_map, src_offsets=offsets, dst_offsets=offsets, lengths=LENGTH
        )


# ---- waiting copies: a round starts `width` copies in one turn and drains them


def waiting(width: int) -> Body:
    """Rounds of so many copies that wait together; the count is in rounds."""

    async def body(bench: Bench, count: int) -> None:
        dma, src, dst = bench.dma, bench.small_src, bench.small_dst
        for _ in range(count):
            bench.open_queue()
            futures = [dma.copy(src, dst) for _ in range(width)]
            await dma.drain()
            del futures

    return body


BODIES: dict[str, Body] = {
    body.__name__: body
    for body in (
        nothing,
        slices,
        copies,
        futures_each,
        copies_each,
        futures_gather,
        copies_gather,
        futures_tasks,
        copies_tasks,
        poll_loop,
        copy_many,
    )
}
WIDTHS = (10, 1000, 100_000)
BODIES |= {f"waiting_{width}": waiting(width) for width in (1, *WIDTHS)}


def new_loop(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """The loop's factory."""
    if name == "uvloop":
        import uvloop

        factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
        return factory
    return asyncio.new_event_loop


def set_engine(engine: str) -> None:
    """
    Set the emulator up; a card is left alone.

    ``default`` has its progress call take small copies, ``worker`` has its threads take all. ``queue`` is the default
    with a device that takes 4 KiB at a time, ``halves`` with one that takes half of a small copy at a time.
    """
    from aiodocadma import emulator

    if engine == "worker":
        emulator.configure(engine="worker")
    elif engine != "default":
        emulator.configure(max_buf_size={"queue": LENGTH, "halves": SMALL // 2}[engine])


@contextlib.asynccontextmanager
async def opened(peers: Path) -> Any:
    """A DMA with memory, and the C program beside it."""
    async with aiodocadma.open_dma() as dma:
        src_map, dst_map = await dma.alloc(WORKING_SET + LENGTH), await dma.alloc(WORKING_SET + LENGTH)
        src_view, dst_view = memoryview(src_map), memoryview(dst_map)
        program = CProgram(peers, src_view, dst_view)
        yield Bench(dma, src_map, dst_map, src_view, dst_view, program)
        program.close()


async def _main(peers: Path, runs: list[tuple[str, list[int]]]) -> None:
    marks = load(peers)
    async with opened(peers) as bench:
        for name, counts in runs:
            body = BODIES[name]
            await body(bench, counts[0])
            for count in counts:
                gc.collect()
                gc.disable()
                marks.region_start()
                await body(bench, count)
                marks.region_stop()
                gc.enable()


def main() -> None:
    """Run the bodies named on the command line."""
    loop, engine, budget, peers, *names = sys.argv[1:]
    set_engine(engine)
    if budget == "none":
        _engine.TURN_BUDGET = 0.0  # type: ignore[misc]
    runs = [(name, [int(count) for count in counts.split("-")]) for name, counts in (n.split(":") for n in names)]
    with asyncio.Runner(loop_factory=new_loop(loop)) as runner:
        runner.run(_main(Path(peers), runs))


if __name__ == "__main__":
    main()
