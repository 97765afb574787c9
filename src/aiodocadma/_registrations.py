"""
Registrations under way: in worker threads, and again when there was too little lockable memory.

One that fails for lack of memory waits in a line. Memory is unlocked by evicting idle registrations from the cache, and
by making the context anew, which lets go of closed maps. If there is nothing of the kind, copies under way may leave
some: the first in line waits until as many copies have ended as had been started when it failed. New ones wait behind.

    run() --> trying --> ended
               |  ^
     no memory v  | recycled(), after_turn()
              line --- dismiss(): the DMA closes, or is lost; withdraw() --> ended
"""

from __future__ import annotations

import asyncio
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from aiodocadma import _worker
from aiodocadma._admission import wake

__all__ = ["Registration", "Registrations"]


class Registration(NamedTuple):
    """What is to be registered, and who is told of it."""

    function: Callable[[], Any]
    then: Callable[[Any, BaseException | None], None]


class Registrations:
    """
    The registrations of one DMA that run, or wait to be tried again.

    Args:
        loop: The DMA's.
        is_short: Whether an exception means that there is too little lockable memory.
        idle: How many registrations are kept.
        evict: Drops the idle ones of them; returns how many.
        buried: Bytes of closed maps that stay registered until the context is made anew.
        copies: Copies started so far, and ended so far.
        recycle: Has the context made anew; ``recycled()`` is to be called when it is.
        want_turns: Told whether ``after_turn()`` is to be called after each turn.
        ended: Called when one has ended.

    Source: aiodocadma.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        is_short: Callable[[BaseException], bool],
        idle: Callable[[], int],
        evict: Callable[[], int],
        buried: Callable[[], int],
        copies: Callable[[], tuple[int, int]],
        recycle: Callable[[], None],
        want_turns: Callable[[bool], None],
        ended: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._is_short = is_short
        self._idle = idle
        self._evict = evict
        self._buried = buried
        self._copies = copies
        self._recycle = recycle
        self._want_turns = want_turns
        self._on_ended = ended
        self._num = 0
        self._waiters: list[asyncio.Future[None]] = []
        self._line: deque[Registration] = deque()
        self._retrying: Registration | None = None
        self._recycling = False
        self._patience: int | None = None  # copies that may end before the first in line gives up
        self._refusal: Callable[[], BaseException] | None = None  # once dismissed

    def __len__(self) -> int:
        return self._num

    @property
    def short_of_memory(self) -> bool:
        """Whether some wait for memory: whoever comes now has to wait behind them."""
        return bool(self._line) or self._retrying is not None

    def can_wait(self) -> bool:
        """Whether there is anything that may leave memory: idle registrations, closed maps, copies under way."""
        started, ended = self._copies()
        return self.short_of_memory or started > ended or bool(self._idle() or self._buried())

    def run(self, function: Callable[[], Any], then: Callable[[Any, BaseException | None], None]) -> Registration:
        """
        Register something; closing waits for it.

        Args:
            function: Run in a worker; again if memory was short.
            then: Called in the loop with the result or the exception.

        Returns:
            For ``withdraw()``.

        Raises:
            RuntimeError: If no thread can be had; ``then`` is not called.

        Source: aiodocadma.
        """
        registration = Registration(function, then)
        if self.short_of_memory:
            self._line.append(registration)
        else:
            self._start(registration)
        self._num += 1
        return registration

    def withdraw(self, registration: Registration) -> bool:
        """
        Nobody wants it any more: it ends if it waits in the line.

        Args:
            registration: From ``run()``.

        Returns:
            False if it is being tried, or has ended.

        Source: aiodocadma.
        """
        if registration not in self._line:
            return False
        self._line.remove(registration)
        self._end(registration, None, asyncio.CancelledError())
        self._want_turns(bool(self._line) and self._retrying is None and not self._recycling)
        return True

    async def ended(self) -> None:
        """
        Wait until one has ended.

        Cancellation: Raises at once.
        Source: aiodocadma.
        """
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def recycled(self) -> None:
        """A context was made anew: what closed maps had locked is free."""
        if self._recycling:
            self._recycling = False
            self._retry()

    def after_turn(self) -> None:
        """Copies may have ended."""
        if self._line and self._retrying is None and not self._recycling:
            if self._buried():
                self._make_anew()
            elif self._copies()[1] >= (self._patience or 0):
                self._retry()

    def dismiss(self, error: Callable[[], BaseException]) -> None:
        """The DMA takes nothing more: those in line end with an error."""
        self._refusal = error
        line, self._line = self._line, deque()
        self._recycling = False
        self._want_turns(False)
        for registration in line:
            self._end(registration, None, error())

    def _start(self, registration: Registration) -> None:
        def ended(result: Any, exception: BaseException | None) -> None:
            if exception is not None and self._is_short(exception):
                traceback.clear_frames(exception.__traceback__)  # they hold what was to be registered
                if self._refusal is not None:
                    exception = self._refusal()
                elif self._wait(registration):
                    return
            self._end(registration, result, exception)

        _worker.start(self._loop, registration.function, ended)

    def _end(self, registration: Registration, result: Any, exception: BaseException | None) -> None:
        self._num -= 1
        if registration is self._retrying:
            self._retrying = None
        try:
            registration.then(result, exception)
        finally:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                wake(waiter)
            if self._line and self._retrying is None and not self._recycling:
                self._patience = None
                self._retry()
            self._on_ended()

    def _wait(self, registration: Registration) -> bool:
        """Put one that found no memory into the line; False if there is nothing to wait for."""
        if registration is self._retrying:
            self._retrying = None
        elif self.short_of_memory:
            self._line.append(registration)
            return True
        else:
            self._patience = None
        if self._evict() or self._buried():
            self._line.appendleft(registration)
            self._make_anew()
            return True
        started, ended = self._copies()
        if self._patience is None:
            self._patience = started
        if ended < self._patience:
            self._line.appendleft(registration)
            self._want_turns(True)
            return True
        return False

    def _make_anew(self) -> None:
        self._want_turns(False)
        self._recycling = True
        self._recycle()

    def _retry(self) -> None:
        self._want_turns(False)
        if self._line:
            self._retrying = self._line.popleft()
            try:
                self._start(self._retrying)
            except RuntimeError as exc:  # no thread can be had
                self._end(self._retrying, None, exc)
