"""
Move pages of a paged KV cache between two pools, by a block table: one future for all of them, no Python per page.

A pool has one plane for the keys and one for the values of each layer, and a page of each block in every plane. Which
blocks go where is a table of int64 pairs, as paged attention has it.

Prints:
    out: 64 blocks of 8 planes, 8388608 bytes behind one future, equal: True
    back: 64 blocks of 8 planes, 8388608 bytes behind one future, equal: True
"""

import asyncio

import numpy as np
from numpy.typing import NDArray

import aiodocadma
from aiodocadma import DMA, CopyFuture, MemoryMap

PLANES = 2 * 4  # keys and values of four layers
PAGE = 16 * 4 * 128 * 2  # bytes: 16 tokens of 4 heads of 128 halves
DEVICE_BLOCKS, HOST_BLOCKS = 128, 512


def offsets(pool: MemoryMap, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the pages of some blocks begin, in all planes."""
    planes = np.arange(PLANES)[:, np.newaxis] * (pool.nbytes // PLANES)
    return (planes + blocks * PAGE).ravel()


def move(dma: DMA, src: MemoryMap, dst: MemoryMap, table: NDArray[np.int64]) -> CopyFuture:
    """Start to copy blocks, one for each row (block of ``src``, block of ``dst``)."""
    from_, to = offsets(src, table[:, 0]), offsets(dst, table[:, 1])
    return dma.copy_many(src, dst, src_offsets=from_, dst_offsets=to, lengths=PAGE)


async def main() -> None:
    """Swap half of the device's blocks out, and back to other places."""
    random = np.random.default_rng(1)
    async with aiodocadma.open_dma() as dma:
        device = await dma.alloc(PLANES * DEVICE_BLOCKS * PAGE)
        host = await dma.alloc(PLANES * HOST_BLOCKS * PAGE)
        on_device = np.asarray(device).reshape(PLANES, DEVICE_BLOCKS, PAGE)
        on_host = np.asarray(host).reshape(PLANES, HOST_BLOCKS, PAGE)
        on_device[:] = random.integers(0, 256, on_device.shape)
        blocks, slots = random.permutation(DEVICE_BLOCKS)[:64], random.permutation(HOST_BLOCKS)[:64]

        copied = await move(dma, device, host, np.stack([blocks, slots], axis=1))
        equal = np.array_equal(on_host[:, slots], on_device[:, blocks])
        print(f"out: {len(blocks)} blocks of {PLANES} planes, {copied} bytes behind one future, equal: {equal}")

        copied = await move(dma, host, device, np.stack([slots, blocks[::-1]], axis=1))
        equal = np.array_equal(on_host[:, slots], on_device[:, blocks[::-1]])
        print(f"back: {len(blocks)} blocks of {PLANES} planes, {copied} bytes behind one future, equal: {equal}")


if __name__ == "__main__":
    asyncio.run(main())
