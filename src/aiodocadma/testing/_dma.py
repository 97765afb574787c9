"""A DMA for tests: opened on the emulator, watched, and judged when it is closed."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from aiodocadma import DMA, emulator, open_dma
from aiodocadma.testing._abandon import let_go
from aiodocadma.testing._checks import Held, raise_problems
from aiodocadma.testing._watch import Watch

__all__ = ["checked_dma", "judged_dma"]


def checked_dma(
    device: str | None = None,
    *,
    library: str | os.PathLike[str] | None = "emulator",
    sanitize: bool = False,
    **options: Any,
) -> contextlib.AbstractAsyncContextManager[DMA]:
    """
    Open a DMA, watch what is done with it, and fail at the end of the block for what must not be.

    That is: copies that were not awaited, failures that nobody looked at, memory written or used again while a copy had
    it, and, when all is closed, tasks, descriptors or threads that were left behind. If the block raises, its
    exception is the news, and nothing of this is looked for.

    What the emulator holds back at the end of the block, it lets go of, so that closing ends.

    Args:
        device: As for ``open_dma()``.
        library: As for ``open_dma()``.
        sanitize: Put red zones around memory of ``alloc()``, and fill destinations with 0xDB when a copy begins: what
            reads one too early reads no plausible data.
        options: As for ``open_dma()``.

    Returns:
        An async context manager of the DMA. Leaving it raises ``InvariantError`` with all that was found, and where in
        the program it began.

    Source: aiodocadma.
    """
    return judged_dma(lambda: True, device, library=library, sanitize=sanitize, **options)


@contextlib.asynccontextmanager
async def judged_dma(
    passed: Callable[[], bool],
    device: str | None = None,
    *,
    library: str | os.PathLike[str] | None = "emulator",
    sanitize: bool = False,
    judge_maps: bool = False,
    **options: Any,
) -> AsyncIterator[DMA]:
    """
    As ``checked_dma()``, for a test whose failure is not raised in the block.

    Args:
        passed: Asked at the end: if False, leaks are not looked for, as a traceback holds much.
        device: As for ``open_dma()``.
        library: As for ``open_dma()``.
        sanitize: As for ``checked_dma()``.
        judge_maps: Whether nobody may hold an open map at the end of the block: not if it has local variables.
        options: As for ``open_dma()``.

    Yields:
        The DMA.

    Raises:
        InvariantError: At the end, with all that was found.

    Source: aiodocadma.
    """
    before = Held.now()
    opened = open_dma(device, library=library, **options)
    dma = await opened.__aenter__()
    if dma.emulated:
        emulator.configure(checksum=True)
    watch = Watch(dma, sanitize=sanitize)
    problems: list[str] = []
    try:
        yield dma
    except BaseException:
        watch.unwatch()
        await _close(dma)
        raise
    try:
        thorough = passed()
        problems += watch.neglect()
        if thorough:
            problems += _leaks_before_closing(before, watch, judge_maps)
        watch.unwatch()
    finally:
        await _close(dma)
    problems[:0] = watch.misuse()
    if thorough:
        problems += Held.now()._replace(tasks={}, maps={}).since(before)
    raise_problems(problems)


def _leaks_before_closing(before: Held, watch: Watch, judge_maps: bool) -> Iterator[str]:
    """Tasks and maps: closing the DMA closes the maps."""
    now = Held.now()
    if not judge_maps:
        now.maps.clear()
    maps = {key: name for key, name in now.maps.items() if key not in before.maps}
    for key, name in maps.items():
        yield f"leak: {name} was not closed, and somebody still holds it{watch.made_at(key)}"
    yield from Held(now.tasks, {}, {}, {}, before.live).since(before)


async def _close(dma: DMA) -> None:
    """Close, with an emulator that holds nothing back."""
    if not dma.emulated:
        await dma.aclose()
        return
    loop = asyncio.get_running_loop()

    def keep_letting_go() -> None:
        let_go()
        if not closed:
            loop.call_soon(keep_letting_go)

    closed = False
    keep_letting_go()
    try:
        await dma.aclose()
    finally:
        closed = True
