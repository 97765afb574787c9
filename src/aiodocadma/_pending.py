"""The copies that are under way, and who waits for them."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from aiodocadma import _native
from aiodocadma._native import CopyFuture

__all__ = ["PendingCopy", "pending_copies"]


@dataclasses.dataclass(frozen=True, slots=True)
class PendingCopy:
    """
    A copy that was started and has not ended.

    Args:
        state: ``registering`` (its memory), ``waiting`` (DOCA has nothing of it), ``in flight``, ``cancelling``: what
            DOCA has of it is waited for, or ``failing``: it is, and the cause is looked for.
        nbytes: Bytes of all of it.
        bytes_done: Of them, what the engine has written.
        segments: Tasks that DOCA holds, or that wait for their replay.
        age: Seconds since it was started, to a turn of the loop.
        tag: As given to ``copy()``.
        tasks: Which tasks await it: directly, or through ``gather``, ``wait``, ``shield`` or ``wait_for``.

    Source: aiodocadma.
    """

    state: Literal["registering", "waiting", "in flight", "cancelling", "failing"]
    nbytes: int
    bytes_done: int
    segments: int
    age: float
    tag: object
    tasks: tuple[asyncio.Task[Any], ...]


def pending_copies(loop: asyncio.AbstractEventLoop, futures: Iterable[CopyFuture]) -> tuple[PendingCopy, ...]:
    """
    Describe copies.

    Args:
        loop: Whose tasks may await them.
        futures: The copies.

    Returns:
        One description for each.

    Source: aiodocadma.
    """
    tasks = _awaited(loop)
    now = _native.now()
    found = []
    for future in futures:
        waiting = {
            task: None for waiter in (future, *_futures_behind(future._waiters)) for task in tasks.get(id(waiter), ())
        }
        found.append(
            PendingCopy(
                future._stage,
                future._nbytes,
                future.bytes_done,
                future._segments,
                max(0.0, now - _native.started(future)),
                future.tag,
                tuple(waiting),
            )
        )
    return tuple(found)


def _awaited(loop: asyncio.AbstractEventLoop) -> dict[int, list[asyncio.Task[Any]]]:
    """The tasks that wait for a future, or for a gather() with it, by the future's id."""
    found: dict[int, list[asyncio.Task[Any]]] = {}
    for task in asyncio.all_tasks(loop):
        futures = [getattr(task, "_fut_waiter", None)]
        while futures:
            future = futures.pop()
            if future is not None:
                found.setdefault(id(future), []).append(task)
                futures.extend(getattr(future, "_children", ()))  # of gather()
    return found


def _futures_behind(callbacks: Iterable[Any]) -> Iterator[Any]:
    """The futures of tasks, and those that a callback of asyncio's own completes: wait(), shield(), wait_for()."""
    for callback in callbacks:
        yield callback
        args = callback.args if isinstance(callback, functools.partial) else ()
        for held in (*args, *_cells(callback)):
            if asyncio.isfuture(held):
                yield held


def _cells(function: Any) -> Iterator[Any]:
    for cell in getattr(function, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:  # empty
            continue
