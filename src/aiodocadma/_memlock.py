"""Limits of the system on memory: how much may be locked, and which huge pages there are."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import resource
from collections.abc import Callable
from typing import Final

from aiodocadma.exceptions import MemlockError

__all__ = ["MemlockBatch", "describe", "describe_huge_pages", "huge_page_size", "lockable"]

RAISE_LIMIT: Final = (
    "Raise it: 'ulimit -l unlimited', LimitMEMLOCK=infinity in a systemd unit, --ulimit memlock=-1 for a container."
)
_CAP_IPC_LOCK: Final = 14
_HUGE_PAGES: Final = "/sys/kernel/mm/hugepages"


def _status(field: str, base: int = 10) -> int:
    """A number of ``/proc/self/status``; 0 if it is not there, or not to be read."""
    with contextlib.suppress(OSError), open("/proc/self/status") as status:
        for line in status:
            if line.startswith(f"{field}:"):
                return int(line.split()[1], base)
    return 0


def describe() -> str:
    """
    Tell the limit of locked memory and how much of it is used: what a failed registration is about, most often.

    Returns:
        A clause for an error's cause.

    Source: ``getrlimit(2)``, ``proc(5)``.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    limit = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft // 1024} KiB"
    return f"RLIMIT_MEMLOCK is {limit}, {max(_status('VmLck'), _status('VmPin'))} KiB are locked"


def lockable() -> int | None:
    """
    Tell how many bytes this process may lock yet for a device.

    Returns:
        Bytes, or None if it is not limited.

    Source: Linux, ``ib_umem_get()``: pinned pages count against ``RLIMIT_MEMLOCK`` without ``CAP_IPC_LOCK``.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft == resource.RLIM_INFINITY or _status("CapEff", 16) >> _CAP_IPC_LOCK & 1:
        return None
    return max(0, soft - _status("VmPin") * 1024)


class MemlockBatch:
    """
    Checks registrations that are asked for in the same turn of the loop against the limit, all together.

    So a ``gather`` of registrations that cannot all succeed fails at once, with nothing locked.

    Args:
        loop: The DMA's.
        lockable: Bytes that may be locked yet; None for no limit.
        reclaimable: Bytes that are locked, and that this library can unlock.

    Source: aiodocadma.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        lockable: Callable[[], int | None],
        reclaimable: Callable[[], int],
    ) -> None:
        self._loop = loop
        self._lockable = lockable
        self._reclaimable = reclaimable
        self._sizes: list[int] = []
        self._verdict: asyncio.Future[str | None] | None = None

    async def check(self, nbytes: int) -> None:
        """
        Wait for the others of this turn, if there is a limit, and check it.

        Args:
            nbytes: Bytes to be locked.

        Raises:
            MemlockError: If all of them together are too much.

        Cancellation: Raises at once; nothing was locked.
        Source: aiodocadma.
        """
        if self._lockable() is None:
            return
        if self._verdict is None:
            self._verdict = self._loop.create_future()
            self._loop.call_soon(self._judge)
        self._sizes.append(nbytes)
        problem = await asyncio.shield(self._verdict)
        if problem is not None:
            raise MemlockError(problem, hint=RAISE_LIMIT)

    def _judge(self) -> None:
        verdict, self._verdict = self._verdict, None
        sizes, self._sizes = self._sizes, []
        limit = self._lockable()
        total = sum(sizes)
        problem = None
        if limit is not None and total > limit + self._reclaimable():
            many = f"{len(sizes)} registrations of {total} bytes together" if len(sizes) > 1 else f"{total} bytes"
            problem = f"{many} cannot be locked, only {limit} more; {describe()}"
        if verdict is not None and not verdict.done():
            verdict.set_result(problem)


def huge_page_size(wanted: bool | int) -> int:
    """
    Find the size of huge pages.

    Args:
        wanted: A size in bytes, True for the system's default, False for ordinary pages.

    Returns:
        Bytes; 0 for ordinary pages.

    Raises:
        ValueError: If the system has no pages of that size.

    Source: ``proc(5)``, ``/sys/kernel/mm/hugepages``.
    """
    if wanted is False:
        return 0
    try:
        sizes = sorted(int(re.sub(r"\D", "", name)) * 1024 for name in os.listdir(_HUGE_PAGES))
    except OSError:
        sizes = []
    if wanted is True:
        with open("/proc/meminfo") as meminfo:
            default = re.search(r"^Hugepagesize: *(\d+) kB", meminfo.read(), re.MULTILINE)
        wanted = int(default[1]) * 1024 if default else 0
    if wanted not in sizes:
        raise ValueError(f"hugepages: there are no pages of {int(wanted)} bytes; the system has {sizes or 'none'}")
    return wanted


def describe_huge_pages(size: int) -> str:
    """
    Tell how many pages of a size are free, and how to have more.

    Args:
        size: Bytes.

    Returns:
        A clause for an error's cause.

    Source: ``/sys/kernel/mm/hugepages``.
    """
    folder = f"{_HUGE_PAGES}/hugepages-{size // 1024}kB"
    with open(f"{folder}/free_hugepages") as free:
        return (
            f"huge pages of {size} bytes, of which {free.read().strip()} are free; {folder}/nr_hugepages reserves them"
        )
