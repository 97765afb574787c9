"""
The asyncio driver: the only module that knows the event loop.

Theory of operation. A ``DMA`` is a ``Channel`` (C, see ``native/shim/channel.h``) tied to one loop. ``copy()`` is C: it
starts a copy and, where the engine cannot finish it at once, schedules one turn of the pump per turn of the loop. The
turn gives DOCA more work, collects what ended, and arms the notification fd; the loop's reader of that fd, registered
once, leads to the next turn. This module does what is not hot: opening, registering memory, closing, and the answers to
the questions that C asks (the ``_on_...``, ``_refuse`` and ``_failure`` methods).

Threads. Everything runs in the loop's thread except native calls that may block. Those run in a short-lived worker
thread, one at a time per DMA (``_lock``): registration beside the running pump, which it does not touch; recycling and
closing only while the channel is parked, when the loop's thread stays away from the progress engine.

Life. Closing is a state that the pump advances, never a task:

    open -- aclose(): refuse, abandon, park --> draining -- parked, nothing registering --> reader removed
         --> native close in a worker --> closed
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import functools
import os
import threading
import warnings
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, cast
from weakref import ref

from aiodocadma import _native, _worker
from aiodocadma._devices import Capabilities, DeviceInfo, select_device
from aiodocadma._library import Library, open_library
from aiodocadma._memory import Buffer, MemoryMap, PlainBuffer, view_of
from aiodocadma._native import Channel, CopyFuture
from aiodocadma._statistics import Statistics
from aiodocadma.exceptions import (
    AccessError,
    BoundsError,
    ClosedError,
    DrainTimeoutError,
    EngineLostError,
    FlushedError,
    ForkedError,
    InternalError,
    OverlapError,
    WrongLoopError,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = ["DMA", "DMAState", "open_dma"]

# Policy, not limits of a device.
QUICK_PIN_BYTES: Final = 256 * 1024  # registering this much is cheaper than a thread
GRAVEYARD_BYTES: Final = 64 * 1024 * 1024  # closed maps may pin this much before the context is recycled
GRAVEYARD_MAPS: Final = 1024  # or be this many
TURN_BUDGET: Final = 0.0004  # seconds the pump may hold the loop
FINALIZE_TIMEOUT: Final = 0.25  # seconds a DMA that was dropped open waits for the engine

OnFlush = Literal["replay", "fail"]


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

    Raises:
        TypeError: If called; use ``open_dma()``.

    Source: ``doca_pe_create``, ``doca_dma_create``, ``doca_ctx_start``; DOCA DMA guide.
    """

    def __init__(self) -> None:
        raise TypeError("use 'async with open_dma() as dma'")

    # ---- opening

    @classmethod
    async def _open(
        cls,
        device: str | None,
        library: str | os.PathLike[str] | None,
        num_tasks: int | None,
        window: int | None,
        on_flush: OnFlush,
        drain_timeout: float,
    ) -> DMA:
        loop = asyncio.get_running_loop()
        outcome = loop.create_future()

        def open_native() -> tuple[Library, DeviceInfo, _native.NativeDevice, _native.NativeChannel]:
            loaded = open_library(library)
            info = select_device(loaded, device)
            try:
                native_device = loaded.native.open_device(info.pci_address)
                try:
                    channel = native_device.open_channel(
                        num_tasks=num_tasks or 0,
                        window=window or 0,
                        graveyard_bytes=GRAVEYARD_BYTES,
                        graveyard_maps=GRAVEYARD_MAPS,
                        turn_budget=TURN_BUDGET,
                        replay=on_flush == "replay",
                    )
                except BaseException:
                    native_device.close()
                    raise
            except _native.Failure as failure:
                raise loaded.error(failure, device=info.name) from None
            return loaded, info, native_device, channel

        def opened(
            result: tuple[Library, DeviceInfo, _native.NativeDevice, _native.NativeChannel] | None,
            exception: BaseException | None,
        ) -> None:
            if result is None:
                outcome.set_exception(cast(BaseException, exception))
                return
            try:
                outcome.set_result(cls._bind(loop, *result, drain_timeout))
            except BaseException as exc:
                outcome.set_exception(exc)

        _worker.start(loop, open_native, opened)
        stop = await _worker.wait_out(outcome)
        dma = outcome.result()
        if stop is not None:
            await dma.aclose()
            raise stop
        return cast(DMA, dma)

    @classmethod
    def _bind(
        cls,
        loop: asyncio.AbstractEventLoop,
        library: Library,
        device: DeviceInfo,
        native_device: _native.NativeDevice,
        channel: _native.NativeChannel,
        drain_timeout: float,
    ) -> DMA:
        self = cls.__new__(cls)
        self._loop = loop
        self._library = library
        self._device_info = device
        self._native_device = native_device
        self._native = channel
        self._drain_timeout = drain_timeout
        self._pid = os.getpid()
        self._thread = threading.get_ident()
        self._lock = threading.Lock()  # one worker call at a time
        self._registering = 0
        self._native_closed = False
        self._recycling = False
        self._lost: EngineLostError | None = None
        self._drainers: list[asyncio.Future[None]] = []
        self._closing: asyncio.Future[None] | None = None
        self._drain_timer: asyncio.TimerHandle | None = None
        self._capabilities = Capabilities._from_native(channel.caps())
        self._attach(channel.address, loop)
        try:
            loop.add_reader(channel.fd, _wake, ref(self))
        except BaseException:
            self._native_closed = True
            channel.close()
            native_device.close()
            raise
        return self

    # ---- what it is

    @property
    def device(self) -> DeviceInfo:
        """
        The opened device.

        Returns:
            As it was when opened.

        Source: ``doca_dev_as_devinfo``.
        """
        return self._device_info

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
        return self._library.emulated

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
        return Statistics(
            **self._native.counters(),
            in_flight=status.in_flight,
            waiting=status.waiting,
            pending=status.pending,
            buried_bytes=status.buried_bytes,
        )

    def __repr__(self) -> str:
        if not hasattr(self, "_native"):
            return "<DMA>"
        status = self._native.status()
        emulated = " (emulated)" if self.emulated else ""
        return (
            f"<DMA {self._device_info.name}{emulated} {self.state.name} "
            f"{status.in_flight}/{status.window} in flight, {status.waiting} waiting>"
        )

    # ---- memory

    async def alloc(self, nbytes: int) -> MemoryMap:
        """
        Allocate zeroed, page-aligned memory and register it, readable and writable by the device.

        Args:
            nbytes: At least 1.

        Returns:
            The map; it owns the memory.

        Raises:
            ValueError: If ``nbytes`` is less than 1.
            DocaError: If DOCA refuses the registration.
            ClosedError: If the DMA is closed.

        Cancellation: Waits for the registration under way, undoes it, then raises.
        Source: ``doca_mmap_set_memrange``, ``doca_mmap_start``.
        """
        self._check()
        if nbytes < 1:
            raise ValueError(f"nbytes must be at least 1, not {nbytes}")
        return await self._register(None, nbytes, _native.ACCESS_LOCAL_READ_WRITE, None)

    async def register(self, obj: Any) -> MemoryMap:
        """
        Register the caller's memory with the least permission it needs: read-only if it is read-only.

        Args:
            obj: At least one byte of C-contiguous memory of any item type and shape (bytes, bytearray, memoryview,
                array, mmap, SharedMemory.buf, numpy, ctypes). It stays locked (a bytearray cannot be resized) until the
                map is closed.

        Returns:
            The map; the memory stays the caller's.

        Raises:
            TypeError: If ``obj`` has no buffer protocol.
            ValueError: If it is empty or not contiguous.
            DocaError: If DOCA refuses the registration.
            ClosedError: If the DMA is closed.

        Cancellation: Waits for the registration under way, undoes it, then raises.
        Source: ``doca_mmap_set_memrange``, ``doca_mmap_set_permissions``, ``doca_mmap_start``.
        """
        self._check()
        plain = view_of(obj, "obj")
        if plain.nbytes == 0:
            raise ValueError("obj must hold at least one byte")
        return await self._register(plain.address, plain.nbytes, plain.access, plain.view)

    async def _register(self, address: int | None, nbytes: int, access: int, keep: object) -> MemoryMap:
        if nbytes <= QUICK_PIN_BYTES and (registered := self._register_now(address, nbytes, access)) is not None:
            return MemoryMap._adopt(self, registered, keep)
        outcome: asyncio.Future[MemoryMap] = self._loop.create_future()

        def then(registered: int | None, exception: BaseException | None) -> None:
            if registered is None:
                outcome.set_exception(cast(BaseException, exception))
            else:
                outcome.set_result(MemoryMap._adopt(self, registered, keep))

        self._start_worker(functools.partial(self._register_native, address, nbytes, access), then)
        stop = await _worker.wait_out(outcome)
        memory_map = outcome.result()
        if stop is not None:
            memory_map.close()
            raise stop
        return memory_map

    def _register_native(self, address: int | None, nbytes: int, access: int) -> int:
        with self._lock:
            return self._register_locked(address, nbytes, access)

    def _register_locked(self, address: int | None, nbytes: int, access: int, what: str = "memory") -> int:
        if self._native_closed:
            raise ClosedError("the DMA was closed")
        try:
            registered = self._native_device.register(address, nbytes, access)
        except _native.Failure as failure:
            raise self._library.error(
                failure, device=self._device_info.name, cause=f"registering {nbytes} bytes of {what}"
            ) from None
        self._native.adopt(registered)
        return registered

    def _register_now(self, address: int | None, nbytes: int, access: int) -> int | None:
        """Register in the loop's thread, unless a worker is in the library: then None."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return self._register_locked(address, nbytes, access)
        finally:
            self._lock.release()

    def _start_worker(self, function: Callable[[], Any], then: Callable[[Any, BaseException | None], None]) -> None:
        """Run a registration; closing waits for it."""

        def ended(result: Any, exception: BaseException | None) -> None:
            self._registering -= 1
            try:
                then(result, exception)
            finally:
                if self._closing is not None:
                    self._advance()

        self._registering += 1
        _worker.start(self._loop, function, ended)

    # ---- copies

    async def copy_coroutine(self, src: Any, dst: Any, *, tag: object = None) -> int:
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

    def _copy_objects(self, src: Any, dst: Any, tag: object) -> CopyFuture:
        """Copy where a side is not a Buffer: register it for this copy only."""
        self._check()
        source, destination = self._side(src, "src"), self._side(dst, "dst")
        if source.nbytes > destination.nbytes:
            self._refuse("bounds", source.nbytes, destination.nbytes)
        if destination.readonly:
            self._refuse("access", "dst")
        if (
            source.address < destination.address + source.nbytes
            and destination.address < source.address + source.nbytes
        ):
            self._refuse("overlap")
        if source.nbytes == 0:
            return self._empty(tag)
        sides = [
            (name, obj if isinstance(obj, Buffer) else plain)
            for name, obj, plain in (("src", src, source), ("dst", dst, destination))
        ]
        to_pin = sum(side.nbytes for _, side in sides if isinstance(side, PlainBuffer))
        if to_pin <= QUICK_PIN_BYTES and self._lock.acquire(blocking=False):
            try:
                buffers = [self._mapped(name, side) for name, side in sides]
            finally:
                self._lock.release()
            return self.copy(*buffers, tag=tag)

        future = self._reserve(source.nbytes, tag)

        def register() -> list[Buffer]:
            with self._lock:
                return [self._mapped(name, side) for name, side in sides]

        def then(buffers: list[Buffer] | None, exception: BaseException | None) -> None:
            if buffers is None:
                self._fail(future, cast(BaseException, exception))
                return
            try:
                self._start(future, *buffers)
            except Exception as exc:
                self._fail(future, exc)

        self._start_worker(register, then)
        return future

    def _side(self, obj: Any, argument: str) -> PlainBuffer:
        if isinstance(obj, Buffer) and obj.closed:
            self._refuse("map_closed", argument)
        return view_of(obj, argument)

    def _mapped(self, name: str, side: Buffer | PlainBuffer) -> Buffer:
        """Register a plain side for one copy; the copy's future holds the map, and with it the caller's export."""
        if isinstance(side, Buffer):
            return side
        return MemoryMap._adopt(
            self, self._register_locked(side.address, side.nbytes, side.access, name), side.view
        )

    # ---- what C asks

    def _refuse(self, reason: str, *details: Any) -> NoReturn:
        """Raise for a call that cannot be carried out; nothing was started and nothing is pinned."""
        match reason:
            case "closed" if self._lost is not None:
                raise EngineLostError(*self._lost.args, hint=self._lost.hint) from self._lost
            case "closed":
                raise ClosedError("the DMA is closed")
            case "forked":
                raise ForkedError(
                    "this DMA was opened before os.fork(), by the parent process", hint="Open a new one in the child."
                )
            case "loop":
                raise WrongLoopError(f"this DMA belongs to {self._loop!r}, not to {_running_loop()}")
            case "map_closed":
                raise ClosedError(f"{details[0]} is a closed map")
            case "foreign":
                raise WrongLoopError(f"{details[0]} was registered with another DMA", hint="Register it with this one.")
            case "bounds":
                raise BoundsError(f"dst has {details[1]} bytes, but src has {details[0]}")
            case "access":
                raise AccessError("dst is read-only", hint="The destination of a copy must be writable memory.")
            case "overlap":
                raise OverlapError("dst overlaps src")
        raise InternalError(f"refused: {reason} {details}")

    def _failure(
        self, future: CopyFuture, code: int, phase: int, flushed: bool, abandoned: bool
    ) -> BaseException:
        """Make the exception of a copy that did not end well."""
        if abandoned and code == 0:
            return self._lost or ClosedError("the DMA was closed before this copy had reached DOCA as a whole")
        names = ("open", "register", "alloc", "submit", "complete", "stop")
        calls = {2: "doca_dma_task_memcpy_alloc_init", 3: "doca_task_submit", 4: "doca_task_get_status"}
        failure = _native.Failure(code, calls.get(phase, ""), cast(Any, names[phase]))
        error = self._library.error(failure, device=self._device_info.name, tag=future.tag)
        if flushed:
            return FlushedError(
                "another copy's failure ended this one, and it was not replayed", culprit=error, tag=future.tag
            )
        return error

    def _on_idle(self) -> None:
        """No copy is pending."""
        self._want_idle(False)
        drainers, self._drainers = self._drainers, []
        for waiter in drainers:
            if not waiter.done():
                waiter.set_result(None)

    def _on_parked(self) -> None:
        """DOCA holds nothing and the pump stays away: close, or make a fresh context."""
        if self._recycling or self._native_closed:
            return
        if self._closing is not None:
            if not self._registering:
                self._loop.remove_reader(self._native.fd)
                # A turn later: the loop must have forgotten the fd before it is closed.
                self._native_closed = True
                self._loop.call_soon(_worker.start, self._loop, self._close_native, self._closed)
            return
        if self._lost is None:
            self._recycling = True
            _worker.start(self._loop, self._recycle_native, self._recycled)

    def _recycle_native(self) -> bool:
        with self._lock:
            return self._native.recycle()

    def _recycled(self, changed: bool | None, exception: BaseException | None) -> None:
        self._recycling = False
        self._native.resume(recycled=exception is None)
        if exception is not None:
            self._lose(exception)
        elif changed:
            self._capabilities = Capabilities._from_native(self._native.caps())
        if self._closing is not None:
            self._native.park()
        self._advance()

    def _advance(self) -> None:
        """Have the pump take the next step: it parks, or it is parked already."""
        if self._native.status().state >= _native.PARKED:
            self._on_parked()
        else:
            self._schedule()

    def _lose(self, exception: BaseException) -> None:
        """No context could be made: what waits ends now, what comes is refused."""
        cause = (
            self._library.error(exception, device=self._device_info.name)
            if isinstance(exception, _native.Failure)
            else exception
        )
        self._lost = EngineLostError(
            f"{self._device_info.name}: the context could not be started again", hint="Close this DMA and open a new one."
        )
        self._lost.__cause__ = cause
        self._close_begin()
        self._abandon()

    # ---- closing

    async def aclose(self) -> None:
        """
        Close: refuse new copies, end the waiting ones with ``ClosedError``, wait for what the engine holds, destroy all.

        Idempotent; all callers wait for the same end. May be called from a copy's own task or callback.

        Raises:
            DrainTimeoutError: If the engine does not let go within ``drain_timeout``; the memory stays pinned until it
                does, and closing then goes on by itself while the loop runs.
            DocaError: If DOCA fails to undo something (further failures are notes on it); only the first caller gets it.

        Cancellation: Waits for the end, then raises; the closing itself is never cancelled.
        Source: ``doca_ctx_stop``, ``doca_dma_destroy``, ``doca_mmap_destroy``, ``doca_pe_destroy``, ``doca_dev_close``.
        """
        self._check_owner()
        first = self._closing is None
        closing = self._closing or self._begin_closing()
        stop = await _worker.wait_out(closing)
        error = closing.exception()
        if error is not None and (first or isinstance(error, DrainTimeoutError)):
            raise error
        if stop is not None:
            raise stop

    def _begin_closing(self) -> asyncio.Future[None]:
        self._closing = self._loop.create_future()
        self._close_begin()
        self._abandon()
        self._native.park()
        self._drain_timer = self._loop.call_later(self._drain_timeout, self._drain_timed_out)
        self._advance()
        return self._closing

    def _drain_timed_out(self) -> None:
        if self._closing is not None and not self._closing.done():
            held = self._native.status().in_flight
            self._closing.set_exception(
                DrainTimeoutError(
                    f"{self._device_info.name} still holds {held} tasks after {self._drain_timeout} s",
                    hint="Their memory stays pinned until the engine lets go of it.",
                )
            )

    def _close_native(self) -> list[_native.Failure]:
        with self._lock:
            failures = self._native.close()
            if not failures and (code := self._native_device.close()):
                failures = [_native.Failure(code, "doca_dev_close", "stop")]
            return failures

    def _closed(self, failures: list[_native.Failure] | None, exception: BaseException | None) -> None:
        if self._drain_timer is not None:
            self._drain_timer.cancel()
        self._on_idle()
        closing = cast("asyncio.Future[None]", self._closing)
        if closing.done():
            return
        if exception is None and failures:
            errors = [self._library.error(failure, device=self._device_info.name) for failure in failures]
            exception = errors[0]
            for error in errors[1:]:
                exception.add_note(str(error))
        if exception is not None:
            closing.set_exception(exception)
        else:
            closing.set_result(None)

    async def __aenter__(self) -> DMA:
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
        # A half-built one has no _native; in a forked child nothing of the parent's is touched.
        native: _native.NativeChannel | None = getattr(self, "_native", None)
        if native is None or self._native_closed or self._pid != os.getpid():
            return
        self._native_closed = True
        warnings.warn(f"unclosed {self._device_info.name} DMA; use 'async with open_dma()'", ResourceWarning, source=self)
        abandon = functools.partial(_finalize, native, self._native_device)
        if self._loop.is_closed():
            abandon()
        elif threading.get_ident() == self._thread:
            self._loop.remove_reader(native.fd)
            abandon()
        else:
            # Only the loop's thread may take the reader away; if the loop dies first, all is leaked.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_finalize_in_loop, self._loop, native, abandon)

    # ---- who may call

    def _check_owner(self) -> None:
        if self._pid != os.getpid():
            self._refuse("forked")
        if _running_loop() is not self._loop:
            self._refuse("loop")

    def _check(self) -> None:
        self._check_owner()
        if self._closing is not None or self._lost is not None:
            self._refuse("closed")


def _running_loop() -> asyncio.AbstractEventLoop | None:
    return asyncio._get_running_loop()


def _wake(dma: ref[DMA]) -> None:
    """The loop's reader: weak, so that a DMA nobody holds and with nothing in flight can be collected."""
    if (alive := dma()) is not None:
        alive._readable()


