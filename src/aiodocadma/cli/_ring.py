"""
A ring of blocks, for bytes that pass through the engine block by block while others are read and written.

    free --(begin: fill it, start its copy)--> begun --(the copy ends)--> (end: use it up) --> free
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

import aiodocadma
from aiodocadma.cli._files import Stop, Worker
from aiodocadma.cli._progress import Progress


@dataclass(slots=True)
class Block:
    """Maps, views onto them, and what is on its way through them."""

    maps: list[aiodocadma.MemoryMap]
    views: list[memoryview]
    length: int = 0
    copied: asyncio.Future[int] | None = None


async def _make_block(dma: aiodocadma.DMA, num_maps: int, size: int, stack: AsyncExitStack) -> Block:
    block = Block([], [])
    for _ in range(num_maps):
        map_ = await dma.alloc(size)  # closed with the DMA, which waits for the engine once and not for each map
        view = memoryview(map_)
        stack.callback(view.release)
        block.maps.append(map_)
        block.views.append(view)
    return block


async def run_ring(
    dma: aiodocadma.DMA,
    *,
    num_maps: int,
    block_size: int,
    num_blocks: int,
    begin: Callable[[Block, Worker], Awaitable[bool]],
    end: Callable[[Block, Worker], Awaitable[None]],
    stop: Stop,
    progress: Progress,
    done: int = 0,
) -> int:
    """
    Move everything through the blocks.

    Args:
        dma: The engine.
        num_maps: Per block.
        block_size: Bytes of a map.
        num_blocks: How many are under way at most.
        begin: Sets a block's ``length`` and ``copied``; False if there is no more. Its worker is the reader.
        end: Uses up a block whose copy has ended. Its worker is the writer.
        stop: Is set when this ends early, so that both workers return.
        progress: Told what is done after each block.
        done: Bytes that were done before.

    Returns:
        The bytes moved.

    Cancellation: Waits for the workers and for the engine to let go.
    """
    async with AsyncExitStack() as stack:
        free: asyncio.Queue[Block] = asyncio.Queue()
        begun: asyncio.Queue[Block | None] = asyncio.Queue()
        blocks = [await _make_block(dma, num_maps, block_size, stack) for _ in range(num_blocks)]
        for block in blocks:
            free.put_nowait(block)
        reader, writer = Worker(), Worker()
        # Unwound first to last: end the waits, then the threads, then the copies; then nothing uses the maps.
        stack.push_async_callback(_settle, blocks)
        stack.push_async_callback(writer.aclose)
        stack.push_async_callback(reader.aclose)
        stack.callback(stop.set)

        async def fill() -> None:
            while await begin(block := await free.get(), reader):
                begun.put_nowait(block)
            begun.put_nowait(None)

        async def empty() -> int:
            moved = 0
            while (block := await begun.get()) is not None:
                assert block.copied is not None
                await asyncio.wait([block.copied])  # cancelled, this leaves it to _settle(), with all others
                block.copied.result()
                block.copied = None
                await end(block, writer)
                moved += block.length
                progress.update(done + moved)
                free.put_nowait(block)
            return moved

        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(fill())
                emptied = tasks.create_task(empty())
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        return emptied.result()


async def _settle(blocks: list[Block]) -> None:
    """Withdraw the copies that nobody awaits any more and wait for the engine to let go of them."""
    copies = [block.copied for block in blocks if block.copied is not None]
    for copy in copies:
        copy.cancel()
    await asyncio.gather(*copies, return_exceptions=True)
