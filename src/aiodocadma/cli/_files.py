"""
Files for the commands: blocking calls in threads that never keep the process alive, and a target that appears whole or
not at all.

A thread never blocks inside a read or a write of a map's memory: it waits in ``poll``, together with an eventfd that
ends the wait, and then makes a call that does not block. So when a copy is given up, the maps can be closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import queue
import secrets
import select
import stat
import threading
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


@contextlib.contextmanager
def naming(what: str) -> Iterator[None]:
    """Have every error of the system name what the user knows it by: few calls do, and some name another path."""
    try:
        yield
    except OSError as error:
        error.filename = what
        raise


class Worker:
    """One thread for blocking calls, one after another; a daemon, so that a stuck call does not block the exit."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._ended = self._loop.create_future()
        threading.Thread(target=self._run, name="aiodocadma-file", daemon=True).start()

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """
        Call a function in the thread.

        Cancellation: Returns at once; the call goes on. ``aclose()`` waits for it.
        """
        future: asyncio.Future[T] = self._loop.create_future()

        def call() -> None:
            try:
                result = function(*args, **kwargs)
            except BaseException as error:
                self._post(future, future.set_exception, error)
            else:
                self._post(future, future.set_result, result)

        self._calls.put(call)
        return await future

    def end(self) -> None:
        """End the thread after the calls made; nobody waits."""
        self._calls.put(None)

    async def aclose(self) -> None:
        """Wait for the calls made, then end the thread."""
        self.end()
        await self._ended

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
        self._post(self._ended, self._ended.set_result, None)

    def _post(self, future: asyncio.Future[Any], settle: Callable[[Any], None], value: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits any more
            self._loop.call_soon_threadsafe(lambda: None if future.done() else settle(value))


class Stop:
    """An eventfd that ends every wait of this module, from then on."""

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def set(self) -> None:
        """End the waits."""
        os.eventfd_write(self._fd, 1)

    def clear(self) -> None:
        """Let waits begin again; none may be under way."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._fd)

    def close(self) -> None:
        """Give the eventfd back; no wait may be under way."""
        os.close(self._fd)

    def wait(self, fd: int, events: int) -> None:
        """Wait until fd is ready, or raise InterruptedError if told to stop."""
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        poll.register(fd, events)
        if any(ready == self._fd for ready, _ in poll.poll()):
            raise InterruptedError(errno.EINTR, os.strerror(errno.EINTR))


class File:
    """
    An open file with its path, which every error names.

    Args:
        fd: Non-blocking where that means anything; owned from here on.
        path: For messages.
        stop: Ends the waits.
    """

    def __init__(self, fd: int, path: str, stop: Stop) -> None:
        self.fd = fd
        self.path = path
        self._stop = stop

    def close(self) -> None:
        """Close it, once."""
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            os.close(fd)

    def read(self, view: memoryview) -> int:
        """Read what there is, up to the size of view; 0 at the end."""
        return self._retry(select.POLLIN, os.readv, self.fd, [view])

    def write(self, view: memoryview, length: int) -> None:
        """Write the first length bytes of view; it holds on to no part of view, also when it fails."""
        done = 0
        while done < length:
            with view[done:length] as rest:
                done += self._retry(select.POLLOUT, os.write, self.fd, rest)

    def _retry(self, events: int, call: Callable[P, int], *args: P.args, **kwargs: P.kwargs) -> int:
        with naming(self.path):
            while True:
                self._stop.wait(self.fd, events)
                with contextlib.suppress(BlockingIOError):
                    return call(*args, **kwargs)


def open_source(path: str, stop: Stop) -> File:
    """Open a file to read; a FIFO that nobody writes yet does not block."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    source = File(fd, path, stop)
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        source.close()
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    return source


class Target:
    """
    Where the copy goes: a temporary file until ``commit()``, or a FIFO or device in place.

    Args:
        file: The open file.
        temporary: The name it has until commit, or None if it is written in place.
        path: The name it gets.
        mode: The permission bits it gets at commit, or None if it has them.
    """

    def __init__(self, file: File, temporary: str | None, path: str, mode: int | None) -> None:
        self.file = file
        self.regular = temporary is not None
        self._temporary = temporary
        self._path = path
        self._mode = mode

    def read_back(self, update: Callable[[bytes], object]) -> None:
        """Write everything to disk, drop what the page cache holds, and feed the file to update; for a thread."""
        with naming(self.file.path):
            os.fsync(self.file.fd)
            os.posix_fadvise(self.file.fd, 0, 0, os.POSIX_FADV_DONTNEED)
            self._read(update)

    def _read(self, update: Callable[[bytes], object]) -> None:
        os.lseek(self.file.fd, 0, os.SEEK_SET)
        with open(self.file.fd, "rb", closefd=False) as reader:
            while block := reader.read(1 << 20):
                update(block)

    def commit(self) -> None:
        """Give the file its mode and its name."""
        with naming(self.file.path):
            if self._temporary is None:
                self.file.close()
                return
            if self._mode is not None:
                os.fchmod(self.file.fd, self._mode)
            lock = os.dup(self.file.fd)  # nobody must find the file between the close and the new name
            try:
                self.file.close()  # some file systems report a full disk only here
                os.rename(self._temporary, self._path)
                self._temporary = None
            finally:
                os.close(lock)

    def close(self) -> None:
        """Without a commit before: remove the temporary file."""
        self.file.close()
        if self._temporary is not None:
            os.unlink(self._temporary)
            self._temporary = None

    def resume(self, size: int, update: Callable[[bytes], object]) -> int:
        """Feed what was kept to update, and go on behind it; all but the first size bytes go. For a thread."""
        with naming(self.file.path):
            os.ftruncate(self.file.fd, min(os.fstat(self.file.fd).st_size, size))
            self._read(update)
            return os.lseek(self.file.fd, 0, os.SEEK_END)

    def keep(self) -> int:
        """Without a commit before: keep the temporary file for another time if it holds anything; how much."""
        size = os.fstat(self.file.fd).st_size if self._temporary is not None and self.file.fd >= 0 else 0
        if size:
            self._temporary = None
        self.close()
        return size


async def open_target(
    path: str, stop: Stop, *, name: str, mode: int, source: os.stat_result | None = None, temporary: str | None = None
) -> Target:
    """
    Open where to write.

    Args:
        path: As the user gave it; a folder gets a file of this name; a symbolic link is followed.
        stop: Ends the waits.
        name: What is copied.
        mode: The permission bits of a new file, less umask, as with ``cp``; an old one keeps its own, without those
            that give whoever runs it its owner's rights.
        source: The file that is copied, if it is one; must be another one.
        temporary: Name of the file that is written until commit, which may be there from an earlier time and is locked;
            None for a new one.

    Raises:
        OSError: If it cannot be written, is the source itself, or what an earlier time left is not this user's alone.

    Cancellation: Leaves no file behind.
    """
    real, now = _locate(path, source, name)
    if now is None or stat.S_ISREG(now.st_mode):
        return _create(path, real, mode, now, stop, temporary)
    # Opening a FIFO blocks until somebody reads it; if we are cancelled first, the thread stays behind.
    opener = Worker()
    try:
        fd = await opener.run(os.open, real, os.O_WRONLY | os.O_CLOEXEC)
    finally:
        opener.end()
    os.set_blocking(fd, False)
    return Target(File(fd, path, stop), None, real, None)


def _locate(path: str, source: os.stat_result | None, name: str) -> tuple[str, os.stat_result | None]:
    """Find what path means: the path to write and what is there now, if anything."""
    if os.path.isdir(path):
        path = os.path.join(path, name)
    try:
        now = os.stat(path)
    except FileNotFoundError:
        if os.path.basename(path) in ("", ".", ".."):  # a folder that is not there, not a file of another name
            raise
        return os.path.realpath(path), None
    if source is not None and os.path.samestat(now, source):
        raise OSError(errno.EINVAL, "source and destination are the same file", path)
    if stat.S_ISDIR(now.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(now.st_mode):
        return path, now  # not its real path: that of /dev/stdout is no file when stdout is a pipe
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    return os.path.realpath(path), now


def _lock(fd: int, temporary: str) -> bool:
    """Keep others from writing the file; False if one does, or has just given it its name."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(fd), os.stat(temporary))
    except (BlockingIOError, FileNotFoundError):
        return False
    except OSError:  # a file system without locks
        return True


def _check_own(fd: int, temporary: str) -> None:
    """Refuse what somebody else has laid there, and could change once it has its name; closes it then."""
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink != 1:
        os.close(fd)
        raise PermissionError(errno.EPERM, f"{os.path.basename(temporary)} beside it is not this user's alone")


def _create(path: str, real: str, mode: int, now: os.stat_result | None, stop: Stop, temporary: str | None) -> Target:
    """Make the temporary file, or go on with it."""
    again = temporary is not None
    temporary = os.path.join(os.path.dirname(real), temporary or f".aiodocadma-{secrets.token_hex(8)}")
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    with naming(path):
        try:
            fd = os.open(temporary, flags | os.O_CREAT | os.O_EXCL, mode & 0o777 if now is None else 0o600)
        except FileExistsError:
            if not again:
                raise
            fd = os.open(temporary, flags | os.O_NONBLOCK)
            _check_own(fd, temporary)
    if not _lock(fd, temporary):
        os.close(fd)
        raise BlockingIOError(errno.EAGAIN, "another process is writing it", path)
    if now is None:
        return Target(File(fd, path, stop), temporary, real, None)
    mode = now.st_mode & 0o777
    try:
        os.fchown(fd, now.st_uid, now.st_gid)
    except PermissionError:  # its group is another one now: that gets what everybody has
        mode &= 0o707 | (mode & 0o007) << 3
    return Target(File(fd, path, stop), temporary, real, mode)