def _finalize(native: _native.NativeChannel, native_device: _native.NativeDevice) -> None:
    if native.finalize(FINALIZE_TIMEOUT):
        native_device.close()


def _finalize_in_loop(
    loop: asyncio.AbstractEventLoop, native: _native.NativeChannel, abandon: Callable[[], None]
) -> None:
    loop.remove_reader(native.fd)
    abandon()


class open_dma(contextlib.AbstractAsyncContextManager[DMA]):  # noqa: N801 (a function to its callers)
    """
    Open a DMA engine for the running loop, as an async context manager.

    Args:
        device: A PCI address, an ibdev or interface name; None takes the first device that can do DMA.
        library: ``auto``, ``system``, ``emulator`` or a path; None takes the environment variable
            ``AIODOCADMA_LIBRARY``, or ``auto``: the system's DOCA, or the emulator where none is installed.
        num_tasks: Size of the context's task pool; None for what suits the device; never above its cap.
        window: Tasks that DOCA may hold at once; None for all of the pool.
        on_flush: What becomes of copies that another copy's failure flushed: ``replay`` them, or ``fail`` them with
            ``FlushedError``.
        drain_timeout: Seconds that closing waits for the engine.

    Returns:
        The DMA, on entering; leaving closes it.

    Raises:
        LibraryError: If no usable DOCA library is found.
        DocaError: If there is no such device, it cannot do DMA, or DOCA fails to open it.
        ValueError: If a number is out of range.

    Cancellation: Waits for the opening under way, undoes it, then raises.
    Source: ``doca_dev_open``, ``doca_pe_create``, ``doca_dma_create``, ``doca_ctx_start``.
    """

    def __init__(
        self,
        device: str | None = None,
        *,
        library: str | os.PathLike[str] | None = None,
        num_tasks: int | None = None,
        window: int | None = None,
        on_flush: OnFlush = "replay",
        drain_timeout: float = 30.0,
    ) -> None:
        for name, value in (("num_tasks", num_tasks), ("window", window)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        if on_flush not in ("replay", "fail"):
            raise ValueError(f"on_flush must be 'replay' or 'fail', not {on_flush!r}")
        if drain_timeout <= 0:
            raise ValueError(f"drain_timeout must be positive, not {drain_timeout}")
        self._open = functools.partial(DMA._open, device, library, num_tasks, window, on_flush, drain_timeout)
        self._dma: DMA | None = None

    async def __aenter__(self) -> DMA:
        if self._dma is not None:
            raise RuntimeError("this open_dma() was entered before")
        self._dma = await self._open()
        return self._dma

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._dma is not None:
            await self._dma.__aexit__(exc_type, exc, traceback)
