"""
The asyncio driver: the only module that knows the event loop.

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
import logging
import os
import threading
import warnings
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, cast
from weakref import ref

from aiodocadma import _native, _worker
from aiodocadma._engine import Engine, OnFlush
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

    from aiodocadma._devices import Capabilities, DeviceInfo
    from aiodocadma.exceptions import DocaError

__all__ = ["DMA", "DMAState", "open_dma"]

QUICK_PIN_BYTES: Final = 256 * 1024  # registering this much is cheaper than a thread
LOG_INTERVAL: Final = 60.0  # seconds between two log lines of the same kind
FINALIZE_TIMEOUT: Final = 0.25  # seconds a DMA that was dropped open waits for the engine


_logger = logging.getLogger("aiodocadma")


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
        drain_timeout: Seconds that closing waits for the engine.

    Source: ``doca_pe_create``, ``doca_dma_create``, ``doca_ctx_start``; DOCA DMA guide.
    """

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop, drain_timeout: float) -> None:
        self._engine = engine
        self._native = engine.channel
        self._loop = loop
        self._drain_timeout = drain_timeout
        self._thread = threading.get_ident()
        self._capabilities = engine.capabilities()
        self._registering = 0  # worker calls that closing waits for
        self._recycling = False
        self._lost: EngineLostError | None = None
        self._drainers: list[asyncio.Future[None]] = []
        self._closing: asyncio.Future[None] | None = None
        self._drain_timer: asyncio.TimerHandle | None = None
        self._native_closed = False  # or closing natively: hands off
        self._next_clear_warning = 0.0  # by the loop's clock
        self._attach(self._native.address, loop)
        try:
            loop.add_reader(self._native.fd, _Reader(self, loop))
        except BaseException:
            self._native_closed = True  # the engine stays the caller's
            self._detach()
            raise

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
            f"<DMA {self.device.name}{emulated} {self.state.name} "
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
        return await self._register(plain.address, plain.nbytes, plain.access, plain.lock)

    async def _register(self, address: int | None, nbytes: int, access: int, keep: object) -> MemoryMap:
        if nbytes <= QUICK_PIN_BYTES and (registered := self._engine.register_now(address, nbytes, access)) is not None:
            return MemoryMap._adopt(self, registered, keep)
        outcome: asyncio.Future[MemoryMap] = self._loop.create_future()

        def then(registered: int | None, exception: BaseException | None) -> None:
            if registered is None:
                outcome.set_exception(cast(BaseException, exception))
            else:
                outcome.set_result(MemoryMap._adopt(self, registered, keep))

        self._start_worker(functools.partial(self._engine.register, address, nbytes, access), then)
        stop = await _worker.wait_out(outcome)
        memory_map = outcome.result()
        if stop is not None:
            memory_map.close()
            raise stop
        return memory_map

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
        source, destination = self._side(src, "src", dst), self._side(dst, "dst", src)
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
        if sum(side.nbytes for _, side in sides if isinstance(side, PlainBuffer)) <= QUICK_PIN_BYTES:
            now = [self._mapped(name, side, self._engine.register_now) for name, side in sides]
            if now[0] is not None and now[1] is not None:
                return self.copy(now[0], now[1], tag=tag)

        future = self._reserve(source.nbytes, tag)

        def register() -> list[Buffer]:
            return [cast(Buffer, self._mapped(name, side, self._engine.register)) for name, side in sides]

        def then(buffers: list[Buffer] | None, exception: BaseException | None) -> None:
            try:
                if buffers is None:
                    raise cast(BaseException, exception)
                self._start(future, *buffers)
            except BaseException as exc:
                self._fail(future, exc)

        self._start_worker(register, then)
        return future

    def _side(self, obj: Any, argument: str, other: Any) -> PlainBuffer:
        if isinstance(obj, Buffer) and obj.closed:
            self._refuse("map_closed", argument)
        return view_of(obj, argument, other)

    def _mapped(
        self, name: str, side: Buffer | PlainBuffer, register: Callable[[int, int, int, str], int | None]
    ) -> Buffer | None:
        """Register a plain side for one copy; the copy's future holds the map, and with it the caller's export."""
        if isinstance(side, Buffer):
            return side
        registered = register(side.address, side.nbytes, side.access, name)
        return None if registered is None else MemoryMap._adopt(self, registered, side.lock)

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

    def _failure(self, future: CopyFuture, code: int, phase: int, flushed: bool, abandoned: bool, /) -> BaseException:
        """Make the exception of a copy that did not end well."""
        if abandoned and code == 0:
            return self._lost or ClosedError("the DMA was closed before this copy had reached DOCA as a whole")
        failure = _native.copy_failure(code, phase)
        error = self._engine.error(failure, cause=f"copying {future._nbytes} bytes from src to dst", tag=future.tag)
        if flushed:
            return FlushedError(
                "another copy's failure ended this one, and it was not replayed", culprit=error, tag=future.tag
            )
        return error

    def _on_clear_failed(self, code: int, /) -> None:
        """Clearing the notification failed. The drain went on all the same, so it is told and counted, no more."""
        now = self._loop.time()
        if now >= self._next_clear_warning:
            self._next_clear_warning = now + LOG_INTERVAL
            name = self._engine.library.native.error_name(code)
            _logger.warning("%s: doca_pe_clear_notification failed: %s", self.device.name, name)

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
                self._loop.call_soon(_worker.start, self._loop, self._engine.close, self._closed)
            return
        if self._lost is None:
            self._recycling = True
            _worker.start(self._loop, self._engine.recycle, self._recycled)

    def _recycled(self, changed: bool | None, exception: BaseException | None) -> None:
        self._recycling = False
        self._native.resume(recycled=exception is None)
        if exception is not None:
            self._lose(exception)
        elif changed:
            self._capabilities = self._engine.capabilities()
        if self._closing is not None:
            self._native.park()
        self._advance()

    def _advance(self) -> None:
        """Have the pump take the next step: it parks, or it is parked already."""
        if self._native.status().state >= _native.PARKED:
            self._on_parked()
        else:
            self._wake()

    def _lose(self, exception: BaseException) -> None:
        """No context could be made: what waits ends now, what comes is refused."""
        self._lost = EngineLostError(
            f"{self.device.name}: the context could not be started again",
            hint="Close this DMA and open a new one.",
        )
        self._lost.__cause__ = exception
        self._close_begin()
        self._abandon()

    # ---- closing

    async def aclose(self) -> None:
        """
        Close: refuse new copies, end the waiting ones with ``ClosedError``, wait for the engine, destroy everything.

        Idempotent; all callers wait for the same end. May be called from a copy's own task or callback.

        Raises:
            DrainTimeoutError: If the engine does not let go within ``drain_timeout``; the memory stays pinned until it
                does, and closing then goes on by itself while the loop runs.
            DocaError: If DOCA fails to undo something; further failures are notes on it. Only the first caller gets it.

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
                    f"{self.device.name} still holds {held} tasks after {self._drain_timeout} s",
                    hint="Their memory stays pinned until the engine lets go of it.",
                )
            )

    def _closed(self, errors: list[DocaError] | None, exception: BaseException | None) -> None:
        if self._drain_timer is not None:
            self._drain_timer.cancel()
        self._detach()
        if exception is None and not errors:
            self._native.free()
        closing = cast("asyncio.Future[None]", self._closing)
        if closing.done():  # timed out, and done after all
            closing.exception()
            self._closing = self._loop.create_future()
            self._closing.set_result(None)
            return
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
        if _running_loop() is not self._loop:
            self._refuse("loop")

    def _check(self) -> None:
        self._check_owner()
        if self._closing is not None or self._lost is not None:
            self._refuse("closed")


def _running_loop() -> asyncio.AbstractEventLoop | None:
    return asyncio._get_running_loop()


def _finalize(loop: asyncio.AbstractEventLoop, engine: Engine) -> None:
    loop.remove_reader(engine.channel.fd)
    engine.finalize(FINALIZE_TIMEOUT, lambda: None)


class _Reader:
    """
    The loop's reader of the notification fd.

    Weak, so that a DMA nobody holds and with nothing in flight can be collected. The loop drops it when it is closed,
    and that is how a DMA learns of it: copies still pending then will never be collected by a turn, so they must not
    keep the DMA from its finaliser.
    """

    __slots__ = ("_dma", "_loop")

    def __init__(self, dma: DMA, loop: asyncio.AbstractEventLoop) -> None:
        self._dma = ref(dma)
        self._loop = loop

    def __call__(self) -> None:
        if (dma := self._dma()) is not None:
            dma._readable()

    def __del__(self) -> None:
        if (dma := self._dma()) is not None and self._loop.is_closed():
            dma._orphan()


class open_dma(contextlib.AbstractAsyncContextManager[DMA]):
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
        WrongLoopError: If no asyncio event loop runs.

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
        self._open = functools.partial(Engine, library, device, num_tasks, window, on_flush)
        self._drain_timeout = drain_timeout
        self._dma: DMA | None = None

    async def __aenter__(self) -> DMA:
        if self._dma is not None:
            raise RuntimeError("this open_dma() was entered before")
        loop = _running_loop()
        if loop is None:
            raise WrongLoopError(
                "open_dma() needs a running asyncio event loop",
                hint="Use it in a coroutine under asyncio or uvloop; trio is not supported.",
            )
        outcome: asyncio.Future[DMA] = loop.create_future()

        def opened(engine: Engine | None, exception: BaseException | None) -> None:
            if engine is None:
                outcome.set_exception(cast(BaseException, exception))
                return
            try:
                outcome.set_result(DMA(engine, loop, self._drain_timeout))
            except BaseException as exc:
                failure = exc

                def undo() -> None:
                    if not engine.close():
                        engine.channel.free()

                _worker.start(loop, undo, lambda *_: outcome.set_exception(failure))

        _worker.start(loop, self._open, opened)
        stop = await _worker.wait_out(outcome)
        dma = outcome.result()
        if stop is not None:
            await dma.aclose()
            raise stop
        self._dma = dma
        return dma

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._dma is not None:
            await self._dma.__aexit__(exc_type, exc, traceback)
