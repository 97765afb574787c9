"""
A store of KV-cache pages behind the DMA engine, with the six methods of LMCache's RemoteConnector.

They are those that are abstract in LMCache 0.5.6, which is not needed here. To use the store from LMCache, derive from
RemoteConnector: pass ``key.to_string()`` and ``memory_obj.byte_array``, and where ``get()`` makes a bytearray copy into
memory of LMCache's allocator.

Memory for n + 1 pages keeps n, for there is always a free slot for the next ``put()``, or one on its way to it.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Sequence

from aiodocadma import DMA, Buffer, MemoryMap, ReadOnly


@dataclasses.dataclass
class _Page:
    slot: Buffer
    length: int
    users: int = 1  # the store, and the copies that read it


class PageStore:
    """Keeps pages of at most ``page_size`` bytes in ``memory``, which it closes; drops the least recently used."""

    def __init__(self, dma: DMA, memory: MemoryMap, page_size: int) -> None:
        self._dma = dma
        self._memory = memory
        self._slots = memory.blocks(page_size)
        self._pages: OrderedDict[str, _Page] = OrderedDict()  # the least recently used first

    async def exists(self, key: str) -> bool:
        """Tell whether a page is here."""
        return key in self._pages

    def exists_sync(self, key: str) -> bool:
        """Tell it from any thread."""
        return key in self._pages

    async def get(self, key: str) -> bytearray | None:
        """Read a page, or None; its slot is not used again before that has ended."""
        page = self._pages.get(key)
        if page is None:
            return None
        self._pages.move_to_end(key)
        data = bytearray(page.length)
        page.users += 1
        try:
            await self._dma.copy(page.slot[: page.length], data)
        finally:
            self._leave(page)
        return data

    async def put(self, key: str, data: bytes | memoryview | Buffer[ReadOnly]) -> None:
        """Keep a page in place of the one of that name, which is served until then."""
        slot = await self._slots.acquire()
        try:
            length = await self._dma.copy(data, slot)
        except BaseException:
            self._slots.release(slot)
            raise
        if key in self._pages:
            self._leave(self._pages.pop(key))
        self._pages[key] = _Page(slot, length)
        while not self._slots.free and self._pages:
            self._leave(self._pages.popitem(last=False)[1])

    async def list(self) -> Sequence[str]:
        """Name the pages, the least recently used first."""
        return tuple(self._pages)

    async def close(self) -> None:
        """Let the copies under way end, and give the memory back; who waits for a slot gets a ClosedError."""
        await self._memory.aclose()
        self._pages.clear()

    def _leave(self, page: _Page) -> None:
        page.users -= 1
        if not page.users:
            self._slots.release(page.slot)
