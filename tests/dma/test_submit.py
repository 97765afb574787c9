"""C4 for producers: ``submit()`` waits for the engine, ``max_waiting`` bounds what waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import aiodocadma
from aiodocadma import DMA, emulator
from aiodocadma._engine import Engine
from aiodocadma.exceptions import ClosedError, QueueFullError
from tests.dma.conftest import turns, until


@pytest.fixture
async def narrow() -> AsyncIterator[DMA]:
    """One task at a time, two copies may wait; held."""
    emulator.configure(engine="manual")
    async with aiodocadma.open_dma(num_tasks=1, max_waiting=2) as dma:
        yield dma
        while emulator.step(1000):
            dma._readable()


async def test_copy_is_refused_when_too_many_wait(narrow: DMA) -> None:
    futures = [narrow.copy(b"abc", bytearray(3)) for _ in range(3)]
    mmaps = emulator.live_objects().mmaps
    dst = bytearray(3)
    with pytest.raises(QueueFullError, match="as many copies wait as max_waiting=2 allows"):
        narrow.copy(b"abc", dst)
    dst.append(1)
    assert emulator.live_objects().mmaps == mmaps
    emulator.step()
    await futures[0]
    futures.append(narrow.copy(b"abc", dst[:3]))  # there is room again
    for future in futures[1:]:
        emulator.step()
        await future


async def test_maps_are_refused_as_well(narrow: DMA) -> None:
    async with await narrow.alloc(10) as src, await narrow.alloc(10) as dst:
        futures = [narrow.copy(src, dst) for _ in range(3)]
        with pytest.raises(QueueFullError):
            narrow.copy(src, dst)
        with pytest.raises(QueueFullError):
            narrow.copy_many([(src, dst)])
        for future in futures:
            emulator.step()
            await future


async def test_submit_returns_when_doca_has_begun(narrow: DMA) -> None:
    first = await narrow.submit(b"abc", bytearray(3))
    assert not first.done()
    second = asyncio.ensure_future(narrow.submit(b"abc", bytearray(3)))
    await turns(10)
    assert not second.done()
    emulator.step()
    await first
    assert not (await second).done()
    emulator.step()
    assert await second.result() == 3


async def test_a_producer_never_has_more_waiting_than_it_may(narrow: DMA) -> None:
    """Many producers at once: all is copied, in order, and never more wait than max_waiting."""
    dsts = [bytearray(2) for _ in range(50)]

    async def produce(i: int) -> None:
        assert await (await narrow.submit(i.to_bytes(2, "big"), dsts[i])) == 2

    tasks = [asyncio.ensure_future(produce(i)) for i in range(50)]
    for done in range(50):
        await until(lambda: emulator.live_objects().in_flight, "a task in flight")
        assert narrow.statistics().waiting <= 2
        assert emulator.last_copies(1)[0].length == 2
        emulator.step()
        await until(lambda done=done: sum(task.done() for task in tasks) > done, "the copy that was released")
    assert [bytes(dst) for dst in dsts] == [i.to_bytes(2, "big") for i in range(50)]


async def test_cancelled_while_it_waits_for_room(narrow: DMA) -> None:
    futures = [narrow.copy(b"abc", bytearray(3)) for _ in range(3)]
    tasks = [asyncio.ensure_future(narrow.submit(b"abc", bytearray(3))) for _ in range(3)]
    await turns()
    tasks[0].cancel()
    tasks[2].cancel()
    await asyncio.wait([tasks[0], tasks[2]])
    assert tasks[0].cancelled()
    assert not tasks[1].done()
    for future in futures:
        emulator.step()
        await future
    await until(tasks[1].done, "the one that was not cancelled")
    emulator.step()
    assert await tasks[1].result() == 3
    assert emulator.counters().submits == 4


async def test_cancelled_in_the_turn_in_which_room_came(narrow: DMA) -> None:
    """The place is not lost: the next in line gets it."""
    futures = [narrow.copy(b"abc", bytearray(3)) for _ in range(3)]
    tasks = [asyncio.ensure_future(narrow.submit(b"abc", bytearray(3))) for _ in range(2)]
    await turns()
    emulator.step()
    narrow._readable()  # wakes the first in line, which has not run yet
    tasks[0].cancel()
    await asyncio.wait([tasks[0]])
    assert tasks[0].cancelled()
    assert await futures[0] == 3
    for future in futures[1:]:
        emulator.step()
        await future
    await until(tasks[1].done, "the next in line")
    emulator.step()
    assert await tasks[1].result() == 3


async def test_the_place_is_passed_on_without_another_turn(narrow: DMA) -> None:
    """Copies between maps leave nothing to do behind them: no turn of the pump would come to hand the place on."""
    async with await narrow.alloc(3) as src, await narrow.alloc(30) as dst:
        futures = [narrow.copy(src, dst[3 * i : 3 * i + 3]) for i in range(3)]
        tasks = [asyncio.ensure_future(narrow.submit(src, dst[9 + 3 * i : 12 + 3 * i])) for i in range(2)]
        await turns()
        emulator.step()
        narrow._readable()
        tasks[0].cancel()
        await asyncio.wait([tasks[0]])
        await turns()
        started = narrow.statistics().copies_started
        await until(lambda: (emulator.step(), tasks[1].done())[1], "the next in line")
        await until(lambda: (emulator.step(), tasks[1].result().done())[1], "its copy")
        assert await asyncio.gather(*futures) == [3] * 3
    assert started == 4


async def test_cancelled_just_before_room_came(narrow: DMA) -> None:
    """Its wait is over when room comes, but it has not left the line: nobody trips over it, the next gets the place."""
    futures = [narrow.copy(b"abc", bytearray(3)) for _ in range(3)]
    tasks = [asyncio.ensure_future(narrow.submit(b"abc", bytearray(3))) for _ in range(2)]
    await turns()
    tasks[0].cancel()
    emulator.step()
    narrow._readable()
    await asyncio.wait([tasks[0]])
    assert tasks[0].cancelled()
    for future in futures:
        await future
        emulator.step()
    await until(tasks[1].done, "the next in line")
    emulator.step()
    assert await tasks[1].result() == 3


async def test_cancelled_in_the_turn_of_admission(narrow: DMA) -> None:
    """The copy is cancelled and waited for: when submit() raises, the engine has let go."""
    first = await narrow.submit(b"abc", bytearray(3))
    task = asyncio.ensure_future(narrow.submit(b"abc", dst := bytearray(3)))
    await turns()
    emulator.step()
    narrow._readable()  # gives DOCA the second, and wakes its submitter
    assert emulator.live_objects().in_flight == 1
    task.cancel()
    await turns(10)
    assert not task.done()
    emulator.step()
    with pytest.raises(asyncio.CancelledError):
        await task
    dst.append(1)
    assert await first == 3


@pytest.fixture
def slow_registration(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Registrations in a worker wait for this event."""
    gate = threading.Event()

    def slow(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, wait: bool = True, **options: Any) -> Any:
            assert not wait or gate.wait(10)
            return method(*args, wait=wait, **options)

        return call

    monkeypatch.setattr(Engine, "register", slow(Engine.register))
    monkeypatch.setattr(Engine, "alloc", slow(Engine.alloc))
    yield gate
    gate.set()


