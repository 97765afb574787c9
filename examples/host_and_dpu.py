"""
Copy from a host to its DPU: one process publishes memory, another one imports and reads it with its own engine.

On the emulator both run on this machine. With a card the first half runs on the host and the second on the DPU, at an
address both can reach.

Prints:
    host: published 10000000 bytes as numbers
    dpu: copied 10000000 bytes, equal: True
    host: the DPU counted 2500000 numbers
"""

import array
import asyncio
import sys
import tempfile

import aiodocadma
from aiodocadma import peer

COUNT = 2_500_000


async def host(address: str) -> None:
    """Publish an array that the DPU may read, and a page that it may write its answer to."""
    async with (
        aiodocadma.open_dma() as dma,
        await dma.register(array.array("i", range(COUNT))) as numbers,
        await dma.alloc(4096) as answer,
        peer.listen(dma, address) as publisher,
    ):
        await publisher.publish("numbers", numbers, attributes={"typecode": "i"})
        await publisher.publish("answer", answer, access="write")
        print(f"host: published {numbers.nbytes} bytes as numbers", flush=True)
        dpu = await asyncio.create_subprocess_exec(sys.executable, __file__, address)
        await dpu.wait()
        print(f"host: the DPU counted {int.from_bytes(memoryview(answer)[:8], 'little')} numbers")


async def dpu(address: str) -> None:
    """Import both, copy the one and write the other."""
    async with aiodocadma.open_dma() as dma, peer.connect(dma, address) as session:
        async with await session.import_memory("numbers") as remote:
            copy = array.array("i", bytes(remote.nbytes))
            copied = await dma.copy(remote, copy)
        print(f"dpu: copied {copied} bytes, equal: {copy == array.array('i', range(COUNT))}", flush=True)
        async with await session.import_memory("answer", allow_remote_write=True) as remote:
            await dma.copy(len(copy).to_bytes(8, "little"), remote)


def main() -> None:
    """Be the host, or, with an address, the DPU."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(dpu(sys.argv[1]) if sys.argv[1:] else host(f"unix:{folder}/socket"))


if __name__ == "__main__":
    main()
