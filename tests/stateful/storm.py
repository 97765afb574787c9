"""
A storm of cancels between guard pages; a program of its own, since a stray access ends it by SIGSEGV.

Every buffer has pages of its own, which no access is allowed to before the copy starts and from the very moment its
await has returned, and lies at the end or the start of them, so that one byte too far faults, too. The pages are taken
from one arena that is never unmapped: memory that was freed and is in use again would hide an access.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import heapq
import mmap
import random
import sys
from typing import Any

import uvloop

import aiodocadma
from aiodocadma import DMA, CopyFuture, emulator

PAGE = mmap.PAGESIZE
MOST = 24 * PAGE  # bytes of the largest buffer
CONCURRENT = 300
MEAN_TURNS = 2.0  # after which a cancel comes
PROT_NONE = 0
MADV_DONTNEED = 4
MAP_NORESERVE = 0x4000

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
for name in ("mprotect", "madvise"):
    getattr(libc, name).argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def called(name: str, *args: Any) -> int:
    result: int = getattr(libc, name)(*args)
    if result in (-1, 2**64 - 1):
        raise OSError(ctypes.get_errno(), name)
    return result


class Arena:
    """Address space without access, handed out in order and never twice."""

    def __init__(self, nbytes: int) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
        self.next = called("mmap", None, nbytes, PROT_NONE, flags, -1, 0)
        self.end = self.next + nbytes

    def take(self, nbytes: int, at_end: bool) -> Guarded:
        room = -(-nbytes // PAGE) * PAGE
        first = self.next + PAGE
        self.next = first + room
        assert self.next + PAGE <= self.end
        called("mprotect", first, room, mmap.PROT_READ | mmap.PROT_WRITE)
        return Guarded(first, room, nbytes, at_end)


class Guarded:
    """A buffer between guard pages."""

    def __init__(self, first: int, room: int, nbytes: int, at_end: bool) -> None:
        self._pages = first, room
        self.obj = (ctypes.c_char * nbytes).from_address(first + (room - nbytes if at_end else 0))

    def forbid(self) -> None:
        """From here on, whoever touches it dies."""
        called("mprotect", *self._pages, PROT_NONE)
        called("madvise", *self._pages, MADV_DONTNEED)


class Clock:
    """Cancels tasks and futures after a number of turns of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due: list[tuple[int, int, asyncio.Future[Any]]] = []
        self._turn = self._count = 0
        self._stopped = False
        loop.call_soon(self._tick)

    def cancel_after(self, turns: int, victim: asyncio.Future[Any]) -> None:
        self._count += 1
        heapq.heappush(self._due, (self._turn + turns, self._count, victim))

    def stop(self) -> None:
        self._stopped = True

    def _tick(self) -> None:
        self._turn += 1
        while self._due and self._due[0][0] <= self._turn:
            heapq.heappop(self._due)[2].cancel()
        if not self._stopped:
            self._loop.call_soon(self._tick)


class Storm:
    """All copies, and how they ended."""

    def __init__(self, dma: DMA, rng: random.Random, copies: int) -> None:
        self.dma = dma
        self.rng = rng
        self.arena = Arena(copies * 2 * (MOST + 3 * PAGE))
        self.clock = Clock(asyncio.get_running_loop())
        self.slots = asyncio.Semaphore(CONCURRENT)
        self.done = self.cancelled = 0

    def start(self, kind: str, src: Any, dst: Any) -> CopyFuture:
        if kind == "lists":
            cut = self.rng.randint(0, len(src))
            views = memoryview(src).cast("B"), memoryview(dst).cast("B")
            return self.dma.copy(
                [views[0][cut:], views[0][:cut]], [views[1][: len(src) - cut], views[1][-cut or None :]]
            )
        if kind == "many":
            step = max(1, len(src) // 7)
            offsets = range(0, len(src) - step + 1, step)
            return self.dma.copy_many(src, dst, src_offsets=offsets, dst_offsets=offsets, lengths=step)
        return self.dma.copy(src, dst)

    def expected(self, kind: str, data: bytes, got: bytes, cut_state: Any) -> bool:
        if kind == "lists":
            self_cut = random.Random()
            self_cut.setstate(cut_state)
            cut = self_cut.randint(0, len(data))
            return got == data[cut:] + data[:cut]
        if kind == "many":
            step = max(1, len(data) // 7)
            whole = (len(data) // step) * step
            return got[:whole] == data[:whole]
        return got == data

    async def one(self, to_cancel: bool) -> None:
        rng, dma = self.rng, self.dma
        nbytes = rng.choice([rng.randint(1, 200), rng.randint(1, PAGE), rng.randint(1, MOST)])
        kind = rng.choice(["plain", "maps", "lists", "many"])
        victim_is_task = rng.random() < 0.5
        at_end = rng.random() < 0.5
        async with self.slots:
            src, dst = self.arena.take(nbytes, at_end), self.arena.take(nbytes, at_end)
            data = rng.randbytes(nbytes)
            src.obj.raw = data
            sides: Any = (src.obj, dst.obj)
            if kind in ("maps", "many"):
                sides = await dma.register(src.obj), await dma.register(dst.obj)
            state = rng.getstate()
            future = self.start(kind, *sides)
            if to_cancel:
                task = asyncio.current_task()
                assert task is not None
                self.clock.cancel_after(int(rng.expovariate(1 / MEAN_TURNS)), task if victim_is_task else future)
            try:
                await future
                # The victim may be this task, and too late; nothing awaits here until the pages are gone.
                assert self.expected(kind, data, dst.obj.raw, state)
                self.done += 1
            except asyncio.CancelledError:
                assert to_cancel
                self.cancelled += 1
            finally:
                dst.forbid()
                src.forbid()


async def storm(copies: int, seed: int) -> None:
    rng = random.Random(seed)
    loop = asyncio.get_running_loop()
    seen: list[Any] = []
    loop.set_exception_handler(lambda _, context: seen.append(context))
    async with aiodocadma.open_dma(num_tasks=32) as dma:
        run = Storm(dma, rng, copies)
        to_cancel = [i % 2 == 0 for i in range(copies)]
        rng.shuffle(to_cancel)
        results = await asyncio.gather(*map(run.one, to_cancel), return_exceptions=True)
        run.clock.stop()
        wrong = [result for result in results if result is not None and not isinstance(result, asyncio.CancelledError)]
        assert not wrong, [str(exc) for exc in wrong[:3]]
        await dma.drain()
        statistics = dma.statistics()
        assert statistics.watchdog_hits == 0
        assert statistics.pending == 0
        del results
        gc.collect()
    assert not seen, seen[:3]
    live = emulator.live_objects()
    assert live == type(live)(*[0] * len(live)), live
    assert emulator.violations() == []
    print(f"{run.done} done, {run.cancelled} cancelled, peak {statistics.peak_in_flight}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--copies", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", default="default")
    parser.add_argument("--loop", choices=["asyncio", "uvloop"], default="asyncio")
    options = parser.parse_args()
    emulator.configure(
        engine=options.engine, strict="report", strict_client=True, edge="strict", max_buf_size=16384, inline_max=8192
    )
    factory = uvloop.new_event_loop if options.loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(storm(options.copies, options.seed))


if __name__ == "__main__":
    sys.exit(main())
