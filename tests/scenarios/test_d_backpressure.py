"""Part D: backpressure and submission."""

from __future__ import annotations

import asyncio
import itertools
import random
import statistics
import time
from typing import Any

import pytest

from aiodocadma import DMA, emulator
from aiodocadma.exceptions import DocaDriverError, DocaError, DocaInvalidValueError, DocaNoMemoryError
from tests.scenarios.conftest import Mode, opened, release, turns, until


@pytest.mark.rule("R41")
@pytest.mark.diagonal
@pytest.mark.usefixtures("held")
async def test_b43_bounded_retries_leak_again() -> None:
    """Room for one, 200 ms a copy, 20 at once: all succeed within 8 s, in order, with at most 40 submits."""
    loop = asyncio.get_running_loop()

    def tick() -> None:
        nonlocal timer
        release(1)
        timer = loop.call_later(0.2, tick)

    emulator.configure(queue_depth=1)
    timer = loop.call_later(0.2, tick)
    ended: list[int] = []
    async with opened(num_tasks=1) as dma, asyncio.timeout(8):

        async def one(i: int) -> None:
            assert await dma.copy(b"abc", bytearray(3)) == 3
            ended.append(i)

        await asyncio.gather(*[one(i) for i in range(20)])
        timer.cancel()
        assert ended == list(range(20))
        counters = emulator.counters()
        assert counters.submits == 20
        assert counters.submits + counters.again <= 40


async def cancel_some(dma: DMA, rng: random.Random) -> None:
    """2,000 copies in 16 tasks, 30 % of them cancelled within three turns."""
    left = 2000

    async def some() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            task = asyncio.ensure_future(dma.copy_coroutine(b"x" * 100, bytearray(100)))
            if rng.random() < 0.3:
                await turns(rng.randrange(4))
                task.cancel()
            await asyncio.wait([task])
            assert task.cancelled() or task.result() == 100

    await asyncio.gather(*[some() for _ in range(16)])


@pytest.mark.parametrize("queue_depth", [0, 2])
@pytest.mark.matrix(engines=("default", "worker", "manual"))
async def test_b44_slot_accounting_differs_from_the_device(engine: str, queue_depth: int) -> None:
    """Room for two, 2,000 copies 16 at a time, 30 % cancelled in flight: no error, never three, done within 5 s."""
    emulator.configure(queue_depth=queue_depth)
    rng = random.Random(44)
    start = time.perf_counter()

    async def stepping() -> None:
        while True:
            emulator.step(2, order="random")
            await asyncio.sleep(0)

    async with opened(num_tasks=2) as dma, asyncio.TaskGroup() as group:
        stepper = group.create_task(stepping())
        await cancel_some(dma, rng)
        stepper.cancel()
        await dma.drain()
        assert time.perf_counter() - start < 5
        assert emulator.counters().max_in_flight <= 2
        assert dma.statistics().copies_failed == 0


@pytest.mark.parametrize("slot_lag", [1, 3])
async def test_b44_slots_that_become_free_late(engine: str, slot_lag: int) -> None:
    """Room for two, slots usable only some progress calls later, 2,000 copies, 30 % cancelled: no error, under 5 s."""
    emulator.configure(slot_lag=slot_lag)
    rng = random.Random(44)
    start = time.perf_counter()
    async with opened(num_tasks=2) as dma:
        await cancel_some(dma, rng)
        await dma.drain()
        assert time.perf_counter() - start < 5
        assert emulator.counters().max_in_flight <= 2


@pytest.mark.matrix(engines=("default", "worker", "manual"))
async def test_b46_partial_batch_loses_the_tail(engine: str, mode: Mode) -> None:
    """32 copies in one tick, a queue of ten, AGAIN once more at the seventh: all complete, once each, in order."""
    emulator.configure(queue_depth=10)
    async with opened() as dma:
        src, dst = await dma.alloc(8 * 32), await dma.alloc(8 * 32)
        memoryview(src)[:] = bytes(range(256))
        emulator.inject(emulator.Fault(mode.submit, kind="again", skip=6))
        futures = [dma.copy(src[8 * i : 8 * i + 8], dst[8 * i : 8 * i + 8]) for i in range(32)]
        while engine == "manual" and not all(future.done() for future in futures):
            emulator.step(3)
            await turns(1)
        assert await asyncio.gather(*futures) == [8] * 32
        assert bytes(dst) == bytes(range(256))
        assert emulator.counters().submits == 32
        submitted = [trace.dst for trace in reversed(emulator.last_copies(32))]
        assert submitted == [submitted[0] + 8 * i for i in range(32)]
        futures.clear()
        src.close()
        dst.close()


