"""
Blocking native calls, away from the loop.

A thread per call, not a pool: these calls are rare, and an idle client owns no Python thread (a pool's idle threads
would outlive the call).
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["call", "finish", "start", "wait_out", "within"]

T = TypeVar("T")
P = ParamSpec("P")


def start(
    loop: asyncio.AbstractEventLoop, function: Callable[[], T], then: Callable[[T | None, BaseException | None], None]
) -> None:
    """
    Run ``function`` in a thread, then call ``then(result, exception)`` in the loop.

    Args:
        loop: The loop; if it is closed by then, ``then`` is not called.
        function: May block; its exception is passed on.
        then: Called in the loop's thread, after the worker thread has ended.

    Raises:
        RuntimeError: If no thread can be had; ``then`` is not called.

    Source: aiodocadma.
    """

    def run() -> None:
        # Not kept here: the exception's frames know this one, which would keep what they hold.
        with contextlib.suppress(RuntimeError):  # the loop was closed
            loop.call_soon_threadsafe(ended, *_outcome(function))

    def ended(result: T | None, exception: BaseException | None) -> None:
        thread.join()  # at its last instruction: nobody ever sees the thread outlive its call
        then(result, exception)

    thread = threading.Thread(target=run, name="aiodocadma-worker", daemon=True)
    _start(thread)


def finish(
    loop: asyncio.AbstractEventLoop, function: Callable[[], T], then: Callable[[T | None, BaseException | None], None]
) -> None:
    """
    As ``start()``, for what has to be done: where no thread can be had, the loop waits for it.

    Args:
        loop: As for ``start()``; it runs in this thread.
        function: As for ``start()``.
        then: As for ``start()``.

    Source: aiodocadma.
    """
    try:
        start(loop, function, then)
    except RuntimeError:
        loop.call_soon(then, *_outcome(function))


def _start(thread: threading.Thread) -> None:
    try:
        thread.start()
    except MemoryError as exc:  # Python's answer where a lock or its own record cannot be had
        raise RuntimeError("no memory for a thread") from exc


def _outcome(function: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    try:
        return function(), None
    except BaseException as exc:
        return None, exc


def within(seconds: float, function: Callable[[], T]) -> T | None:
    """
    Run ``function`` in another thread, but wait no longer than that: for a thread that must not hang with it.

    Args:
        seconds: How long to wait; a call that takes longer goes on, and its outcome is lost.
        function: May block; may raise.

    Returns:
        Its result, or None if there was none in time.

    Raises:
        BaseException: What it raises in time.
        RuntimeError: If no thread can be had.

    Source: aiodocadma.
    """
    outcome: list[tuple[T | None, BaseException | None]] = []

    def run() -> None:
        outcome.append(_outcome(function))

    thread = threading.Thread(target=run, name="aiodocadma-evidence", daemon=True)
    _start(thread)
    thread.join(seconds)
    if not outcome:
        return None
    result, exception = outcome[0]
    if exception is not None:
        raise exception
    return result


async def call(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """
    Run a blocking call in a thread and await its end.

    Args:
        function: The call.
        args: For it.
        kwargs: For it.

    Returns:
        What it returns.

    Raises:
        BaseException: What it raises.

    Cancellation: Waits for the call to end, then raises, unless the call failed: then that is raised. The result of a
        cancelled call is lost, so a caller that must undo it uses ``start()`` and ``wait_out()``.
    Source: aiodocadma.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def then(result: T | None, exception: BaseException | None) -> None:
        if exception is not None:
            future.set_exception(exception)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    start(loop, lambda: function(*args, **kwargs), then)
    stop = await wait_out(future)
    result = future.result()
    if stop is not None:
        raise stop
    return result


async def wait_out(
    future: asyncio.Future[T],
    timeout: float | None = None,  # noqa: ASYNC109 - it waits through the cancels of asyncio.timeout()
) -> asyncio.CancelledError | None:
    """
    Wait until a future is done, through any number of cancellations.

    Args:
        future: Never cancelled by this.
        timeout: Seconds after which the wait is given up; None for never.

    Returns:
        The last cancellation that arrived meanwhile, for the caller to raise, or None.

    Cancellation: Absorbed. Inside a cancelled anyio scope it waits shielded, since anyio delivers anew in every turn.
    Source: aiodocadma.
    """
    stop: asyncio.CancelledError | None = None
    shield = None
    loop = future.get_loop()
    end = None if timeout is None else loop.time() + timeout
    left = None
    try:
        while not future.done() and (left is None or left > 0):
            try:
                if end is not None:
                    left = end - loop.time()
                await asyncio.wait([future], timeout=left)
            except asyncio.CancelledError as exc:
                again, stop = stop is not None, exc
                anyio = sys.modules.get("anyio")
                if again and shield is None and anyio is not None:
                    shield = anyio.CancelScope(shield=True)
                    shield.__enter__()
    finally:
        if shield is not None:
            shield.__exit__(None, None, None)
    return stop
