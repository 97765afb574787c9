"""
What a program does with its copies, watched through the public API of one DMA and the control API of the emulator.

Theory of operation. Watching puts functions in front of the methods of one DMA object. ``copy()`` notes where it was
called, the future, and the memory of both sides with a checksum of the source.

    the next copy takes the same memory     while the future is not done, a source that changed, and memory that two
                                            copies use at once, are known for certain and in the program's own line
    the engine has the copy                 the emulator sums both sides (``checksum=1``); the address in what it
                                            reports leads back to the copy
    the copy waits for the engine           when it has ended, its destination holds another source than it began with

A source that merely differs when the copy has ended is no evidence: the program may have seen the end before we did.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import mmap
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, Final, NamedTuple

import cffi

from aiodocadma import DMA, CopyFuture, MemoryMap, emulator
from aiodocadma._counted import counted
from aiodocadma.testing import _stacks
from aiodocadma.testing._stacks import Stack

__all__ = ["Watch"]

RED: Final = 0xFD
POISON: Final = 0xDB
RED_ZONE_BYTES: Final = mmap.PAGESIZE
_BUCKET_SHIFT: Final = 20
_FORGET: Final = 1000  # as many are kept before those that are over are looked for
_COROUTINES: Final = ("copy_coroutine", "submit", "drain")
_TOUCHED: Final = re.compile(
    r"the (source|destination) (?:changed|was written by another) in flight: \d+ bytes at (\w+)"
)

_ffi = cffi.FFI()


class Side(NamedTuple):
    """A range of memory that a copy reads or writes."""

    obj: Any
    writes: bool
    address: int
    nbytes: int
    checksum: int  # of a source

    def touches(self, other: Side) -> bool:
        """
        Whether two ranges overlap.

        Args:
            other: Of another copy.

        Returns:
            True if they have a byte in common.

        Source: aiodocadma.
        """
        return self.address < other.address + other.nbytes and other.address < self.address + self.nbytes

    def buckets(self) -> range:
        """
        Where to look for it.

        Returns:
            The numbers of the mebibytes it lies in.

        Source: aiodocadma.
        """
        return range(self.address >> _BUCKET_SHIFT, (self.address + self.nbytes - 1 >> _BUCKET_SHIFT) + 1)


@dataclasses.dataclass(eq=False, slots=True)
class Copy:
    """A copy that was started, until its memory is free and its outcome was asked for."""

    call: str
    future: CopyFuture
    nbytes: int
    start: Stack
    sides: list[Side]
    waited: bool  # for the engine, perhaps
    told: bool  # what is wrong with it

    def __str__(self) -> str:
        return f"{self.call}() of {counted(self.nbytes, 'byte')}"


class Call(NamedTuple):
    """A coroutine that was made, until it was begun."""

    name: str
    coroutine: Coroutine[Any, Any, Any]
    start: Stack


class Watch:
    """
    Watches one DMA from now until ``problems()``.

    Args:
        dma: The DMA; its methods are replaced on this one object.
        sanitize: Whether ``alloc()`` puts red zones around the memory, and destinations are poisoned.

    Source: aiodocadma.
    """

    def __init__(self, dma: DMA, *, sanitize: bool = False) -> None:
        self._dma = dma
        self._sanitize = sanitize
        self._emulated = dma.emulated
        self._seen_violations = emulator.counters().violations if self._emulated else 0
        self._copies: dict[int, Copy] = {}
        self._copies_limit = _FORGET
        self._calls: list[Call] = []
        self._calls_limit = _FORGET
        self._buckets: defaultdict[int, dict[int, Copy]] = defaultdict(dict)
        self._zones: list[tuple[mmap.mmap, int, Stack]] = []
        self._maps: dict[int, Stack] = {}
        self._found: dict[str, None] = {}
        self._inside = False  # the client's own call of copy()
        self._replaced: dict[str, Any] = {}
        for name in ("copy", "copy_many", "alloc", "register", *_COROUTINES):
            self._replaced[name] = getattr(dma, name)
        for name in _COROUTINES:
            setattr(dma, name, self._counted(name))
        for function in (self.copy, self.copy_many, self.alloc, self.register):
            setattr(dma, function.__name__, function)

    def unwatch(self) -> None:
        """
        Give the DMA its own methods back.

        Source: aiodocadma.
        """
        for name in self._replaced:
            delattr(self._dma, name)

    # ---- in front of the DMA's methods

    def copy(self, src: Any, dst: Any, *, tag: object = None) -> CopyFuture:
        """See ``DMA.copy()``."""
        real: Callable[..., CopyFuture] = self._replaced["copy"]
        if self._inside:
            return real(src, dst, tag=tag)
        start = _stacks.here()
        sides = list(_sides(src, dst))
        told = self._check_reuse(sides, start)
        destinations = [side for side in sides if side.writes]
        before = [bytes(_view(side)) for side in destinations] if self._sanitize else []
        for side in destinations[: len(before)]:
            _fill(side, POISON)
        self._inside = True
        try:
            future = real(src, dst, tag=tag)
        except BaseException:
            for side, content in zip(destinations, before, strict=False):
                _view(side)[:] = content  # nothing was started
            raise
        finally:
            self._inside = False
        return self._started("copy", future, sides, start, told=told)

    def copy_many(self, src: Any, dst: Any = None, **options: Any) -> CopyFuture:
        """See ``DMA.copy_many()``."""
        start = _stacks.here()
        pairs = src if dst is not None else list(src)
        sides = list(_sides(src, dst)) if dst is not None else [s for a, b in pairs for s in _sides(a, b)]
        future: CopyFuture = self._replaced["copy_many"](pairs, dst, **options)
        return self._started("copy_many", future, [side._replace(checksum=-1) for side in sides], start)

    async def alloc(self, nbytes: int, **options: Any) -> MemoryMap:
        """See ``DMA.alloc()``."""
        start = _stacks.here()
        if not self._sanitize or options or nbytes < 1:
            made: MemoryMap = await self._replaced["alloc"](nbytes, **options)
        else:
            region = mmap.mmap(-1, 2 * RED_ZONE_BYTES + nbytes)
            region[:RED_ZONE_BYTES] = region[RED_ZONE_BYTES + nbytes :] = bytes([RED]) * RED_ZONE_BYTES
            self._zones.append((region, nbytes, start))
            made = await self._replaced["register"](memoryview(region)[RED_ZONE_BYTES : RED_ZONE_BYTES + nbytes])
        self._maps[id(made)] = start
        return made

    async def register(self, obj: Any, **options: Any) -> MemoryMap:
        """See ``DMA.register()``."""
        start = _stacks.here()
        made: MemoryMap = await self._replaced["register"](obj, **options)
        self._maps[id(made)] = start
        return made

    def _counted(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        def call(*args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
            coroutine: Coroutine[Any, Any, Any] = self._replaced[name](*args, **kwargs)
            if len(self._calls) >= self._calls_limit:
                self._calls = [one for one in self._calls if _is_new(one.coroutine)]
                self._calls_limit = _FORGET + 2 * len(self._calls)
            self._calls.append(Call(name, coroutine, _stacks.here()))
            return coroutine

        return call

    # ---- the life of a copy

    def _started(
        self, call: str, future: CopyFuture, sides: list[Side], start: Stack, *, told: bool = False
    ) -> CopyFuture:
        pending = not future.done()
        nbytes = sum(side.nbytes for side in sides if side.writes)
        waited = pending and self._dma.statistics().waiting > 0
        copy = Copy(call, future, nbytes, start, sides if pending else [], waited, told)
        self._copies[id(copy)] = copy
        if pending:
            for side in sides:
                for bucket in side.buckets():
                    self._buckets[bucket][id(copy)] = copy
            future.add_done_callback(lambda _: self._ended(copy))
        if len(self._copies) >= self._copies_limit:
            self._copies = {key: one for key, one in self._copies.items() if one.sides or not one.future.retrieved}
            self._copies_limit = _FORGET + 2 * len(self._copies)
        return future

    def _ended(self, copy: Copy) -> None:
        """The copy's future is done, and its task will be told after this."""
        self._collect_violations()
        if copy.waited and self._was_changed_while_waiting(copy):
            self._report_written(copy, "source", None)
        for side in copy.sides:
            for bucket in side.buckets():
                self._buckets[bucket].pop(id(copy), None)
        copy.sides = []

    # ---- memory in flight

    def _check_reuse(self, sides: Iterable[Side], now: Stack) -> bool:
        """Compare a copy that is being started with those that are not done; whether it uses memory of theirs."""
        reuses = False
        for side in sides:
            others = {id(copy): copy for bucket in side.buckets() for copy in self._buckets[bucket].values()}
            for copy in others.values():
                if copy.future.done():
                    continue
                for theirs in copy.sides:
                    if not side.touches(theirs):
                        continue
                    if side.writes or theirs.writes:
                        self._report_reuse(copy, theirs, side, now)
                        reuses = copy.told = True
                    elif theirs.checksum >= 0 and _checksum(theirs) != theirs.checksum:
                        self._report_written(copy, "source", now)
        return reuses

    def _was_changed_while_waiting(self, copy: Copy) -> bool:
        if len(copy.sides) != 2 or copy.future.cancelled() or copy.future._log_traceback:
            return False
        src, dst = copy.sides
        if src.checksum < 0:
            return False
        now = _checksum(src)
        return now not in (src.checksum, -1) and _checksum(dst) == now

    def _collect_violations(self) -> None:
        """Bring what the emulator saw back to the copies it concerns."""
        if not self._emulated or (count := emulator.counters().violations) == self._seen_violations:
            return
        lines = emulator.violations()[self._seen_violations - count :]
        self._seen_violations = count
        for match in filter(None, map(_TOUCHED.search, lines)):
            side, address = match[1], int(match[2], 16)
            for copy in list(self._buckets[address >> _BUCKET_SHIFT].values()):
                ranges = (s for s in copy.sides if s.writes == (side == "destination"))
                if any(s.address <= address < s.address + s.nbytes for s in ranges):
                    self._report_written(copy, side, None)
                    break  # another copy of the same memory is not the one

    def _report_reuse(self, copy: Copy, theirs: Side, ours: Side, now: Stack) -> None:
        does, has = ("writes" if side.writes else "reads" for side in (ours, theirs))
        self._found[
            f"buffer reused in flight: a copy {does} memory that a {copy} in flight {has}; await the one before the "
            f"other. The first was started at\n{copy.start}\n  and the second at\n{now}"
        ] = None

    def _report_written(self, copy: Copy, side: str, now: Stack | None) -> None:
        text = (
            f"memory written in flight: the program changed the {side} of a {copy} before it had ended. "
            f"It was started at\n{copy.start}\n"
        )
        if copy.told:
            return
        copy.told = True
        if now is not None:
            text += f"  and the change was there at\n{now}"
        else:
            places = [_stacks.waiting(task) for task in asyncio.all_tasks()]
            shown = "\n  or\n".join(dict.fromkeys(str(place) for place in places if place.lines))
            text += f"  and when it ended the program was at\n{shown or Stack(())}"
        self._found[text] = None

    # ---- the end

    def misuse(self) -> list[str]:
        """
        What was done to memory that was not the program's at that moment.

        Returns:
            One text each, whatever became of the test.

        Source: aiodocadma.
        """
        self._collect_violations()
        for region, nbytes, start in self._zones:
            red = bytes([RED]) * RED_ZONE_BYTES
            for name, zone in (("before", region[:RED_ZONE_BYTES]), ("behind", region[RED_ZONE_BYTES + nbytes :])):
                if zone != red:
                    at = next(i for i, byte in enumerate(zone) if byte != RED)
                    where = at if name == "behind" else RED_ZONE_BYTES - at
                    map_ = f"a map of {counted(nbytes, 'byte')}, allocated at\n{start}"
                    self._found[f"red zone overwritten: {counted(where, 'byte')} {name} {map_}"] = None
        return list(self._found)

    def neglect(self) -> Iterator[str]:
        """
        What the program did not care for: copies not awaited, errors not looked at, maps not closed.

        Yields:
            One text each.

        Source: aiodocadma.
        """
        copies, self._copies = self._copies, {}  # the error of one that failed holds the program's variables
        of_tasks = {id(task.get_coro()) for task in asyncio.all_tasks()}
        for call in self._calls:
            if _is_new(call.coroutine) and id(call.coroutine) not in of_tasks:
                call.coroutine.close()
                yield f"lost await: {call.name}() was called and never awaited, at\n{call.start}"
        for copy in copies.values():
            future = copy.future
            if not future.done():
                yield f"lost await: a {copy} is still pending; it was started at\n{copy.start}"
            elif future.cancelled() or future.retrieved:
                continue
            elif future._log_traceback:
                error = future.exception()
                yield f"error ignored: a {copy} failed, and nobody looked: {error}\n  it was started at\n{copy.start}"
            else:
                yield f"lost await: a {copy} was never awaited; it was started at\n{copy.start}"

    def made_at(self, map_id: int) -> str:
        """
        Where a map was made.

        Args:
            map_id: Its ``id()``.

        Returns:
            Text to go behind what is wrong with it; empty if it is not known.

        Source: aiodocadma.
        """
        start = self._maps.get(map_id)
        return f"; it was made at\n{start}" if start is not None else ""


