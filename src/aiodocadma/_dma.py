"""
The asyncio driver: what a user calls, and what C asks.

Theory of operation. A ``DMA`` is a ``Channel`` (C, see ``native/shim/channel.h``) tied to one loop. ``copy()`` is C: it
starts a copy and, where the engine cannot finish it at once, schedules one turn of the pump per turn of the loop. The
turn gives DOCA more work, collects what ended, and arms the notification fd; the loop's reader of that fd, registered
once, leads to the next turn. What is not hot is Python: the answers to the questions that C asks (the ``_on_...``,
``_refuse`` and ``_failure`` methods), and the parts that a DMA is made of: ``Registrar`` and ``PlainCopies`` register
memory, ``Failures`` makes exceptions, ``Life`` restarts, loses and closes.

Threads. Everything runs in the loop's thread except the calls of ``Engine``, which may block and run in short-lived
worker threads: registration beside the running pump; recycling and closing while the channel is parked.
"""

from __future__ import annotations

import asyncio
import enum
import functools
import itertools
import logging
import threading
import traceback
import warnings
import weakref
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, Self, cast, overload

from aiodocadma import _native
from aiodocadma._access import Access, Destination, ReadOnly, Source
from aiodocadma._admission import Admission, wake
from aiodocadma._cache import RegistrationCache
from aiodocadma._engine import Engine
from aiodocadma._events import Event, Events, Recorder, code_name
from aiodocadma._failures import Failures
from aiodocadma._flight import FlightDumps
from aiodocadma._held import HeldCopies
from aiodocadma._life import Life
from aiodocadma._many import Offsets, offset_columns
from aiodocadma._memlock import MemlockBatch
from aiodocadma._memory import Buffer, MemoryMap
from aiodocadma._native import Channel, CopyFuture
from aiodocadma._pending import PendingCopy, pending_copies
from aiodocadma._plain_copies import PlainCopies
from aiodocadma._reader import Reader
from aiodocadma._registrar import Registrar
from aiodocadma._registrations import Registrations
from aiodocadma._sides import refusal
from aiodocadma._statistics import Latency, Statistics
from aiodocadma._watchdog import Watchdog
from aiodocadma.exceptions import (
    ClosedError,
    DrainTimeoutError,
    ForkedError,
    QueueFullError,
    WrongLoopError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path
    from types import TracebackType

    from aiodocadma._blocks import Blocks
    from aiodocadma._devices import Capabilities, DeviceInfo
    from aiodocadma._export import ExportDescriptor

__all__ = ["DMA", "DMAState", "open_dmas"]

logger = logging.getLogger("aiodocadma")

LOG_INTERVAL: Final = 60.0  # seconds between two log lines of the same kind

_numbers = itertools.count()
_open: weakref.WeakValueDictionary[int, DMA] = weakref.WeakValueDictionary()  # by number


def open_dmas() -> list[DMA]:
    """The open DMAs of this process, of all its loops, oldest first; from any thread."""
    # valuerefs(): the others iterate in Python, and fail when another thread opens one meanwhile.
    found = [dma for ref in _open.valuerefs() if (dma := ref()) is not None and not dma._forked]
    return sorted(found, key=lambda dma: dma._number)


class DMAState(enum.Enum):
    """
    What a DMA is doing, for health checks.

    Attributes:
        RUNNING: Copies are taken and handed to the engine.
        RESTARTING: A fresh context is being made; copies are taken, and wait.
        LOST: There is no working context any more: everything raises ``EngineLostError``.
        CLOSED: Closed, or closing.

    Source: aiodocadma; the context's own states are in ``doca_ctx_get_state``.
    """

    RUNNING = "running"
    RESTARTING = "restarting"
    LOST = "lost"
    CLOSED = "closed"


class DMA(Channel):
    """
    An open DMA engine: one progress engine, one context, their tasks, bound to the running loop.

    ``open_dma()`` makes it::

        async with aiodocadma.open_dma() as dma:
            src = await dma.register(b"payload" * 1000)  # the caller's memory; read-only because bytes is
            dst = await dma.alloc(7000)  # memory the library owns
            assert await dma.copy(src, dst) == 7000

    A copy
        ``copy()`` is a plain function: when it returns, the copy has started, and the future that it gives is to be
        awaited. A side is a map, a part of one (``map[a:b]``), any buffer (registered for the copy), or a list of
        these. When the await returns or raises, be it for a deadline or a cancellation, the engine no longer touches
        either side. Until then the source must not change. Copies under way together have no order among them.

    Many copies
        Start as many as you like: those that find no room wait here, in order. ``asyncio.gather()`` awaits them;
        ``copy_coroutine()`` is for task groups; ``copy_many()`` has one future for thousands, by pairs or by offsets;
        ``await submit()`` lets a producer start the next one only when the engine has begun with this one;
        ``open_dma(max_waiting=)`` bounds how many may wait. Constructs that return while copies are under way
        (``wait``, ``shield``, a ``gather`` in which one failed) are followed by ``await drain()``.

    Memory
        ``register()`` and ``alloc()`` make a ``MemoryMap``, which is worth it for what is copied more than once.
        ``import_memory()`` makes one of memory that a peer has exported: the host's, seen from its DPU.

    Errors
        What the caller got wrong is refused at the call, with nothing started, by a ``UsageError``. What DOCA refuses
        or fails is a ``DocaError`` from the future, one class for each code, with the cause as far as checking can tell
        and the next step. On a card a failed task ends all others: those are submitted anew by themselves, or end in
        ``FlushedError`` where that is not safe. When the engine cannot be started again, ``state`` is ``LOST`` and
        every copy ends in ``EngineLostError``; only another ``open_dma()`` helps then.

    Closing
        Leaving ``async with``, or ``aclose()``, ends what waits with ``ClosedError``, waits for what the engine has, at
        most ``drain_timeout`` seconds, and gives everything back. A DMA that is dropped open warns.

    Looking
        ``device``, ``emulated`` and ``capabilities`` tell what was opened. ``state`` is for health checks,
        ``statistics()`` counts, ``events()`` follows, ``in_flight()`` tells who waits for what, ``recorded()`` has what
        happened before anybody looked, and ``add_start_callback()`` (and ``remove_start_callback()``) sees each copy,
        for traces.

    It, its maps and its futures belong to the loop that opened it and to its thread; use from another raises
    ``WrongLoopError``, use after ``os.fork()`` in the child ``ForkedError``.

    Args:
        engine: The opened device, which this object closes, unless making the object fails.
        loop: The running loop.
        max_waiting: As for ``open_dma()``; so the others.
        drain_timeout: Seconds.
        stall_timeout: Seconds, or None.
        cache: Keeps registrations of plain buffers.
        flight_dir: A folder, or None.

    Source: ``doca_pe_create``, ``doca_dma_create``, ``doca_ctx_start``; DOCA DMA guide.
    """

    def __init__(
        self,
        engine: Engine,
        loop: asyncio.AbstractEventLoop,
        max_waiting: int | None,
        drain_timeout: float,
        stall_timeout: float | None,
        cache: RegistrationCache,
        flight_dir: Path | None,
    ) -> None:
        self._engine = engine
        self._native = engine.channel
        self._loop = loop
        self._drain_timeout = drain_timeout
        self._thread = threading.get_ident()
        self._capabilities = engine.capabilities()
        self._cache = cache
        self._registrations = Registrations(
            loop,
            is_short=engine.is_short_of_memory,
            idle=lambda: len(cache),
            evict=cache.evict,
            buried=lambda: self._native.status().buried_bytes,
            copies=self._count_copies,
            recycle=lambda: self._life.park(),
            want_turns=functools.partial(self._want_turns, "registrations"),
            ended=self._closing_may_go_on,
        )
        memlock = MemlockBatch(loop, engine.lockable, self._reclaimable)
        self._registrar = Registrar(self, engine, loop, self._registrations, memlock)
        self._turns_wanted: set[str] = set()  # by whom
        self._max_waiting = max_waiting or 0
        self._limit_waiting(self._max_waiting)
        self._admission = Admission(loop, self._room, functools.partial(self._want_turns, "admission"))
        self._plain_copies = PlainCopies(
            self,
            engine,
            cache,
            self._registrar,
            self._registrations,
            is_full=lambda: bool(self._max_waiting) and self._room() <= 0,
            ended=self._admission.after_turn,
        )
        self._held = HeldCopies(loop, drain_timeout, self._give_up_held)
        self._number = next(_numbers)  # tells the DMAs of a process apart
        self._recorder = Recorder(loop, self._native, self._want_events)
        self._watchdog = (
            Watchdog(loop, self._native, stall_timeout, self.device.name, self._recorder.stalled)
            if stall_timeout
            else None
        )
        if flight_dir is not None:
            self._recorder.watch(FlightDumps(self, loop, flight_dir).look)
        self._start_callbacks: list[Callable[[CopyFuture], object]] = []
        self._failures = Failures(
            self, self._native, loop, engine.diagnosis, lambda: self._capabilities, self._closing_may_go_on
        )
        self._life = Life(
            self,
            engine,
            loop,
            self._recorder,
            drain_timeout,
            busy=lambda: bool(self._registrations) or self._failures.examining,
            dismiss=self._dismiss,
            recycled=self._recycled,
            closed=self._forget,
        )
        self._drainers: list[asyncio.Future[None]] = []
        self._blocks: weakref.WeakSet[Blocks[Any]] = weakref.WeakSet()  # of its maps
        self._next_clear_warning = 0.0  # by the loop's clock
        self._attach(self._native.address, loop)
        try:
            loop.add_reader(self._native.fd, Reader(self, loop))
            engine.library.sdk_log.attach(loop)
        except BaseException:
            loop.remove_reader(self._native.fd)
            self._life.disown()  # the engine stays the caller's
            self._detach()
            raise
        _open[self._number] = self

    # ---- what it is

    @property
    def device(self) -> DeviceInfo:
        """
        The opened device.

        Returns:
            As it was when opened.

        Source: ``doca_dev_as_devinfo``.
        """
        return self._engine.device

    @property
    def capabilities(self) -> Capabilities:
        """
        What the opened device answered when the context was made last.

        Returns:
            A frozen snapshot.

        Source: the ``doca_dma_cap_...`` and ``doca_mmap_cap_...`` calls.
        """
        return self._capabilities

    @property
    def emulated(self) -> bool:
        """
        Whether the device is the software emulator and not a card.

        Returns:
            True for the emulator.

        Source: aiodocadma.
        """
        return self._engine.library.emulated

    @property
    def state(self) -> DMAState:
        """
        What it is doing.

        Returns:
            ``RESTARTING`` while a fresh context is made; copies wait meanwhile.

        Source: aiodocadma.
        """
        if self._life.closing or self._life.hands_off:
            return DMAState.CLOSED
        if self._life.lost:
            return DMAState.LOST
        return DMAState.RUNNING if self._native.status().state == _native.RUNNING else DMAState.RESTARTING

    def statistics(self) -> Statistics:
        """
        What it has done so far.

        Returns:
            A frozen snapshot.

        Source: aiodocadma; counted in the completion callback.
        """
        status = self._native.status()
        latency = self._native.latency()
        return Statistics(
            **self._native.counters(),
            in_flight=status.in_flight,
            waiting=status.waiting,
            pending=status.pending,
            buried_bytes=status.buried_bytes,
            cache_hits=self._cache.hits,
            cache_misses=self._cache.misses,
            cached_bytes=self._cache.nbytes,
            watchdog_hits=self._watchdog.hits if self._watchdog is not None else 0,
            failed={code_name(code): count for code, count in enumerate(self._native.failed()) if count},
            latency=Latency._from_native(latency) if latency is not None else None,
        )

    def events(self) -> Events:
        """
        Follow what happens from now on: states, faults and restarts, stalls, changed capabilities.

        Returns:
            An asynchronous iterator of ``Event``, one for each call. It ends when the DMA is closed, counts what its
            reader was too slow for, and needs no closing.

        Source: aiodocadma; ``doca_ctx_set_state_changed_cb`` for the context's states.
        """
        return Events(self._recorder)

    def recorded(self) -> tuple[Event, ...]:
        """
        Read the flight recorder, which always runs: the latest 512 events.

        Returns:
            Oldest first. Copies that go well leave no event.

        Source: aiodocadma.
        """
        return tuple(self._recorder.events())

    def in_flight(self) -> tuple[PendingCopy, ...]:
        """
        List the copies that are under way, and which tasks await them.

        Returns:
            All that were started and have not ended, oldest first. Looks at every task of the loop, so not for a hot
            path.

        Raises:
            WrongLoopError: If called from another loop or thread than the DMA's.

        Source: aiodocadma.
        """
        self._check_owner()
        return pending_copies(self._loop, self._futures())

    def add_start_callback(self, fn: Callable[[CopyFuture], object]) -> None:
        """
        Have a function called with the future of each copy, when it has started, in the context of who started it.

        For what is to be known of single copies: traces, times, audits. The future's ``add_done_callback()`` tells the
        end. A copy that the engine finished at once is done already. What the function raises goes to the loop's
        exception handler and does not touch the copy.

        Args:
            fn: Called by ``copy()``, ``copy_many()`` and ``submit()`` before they return; it must not block.

        Raises:
            TypeError: If it is nothing to call.

        Source: aiodocadma.
        """
        if not callable(fn):
            raise TypeError(f"fn must be callable, not {type(fn).__name__}")
        self._start_callbacks.append(fn)
        self._want_starts(True)

    def remove_start_callback(self, fn: Callable[[CopyFuture], object]) -> int:
        """
        Have a function called no more.

        Args:
            fn: As it was added.

        Returns:
            How many times it had been added.

        Source: aiodocadma.
        """
        before = len(self._start_callbacks)
        self._start_callbacks = [other for other in self._start_callbacks if other != fn]
        self._want_starts(bool(self._start_callbacks))
        return before - len(self._start_callbacks)

    def __repr__(self) -> str:
        if not hasattr(self, "_native"):
            return "<DMA>"
        status = self._native.status()
        emulated = " (emulated)" if self.emulated else ""
        return (
            f"<DMA {self.device.name}{emulated} {self.state.name} "
            f"{status.in_flight}/{status.window} in flight, {status.waiting} waiting>"
        )

    # ---- memory

    async def alloc(self, nbytes: int, *, hugepages: bool | int = False, align: int | None = None) -> MemoryMap:
        """
        Allocate zeroed, page-aligned memory and register it, readable and writable by the device.

        Args:
            nbytes: Bytes, at least 1.
            hugepages: True for pages of the system's default huge size, or a size in bytes. The administrator reserves
                them (``vm.nr_hugepages``); there is no fall-back to ordinary ones.
            align: Bytes, a power of two: the address is a multiple of it. None for a page's.

        Returns:
            The map; it owns the memory.

        Raises:
            ValueError: If ``nbytes`` is less than 1, ``align`` no power of two, or there are no pages of that size.
            MemlockError: If so much cannot be locked.
            DocaError: If there is no such memory, or DOCA refuses the registration.
            ClosedError: If the DMA is closed.

        Cancellation: Waits for the registration under way, undoes it, then raises.
        Source: ``doca_mmap_set_memrange``, ``doca_mmap_start``; ``mmap(2)``.
        """
        self._check()
        return await self._registrar.alloc(nbytes, hugepages, align)

    @overload
    async def register(self, obj: bytes, *, access: Literal["read"] | None = None) -> MemoryMap[ReadOnly]: ...
    @overload
    async def register(self, obj: Any, *, access: Literal["read"]) -> MemoryMap[ReadOnly]: ...
    @overload
    async def register(self, obj: Any, *, access: Literal["write"] | None = None) -> MemoryMap: ...
    async def register(self, obj: Any, *, access: Access | None = None) -> MemoryMap[Any]:
        """
        Register the caller's memory, with the least permission it needs.

        Args:
            obj: At least one byte of C-contiguous memory of any item type and shape (bytes, bytearray, memoryview,
                array, mmap, SharedMemory.buf, numpy, ctypes, tensors with DLPack). It stays locked (a bytearray cannot
                be resized) until the map is closed.
            access: What the device may do: ``read`` for a source, ``write`` for both. None for what the object allows.

        Returns:
            The map; the memory stays the caller's.

        Raises:
            TypeError: If ``obj`` has no buffer protocol or DLPack, or holds Python objects.
            ValueError: If it is empty or not contiguous, or ``access`` is neither.
            AccessError: If it is read-only and ``access`` is not, or no device can be let at it.
            MemlockError: If all that is being registered cannot be locked; none of it is then.
            DocaError: If DOCA refuses the registration.
            ClosedError: If the DMA is closed.

        Cancellation: Waits for the registration under way, undoes it, then raises.
        Source: ``doca_mmap_set_memrange``, ``doca_mmap_set_permissions``, ``doca_mmap_start``.
        """
        self._check()
        try:
            return await self._registrar.register(obj, access)
        except BaseException as exc:
            traceback.clear_frames(exc.__traceback__)  # whoever keeps the exception must not keep the memory locked
            raise

    @overload
    async def import_memory(
        self, descriptor: ExportDescriptor | bytes, *, smoke: bool = True, allow_remote_write: Literal[False] = False
    ) -> MemoryMap[ReadOnly]: ...
    @overload
    async def import_memory(
        self, descriptor: ExportDescriptor | bytes, *, smoke: bool = True, allow_remote_write: Literal[True]
    ) -> MemoryMap: ...
    @overload
    async def import_memory(
        self, descriptor: ExportDescriptor | bytes, *, smoke: bool = True, allow_remote_write: bool
    ) -> MemoryMap[Any]: ...
    async def import_memory(
        self, descriptor: ExportDescriptor | bytes, *, smoke: bool = True, allow_remote_write: bool = False
    ) -> MemoryMap[Any]:
        """
        Make a map of memory that the peer (the host of a DPU, another process on the emulator) has exported.

        Copies read it as any other map, with ``allow_remote_write`` they may write it; there is no ``memoryview`` of
        it. Flushed copies into it are never replayed. When the exporter ends or revokes, copies fail with a
        ``DocaError``.

        Args:
            descriptor: What ``MemoryMap.export()`` gave on the other side, or its ``bytes()``.
            smoke: Prove with a first copy of at most 4 KiB that the memory can be read, and with
                ``allow_remote_write``, on a page that the exporter keeps for that, that it can be written.
            allow_remote_write: Let copies write the memory; the exporter must have allowed it, too.

        Returns:
            The map; closing it does nothing to the exporter's memory.

        Raises:
            DescriptorError: If the descriptor is damaged, was made for RDMA, or is another card's.
            AccessError: If ``allow_remote_write`` and the memory was exported for reading.
            ClosedError: If the DMA is closed.
            DocaError: If DOCA refuses, or the first copy fails: the exporter has ended or revoked, or the device cannot
                import.
            PeerError: If what the first copy wrote does not come back.

        Cancellation: Waits for the engine to let go, undoes the import, then raises.
        Source: ``doca_mmap_create_from_export``.
        """
        from aiodocadma._remote import import_map  # here, as what it needs is only needed beside a peer

        return await import_map(self, descriptor, smoke, allow_remote_write)

    async def _export(self, memory: MemoryMap[Any], access: Access) -> ExportDescriptor:
        """See ``MemoryMap.export()``."""
        from aiodocadma._remote import export_map

        return await export_map(self, memory, access)

    # ---- copies

    async def copy_coroutine(self, src: Source, dst: Destination, *, tag: object = None) -> int:
        """
        Copy, as a coroutine that starts its copy in its own first step.

        For ``TaskGroup.create_task(dma.copy_coroutine(src, dst))`` and ``tg.start_soon(dma.copy_coroutine, src, dst)``:
        a task cancelled before its first step has started nothing.

        Args:
            src: As for ``copy()``.
            dst: As for ``copy()``.
            tag: As for ``copy()``.

        Returns:
            Bytes copied.

        Raises:
            AiodocadmaError: As ``copy()`` and its future.

        Cancellation: Waits for the device to let go of both buffers, then raises.
        Source: aiodocadma.
        """
        return await self.copy(src, dst, tag=tag)

    async def drain(self) -> None:
        """
        Wait until no copy is pending: the engine touches no memory of ours then.

        The barrier after ``asyncio.wait``, ``shield``, ``as_completed``, a ``gather`` in which one copy failed, and
        ``wait_for`` with a zero timeout, which may return while copies are in flight.

        Cancellation: Raises at once; the copies go on.
        Source: aiodocadma.
        """
        self._check_owner()
        while self._pending:
            waiter = self._loop.create_future()
            self._drainers.append(waiter)
            self._want_idle(True)
            await waiter

    def copy_many(
        self,
        src: Buffer[ReadOnly] | Iterable[tuple[Buffer[ReadOnly], Buffer]],
        dst: Buffer | None = None,
        *,
        src_offsets: Offsets = 0,
        dst_offsets: Offsets = 0,
        lengths: Offsets | None = None,
        tag: object = None,
    ) -> CopyFuture:
        """
        Start many copies behind one future; in any order, each for itself.

        Either ``copy_many(pairs)`` with (source, destination) pairs, or ``copy_many(src, dst, src_offsets=...,
        dst_offsets=..., lengths=...)`` with one entry for each pair: strided rows, pages of a block table. No Python
        runs per pair, and a pair takes at most 24 bytes.

        Args:
            src: The pairs; or the Buffer that the sources are in.
            dst: The Buffer that the destinations are in.
            src_offsets: Bytes from the start of ``src``: a number for all, a range, or a one-dimensional buffer of
                int64 (numpy, array, memoryview, a tensor), which is copied.
            dst_offsets: Bytes from the start of ``dst``; the same.
            lengths: Bytes of each pair; the same. None with pairs, where the source's length counts.
            tag: Any object, to know the copy again by in errors and events.

        Returns:
            A future of the bytes of all pairs together.

        Raises:
            ClosedError: If the DMA or a map was closed.
            WrongLoopError: If called from another loop or thread, or with memory of another DMA.
            BoundsError: If a pair reaches outside its Buffers; the message has the pair's index.
            AccessError: If a destination is read-only.
            OverlapError: If the two sides of a pair overlap. Pairs are not checked against each other.
            QueueFullError: If ``max_waiting`` copies wait already.
            TypeError: If an argument is of another type.
            CopyManyError: From the future: some pairs failed, named by index; all others are done.

        Cancellation: As for ``copy()``, for all pairs as one.
        Source: ``doca_dma_task_memcpy_alloc_init``, ``doca_task_submit``.
        """
        if dst is None:
            pairs = list(cast("Iterable[tuple[Buffer[ReadOnly], Buffer]]", src))
            plan = self._plan_pairs([pair[0] for pair in pairs], [pair[1] for pair in pairs])
        else:
            if lengths is None:
                raise TypeError("copy_many(src, dst) needs lengths")
            count, columns = offset_columns(src_offsets=src_offsets, dst_offsets=dst_offsets, lengths=lengths)
            plan = self._plan_offsets(cast(Buffer, src), dst, count, *columns)
        return self._copy_plan(plan, tag) if plan.nbytes else self._empty(tag)

    async def submit(self, src: Source, dst: Destination, *, tag: object = None) -> CopyFuture:
        """
        Start a copy, and wait until DOCA has begun with it: a producer goes as fast as the engine takes.

        Where ``copy()`` raises ``QueueFullError`` because of ``max_waiting``, this waits its turn.

        Args:
            src: As for ``copy()``.
            dst: As for ``copy()``.
            tag: As for ``copy()``.

        Returns:
            The copy's future, not awaited.

        Raises:
            UsageError: As ``copy()``, except ``QueueFullError``.

        Cancellation: Withdraws the copy, waits for the engine to let go of what it has, then raises.
        Source: ``doca_task_submit``.
        """
        if self._max_waiting:
            await self._admission.room()
        future = self.copy(src, dst, tag=tag)
        await self._admission.begun(future)
        return future

    def _room(self) -> int:
        """Places left for waiting copies; those whose memory is being registered wait, too."""
        if self._life.over:
            return 1  # whoever tries is refused
        return self._max_waiting - self._native.status().waiting - self._plain_copies.num_registering

    def _copy_objects(self, src: Any, dst: Any, tag: object) -> CopyFuture:
        """Copy where a side is no Buffer: a list, or memory to be registered for this copy only."""
        self._check()
        try:
            return self._plain_copies.copy(src, dst, tag)
        except BaseException as exc:
            traceback.clear_frames(exc.__traceback__)  # whoever keeps the exception must not keep the memory locked
            raise

    # ---- what C asks

    def _refuse(self, reason: str, /, *details: Any) -> NoReturn:
        """Raise for a call that cannot be carried out; nothing was started and nothing is pinned."""
        match reason:
            case "closed":
                raise self._life.error()
            case "forked":
                raise ForkedError(
                    "this DMA was opened before os.fork(), by the parent process", hint="Open a new one in the child."
                )
            case "loop":
                raise WrongLoopError(
                    f"this DMA belongs to {self._loop!r}, not to {asyncio._get_running_loop()}",
                    hint="Open one per loop. Under pytest-asyncio give the fixture and the test the same loop_scope.",
                )
            case "full":
                raise QueueFullError(
                    f"as many copies wait as max_waiting={self._max_waiting} allows",
                    hint="await dma.submit() waits for room instead.",
                )
        raise refusal(reason, *details)

    def _failure(self, future: CopyFuture, code: int, phase: int, flushed: bool, abandoned: bool, /) -> BaseException:
        """Make the exception of a copy that did not end well."""
        if not (abandoned and code == 0):
            return self._failures.of_copy(future, code, phase, flushed)
        if self._life.lost:
            return self._life.error()
        return ClosedError("the DMA was closed before this copy had reached DOCA as a whole")

    def _many_failure(
        self, future: CopyFuture, failures: list[tuple[int, int, int, bool]], count: int, /
    ) -> BaseException:
        """Make the exception of a copy of many pairs of which some failed."""
        return self._failures.of_many(future, failures, count)

    def _on_started(self, future: CopyFuture, /) -> None:
        """A copy has started, and somebody wants to know."""
        for fn in self._start_callbacks:
            try:
                fn(future)
            except Exception as exc:
                message = "aiodocadma: a start callback failed"
                self._loop.call_exception_handler({"message": message, "exception": exc, "future": future})

    def _on_events(self) -> None:
        """Events were noted in a turn, and somebody waits for them."""
        self._recorder.publish()

    def _on_room(self) -> None:
        """A turn is over, and somebody waits for room or for DOCA to begin."""
        self._admission.after_turn()
        self._registrations.after_turn()

    def _on_unwanted(self, future: CopyFuture, /) -> None:
        """A copy was cancelled while its memory is being registered, or waits for that."""
        self._plain_copies.withdraw(future)

    def _on_held(self, future: CopyFuture, /) -> None:
        """A copy was cancelled and the engine has part of it: that may take ``drain_timeout``."""
        self._held.add(future)
        self._want_idle(True)

    def _give_up_held(self, future: CopyFuture) -> None:
        self._give_up(
            future,
            DrainTimeoutError(
                f"{self.device.name} did not let go of a cancelled copy within {self._drain_timeout} s",
                hint="Its memory stays pinned until the engine lets go of it.",
            ),
        )

    def _on_fault(self) -> None:
        """A task failed and DOCA flushes the others."""
        self._life.fault()

    def _on_armed(self) -> None:
        """The channel waits for the engine: watch it. A watchdog only counts and tells; it never rescues."""
        if self._watchdog is not None:
            self._watchdog.start()
            self._want_idle(True)

    def _on_clear_failed(self, code: int, /) -> None:
        """Clearing the notification failed. The drain went on all the same, so it is told and counted, no more."""
        now = self._loop.time()
        if now >= self._next_clear_warning:
            self._next_clear_warning = now + LOG_INTERVAL
            name = self._engine.library.native.error_name(code)
            logger.warning("%s: doca_pe_clear_notification failed: %s", self.device.name, name)

    def _on_idle(self) -> None:
        """No copy is pending: no timers either."""
        self._want_idle(False)
        if self._watchdog is not None:
            self._watchdog.stop()
            self._unwatch()
        self._held.clear()
        drainers, self._drainers = self._drainers, []
        for waiter in drainers:
            wake(waiter)

    def _on_parked(self) -> None:
        """DOCA holds nothing and the pump stays away."""
        self._life.parked()

    # ---- what its parts ask

    def _dismiss(self) -> None:
        """Whoever waits is refused, and nothing is kept for copies to come."""
        self._admission.dismiss()
        self._registrations.dismiss(self._life.error)
        self._cache.clear()

    def _recycled(self, capabilities_changed: bool) -> None:
        if capabilities_changed:
            self._capabilities = self._engine.capabilities()
        self._registrations.recycled()

    def _forget(self) -> None:
        _open.pop(self._number, None)
        self._dismiss_blocks()

    def _dismiss_blocks(self) -> None:
        """Maps may have been closed: whoever waits for a block of one is told."""
        for blocks in list(self._blocks):
            blocks._dismiss_if_closed()

    def _closing_may_go_on(self) -> None:
        """Nothing is being registered, or no cause is looked for any more."""
        if self._life.closing:
            self._life.advance()

    def _count_copies(self) -> tuple[int, int]:
        counters = self._native.counters()
        started = counters["copies_started"]
        return started, started - self._native.status().pending

    def _reclaimable(self) -> int:
        """Bytes that are locked, but for no copy and no open map."""
        return self._cache.nbytes + self._native.status().buried_bytes

    def _want_turns(self, who: str, wanted: bool) -> None:
        (self._turns_wanted.add if wanted else self._turns_wanted.discard)(who)
        self._want_room(bool(self._turns_wanted))

    # ---- closing

    # asyncio.timeout() around it could not end it: it waits through cancels.
    async def aclose(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """
        Close: refuse new copies, end the waiting ones with ``ClosedError``, wait for the engine, destroy everything.

        Idempotent; all callers wait for the same end. May be called from a copy's own task or callback.

        Args:
            timeout: Seconds that this call waits at most; None for ``drain_timeout``.

        Raises:
            DrainTimeoutError: If the engine does not let go within ``timeout``; the memory stays pinned until it does,
                and closing goes on by itself while the loop runs.
            DocaError: If DOCA fails to undo something; further failures are notes on it. Only the first caller gets it.
            ValueError: If ``timeout`` is negative.

        Cancellation: Waits for the end, then raises; the closing itself is never cancelled.
        Source: ``doca_ctx_stop``, ``doca_dma_destroy``, ``doca_mmap_destroy``, ``doca_pe_destroy``, ``doca_dev_close``.
        """
        self._check_owner()
        await self._life.close(timeout)

    async def __aenter__(self) -> Self:
        """Give the DMA itself; leaving closes it."""
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it as ``aclose()`` does."""
        try:
            await self.aclose()
        except Exception as close_error:
            if exc is None:
                raise
            # The body's exception is the news; the close's stays visible on it.
            exc.add_note(f"and closing the DMA failed: {close_error}")

    def __del__(self) -> None:
        # A half-built one has no _life; in a forked child nothing of the parent's is touched.
        life = getattr(self, "_life", None)
        if life is None or life.hands_off or self._forked:
            return
        try:
            warnings.warn(
                f"unclosed {self.device.name} DMA; use 'async with open_dma()'",
                ResourceWarning,
                stacklevel=1,
                source=self,
            )
        finally:  # a filter may turn the warning into an exception
            life.drop(in_thread_of_loop=threading.get_ident() == self._thread)

    # ---- who may call

    def _check_owner(self) -> None:
        if self._forked:
            self._refuse("forked")
        if asyncio._get_running_loop() is not self._loop:
            self._refuse("loop")

    def _check(self) -> None:
        self._check_owner()
        if self._life.over:
            self._refuse("closed")
