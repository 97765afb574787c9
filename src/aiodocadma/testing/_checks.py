"""What must hold at the end of a test, and who broke it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from aiodocadma import DMA, MemoryMap, emulator
from aiodocadma._cache import RegistrationCache
from aiodocadma._counted import counted
from aiodocadma.testing import _stacks

__all__ = ["Held", "InvariantError", "assert_no_leaks", "assert_quiescent", "raise_problems"]

# Threads that pools keep for later: asyncio's default executor's, anyio's.
_POOLED: Final = ("asyncio_", "AnyIO worker thread", "ThreadPoolExecutor")
_NATIVE: Final = ("devs", "pes", "ctxs")  # maps and tasks end with their context


class InvariantError(AssertionError):
    """
    A program broke a rule that holds for every program: a copy nobody awaited, memory touched in flight, a leak.

    Source: aiodocadma.
    """


def raise_problems(problems: Iterable[str]) -> None:
    """
    Raise for problems, if there are any.

    Args:
        problems: One text each.

    Raises:
        InvariantError: With all of them.

    Source: aiodocadma.
    """
    listed = list(dict.fromkeys(problems))
    if len(listed) == 1:
        raise InvariantError(listed[0])
    if listed:
        raise InvariantError(f"{len(listed)} problems:\n" + "\n".join(f"- {one}" for one in listed))


def assert_quiescent(dma: DMA) -> None:
    """
    Assert that the engine touches no memory of this DMA's copies: none is waiting or in flight.

    Args:
        dma: An open one.

    Raises:
        InvariantError: If copies are pending; it tells how many.

    Source: aiodocadma; ``doca_pe_get_num_inflight_tasks``.
    """
    now = dma.statistics()
    if now.pending:
        raise InvariantError(
            f"not quiescent: {counted(now.pending, 'copy', 'copies')} of {dma!r} pending, {now.waiting} in line "
            "for the engine; await them, or dma.drain()"
        )


@contextlib.contextmanager
def assert_no_leaks() -> Iterator[None]:
    """
    Assert that a ``with`` block leaves nothing behind.

    That is: tasks of the running loop, threads, file descriptors, open ``MemoryMap`` objects, and DOCA objects alive in
    the emulator. Threads that executors keep for later are left out.

    Yields:
        Nothing.

    Raises:
        InvariantError: If something is left that was not there before; it tells what.

    Source: aiodocadma.
    """
    before = Held.now()
    yield
    raise_problems(Held.now().since(before))


def open_maps() -> list[MemoryMap]:
    """
    The maps somebody still holds and has not closed, those that the client keeps for the next copy left out.

    Returns:
        In no order.

    Source: aiodocadma.
    """
    objects = gc.get_objects()
    kept = {id(kept) for obj in objects if type(obj) is RegistrationCache for kept in obj.maps()}
    return [obj for obj in objects if type(obj) is MemoryMap and not obj.closed and id(obj) not in kept]


def _tasks() -> dict[asyncio.Task[Any], str]:
    try:
        current = asyncio.current_task()
    except RuntimeError:
        return {}
    tasks = [task for task in asyncio.all_tasks() if task is not current and not _is_of_runner(task)]
    return {task: f"{task.get_name()} ({getattr(task.get_coro(), '__qualname__', '')})" for task in tasks}


def _is_of_runner(task: asyncio.Task[Any]) -> bool:
    """Whether a plugin that runs tests made it."""
    frame = getattr(task.get_coro(), "cr_frame", None)
    return frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in ("anyio", "pytest_asyncio")


def _fds() -> dict[tuple[int, str], str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that lists them
            target = os.readlink(f"/proc/self/fd/{name}")
            if not (target.startswith("socket:") and _is_pair(int(name))):
                found[int(name), target] = f"{name} -> {target}"
    # A pipe with both ends here wakes somebody, or holds DOCA's log for the life of the process.
    ends = Counter(target for _, target in found)
    return {key: text for key, text in found.items() if not (key[1].startswith("pipe:") and ends[key[1]] > 1)}


def _is_pair(fd: int) -> bool:
    """Whether it is of a ``socketpair()``: loops make them when they like, to be woken by signals and other threads."""
    with socket.socket(fileno=os.dup(fd)) as duplicate:
        if duplicate.family != socket.AF_UNIX:
            return False
        try:
            return not duplicate.getsockname() and not duplicate.getpeername()
        except OSError:  # not connected
            return False


class Held(NamedTuple):
    """What a process holds at one moment; ``Held.now().since(before)`` is what it has kept."""

    tasks: dict[asyncio.Task[Any], str]
    threads: dict[int, str]
    fds: dict[tuple[int, str], str]
    maps: dict[int, str]
    live: emulator.LiveObjects

    @classmethod
    def now(cls) -> Held:
        """
        Take stock, after collecting garbage.

        Returns:
            What there is.

        Source: aiodocadma.
        """
        tasks = _tasks()  # held from here on: nobody else may hold one that is garbage
        gc.collect()
        threads = {t.ident or 0: repr(t.name) for t in threading.enumerate() if not t.name.startswith(_POOLED)}
        maps = {id(one): repr(one) for one in open_maps()}
        return cls(tasks, threads, _fds(), maps, emulator.live_objects())

    def since(self, before: Held) -> Iterator[str]:
        """
        Tell what was kept.

        Args:
            before: An earlier moment.

        Yields:
            One text for each thing.

        Source: aiodocadma.
        """
        for task, name in self.tasks.items():
            if task not in before.tasks:
                waits = _stacks.waiting(task)
                yield f"leak: the task {name} still runs" + (f"; it waits at\n{waits}" if waits.lines else "")
        for ident, name in self.threads.items():
            if ident not in before.threads:
                yield f"leak: the thread {name} still runs"
        for fd, name in self.fds.items():
            if fd not in before.fds:
                yield f"leak: the file descriptor {name} is still open"
        for key, name in self.maps.items():
            if key not in before.maps:
                yield f"leak: {name} was never closed"
        for field in _NATIVE:
            more = getattr(self.live, field) - getattr(before.live, field)
            if more > 0:
                yield f"leak: {more} DOCA objects more than before are alive in the emulator: {field}"
