"""What the event loop calls when the notification fd is readable."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import ref

if TYPE_CHECKING:
    import asyncio

    from aiodocadma._dma import DMA

__all__ = ["Reader"]


class Reader:
    """
    The loop's reader of the notification fd.

    Weak, so that a DMA nobody holds and with nothing in flight can be collected. The loop drops it when it is closed,
    and that is how a DMA learns of it: copies still pending then will never be collected by a turn, so they must not
    keep the DMA from its finaliser.
    """

    __slots__ = ("_dma", "_loop")

    def __init__(self, dma: DMA, loop: asyncio.AbstractEventLoop) -> None:
        self._dma = ref(dma)
        self._loop = loop

    def __call__(self) -> None:
        if (dma := self._dma()) is not None:
            dma._readable()

    def __del__(self) -> None:
        if (dma := self._dma()) is not None and self._loop.is_closed():
            dma._orphan()
