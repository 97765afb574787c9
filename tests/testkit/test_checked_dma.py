"""What ``checked_dma()`` finds, where it says that it was, and what it must not find."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest

import aiodocadma
from aiodocadma import DMA, emulator
from aiodocadma.exceptions import DocaError, OverlapError
from aiodocadma.testing import (
    Chaos,
    Fault,
    InvariantError,
    Schedule,
    VirtualClock,
    assert_no_leaks,
    assert_quiescent,
    checked_dma,
)


@pytest.fixture(autouse=True)
def clean_emulator() -> Iterator[None]:
    """Start from the defaults; afterwards no object is alive."""
    emulator.reset()
    yield
    live = emulator.live_objects()
    assert live == type(live)(*[0] * len(live)), live
    emulator.reset()


@pytest.fixture(params=["engine=default", "engine=worker", "engine=late latency=2000", "chaos=5"])
def any_engine(request: pytest.FixtureRequest) -> None:
    """What must not be found is not found in any mode."""
    emulator.configure(request.param)


@contextlib.asynccontextmanager
async def found(*messages: str, **options: Any) -> AsyncIterator[DMA]:
    """As ``checked_dma()``, and exactly these problems are found, in this order."""
    with pytest.raises(InvariantError) as caught:
        async with checked_dma(**options) as dma:
            yield dma
    text = str(caught.value)
    assert text.startswith(f"{len(messages)} problems:\n- " if len(messages) > 1 else messages[0]), text
    for message in messages:
        before, _, text = text.partition(message)
        assert _, f"{message!r} is not in {before!r}"
    # Each names a place here, and none in the kit, the loop or pytest.
    assert text.count("problems:") == 0
    if "started at" in str(caught.value):
        assert f'File "{__file__}"' in str(caught.value)
    for foreign in ("/_pytest/", "/asyncio/", "/aiodocadma/"):
        assert foreign not in str(caught.value)


# ---- what a program may do


async def test_a_good_program(any_engine: None) -> None:
    async with checked_dma(sanitize=True) as dma:
        async with await dma.alloc(10_000) as memory, await dma.register(bytes(range(250)) * 40) as source:
            await dma.copy(source, memory)
            assert bytes(memory) == bytes(source)
            await asyncio.gather(*(dma.copy(source[i : i + 100], memory[i : i + 100]) for i in range(0, 9000, 100)))
            await dma.copy_many([(source[:10], memory[:10]), (source[10:20], memory[10:20])])
            await dma.copy_many(
                source, memory, src_offsets=range(0, 1000, 10), dst_offsets=range(0, 1000, 10), lengths=10
            )
            await (await dma.submit(source, memory))
            await dma.copy_coroutine([source[:5000], source[5000:]], [memory[:2500], memory[2500:]])
            await dma.drain()
        await dma.copy(np.arange(100.0).reshape(10, 10), np.zeros((10, 10)))
        await dma.copy(np.ones((10, 10), order="F"), np.zeros((10, 10), order="F"))
        await dma.copy(b"", bytearray(10))
        assert_quiescent(dma)


async def test_memory_is_the_programs_again_as_soon_as_it_sees_the_end(any_engine: None) -> None:
    async with checked_dma() as dma:
        source, target = bytearray(b"x" * 70_000), bytearray(140_000)
        for i in range(30):
            first = dma.copy(source, target[:70_000] if i % 2 else memoryview(target)[:70_000])
            while not first.done():
                await asyncio.sleep(0)
            source[:] = bytes([i]) * len(source)
            target[:] = bytes(len(target))
            first.result()


async def test_one_source_for_many(any_engine: None) -> None:
    async with checked_dma() as dma:
        source = bytearray(b"abcd" * 1000)
        targets = [bytearray(4000) for _ in range(50)]
        await asyncio.gather(*(dma.copy(source, target) for target in targets))
        assert all(target == source for target in targets)


async def test_neighbours_are_not_the_same_memory(any_engine: None) -> None:
    async with checked_dma() as dma:
        memory = await dma.alloc(4096)
        left = dma.copy(bytes(10), memory[:10])
        right = dma.copy(memory[10:20], memory[20:30])
        view = memoryview(memory)
        view[30] = 1
        view.release()
        await asyncio.gather(left, right)


async def test_refused_and_cancelled_copies_are_no_neglect(any_engine: None) -> None:
    async with checked_dma(sanitize=True) as dma:
        memory = await dma.register(bytearray(b"ab" * 50))
        with pytest.raises(OverlapError):
            dma.copy(memory[:60], memory[40:])
        assert bytes(memory) == b"ab" * 50  # not poisoned
        cancelled = dma.copy(memory[:10], memory[10:20])
        if not cancelled.cancel():
            cancelled.result()
        await dma.drain()


async def test_the_blocks_own_exception_is_the_news() -> None:
    with pytest.raises(ZeroDivisionError):
        async with checked_dma() as dma:
            dma.copy(b"abc", bytearray(3))
            raise ZeroDivisionError


async def test_thousands_of_copies_take_no_ages() -> None:
    async with checked_dma() as dma:
        source, memory = await dma.register(bytes(64)), await dma.alloc(64 * 3000)
        async with asyncio.TaskGroup() as group:
            for i in range(0, memory.nbytes, 64):
                group.create_task(dma.copy_coroutine(source, memory[i : i + 64]))


# ---- what it may not


async def test_lost_await() -> None:
    async with found("lost await: a copy() of 3 bytes was never awaited; it was started at") as dma:
        dma.copy(b"abc", bytearray(3))
        await dma.drain()


async def test_lost_await_of_one_in_flight() -> None:
    emulator.configure(hold=True)
    async with found("lost await: a copy() of 3 bytes is still pending") as dma:
        dma.copy(b"abc", bytearray(3))
        with pytest.raises(InvariantError, match=r"1 copy of .* pending"):
            assert_quiescent(dma)


async def test_lost_await_of_coroutines() -> None:
    wanted = [f"lost await: {name}() was called and never awaited" for name in ("copy_coroutine", "submit", "drain")]
    async with found(*wanted) as dma:
        dma.copy_coroutine(b"abc", bytearray(3))
        dma.submit(b"abc", bytearray(3))  # type: ignore[unused-coroutine]
        dma.drain()  # type: ignore[unused-coroutine]


async def test_error_ignored() -> None:
    async with found("error ignored: a copy() of 3 bytes failed, and nobody looked: doca_task_get_status") as dma:
        emulator.inject(Fault("completion"))
        await asyncio.wait([dma.copy(b"abc", bytearray(3))])
    async with checked_dma() as dma:
        emulator.inject(Fault("completion"))
        with pytest.raises(DocaError):
            await dma.copy(b"abc", bytearray(3))


REUSE = "buffer reused in flight: a copy {} memory that a copy() of 100 bytes in flight {}"


@pytest.mark.parametrize(("second", "does", "has"), [("write", "writes", "reads"), ("read", "reads", "writes")])
async def test_buffer_reused_in_flight(second: str, does: str, has: str) -> None:
    emulator.configure(engine="late", latency=1000)
    async with found(REUSE.format(does, has)) as dma:
        one, two, three = [await dma.alloc(100) for _ in range(3)]
        first = dma.copy(one, two)
        await asyncio.gather(first, dma.copy(three, one) if second == "write" else dma.copy(two, three))


async def test_destination_of_two_copies() -> None:
    emulator.configure(engine="late", latency=1000)
    async with found(REUSE.format("writes", "writes")) as dma:
        target = await dma.alloc(199)
        first = dma.copy(b"a" * 100, target[:100])
        await asyncio.gather(first, dma.copy(b"b" * 100, target[99:]))
        # Afterwards it is free.
        await dma.copy(b"c" * 100, target[:100])


WRITTEN = "memory written in flight: the program changed the {} of a copy() of {} bytes before it had ended"


@pytest.mark.parametrize("nbytes", [10, 100_000, 5_000_000])
@pytest.mark.parametrize("side", ["source", "destination"])
async def test_memory_written_in_flight(side: str, nbytes: int) -> None:
    emulator.configure(engine="late", latency=1000)
    async with found(WRITTEN.format(side, nbytes)) as dma:
        source, target = bytearray(nbytes), bytearray(nbytes)
        memory = await dma.register(target)
        registered = await dma.register(source)
        copy = dma.copy(registered, memory)
        (source if side == "source" else target)[nbytes // 2] ^= 1
        await copy


async def test_source_written_before_the_engine_had_it() -> None:
    emulator.configure(engine="late", latency=1000)
    async with found(WRITTEN.format("source", 100)) as dma:
        sources = [bytearray(100) for _ in range(3)]
        targets = await dma.alloc(300)
        async with asyncio.TaskGroup() as group:
            for i, source in enumerate(sources):
                group.create_task(dma.copy_coroutine(source, targets[100 * i : 100 * i + 100]))
            await asyncio.sleep(0)
            sources[2][50] = 1


async def test_source_written_while_the_copy_waits() -> None:
    emulator.configure(engine="late", latency=1000)
    async with found(WRITTEN.format("source", 100), window=1, num_tasks=1) as dma:
        sources = [bytearray(100) for _ in range(3)]
        targets = await dma.alloc(300)
        copies = [dma.copy(source, targets[100 * i : 100 * i + 100]) for i, source in enumerate(sources)]
        assert dma.statistics().waiting
        sources[2][50] = 1
        await asyncio.gather(*copies)


async def test_written_and_then_used_again_names_the_line() -> None:
    emulator.configure(engine="late", latency=1000)
    with pytest.raises(InvariantError) as caught:
        async with checked_dma() as dma:
            source, target = bytearray(100), await dma.alloc(200)
            first = dma.copy(source, target[:100])
            source[0] = 1
            second = dma.copy(source, target[100:])
            await asyncio.gather(first, second)
    assert str(caught.value).startswith(WRITTEN.format("source", 100))
    assert "and the change was there at" in str(caught.value)
    assert "second = dma.copy(source, target[100:])" in str(caught.value)


@pytest.mark.parametrize(
    ("offset", "where"), [(100, "0 bytes behind"), (199, "99 bytes behind"), (-1, "1 byte before")]
)
async def test_red_zones(offset: int, where: str) -> None:
    async with found(f"red zone overwritten: {where} a map of 100 bytes, allocated at", sanitize=True) as dma:
        memory = await dma.alloc(100)
        view = memoryview(memory)
        address = ctypes.addressof(ctypes.c_char.from_buffer(view))
        ctypes.memset(address + offset, 0, 1)


async def test_poisoned_destinations() -> None:
    emulator.configure(engine="late", latency=1000)
    async with checked_dma(sanitize=True) as dma:
        target = bytearray(5)
        copy = dma.copy(b"abc", target)
        assert target == b"\xdb\xdb\xdb\0\0"
        await copy
        assert target == b"abc\0\0"


async def test_leaks() -> None:
    started, stop = threading.Event(), threading.Event()

    def run() -> None:
        started.set()
        stop.wait()

    async def left_behind() -> None:
        await asyncio.Event().wait()

    wanted = ("(test_leaks.<locals>.left_behind) still runs", "the thread 'mine' still runs", "/null is still open")
    with pytest.raises(InvariantError) as caught:
        async with checked_dma():
            task = asyncio.create_task(left_behind())
            await asyncio.sleep(0)
            thread = threading.Thread(target=run, name="mine")
            thread.start()
            fd = os.open("/dev/null", os.O_RDONLY)
    stop.set()
    thread.join()
    os.close(fd)
    task.cancel()
    await asyncio.wait([task])
    assert str(caught.value).startswith("3 problems:\n- leak: the task ")
    assert all(text in str(caught.value) for text in wanted), str(caught.value)
    assert "await asyncio.Event().wait()" in str(caught.value)


def test_assert_no_leaks_around_a_program() -> None:
    async def main(close: bool) -> None:
        opened = aiodocadma.open_dma()
        dma = await opened.__aenter__()
        held.append(dma)
        if close:
            await dma.aclose()

    held: list[DMA] = []
    with assert_no_leaks():
        asyncio.run(main(close=True))
    with asyncio.Runner() as runner:
        wanted = "1 DOCA objects more than before are alive in the emulator: ctxs"
        with pytest.raises(InvariantError, match=wanted), assert_no_leaks():
            runner.run(main(close=False))
        runner.run(held[1].aclose())


async def test_what_is_held_back_is_let_go_of() -> None:
    for settings in ("hold=1", "engine=manual", "latency=1000 clock=manual", "chaos=3 clock=manual"):
        emulator.configure(settings)
        async with found("lost await: a copy() of 3 bytes is still pending") as dma:
            dma.copy(b"abc", bytearray(3))
        emulator.reset()


# ---- schedules, clocks, chaos


async def test_schedule() -> None:
    Schedule(hold=True, latency=1e-3).apply()
    async with checked_dma() as dma:
        target, ended = await dma.alloc(30), []
        copies = [dma.copy(bytes(10), target[10 * i : 10 * i + 10]) for i in range(3)]
        for i, copy in enumerate(copies):
            copy.add_done_callback(lambda done, i=i: ended.append((i, done.result())))
        await asyncio.sleep(0)
        assert not any(copy.done() for copy in copies)
        assert emulator.release(order="lifo") == 3
        await dma.drain()
        await asyncio.sleep(0)
    assert ended == [(2, 10), (1, 10), (0, 10)]
    assert emulator.time_ns() >= 1_000_000
    with pytest.raises(ValueError, match="bad value of 'order'"):
        Schedule(order="other").apply()  # type: ignore[arg-type]


async def test_virtual_clock() -> None:
    Schedule(latency=5.0).apply()
    emulator.configure(clock="manual")
    clock = VirtualClock()
    async with checked_dma() as dma:
        start = clock()
        copy = dma.copy(b"abc", bytearray(3))
        clock.advance(4.9)
        await asyncio.sleep(0)
        assert not copy.done()
        clock.advance(0.1)
        await copy
        assert clock() - start == pytest.approx(5.0)


async def test_chaos_seeds() -> None:
    assert Chaos.random(faults=3).faults == 3
    assert Chaos.random() != Chaos.random()
    for seed in (0, -1, 2**64):
        with pytest.raises(ValueError, match="seed must be between 1 and"):
            Chaos(seed)
    Chaos(7).apply()
    async with checked_dma() as dma:
        await asyncio.gather(*(dma.copy(b"abc", bytearray(3)) for _ in range(20)))
    assert emulator.chaos_events()
