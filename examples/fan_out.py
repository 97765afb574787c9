"""
Start thousands of copies at once and wait for all of them.

A full queue is the library's affair: copies that find no room wait in it, in order, and no exception is raised.

Prints:
    5000 copies, 20480000 bytes, all pages right: True
"""

import asyncio

import aiodocadma

PAGE = 4096
PAGES = 5000


async def main() -> None:
    """Reverse the order of all pages of a map."""
    async with aiodocadma.open_dma() as dma:
        src = await dma.alloc(PAGES * PAGE)
        dst = await dma.alloc(PAGES * PAGE)
        with memoryview(src) as memory:
            for page in range(PAGES):
                memory[page * PAGE : page * PAGE + 2] = page.to_bytes(2, "little")

        def move(page: int) -> asyncio.Future[int]:
            to = PAGES - 1 - page
            return dma.copy(src[page * PAGE : (page + 1) * PAGE], dst[to * PAGE : (to + 1) * PAGE])

        lengths = await asyncio.gather(*map(move, range(PAGES)))
        with memoryview(dst) as memory:
            numbers = [int.from_bytes(memory[at : at + 2], "little") for at in range(0, PAGES * PAGE, PAGE)]
        right = numbers == list(reversed(range(PAGES)))
        print(f"{len(lengths)} copies, {sum(lengths)} bytes, all pages right: {right}")


if __name__ == "__main__":
    asyncio.run(main())
