"""
Who waits for the engine to take more: producers in ``submit()``.

Two queues. For room, while ``max_waiting`` copies wait: woken in order, one for each place that became free. For the
engine to begin with a copy that was started: DOCA takes copies in order, so only the first not begun is looked at. A
copy whose memory is being registered comes into that queue afterwards.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from aiodocadma import _worker

if TYPE_CHECKING:
    from aiodocadma._native import CopyFuture

__all__ = ["Admission", "wake"]

_Begin: TypeAlias = "tuple[CopyFuture, asyncio.Future[None]]"


def wake(waiter: asyncio.Future[None]) -> bool:
    """
    End a wait.

    Args:
        waiter: The future of who waits.

    Returns:
        Whether there still was somebody to wake.

    Source: aiodocadma.
    """
    if waiter.done():
        return False
    waiter.set_result(None)
    return True


class Admission:
    """
    The two queues of one DMA.

    Args:
        loop: The DMA's.
        room: Places left for waiting copies.
        want_turns: Told whether ``after_turn()`` is to be called after each turn.

    Source: aiodocadma.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, room: Callable[[], int], want_turns: Callable[[bool], None]
    ) -> None:
        self._loop = loop
        self._room = room
        self._want_turns = want_turns
        self._for_room: deque[asyncio.Future[None]] = deque()
        self._for_begin: deque[_Begin] = deque()
        self._for_memory: deque[_Begin] = deque()

    async def room(self) -> None:
        """
        Wait in line until one more copy may wait.

        Cancellation: Raises at once; the place goes to the next in line.
        Source: aiodocadma.
        """
        first = True
        while self._room() <= 0 or (first and self._for_room):
            waiter = self._loop.create_future()
            # Who was woken and found no room goes to the front again.
            (self._for_room.append if first else self._for_room.appendleft)(waiter)
            first = False
            self._want_turns(True)
            try:
                await waiter
            except asyncio.CancelledError:
                if not waiter.cancelled():
                    self.after_turn()
                elif waiter in self._for_room:  # else passed over, when room came before we could leave the line
                    self._for_room.remove(waiter)
                raise

    async def begun(self, future: CopyFuture) -> None:
        """
        Wait until DOCA has begun with a copy.

        Args:
            future: A started one.

        Cancellation: Withdraws the copy, waits for the engine to let go of what it has, then raises.
        Source: ``doca_task_submit``.
        """
        if future._admitted:
            return
        waiter = self._loop.create_future()
        self._await_begin((future, waiter))
        self._want_turns(True)
        try:
            await waiter
        except asyncio.CancelledError:
            future.cancel()
            await _worker.wait_out(future)
            if not future.cancelled():
                future.exception()  # seen: the cancellation is what the caller gets
            raise

    def _await_begin(self, begin: _Begin) -> None:
        (self._for_memory if begin[0]._stage == "registering" else self._for_begin).append(begin)

    def after_turn(self) -> None:
        """DOCA may have begun with waiting copies, memory may be registered, and there may be room for more."""
        for _ in range(len(self._for_memory)):
            self._await_begin(self._for_memory.popleft())
        # Who was cancelled meanwhile does not wait any more.
        while self._for_begin and (self._for_begin[0][0]._admitted or self._for_begin[0][1].done()):
            wake(self._for_begin.popleft()[1])
        room = self._room() if self._for_room else 0
        while self._for_room and room > 0:
            room -= wake(self._for_room.popleft())
        self._want_turns(bool(self._for_begin or self._for_room))

    def dismiss(self) -> None:
        """The DMA takes nothing more: have those that wait for room try, and be refused."""
        while self._for_room:
            wake(self._for_room.popleft())
