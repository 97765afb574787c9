"""A service to look at: copies all the time, and does what it is told on stdin. Run by the tests of ``top``."""

from __future__ import annotations

import asyncio
import contextlib
import sys

import aiodocadma
from aiodocadma import emulator
from aiodocadma.exceptions import DocaError


async def copy_all_the_time(dma: aiodocadma.DMA) -> None:
    """Short copies, sixteen at a time, with a pause: nobody needs a busy machine."""
    async with await dma.alloc(64_000) as src, await dma.alloc(64_000) as dst:
        while True:
            with contextlib.suppress(DocaError):
                await asyncio.gather(
                    *[dma.copy(src[i : i + 4000], dst[i : i + 4000], tag=f"row {i}") for i in range(0, 64_000, 4000)]
                )
            await asyncio.sleep(0.01)


async def main() -> None:
    """Serve at the path of the first argument until stdin ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    emulator.configure(engine="worker")
    async with (
        aiodocadma.live.serve(sys.argv[1]),
        aiodocadma.open_dma(library="emulator", measure_latency=True, stall_timeout=0.3) as dma,
    ):
        copying = asyncio.create_task(copy_all_the_time(dma), name="copying")
        print("serving", flush=True)
        while line := (await reader.readline()).decode().strip():
            match line:
                case "fault":
                    emulator.inject(emulator.Fault("completion"))
                case "hold":
                    emulator.hold()
                case "release":
                    emulator.hold(False)
                    emulator.release()
            print(line, flush=True)
        emulator.hold(False)
        emulator.release()
        copying.cancel()
        await asyncio.wait([copying])


if __name__ == "__main__":
    import aiodocadma.live

    asyncio.run(main())
