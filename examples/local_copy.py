"""
Copy the caller's memory into memory that the library owns.

Prints:
    copied 7000 bytes, equal: True
"""

import asyncio

import aiodocadma


async def main() -> None:
    """Copy once."""
    payload = b"payload" * 1000
    async with aiodocadma.open_dma() as dma:
        src = await dma.register(payload)
        dst = await dma.alloc(len(payload))
        copied = await dma.copy(src, dst)
        print(f"copied {copied} bytes, equal: {bytes(memoryview(dst)) == payload}")


if __name__ == "__main__":
    asyncio.run(main())
