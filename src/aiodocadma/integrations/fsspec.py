"""
Progress of big copies, told to a callback of fsspec as its file systems do. Needs the extra ``fsspec``::

    with TqdmCallback() as callback:
        await report_progress(dma.copy(src, dst), callback)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from fsspec.callbacks import Callback

    from aiodocadma import CopyFuture

__all__ = ["report_progress"]


def report_progress(future: CopyFuture, callback: Callback, *, interval: float = 0.1) -> CopyFuture:
    """
    Tell a callback how far a copy is, until it ends.

    The copy is not touched: it is awaited, cancelled and fails as it would otherwise.

    Args:
        future: What ``copy()``, ``copy_many()`` or ``submit()`` returned.
        callback: Gets ``set_size()`` with the copy's bytes at once, then ``relative_update()`` with what the engine has
            written since the last one. It runs in the event loop, so it must not block; what it raises then goes to
            the loop's exception handler.
        interval: Seconds between two looks at the copy.

    Returns:
        The same future, to be awaited.

    Source: ``fsspec.callbacks.Callback``; ``CopyFuture.bytes_done``.
    """
    loop = future.get_loop()
    told = 0
    timer: asyncio.TimerHandle

    def tell() -> None:
        nonlocal told
        if new := future.bytes_done - told:
            told += new
            callback.relative_update(new)

    def look() -> None:
        nonlocal timer
        tell()
        timer = loop.call_later(interval, look)

    def end(_: CopyFuture) -> None:
        timer.cancel()
        tell()

    callback.set_size(future._nbytes)
    if future.done():
        tell()
        return future
    timer = loop.call_later(interval, look)
    future.add_done_callback(end)
    return future
