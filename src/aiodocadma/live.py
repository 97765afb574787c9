"""
Looking at a running process: ``aiodocadma top`` over a Unix socket, and the flight record on a signal. Both are opt-in.

    async with aiodocadma.live.serve():
        ...  # the service

While nobody is connected this is a listening socket, and nothing runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import signal
import socket
import stat
import struct
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final, cast

from aiodocadma._dma import DMA, open_dmas
from aiodocadma._flight import dump, flight_record
from aiodocadma._private import environment, make_folder

__all__ = ["default_folder", "dump_on_signal", "serve"]

VERSION: Final = 1  # of what is sent
MAX_CONNECTIONS: Final = 8
MAX_UNREAD: Final = 1 << 20  # bytes of answers to somebody who does not read them
ROOT: Final = 0  # user id
MAX_COPIES: Final = 20
MAX_EVENTS: Final = 32


def default_folder() -> Path:
    """
    Where processes put their sockets, and ``aiodocadma top`` looks for them.

    Returns:
        ``$XDG_RUNTIME_DIR/aiodocadma``, or a folder of this user's in the system's temporary folder.

    Source: XDG Base Directory Specification.
    """
    runtime = environment("XDG_RUNTIME_DIR")
    return Path(runtime, "aiodocadma") if runtime else Path(tempfile.gettempdir(), f"aiodocadma-{os.geteuid()}")


@contextlib.asynccontextmanager
async def serve(path: str | os.PathLike[str] | None = None) -> AsyncIterator[Path]:
    """
    Let ``aiodocadma top`` see this loop's DMAs, within an ``async with`` block.

    Only this user and root can connect: the socket has the mode 0600, and the kernel tells who the other side is. What
    they get are numbers, names and tags, never the bytes that are copied.

    Args:
        path: Of the Unix socket; None for ``<pid>.sock`` in ``default_folder()``. What a process that has died left
            behind there is replaced.

    Yields:
        The socket's path.

    Raises:
        OSError: If it cannot be made: another process has it, or the folder is not this user's alone.

    Source: aiodocadma; unix(7), ``SO_PEERCRED``.
    """
    place = Path(path) if path is not None else _own_folder() / f"{os.getpid()}.sock"
    listener = _bind(place)
    mine = os.lstat(place)
    loop = asyncio.get_running_loop()
    lookers: set[_Looker] = set()
    server = await loop.create_unix_server(lambda: _Looker(loop, lookers), sock=listener)
    try:
        yield place
    finally:
        server.close()
        gone = [looker.hang_up() for looker in lookers]
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.lstat(place), mine):
                place.unlink()
        if gone:
            await asyncio.wait(gone)  # last, as it may be cancelled; unlike gather() it leaves the futures alone then


def dump_on_signal(folder: str | os.PathLike[str], signum: int = signal.SIGUSR2) -> None:
    """
    Have the flight records of this loop's DMAs written when a signal arrives; for the main thread's loop.

    Args:
        folder: Where; one file for each DMA, readable by this user only.
        signum: The signal; it has no other handler then.

    Raises:
        ValueError: If this is not the main thread, or the signal cannot be caught.

    Source: aiodocadma; ``loop.add_signal_handler``.
    """
    loop = asyncio.get_running_loop()
    try:
        name = signal.Signals(signum).name
    except ValueError:  # most of the real-time signals have none
        name = str(int(signum))

    def dump_all() -> None:
        for dma in _dmas_of(loop):
            dump(dma, loop, Path(folder), f"signal {name}")

    loop.add_signal_handler(signum, dump_all)


def _dmas_of(loop: asyncio.AbstractEventLoop) -> list[DMA]:
    return [dma for dma in open_dmas() if dma._loop is loop]


def _own_folder() -> Path:
    folder = default_folder()
    make_folder(folder)
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise PermissionError(errno.EPERM, "not a folder of this user's alone", str(folder))
    return folder


def _bind(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    os.fchmod(listener.fileno(), 0o600)  # the file that bind() makes has these bits: no chmod() follows a link later
    try:
        try:
            listener.bind(str(path))
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not _is_dead(path):
                raise
            path.unlink()
            listener.bind(str(path))
    except OSError as error:
        listener.close()
        error.filename = str(path)
        raise
    return listener


def _is_dead(path: Path) -> bool:
    """Whether it is a socket that nobody listens on."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return stat.S_ISSOCK(os.lstat(path).st_mode)
        except OSError:
            return False
    return False


class _Looker(asyncio.Protocol):
    """One connection: an answer whenever a line has come, whatever it says; nothing is kept of it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, lookers: set[_Looker]) -> None:
        self._loop = loop
        self._lookers = lookers
        self._transport: asyncio.Transport
        self._gone = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if len(self._lookers) < MAX_CONNECTIONS and _peer(transport) in (ROOT, os.geteuid()):
            self._lookers.add(self)
        else:
            self.hang_up()

    def data_received(self, data: bytes) -> None:
        if self not in self._lookers or b"\n" not in data:
            return
        self._transport.write(json.dumps(_snapshot(self._loop)).encode() + b"\n")
        if self._transport.get_write_buffer_size() > MAX_UNREAD:
            self.hang_up()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lookers.discard(self)
        self._gone.set_result(None)

    def hang_up(self) -> asyncio.Future[None]:
        self._transport.abort()
        return self._gone


def _peer(transport: asyncio.BaseTransport) -> int:
    """The user of the other side, as the kernel knows it."""
    connection = transport.get_extra_info("socket")
    size = struct.calcsize("3i")  # struct ucred: pid, uid, gid
    uid: int = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[1]
    return uid


def _snapshot(loop: asyncio.AbstractEventLoop) -> dict[str, Any]:
    records = [flight_record(dma, max_copies=MAX_COPIES, max_events=MAX_EVENTS) for dma in _dmas_of(loop)]
    return {"version": VERSION, "pid": os.getpid(), "dmas": records}