@pytest.mark.usefixtures("held")
async def test_b47_exception_in_a_flush_orphans_the_batch(mode: Mode) -> None:
    """Eight copies in one tick: the third is refused, making the sixth's error fails: these two raise, six succeed."""
    async with opened() as dma:
        emulator.inject(
            emulator.Fault(mode.submit, status="INVALID_VALUE", skip=2),
            emulator.Fault("dma_task_memcpy_alloc_init", status="DRIVER", skip=4),
        )
        made = dma._failure

        def failure(future: Any, code: int, *details: Any) -> BaseException:
            if future.tag == 6:
                raise MemoryError("no room for the exception")
            return made(future, code, *details)

        dma._failure = failure  # type: ignore[method-assign]
        # The third's task is kept for the fourth, so the sixth copy is the fifth to ask for one.
        futures = [dma.copy(b"x" * 100, bytearray(100), tag=i) for i in range(1, 9)]
        await turns()
        release()
        results = await asyncio.gather(*futures, return_exceptions=True)
        assert [type(result) for result in results] == [
            *[int, int, DocaInvalidValueError],
            *[int, int, MemoryError],
            *[int, int],
        ]
        assert results.count(100) == 6
        del dma._failure  # type: ignore[method-assign]


@pytest.mark.rule("X06")
@pytest.mark.usefixtures("held")
async def test_b48_no_memory_while_tasks_are_out() -> None:
    """The pool is empty because its tasks are in flight: the next copy waits and succeeds."""
    async with opened() as dma:
        first = dma.copy(b"abc", bytearray(3))
        emulator.inject(emulator.Fault("dma_task_memcpy_alloc_init", status="NO_MEMORY", count=2))
        second = dma.copy(b"abc", bytearray(3))
        await until(lambda: not dma._scheduled, "the pump to rest")
        while not second.done():
            release()
            await turns(1)
        assert first.result() == second.result() == 3
        assert emulator.counters().no_memory == 0  # the fault's answer, not the pool's
        assert dma.statistics().no_memory == 2


@pytest.mark.parametrize("op", ["dma_task_memcpy_alloc_init", "buf_inventory_buf_get_by_args"])
async def test_b48_no_memory_while_idle(engine: str, op: str) -> None:
    """An idle engine says NO_MEMORY three times, then not: the copy succeeds."""
    emulator.inject(emulator.Fault(op, status="NO_MEMORY", count=3))
    async with opened() as dma:
        assert await dma.copy(b"abc", bytearray(3)) == 3


@pytest.mark.parametrize("op", ["dma_task_memcpy_alloc_init", "buf_inventory_buf_get_by_args"])
async def test_b48_no_memory_for_ever(engine: str, op: str) -> None:
    """An idle engine says NO_MEMORY for ever: after the bound it is raised, and the hint tells both meanings."""
    emulator.inject(emulator.Fault(op, status="NO_MEMORY", count=0))
    async with opened() as dma:
        with pytest.raises(DocaNoMemoryError) as caught:
            async with asyncio.timeout(2):
                await dma.copy(b"abc", bytearray(3))
        assert caught.value.phase == "alloc"
        assert emulator.counters().faults <= 64 + 4
        hint = caught.value.hint or ""
        assert "num_tasks" in hint
        assert "memory" in hint
        del caught


@pytest.mark.rule("R45")
async def test_b49_transient_code_treated_as_device_failure(engine: str, mode: Mode) -> None:
    """Submit answers each code once: AGAIN is retried, NO_MEMORY too, all others raise at once and lose no slot."""
    async with opened(num_tasks=2) as dma:
        for code in range(1, 31):
            emulator.inject(emulator.Fault(mode.submit, status=code))
            copying = dma.copy(b"abc", dst := bytearray(3))
            if code in (5, 7):
                assert await copying == 3
            else:
                with pytest.raises(DocaError) as caught:
                    await copying
                assert caught.value.code == code
                del caught
            del copying
            dst.append(0)
            # Both slots are there: two copies go through at once.
            assert await asyncio.gather(*[dma.copy(b"x" * 100, bytearray(100)) for _ in range(4)]) == [100] * 4
            assert emulator.live_objects().in_flight == 0
            assert emulator.live_objects().bufs <= 2 * 2  # kept for the next copies
        assert dma.statistics().restarts == 0


