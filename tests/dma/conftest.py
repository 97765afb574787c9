"""The DMA under test: on the emulator, in every engine mode, and with nothing left behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Self

import pytest

import aiodocadma
from aiodocadma import DMA, CopyFuture, emulator
from aiodocadma._library import open_library

ENGINES = ("default", "worker", "manual")
# These tests also run on a library without experimental calls: then others do the work.
OPTIONAL = open_library().native.optional_symbols()
SUBMIT = "task_submit_ex" if OPTIONAL["doca_task_submit_ex"] else "task_submit"


@pytest.fixture(autouse=True)
def clean_emulator() -> Iterator[None]:
    """Start from the defaults; afterwards no object is alive, no fault unused, no rule of DOCA broken."""
    emulator.reset()
    yield
    live = emulator.live_objects()
    assert live == type(live)(*[0] * len(live)), live
    assert emulator.faults_pending() == 0
    assert emulator.violations() == []
    emulator.reset()


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """Set each engine mode in turn."""
    emulator.configure(engine=request.param)
    return str(request.param)


class Stepper:
    """Executes the manual engine's tasks, a few in every turn of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handle = loop.call_soon(self._step)

    def _step(self) -> None:
        emulator.step(7)
        self._handle = self._loop.call_soon(self._step)

    def stop(self) -> None:
        """Step no more."""
        self._handle.cancel()


@pytest.fixture
async def dma(engine: str) -> AsyncIterator[DMA]:
    """Open a DMA in the engine mode of ``engine``; the manual one is stepped from the loop."""
    stepper = Stepper(asyncio.get_running_loop()) if engine == "manual" else None
    async with aiodocadma.open_dma() as opened:
        yield opened
    if stepper is not None:
        stepper.stop()


@pytest.fixture
async def held_dma() -> AsyncIterator[DMA]:
    """Open a DMA whose copies are held until the test calls ``emulator.step()``; the rest is released at the end."""
    emulator.configure(engine="manual")
    async with aiodocadma.open_dma() as opened:
        yield opened
        while emulator.step(1000):
            pass


async def turns(n: int = 3) -> None:
    """Let the loop do n turns."""
    for _ in range(n):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object], what: str, limit: int = 100_000) -> None:
    """Let the loop run until a condition holds; after that many turns, say what is missing."""
    for _ in range(limit):
        if condition():
            return
        await asyncio.sleep(0)
    pytest.fail(f"still waiting for {what}")


# The calls of DOCA that open a DMA and may fail, in order.
OPEN_CALLS = (
    "devinfo_create_list",
    "dev_open",
    "pe_create",
    "pe_set_event_mode",
    "pe_get_notification_handle",
    "dma_create",
    "dma_cap_get_max_num_tasks",
    "pe_connect_ctx",
    "ctx_set_user_data",
    "ctx_set_state_changed_cb",
    "dma_task_memcpy_set_conf",
    "ctx_start",
    "buf_inventory_create",
    "buf_inventory_start",
)


def no_thread(self: threading.Thread) -> None:
    """In place of ``Thread.start()``, in a process that can have no more."""
    raise RuntimeError("can't start new thread")


def no_memory_for_a_thread(self: threading.Thread) -> None:
    """In place of ``Thread.start()``, which raises this where Python's own record of a thread cannot be had."""
    raise MemoryError


NO_THREAD = pytest.mark.parametrize("no_thread", [no_thread, no_memory_for_a_thread])


class RealCopies:
    """Copies of a DMA on the manual engine, for the tests that the pure-Python model of the future passes, too."""

    async def __aenter__(self) -> Self:
        self._opened = aiodocadma.open_dma()
        self._dma = await self._opened.__aenter__()
        # Any exception may be the failure of a copy here, not only what DOCA has codes for.
        self._failures: dict[object, BaseException] = {}
        self._dma._failure = lambda future, *_: self._failures.pop(future.tag)  # type: ignore[method-assign]
        self._addresses: dict[object, int] = {}
        self._maps: list[aiodocadma.MemoryMap] = []
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._opened.__aexit__(None, None, None)
        self._maps.clear()

    def start(self, length: int = 64) -> CopyFuture:
        """Start a copy that the engine holds."""
        tag = object()
        future = self._dma.copy(bytes(length), bytearray(length), tag=tag)
        self._dma._turn()  # ring the doorbell
        self._addresses[tag] = emulator.last_copies(1)[0].dst
        return future

    def finish(self, future: CopyFuture) -> None:
        """Let the engine finish this copy, and the DMA see it."""
        assert emulator.complete(self._addresses[future.tag])
        self._dma._readable()

    def fail(self, future: CopyFuture, error: BaseException) -> None:
        """Let the engine fail this copy, and the DMA see it."""
        self._failures[future.tag] = error
        assert emulator.complete(self._addresses[future.tag], code=17, fatal=False)
        self._dma._readable()


@pytest.fixture
def real_copies() -> RealCopies:
    """The engine is held until a test lets it finish a copy."""
    emulator.configure(engine="manual")
    return RealCopies()
