"""Equal blocks of one map, lent and given back: a buffer per request without a registration per request."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Generic

from aiodocadma._access import AccessT_co
from aiodocadma.exceptions import ClosedError

if TYPE_CHECKING:
    from types import TracebackType

    from aiodocadma._memory import MemoryMap
    from aiodocadma._native import Buffer

__all__ = ["Blocks"]

_CLOSED = "the map of these blocks is closed"


class Blocks(Generic[AccessT_co]):
    """
    A free list of the equal blocks of one map.

    ``async with blocks.acquire() as block`` lends one, first come, first served, and takes it back; the copies that use
    it should have ended by then, for the next one gets the same memory, with what was written to it.

    Args:
        memory_map: Made for ``MemoryMap.blocks()``.
        size: Bytes of a block.

    Source: aiodocadma.
    """

    __slots__ = ("__weakref__", "_free", "_lent", "_map", "_size", "_waiters")

    def __init__(self, memory_map: MemoryMap[AccessT_co], size: int) -> None:
        self._map = memory_map
        self._size = size
        self._free = deque(memory_map[i : i + size] for i in range(0, memory_map.nbytes - size + 1, size))
        self._lent: dict[int, Buffer[AccessT_co]] = {}  # by offset
        self._waiters: deque[asyncio.Future[Buffer[AccessT_co] | None]] = deque()

    @property
    def size(self) -> int:
        """
        Bytes of a block.

        Returns:
            As given.

        Source: aiodocadma.
        """
        return self._size

    @property
    def free(self) -> int:
        """
        Blocks that nobody has.

        Returns:
            How many.

        Source: aiodocadma.
        """
        return len(self._free)

    def __len__(self) -> int:
        return len(self._free) + len(self._lent)

    def __repr__(self) -> str:
        return f"<Blocks {len(self)} of {self._size} bytes, {len(self._free)} free, {len(self._waiters)} waiting>"

    def acquire(self) -> Acquiring[AccessT_co]:
        """
        Wait for a block: ``async with blocks.acquire() as block``, or ``block = await blocks.acquire()``.

        Returns:
            To be awaited, or entered, which gives the block; leaving gives it back.

        Raises:
            ClosedError: From the await: the map was closed.

        Cancellation: Raises at once; a block that had just come goes to the next in line.
        Source: aiodocadma.
        """
        return Acquiring(self)

    def release(self, block: Buffer[AccessT_co]) -> None:
        """
        Give a block back that ``await acquire()`` lent.

        Args:
            block: The very object.

        Raises:
            ValueError: If it is not lent.

        Source: aiodocadma.
        """
        if self._lent.get(block.offset) is not block:
            raise ValueError(f"{block!r} is no block that was lent by {self!r}")
        self._pass_on(block)

    async def _take(self) -> Buffer[AccessT_co]:
        self._map._dma._check_owner()
        if self._map.closed:
            raise ClosedError(_CLOSED)
        if self._free:
            block = self._free.popleft()
            self._lent[block.offset] = block
            return block
        waiter: asyncio.Future[Buffer[AccessT_co] | None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            given = await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
            elif (given := waiter.result()) is not None:
                self._pass_on(given)
            raise
        if given is None:
            raise ClosedError(_CLOSED)
        return given

    def _pass_on(self, block: Buffer[AccessT_co]) -> None:
        """Hand a block to the first in line: nobody who comes later can get at it before."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(block)
                return
        del self._lent[block.offset]
        self._free.append(block)

    def _dismiss_if_closed(self) -> None:
        """If the map was closed, by itself or with its DMA, whoever waits is told."""
        while self._waiters and self._map.closed:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)


class Acquiring(Generic[AccessT_co]):
    """
    What ``Blocks.acquire()`` gives: to be awaited, or entered as an async context manager.

    Args:
        blocks: Whose.

    Source: aiodocadma.
    """

    __slots__ = ("_block", "_blocks")

    def __init__(self, blocks: Blocks[AccessT_co]) -> None:
        self._blocks = blocks
        self._block: Buffer[AccessT_co] | None = None

    def __await__(self) -> Generator[Any, None, Buffer[AccessT_co]]:
        return self._blocks._take().__await__()

    async def __aenter__(self) -> Buffer[AccessT_co]:
        if self._block is not None:
            raise RuntimeError("this acquire() was entered before")
        self._block = await self._blocks._take()
        return self._block

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        block, self._block = self._block, None
        if block is not None:
            self._blocks.release(block)
