"""
A state machine of Hypothesis: a DMA against a model of plain bytes, under cancels, faults, closing and dropping.

The machine drives the loop itself. Its rules act between two turns of the loop, so that several of them fall into one
turn, and one of the rules lets turns pass. Each copy in the model has ranges of its own, so what a destination must
hold is known although copies in flight have no order: on success the source's bytes, else for each byte the old or the
new one, and from the end of the copy on no other.

All choices come from fixed strategies, never from what the engine has done so far: that depends on time, and Hypothesis
needs the same draws for the same start.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import uvloop
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

import aiodocadma
from aiodocadma import DMA, CopyFuture, DMAState, MemoryMap, _library, _registrar, emulator
from aiodocadma.exceptions import (
    BufferInUseError,
    ClosedError,
    CopyManyError,
    DocaDriverError,
    DocaError,
    DocaIoFailedError,
    EngineLostError,
    FlushedError,
    QueueFullError,
)

ENGINES = ("default", "worker", "manual")
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
DEEP_SECONDS = float(os.environ.get("AIODOCADMA_STATEFUL_SECONDS", "1200"))  # of all parameters together

LIMIT = 20.0  # seconds within which the engine must let go: a wake-up that is lost is found by this
MEMORY = 4096  # bytes of the largest memory
BAD = 64  # bytes of each broken page
MAX_BAD = 40  # broken sources per run: 64 faults in a row mean a lost engine

TASKS = ("coroutine", "timeout", "submit")

picks = st.integers(0, 2**16 - 1)
seeds = st.integers(0, 2**32 - 1)


class Memory:
    """Memory of the test's with what it must hold: a map, an object, or a map of an object."""

    def __init__(self, memory_map: MemoryMap | None, obj: Any, content: bytes) -> None:
        self.map = memory_map
        self.obj = obj
        self.model = bytearray(content)
        self.nbytes = len(content)
        self.readonly = isinstance(obj, bytes)
        self.dropped = 0  # bytes of its map, once the test has let go of that
        self.reads: list[tuple[int, int]] = []  # ranges of pending copies
        self.writes: list[tuple[int, int]] = []

    @property
    def usable(self) -> bool:
        return self.obj is not None or (self.map is not None and not self.map.closed)

    def view(self) -> memoryview:
        return memoryview(self.obj if self.obj is not None else self.map).cast("B")

    def is_free(self, start: int, end: int, *, to_write: bool) -> bool:
        taken = [*self.writes, *self.reads] if to_write else self.writes
        return all(end <= a or b <= start for a, b in taken)

    def side(self, start: int, end: int, rng: random.Random) -> Any:
        """These bytes as one side of a copy: a slice of the map, or of the plain object."""
        if self.map is not None and (self.obj is None or rng.random() < 0.7):
            return self.map if (start, end) == (0, self.nbytes) else self.map[start:end]
        return memoryview(self.obj)[start:end]


class Pair:
    """A part of a copy, with its ranges taken until the copy has ended."""

    def __init__(self, src: Memory | None, src_start: int, dst: Memory, dst_start: int, data: bytes) -> None:
        self.src = src  # None: a broken page
        self.reads = (src_start, src_start + len(data))
        self.dst = dst
        self.writes = (dst_start, dst_start + len(data))
        self.new = data
        with dst.view() as view:
            self.old = bytes(view[slice(*self.writes)])
        dst.writes.append(self.writes)
        if src is not None:
            src.reads.append(self.reads)

    def release(self) -> None:
        self.dst.writes.remove(self.writes)
        if self.src is not None:
            self.src.reads.remove(self.reads)

    def settle(self, succeeded: bool, untouched: bool) -> None:
        """The engine has let go: the destination is what it must be, and stays so."""
        if not self.dst.usable:
            return
        with self.dst.view() as view:
            now = bytes(view[slice(*self.writes)])
        if succeeded:
            assert now == self.new
        elif untouched:
            assert now == self.old
        else:
            a, old, new = (np.frombuffer(data, np.uint8) for data in (now, self.old, self.new))
            assert bool(np.all((a == old) | (a == new)))
        self.dst.model[slice(*self.writes)] = now


