"""
Chaos from Python: a seed gives the same decisions to the same program, whatever the machine does meanwhile.

On another kind of loop it is not the same program: tasks run in another order there.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest
import uvloop

import aiodocadma
from aiodocadma import DMAState, emulator
from aiodocadma.emulator import Event
from aiodocadma.exceptions import DocaError

BLOCK = 3000
NUM_BLOCKS = 40
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(autouse=True)
def clean_emulator() -> Iterator[None]:
    """Start from the defaults; afterwards no object is alive and no rule of DOCA broken."""
    emulator.reset()
    yield
    live = emulator.live_objects()
    assert live == type(live)(*[0] * len(live)), live
    assert emulator.violations() == []
    emulator.reset()


async def service(*, patient: bool) -> int:
    """
    Copy blocks, some cut to pieces; how many copies failed.

    The patient await a round of copies before the next, and the restart after one that failed: a context is restarted,
    and the cause of a failure looked for, in a thread, and what others do meanwhile is a matter of time.
    """
    failed = 0

    def copy(i: int) -> aiodocadma.CopyFuture:
        return dma.copy(src[i * BLOCK : (i + 1) * BLOCK], dst[i * BLOCK : (i + 1) * BLOCK])

    async def worker(n: int) -> None:
        for i in range(n, NUM_BLOCKS, 5):
            await copy(i)
            for _ in range(n):
                await asyncio.sleep(0)

    async with aiodocadma.open_dma(num_tasks=16, window=7) as dma:
        src = await dma.register(bytes(range(250)) * (BLOCK * NUM_BLOCKS // 250))
        dst = await dma.alloc(src.nbytes)
        if patient:
            for start in range(0, NUM_BLOCKS, 5):
                results = await asyncio.gather(*map(copy, range(start, start + 5)), return_exceptions=True)
                failed += sum(isinstance(result, DocaError) for result in results)
                while dma.state is DMAState.RESTARTING:
                    await asyncio.sleep(0)
        else:
            await asyncio.gather(*map(worker, range(5)))
        if not failed:
            assert bytes(dst) == bytes(src)
    return failed


def events(
    factory: Callable[[], asyncio.AbstractEventLoop], seed: int, *, patient: bool = False, **settings: int
) -> tuple[list[Event], int]:
    """What one run of the service made the emulator decide, and how many copies failed."""
    emulator.configure(chaos=seed, max_buf_size=1024, **settings)
    with asyncio.Runner(loop_factory=factory) as runner:
        failed = runner.run(service(patient=patient))
    happened = emulator.chaos_events()
    emulator.reset()
    return happened, failed


@pytest.mark.parametrize("loop", LOOPS)
def test_a_seed_gives_the_same_events_on_100_runs(loop: str) -> None:
    expected, _ = events(LOOPS[loop], 12345)
    assert len(expected) > 3 * NUM_BLOCKS
    assert {event.kind for event in expected} == {"submit", "again", "run", "report", "spurious"}
    for _ in range(99):
        assert events(LOOPS[loop], 12345)[0] == expected


def test_a_busy_machine_changes_nothing() -> None:
    expected, _ = events(LOOPS["asyncio"], 7)
    stop = threading.Event()
    busy = threading.Thread(target=lambda: [None for _ in iter(stop.is_set, True)])
    busy.start()  # takes the processor away at odd moments
    try:
        for _ in range(20):
            assert events(LOOPS["asyncio"], 7)[0] == expected
    finally:
        stop.set()
        busy.join()


def test_no_two_seeds_agree() -> None:
    assert len({tuple(events(LOOPS["asyncio"], seed)[0]) for seed in range(1, 21)}) == 20


@pytest.mark.parametrize("loop", LOOPS)
def test_faults_repeat_as_well(loop: str) -> None:
    runs = [events(LOOPS[loop], 99, patient=True, chaos_faults=20) for _ in range(100)]
    assert all(run == runs[0] for run in runs)
    happened, failed = runs[0]
    assert 0 < failed < NUM_BLOCKS
    assert any(event.kind == "report" and event.value for event in happened)


def test_the_latest_events() -> None:
    happened, _ = events(LOOPS["asyncio"], 5)
    assert emulator.chaos_events() == []
    emulator.configure(chaos=5, max_buf_size=1024)
    asyncio.run(service(patient=False))
    assert emulator.chaos_events(3) == happened[-3:]
    assert emulator.chaos_events(0) == []