async def test_memory_that_is_being_registered_for_no_copy_takes_no_room(slow_registration: threading.Event) -> None:
    async with aiodocadma.open_dma(max_waiting=1) as dma:
        allocating = asyncio.ensure_future(dma.alloc(1 << 20))
        await turns()
        submitting = asyncio.ensure_future(dma.submit(b"abc", bytearray(3)))
        await turns(20)
        submitted = submitting.done()
        slow_registration.set()
        await asyncio.wait([submitting], timeout=5)
        assert await submitting.result() == 3
        assert submitted
        (await allocating).close()


async def test_a_copy_that_is_being_registered_takes_room_until_it_ends(slow_registration: threading.Event) -> None:
    """Also if it never comes to DOCA: then no turn of the pump tells those that wait for room."""
    async with aiodocadma.open_dma(max_waiting=1) as dma:
        registering = dma.copy(bytes(1 << 20), bytearray(1 << 20))
        with pytest.raises(QueueFullError):
            dma.copy(b"abc", bytearray(3))
        submitting = asyncio.ensure_future(dma.submit(b"abc", bytearray(3)))
        await turns(20)
        assert not submitting.done()
        registering.cancel()
        slow_registration.set()
        await asyncio.wait([registering])
        await asyncio.wait([submitting], timeout=5)
        assert submitting.done()
        assert await (await submitting) == 3


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_copy_that_is_being_registered_holds_up_no_other(
    slow_registration: threading.Event, cancelled: bool
) -> None:
    emulator.configure(engine="manual")
    async with aiodocadma.open_dma(num_tasks=1) as dma:
        first = dma.copy(b"abc", bytearray(3))
        registering = asyncio.ensure_future(dma.submit(bytes(1 << 20), bytearray(1 << 20)))
        await turns()
        submitting = asyncio.ensure_future(dma.submit(b"abc", bytearray(3)))
        await turns()
        if cancelled:
            registering.cancel()
            await turns()
        assert not submitting.done()
        emulator.step()
        assert await first == 3
        await turns(20)
        begun = submitting.done()
        slow_registration.set()
        await until(lambda: (emulator.step(), registering.done() and submitting.done())[1], "both")
        copies = [submitting.result()] + ([] if cancelled else [registering.result()])
        await until(lambda: (emulator.step(), all(copy.done() for copy in copies))[1], "their copies")
        assert begun
        assert sum(copy.result() for copy in copies) == 3 + (0 if cancelled else 1 << 20)


async def test_close_ends_the_waits(narrow: DMA) -> None:
    held = narrow.copy(b"abc", bytearray(3))
    waiting = [narrow.copy(b"abc", bytearray(3)) for _ in range(2)]
    producers = [asyncio.ensure_future(narrow.submit(b"abc", bytearray(3))) for _ in range(3)]
    await turns()
    closing = asyncio.ensure_future(narrow.aclose())
    await asyncio.wait(producers)
    for task in (*producers, *waiting):
        assert isinstance(task.exception(), ClosedError)
    emulator.step()
    await closing
    assert await held == 3


async def test_submit_without_a_bound_still_waits_for_doca(held_dma: DMA) -> None:
    futures = [await held_dma.submit(b"abc", bytearray(3)) for _ in range(256)]
    last = asyncio.ensure_future(held_dma.submit(b"abc", bytearray(3)))
    await turns(10)
    assert not last.done()
    emulator.step(256)
    await asyncio.gather(*futures)
    future = await last
    emulator.step()
    assert await future == 3


async def test_submit_refuses_as_copy_does(narrow: DMA) -> None:
    with pytest.raises(TypeError, match="dst"):
        await narrow.submit(b"abc", None)
    assert narrow.statistics().pending == 0
