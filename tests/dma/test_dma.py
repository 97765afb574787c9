"""Opening, idling, loops, closing: the life of a DMA."""

from __future__ import annotations

import asyncio
import errno
import gc
import math
import os
import re
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

import aiodocadma
from aiodocadma import DMA, DMAState, _dma, emulator
from aiodocadma._library import open_library
from aiodocadma.exceptions import (
    ClosedError,
    DocaDriverError,
    DocaError,
    DocaIoFailedError,
    DocaNoMemoryError,
    DocaNotFoundError,
    DocaNotSupportedError,
    DrainTimeoutError,
    EngineLostError,
    FlushedError,
    WrongLoopError,
)
from tests.dma.conftest import NO_THREAD, OPEN_CALLS, OPTIONAL, SUBMIT, turns, until


def open_fds() -> int:
    return len(os.listdir("/proc/self/fd"))


# ---- opening


@pytest.mark.rule("R28")
async def test_open_tells_what_it_opened(dma: DMA) -> None:
    assert dma.device.ibdev_name == "mlx5_0"
    assert dma.device.pci_address == "0000:03:00.0"
    assert dma.emulated
    assert dma.capabilities.max_buf_size == 2**21
    assert dma.state is DMAState.RUNNING
    assert re.fullmatch(r"<DMA mlx5_0 \(emulated\) RUNNING 0/256 in flight, 0 waiting>", repr(dma))


@pytest.mark.parametrize("name", ["mlx5_1", "0000:04:00.0", "04:00.0", "p1"])
async def test_a_device_by_any_name(name: str) -> None:
    emulator.add_device("mlx5_0", pci="0000:03:00.0", iface="p0", dma=False)
    emulator.add_device("mlx5_1", pci="0000:04:00.0", iface="p1", max_buf_size=4096)
    async with aiodocadma.open_dma(name) as dma:
        assert dma.device.ibdev_name == "mlx5_1"
        assert dma.capabilities.max_buf_size == 4096


async def test_auto_selection_passes_over_what_cannot_do_dma() -> None:
    emulator.add_device("mlx5_0", pci="0000:03:00.0", dma=False)
    emulator.add_device("mlx5_1", pci="0000:04:00.0")
    assert [device.dma_supported for device in aiodocadma.devices()] == [False, True]
    async with aiodocadma.open_dma() as dma:
        assert dma.device.ibdev_name == "mlx5_1"


@pytest.mark.rule("R13")
async def test_a_device_that_cannot_names_those_that_can() -> None:
    emulator.add_device("mlx5_0", pci="0000:03:00.0", dma=False)
    emulator.add_device("mlx5_1", pci="0000:04:00.0")
    with pytest.raises(DocaNotSupportedError, match="mlx5_1"):
        async with aiodocadma.open_dma("mlx5_0"):
            pass
    with pytest.raises(DocaNotFoundError, match=r"mlx5_0.*mlx5_1"):
        async with aiodocadma.open_dma("mlx5_9"):
            pass


async def test_no_device() -> None:
    emulator.configure(devices="none")
    assert aiodocadma.devices() == []
    with pytest.raises(DocaNotFoundError):
        async with aiodocadma.open_dma():
            pass


