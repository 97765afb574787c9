"""
Put a deadline around copies.

When the deadline passes, the await still waits until the engine has let go of all memory (DOCA cannot recall a task
that it was given); only then does it raise. So the memory can be used again at once. The first deadline here is zero,
so that the outcome is always the same.

Prints:
    too late, and the memory is ours again
    copied 1000000 bytes in time
"""

import asyncio

import aiodocadma


async def main() -> None:
    """Copy with a deadline that is too short, then with a generous one."""
    async with aiodocadma.open_dma() as dma:
        src = await dma.alloc(1_000_000)
        dst = await dma.alloc(1_000_000)
        halves = [(src[:500_000], dst[:500_000]), (src[500_000:], dst[500_000:])]
        try:
            async with asyncio.timeout(0):
                await asyncio.gather(*(dma.copy(*half) for half in halves))
        except TimeoutError:
            print("too late, and the memory is ours again")
        async with asyncio.timeout(60):
            print(f"copied {await dma.copy(src, dst)} bytes in time")


if __name__ == "__main__":
    asyncio.run(main())
