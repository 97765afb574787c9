"""
Gathering what a cause is found from: small readers, each of which may block, and none of which starts a process.

A reader that cannot read says so and never raises: what is not readable is not the same as clean. They run in a worker
thread (``_worker.within()`` bounds the time), and a test may put others in their place.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import itertools
import os
import re
import resource
import stat
from typing import TYPE_CHECKING, Any, Final

from aiodocadma._causes import LockedMemory, Log
from aiodocadma._private import make_folder
from aiodocadma._redact import Redactor

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "device_nodes",
    "iommus",
    "kernel_log",
    "locked_memory",
    "mappings",
    "open_files",
    "write_bundle",
]

LOG_LINES: Final = 40
KERNEL_LOG_BYTES: Final = 64 * 1024  # of its end
_NODES: Final = "/dev/infiniband"
_CAP_IPC_LOCK: Final = 1 << 14
_SYSLOG_ACTION_READ_ALL: Final = 3


def locked_memory() -> LockedMemory:
    """How much may be locked, and is: getrlimit(2), proc(5)."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    fields = {}
    with contextlib.suppress(OSError), open("/proc/self/status") as status:
        fields = dict(line.rstrip("\n").split(":\t", 1) for line in status if ":\t" in line)
    locked = int(fields.get("VmLck", "0").split()[0]) * 1024
    exempt = bool(int(fields.get("CapEff", "0"), 16) & _CAP_IPC_LOCK)
    return LockedMemory(None if soft == resource.RLIM_INFINITY else soft, locked, exempt)


def device_nodes() -> tuple[str, ...]:
    """The device nodes of the driver that this user may not open, with their owner and mode."""
    forbidden = []
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = sorted(name for name in os.listdir(_NODES) if name.startswith("uverbs"))
    for path in [f"{_NODES}/{name}" for name in (*names, "rdma_cm")]:
        with contextlib.suppress(OSError):
            status = os.stat(path)
            if not os.access(path, os.R_OK | os.W_OK):
                forbidden.append(f"{path} {stat.filemode(status.st_mode)} {status.st_uid}:{status.st_gid}")
    return tuple(forbidden)


def iommus() -> tuple[str, ...]:
    """The IOMMUs that are on."""
    with contextlib.suppress(OSError):
        return tuple(sorted(os.listdir("/sys/class/iommu")))
    return ()


def mappings() -> tuple[tuple[int, int, str], ...] | None:
    """This process's memory, by address: start, end, permissions; None if it cannot be told."""
    found = []
    try:
        with open("/proc/self/maps") as maps:
            for line in maps:
                addresses, permissions, _ = line.split(maxsplit=2)
                start, end = addresses.split("-")
                found.append((int(start, 16), int(end, 16), permissions))
    except OSError:
        return None
    return tuple(found)


def open_files() -> tuple[int, int | None] | None:
    """How many descriptors are open, and how many may be."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = None if soft == resource.RLIM_INFINITY else soft
    try:
        return len(os.listdir("/proc/self/fd")) - 1, limit
    except OSError as error:
        return (soft, limit) if error.errno == errno.EMFILE else None  # it takes one itself


def kernel_log() -> Log:
    """The latest lines of the kernel's log, if this user may read them: syslog(2)."""
    try:
        import ctypes  # here, for no other needs it; there may be no descriptor left to read it by
    except (ImportError, OSError) as error:
        return Log(unreadable=f"not readable: {error}")
    klogctl = ctypes.CDLL(None, use_errno=True).klogctl
    buffer = ctypes.create_string_buffer(KERNEL_LOG_BYTES)
    length = klogctl(_SYSLOG_ACTION_READ_ALL, buffer, KERNEL_LOG_BYTES)
    if length < 0:
        return Log(unreadable=f"not readable as this user: {os.strerror(ctypes.get_errno())}")
    lines = buffer.raw[:length].decode(errors="replace").splitlines()
    return Log(tuple(re.sub(r"^<\d+>", "", line) for line in lines[-LOG_LINES:]))


# ---- What is written to a file

_files = itertools.count(1)


def _redacted(value: Any, redact: Redactor) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {key: _redacted(item, redact) for key, item in value.items()}
    return [_redacted(item, redact) for item in value] if isinstance(value, list) else value


def write_bundle(folder: Path, record: dict[str, Any], name: str = "aiodocadma") -> Path:
    """
    Write a record, redacted, into a file of its own that only this user can read; all or nothing of it.

    Args:
        folder: Made if it is not there.
        record: What JSON can hold.
        name: What the file's name begins with.

    Returns:
        The file.

    Raises:
        OSError: If it cannot be written.

    Source: aiodocadma.
    """
    import json

    make_folder(folder)
    now = datetime.datetime.now(datetime.UTC)
    path = folder / f"{name}-{now:%Y%m%dT%H%M%S}-{os.getpid()}-{next(_files)}.json"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "w") as file:
            json.dump(_redacted(record, Redactor()), file, indent=2)
            file.write("\n")
    except BaseException:
        path.unlink()
        raise
    return path
