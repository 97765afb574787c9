"""C5: k bad copies among n give exactly k exceptions and n - k correct results, whatever DOCA tells of the flushed."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from typing import Any

import numpy as np
import pytest

import aiodocadma
from aiodocadma import DMAState, emulator
from aiodocadma.exceptions import (
    CopyManyError,
    DocaDriverError,
    DocaIoFailedError,
    DrainTimeoutError,
    EngineLostError,
    FlushedError,
)
from tests.dma.conftest import turns, until


def address_of(memory_map: aiodocadma.MemoryMap) -> int:
    return int(np.frombuffer(memory_map, np.uint8).ctypes.data)


@pytest.mark.rule("R47", "R48", "X12")
@pytest.mark.parametrize("flush_status", ["culprit", "IO_FAILED", "DRIVER", "SHUTDOWN"])
@pytest.mark.parametrize(("count", "num_bad"), [(1000, 1), (1000, 20)])
async def test_k_bad_among_n(engine: str, count: int, num_bad: int, flush_status: str) -> None:
    emulator.configure(engine="worker" if engine == "manual" else engine, flush_status=flush_status)
    bad = set(random.Random(num_bad).sample(range(count), num_bad))
    async with aiodocadma.open_dma() as dma, await dma.alloc(count * 64) as src, await dma.alloc(count * 64) as dst:
        data = random.Random(1).randbytes(count * 64)
        memoryview(src)[:] = data
        for i in bad:
            emulator.inject(emulator.Fault("completion", src=address_of(src) + i * 64, count=0))
        results = await asyncio.gather(
            *[dma.copy(src[i * 64 : i * 64 + 64], dst[i * 64 : i * 64 + 64]) for i in range(count)],
            return_exceptions=True,
        )
        emulator.configure(faults="none")
        assert {i for i, result in enumerate(results) if isinstance(result, BaseException)} == bad
        assert {type(results[i]) for i in bad} == {DocaIoFailedError}
        got = bytes(dst)
        assert all(got[i * 64 : i * 64 + 64] == data[i * 64 : i * 64 + 64] for i in range(count) if i not in bad)
        statistics = dma.statistics()
        assert statistics.restarts == num_bad
        assert statistics.copies_failed == num_bad
        assert statistics.copies_completed == count - num_bad
        assert dma.state is DMAState.RUNNING


@pytest.mark.parametrize("num_bad", [1, 20])
@pytest.mark.parametrize("engine", ["default", "worker"])
async def test_k_bad_among_1000_in_flight(engine: str, num_bad: int) -> None:
    """DOCA has all of them before the first is reported; the emulator's own count of restarts, not the client's."""
    count, size = 1000, 64
    emulator.configure(engine=engine)
    emulator.hold()
    bad = set(random.Random(num_bad).sample(range(count), num_bad))
    data = random.Random(1).randbytes(count * size)
    async with (
        aiodocadma.open_dma(num_tasks=count) as dma,
        await dma.alloc(count * size) as src,
        await dma.alloc(count * size) as dst,
    ):
        memoryview(src)[:] = data
        for i in bad:
            emulator.inject(emulator.Fault("completion", src=address_of(src) + i * size, count=0))
        parts = [slice(i * size, (i + 1) * size) for i in range(count)]
        futures = [dma.copy(src[part], dst[part]) for part in parts]
        await until(lambda: emulator.live_objects().in_flight == count, "1,000 in flight")
        before = emulator.counters()
        emulator.hold(False)
        emulator.release(order="random")
        results = await asyncio.gather(*futures, return_exceptions=True)
        assert await dma.copy(b"abc", bytearray(3)) == 3  # after the last restart
        after = emulator.counters()
        emulator.configure(faults="none")
        assert {i for i, result in enumerate(results) if result != size} == bad
        assert {type(results[i]) for i in bad} == {DocaIoFailedError}
        got = bytes(dst)
        assert [i for i, part in enumerate(parts) if i not in bad and got[part] != data[part]] == []
        assert after.ctx_faults - before.ctx_faults == num_bad
        assert after.ctx_starts - before.ctx_starts == num_bad
        assert dma.statistics().restarts == num_bad
        assert emulator.live_objects().in_flight == 0
        futures.clear()


async def test_thirty_bad_in_a_row_are_thirty_errors_and_no_lost_engine() -> None:
    async with aiodocadma.open_dma() as dma, await dma.alloc(90) as src:
        for i in range(30):
            emulator.inject(emulator.Fault("completion", src=address_of(src) + 3 * i, count=0))
        results = await asyncio.gather(
            *[dma.copy(src[3 * i : 3 * i + 3], bytearray(3)) for i in range(30)], return_exceptions=True
        )
        assert [type(result) for result in results] == [DocaIoFailedError] * 30
        assert await dma.copy(b"abc", bytearray(3)) == 3
        emulator.configure(faults="none")


async def test_an_engine_that_only_fails_is_given_up() -> None:
    """The crash-loop guard: no restart for ever without one task that works."""
    emulator.inject(emulator.Fault("completion", count=0))
    async with aiodocadma.open_dma() as dma:
        results = await asyncio.gather(*[dma.copy(b"abc", bytearray(3)) for _ in range(200)], return_exceptions=True)
        kinds = [type(result) for result in results]
        assert kinds == [DocaIoFailedError] * 65 + [EngineLostError] * 135
        assert dma.state is DMAState.LOST
        assert dma.statistics().restarts == 64
        with pytest.raises(EngineLostError) as caught:
            dma.copy(b"abc", bytearray(3))
        assert "64 faults" in str(caught.value.__cause__)
        del caught
    emulator.configure(faults="none")


async def test_never_replayed_after_a_driver_fault() -> None:
    emulator.configure(engine="manual")
    emulator.inject(emulator.Fault("completion", status="DRIVER"))
    async with aiodocadma.open_dma() as dma:
        futures = [dma.copy(b"abc", bytearray(3)) for _ in range(4)]
        await turns()
        emulator.step(10)
        results = await asyncio.gather(*futures, return_exceptions=True)
        assert [type(result) for result in results] == [DocaDriverError, *[FlushedError] * 3]
        assert isinstance(results[1], FlushedError)
        assert isinstance(results[1].culprit, DocaDriverError)


async def test_other_segments_of_the_culprits_copy_are_not_replayed() -> None:
    emulator.configure(engine="manual", max_buf_size=10)
    emulator.inject(emulator.Fault("completion", skip=2))
    async with aiodocadma.open_dma() as dma, await dma.alloc(100) as src, await dma.alloc(100) as dst:
        bad = dma.copy(src[:50], dst[:50])
        good = dma.copy(src[50:], dst[50:])
        await turns()
        emulator.step(10)
        with pytest.raises(DocaIoFailedError):
            await bad
        before = emulator.counters().submits
        await until(lambda: emulator.step(1) == 0 and good.done(), "the replay")
        assert await good == 50
        assert emulator.counters().submits - before <= 5  # those of the good copy only


async def test_a_flushed_copy_that_fails_at_its_replay_fails_once() -> None:
    """Its other flushed segments are not replayed either: each would cost a restart, and together the engine."""
    emulator.configure(engine="manual", max_buf_list_len=1)
    async with aiodocadma.open_dma() as dma, await dma.alloc(2000) as src, await dma.alloc(2000) as dst:
        memoryview(src)[:] = random.Random(1).randbytes(2000)
        for offset in (0, *range(100, 900, 10)):
            emulator.inject(emulator.Fault("completion", src=address_of(src) + offset, count=0))
        parts = [slice(offset, offset + 10) for offset in range(100, 900, 10)]
        copies = [
            dma.copy(src[:10], dst[:10]),
            dma.copy([src[part] for part in parts], [dst[part] for part in parts]),
            dma.copy(src[1000:], dst[1000:]),
        ]
        results = asyncio.gather(*copies, return_exceptions=True)
        await until(lambda: emulator.step(100) == 0 and results.done(), "all copies")
        assert [type(result) for result in results.result()] == [DocaIoFailedError, DocaIoFailedError, int]
        assert bytes(dst[1000:]) == bytes(src[1000:])
        assert dma.statistics().restarts == 2
        assert dma.statistics().segments_replayed == 2
        emulator.configure(faults="none")


@pytest.mark.parametrize("on_flush", ["replay", "fail"])
async def test_a_long_pair_that_fails_does_so_once(engine: str, on_flush: Any) -> None:
    """Whatever of it DOCA does not have is left out, whatever was flushed is not replayed; the other pairs are done."""
    emulator.configure(engine="worker" if engine == "manual" else engine, max_buf_size=10)
    async with (
        aiodocadma.open_dma(on_flush=on_flush) as dma,
        await dma.alloc(2000) as src,
        await dma.alloc(2000) as dst,
    ):
        memoryview(src)[:] = random.Random(1).randbytes(2000)
        for offset in range(100, 1900, 10):
            emulator.inject(emulator.Fault("completion", src=address_of(src) + offset, count=0))
        future = dma.copy_many([(src[:100], dst[:100]), (src[100:1900], dst[100:1900]), (src[1900:], dst[1900:])])
        with pytest.raises(CopyManyError) as caught:
            await future
        errors = dict(zip(caught.value.indices, caught.value.exceptions, strict=True))
        assert type(errors[1]) is DocaIoFailedError
        statistics = dma.statistics()
        assert statistics.restarts == 1
        assert statistics.segments_submitted < 50
        if on_flush == "replay":
            assert list(errors) == [1]
            assert bytes(dst[:100]) + bytes(dst[1900:]) == bytes(src[:100]) + bytes(src[1900:])
            assert future.bytes_done == 200
        emulator.configure(faults="none")
        del caught, errors


async def test_cancelled_while_the_context_restarts() -> None:
    emulator.configure(engine="manual")
    emulator.inject(emulator.Fault("completion"))
    async with aiodocadma.open_dma() as dma:
        futures = [dma.copy(b"abc", bytearray(3)) for _ in range(3)]
        await turns()
        emulator.step(10)
        dma._readable()  # the burst is through, the restart begins in a worker
        assert dma.state is DMAState.RESTARTING
        futures[1].cancel()
        late = dma.copy(b"abc", bytearray(3))
        late.cancel()
        results = asyncio.gather(*futures, late, return_exceptions=True)
        await until(lambda: emulator.step(10) or results.done(), "the end of the restart")
        await until(results.done, "all copies")
        assert [type(result) for result in results.result()] == [
            DocaIoFailedError,
            asyncio.CancelledError,
            int,
            asyncio.CancelledError,
        ]


async def test_closed_while_the_context_restarts() -> None:
    emulator.configure(engine="manual")
    emulator.inject(emulator.Fault("completion"))
    async with aiodocadma.open_dma() as dma:
        futures = [dma.copy(b"abc", bytearray(3)) for _ in range(3)]
        await turns()
        emulator.step(10)
        dma._readable()
        await dma.aclose()
        results = await asyncio.gather(*futures, return_exceptions=True)
        assert [type(result) for result in results] == [DocaIoFailedError, *[aiodocadma.ClosedError] * 2]


async def test_a_fault_while_closing_ends_what_it_flushes() -> None:
    emulator.configure(engine="manual")
    emulator.inject(emulator.Fault("completion"))
    async with aiodocadma.open_dma() as dma:
        futures = [dma.copy(b"abc", bytearray(3)) for _ in range(4)]
        await turns()
        closing = asyncio.ensure_future(dma.aclose())
        await turns()
        emulator.step(10)
        await closing
        await until(lambda: all(future.done() for future in futures), "all copies", limit=10)
        results = await asyncio.gather(*futures, return_exceptions=True)
        assert [type(result) for result in results] == [DocaIoFailedError, *[aiodocadma.ClosedError] * 3]


@pytest.mark.parametrize("kind", ["copy", "copy_many"])
async def test_a_fault_while_closing_flushes_what_closing_has_cut_off(kind: str) -> None:
    """The rest of a copy would not have been given to DOCA in any case: closing is what ends it."""
    emulator.configure(engine="manual", max_buf_size=4)
    async with aiodocadma.open_dma(num_tasks=2) as dma:
        source = b"x" * 8
        src, dst = await dma.register(source), await dma.alloc(8)
        bad = dma.copy(b"abc", bytearray(3))
        long = dma.copy(src, dst) if kind == "copy" else dma.copy_many([(src[:4], dst[:4]), (src[4:], dst[4:])])
        await turns()
        closing = asyncio.ensure_future(dma.aclose())
        await turns()
        [culprit] = [copy.dst for copy in emulator.last_copies(2) if copy.length == 3]
        emulator.complete(culprit, code=17)
        emulator.step(10)
        await closing
        results = await asyncio.gather(bad, long, return_exceptions=True)
        assert [type(result) for result in results] == [DocaIoFailedError, aiodocadma.ClosedError]


async def test_a_failure_that_leaves_the_context_running() -> None:
    emulator.inject(emulator.Fault("completion", fatal=False))
    async with aiodocadma.open_dma() as dma:
        results = await asyncio.gather(*[dma.copy(b"abc", bytearray(3)) for _ in range(10)], return_exceptions=True)
        assert [type(result) for result in results] == [DocaIoFailedError, *[int] * 9]
        assert dma.statistics().restarts == 0


@pytest.mark.rule("R40")
async def test_capabilities_that_changed_are_read_again() -> None:
    """Waiting copies are cut at the new limit; a flushed segment that is too long now cannot be replayed."""
    emulator.configure(engine="manual", max_buf_size=1000)
    emulator.inject(emulator.Fault("completion"))
    async with aiodocadma.open_dma(num_tasks=2) as dma, await dma.alloc(3000) as src, await dma.alloc(3000) as dst:
        memoryview(src)[:] = random.Random(1).randbytes(3000)
        first, flushed, waiting = (dma.copy(src[i : i + 1000], dst[i : i + 1000]) for i in range(0, 3000, 1000))
        await turns()
        emulator.configure(max_buf_size=300)
        emulator.step(10)
        with pytest.raises(DocaIoFailedError):
            await first
        with pytest.raises(FlushedError):
            await flushed
        await until(lambda: emulator.step(10) == 0 and waiting.done(), "the copy that waited")
        assert await waiting == 1000
        assert bytes(dst)[2000:] == bytes(src)[2000:]
        assert dma.capabilities.max_buf_size == 300
        assert emulator.counters().submits == 2 + 4


# ---- drain_timeout


async def test_a_held_copy_is_given_up_and_its_memory_kept() -> None:
    emulator.configure(engine="manual")
    async with aiodocadma.open_dma(drain_timeout=0.02) as dma:
        dst = bytearray(3)
        future = dma.copy(b"abc", dst)
        await turns()
        future.cancel()
        with pytest.raises(DrainTimeoutError, match="did not let go of a cancelled copy"):
            await future
        with pytest.raises(BufferError):
            dst.append(1)
        assert emulator.live_objects().bufs == 2
        emulator.step()
        await dma.drain()
        dst.append(1)


async def test_each_cancelled_copy_has_its_own_deadline() -> None:
    emulator.configure(engine="manual")
    async with aiodocadma.open_dma(drain_timeout=0.05) as dma:
        futures = [dma.copy(b"abc", bytearray(3)) for _ in range(3)]
        await turns()
        futures[0].cancel()
        futures[1].cancel()
        await asyncio.sleep(0.03)
        futures[2].cancel()
        assert emulator.step() == 1  # the first ends in time
        results = await asyncio.gather(*futures, return_exceptions=True)
        # The first was cancelled in one turn with the second, and ends with it.
        assert [type(result) for result in results] == [
            asyncio.CancelledError,
            DrainTimeoutError,
            DrainTimeoutError,
        ]
        emulator.step(10)


async def test_a_context_that_does_not_become_idle_is_lost() -> None:
    """One task failed and the engine keeps another: nobody waits for it longer than told, and nothing is freed."""
    emulator.configure(engine="manual")
    async with aiodocadma.open_dma(drain_timeout=0.02) as dma:
        dst = bytearray(3)
        failing = dma.copy(b"abc", bytearray(3))
        emulator.hold()
        held = dma.copy(b"abc", dst)
        await turns()
        assert emulator.complete(emulator.last_copies(2)[1].dst, code=17)
        with pytest.raises(DocaIoFailedError):
            await failing
        with pytest.raises(EngineLostError) as info:
            await held
        assert isinstance(info.value.__cause__, DrainTimeoutError)
        assert dma.state is DMAState.LOST
        with pytest.raises(EngineLostError):
            dma.copy(b"abc", bytearray(3))
        with pytest.raises(BufferError):
            dst.append(1)
        emulator.hold(False)
        emulator.release()
        await until(lambda: (emulator.step(), emulator.live_objects().in_flight == 0)[1], "the engine to let go")
    dst.append(1)


async def test_a_lost_engine_ends_its_copies_beside_one_that_is_being_registered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """DOCA never had that one, so there is nothing to give up: it ends when its registration does."""
    emulator.configure(engine="manual")
    async with aiodocadma.open_dma(drain_timeout=0.02) as dma:
        gate, register = threading.Event(), dma._engine.register

        def slow(*args: Any, **options: Any) -> int | None:
            assert not options.get("wait", True) or gate.wait(10)
            return register(*args, **options)

        monkeypatch.setattr(dma._engine, "register", slow)
        registering = dma.copy(bytearray(1 << 20), bytearray(1 << 20))
        failing = dma.copy(b"abc", bytearray(3))
        emulator.hold()
        held = dma.copy(b"abc", bytearray(3))
        await turns()
        assert emulator.complete(emulator.last_copies(2)[1].dst, code=17)
        with pytest.raises(DocaIoFailedError):
            await failing
        await asyncio.wait([held], timeout=5)
        given_up, waits = held.done(), not registering.done()
        gate.set()
        with pytest.raises(EngineLostError):
            await registering
        emulator.hold(False)
        emulator.release()
        await until(lambda: (emulator.step(), emulator.live_objects().in_flight == 0)[1], "the engine to let go")
        with pytest.raises(EngineLostError):
            await held
        assert given_up
        assert waits


# ---- the watchdog only counts and tells


@pytest.mark.rule("R52", "R86")
async def test_the_watchdog_names_the_cause(caplog: pytest.LogCaptureFixture) -> None:
    emulator.configure(engine="manual")
    async with aiodocadma.open_dma(num_tasks=1, stall_timeout=0.01) as dma:
        with caplog.at_level(logging.WARNING, "aiodocadma"):
            future = dma.copy(b"abc", bytearray(3))
            waiting = dma.copy(b"abc", bytearray(3))
            while dma.statistics().watchdog_hits < 2:
                await asyncio.sleep(0.005)
        assert "mlx5_0: nothing ended for 0.01 s: the window is full and the engine silent" in caplog.text
        assert "1 of 1 tasks in flight, 1 copy waiting; context: IDLE to RUNNING" in caplog.text
        hits = dma.statistics().watchdog_hits
        emulator.step()
        await future
        emulator.step()
        await waiting
        await asyncio.sleep(0.05)
        assert dma.statistics().watchdog_hits <= hits + 1  # idle: nobody watches


async def test_no_watchdog() -> None:
    emulator.configure(engine="manual")
    async with aiodocadma.open_dma(stall_timeout=None) as dma:
        future = dma.copy(b"abc", bytearray(3))
        await asyncio.sleep(0.01)
        emulator.step()
        assert await future == 3
        assert dma.statistics().watchdog_hits == 0