@pytest.mark.parametrize(
    "options",
    [
        {"num_tasks": 0},
        {"window": 0},
        {"window": -1},
        {"on_flush": "retry"},
        {"drain_timeout": 0},
        {"drain_timeout": math.nan},
        {"stall_timeout": math.nan},
    ],
)
def test_options_out_of_range(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        aiodocadma.open_dma(**options)


OPEN_STEPS = [call for call in OPEN_CALLS if OPTIONAL.get(f"doca_{call}", True)]


@pytest.mark.rule("R02")
@pytest.mark.parametrize("op", OPEN_STEPS)
async def test_each_step_of_opening_may_fail(op: str) -> None:
    """The original error surfaces, nothing stays open, and the next open works."""
    fds = open_fds()
    emulator.inject(emulator.Fault(op, status="DRIVER"))
    with pytest.raises(DocaDriverError) as caught:
        async with aiodocadma.open_dma():
            pass
    assert caught.value.call == f"doca_{op}"
    assert caught.value.phase == "open"
    del caught
    assert sum(emulator.live_objects()) == 0
    assert open_fds() == fds
    async with aiodocadma.open_dma() as dma:
        assert await dma.copy(b"abc", bytearray(3)) == 3


async def test_a_loop_that_takes_one_reader_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the kernel has no room for another one: that of DOCA's log is the second."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(open_library().sdk_log, "attach", refuse)
    with pytest.raises(OSError, match="No space left"):
        await aiodocadma.open_dma().__aenter__()
    gc.collect()
    assert _dma.open_dmas() == []
    assert emulator.live_objects().devs == 0


@pytest.mark.rule("R24", "R28", "R55")
async def test_num_tasks_never_above_the_cap() -> None:
    emulator.configure(max_num_tasks=5)
    async with aiodocadma.open_dma(num_tasks=100) as dma:
        assert "0/5 in flight" in repr(dma)


@pytest.mark.rule("R82")
async def test_the_library_starts_no_python_thread() -> None:
    before = threading.enumerate()
    async with aiodocadma.open_dma() as dma:
        assert threading.enumerate() == before
        await dma.copy(bytes(2**21), bytearray(2**21))
        assert threading.enumerate() == before
    assert threading.enumerate() == before


# ---- C8: idle


@pytest.mark.rule("R121")
async def test_idle_costs_nothing(engine: str) -> None:
    loop = asyncio.get_running_loop()
    async with aiodocadma.open_dma() as dma:
        if engine != "manual":
            await dma.copy(b"abc", bytearray(3))
        await turns(10)
        loop_turns = 0
        before, emulated = dma.statistics(), emulator.counters()
        cpu = time.process_time()
        await asyncio.sleep(2)
        cpu = time.process_time() - cpu
        after, emulated_after = dma.statistics(), emulator.counters()
        assert cpu < 0.02
        assert after.turns == before.turns
        assert after.wakeups == before.wakeups
        assert emulated_after.progress_calls == emulated.progress_calls
        del loop, loop_turns


async def test_a_held_copy_wakes_nobody(held_dma: DMA) -> None:
    """B04: one copy held for a second costs at most 20 wake-ups and no CPU."""
    future = held_dma.copy(b"abc", bytearray(3))
    await turns(10)
    before, emulated = held_dma.statistics(), emulator.counters()
    cpu = time.process_time()
    await asyncio.sleep(1)
    assert time.process_time() - cpu < 0.05
    after = held_dma.statistics()
    assert after.wakeups - before.wakeups <= 20
    assert emulator.counters().arms - emulated.arms <= 20
    emulator.step()
    await future


async def test_spurious_notifications_cost_one_call_each(held_dma: DMA) -> None:
    """B06: idle, and with a held copy; the fd is cleared each time."""
    for held in (False, True):
        future = held_dma.copy(b"abc", bytearray(3)) if held else None
        await turns(5)
        before = held_dma.statistics().wakeups
        for _ in range(100):
            emulator.spurious_notification()
            await turns(3)
        assert held_dma.statistics().wakeups - before == 100
        if future is not None:
            emulator.step()
            assert await future == 3


async def test_the_reader_may_be_called_without_reason(held_dma: DMA) -> None:
    """B09: twice between two turns, and once after everything was drained."""
    future = held_dma.copy(b"abc", bytearray(3))
    held_dma._readable()
    held_dma._readable()
    await turns()
    emulator.step()
    assert await future == 3
    held_dma._readable()
    second = held_dma.copy(b"abc", bytearray(3))
    emulator.step()
    assert await second == 3


async def test_no_fd_is_inherited(dma: DMA) -> None:
    """B75: the notification fd is close-on-exec."""
    fd = dma._native.fd
    assert not os.get_inheritable(fd)
    listed = subprocess.run(["/bin/ls", "/proc/self/fd"], close_fds=False, capture_output=True, text=True, check=True)
    assert str(fd) not in listed.stdout.split()


async def test_copies_that_finish_at_once_yield(engine: str) -> None:
    """B13: a ticker beside 20,000 such awaits is never 50 ms late."""
    if engine == "manual":
        emulator.configure(engine="default")
    async with aiodocadma.open_dma() as dma:
        worst = 0.0

        async def tick() -> None:
            nonlocal worst
            while True:
                start = time.perf_counter()
                await asyncio.sleep(0.01)
                worst = max(worst, time.perf_counter() - start - 0.01)

        ticker = asyncio.ensure_future(tick())
        await turns(1)
        async with await dma.alloc(4096) as src, await dma.alloc(4096) as dst:
            for _ in range(20_000 if engine != "worker" else 2000):
                await dma.copy(src, dst)
            for _ in range(20_000):
                await dma.copy(src[:0], dst[:0])
        ticker.cancel()
        assert worst < 0.05


@pytest.mark.parametrize("nbytes", [0, 1])
async def test_copies_of_hardly_anything_yield(nbytes: int) -> None:
    """However little each of them moves: the loop has a turn after every 1,024 at the latest."""
    async with aiodocadma.open_dma() as dma, await dma.alloc(1) as src, await dma.alloc(1) as dst:
        ticks = 0

        def tick() -> None:
            nonlocal ticks, handle
            ticks += 1
            handle = loop.call_soon(tick)

        loop = asyncio.get_running_loop()
        handle = loop.call_soon(tick)
        for _ in range(10_240):
            assert await dma.copy(src[:nbytes], dst) == nbytes
        handle.cancel()
        assert ticks >= 10


# ---- C9: loops and threads


def run(main: Any, kind: str = "asyncio") -> Any:
    factory = uvloop.new_event_loop if kind == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_another_loop_is_refused(kind: str) -> None:
    """B18: opened in loop A, used in loop B of the same thread; A goes on working."""
    factory = uvloop.new_event_loop if kind == "uvloop" else asyncio.new_event_loop
    loop_a = factory()
    manager = aiodocadma.open_dma()
    dma = loop_a.run_until_complete(manager.__aenter__())
    src, dst = (loop_a.run_until_complete(dma.alloc(100)) for _ in range(2))

    async def misuse() -> None:
        for sides in ((src, dst), (b"abc", bytearray(3))):
            with pytest.raises(WrongLoopError, match="belongs to"):
                dma.copy(*sides)
        with pytest.raises(WrongLoopError):
            await dma.alloc(10)
        with pytest.raises(WrongLoopError):
            await dma.aclose()

    run(misuse(), kind)
    for sides in ((src, dst), (b"abc", bytearray(3))):
        with pytest.raises(WrongLoopError):  # no loop runs at all
            dma.copy(*sides)

    async def use() -> None:
        assert await dma.copy(b"abc", bytearray(3)) == 3

    loop_a.run_until_complete(use())
    loop_a.run_until_complete(manager.__aexit__(None, None, None))
    loop_a.close()


@pytest.mark.rule("R120")
async def test_another_thread_is_refused(dma: DMA) -> None:
    caught: list[BaseException] = []
    src, dst = await dma.alloc(3), await dma.alloc(3)

    def misuse() -> None:
        for sides in ((src, dst), (b"abc", bytearray(3))):
            try:
                dma.copy(*sides)
            except BaseException as exc:
                caught.append(exc)

    thread = threading.Thread(target=misuse)
    thread.start()
    thread.join()
    assert [type(exc) for exc in caught] == [WrongLoopError] * 2
    caught.clear()


def test_several_loops_in_several_threads() -> None:
    async def work(seed: int) -> None:
        async with aiodocadma.open_dma() as dma:
            data = bytes([seed]) * 5000
            dsts = [bytearray(5000) for _ in range(200)]
            await asyncio.gather(*[dma.copy(data, dst) for dst in dsts])
            assert all(dst == data for dst in dsts)

    errors: list[BaseException] = []

    def thread(seed: int) -> None:
        try:
            run(work(seed), "uvloop" if seed % 2 else "asyncio")
        except BaseException as exc:
            errors.append(exc)

    threads = [threading.Thread(target=thread, args=(seed,)) for seed in range(4)]
    for started in threads:
        started.start()
    for started in threads:
        started.join()
    assert errors == []


def test_ten_runs_in_a_row() -> None:
    """B17: alternating loops; the fds after the tenth are those after the second."""
    fds = []

    async def main() -> None:
        async with aiodocadma.open_dma() as dma:
            assert await dma.copy(b"abc", bytearray(3)) == 3

    for i in range(10):
        run(main(), "uvloop" if i % 2 else "asyncio")
        gc.collect()
        fds.append(open_fds())
    assert fds[9] == fds[1]


def test_open_dma_is_made_outside_a_loop() -> None:
    manager = aiodocadma.open_dma()

    async def main() -> None:
        async with manager as dma:
            assert await dma.copy(b"abc", bytearray(3)) == 3

    run(main())


# ---- C10: closing


async def test_close_waits_for_what_is_in_flight(held_dma: DMA) -> None:
    """B55: copies in flight succeed, new ones are refused, the loop stays responsive."""
    dsts = [bytearray(3) for _ in range(5)]
    futures = [held_dma.copy(b"abc", dst) for dst in dsts]
    await turns()
    closing = asyncio.ensure_future(held_dma.aclose())
    await turns()
    with pytest.raises(ClosedError):
        held_dma.copy(b"abc", bytearray(3))
    for i in range(5):
        assert not closing.done()
        emulator.step()
        await futures[i]
    await closing
    assert all(dst == b"abc" for dst in dsts)
    assert held_dma.state is DMAState.CLOSED


async def test_close_with_waiters_twice_and_cancelled() -> None:
    """B81: three closers, one cancelled, beside one copy in flight and 50 waiting."""
    emulator.configure(engine="manual")
    async with aiodocadma.open_dma(num_tasks=1) as dma:
        held = dma.copy(b"abc", dst := bytearray(3))
        waiting = [dma.copy(b"abc", bytearray(3)) for _ in range(50)]
        closers = [asyncio.ensure_future(dma.aclose()) for _ in range(3)]
        await turns(1)
        closers[1].cancel()
        await turns(2)
        for future in waiting:
            with pytest.raises(ClosedError):
                await future
        assert not any(closer.done() for closer in closers)
        emulator.step()
        results = await asyncio.gather(*closers, return_exceptions=True)
        assert [type(result) for result in results] == [type(None), asyncio.CancelledError, type(None)]
        assert await held == 3
        assert dst == b"abc"


async def test_close_from_a_copys_own_task(dma: DMA) -> None:
    async def copy_then_close() -> None:
        await dma.copy(b"abc", bytearray(3))
        await dma.aclose()

    await asyncio.ensure_future(copy_then_close())
    assert dma.state is DMAState.CLOSED


async def test_close_from_a_done_callback(held_dma: DMA) -> None:
    closers: list[asyncio.Task[None]] = []
    future = held_dma.copy(b"abc", bytearray(3))
    future.add_done_callback(lambda _: closers.append(asyncio.ensure_future(held_dma.aclose())))
    await turns()
    emulator.step()
    await future
    await turns()
    await closers[0]


def test_a_failing_close_neither_hides_the_body_nor_skips_the_rest() -> None:
    """B37 and B81: in a process of its own, since what could not be destroyed stays."""
    done = in_child("""
import asyncio
import aiodocadma
from aiodocadma import emulator
from aiodocadma.exceptions import DocaDriverError

async def main():
    for body in (KeyError("body"), None):
        emulator.inject(emulator.Fault("buf_inventory_destroy", status="DRIVER"))
        try:
            async with aiodocadma.open_dma() as dma:
                await dma.copy(b"abc", bytearray(3))
                if body is not None:
                    raise body
        except KeyError as exc:
            assert body is exc and "DOCA_ERROR_DRIVER" in exc.__notes__[0]
        except DocaDriverError as exc:
            assert body is None and exc.call == "doca_buf_inventory_destroy" and exc.phase == "stop"
            await dma.aclose()  # the second close is quiet
        else:
            raise AssertionError("the close did not fail")
    live = emulator.live_objects()
    # All that comes after the failed call was done all the same.
    assert live.inventories == 2 and live.pes == live.ctxs == live.mmaps == live.devs == 0, live

asyncio.run(main())
print("ok")
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


async def test_drain_timeout() -> None:
    emulator.configure(engine="manual")
    dst = bytearray(3)
    async with aiodocadma.open_dma(drain_timeout=0.05) as dma:
        future = dma.copy(b"abc", dst)
        await turns()
        with pytest.raises(DrainTimeoutError, match="still holds 1 task after"):
            await dma.aclose()
        with pytest.raises(BufferError):
            dst.append(1)  # still pinned
        with pytest.raises(DrainTimeoutError, match="after 0 s"):
            await dma.aclose(timeout=0)  # each call has its own patience
        with pytest.raises(ValueError, match="timeout must not be negative"):
            await dma.aclose(timeout=-1)
        with pytest.raises(ValueError, match="timeout must not be negative"):
            await dma.aclose(timeout=math.nan)
        patient = asyncio.ensure_future(dma.aclose(timeout=30))
        emulator.step()
        assert await future == 3
        await patient
        assert sum(emulator.live_objects()) == 0
        dst.append(1)


@pytest.mark.parametrize("runner", ["asyncio.run", "uvloop.run"])
def test_a_close_that_fails_after_the_first_caller_left(runner: str) -> None:
    """The error is for the next caller, once. In a process of its own: what failed is leaked."""
    done = in_child(f"""
import asyncio, uvloop
import aiodocadma
from aiodocadma import emulator
from aiodocadma.exceptions import DocaDriverError, DrainTimeoutError

async def outcome(closing):
    try:
        await closing
    except (DocaDriverError, DrainTimeoutError) as error:
        print(type(error).__name__)
    else:
        print("closed")

async def main():
    emulator.configure(engine="manual")
    dma = await aiodocadma.open_dma().__aenter__()
    future = dma.copy(b"abc", bytearray(3))
    await asyncio.sleep(0)
    await outcome(dma.aclose(timeout=0))
    emulator.inject(emulator.Fault("pe_destroy", status="DRIVER"))
    emulator.step()
    assert await future == 3
    await outcome(dma.aclose())
    await outcome(dma.aclose())

{runner}(main())
""")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["DrainTimeoutError", "DocaDriverError", "closed"]


async def test_a_dma_is_collected_when_nobody_holds_it() -> None:
    """B39: the last reference is a pending copy; it finishes, then the DMA is finalised with a warning."""
    emulator.configure(engine="manual")
    dma = await aiodocadma.open_dma().__aenter__()
    future = dma.copy(b"abc", dst := bytearray(3))
    alive = weakref.ref(dma)
    del dma
    gc.collect()
    assert alive() is not None
    await turns()
    emulator.step()
    with pytest.warns(ResourceWarning, match="unclosed mlx5_0 DMA"):
        assert await future == 3
        assert dst == b"abc"
        del future
        await turns()
        gc.collect()
    assert alive() is None
    assert sum(emulator.live_objects()) == 0


def test_a_loop_that_died() -> None:
    """B19: completion after the loop was closed: no traceback, memory locked until the finaliser ends it."""
    emulator.configure(engine="manual")
    loop = asyncio.new_event_loop()
    dst = bytearray(3)

    async def main() -> None:
        dma = await aiodocadma.open_dma().__aenter__()
        kept.append(dma)
        futures.append(dma.copy(b"abc", dst))
        await turns()

    kept: list[DMA] = []
    futures: list[Any] = []
    loop.run_until_complete(main())
    loop.close()
    with pytest.raises(BufferError):
        dst.append(1)
    emulator.step()
    with pytest.warns(ResourceWarning):
        kept.clear()
        futures.clear()
        gc.collect()
    assert dst == b"abc"


def test_a_loop_that_died_between_the_ends_of_copies_cancelled_together() -> None:
    """C10: the one that has ended, and waited for the other, does not keep the DMA from its finaliser."""
    emulator.configure(engine="manual")
    loop = asyncio.new_event_loop()

    async def main() -> weakref.ref[DMA]:
        dma = await aiodocadma.open_dma().__aenter__()
        copies = [dma.copy(b"abc", bytearray(3)) for _ in range(2)]
        await turns()
        for copy in copies:
            copy.cancel()
        await turns()
        emulator.step()
        await until(lambda: dma._pending == 1, "the first to be let go")
        assert not any(copy.done() for copy in copies)
        return weakref.ref(dma)

    alive = loop.run_until_complete(main())
    loop.close()
    with pytest.warns(ResourceWarning):
        emulator.step()
        gc.collect()
    assert alive() is None


# ---- faults and restart


async def test_one_bad_copy_among_many(engine: str) -> None:
    """C5 as far as it is built: the culprit fails with its own error, the flushed ones are replayed."""
    if engine == "manual":
        emulator.configure(engine="worker")
    emulator.inject(emulator.Fault("completion", status="IO_FAILED", skip=30))
    async with aiodocadma.open_dma() as dma:
        dsts = [bytearray(100) for _ in range(100)]
        results = await asyncio.gather(*[dma.copy(b"x" * 100, dst) for dst in dsts], return_exceptions=True)
        failed = [result for result in results if isinstance(result, BaseException)]
        assert [type(error) for error in failed] == [DocaIoFailedError]
        assert sum(dst == b"x" * 100 for dst in dsts) >= 99
        assert dma.statistics().restarts == 1
        assert dma.state is DMAState.RUNNING
        assert await dma.copy(b"abc", bytearray(3)) == 3


async def test_on_flush_fail() -> None:
    emulator.configure(engine="manual")
    emulator.inject(emulator.Fault("completion", status="IO_FAILED", skip=1))
    async with aiodocadma.open_dma(on_flush="fail") as dma:
        futures = [dma.copy(b"abc", bytearray(3)) for _ in range(4)]
        await turns()
        emulator.step(10)
        results = await asyncio.gather(*futures, return_exceptions=True)
        assert results[0] == 3
        assert isinstance(results[1], DocaIoFailedError)
        assert results[1].phase == "complete"
        assert [type(result) for result in results[2:]] == [FlushedError, FlushedError]
        assert isinstance(results[2], FlushedError)
        assert results[2].culprit is not None
        follow_up = dma.copy(b"abc", bytearray(3))
        await until(emulator.step, "a fresh context")
        assert await follow_up == 3


async def test_a_context_that_does_not_start_again_is_lost() -> None:
    emulator.inject(emulator.Fault("completion", status="IO_FAILED"))
    emulator.inject(emulator.Fault("ctx_start", status="DRIVER", skip=1))
    async with aiodocadma.open_dma(num_tasks=1) as dma:
        futures = [dma.copy(b"abc", bytearray(3)) for _ in range(3)]
        results = await asyncio.gather(*futures, return_exceptions=True)
        assert [type(result) for result in results] == [DocaIoFailedError, EngineLostError, EngineLostError]
        assert dma.state is DMAState.LOST
        with pytest.raises(EngineLostError):
            dma.copy(b"abc", bytearray(3))


@NO_THREAD
async def test_a_restart_and_closing_without_a_thread(
    no_thread: Callable[[threading.Thread], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """C3, C10: where no thread can be had the loop waits for DOCA, rather than somebody for ever."""
    emulator.inject(emulator.Fault("completion", status="IO_FAILED"))
    opened = aiodocadma.open_dma(num_tasks=1)
    dma = await opened.__aenter__()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        futures = [dma.copy(b"abc", bytearray(3)) for _ in range(3)]
        await asyncio.wait(futures, timeout=5)
        assert [type(future.exception()) for future in futures if future.done()] == [
            DocaIoFailedError,
            type(None),
            type(None),
        ]
        assert dma.state is DMAState.RUNNING
        await dma.aclose(timeout=5)
        assert emulator.live_objects().devs == 0


@NO_THREAD
async def test_a_context_that_does_not_start_again_without_a_thread(
    no_thread: Callable[[threading.Thread], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    emulator.inject(emulator.Fault("completion", status="IO_FAILED"))
    emulator.inject(emulator.Fault("ctx_start", status="DRIVER", skip=1))
    opened = aiodocadma.open_dma(num_tasks=1)
    dma = await opened.__aenter__()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        futures = [dma.copy(b"abc", bytearray(3)) for _ in range(2)]
        await asyncio.wait(futures, timeout=5)
        assert [type(future.exception()) for future in futures if future.done()] == [DocaIoFailedError, EngineLostError]
        await dma.aclose(timeout=5)


@NO_THREAD
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_what_was_opened_in_vain_is_closed_without_a_thread(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
    no_thread: Callable[[threading.Thread], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a loop that is left behind if it hangs: opening waits through cancellations."""
    opening = aiodocadma.open_dma()

    def bind(*_: object) -> None:
        monkeypatch.setattr(threading.Thread, "start", no_thread)
        raise MemoryError

    opening._bind = bind  # type: ignore[assignment]
    loop = new_loop()
    task = loop.create_task(opening.__aenter__())
    loop.run_until_complete(asyncio.wait([task], timeout=5))
    loop.close()
    assert isinstance(task.exception(), MemoryError)
    assert emulator.live_objects().devs == 0


@pytest.mark.parametrize("op", [SUBMIT, "dma_task_memcpy_alloc_init"])
async def test_every_code_reaches_the_caller(op: str) -> None:
    """B15, B49: one exception family, the code kept, the engine usable; AGAIN and NO_MEMORY are backpressure."""
    for code in range(1, 32):
        # A task is kept from copy to copy, so a fresh DMA is what asks the pool.
        async with aiodocadma.open_dma() as dma:
            emulator.inject(emulator.Fault(op, status=code))
            if code in (5, 7):
                assert await dma.copy(b"abc", bytearray(3)) == 3
            else:
                with pytest.raises(DocaError) as caught:
                    await dma.copy(b"abc", bytearray(3))
                assert caught.value.code == code
                assert caught.value.phase == ("alloc" if "alloc" in op else "submit")
                del caught
            dst = bytearray(3)
            assert await dma.copy(b"abc", dst) == 3
            dst.append(0)  # unlocked


@pytest.mark.rule("R50")
@pytest.mark.parametrize("code", [*range(1, 5), 6, *range(8, 32), 77])
async def test_every_completion_code_reaches_the_caller(dma: DMA, code: int) -> None:
    emulator.inject(emulator.Fault("completion", status=code))
    with pytest.raises(DocaError) as caught:
        await dma.copy(b"abc", bytearray(3))
    assert caught.value.code == code
    assert caught.value.phase == "complete"
    del caught
    assert await dma.copy(b"abc", bytearray(3)) == 3


@pytest.mark.rule("R41", "X06")
async def test_backpressure_is_never_seen(engine: str) -> None:
    """C4: AGAIN at submit and NO_MEMORY from both pools, in the middle of a fan-out."""
    if engine == "manual":
        emulator.configure(engine="worker")
    emulator.inject(
        emulator.Fault(SUBMIT, kind="again", skip=3, interval=3, count=20),
        emulator.Fault("buf_inventory_buf_get_by_args", status="NO_MEMORY", skip=5, interval=7, count=20),
        emulator.Fault("dma_task_memcpy_alloc_init", status="NO_MEMORY", skip=2, interval=2, count=1),
    )
    async with aiodocadma.open_dma(num_tasks=8) as dma:
        dsts = [bytearray(50) for _ in range(300)]
        assert await asyncio.gather(*[dma.copy(b"y" * 50, dst) for dst in dsts]) == [50] * 300
        assert all(dst == b"y" * 50 for dst in dsts)
        assert dma.statistics().again == 20


@pytest.mark.parametrize("forever", [False, True])
async def test_refused_while_nothing_is_in_flight(forever: bool) -> None:
    """B48: three refusals pass unseen; without end, the code is raised after the bound, and it is no hang."""
    emulator.inject(emulator.Fault("dma_task_memcpy_alloc_init", status="NO_MEMORY", count=0 if forever else 3))
    async with aiodocadma.open_dma() as dma:
        if forever:
            with pytest.raises(DocaNoMemoryError) as caught:
                await dma.copy(b"abc", bytearray(3))
            assert caught.value.phase == "alloc"
            del caught
        else:
            assert await dma.copy(b"abc", bytearray(3)) == 3


@pytest.mark.rule("R37", "R61")
async def test_the_graveyard_is_bounded(engine: str) -> None:
    """C2: closed maps stay registered until the context is recycled, and do not pile up."""
    if engine == "manual":
        emulator.configure(engine="worker")
    async with aiodocadma.open_dma() as dma:
        peak = 0
        for i in range(5000):
            dst = bytearray(10)
            await dma.copy(i.to_bytes(10, "big"), dst)
            assert dst == i.to_bytes(10, "big")
            peak = max(peak, emulator.live_objects().mmaps)
        assert peak <= 1024 + 4
        assert dma.statistics().recycles >= 5000 * 2 // 1024 - 1
        assert dma.statistics().restarts == 0


async def test_dropped_maps_do_not_pile_up_while_nothing_is_copied() -> None:
    """C2: nobody closed the map, and no copy comes: its memory is unpinned all the same when it is too much to keep."""
    async with aiodocadma.open_dma(cache_bytes=2**20) as dma:
        src, dst = await dma.alloc(2**22), await dma.alloc(2**22)
        await dma.copy(src, dst)
        await turns()
        del src, dst
        await until(lambda: emulator.live_objects().pinned_bytes == 0, "the memory to be given back", limit=20_000)


async def test_a_map_of_a_closed_dma_can_be_closed() -> None:
    """C2: closing the DMA closes its maps; closing such a map unlocks the caller's memory at once."""
    memory = bytearray(10)
    async with aiodocadma.open_dma() as dma:
        memory_map = await dma.register(memory)
        allocated = await dma.alloc(10)
        view = memoryview(allocated)
    assert memory_map.closed
    memory_map.close()
    memory.append(0)
    allocated.close()  # a view of it is no hindrance: it is closed already, and its memory is the view's
    assert view[0] == 0
    view.release()
    await allocated.aclose()


async def test_closing_a_map_waits_for_no_other_copy(held_dma: DMA) -> None:
    """Else it would wait for ever beside others that are always copying."""
    async with await held_dma.alloc(3) as other:
        memory_map = await held_dma.alloc(3)
        copy, unrelated = held_dma.copy(memory_map, bytearray(3)), held_dma.copy(other, bytearray(3))
        await turns()
        closing = asyncio.ensure_future(memory_map.aclose())
        await turns()
        assert not closing.done()
        emulator.step()
        await copy
        await turns()
        closed, held = closing.done(), not unrelated.done()
        emulator.step()
        await unrelated
        await closing
        assert closed
        assert held


async def test_closing_a_map_waits_for_a_copy_that_was_given_up() -> None:
    emulator.configure(engine="manual")
    async with aiodocadma.open_dma(drain_timeout=0.02) as dma:
        memory_map = await dma.alloc(3)
        copy = dma.copy(memory_map, bytearray(3))
        await turns()
        copy.cancel()
        with pytest.raises(DrainTimeoutError):
            await copy
        closing = asyncio.ensure_future(memory_map.aclose())
        await turns(20)
        assert not closing.done()
        emulator.step()
        await closing
        assert memory_map.closed


@pytest.mark.parametrize("cancelled", [False, True])
async def test_closing_a_map_waits_for_a_copy_whose_other_side_is_being_registered(cancelled: bool) -> None:
    nbytes = 1 << 20  # registered in a worker, the copy waits
    async with aiodocadma.open_dma() as dma:
        memory_map = await dma.alloc(nbytes)
        future = dma.copy(bytes(nbytes), memory_map)
        if cancelled:
            future.cancel()
        await memory_map.aclose()
        assert memory_map.closed
        if not cancelled:
            assert await future == nbytes


async def test_the_exception_of_a_refused_copy_locks_nothing() -> None:
    """C6: it has a traceback, and that has frames that saw the memory."""
    dst = bytearray(10)
    async with aiodocadma.open_dma() as dma:
        with pytest.raises(aiodocadma.BoundsError) as caught:
            dma.copy([bytes(11)], [dst])
        dst.append(0)
        assert caught.value.__traceback__ is not None


async def test_a_map_of_a_memoryview_in_a_cycle_is_collected() -> None:
    """CPython clears the view before its export ends, if the collector sees that: the process died of it."""
    async with aiodocadma.open_dma() as dma:
        memory = bytearray(10)
        view = memoryview(memory)
        cycle: list[Any] = [await dma.register(view)]
        del view
        cycle.append(cycle)
        del cycle
        gc.collect()
        memory.append(0)


# ---- fork


# In development mode asyncio tells, as a warning, of callbacks that took long: of the machine's load, that is.
QUIET_ASYNCIO = 'import logging; logging.getLogger("asyncio").setLevel("ERROR")\n'


def in_child(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "dev", "-c", QUIET_ASYNCIO + script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_fork() -> None:
    """B74: the child's objects refuse and touch nothing; a fresh engine works there; the parent's copies finish."""
    done = in_child("""
import asyncio, gc, os, sys, warnings
import aiodocadma
from aiodocadma import emulator
from aiodocadma.exceptions import ForkedError
# Python 3.12 and later warn of a fork while alloc's thread is still ending; that is not what is tested.
warnings.filterwarnings("ignore", "This process .* is multi-threaded, use of fork", DeprecationWarning)
emulator.configure(engine="manual")

async def fresh():
    emulator.configure(engine="default")
    async with aiodocadma.open_dma() as dma:
        dst = bytearray(3)
        assert await dma.copy(b"abc", dst) == 3 and dst == b"abc"

async def main():
    async with aiodocadma.open_dma() as dma:
        dst = bytearray(3)
        future = dma.copy(b"xyz", dst)
        memory_map = await dma.alloc(100)
        await asyncio.sleep(0)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                try:
                    dma.copy(b"abc", bytearray(3))
                except ForkedError:
                    try:
                        future.__await__().send(None)  # would wait for ever
                    except ForkedError:
                        code = 0
                del memory_map
                gc.collect()
                asyncio._set_running_loop(None)
                import threading
                # asyncio refuses a second loop in a running one's thread, so take a thread.
                failed = []
                def target():
                    try:
                        asyncio.run(fresh())
                    except BaseException as exc:
                        failed.append(exc)
                thread = threading.Thread(target=target)
                thread.start(); thread.join()
                if failed:
                    print("child:", repr(failed[0]), file=sys.stderr)
                    code = 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        emulator.step()
        assert await future == 3
        assert dst == b"xyz"

asyncio.run(main())
print("parent ok")
""")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "parent ok\n"
    assert done.stderr == ""


# ---- interpreter exit


@pytest.mark.parametrize("runner", ["asyncio.run", "uvloop.run"])
@pytest.mark.parametrize("state", ["idle", "in flight", "waiting", "closing", "loop stopped", "closed"])
def test_exit_in_every_state(state: str, runner: str) -> None:
    """B10, B73: the exit code is kept, no hang, no abort, at most one warning per DMA."""
    done = in_child(f"""
import asyncio, sys, uvloop
import aiodocadma
from aiodocadma import emulator
state = {state!r}
emulator.configure(engine="manual")
async def main():
    global dma, future
    dma = await aiodocadma.open_dma(num_tasks=1).__aenter__()
    if state in ("in flight", "waiting", "closing"):
        future = dma.copy(b"abc", bytearray(3))
    if state == "waiting":
        future = [future, dma.copy(b"abc", bytearray(3))]
    await asyncio.sleep(0)
    if state == "closing":
        task = asyncio.ensure_future(dma.aclose())
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.05, emulator.step)
    if state == "closed":
        await dma.aclose()
    if state == "loop stopped":
        sys.exit(7)
{runner}(main())
sys.exit(7)
""")
    assert done.returncode == 7, done.stderr
    assert "Traceback" not in done.stderr
    assert "pending" not in done.stderr
    assert done.stderr.count("ResourceWarning") <= 1
