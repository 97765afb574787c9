"""How a command ends early."""

from __future__ import annotations

import asyncio
import signal
from enum import IntEnum


class ExitCode(IntEnum):
    """What the process returns."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NO_DEVICE = 3
    INTERRUPTED = 130


class Exit(Exception):
    """
    End the command with this code; the message is that of the cause, if it has one.

    Args:
        code: What the process returns.
        message: One line for stderr.
    """

    def __init__(self, code: ExitCode, message: str = "") -> None:
        super().__init__(message)
        self.code = code


def cancel_on_signals() -> None:
    """Have SIGINT and SIGTERM cancel this task; ``main()`` then says so."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
