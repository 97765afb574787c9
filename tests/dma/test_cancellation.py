"""C1 and C2: when an awaited copy ends, however it ends, the engine has let go; memory is pinned until then."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest

import aiodocadma
from aiodocadma import DMA, CopyFuture, emulator
from tests.dma.conftest import turns, until


def in_flight() -> int:
    return emulator.live_objects().in_flight


async def when_held(dma: DMA, num_tasks: int = 1) -> None:
    """Wait until DOCA holds that many tasks and the pump has nothing left to do."""
    await until(lambda: in_flight() >= num_tasks and not dma._scheduled, f"{num_tasks} tasks in flight")


@pytest.mark.rule("R11")
async def test_cancel_in_flight_waits_for_the_engine(held_dma: DMA) -> None:
    dst = bytearray(100)
    task = asyncio.ensure_future(held_dma.copy_coroutine(b"x" * 100, dst))
    await when_held(held_dma)
    task.cancel()
    await turns(20)
    assert not task.done()
    assert in_flight() == 1
    with pytest.raises(BufferError):
        dst.append(0)
    emulator.step()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert in_flight() == 0
    dst.append(0)


@pytest.mark.parametrize("cancels", [1, 2, 3])
async def test_any_number_of_cancels(held_dma: DMA, cancels: int) -> None:
    task = asyncio.ensure_future(held_dma.copy_coroutine(b"abc", bytearray(3)))
    await when_held(held_dma)
    for _ in range(cancels):
        task.cancel()
        await turns()
    assert not task.done()
    emulator.step()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_waiting_copy_is_withdrawn_and_doca_never_sees_it() -> None:
    emulator.configure(engine="manual")
    async with aiodocadma.open_dma(num_tasks=1) as dma:
        first = dma.copy(b"a", bytearray(1))
        waiting = dma.copy(b"b", bytearray(1))
        assert waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not first.done()
        emulator.step(10)
        await first
        assert emulator.counters().submits == 1
        assert dma.statistics().copies_cancelled == 1


async def test_a_cancelled_large_copy_waits_for_one_window_only() -> None:
    emulator.configure(engine="manual", max_buf_size=1000)
    async with aiodocadma.open_dma(num_tasks=4) as dma:
        future = dma.copy(bytes(1_000_000), bytearray(1_000_000))
        await until(lambda: in_flight() == 4, "4 tasks in flight")
        future.cancel()
        await turns()
        assert not future.done()
        assert emulator.step(10) == 4
        with pytest.raises(asyncio.CancelledError):
            await future
        assert emulator.counters().submits == 4


async def _timeout(dma: DMA, start: Callable[[], CopyFuture]) -> None:
    async with asyncio.timeout(0):
        await start()


async def _timeout_gather(dma: DMA, start: Callable[[], CopyFuture]) -> None:
    async with asyncio.timeout(0):
        await asyncio.gather(*[start() for _ in range(5)])


async def _timeout_gather_exceptions(dma: DMA, start: Callable[[], CopyFuture]) -> None:
    async with asyncio.timeout(0):
        await asyncio.gather(*[start() for _ in range(5)], return_exceptions=True)


async def _wait_for(dma: DMA, start: Callable[[], CopyFuture]) -> None:
    await asyncio.wait_for(start(), 0.001)


async def _wait_for_gather(dma: DMA, start: Callable[[], CopyFuture]) -> None:
    await asyncio.wait_for(asyncio.gather(*[start() for _ in range(5)]), 0.001)


async def _task_group(dma: DMA, start: Callable[[], CopyFuture]) -> None:
    async def one() -> None:
        await start()

    async with asyncio.timeout(0), asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(one())
        await turns(1)


async def _task_group_coroutine(dma: DMA, start: Callable[[], CopyFuture]) -> None:
    async with asyncio.timeout(0), asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(dma.copy_coroutine(b"abc", bytearray(3)))


async def _anyio(dma: DMA, start: Callable[[], CopyFuture]) -> None:
    with anyio.fail_after(0):
        await start()


async def _anyio_group(dma: DMA, start: Callable[[], CopyFuture]) -> None:
    with anyio.fail_after(0):
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(dma.copy_coroutine, b"abc", bytearray(3))


@pytest.mark.parametrize(
    "construct",
    [
        _timeout,
        _timeout_gather,
        _timeout_gather_exceptions,
        _wait_for,
        _wait_for_gather,
        _task_group,
        _task_group_coroutine,
        _anyio,
        _anyio_group,
    ],
)
async def test_nothing_is_in_flight_when_a_construct_returns(held_dma: DMA, construct: Any) -> None:
    """Each ends only when the engine has let go of every copy in it, and then in TimeoutError."""
    loop = asyncio.get_running_loop()
    released: list[bool] = []

    def start() -> CopyFuture:
        return held_dma.copy(b"abc", bytearray(3))

    def release(delay: int) -> None:
        # Some turns after the cancellation, one by one, in another order than they were submitted.
        if delay:
            loop.call_soon(release, delay - 1)
        elif emulator.step(1, order="lifo"):
            released.append(True)
            loop.call_soon(release, 5)

    loop.call_later(0.05, release, 50)  # well after the deadlines
    with pytest.raises(TimeoutError):
        await construct(held_dma, start)
    assert in_flight() == 0
    assert held_dma.statistics().pending == 0


@pytest.mark.parametrize("outcome", ["success", "failure"])
async def test_the_cancellation_wins_over_the_engines_outcome(held_dma: DMA, outcome: str) -> None:
    if outcome == "failure":
        emulator.inject(emulator.Fault("completion", status="IO_FAILED"))
    task = asyncio.ensure_future(held_dma.copy_coroutine(b"abc", bytearray(3)))
    await when_held(held_dma)
    task.cancel()
    await turns()
    emulator.step()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_cancel_in_the_turn_of_completion(held_dma: DMA) -> None:
    for _ in range(20):
        task = asyncio.ensure_future(held_dma.copy_coroutine(b"abc", dst := bytearray(3)))
        await when_held(held_dma)
        emulator.step()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        dst.append(1)


async def test_cancelled_before_its_first_step_nothing_was_started(held_dma: DMA) -> None:
    task = asyncio.ensure_future(held_dma.copy_coroutine(b"abc", bytearray(3)))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert emulator.counters().submits == 0


async def test_some_of_a_batch_are_cancelled(held_dma: DMA) -> None:
    """Cancelled ones do not disturb the others of the same completion batch."""
    dsts = [bytearray(3) for _ in range(8)]
    futures = [held_dma.copy(b"abc", dst) for dst in dsts]
    await when_held(held_dma, 8)
    for i in (1, 4, 7):
        futures[i].cancel()
    assert emulator.step(8) == 8
    results = await asyncio.gather(*futures, return_exceptions=True)
    for i, result in enumerate(results):
        assert isinstance(result, asyncio.CancelledError) if i in (1, 4, 7) else result == 3


@pytest.mark.rule("R61")
async def test_dropped_copies_keep_their_memory_and_finish(held_dma: DMA) -> None:
    """C2: no reference is left above, and still the memory is pinned until the engine ends."""
    futures = [held_dma.copy(bytes([i]) * 60_000, bytearray(60_000)) for i in range(5)]
    await when_held(held_dma, 5)
    for future in futures[:3]:
        future.cancel()
    del futures, future
    gc.collect()
    live = emulator.live_objects()
    assert live.bufs == 10
    assert live.in_flight == 5
    assert emulator.step(10) == 5
    await held_dma.drain()
    assert emulator.live_objects().in_flight == 0


async def test_a_cancelled_registration_starts_nothing(held_dma: DMA) -> None:
    """Larger than what is pinned inline: cancelled while the worker registers it."""
    future = held_dma.copy(bytes(2**21), dst := bytearray(2**21))
    future.cancel()
    with pytest.raises(asyncio.CancelledError):
        await future
    assert emulator.counters().submits == 0
    dst.append(1)


@pytest.mark.parametrize("cancels", [1, 2, 3])
async def test_cancelled_alloc_leaves_nothing(cancels: int, held_dma: DMA, monkeypatch: pytest.MonkeyPatch) -> None:
    """C1: however often, it ends with the registration under way, and undoes that."""
    may_end = threading.Event()
    alloc = held_dma._engine.alloc

    def slow(*args: Any, **kwargs: Any) -> int | None:
        may_end.wait(10)
        return alloc(*args, **kwargs)

    monkeypatch.setattr(held_dma._engine, "alloc", slow)
    task = asyncio.ensure_future(held_dma.alloc(2**21))
    await turns(1)
    for _ in range(cancels):
        task.cancel()
        await turns(2)
    assert not task.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert emulator.live_objects().mmaps == 0


async def test_drain_is_the_barrier(held_dma: DMA) -> None:
    future = held_dma.copy(b"abc", bytearray(3))
    done, pending = await asyncio.wait([future], timeout=0)
    assert not done
    assert pending == {future}
    barrier = asyncio.ensure_future(held_dma.drain())
    await turns(10)
    assert not barrier.done()
    emulator.step()
    await barrier
    assert future.done()


async def test_a_held_copy_in_a_cancelled_anyio_scope_costs_no_turns(held_dma: DMA) -> None:
    """anyio delivers a cancellation anew in every turn of the loop: shielded, the wait does not spin."""
    loop = asyncio.get_running_loop()
    counted = 0

    def count(remaining: int) -> None:
        nonlocal counted
        counted += 1
        if remaining:
            loop.call_later(0.01, count, remaining - 1)
        else:
            emulator.step()

    before = held_dma.statistics().turns
    loop.call_later(0.01, count, 10)
    with anyio.move_on_after(0.001) as scope:
        await held_dma.copy(b"abc", bytearray(3))
    assert scope.cancelled_caught
    assert counted == 11
    assert held_dma.statistics().turns - before < 10
