# SPDX-License-Identifier: Apache-2.0
"""
A pure-Python model of ``CopyFuture``: what the C type must do, written to be read.

A copy has two ends. At its native end the engine has let go of both sides; at its end, never earlier, the future is
done. In between lies the wait for its cohort: copies cancelled in one turn of the loop end together.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Callable, Generator
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")


class Cohort:
    """Copies cancelled in one turn of the loop: they end when each has had its native end and the turn is over."""

    def __init__(self) -> None:
        self.remaining = 1  # the turn itself
        self.held: list[ModelFuture[Any]] = []

    def release(self) -> None:
        """Count one member, or the turn, as over; the last one ends them all."""
        self.remaining -= 1
        if self.remaining == 0:
            for future in self.held:
                future._end("cancelled")


class ModelChannel:
    """What the futures of one loop share: the cohort of the current turn."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.cohort: Cohort | None = None

    def join(self) -> Cohort:
        """The cohort of this turn of the loop, with one member more."""
        if self.cohort is None:
            self.cohort = Cohort()
            self.loop.call_soon(self._settle)
        self.cohort.remaining += 1
        return self.cohort

    def _settle(self) -> None:
        cohort, self.cohort = self.cohort, None
        assert cohort is not None
        cohort.release()


class ModelFuture(Generic[T]):
    """One copy; ``native_end`` stands for the engine."""

    _asyncio_future_blocking = False

    def __init__(self, channel: ModelChannel, length: int) -> None:
        self._channel = channel
        self._length = length
        self._state = "pending"
        self._error: BaseException | None = None
        self._unseen = False
        self._cancel_message: Any = None
        self._cohort: Cohort | None = None
        self._asked = False
        self._callbacks: list[tuple[Any, contextvars.Context | None]] = []
        self.in_flight = True

    def native_end(self, error: BaseException | None = None) -> None:
        """The engine lets go: with the whole length copied, or with an error."""
        assert self.in_flight
        self.in_flight = False
        self._error = error
        if self._asked:
            assert self._cohort is not None
            self._cohort.held.append(self)
            self._cohort.release()
        else:
            self._end("finished" if error is None else "failed")

    def _end(self, state: str) -> None:
        self._state = state
        self._unseen = state == "failed"
        callbacks, self._callbacks = self._callbacks, []
        for callback, context in callbacks:
            if context is not None:
                self._channel.loop.call_soon(callback, self, context=context)
            elif not callback.done():
                callback.set_result(None)

    def __del__(self) -> None:
        loop = self._channel.loop
        if self._unseen and not loop.is_closed():
            message = "CopyFuture exception was never retrieved"
            loop.call_exception_handler({"message": message, "exception": self._error})

    def __repr__(self) -> str:
        return f"<CopyFuture {self._state} {self._length} bytes>"

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop it belongs to."""
        return self._channel.loop

    def done(self) -> bool:
        """Whether it has ended."""
        return self._state != "pending"

    def cancelled(self) -> bool:
        """Whether it has ended as cancelled."""
        return self._state == "cancelled"

    def result(self) -> int:
        """The length, or the exception raised."""
        if self._state == "pending":
            raise asyncio.InvalidStateError("Result is not set.")
        if self._state == "cancelled":
            raise self._make_cancelled_error()
        if self._error is not None:
            self._unseen = False
            raise self._error.with_traceback(None)
        return self._length

    def exception(self) -> BaseException | None:
        """Why it failed."""
        if self._state == "pending":
            raise asyncio.InvalidStateError("Exception is not set.")
        if self._state == "cancelled":
            raise self._make_cancelled_error()
        self._unseen = False
        return self._error

    def add_done_callback(self, fn: Callable[[Any], object], *, context: contextvars.Context | None = None) -> None:
        """Have ``fn(self)`` called by the loop at the end."""
        context = context if context is not None else contextvars.copy_context()
        if self.done():
            self._channel.loop.call_soon(fn, self, context=context)
        else:
            self._callbacks.append((fn, context))

    def remove_done_callback(self, fn: Callable[[Any], object]) -> int:
        """Take back every ``add_done_callback(fn)``."""
        equal = [entry for entry in self._callbacks if entry[1] is not None and entry[0] == fn]
        for entry in equal:
            self._callbacks.remove(entry)
        return len(equal)

    def cancel(self, msg: Any = None) -> bool:
        """Ask for the end; the first message is kept."""
        if self.done():
            return False
        if not self._asked:
            self._asked = True
            self._cancel_message = msg
            self._cohort = self._channel.join()
        return True

    def _make_cancelled_error(self) -> asyncio.CancelledError:
        message = self._cancel_message
        error = asyncio.CancelledError() if message is None else asyncio.CancelledError(message)
        error.__context__ = self._error
        return error

    def __await__(self) -> Generator[Any, None, int]:
        stop: asyncio.CancelledError | None = None
        scope: Any = None
        try:
            while not self.done():
                waiter: asyncio.Future[None] = asyncio.Future(loop=self._channel.loop)
                self._callbacks.append((waiter, None))
                try:
                    yield from waiter
                except asyncio.CancelledError as error:
                    again, stop = stop is not None, error
                    self.cancel(*error.args[:1])
                    if again and scope is None and not self.done() and "anyio" in sys.modules:
                        scope = sys.modules["anyio"].CancelScope(shield=True)
                        scope.__enter__()
                except BaseException:
                    self.cancel()
                    raise
                finally:
                    self._callbacks = [entry for entry in self._callbacks if entry[0] is not waiter]
        finally:
            if scope is not None:
                scope.__exit__(None, None, None)
        if stop is not None:
            if self._error is not None:
                self._unseen = False
                stop.__context__ = self._error
            raise stop
        return self.result()

    __iter__ = __await__


class ModelCopies:
    """Copies of the model, for the loop it is entered in; ``real_copies`` is the same for the C type."""

    _channel: ModelChannel

    async def __aenter__(self) -> Self:
        self._channel = ModelChannel(asyncio.get_running_loop())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        pass

    def start(self, length: int = 64) -> Any:
        """A copy that the engine holds until told."""
        return ModelFuture[int](self._channel, length)

    def finish(self, future: Any) -> None:
        """Let the engine finish a copy."""
        future.native_end()

    def fail(self, future: Any, exc: BaseException) -> None:
        """Let the engine fail a copy."""
        future.native_end(exc)
