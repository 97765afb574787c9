"""The ring of blocks when the engine stands still."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

import aiodocadma
from aiodocadma import emulator
from aiodocadma.cli._files import Stop, Worker
from aiodocadma.cli._progress import NoProgress
from aiodocadma.cli._ring import Block, run_ring
from aiodocadma.exceptions import DrainTimeoutError

DRAIN_TIMEOUT = 0.3  # seconds


@pytest.mark.parametrize("num_blocks", [1, 4])
async def test_an_engine_that_keeps_all_copies_is_waited_for_once(num_blocks: int) -> None:
    """Not once for each block, and again for each map: somebody has pressed Ctrl-C and waits."""
    emulator.reset()
    emulator.configure(engine="manual")
    begun = 0

    async def begin(block: Block, _: Worker) -> bool:
        nonlocal begun
        block.length = 100
        block.copied = dma.copy(block.maps[0][:100], block.maps[1][:100])
        begun += 1
        return True

    async def end(block: Block, _: Worker) -> None:
        raise AssertionError("no copy has ended")

    async with contextlib.AsyncExitStack() as stack:
        stop = Stop()
        stack.callback(stop.close)
        dma = await aiodocadma.open_dma(library="emulator", drain_timeout=DRAIN_TIMEOUT).__aenter__()
        ring = run_ring(
            dma,
            num_maps=2,
            block_size=4096,
            num_blocks=num_blocks,
            begin=begin,
            end=end,
            stop=stop,
            progress=NoProgress(),
        )
        task = asyncio.ensure_future(ring)
        while begun < num_blocks:
            await asyncio.sleep(0)
        start = asyncio.get_running_loop().time()
        task.cancel()
        await asyncio.wait([task])
        taken = asyncio.get_running_loop().time() - start
        with pytest.raises(DrainTimeoutError):
            await dma.aclose(timeout=0)
        emulator.step(2**63)
        await dma.aclose()
    assert task.cancelled()
    assert DRAIN_TIMEOUT <= taken < 2 * DRAIN_TIMEOUT
    emulator.reset()
