"""
The life of a DMA: its context is made anew after a fault and for the memory of closed maps, is lost, or is closed.

Closing is a state that the pump advances, never a task:

    open -- close(): refuse, abandon, park --> draining -- parked, nothing registering --> reader removed
         --> native close in a worker --> closed

    open -- a fault, or park() --> parked -- recycled in a worker --> open
                                          -- that fails, or too many faults in a row --> lost -- close() --> draining
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from aiodocadma import _native, _worker
from aiodocadma._counted import counted
from aiodocadma.exceptions import (
    AiodocadmaError,
    ClosedError,
    DocaError,
    DrainTimeoutError,
    EngineLostError,
    InternalError,
)

if TYPE_CHECKING:
    from aiodocadma._engine import Engine
    from aiodocadma._events import Recorder
    from aiodocadma._native import Channel

__all__ = ["Life"]

logger = logging.getLogger("aiodocadma")

MAX_FAULTS_IN_A_ROW: Final = 64  # without one completed task between them, then the engine is lost
FINALIZE_TIMEOUT: Final = 0.25  # seconds a DMA that was dropped open waits for the engine


class Life:
    """
    What becomes of one DMA.

    Args:
        channel: The DMA.
        engine: Its opened device.
        loop: Its loop.
        recorder: Told of what happens.
        drain_timeout: Seconds that a restart and closing wait for the engine to let go.
        busy: Whether something runs beside the channel that closing waits for; ``advance()`` is to be called then.
        dismiss: Called when nothing is taken any more: whoever waits is to be refused.
        recycled: Called with whether the capabilities changed, when the context was made anew.
        closed: Called when all is destroyed, whether that failed or not.

    Source: ``doca_ctx_start``, ``doca_ctx_stop``; DOCA DMA guide, on what follows a failed task.
    """

    def __init__(
        self,
        channel: Channel,
        engine: Engine,
        loop: asyncio.AbstractEventLoop,
        recorder: Recorder,
        drain_timeout: float,
        *,
        busy: Callable[[], bool],
        dismiss: Callable[[], None],
        recycled: Callable[[bool], None],
        closed: Callable[[], None],
    ) -> None:
        self._channel = channel
        self._engine = engine
        self._native = engine.channel
        self._loop = loop
        self._recorder = recorder
        self._drain_timeout = drain_timeout
        self._busy = busy
        self._dismiss = dismiss
        self._on_recycled = recycled
        self._on_closed = closed
        self._recycling = False
        self._lost: BaseException | None = None  # why
        self._closing: asyncio.Future[None] | None = None
        self._close_failure_told = False
        self._leaving = False  # native closing begins in the next turn, if there is one
        self._hands_off = False  # native closing has begun, or is not ours to do
        self._fault_timer: asyncio.TimerHandle | None = None

    @property
    def closing(self) -> bool:
        """Whether closing has begun."""
        return self._closing is not None

    @property
    def lost(self) -> bool:
        """Whether there is no working context any more."""
        return self._lost is not None

    @property
    def over(self) -> bool:
        """Whether nothing is taken any more."""
        return self._closing is not None or self._lost is not None

    @property
    def hands_off(self) -> bool:
        """Whether the engine is closed, is being closed, or is somebody else's to close."""
        return self._hands_off

    def disown(self) -> None:
        """Leave the engine to somebody else: he closes it."""
        self._hands_off = True

    def error(self) -> AiodocadmaError:
        """Make the exception for who comes when it is over."""
        if self._lost is None:
            return ClosedError("the DMA is closed")
        error = EngineLostError(
            f"{self._engine.device.name}: the context could not be started again",
            hint="Close this DMA and open a new one.",
        )
        error.__cause__ = self._lost
        return error

    # ---- made anew

    def park(self) -> None:
        """Have the context made anew as soon as DOCA holds nothing."""
        self._native.park()
        self.advance()

    def advance(self) -> None:
        """Have the pump take the next step: it parks, or it is parked already."""
        if self._native.status().state >= _native.PARKED:
            self.parked()
        else:
            self._channel._wake()

    def fault(self) -> None:
        """A task failed and DOCA flushes the others: the context must become idle within ``drain_timeout``."""
        logger.warning("%s: a task failed, the context restarts", self._engine.device.name)
        self._fault_timer = self._loop.call_later(self._drain_timeout, self._fault_too_long)

    def _fault_too_long(self) -> None:
        name = self._engine.device.name
        self._lose(DrainTimeoutError(f"{name} did not become idle within {self._drain_timeout} s"))
        for future in self._channel._futures():
            if future._segments:  # the others end by themselves
                self._channel._give_up(future, self.error())

    def parked(self) -> None:
        """DOCA holds nothing and the pump stays away: close, or make a fresh context."""
        if self._recycling or self._leaving or self._hands_off:
            return
        if self._fault_timer is not None:
            self._fault_timer.cancel()
            self._fault_timer = None
        if self._closing is not None:
            if not self._busy():
                self._close_native()
            return
        if self._lost is not None:
            return
        if self._native.status().faults_in_a_row > MAX_FAULTS_IN_A_ROW:
            self._native.resume(recycled=False)
            self._lose(InternalError(f"{MAX_FAULTS_IN_A_ROW} faults without one completed task between them"))
            return
        self._recycling = True
        _worker.finish(self._loop, self._engine.recycle, self._recycled)

    def _recycled(self, changed: bool | None, exception: BaseException | None) -> None:
        self._recycling = False
        self._native.resume(recycled=exception is None)
        self._recorder.publish()
        if exception is not None:
            self._lose(exception)
        else:
            self._on_recycled(bool(changed))
        if self._closing is not None:
            self._native.park()
        self.advance()

    def _lose(self, cause: BaseException) -> None:
        """There is no working context any more: what waits ends now, what comes is refused."""
        if self._lost is None:
            self._lost = cause
            logger.error("%s: the engine is lost: %s", self._engine.device.name, cause)
            self._recorder.lost(getattr(cause, "code", None) or 0)
        self._refuse_all()

    def _refuse_all(self) -> None:
        self._channel._close_begin()
        self._channel._abandon()
        self._dismiss()

    # ---- closed

    # asyncio.timeout() around it could not end it: it waits through cancels.
    async def close(self, timeout: float | None) -> None:  # noqa: ASYNC109
        """See ``DMA.aclose()``."""
        if timeout is None:
            timeout = self._drain_timeout
        elif not timeout >= 0:  # nor NaN
            raise ValueError(f"timeout must not be negative, not {timeout}")
        closing = self._closing or self._begin_closing()
        stop = await _worker.wait_out(closing, timeout)
        if not closing.done():
            held = self._native.status().in_flight
            raise DrainTimeoutError(
                f"{self._engine.device.name} still holds {counted(held, 'task')} after {timeout} s",
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
        self._refuse_all()
        self.park()
        return self._closing

    def _close_native(self) -> None:
        # What was flushed since closing began is not replayed. The turn that ends it precedes the close.
        self._channel._abandon()
        self._loop.remove_reader(self._native.fd)
        # A turn later: the loop must have forgotten the fd before it is closed.
        self._leaving = True
        self._loop.call_soon(self._close_in_worker)

    def _close_in_worker(self) -> None:
        self._hands_off = True
        _worker.finish(self._loop, self._engine.close, self._closed)

    def _closed(self, errors: list[DocaError] | None, exception: BaseException | None) -> None:
        self._channel._detach()
        self._on_closed()
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

    # ---- dropped

    def drop(self, *, in_thread_of_loop: bool) -> None:
        """
        The DMA was dropped open: give back what can be given back without waiting long.

        Args:
            in_thread_of_loop: Whether the caller is in the loop's thread.

        Source: aiodocadma.
        """
        self._hands_off = True
        if self._loop.is_closed():
            # Copies may be pending: those that end now let go of their memory.
            self._engine.finalize(FINALIZE_TIMEOUT, self._channel._detach)
        elif in_thread_of_loop:
            self._channel._detach()
            _finalize(self._loop, self._engine)
        else:
            self._channel._detach()
            # Only the loop's thread may take the reader away; if the loop dies first, all is leaked.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_finalize, self._loop, self._engine)


def _finalize(loop: asyncio.AbstractEventLoop, engine: Engine) -> None:
    """Give back the engine of a DMA that is no more; in the loop's thread."""
    loop.remove_reader(engine.channel.fd)
    engine.library.sdk_log.detach(loop)
    engine.finalize(FINALIZE_TIMEOUT, lambda: None)
