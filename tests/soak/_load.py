"""What one loop does during an epoch."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Awaitable
from typing import Any

import numpy as np

import aiodocadma
from aiodocadma import DMA, CopyFuture, DMAState, emulator
from aiodocadma.exceptions import AiodocadmaError
from aiodocadma.testing import Fault

from . import _peers
from ._model import SLOT, Arena, Range, WrongDataError, balance

CLIENTS = 12  # tasks that copy, beside each other
KINDS = {  # and what the report calls them
    "slices": "copies of slices tried",
    "lists": "copies of lists tried",
    "many": "batches tried",
    "plain": "copies of plain objects tried",
    "large": "copies of large plain objects tried",
    "submit": "submits tried",
    "cancelled": "cancels tried",
    "timed": "copies with a deadline tried",
    "dropped": "copies started and dropped",
    "memory": "sets of maps made and closed",
}


class Load:
    """
    The work of one loop.

    Args:
        rng: All that is by chance comes from it.
        tally: Counts what was done.
        end: By the loop's clock.
    """

    def __init__(self, rng: random.Random, tally: Counter[str], end: float) -> None:
        self.rng = rng
        self.tally = tally
        self.end = end
        self._loop = asyncio.get_running_loop()
        self._problems: list[BaseException] = []

    def _over(self) -> bool:
        return self._loop.time() >= self.end or bool(self._problems)

    async def run(self) -> None:
        """Work until the end; raises what must not be."""
        self._loop.set_exception_handler(self._on_error)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._lives())
            group.create_task(self._faults())
            group.create_task(self._peers())
        if self._problems:
            raise self._problems[0]

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # A copy that was dropped and failed is reported here, and only that.
        if "never retrieved" not in context["message"]:
            self._problems.append(context.get("exception") or WrongDataError(context["message"]))

    # ---- DMAs, one after another

    async def _lives(self) -> None:
        while not self._over():
            try:
                await self._life()
            except AiodocadmaError:
                self.tally["opens or closes that failed"] += 1

    async def _life(self) -> None:
        """Open a DMA, and close it in the middle of its work."""
        options: dict[str, Any] = {
            "num_tasks": self.rng.choice([4, 32, None]),
            "max_waiting": self.rng.choice([None, None, 16]),
            "on_flush": self.rng.choice(["replay", "replay", "fail"]),
            "measure_latency": self.rng.random() < 0.3,
        }
        async with aiodocadma.open_dma(**options) as dma:
            self.tally["opens"] += 1
            arena = Arena(self.rng, self.tally)
            await arena.register(dma)
            ends = min(self.end, self._loop.time() + self.rng.uniform(0.1, 1.5))
            clients = [asyncio.ensure_future(self._client(dma, arena)) for _ in range(CLIENTS)]
            while self._loop.time() < ends and dma.state is not DMAState.LOST:
                await asyncio.sleep(0.02)
            if dma.state is DMAState.LOST:
                self.tally["engines lost"] += 1
            await dma.aclose()
            _, running = await asyncio.wait(clients, timeout=30)
            if running:
                raise WrongDataError(f"{len(running)} tasks still wait for copies of a DMA that was closed")
            for client in clients:
                client.result()
            await asyncio.sleep(0)  # the callbacks of copies that were dropped
            arena.check()
            balance(dma, self.tally)
            arena.memory.close()

    async def _client(self, dma: DMA, arena: Arena) -> None:
        while dma.state not in (DMAState.CLOSED, DMAState.LOST) and not self._problems:
            kind = self.rng.choice(list(KINDS))
            self.tally[KINDS[kind]] += 1
            try:
                await (self._memory(dma) if kind == "memory" else self._copy(kind, dma, arena))
            except AiodocadmaError as error:
                self.tally[f"{type(error).__name__} raised"] += 1
            await asyncio.sleep(0)

    # ---- copies

    def _part(self, slot: int, length: int) -> Range:
        return Range(slot, self.rng.randint(0, SLOT - length), length)

    async def _copy(self, kind: str, dma: DMA, arena: Arena) -> None:
        if kind in ("plain", "large"):
            await self._plain(dma, self.rng.randint(1, 1 << 20 if kind == "large" else 8192))
            return
        n = self.rng.randint(2, 4) if kind in ("lists", "many") else 1
        slots = arena.borrow(2 * n)
        if slots is None:
            return
        lengths = [self.rng.choice([self.rng.randint(1, 300), self.rng.randint(1, SLOT)]) for _ in range(n)]
        if kind == "many":
            lengths = [lengths[0]] * n
        sources = [self._part(slot, length) for slot, length in zip(slots[:n], lengths, strict=True)]
        # On the other side a list is cut elsewhere: its parts are in the opposite order.
        targets = [self._part(slot, length) for slot, length in zip(slots[n:], reversed(lengths), strict=True)]
        new = b"".join(map(arena.expected, sources))
        try:
            future = await self._start(kind, dma, arena, sources, targets)
        except BaseException:
            arena.give_back(slots)
            raise

        def ended(future: CopyFuture) -> None:
            """The engine has let go."""
            try:
                succeeded = not future.cancelled() and future.exception() is None
                arena.settle(targets, new, succeeded)
            except BaseException as exc:
                self._problems.append(exc)
            arena.give_back(slots)

        if kind == "dropped":
            future.add_done_callback(ended)
            return
        try:
            await self._await(kind, future)
        finally:
            ended(future)

    async def _start(self, kind: str, dma: DMA, arena: Arena, sources: list[Range], targets: list[Range]) -> CopyFuture:
        froms, tos = [arena.buffer(part) for part in sources], [arena.buffer(part) for part in targets]
        match kind:
            case "lists":
                return dma.copy(froms, tos)
            case "many":
                starts = [[part.slot * SLOT + part.start for part in side] for side in (sources, targets)]
                if self.rng.random() < 0.5:
                    return dma.copy_many(list(zip(froms, tos, strict=True)))
                src, dst = (np.array(side, np.int64) for side in starts)
                lengths = sources[0].length
                return dma.copy_many(arena.memory, arena.memory, src_offsets=src, dst_offsets=dst, lengths=lengths)
            case "submit":
                return await dma.submit(froms[0], tos[0])
        return dma.copy(froms[0], tos[0])

    async def _await(self, kind: str, future: CopyFuture) -> None:
        match kind:
            case "cancelled":
                task = asyncio.ensure_future(_result(future))
                for _ in range(self.rng.randint(0, 3)):
                    await asyncio.sleep(0)
                (task if self.rng.random() < 0.5 else future).cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
                with contextlib.suppress(asyncio.CancelledError):
                    await future  # a task that was cancelled before its first step has left it alone
            case "timed":
                try:
                    async with asyncio.timeout(self.rng.choice([0, 0.0001, 0.002])):
                        await future
                except TimeoutError:
                    self.tally["deadlines that passed"] += 1
            case _:
                await future

    async def _plain(self, dma: DMA, nbytes: int) -> None:
        """Memory that is registered for this copy, or was for one before."""
        src = self.rng.randbytes(nbytes)
        dst = bytearray(nbytes)
        if await dma.copy(src, dst) != nbytes or dst != src:
            raise WrongDataError(f"a plain copy of {nbytes} bytes")
        self.tally["bytes checked"] += nbytes

    async def _memory(self, dma: DMA) -> None:
        """Maps come and go."""
        nbytes = self.rng.randint(1, 600_000)
        source, target = self.rng.randbytes(nbytes), bytearray(nbytes)
        async with await dma.register(source) as a, await dma.alloc(nbytes) as b, await dma.register(target) as c:
            await dma.copy(a, b)
            await dma.copy(b, c)
        if target != source:
            raise WrongDataError(f"copies of maps of {nbytes} bytes")
        self.tally["bytes checked"] += 2 * nbytes

    # ---- what goes wrong beside them

    async def _faults(self) -> None:
        while not self._over():
            await asyncio.sleep(self.rng.uniform(0.02, 0.2))
            skip = self.rng.randint(0, 40)
            fault = self.rng.choice(
                [
                    Fault("completion", status="IO_FAILED", skip=skip),
                    Fault("completion", status="IO_FAILED", skip=skip, count=self.rng.randint(1, 4)),
                    Fault("completion", status="INVALID_VALUE", skip=skip, fatal=False),
                    Fault("completion", status="DRIVER", skip=skip),
                    Fault("task_submit_ex", kind="again", skip=skip, count=5),
                    Fault("buf_inventory_buf_get_by_args", status="NO_MEMORY", skip=skip, count=3),
                    Fault("dma_task_memcpy_alloc_init", status="NO_MEMORY", count=2),
                    Fault("mmap_start", status="DRIVER", skip=self.rng.randint(0, 5)),
                    Fault("pe_clear_notification", status="OPERATING_SYSTEM", count=2),
                    Fault("notification", kind="spurious", count=2),
                    Fault("dma_create", status="DRIVER"),
                    None,
                ]
            )
            if fault is None:
                emulator.spurious_notification()
                self.tally["spurious notifications"] += 1
            else:
                emulator.inject(fault)
                self.tally["faults injected"] += 1

    async def _peers(self) -> None:
        while self._loop.time() + 1.0 < self.end and not self._problems:
            kill = self.rng.choice([_peers.exporter_killed, _peers.importer_killed])
            try:
                await kill(self.rng, self.tally)
            except AiodocadmaError as error:  # of a fault that met it
                self.tally[f"with a peer: {type(error).__name__}"] += 1


async def _result(future: Awaitable[Any]) -> Any:
    return await future
