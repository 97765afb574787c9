"""A watchdog that counts and tells, and does nothing else: no lost wake-up is rescued by a timer."""

from __future__ import annotations

import logging
import select
from collections.abc import Callable
from typing import TYPE_CHECKING

from aiodocadma import _native
from aiodocadma._counted import counted
from aiodocadma._events import CTX_STATES, StallCause

if TYPE_CHECKING:
    import asyncio

__all__ = ["Watchdog", "stall_cause"]

logger = logging.getLogger("aiodocadma")


class Watchdog:
    """
    Looks from time to time, while DOCA holds tasks, whether anything ends.

    Args:
        loop: The DMA's.
        channel: What is watched.
        timeout: Seconds without an end that count as a stall.
        device: The device's name, for the log.
        stalled: Told when a stall begins, and when its cause changes.

    Source: aiodocadma.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        channel: _native.NativeChannel,
        timeout: float,
        device: str,
        stalled: Callable[[StallCause], None],
    ) -> None:
        self._loop = loop
        self._channel = channel
        self._timeout = timeout
        self._device = device
        self._stalled = stalled
        self._reported = 0
        self._cause: StallCause | None = None  # of the stall that is on
        self._timer: asyncio.TimerHandle | None = None
        self.hits = 0

    def start(self) -> None:
        """The channel waits for the engine."""
        self._reported = self._channel.num_reported()
        self._timer = self._loop.call_later(self._timeout, self._look)

    def stop(self) -> None:
        """Nothing is pending any more."""
        self._cause = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        reported = self._channel.num_reported()
        if reported != self._reported:
            self._cause = None
        else:
            self.hits += 1
            status = self._channel.status()
            cause = stall_cause(status, _readable(self._channel.fd))
            logger.warning(
                "%s: nothing ended for %g s: %s; %s", self._device, self._timeout, cause.text, _account(status)
            )
            if cause is not self._cause:  # one event for each stall: they must not push out what led to it
                self._cause = cause
                self._stalled(cause)
        self._reported = reported
        self._timer = self._loop.call_later(self._timeout, self._look)


def _readable(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


def stall_cause(status: _native.ChannelStatus, readable: bool) -> StallCause:
    """
    Say why pending copies do not end.

    Args:
        status: The channel's own account.
        readable: Whether the notification fd is, although the loop had its chance to read it.

    Returns:
        The cause.

    Source: aiodocadma.
    """
    if status.state == _native.FAILING:
        return StallCause.RESTARTING
    if status.in_flight == 0:
        return StallCause.REFUSED if status.state == _native.RUNNING else StallCause.RECYCLING
    if not status.armed:
        return StallCause.NOT_ARMED
    if readable:
        return StallCause.READER_MISSING
    return StallCause.WINDOW_FULL if status.in_flight >= status.window else StallCause.ENGINE_SILENT


def _account(status: _native.ChannelStatus) -> str:
    history = ", ".join(f"{CTX_STATES[step >> 4]} to {CTX_STATES[step & 15]}" for step in status.transitions if step)
    return (
        f"{status.in_flight} of {status.window} tasks in flight, {counted(status.waiting, 'copy', 'copies')} waiting; "
        f"context: {history or 'no transition'}"
    )