@pytest.mark.usefixtures("held")
@pytest.mark.matrix(engines=("default", "worker", "manual"))
@pytest.mark.parametrize("status", ["DRIVER", "AGAIN", "NO_MEMORY"])
async def test_b49_submit_fails_and_the_task_completes_later(mode: Mode, engine: str, status: str) -> None:
    """Submit reports an error, yet the engine writes later: the buffers are still pinned then, nothing ends twice."""
    emulator.inject(emulator.Fault(mode.submit, kind="accepted", status=status, skip=1))
    async with opened() as dma:
        first = dma.copy(b"x" * 100, bytearray(100))
        future = dma.copy(b"abc", dst := bytearray(3))
        ends: list[object] = []
        future.add_done_callback(ends.append)
        await turns()
        assert not future.done()
        with pytest.raises(BufferError):
            dst.append(1)
        if engine == "manual":
            assert dst == bytes(3)  # the others may have executed it, and withhold its end
            emulator.step(10)
        release()
        if status == "DRIVER":
            with pytest.raises(DocaDriverError) as caught:
                await future
            assert caught.value.phase == "submit"
            del caught
        else:
            assert await future == 3
        assert await first == 100
        assert dst == b"abc"
        del future
        await turns()
        dst.append(1)
        assert len(ends) == 1
        ends.clear()
        emulator.hold(False)
        copying = dma.copy(b"xyz", dst := bytearray(3))
        await turns()
        if engine == "manual":
            emulator.step(10)
        assert await copying == 3
        assert dst == b"xyz"
        assert dma.statistics().restarts == 0


def typical_step(times: list[float]) -> float:
    """The median of what lies between a moment and the next."""
    return statistics.median(after - before for before, after in itertools.pairwise(times))


@pytest.mark.diagonal
@pytest.mark.parametrize("copies", [20_000, pytest.param(100_000, marks=pytest.mark.deep)])
async def test_b50_unbounded_fan_out(engine: str, copies: int) -> None:
    """gather() of 100,000 copies of 64 B with room for 64: under 30 s, no more than 64 tasks, no cost that grows."""
    chunk, part = copies // 10, copies // 100
    stamps: list[float] = []
    async with opened(num_tasks=64) as dma:
        src, dst = await dma.alloc(64), await dma.alloc(64)
        peak = 0

        all_ended = asyncio.get_running_loop().create_future()

        def ended(_: object) -> None:
            nonlocal peak
            stamps.append(time.thread_time())
            peak = max(peak, emulator.live_objects().tasks) if len(stamps) % 1000 == 0 else peak
            if len(stamps) == copies:
                all_ended.set_result(None)

        start = time.perf_counter()
        futures = []
        created = []
        for _ in range(100):
            created.append(time.thread_time())
            futures += [dma.copy(src, dst) for _ in range(part)]
        created.append(time.thread_time())
        for future in futures:
            future.add_done_callback(ended)
        await all_ended
        assert await asyncio.gather(*futures) == [64] * copies
        assert time.perf_counter() - start < 30
        live = emulator.live_objects()
        assert peak <= 64
        assert live.mmaps == 2
        assert live.bufs <= 2 * 64
        # Started, and ended; the median of ten parts, for a collection of garbage falls into one of them.
        assert typical_step(created[: chunk // part + 1]) > 0
        for times, step in ((created, 1), (stamps, part)):
            first, last = times[: chunk // part * step + 1 : step], times[-(chunk // part) * step - 1 :: step]
            assert typical_step(last) <= 2 * typical_step(first), step
        futures.clear()
        src.close()
        dst.close()


@pytest.mark.usefixtures("held")
async def test_b50_producers_that_wait_for_room() -> None:
    """submit() with max_waiting: 1,000 copies by one producer, never more than the bound wait, none is lost."""
    async with opened(num_tasks=4, max_waiting=8) as dma:
        most = 0

        async def produce() -> list[Any]:
            nonlocal most
            futures = []
            for _ in range(1000):
                futures.append(await dma.submit(b"abc", bytearray(3)))
                most = max(most, dma.statistics().waiting)
            return futures

        producer = asyncio.ensure_future(produce())
        while not producer.done():
            release(3)
            await turns(1)
        futures = producer.result()
        await until(lambda: release() == 0 and not dma._pending, "the rest")
        assert await asyncio.gather(*futures) == [3] * 1000
        assert most <= 8


@pytest.mark.diagonal
@pytest.mark.parametrize("copies", [20_000, pytest.param(100_000, marks=pytest.mark.deep)])
async def test_b50_unbounded_fan_out_cancelled(engine: str, copies: int) -> None:
    """The gather() of that fan-out cancelled at mid-way frees everything within 2 s."""
    async with opened(num_tasks=64) as dma:
        src, dst = await dma.alloc(64), await dma.alloc(64)

        async def all_of_them() -> None:
            await asyncio.gather(*[dma.copy(src, dst) for _ in range(copies)])

        task = asyncio.ensure_future(all_of_them())
        await until(lambda: dma.statistics().copies_completed > copies // 2, "half of them")
        start = time.perf_counter()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.perf_counter() - start < 2
        assert dma.statistics().pending == 0
        assert emulator.live_objects().bufs <= 2 * 64  # kept for the next copies
        assert emulator.live_objects().in_flight == 0
        src.close()
        dst.close()
