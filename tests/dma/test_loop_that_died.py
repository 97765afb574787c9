"""C8, C10: a loop may be closed in any turn of anything. What was made for it is undone by whoever has it then."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import weakref
from collections.abc import Awaitable, Callable

import pytest
import uvloop

import aiodocadma
from aiodocadma import DMA, emulator

MIB = 1 << 20


async def opening(dma: DMA) -> None:
    async with aiodocadma.open_dma():
        pass


async def closing(dma: DMA) -> None:
    await dma.aclose()


async def registering(dma: DMA) -> None:
    async with await dma.register(bytearray(MIB)):
        pass


async def allocating(dma: DMA) -> None:
    async with await dma.alloc(MIB):
        pass


async def exporting(dma: DMA) -> None:
    async with await dma.alloc(MIB) as shared:
        await shared.export()


async def copying(dma: DMA) -> None:
    await dma.copy([bytes(MIB), bytes(100)], [bytearray(100), bytearray(MIB)])


async def submitting(dma: DMA) -> None:
    for _ in range(5):
        await dma.submit(bytes(MIB), bytearray(MIB))


async def cancelling(dma: DMA) -> None:
    copies = [dma.copy(bytes(MIB), bytearray(MIB)) for _ in range(3)]
    await asyncio.sleep(0)
    for copy in copies:
        copy.cancel()
    await asyncio.wait(copies)


async def failing(dma: DMA) -> None:
    emulator.inject(emulator.Fault("completion", status="IO_FAILED", skip=3))
    copies = [dma.copy(bytes(100), bytearray(100)) for _ in range(20)]
    await asyncio.wait(copies)
    for copy in copies:
        copy.exception()


async def draining(dma: DMA) -> None:
    copy = dma.copy(bytes(MIB), bytearray(MIB))
    await dma.drain()
    await copy


def wait_for_workers() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("aiodocadma"):
            thread.join()


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.parametrize("worker_first", [True, False], ids=["worker first", "loop first"])
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("num_turns", range(1, 9))
@pytest.mark.parametrize(
    "operation",
    [opening, closing, registering, allocating, exporting, copying, submitting, cancelling, failing, draining],
)
def test_nothing_is_left(
    operation: Callable[[DMA], Awaitable[None]],
    num_turns: int,
    new_loop: Callable[[], asyncio.AbstractEventLoop],
    worker_first: bool,
) -> None:
    loop = new_loop()
    dma = loop.run_until_complete(aiodocadma.open_dma().__aenter__())
    alive = weakref.ref(dma)
    task = asyncio.ensure_future(operation(dma), loop=loop)
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    for _ in range(num_turns):
        loop.call_soon(loop.stop)
        loop.run_forever()
    if worker_first:
        wait_for_workers()  # what they came to waits for a turn of the loop
    loop.close()
    del dma, task, loop  # a worker may have seen it open, and left its result there
    gc.collect()
    wait_for_workers()
    for _ in range(3):  # what a finaliser has brought back to life goes with the next
        gc.collect()
    assert alive() is None
    assert sum(emulator.live_objects()) == 0


def test_an_engine_that_waits_for_its_loop_is_not_closed_in_a_forked_child() -> None:
    """C9: it is the parent's."""
    loop = asyncio.new_event_loop()
    task = asyncio.ensure_future(opening_alone(), loop=loop)
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.call_soon(loop.stop)
    loop.run_forever()
    wait_for_workers()
    pid = os.fork()
    if pid == 0:
        before = emulator.live_objects()
        loop._ready.clear()  # type: ignore[attr-defined]  # all of loop.close() but for the epoll, which is shared
        del task
        gc.collect()
        os._exit(emulator.live_objects() != before)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    loop.run_until_complete(task)
    loop.close()


async def opening_alone() -> None:
    async with aiodocadma.open_dma():
        pass