def _is_new(coroutine: Coroutine[Any, Any, Any]) -> bool:
    return inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED


def _view(side: Side) -> memoryview:
    return memoryview(side.obj).cast("B")[: side.nbytes]


def _fill(side: Side, value: int) -> None:
    _view(side)[:] = bytes([value]) * side.nbytes


def _checksum(side: Side) -> int:
    """Of what the memory holds now; -1 if it cannot be seen any more."""
    try:
        with memoryview(side.obj) as whole, whole.cast("B") as flat, flat[: side.nbytes] as part:
            return zlib.crc32(part)
    except (TypeError, ValueError, BufferError):
        return -1


def _sides(src: Any, dst: Any) -> Iterator[Side]:
    """The memory of a copy, as far as it can be seen; what is wrong with an argument the copy itself will say."""
    left = 0
    for side in _ranges(src, False):
        left += side.nbytes
        yield side._replace(checksum=_checksum(side))
    for side in _ranges(dst, True):
        if left > 0:
            yield side._replace(nbytes=min(left, side.nbytes))
        left -= side.nbytes


def _ranges(objects: Any, writes: bool) -> Iterator[Side]:
    for obj in objects if isinstance(objects, list | tuple) else [objects]:
        try:
            with memoryview(obj) as whole, whole.cast("B") as flat:
                if flat.nbytes and not (writes and flat.readonly):
                    held = _ffi.from_buffer(flat)
                    address = int(_ffi.cast("uintptr_t", held))
                    _ffi.release(held)
                    yield Side(obj, writes, address, flat.nbytes, -1)
        except (TypeError, ValueError, BufferError):
            continue
