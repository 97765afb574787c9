"""A watchdog that counts and tells, and does nothing else: no lost wake-up is rescued by a timer."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from aiodocadma import _native

if TYPE_CHECKING:
    import asyncio

__all__ = ["Watchdog"]

logger = logging.getLogger("aiodocadma")

_CTX_STATES: Final = ("IDLE", "STARTING", "RUNNING", "STOPPING")
_CHANNEL_STATES: Final = ("RUNNING", "FAILING", "DRAINING", "PARKED", "LOST", "CLOSED")


class Watchdog:
    """
    Looks from time to time, while DOCA holds tasks, whether anything ends.

    Args:
        loop: The DMA's.
        channel: What is watched.
        timeout: Seconds without an end that count as a stall.
        device: The device's name, for the log.

    Source: aiodocadma.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, channel: _native.NativeChannel, timeout: float, device: str
    ) -> None:
        self._loop = loop
        self._channel = channel
        self._timeout = timeout
        self._device = device
        self._reported = 0
        self._timer: asyncio.TimerHandle | None = None
        self.hits = 0

    def start(self) -> None:
        """The channel waits for the engine."""
        self._reported = self._channel.num_reported()
        self._timer = self._loop.call_later(self._timeout, self._look)

    def stop(self) -> None:
        """Nothing is pending any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        reported = self._channel.num_reported()
        if reported == self._reported:
            self.hits += 1
            logger.warning(
                "%s: nothing ended for %g s: %s", self._device, self._timeout, name_cause(self._channel.status())
            )
        self._reported = reported
        self._timer = self._loop.call_later(self._timeout, self._look)


def name_cause(status: _native.ChannelStatus) -> str:
    """
    Say why pending copies do not end.

    Args:
        status: The channel's own account.

    Returns:
        The cause, what DOCA holds, and the context's last transitions.

    Source: aiodocadma.
    """
    if status.state != _native.RUNNING:
        cause = f"the channel is {_CHANNEL_STATES[status.state]}, not RUNNING"
    elif status.in_flight == 0:
        cause = "DOCA refuses tasks although it holds none"
    elif not status.armed:
        cause = "no notification is armed"
    elif status.in_flight >= status.window:
        cause = "the window is full and the engine silent"
    else:
        cause = "the engine is silent"
    history = ", ".join(f"{_CTX_STATES[step >> 4]} to {_CTX_STATES[step & 15]}" for step in status.transitions if step)
    return (
        f"{cause}; {status.in_flight} of {status.window} tasks in flight, {status.waiting} copies waiting; "
        f"context: {history or 'no transition'}"
    )