class Copy:
    """A copy under way: its future, or the task that awaits it."""

    def __init__(self, pairs: list[Pair], kind: str) -> None:
        self.pairs = pairs
        self.kind = kind
        self.bad: list[int] = []  # indices of pairs that read from a broken page
        self.failures: tuple[type[BaseException], ...] = ()  # what a broken page may end it with
        self.handle: asyncio.Future[Any] | None = None  # dropped: None
        self.future: CopyFuture | None = None  # of a task: once it has started the copy; dropped: None
        self.has_begun = False  # it was handed out
        self.timeout: asyncio.Timeout | None = None
        self.cancelled = False
        self.may_cancel = False
        self.expired = False
        self.may_flush = False
        self.may_be_refused = False
        self.num_plain = 0
        self.plain_bytes = 0
        self.ends: list[BaseException | int | None] = []  # None: judged
        self.settled = False

    def begins(self, future: CopyFuture) -> CopyFuture:
        """It was handed out."""
        self.future, self.has_begun = future, True
        return future

    def watch(self, handle: asyncio.Future[Any]) -> None:
        self.handle = handle
        handle.add_done_callback(self._ended)

    def _ended(self, handle: asyncio.Future[Any]) -> None:
        if self.settled:
            if not handle.cancelled():
                handle.exception()
            self.ends.append(None)
        elif handle.cancelled():
            self.ends.append(asyncio.CancelledError())
        else:
            exception = handle.exception()
            self.ends.append(handle.result() if exception is None else exception)

    def outcome(self) -> BaseException | int | None:
        """How it ended; None while it is pending."""
        if self.ends:
            return self.ends[0]
        if self.handle is None or not self.handle.done():
            return None
        if self.handle.cancelled():
            return asyncio.CancelledError()
        return self.handle.exception() or self.handle.result()

    def let_go(self) -> None:
        """It was judged; an exception holds frames, and those hold maps."""
        self.settled = True
        self.ends = [None] * len(self.ends)
        self.handle = self.future = self.timeout = None
        self.pairs = []


