"""The tail of the kernel's log, where this user may read it."""

from __future__ import annotations

import os
from typing import Final

from aiodocadma._root import Reading, Root

__all__ = ["kernel_log"]

_MAX_LINES: Final = 200
_FILES: Final = ("/var/log/kern.log", "/var/log/dmesg")


def kernel_log(root: Root, max_lines: int = _MAX_LINES) -> Reading:
    """
    Read the last lines, from ``/dev/kmsg`` or else from a log file; never waits.

    Args:
        root: Where to look.
        max_lines: How many lines at most.

    Returns:
        The lines, or why there are none: unreadable is not clean.

    Source: the kernel's ``Documentation/ABI/testing/dev-kmsg``.
    """
    readings = [_records(root), *(root.read(name) for name in _FILES)]
    for text, _ in readings:
        if text is not None:
            return Reading("\n".join(text.splitlines()[-max_lines:]), None)
    unreadable = any(reading.problem == "unreadable" for reading in readings)
    return Reading(None, "unreadable" if unreadable else "absent")


def _records(root: Root) -> Reading:
    """Each read of /dev/kmsg gives one record, ``priority,number,time,flags;text``, or EAGAIN after the last."""
    if os.path.isfile(root.locate("/dev/kmsg")):
        return root.read("/dev/kmsg")
    try:
        fd = os.open(root.locate("/dev/kmsg"), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return Reading(None, "absent")
    except OSError:
        return Reading(None, "unreadable")
    lines: list[str] = []
    try:
        while True:
            try:
                record = os.read(fd, 8192)
            except BlockingIOError:
                break
            except BrokenPipeError:  # overwritten while we read
                continue
            head, _, body = record.decode(errors="replace").partition(";")
            fields = head.split(",")
            seconds = int(fields[2]) / 1e6 if len(fields) > 2 and fields[2].isdigit() else 0.0
            lines.append(f"[{seconds:12.6f}] {body.partition(chr(10))[0]}")
    except OSError:
        return Reading(None, "unreadable")
    finally:
        os.close(fd)
    return Reading("\n".join(lines), None)
