"""
The asyncio driver: with its reader (``_reader``) and its opening (``_open``) all that knows the event loop.

Theory of operation. A ``DMA`` is a ``Channel`` (C, see ``native/shim/channel.h``) tied to one loop. ``copy()`` is C: it
starts a copy and, where the engine cannot finish it at once, schedules one turn of the pump per turn of the loop. The
turn gives DOCA more work, collects what ended, and arms the notification fd; the loop's reader of that fd, registered
once, leads to the next turn. This module does what is not hot: opening, registering memory, closing, and the answers to
the questions that C asks (the ``_on_...``, ``_refuse`` and ``_failure`` methods).

Threads. Everything runs in the loop's thread except the calls of ``Engine``, which may block and run in short-lived
worker threads: registration beside the running pump; recycling and closing while the channel is parked.

Life. Closing is a state that the pump advances, never a task:

    open -- aclose(): refuse, abandon, park --> draining -- parked, nothing registering --> reader removed
         --> native close in a worker --> closed
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import functools
import itertools
import logging
import threading
import traceback
import warnings
import weakref
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, Protocol, Self, TypeVar, cast, overload

from aiodocadma import _memlock, _native, _worker
from aiodocadma._access import Access, Destination, ReadOnly, Source
from aiodocadma._admission import Admission, wake
from aiodocadma._cache import RegistrationCache
from aiodocadma._causes import Evidence, Sides, checks_for
from aiodocadma._engine import Engine, Unexamined
from aiodocadma._events import Event, Events, Recorder, code_name
from aiodocadma._examination import Examinations
from aiodocadma._flight import FlightDumps
from aiodocadma._held import HeldCopies
from aiodocadma._many import Offsets, offset_columns
from aiodocadma._memlock import MemlockBatch
from aiodocadma._memory import Buffer, MemoryMap
from aiodocadma._native import Channel, CopyFuture
from aiodocadma._pending import PendingCopy, pending_copies
from aiodocadma._plain import check_pinnable, view_of
from aiodocadma._reader import Reader
from aiodocadma._registrations import Registrations
from aiodocadma._sides import Item, check_items, items_of, refusal
from aiodocadma._statistics import Latency, Statistics
from aiodocadma._watchdog import Watchdog
from aiodocadma.exceptions import (
    AccessError,
    AiodocadmaError,
    ClosedError,
    CopyManyError,
    DocaError,
    DrainTimeoutError,
    EngineLostError,
    FlushedError,
    ForkedError,
    InternalError,
    QueueFullError,
    WrongLoopError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path
    from types import TracebackType

    from aiodocadma._devices import Capabilities, DeviceInfo
    from aiodocadma._export import ExportDescriptor

__all__ = ["DMA", "DMAState", "open_dmas"]

logger = logging.getLogger("aiodocadma")

QUICK_PIN_BYTES: Final = 256 * 1024  # registering this much is cheaper than a thread
MAX_FAULTS_IN_A_ROW: Final = 64  # without one completed task between them, then the engine is lost
LOG_INTERVAL: Final = 60.0  # seconds between two log lines of the same kind
FINALIZE_TIMEOUT: Final = 0.25  # seconds a DMA that was dropped open waits for the engine

_numbers = itertools.count()
_open: weakref.WeakValueDictionary[int, DMA] = weakref.WeakValueDictionary()  # by number


def open_dmas() -> list[DMA]:
    """The open DMAs of this process, of all its loops, oldest first; from any thread."""
    # valuerefs(): the others iterate in Python, and fail when another thread opens one meanwhile.
    found = [dma for ref in _open.valuerefs() if (dma := ref()) is not None and not dma._forked]
    return sorted(found, key=lambda dma: dma._number)


class _Closeable(Protocol):
    def close(self) -> None: ...


T = TypeVar("T")
R = TypeVar("R", bound=_Closeable)


class DMAState(enum.Enum):
    """
    What a DMA is doing, for health checks.

    Source: aiodocadma; the context's own states are in ``doca_ctx_get_state``.
    """

    RUNNING = "running"
    RESTARTING = "restarting"
    LOST = "lost"
    CLOSED = "closed"


class DMA(Channel):
    """
    An open DMA engine: one progress engine, one context, their tasks, bound to the running loop.

    Made by ``open_dma()``. It, its maps and its futures belong to that loop and its thread; use from another raises
    ``WrongLoopError``, use after ``os.fork()`` in the child ``ForkedError``.

    Args:
        engine: The opened device, which this object closes, unless making the object fails.
        loop: The running loop.
        max_waiting: As for ``open_dma()``.
        drain_timeout: As for ``open_dma()``.
        stall_timeout: As for ``open_dma()``.
        cache: Keeps registrations of plain buffers.
        flight_dir: As for ``open_dma()``.

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
            recycle=self._park,
            want_turns=functools.partial(self._want_turns, "registrations"),
            ended=self._on_registered,
        )
        self._memlock = MemlockBatch(loop, engine.lockable, self._reclaimable)
        self._turns_wanted: set[str] = set()  # by whom
        self._recycling = False
        self._lost: BaseException | None = None  # why
        self._max_waiting = max_waiting or 0
        self._limit_waiting(self._max_waiting)
        self._admission = Admission(loop, self._room, functools.partial(self._want_turns, "admission"))
        self._held = HeldCopies(loop, drain_timeout, self._give_up_held)
        self._fault_timer: asyncio.TimerHandle | None = None
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
        self._examinations = Examinations(loop, engine.diagnosis.check, self._conclude, self._examined)
        self._drainers: list[asyncio.Future[None]] = []
        self._closing: asyncio.Future[None] | None = None
        self._close_failure_told = False
        self._native_closed = False  # or closing natively: hands off
        self._next_clear_warning = 0.0  # by the loop's clock
        self._attach(self._native.address, loop)
        try:
            loop.add_reader(self._native.fd, Reader(self, loop))
        except BaseException:
            self._native_closed = True  # the engine stays the caller's
            self._detach()
            raise
        _open[self._number] = self
        engine.library.sdk_log.attach(loop)

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
        if self._closing is not None or self._native_closed:
            return DMAState.CLOSED
        if self._lost is not None:
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

        Source: aiodocadma.
        """
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
            nbytes: At least 1.
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
        if nbytes < 1:
            raise ValueError(f"nbytes must be at least 1, not {nbytes}")
        if align is not None and (align < 1 or align & (align - 1)):
            raise ValueError(f"align must be a power of two, not {align}")
        huge_page = _memlock.huge_page_size(hugepages)
        alloc = functools.partial(self._engine.alloc, nbytes, align=align or 0, huge_page=huge_page)
        return await self._register(nbytes, alloc, None, quick=not huge_page)

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
        try:
            return await self._register_object(obj, access)
        except BaseException as exc:
            traceback.clear_frames(exc.__traceback__)  # whoever keeps the exception must not keep the memory locked
            raise

    async def _register_object(self, obj: Any, access: Access | None) -> MemoryMap[Any]:
        self._check()
        if access not in (None, "read", "write"):
            raise ValueError(f"access must be 'read' or 'write', not {access!r}")
        plain = view_of(obj, "obj")
        if plain.nbytes == 0:
            raise ValueError("obj must hold at least one byte")
        if access == "write" and plain.readonly:
            raise AccessError("obj is read-only", hint="access='read' registers a source.")
        writable = access != "read" and not plain.readonly
        if writable:
            check_pinnable(plain, "obj")
        register = functools.partial(self._engine.register, plain, writable)
        return await self._register(plain.nbytes, register, plain.lock)

    async def import_memory(
        self, descriptor: ExportDescriptor | bytes, *, smoke: bool = True, allow_remote_write: bool = False
    ) -> MemoryMap:
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

    async def _register(
        self, nbytes: int, register: Callable[..., int | None], keep: object, *, quick: bool = True
    ) -> MemoryMap[Any]:
        """Register in the loop what is quickly registered, else in a worker."""
        await self._memlock.check(nbytes)
        if quick and nbytes <= QUICK_PIN_BYTES:
            try:
                registered = self._now(functools.partial(register, wait=False))
            except Unexamined as unexamined:
                evidence = unexamined.evidence
                raise await _worker.call(self._engine.diagnosis.of, evidence) from None
            if registered is not None:
                return MemoryMap._adopt(self, registered, keep)
        return await self._in_worker(register, lambda registered: MemoryMap._adopt(self, cast(int, registered), keep))

    def _now(self, register: Callable[[], T | None]) -> T | None:
        """Try to register without a worker; None if that has to wait."""
        if self._registrations.short_of_memory:
            return None
        try:
            return register()
        except Unexamined as error:
            if not self._engine.is_short_of_memory(error) or not self._registrations.can_wait():
                raise
            return None  # a worker tries again, and makes room

    async def _in_worker(
        self, function: Callable[[], T], adopt: Callable[[T], R], locks: list[object] | None = None
    ) -> R:
        """
        Run a registration; ``adopt`` makes its owner in the loop, who is closed again if the caller is cancelled.

        ``locks`` is emptied when it has ended: until then they keep maps from being closed.
        """
        outcome: asyncio.Future[R] = self._loop.create_future()

        def then(result: T | None, exception: BaseException | None) -> None:
            try:
                if exception is not None:
                    raise exception
                outcome.set_result(adopt(cast(T, result)))
            except BaseException as exc:
                outcome.set_exception(exc)
            if locks is not None:
                locks.clear()

        self._registrations.run(function, then)
        stop = await _worker.wait_out(outcome)
        owner = outcome.result()
        if stop is not None:
            owner.close()
            raise stop
        return owner

    def _on_registered(self) -> None:
        if self._closing is not None:
            self._advance()

    def _park(self) -> None:
        """Have the context made anew as soon as DOCA holds nothing."""
        self._native.park()
        self._advance()

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
        """Places left for waiting copies; what is being registered waits, too."""
        if self._closing is not None or self._lost is not None:
            return 1  # whoever tries is refused
        return self._max_waiting - self._native.status().waiting - len(self._registrations)

    def _copy_objects(self, src: Any, dst: Any, tag: object) -> CopyFuture:
        """Copy where a side is no Buffer: a list, or memory to be registered for this copy only."""
        try:
            return self._copy_items(src, dst, tag)
        except BaseException as exc:
            traceback.clear_frames(exc.__traceback__)  # whoever keeps the exception must not keep the memory locked
            raise

    def _copy_items(self, src: Any, dst: Any, tag: object) -> CopyFuture:
        self._check()
        sources, destinations = items_of(src, "src", dst), items_of(dst, "dst", src, writable=True)
        nbytes = check_items(sources, destinations)
        if nbytes == 0:
            return self._empty(tag)
        if self._max_waiting and self._room() <= 0:
            self._refuse("full")
        for item in destinations:
            if item.buffer is None:
                check_pinnable(item.plain, item.argument)
        # What is empty cannot be registered, and takes no part.
        sources = [item for item in sources if item.plain.nbytes]
        items = [*sources, *(item for item in destinations if item.plain.nbytes)]
        num_sources = len(sources)
        buffers = [item.buffer or self._cached(item) for item in items]
        missing = [i for i, buffer in enumerate(buffers) if buffer is None]
        if sum(items[i].plain.nbytes for i in missing) <= QUICK_PIN_BYTES:
            try:
                mapped = self._map_now(items, buffers, missing)
            except Unexamined as unexamined:
                return self._refused(unexamined.evidence, nbytes, tag)
            if mapped:
                return self._copy_buffers(cast("list[Buffer]", buffers), num_sources, tag)

        future = self._reserve(nbytes, tag)

        def register() -> list[MemoryMap]:
            return [
                MemoryMap._adopt(self, cast(int, self._engine.register(plain, writable, what=argument)), None)
                for argument, _, plain, writable, _ in (items[i] for i in missing)
            ]

        def then(maps: list[MemoryMap] | None, exception: BaseException | None) -> None:
            try:
                if maps is None:
                    raise cast(BaseException, exception)
                for i, memory_map in zip(missing, maps, strict=True):
                    buffers[i] = self._take(items[i], memory_map)
                ready = cast("list[Buffer]", buffers)
                self._start_plan(future, self._plan_lists(ready[:num_sources], ready[num_sources:]))
            except BaseException as exc:
                traceback.clear_frames(exc.__traceback__)
                self._fail(future, exc)
                self._admission.after_turn()
            finally:
                maps = ready = None  # type: ignore[assignment]  # a traceback may have this frame
                buffers.clear()
                items.clear()  # until here they keep the maps from being closed; now the copy does

        self._registrations.run(register, then)
        return future

    def _refused(self, evidence: Evidence, nbytes: int, tag: object) -> CopyFuture:
        """A copy whose memory DOCA refused: a worker looks for the cause, and the future tells it."""
        future = self._reserve(nbytes, tag)

        def then(error: DocaError | None, exception: BaseException | None) -> None:
            self._fail(future, cast(BaseException, error or exception))
            self._admission.after_turn()

        try:
            self._registrations.run(functools.partial(self._engine.diagnosis.of, evidence, tag), then)
        except RuntimeError:  # no thread can be had
            then(self._engine.diagnosis.error(evidence, tag), None)
        return future

    def _copy_buffers(self, buffers: list[Buffer], num_sources: int, tag: object) -> CopyFuture:
        # A plan holds the Buffers themselves, and with them the caller's exports; copy() holds their maps only.
        return self._copy_plan(self._plan_lists(buffers[:num_sources], buffers[num_sources:]), tag)

    def _map_now(self, items: list[Item], buffers: list[Buffer | None], missing: list[int]) -> bool:
        """Register what is missing, without a worker; False if that has to wait."""
        maps: list[MemoryMap] = []
        for i in missing:
            _, _, plain, writable, _ = items[i]
            register = functools.partial(self._engine.register, plain, writable, what=items[i].argument, wait=False)
            if (registered := self._now(register)) is None:
                return False  # what was registered goes back, so that this copy waits with nothing
            maps.append(MemoryMap._adopt(self, registered, None))
        for i, memory_map in zip(missing, maps, strict=True):
            buffers[i] = self._take(items[i], memory_map)
        return True

    def _cached(self, item: Item) -> Buffer | None:
        """The registration that an earlier copy of the same memory left, locked for this one."""
        memory_map = self._cache.find(item.plain, item.writable)
        return None if memory_map is None else memory_map._locked(item.plain.lock)

    def _take(self, item: Item, memory_map: MemoryMap) -> Buffer:
        """A fresh registration for a copy, whose future holds it and the caller's export; the cache may keep it."""
        self._cache.keep(item.plain, item.writable, memory_map)
        return memory_map._locked(item.plain.lock)

    # ---- what C asks

    def _refuse(self, reason: str, /, *details: Any) -> NoReturn:
        """Raise for a call that cannot be carried out; nothing was started and nothing is pinned."""
        match reason:
            case "closed":
                raise self._closed_error()
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
                    f"{self._max_waiting} copies wait already", hint="await dma.submit() waits for room instead."
                )
        raise refusal(reason, *details)

    def _failure(self, future: CopyFuture, code: int, phase: int, flushed: bool, abandoned: bool, /) -> BaseException:
        """Make the exception of a copy that did not end well."""
        if abandoned and code == 0:
            if self._lost is not None:
                return self._lost_error()
            return ClosedError("the DMA was closed before this copy had reached DOCA as a whole")
        evidence = self._evidence(code, phase, future._nbytes, self._sides(future))
        error = self._engine.diagnosis.error(evidence, future.tag)
        if flushed:
            return _flushed(error, future.tag)
        self._find_causes(future, [(error, evidence)])
        return error

    def _many_failure(
        self, future: CopyFuture, failures: list[tuple[int, int, int, bool]], count: int, /
    ) -> BaseException:
        """Make the exception of a copy of many pairs of which some failed."""
        errors: dict[int, Exception] = {}
        failed = []
        for index, code, phase, flushed in failures:
            sides = self._sides(future, index)
            evidence = self._evidence(code, phase, sides[4] if sides is not None else 0, sides)
            error = self._engine.diagnosis.error(evidence, future.tag)
            errors[index] = _flushed(error, future.tag) if flushed else error
            if not flushed:
                failed.append((error, evidence))
        self._find_causes(future, failed)
        return CopyManyError(errors, count)

    def _evidence(
        self, code: int, phase: int, nbytes: int, sides: tuple[int, int, int, int, int, bool, bool] | None
    ) -> Evidence:
        status = self._native.status()
        return self._engine.diagnosis.evidence(
            _native.copy_failure(code, phase),
            f"copying {nbytes} bytes from src to dst",
            nbytes=nbytes,
            sides=Sides(*sides) if sides is not None else None,
            caps=self._capabilities,
            transitions=tuple((step >> 4, step & 15) for step in status.transitions if step),
            in_flight=status.in_flight,
            num_tasks=status.num_tasks,
            completed=self._native.counters()["segments_completed"],
        )

    def _find_causes(self, future: CopyFuture, failed: list[tuple[DocaError, Evidence]]) -> None:
        """
        Where the cause is not known at once, keep the future pending until a worker has asked.

        The engine has let go of the copy: all that is late is its exception, other copies go on, and cancelling it ends
        it at once.
        """
        unknown = [(error, evidence) for error, evidence in failed if checks_for(evidence.code, evidence.phase)]
        if self._examinations.start(future, unknown):
            self._examine(future)

    def _examined(self) -> None:
        """No cause is looked for any more; closing waits for that."""
        if self._closing is not None:
            self._advance()

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
        """A task failed and DOCA flushes the others: the context must become idle within ``drain_timeout``."""
        logger.warning("%s: a task failed, the context restarts", self.device.name)
        self._fault_timer = self._loop.call_later(self._drain_timeout, self._fault_too_long)

    def _fault_too_long(self) -> None:
        self._lose(DrainTimeoutError(f"{self.device.name} did not become idle within {self._drain_timeout} s"))
        for future in self._futures():
            self._give_up(future, self._lost_error())

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
        """DOCA holds nothing and the pump stays away: close, or make a fresh context."""
        if self._recycling or self._native_closed:
            return
        if self._fault_timer is not None:
            self._fault_timer.cancel()
            self._fault_timer = None
        if self._closing is not None:
            if not self._registrations and not self._examinations.running:
                # What was flushed since closing began is not replayed. The turn that ends it precedes the close.
                self._abandon()
                self._loop.remove_reader(self._native.fd)
                # A turn later: the loop must have forgotten the fd before it is closed.
                self._native_closed = True
                self._loop.call_soon(_worker.start, self._loop, self._engine.close, self._closed)
            return
        if self._lost is not None:
            return
        if self._native.status().faults_in_a_row > MAX_FAULTS_IN_A_ROW:
            self._native.resume(recycled=False)
            self._lose(InternalError(f"{MAX_FAULTS_IN_A_ROW} faults without one completed task between them"))
            return
        self._recycling = True
        _worker.start(self._loop, self._engine.recycle, self._recycled)

    def _recycled(self, changed: bool | None, exception: BaseException | None) -> None:
        self._recycling = False
        self._native.resume(recycled=exception is None)
        self._recorder.publish()
        if exception is not None:
            self._lose(exception)
        else:
            if changed:
                self._capabilities = self._engine.capabilities()
            self._registrations.recycled()
        if self._closing is not None:
            self._native.park()
        self._advance()

    def _advance(self) -> None:
        """Have the pump take the next step: it parks, or it is parked already."""
        if self._native.status().state >= _native.PARKED:
            self._on_parked()
        else:
            self._wake()

    def _lose(self, cause: BaseException) -> None:
        """There is no working context any more: what waits ends now, what comes is refused."""
        if self._lost is None:
            self._lost = cause
            logger.error("%s: the engine is lost: %s", self.device.name, cause)
            self._recorder.lost(getattr(cause, "code", None) or 0)
        self._close_begin()
        self._abandon()
        self._dismiss()

    def _dismiss(self) -> None:
        """Whoever waits is refused, and nothing is kept for copies to come."""
        self._admission.dismiss()
        self._registrations.dismiss(self._closed_error)
        self._cache.clear()

    def _closed_error(self) -> AiodocadmaError:
        return self._lost_error() if self._lost is not None else ClosedError("the DMA is closed")

    def _lost_error(self) -> EngineLostError:
        error = EngineLostError(
            f"{self.device.name}: the context could not be started again", hint="Close this DMA and open a new one."
        )
        error.__cause__ = self._lost
        return error

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
        if timeout is None:
            timeout = self._drain_timeout
        elif timeout < 0:
            raise ValueError(f"timeout must not be negative, not {timeout}")
        closing = self._closing or self._begin_closing()
        stop = await _worker.wait_out(closing, timeout)
        if not closing.done():
            raise DrainTimeoutError(
                f"{self.device.name} still holds {self._native.status().in_flight} tasks after {timeout} s",
                hint="Their memory stays pinned until the engine lets go of it.",
            )
        error = closing.exception()
        if error is not None and not self._close_failure_told:
            self._close_failure_told = True
            raise error
        if stop is not None:
            raise stop

    def _begin_closing(self) -> asyncio.Future[None]:
        self._closing = self._loop.create_future()
        self._close_begin()
        self._abandon()
        self._dismiss()
        self._native.park()
        self._advance()
        return self._closing

    def _closed(self, errors: list[DocaError] | None, exception: BaseException | None) -> None:
        self._detach()
        _open.pop(self._number, None)
        self._engine.library.sdk_log.detach(self._loop)
        if exception is None and not errors:
            self._native.free()
        self._recorder.end()
        closing = cast("asyncio.Future[None]", self._closing)
        if errors:
            exception = errors[0]
            for error in errors[1:]:
                exception.add_note(str(error))
        if exception is not None:
            closing.set_exception(exception)
        else:
            closing.set_result(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.aclose()
        except Exception as close_error:
            if exc is None:
                raise
            # The body's exception is the news; the close's stays visible on it.
            exc.add_note(f"and closing the DMA failed: {close_error}")

    def __del__(self) -> None:
        # A half-built one has no _native_closed; in a forked child nothing of the parent's is touched.
        if getattr(self, "_native_closed", True) or self._forked:
            return
        self._native_closed = True
        try:
            warnings.warn(
                f"unclosed {self.device.name} DMA; use 'async with open_dma()'",
                ResourceWarning,
                stacklevel=1,
                source=self,
            )
        finally:  # a filter may turn the warning into an exception
            if self._loop.is_closed():
                # Copies may be pending: those that end now let go of their memory.
                self._engine.finalize(FINALIZE_TIMEOUT, self._detach)
            elif threading.get_ident() == self._thread:
                self._detach()
                _finalize(self._loop, self._engine)
            else:
                self._detach()
                # Only the loop's thread may take the reader away; if the loop dies first, all is leaked.
                with contextlib.suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(_finalize, self._loop, self._engine)

    # ---- who may call

    def _check_owner(self) -> None:
        if self._forked:
            self._refuse("forked")
        if asyncio._get_running_loop() is not self._loop:
            self._refuse("loop")

    def _check(self) -> None:
        self._check_owner()
        if self._closing is not None or self._lost is not None:
            self._refuse("closed")


def _flushed(culprit: DocaError, tag: object) -> FlushedError:
    return FlushedError("another copy's failure ended this one, and it was not replayed", culprit=culprit, tag=tag)


def _finalize(loop: asyncio.AbstractEventLoop, engine: Engine) -> None:
    loop.remove_reader(engine.channel.fd)
    engine.library.sdk_log.detach(loop)
    engine.finalize(FINALIZE_TIMEOUT, lambda: None)
