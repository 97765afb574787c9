"""
A pipeline with bounded streams: blocks are read, moved by the engine and digested, all at the same time.

The streams carry buffers, never bytes: a slow stage stops those before it. Cancelling the scope ends all stages, and
returns when the engine has let go of their memory. This is for bulk data; messages between host and DPU belong to DOCA
Comch: https://docs.nvidia.com/doca/sdk/doca-comch/index.html

Prints:
    500 blocks digested, all right: True, copies pending: 0
    100 blocks digested, all right: True, copies pending: 0
"""

import zlib

import anyio

from aiodocadma import DMA, Buffer, open_dma

BLOCK = 64 * 1024


async def digest(dma: DMA, num: int) -> list[int]:
    """Run the pipeline, and cancel it when ``num`` blocks have come out of it."""
    near, far = await dma.alloc(8 * BLOCK), await dma.alloc(8 * BLOCK)
    sources, targets = near.blocks(BLOCK), far.blocks(BLOCK)
    to_move, moving = anyio.create_memory_object_stream[Buffer](4)
    to_digest, digesting = anyio.create_memory_object_stream[Buffer](4)

    async def read() -> None:
        async with to_move:
            for number in range(500):
                block = await sources.acquire()
                memoryview(block)[:] = number.to_bytes(2, "little") * (BLOCK // 2)
                await to_move.send(block)

    async def move() -> None:
        async with moving, to_digest:
            async for block in moving:
                target = await targets.acquire()
                await dma.copy(block, target)
                sources.release(block)
                await to_digest.send(target)

    digests: list[int] = []
    async with near, far, digesting, anyio.create_task_group() as group:
        group.start_soon(read)
        group.start_soon(move)
        async for block in digesting:
            digests.append(zlib.crc32(block))
            targets.release(block)
            if len(digests) == num:
                group.cancel_scope.cancel()
    return digests


async def main() -> None:
    """Let all blocks through, then cancel on the way."""
    async with open_dma() as dma:
        for num in (500, 100):
            right = [zlib.crc32(number.to_bytes(2, "little") * (BLOCK // 2)) for number in range(num)]
            digests = await digest(dma, num)
            print(f"{num} blocks digested, all right: {digests == right}, copies pending: {dma.statistics().pending}")


if __name__ == "__main__":
    anyio.run(main)
