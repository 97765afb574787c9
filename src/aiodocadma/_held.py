"""Cancelled copies that the engine still has: how long each may take to let go."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import ref

if TYPE_CHECKING:
    from aiodocadma._native import CopyFuture

__all__ = ["HeldCopies"]


class HeldCopies:
    """
    Gives a cancelled copy up when the engine holds it too long; its memory stays pinned all the same.

    One timer for all, and none while there is nothing to wait for.

    Args:
        loop: The DMA's.
        timeout: Seconds a copy has from its cancellation.
        give_up: Called with a future that is not done by then.

    Source: aiodocadma.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout: float, give_up: Callable[[CopyFuture], None]) -> None:
        self._loop = loop
        self._timeout = timeout
        self._give_up = give_up
        self._copies: deque[tuple[float, ref[CopyFuture]]] = deque()  # in the order of their deadlines
        self._timer: asyncio.TimerHandle | None = None

    def add(self, future: CopyFuture) -> None:
        """Watch a copy that was just cancelled."""
        self._copies.append((self._loop.time() + self._timeout, ref(future)))
        if self._timer is None:
            self._timer = self._loop.call_later(self._timeout, self._look)

    def clear(self) -> None:
        """The engine holds nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._copies.clear()

    def _look(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._copies:
            deadline, copy = self._copies[0]
            future = copy()
            if future is not None and not future.done():
                if deadline > now:
                    self._timer = self._loop.call_at(deadline, self._look)
                    return
                self._give_up(future)
            self._copies.popleft()
