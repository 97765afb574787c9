"""A store of blocks in registered memory, which forgets them after a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, Self

from aiodocadma import DMA, Buffer, MemoryMap

__all__ = ["BlockStore"]


class _Entry(NamedTuple):
    slot: Buffer
    length: int
    expires: float


class BlockStore:
    """Made by ``open()``; ``close()`` gives the memory back."""

    def __init__(self, dma: DMA, arena: MemoryMap, stages: MemoryMap, block_size: int, ttl: float) -> None:
        self._dma = dma
        self._arena = arena
        self._stages = stages
        self._ttl = ttl
        self._clock: Callable[[], float] = time.monotonic
        self._slots = _cut(arena, block_size)
        self._free_stages: asyncio.Queue[Buffer] = asyncio.Queue()
        for stage in _cut(stages, block_size):
            self._free_stages.put_nowait(stage)
        self._entries: dict[str, _Entry] = {}
        self._changed = asyncio.Event()
        self._janitor = asyncio.create_task(self._forget_expired())

    @classmethod
    async def open(
        cls, dma: DMA, *, num_blocks: int = 16, block_size: int = 4096, num_stages: int = 4, ttl: float = 3600.0
    ) -> Self:
        """Allocate and register the memory."""
        arena = await dma.alloc(num_blocks * block_size)
        return cls(dma, arena, await dma.alloc(num_stages * block_size), block_size, ttl)

    def use_clock(self, clock: Callable[[], float]) -> None:
        """Take the time from somewhere else."""
        self._clock = clock

    async def put(self, key: str, data: bytes) -> None:
        """Keep a block; the caller's memory is free at once."""
        slot = self._slot_for(key)
        stage = await self._free_stages.get()
        try:
            memoryview(stage)[: len(data)] = data
            await self._dma.copy(stage[: len(data)], slot)
        finally:
            self._free_stages.put_nowait(stage)
        self._keep(key, slot, len(data))

    async def put_many(self, items: Mapping[str, bytes]) -> set[str]:
        """Keep many blocks at once; the keys of those that could not be stored."""
        slots = {key: self._slot_for(key) for key in items}
        copies = {key: self._dma.copy(data, slots[key]) for key, data in items.items()}
        await asyncio.wait(copies.values())
        failed = {key for key, copy in copies.items() if copy.exception() is not None}
        for key, data in items.items():
            if key in failed:
                self._slots.append(slots[key])
            else:
                self._keep(key, slots[key], len(data))
        return failed

    async def get(self, key: str) -> bytes:
        """Read a block; KeyError if it is not there."""
        entry = self._entries[key]
        data = bytearray(entry.length)
        await self._dma.copy(entry.slot[: entry.length], data)
        return bytes(data)

    async def get_across(self, dma: DMA, key: str) -> bytes:
        """Read a block from the other side of the card, with its engine."""
        entry = self._entries[key]
        data = bytearray(entry.length)
        async with await dma.import_memory(await self._arena.export()) as arena:
            start = entry.slot.offset
            await dma.copy(arena[start : start + entry.length], data)
        self._arena.revoke()
        return bytes(data)

    async def close(self) -> None:
        """Give all memory back."""
        self._janitor.cancel()
        await asyncio.wait([self._janitor])
        await self._arena.aclose()
        await self._stages.aclose()

    def _slot_for(self, key: str) -> Buffer:
        entry = self._entries.pop(key, None)
        return entry.slot if entry is not None else self._slots.pop()

    def _keep(self, key: str, slot: Buffer, length: int) -> None:
        self._entries[key] = _Entry(slot, length, self._clock() + self._ttl)
        self._changed.set()

    async def _forget_expired(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            for key, entry in list(self._entries.items()):
                if entry.expires <= self._clock():
                    del self._entries[key]
                    self._slots.append(entry.slot)


def _cut(memory: MemoryMap, size: int) -> list[Buffer]:
    return [memory[start : start + size] for start in range(0, memory.nbytes, size)]
