"""
Finds callbacks of this library that hold their loop up; for ``.ci/deep debug``, on asyncio's own loop.

asyncio's debug mode would tell of slow callbacks, but makes them slow itself: it notes a stack for each handle made. So
each callback is timed here, without what other processes took meanwhile.
"""

from __future__ import annotations

import asyncio
import functools
import os
import time
from pathlib import Path
from typing import Any

SECONDS = float(os.environ.get("AIODOCADMA_BLOCKED_MS", "0")) / 1000  # 0: nobody looks

_SCHEDSTAT = Path("/proc/thread-self/schedstat")
found: list[str] = []


def is_ours(callback: Any) -> bool:
    """Whether a callback is code of this library."""
    while isinstance(callback, functools.partial):
        callback = callback.func
    owner = getattr(callback, "__self__", None)
    modules = (getattr(callback, "__module__", None), type(owner).__module__, type(callback).__module__)
    return any(str(module).startswith("aiodocadma") for module in modules)


def _waited() -> float:
    """Seconds that this thread was ready to run and did not."""
    return int(_SCHEDSTAT.read_text().split()[1]) / 1e9


def watch() -> None:
    """Time every callback of ours from now on."""
    run = asyncio.Handle._run

    def timed(self: asyncio.Handle) -> None:
        callback = self._callback  # type: ignore[attr-defined]
        if not is_ours(callback):
            run(self)
            return
        start, waited = time.perf_counter(), _waited()
        run(self)
        took = time.perf_counter() - start
        if took > SECONDS and took - (_waited() - waited) > SECONDS:
            found.append(f"{callback!r} held its loop up for {took * 1000:.0f} ms")

    asyncio.Handle._run = timed  # type: ignore[method-assign]
