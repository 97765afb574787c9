"""
DOCA's own log: its latest lines in memory, and, if somebody asks for it, in the logger ``aiodocadma.sdk``.

DOCA writes from inside its calls, some of which are made with the GIL held. So the other side is C only (``log.c``): a
pipe that never blocks and drops what does not fit. It is emptied by the loop of an open DMA when lines arrive, and by
whoever wants to know what was said; no thread waits for it.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import fcntl
import logging
import os
import re
import threading
import weakref
from typing import Final

from aiodocadma import _native
from aiodocadma._causes import Log
from aiodocadma._counted import counted

__all__ = ["ENVIRONMENT_VARIABLES", "LEVELS", "SdkLog", "number_of_level", "set_sdk_log_level"]

logger = logging.getLogger("aiodocadma.sdk")

ENVIRONMENT_VARIABLES: Final = ("DOCA_LOG_LEVEL_SDK", "DOCA_LOG_LEVEL")  # the first that is set counts
KEPT_LINES: Final = 200
KEPT_LEVEL: Final = 40  # WARNING: what is kept, for the evidence of failures, although nobody asked for it
PIPE_BYTES: Final = 64 * 1024

# enum doca_log_level: the lower, the more severe.
LEVELS: Final = {"DISABLE": 10, "CRIT": 20, "ERROR": 30, "WARNING": 40, "INFO": 50, "DEBUG": 60, "TRACE": 70}
_ALIASES: Final = {"OFF": 10, "CRITICAL": 20, "ERR": 30, "WARN": 40, "DBG": 60}
_PYTHON_LEVELS: Final = {20: logging.CRITICAL, 30: logging.ERROR, 40: logging.WARNING, 50: logging.INFO, 60: 10, 70: 5}
_TOKENS: Final = {"CRT": 20, "ERR": 30, "WRN": 40, "INF": 50, "DBG": 60, "TRC": 70}
_TOKEN: Final = re.compile(rf"\[({'|'.join(_TOKENS)})\]")  # how each line names its level

_logs: weakref.WeakSet[SdkLog] = weakref.WeakSet()
_wanted: int | None = None  # by set_sdk_log_level(), else the environment says


def number_of_level(level: str | int) -> int:
    """
    Read a level of DOCA's log.

    Args:
        level: A name (``WARNING``, ``warn``, ``DOCA_LOG_LEVEL_TRACE``) or its number, from 10 (nothing) to 70 (all).

    Returns:
        The ``enum doca_log_level``.

    Raises:
        ValueError: If there is no such level; the message lists them.

    Source: ``doca_log.h``.
    """
    name = str(level).strip().upper().removeprefix("DOCA_LOG_LEVEL_")
    number = int(name) if name.isdecimal() else (LEVELS | _ALIASES).get(name, 0)
    if number not in LEVELS.values():
        known = ", ".join(f"{name} ({number})" for name, number in LEVELS.items())
        raise ValueError(f"{level!r} is no level of DOCA's log; there are {known}")
    return number


def set_sdk_log_level(level: str | int | None) -> None:
    """
    Have DOCA's own log in the logger ``aiodocadma.sdk``, down to a level; before the DMAs are opened.

    CRIT, ERROR, WARNING, INFO and DEBUG become the levels of ``logging``, TRACE becomes 5. Taking the lines never
    blocks DOCA; what comes faster than the loop reads is dropped, and a line says how much. A DOCA that does not offer
    its log (2.6) is named in a warning there.

    Args:
        level: As DOCA names or numbers it: ``"WARNING"``, ``"trace"``, 70. None leaves it to the environment:
            ``DOCA_LOG_LEVEL_SDK``, else ``DOCA_LOG_LEVEL``; without them nothing is logged, and warnings are kept in
            memory for the evidence of failures.

    Raises:
        ValueError: If there is no such level.

    Source: ``doca_log_backend_set_sdk_level``.
    """
    global _wanted
    _wanted = None if level is None else number_of_level(level)
    for log in _logs:
        log.apply_level()


def chosen_level() -> int | None:
    """What was given to ``set_sdk_log_level()`` last."""
    return _wanted


def read_all() -> None:
    """Take what all libraries have said so far, and pass on what is wanted."""
    for log in list(_logs):
        log.read()


def wanted_level() -> int | None:
    """The level that somebody asked for; None if nobody did. A bad one in the environment counts as INFO."""
    if _wanted is not None:
        return _wanted
    for name in ENVIRONMENT_VARIABLES:
        if value := os.environ.get(name):
            try:
                return number_of_level(value)
            except ValueError:
                return LEVELS["INFO"]
    return None


class SdkLog:
    """
    The log of one library.

    Args:
        library: A loaded one; there is one object per library, for DOCA has no call to end it.

    Source: ``doca_log_backend_create_with_file_sdk``.
    """

    def __init__(self, library: _native.NativeLibrary) -> None:
        self._lines: collections.deque[str] = collections.deque(maxlen=KEPT_LINES)
        self._rest = b""
        self._lock = threading.Lock()
        self._told_dropped = 0
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, int] = weakref.WeakKeyDictionary()
        self._unreadable: str | None = None
        self._told_unreadable = False
        self._native: _native.NativeLog | None = None
        self.fd: int | None = None
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        with contextlib.suppress(OSError):
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        try:
            self._native = library.open_log(writer, max(KEPT_LEVEL, wanted_level() or 0))
            self.fd = reader
        except _native.Failure as failure:
            self._unreadable = f"this DOCA does not offer its log: {library.error_name(failure.code)}"
            os.close(reader)
            os.close(writer)
        _logs.add(self)

    @property
    def dropped(self) -> int:
        """Lines that DOCA wrote while the pipe was full."""
        return self._native.dropped() if self._native is not None else 0

    def apply_level(self) -> None:
        """The wanted level may be another now."""
        if self._native is not None:
            self._native.set_level(max(KEPT_LEVEL, wanted_level() or 0))

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have a loop read what arrives, if it is wanted; once for each ``detach()``. Says once if there is no log."""
        wanted = wanted_level()
        if self.fd is None:
            if wanted is not None and wanted > LEVELS["DISABLE"] and not self._told_unreadable:
                self._told_unreadable = True
                logger.warning("%s", self._unreadable)
            return
        if wanted is not None:
            loop.add_reader(self.fd, self.read)  # again does no harm
        self._loops[loop] = self._loops.get(loop, 0) + 1

    def detach(self, loop: asyncio.AbstractEventLoop) -> None:
        """The loop need not read any more for one that was attached; it may for others."""
        if (users := self._loops.pop(loop, 0)) and self.fd is not None:
            if users > 1:
                self._loops[loop] = users - 1
            elif not loop.is_closed():
                loop.remove_reader(self.fd)
            self.read()

    def tail(self) -> Log:
        """
        The latest lines.

        Returns:
            At most ``KEPT_LINES``, the latest last.

        Source: ``doca_log_backend_create_with_file_sdk``.
        """
        self.read()
        return Log(tuple(self._lines), self._unreadable)

    def read(self) -> None:
        """Take what is in the pipe, at most a pipe full, and pass on what is wanted; never blocks."""
        # Whoever comes second has nothing to do; in a forked child the lock may be held for ever.
        if not self._lock.acquire(blocking=False):
            return
        try:
            lines = self._take()
            dropped = self.dropped - self._told_dropped
            self._told_dropped += dropped
        finally:
            self._lock.release()
        if dropped:
            lines.append(f"({counted(dropped, 'line')} of DOCA's log left out: it came faster than it was read)")
            self._lines.append(lines[-1])
        wanted = wanted_level() or 0
        for line in lines:
            token = _TOKEN.search(line)
            level = _TOKENS[token[1]] if token else LEVELS["WARNING"]
            if level <= wanted:
                logger.log(_PYTHON_LEVELS[level], "%s", line)

    def _take(self) -> list[str]:
        if self.fd is None:
            return []
        try:
            data = os.read(self.fd, PIPE_BYTES)
        except OSError:  # empty
            return []
        *lines, self._rest = (self._rest + data).split(b"\n")
        decoded = [line.decode(errors="replace") for line in lines if line]
        self._lines.extend(decoded)
        return decoded