class Machine(RuleBasedStateMachine):
    """The rules; a subclass names the engine and the loop."""

    engine = "default"
    loop_kind = "asyncio"

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        self.loop = LOOPS[self.loop_kind]()
        self.seen: list[dict[str, Any]] = []  # by the loop's exception handler
        self.loop.set_exception_handler(lambda loop, context: self.seen.append(context))
        self.dma: DMA | None = None
        self.memories: list[Memory] = []
        self.copies: list[Copy] = []  # pending
        self.ended: list[Copy] = []
        self.broken: dict[str, bytearray] = {}
        self.num_bad = 0
        self.tasks: list[asyncio.Task[Any]] = []  # other things that must end

    # ---- the loop

    @contextlib.contextmanager
    def calls(self) -> Iterator[None]:
        """Calls as if from a callback of the loop, with no turn before or after."""
        asyncio._set_running_loop(self.loop)
        try:
            yield
        finally:
            asyncio._set_running_loop(None)

    def run(self, awaitable: Any) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(LIMIT):
                return await awaitable

        return self.loop.run_until_complete(bounded())

    def turns(self, n: int) -> None:
        async def some() -> None:
            for _ in range(n):
                await asyncio.sleep(0)

        self.loop.run_until_complete(some())

    def finish(self, awaitable: Any) -> Any:
        """Run until it is done; the manual engine is stepped meanwhile."""
        with self.calls():
            task = asyncio.ensure_future(awaitable, loop=self.loop)
        if self.engine == "manual":
            end = time.monotonic() + LIMIT
            while not task.done():
                emulator.step(1000, order="random")
                self.turns(1)
                assert time.monotonic() < end, f"{awaitable} does not end: {self.dma!r}"
        return self.run(task)

    @property
    def open(self) -> DMA:
        assert self.dma is not None
        return self.dma

    # ---- opening

    @initialize(
        flavour=st.sampled_from(["libdocaemu.so", "libdocaemu-2.6.so"]),
        max_buf_size=st.sampled_from([256, 1000, 2**21]),
        max_buf_list_len=st.sampled_from([1, 3, 32]),
        flush_status=st.sampled_from(["culprit", "IO_FAILED", "SHUTDOWN"]),
        num_tasks=st.sampled_from([1, 3, 8, 64]),
        queue_depth=st.sampled_from([0, 0, 2]),
        on_flush=st.sampled_from(["replay", "replay", "fail"]),
        max_waiting=st.sampled_from([None, None, 4]),
    )
    def start(
        self,
        flavour: str,
        max_buf_size: int,
        max_buf_list_len: int,
        flush_status: str,
        num_tasks: int,
        queue_depth: int,
        on_flush: str,
        max_waiting: int | None,
    ) -> None:
        library = str(Path(_library.emulator_path()).with_name(flavour))
        self.submit_call = "task_submit_ex" if flavour == "libdocaemu.so" else "task_submit"
        self.stack.enter_context(emulator.using(library))
        # So that the ways of large memory and of many closed maps are taken here, too.
        self.stack.enter_context(mock.patch.object(_registrar, "QUICK_PIN_BYTES", 2500))
        emulator.reset()
        emulator.configure(
            engine=self.engine,
            strict="report",
            strict_client=True,
            edge="strict",
            flush_status=flush_status,
            max_buf_size=max_buf_size,
            max_buf_list_len=max_buf_list_len,
            queue_depth=queue_depth,
            inline_max=700,
        )
        self.options: dict[str, Any] = {
            "library": library,
            "num_tasks": num_tasks,
            "on_flush": on_flush,
            "max_waiting": max_waiting,
            "cache_maps": 12,
            "cache_bytes": 6 * MEMORY,
        }
        self.on_flush = on_flush
        self.num_bufs = max_buf_list_len
        for kind in ("fatal", "alone", "driver"):
            self.broken[kind] = bytearray(BAD)
        self.break_pages()
        self.reopen()

    def break_pages(self) -> None:
        """The faults that stay: every task that reads from a broken page first fails."""
        emulator.configure("faults=none")
        for kind, page in self.broken.items():
            address = np.frombuffer(page, np.uint8).ctypes.data
            status = "DRIVER" if kind == "driver" else "IO_FAILED"
            emulator.inject(
                emulator.Fault("completion", status=status, src=address, count=0, fatal=kind != "alone"),
            )

    def reopen(self) -> None:
        self.steps_lost = 0
        self.dma = self.run(aiodocadma.open_dma(**self.options).__aenter__())
        for i in range(2):
            self.add_memory(MEMORY, "alloc", i)

    def add_memory(self, nbytes: int, kind: str, seed: int) -> None:
        content = random.Random(seed).randbytes(nbytes)
        obj: Any = None
        try:
            if kind == "alloc":
                memory_map = self.run(self.open.alloc(nbytes))
                with memoryview(memory_map) as view:
                    view[:] = content
            else:
                obj = content if kind == "bytes" else bytearray(content)
                if kind == "numpy":
                    obj = np.frombuffer(content, np.uint8).copy()
                memory_map = None if kind == "plain" else self.run(self.open.register(obj))
        except EngineLostError:
            assert self.open.state is DMAState.LOST
            return
        self.memories.append(Memory(memory_map, obj, content))

    # ---- memory

    @rule(
        nbytes=st.integers(1, MEMORY),
        kind=st.sampled_from(["alloc", "alloc", "bytearray", "numpy", "bytes", "plain"]),
        seed=seeds,
    )
    def new_memory(self, nbytes: int, kind: str, seed: int) -> None:
        if len(self.memories) < 8:
            self.add_memory(nbytes, kind, seed)

    @rule(pick=picks)
    def close_map(self, pick: int) -> None:
        memory = self.pick_memory(pick)
        if memory is None or memory.map is None:
            return
        with self.calls():
            # A view: of a copy that waits for its other side to be registered.
            if memory.map._users or memory.map._views:
                assert any(memory in (pair.src, pair.dst) for copy in self.copies for pair in copy.pairs)
                with pytest.raises(BufferInUseError):
                    memory.map.close()
                return
            memory.map.close()
        self.closed_before_start(memory)
        self.forget_map(memory)

    def closed_before_start(self, memory: Memory) -> None:
        """A task that has not begun its copy finds the map closed."""
        for copy in self.copies:
            if copy.kind in TASKS and any(memory in (pair.src, pair.dst) for pair in copy.pairs):
                copy.may_be_refused = True

    @rule(pick=picks)
    def aclose_map(self, pick: int) -> None:
        memory = self.pick_memory(pick)
        if memory is None or memory.map is None:
            return
        self.closed_before_start(memory)
        self.finish(memory.map.aclose())
        self.settle()
        self.forget_map(memory)

    @rule(pick=picks)
    def drop_map(self, pick: int) -> None:
        """The last reference of the test's goes, whatever uses the map."""
        memory = self.pick_memory(pick)
        if memory is not None and memory.map is not None:
            self.forget_map(memory)
            gc.collect()

    def forget_map(self, memory: Memory) -> None:
        memory.map = None
        memory.dropped = memory.nbytes
        if memory.obj is None:
            self.memories.remove(memory)

    @rule(pick=picks, seed=seeds)
    def write(self, pick: int, seed: int) -> None:
        """Memory that no copy uses is the caller's to write."""
        memory = self.pick_memory(pick)
        if memory is None or memory.readonly:
            return
        rng = random.Random(seed)
        start, end = sorted((rng.randint(0, memory.nbytes), rng.randint(0, memory.nbytes)))
        if memory.is_free(start, end, to_write=True):
            data = rng.randbytes(end - start)
            with memory.view() as view:
                view[start:end] = data
            memory.model[start:end] = data

    def pick_memory(self, pick: int) -> Memory | None:
        return self.memories[pick % len(self.memories)] if self.memories else None

    # ---- copies

    def take(self, rng: random.Random, src: Memory | None, dst: Memory | None, most: int) -> Pair | None:
        """Find ranges that no pending copy forbids."""
        for _ in range(6):
            source = src or rng.choice(self.memories)
            target = dst or rng.choice(self.memories)
            if target.readonly:
                continue
            length = min(rng.choice([1, 8, most]), rng.randint(1, most), source.nbytes, target.nbytes)
            s, d = rng.randint(0, source.nbytes - length), rng.randint(0, target.nbytes - length)
            overlap = source is target and s < d + length and d < s + length
            if (
                not overlap
                and source.is_free(s, s + length, to_write=False)
                and target.is_free(d, d + length, to_write=True)
            ):
                with source.view() as view:
                    data = bytes(view[s : s + length])
                return Pair(source, s, target, d, data)
        return None

    def take_broken(self, rng: random.Random, kind: str) -> Pair | None:
        """Find a place to copy a broken page to."""
        for _ in range(6):
            target = rng.choice(self.memories)
            length = min(BAD, target.nbytes)
            d = rng.randint(0, target.nbytes - length)
            if not target.readonly and target.is_free(d, d + length, to_write=True):
                return Pair(None, 0, target, d, bytes(self.broken[kind][:length]))
        return None

    def begin(self, copy: Copy, start: Callable[[], asyncio.Future[Any]], sides: list[Any]) -> None:
        """Start it, or take back its ranges if it is refused for a reason the model knows."""
        plain = [side for side in sides if not isinstance(side, aiodocadma.Buffer)]
        copy.num_plain = len(plain)
        copy.plain_bytes = sum(memoryview(side).nbytes for side in plain)
        try:
            with self.calls():
                handle = start()
        except QueueFullError:
            assert self.options["max_waiting"] is not None
        except EngineLostError:
            assert self.open.state is DMAState.LOST
        else:
            copy.watch(handle)
            if not isinstance(handle, asyncio.Task):
                copy.begins(handle)  # type: ignore[arg-type]
            self.copies.append(copy)
            # A failure that flushes others for good may hit all that are pending together with it.
            if any(self.flushes(other) for other in self.copies):
                for other in self.copies:
                    other.may_flush = True
            return
        for pair in copy.pairs:
            pair.release()

    def flushes(self, copy: Copy) -> bool:
        return DocaDriverError in copy.failures or (bool(copy.bad) and self.on_flush == "fail")

    def task_of(self, copy: Copy, kind: str, src: Any, dst: Any) -> Callable[[], asyncio.Future[Any]]:
        dma = self.open

        async def timed() -> int:
            async with asyncio.timeout(None) as copy.timeout:
                return await copy.begins(dma.copy(src, dst))

        async def submitted() -> int:
            return await copy.begins(await dma.submit(src, dst))

        coroutine = {"coroutine": lambda: dma.copy_coroutine(src, dst), "timeout": timed, "submit": submitted}[kind]
        return lambda: self.loop.create_task(coroutine())

    @rule(
        seed=seeds,
        kind=st.sampled_from(["future", "future", "coroutine", "timeout", "submit"]),
        count=st.sampled_from([1, 1, 1, 4, 12]),
    )
    def copy(self, seed: int, kind: str, count: int) -> None:
        rng = random.Random(seed)
        for _ in range(count if self.memories else 0):
            if (pair := self.take(rng, None, None, MEMORY)) is None:
                return
            assert pair.src is not None
            src, dst = pair.src.side(*pair.reads, rng), pair.dst.side(*pair.writes, rng)
            self.start_one(Copy([pair], kind), src, dst)

    @rule(
        seed=seeds,
        broken=st.sampled_from(["fatal", "fatal", "alone", "driver"]),
        kind=st.sampled_from(["future", "future", "coroutine", "timeout", "submit"]),
    )
    def copy_broken(self, seed: int, broken: str, kind: str) -> None:
        rng = random.Random(seed)
        if self.memories and self.num_bad < MAX_BAD and (pair := self.take_broken(rng, broken)) is not None:
            copy = Copy([pair], kind)
            self.mark_bad(copy, 0, broken)
            src = memoryview(self.broken[broken])[: len(pair.new)]
            self.start_one(copy, src, pair.dst.side(*pair.writes, rng))

    def mark_bad(self, copy: Copy, index: int, broken: str) -> None:
        self.num_bad += 1
        copy.bad.append(index)
        copy.failures += (DocaDriverError if broken == "driver" else DocaIoFailedError,)

    def start_one(self, copy: Copy, src: Any, dst: Any) -> None:
        dma = self.open
        start = (lambda: dma.copy(src, dst)) if copy.kind == "future" else self.task_of(copy, copy.kind, src, dst)
        self.begin(copy, start, [src, dst])

    @rule(seed=seeds, parts=st.integers(2, 6), with_bad=st.sampled_from([False, False, True]))
    def copy_lists(self, seed: int, parts: int, with_bad: bool) -> None:
        """Scatter and gather: as many parts on each side, cut alike, so that each is known by itself."""
        rng = random.Random(seed)
        with_bad = with_bad and self.num_bad < MAX_BAD
        pairs: list[Pair] = []
        if with_bad and self.memories and (pair := self.take_broken(rng, "fatal")) is not None:
            pairs.append(pair)
        pairs += self.take_pairs(rng, parts)
        if not pairs:
            return
        copy = Copy(pairs, "lists")
        if pairs[0].src is None:
            self.mark_bad(copy, 0, "fatal")
        srcs, dsts = self.sides(pairs, rng)
        for side in (srcs, dsts):
            if rng.random() < 0.3:
                side.insert(rng.randint(1, len(side)), bytearray())
        dma = self.open
        self.begin(copy, lambda: dma.copy(srcs, dsts), [*srcs, *dsts])

    def sides(self, pairs: list[Pair], rng: random.Random) -> tuple[list[Any], list[Any]]:
        page = memoryview(self.broken["fatal"])
        srcs = [pair.src.side(*pair.reads, rng) if pair.src is not None else page[: len(pair.new)] for pair in pairs]
        return srcs, [pair.dst.side(*pair.writes, rng) for pair in pairs]

    def take_pairs(self, rng: random.Random, count: int, src: Memory | None = None, dst: Memory | None = None) -> Any:
        if not self.memories:
            return []
        found = (self.take(rng, src, dst, 400) for _ in range(count))
        return [pair for pair in found if pair is not None]

    @rule(seed=seeds, count=st.integers(1, 20), num_bad=st.sampled_from([0, 0, 1, 3]))
    def copy_many_pairs(self, seed: int, count: int, num_bad: int) -> None:
        rng = random.Random(seed)
        if not self.memories or self.num_bad + num_bad > MAX_BAD:
            return
        pairs = [pair for pair in self.take_pairs(rng, count) if pair.src.map is not None]
        pairs += [pair for _ in range(num_bad) if (pair := self.take_broken(rng, "fatal")) is not None]
        refused = [pair for pair in pairs if pair.dst.map is None]
        pairs = [pair for pair in pairs if pair.dst.map is not None]
        for pair in refused:
            pair.release()
        rng.shuffle(pairs)
        if not pairs:
            return
        page: Any = None
        if any(pair.src is None for pair in pairs):
            try:
                page = self.run(self.open.register(self.broken["fatal"]))
            except EngineLostError:
                assert self.open.state is DMAState.LOST
        copy = Copy(pairs, "many")
        sides = []
        for index, pair in enumerate(pairs):
            if pair.src is None:
                if page is None:
                    break
                self.mark_bad(copy, index, "fatal")
            src = pair.src.map if pair.src is not None else page
            sides.append((src[slice(*pair.reads)], pair.dst.map[slice(*pair.writes)]))
        else:
            self.begin(copy, functools.partial(self.open.copy_many, sides), [])
            copy.num_plain, copy.plain_bytes = (1, BAD) if page is not None else (0, 0)
            return
        for pair in pairs:
            pair.release()

    @rule(seed=seeds, count=st.integers(1, 20), src=picks, dst=picks)
    def copy_many_offsets(self, seed: int, count: int, src: int, dst: int) -> None:
        rng = random.Random(seed)
        source, target = self.pick_memory(src), self.pick_memory(dst)
        if source is None or target is None or source.map is None or target.map is None or target.readonly:
            return
        pairs = self.take_pairs(rng, count, source, target)
        if pairs:
            columns = {
                "src_offsets": np.array([pair.reads[0] for pair in pairs], np.int64),
                "dst_offsets": np.array([pair.writes[0] for pair in pairs], np.int64),
                "lengths": np.array([len(pair.new) for pair in pairs], np.int64),
            }
            dma = self.open
            self.begin(Copy(pairs, "many"), lambda: dma.copy_many(source.map, target.map, **columns), [])

    @rule(pick=picks)
    def copy_nothing(self, pick: int) -> None:
        """No bytes, no engine: done at once."""
        if self.memories and self.open.state is not DMAState.LOST:
            memory = self.memories[pick % len(self.memories)]
            with self.calls():
                future = self.open.copy(b"", bytearray() if memory.map is None or memory.readonly else memory.map[:0])
            assert future.result() == 0

    # ---- cancels and deadlines

    def pick_copy(self, pick: int) -> Copy | None:
        held = [copy for copy in self.copies if copy.handle is not None]
        return held[pick % len(held)] if held else None

    @rule(pick=picks, times=st.integers(1, 3), apart=st.booleans(), last=st.booleans())
    def cancel(self, pick: int, times: int, apart: bool, last: bool) -> None:
        """Any pending copy, or the one started last: most likely in the turn of its start."""
        copy = self.pick_copy(-1 if last else pick)
        if copy is None:
            return
        assert copy.handle is not None
        for _ in range(times):
            with self.calls():
                if copy.handle.cancel():
                    copy.cancelled = True
            if apart:
                self.turns(1)

    @rule(pick=picks, num=st.integers(2, 5))
    def cancel_several(self, pick: int, num: int) -> None:
        """In one turn: they end together."""
        for i in range(num):
            self.cancel(pick + i, 1, False, False)

    @rule(pick=picks)
    def cancel_in_the_turn_of_completion(self, pick: int) -> None:
        """The task is cancelled after its future is done and before it wakes."""
        copy = self.pick_copy(pick)
        if copy is None or copy.future is None or not isinstance(copy.handle, asyncio.Task) or copy.future.done():
            return
        copy.may_cancel = True
        task = copy.handle
        with self.calls():
            copy.future.add_done_callback(lambda _: task.cancel())

    @rule(pick=picks)
    def expire(self, pick: int) -> None:
        """The deadline of a copy under asyncio.timeout() is now."""
        timed = [copy for copy in self.copies if copy.timeout is not None and not copy.expired]
        if timed:
            copy = timed[pick % len(timed)]
            assert copy.timeout is not None
            with self.calls(), contextlib.suppress(RuntimeError):  # it may just have been left
                copy.timeout.reschedule(self.loop.time() - 1)
                copy.expired = True

    @rule(pick=picks)
    def forget(self, pick: int) -> None:
        """Nobody but the client has the future or the task any more."""
        copy = self.pick_copy(pick)
        if copy is not None:
            copy.handle = copy.future = copy.timeout = None
            gc.collect()

    # ---- time passes

    @rule(n=st.integers(1, 6))
    def pass_turns(self, n: int) -> None:
        self.turns(n)

    @rule(
        n=st.sampled_from([1, 1, 2, 5, 50]), order=st.sampled_from(["fifo", "lifo", "random"]), turns=st.integers(0, 2)
    )
    def step(self, n: int, order: Any, turns: int) -> None:
        """The manual engine executes; with no turn after it, the next rule acts before the client has seen it."""
        if self.engine == "manual":
            emulator.step(n, order=order)
        self.turns(turns) if turns else None

    @rule(spurious=st.booleans())
    def readable(self, spurious: bool) -> None:
        """The pump takes what there is, and the tasks have not woken yet."""
        if spurious:
            emulator.spurious_notification()
        with self.calls():
            self.open._readable()

    @rule()
    def drain(self) -> None:
        self.finish(self.open.drain())
        assert self.open.statistics().pending == 0
        self.settle_all(but="submit")  # which waits for room before there is a copy to wait for

    # ---- faults

    @rule(
        what=st.sampled_from(["submit", "task", "buf"]),
        skip=st.integers(0, 4),
        interval=st.integers(1, 3),
        count=st.integers(1, 6),
    )
    def refuse(self, what: str, skip: int, interval: int, count: int) -> None:
        """DOCA has no room: nobody may notice."""
        self.break_pages()  # so that refusals do not add up to more than the client tries
        op, kind = {
            "submit": (self.submit_call, {"kind": "again"}),
            "task": ("dma_task_memcpy_alloc_init", {"status": "NO_MEMORY"}),
            "buf": ("buf_inventory_buf_get_by_args", {"status": "NO_MEMORY"}),
        }[what]
        emulator.inject(emulator.Fault(op, skip=skip, interval=interval, count=count, **kind))  # type: ignore[arg-type]

    @rule(rare=picks)
    def no_restart(self, rare: int) -> None:
        """The next restart or recycling of the context fails: the engine is lost."""
        if rare % 4 == 3:
            emulator.inject(emulator.Fault("ctx_start", status="DRIVER"))

    # ---- closing

    @rule(cancelled=st.integers(0, 2))
    def close_and_reopen(self, cancelled: int) -> None:
        self.close(cancelled)
        self.break_pages()
        self.reopen()

    def close(self, cancelled: int = 0) -> None:
        dma = self.open
        # What the maps hold must be looked at while they are open.
        self.settle()
        with self.calls():
            tasks = [self.loop.create_task(dma.aclose()) for _ in range(2)]
        was_cancelled = False
        for _ in range(cancelled):
            self.turns(1)
            with self.calls():
                was_cancelled = tasks[0].cancel() or was_cancelled
        self.finish(asyncio.wait(tasks, timeout=LIMIT))
        assert all(task.done() for task in tasks), dma
        assert tasks[0].cancelled() == was_cancelled
        assert tasks[0].cancelled() or tasks[0].result() is None
        assert tasks[1].result() is None
        assert dma.state is DMAState.CLOSED
        for memory in list(self.memories):
            if memory.map is not None:
                assert memory.map.closed
                with self.calls():
                    memory.map.close()
                self.forget_map(memory)
                if memory.obj is None:
                    memory.map = None
        self.settle_all(closed=True)
        self.dma = None
        gc.collect()  # exceptions hold frames, and those the memory
        for memory in self.memories:
            if isinstance(memory.obj, bytearray):
                memory.obj.append(0)  # nobody has it locked
                memory.obj.pop()
        live = emulator.live_objects()
        assert live == type(live)(*[0] * len(live)), live

    # ---- what must hold after each step

    def settle(self, closed: bool = False) -> None:
        for copy in list(self.copies):
            outcome = copy.outcome()
            if outcome is not None:
                self.copies.remove(copy)
                self.ended.append(copy)
                self.judge(copy, outcome, closed)
                copy.let_go()

    def settle_all(self, *, closed: bool = False, but: str = "") -> None:
        """The engine holds nothing: within a few turns all tasks have noticed."""
        for _ in range(20):
            self.turns(1)
            self.settle(closed)
            if all(copy.kind == but for copy in self.copies):
                return
        raise AssertionError([(copy.kind, copy.handle, copy.future) for copy in self.copies])

    def judge(self, copy: Copy, outcome: BaseException | int, closed: bool) -> None:
        """It ended as the model allows, and the bytes are what that end says."""
        # A future that submit() has not handed out yet may have been with the engine.
        started = copy.kind != "timeout" or copy.has_begun
        failed = set(range(len(copy.pairs)))
        if isinstance(outcome, int):
            assert not copy.bad, "a broken page was read"
            assert not copy.cancelled
            assert outcome == sum(len(pair.new) for pair in copy.pairs)
            failed = set()
        elif isinstance(outcome, asyncio.CancelledError):
            assert copy.cancelled or copy.may_cancel
        elif isinstance(outcome, TimeoutError):
            assert copy.expired
            assert not copy.cancelled
        elif isinstance(outcome, CopyManyError):
            assert not copy.cancelled
            failed = set(outcome.indices)
            errors = dict(zip(outcome.indices, outcome.exceptions, strict=True))
            wrong = {i: e for i, e in errors.items() if not self.may_fail_with(copy, e, closed)}
            assert not wrong
            if not copy.may_flush and not closed and self.open.state is not DMAState.LOST:
                assert failed == set(copy.bad)
        else:
            assert not copy.cancelled
            assert self.may_fail_with(copy, outcome, closed), repr(outcome)
            started = started and not (copy.kind == "submit" and isinstance(outcome, QueueFullError))
        for index, pair in enumerate(copy.pairs):
            pair.settle(succeeded=index not in failed, untouched=not started)
            pair.release()

    def may_fail_with(self, copy: Copy, exception: BaseException, closed: bool) -> bool:
        if isinstance(exception, FlushedError):
            return copy.may_flush
        if isinstance(exception, ClosedError):
            return closed or (copy.may_be_refused and not copy.has_begun)
        if isinstance(exception, EngineLostError):
            return closed or self.open.state is DMAState.LOST
        if isinstance(exception, QueueFullError):
            return self.options["max_waiting"] is not None and copy.kind in ("timeout", "coroutine")
        return isinstance(exception, DocaError) and type(exception) in copy.failures

    @invariant()
    def all_is_well(self) -> None:
        if self.dma is None:
            return
        self.settle()
        assert not self.seen, self.seen
        for copy in (*self.copies, *self.ended):
            assert len(copy.ends) <= 1
        users: dict[int, int] = {}
        for copy in self.copies:
            for pair in copy.pairs:
                for memory in (pair.src, pair.dst):
                    users[id(memory)] = users.get(id(memory), 0) + 1
        for memory in self.memories:
            with memory.view() as view:
                now = bytearray(view)
            for a, b in memory.writes:
                now[a:b] = memory.model[a:b]
            assert now == memory.model
            if memory.map is not None:
                assert not memory.map.closed
                assert memory.map._users <= users.get(id(memory), 0)
        self.check_pins()
        self.check_live()
        if self.open.state is DMAState.LOST:
            self.steps_lost += 1
            if self.steps_lost > 4:
                self.close_and_reopen(0)

    def check_live(self) -> None:
        """DOCA has no more than the window allows and the client keeps for the next copies; without a copy, nothing."""
        live = emulator.live_objects()
        counted = self.open.statistics()
        assert live.devs == live.pes == 1
        assert live.ctxs <= 1  # none while it is made anew, or when that has failed
        assert live.inventories == 1
        assert live.in_flight == counted.in_flight <= self.options["num_tasks"]
        assert live.tasks <= self.options["num_tasks"]
        assert live.bufs <= 2 * self.num_bufs * self.options["num_tasks"]
        if counted.pending == 0:
            assert live.in_flight == 0

    def check_pins(self) -> None:
        """Nothing is registered twice: what is, is an open map, memory of a pending copy, or a closed map."""
        if not self.pins_are_right():
            gc.collect()  # an exception may be the last to hold a map
            self.turns(2)
            self.settle()
            assert self.pins_are_right(), (emulator.live_objects(), self.open._native.status(), self.memories)

    def pins_are_right(self) -> bool:
        status = self.open._native.status()
        live = emulator.live_objects()
        mapped = sum(memory.nbytes for memory in self.memories if memory.map is not None)
        # A copy holds its plain sides, and the maps that the test has dropped, each once.
        held = sum(copy.plain_bytes for copy in self.copies)
        sides = {id(memory): memory for copy in self.copies for pair in copy.pairs for memory in (pair.src, pair.dst)}
        dropped = sum(memory.dropped for memory in sides.values() if memory is not None)
        cached = self.open.statistics().cached_bytes
        return live.pinned_bytes <= mapped + status.buried_bytes + cached + held + dropped

    def teardown(self) -> None:
        try:
            if sys.exc_info()[1] is not None:
                return
            if self.dma is not None:
                if self.open.state is not DMAState.LOST:
                    self.drain()
                assert self.open.statistics().watchdog_hits == 0
                self.close()
            for copy in self.ended:
                assert len(copy.ends) == 1
            self.copies = self.ended = self.memories = []
            gc.collect()
            assert not self.seen, self.seen
            assert emulator.violations() == []
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Leave nothing behind, whatever has failed: the next run begins with a clean emulator."""
        if self.dma is not None:
            emulator.configure("faults=none")
            with contextlib.suppress(BaseException):
                self.finish(self.dma.aclose())
        self.dma = None
        self.copies = self.ended = self.memories = []
        self.tasks = []
        self.loop.close()
        gc.collect()
        with contextlib.suppress(RuntimeError):
            emulator.reset()
        self.stack.close()


def machine(engine: str, loop: str) -> type[Machine]:
    return type("Machine", (Machine,), {"engine": engine, "loop_kind": loop})


QUICK = settings(
    max_examples=20,
    stateful_step_count=40,
    deadline=None,
    database=None,
    derandomize=True,  # a commit's checks say the same twice; the deep run looks for what is new
    phases=[Phase.generate],  # what depends on time cannot be shrunk
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("engine", ENGINES)
def test_machine(engine: str, loop: str) -> None:
    # It collects garbage hundreds of times, and what thousands of tests have left behind is in it.
    gc.collect()
    gc.freeze()
    try:
        run_state_machine_as_test(machine(engine, loop), settings=QUICK)
    finally:
        gc.unfreeze()


@pytest.mark.deep
@pytest.mark.timeout(DEEP_SECONDS + 900)
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("engine", ENGINES)
def test_machine_deep(engine: str, loop: str) -> None:
    """``AIODOCADMA_STATEFUL_SECONDS``, 20 minutes unless told, shared by engines and loops."""
    deep = settings(QUICK, max_examples=100, stateful_step_count=80, derandomize=False, print_blob=True)
    end = time.monotonic() + DEEP_SECONDS / (len(LOOPS) * len(ENGINES))
    while time.monotonic() < end:
        run_state_machine_as_test(machine(engine, loop), settings=deep)
