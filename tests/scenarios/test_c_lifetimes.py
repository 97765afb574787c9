"""Part C: cancellation, lifetimes, futures."""

from __future__ import annotations

import array
import asyncio
import contextlib
import contextvars
import gc
import mmap
import os
import random
import weakref
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import aiodocadma
from aiodocadma import DMA, emulator
from aiodocadma.exceptions import DocaIoFailedError
from tests.scenarios.conftest import Child, opened, release, turns, until


def in_flight() -> int:
    """Tasks that the emulator holds."""
    return emulator.live_objects().in_flight


@pytest.mark.diagonal
@pytest.mark.usefixtures("held")
async def test_b29_timeout_returns_then_the_buffer_changes() -> None:
    """300 ms in a timeout of 50 ms: the exception comes after the native end, and dst is the caller's then."""
    loop = asyncio.get_running_loop()
    async with opened() as dma:
        dst = bytearray(1000)
        start = loop.time()
        loop.call_later(0.3, release)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await dma.copy(b"x" * 1000, dst)
        assert 0.28 < loop.time() - start < 0.6
        assert in_flight() == 0
        dst[:] = b"\xee" * 1000
        await asyncio.sleep(1)
        assert dst == b"\xee" * 1000


@pytest.mark.usefixtures("held")
async def test_b29_the_barrier_after_a_shield() -> None:
    """Where the caller opts out by a shield, the timeout is prompt, and dst is locked until the native end."""
    loop = asyncio.get_running_loop()
    async with opened() as dma:
        dst = bytearray(1000)
        start = loop.time()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await asyncio.shield(dma.copy(b"x" * 1000, dst))
        assert loop.time() - start < 0.2
        with pytest.raises(BufferError):
            dst.append(1)
        release()
        await dma.drain()
        dst.append(1)


async def test_b30_awaitable_never_awaited(engine: str) -> None:
    """Room for two; ten copies, and ten coroutines, dropped without an await: no slot is lost, four more copies end."""
    async with opened(num_tasks=2) as dma:
        for _ in range(10):
            dma.copy(b"abc", bytearray(3))
        with pytest.warns(RuntimeWarning, match="never awaited"):
            for _ in range(10):
                dma.copy_coroutine(b"abc", bytearray(3))
        gc.collect()
        for _ in range(4):
            assert await dma.copy(b"abc", bytearray(3)) == 3
        await dma.drain()
        assert in_flight() == 0
        assert dma.statistics().copies_completed == 14
    assert emulator.live_objects().tasks == 0


@pytest.mark.timeout(900)
@pytest.mark.parametrize("repeats", [10, pytest.param(100, marks=pytest.mark.deep)])
@pytest.mark.usefixtures("held")
async def test_b31_future_does_not_keep_its_buffer_alive(repeats: int) -> None:
    """Both sides are temporaries of 2 MiB, collected while in flight: the data are right."""
    loop = asyncio.get_running_loop()
    async with opened() as dma:
        for _ in range(repeats):
            parent = bytearray((2 << 20) + 64)
            whole = memoryview(parent)
            sum_of = os.urandom(64)
            task = loop.create_task(dma.copy_coroutine(bytes(sum_of * (2 << 14)), whole[64:]))
            del whole
            await until(in_flight, "the copy in flight")
            for _ in range(3):
                gc.collect()
                await turns(1)
            # 2 MiB that a freed source or destination would be reused for.
            waste = [bytearray(b"\xff" * (2 << 20)) for _ in range(2)]
            await asyncio.sleep(0.002)
            release()
            assert await task == 2 << 20
            assert parent[:64] == bytes(64)
            assert parent[64:] == sum_of * (2 << 14)
            del parent, waste


@pytest.mark.usefixtures("held")
async def test_b32_completing_a_cancelled_future(engine: str) -> None:
    """Eight held copies, numbers 2, 5 and 8 cancelled, all released at once: the others succeed in that tick."""
    async with opened() as dma:
        futures = [dma.copy(b"abc", bytearray(3)) for _ in range(8)]
        await until(lambda: in_flight() == 8, "eight tasks in flight")
        for i in (1, 4, 7):
            futures[i].cancel()
        await turns(1)
        await until(lambda: engine != "worker" or emulator.counters().tasks_worker == 8, "all to be executed")
        assert release(8) == 8
        dma._readable()
        assert [future.done() for future in futures] == [True] * 8
        for i, future in enumerate(futures):
            assert future.cancelled() if i in (1, 4, 7) else future.result() == 3


@pytest.mark.usefixtures("held")
async def test_b34_never_retrieved_after_a_cancel_race() -> None:
    """Cancelled, then failed by the device: CancelledError with the device's error as its context, and no log noise."""
    async with opened() as dma:
        emulator.inject(emulator.Fault("completion", status="IO_FAILED"))
        task = asyncio.ensure_future(dma.copy_coroutine(b"abc", bytearray(3)))
        await until(in_flight, "the copy in flight")
        await turns()
        task.cancel()
        await turns()
        release()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        contexts = []
        error: BaseException | None = caught.value
        while error is not None:
            contexts.append(type(error))
            error = error.__context__
        assert DocaIoFailedError in contexts
        assert dma.statistics().segments_failed == 1
        assert dma.statistics().copies_cancelled == 1
        del caught, error, task
        gc.collect()
        # The same where nobody awaits at all.
        emulator.inject(emulator.Fault("completion", status="IO_FAILED", fatal=False))
        dropped = dma.copy(b"abc", bytearray(3))
        await until(in_flight, "the second copy in flight")
        await turns()  # the doorbell is rung
        dropped.cancel()
        del dropped
        release()
        await dma.drain()
        gc.collect()
        await turns()


@pytest.mark.usefixtures("held")
async def test_b35_cancellation_swallowed_when_native_succeeded() -> None:
    """Released with success at 100 ms inside a timeout of 50 ms: TimeoutError all the same."""
    loop = asyncio.get_running_loop()
    async with opened() as dma:
        loop.call_later(0.1, release)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await dma.copy(b"abc", bytearray(3))
        assert dma.statistics().segments_completed == 1


@pytest.mark.usefixtures("held")
async def test_b35_cancellation_by_a_sibling() -> None:
    """A TaskGroup whose other task raised ends with that error only, although the copy succeeded natively."""
    loop = asyncio.get_running_loop()

    async def sibling() -> None:
        await until(in_flight, "the copy in flight")
        loop.call_later(0.02, release)
        raise KeyError("sibling")

    async with opened() as dma:
        with pytest.raises(ExceptionGroup) as caught:
            async with asyncio.TaskGroup() as group:
                group.create_task(dma.copy_coroutine(b"abc", bytearray(3)))
                group.create_task(sibling())
        assert [type(error) for error in caught.value.exceptions] == [KeyError]
        assert dma.statistics().segments_completed == 1
        del caught


async def mistreat(seed: int) -> None:
    """16 held copies; cancels, drops, closes and releases in random order."""
    rng = random.Random(seed)
    dma: DMA | None = await aiodocadma.open_dma(num_tasks=rng.choice((4, 16))).__aenter__()
    assert dma is not None
    dsts = [bytearray(8) for _ in range(16)]
    copies: dict[int, Any] = {}
    for i, dst in enumerate(dsts):
        data = bytes([i]) * 8
        copies[i] = dma.copy(data, dst) if i % 2 else asyncio.ensure_future(dma.copy_coroutine(data, dst))
    if rng.random() < 0.5:
        await turns(2)
    actions: list[tuple[str, int]] = [("cancel", rng.randrange(16)) for _ in range(5)]
    actions += [("drop", rng.randrange(16)) for _ in range(5)] + [("release", rng.randrange(1, 8)) for _ in range(4)]
    actions += [("close", 0)] if rng.random() < 0.7 else []
    rng.shuffle(actions)
    closing: asyncio.Task[None] | None = None
    for action, number in actions:
        match action:
            case "cancel" if number in copies:
                copies[number].cancel()
            case "drop":
                dropped = copies.pop(number, None)
                if dropped is not None:
                    dropped.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
                del dropped
            case "release":
                emulator.release(number, order=rng.choice(("fifo", "lifo", "random")))
            case "close" if closing is None:
                closing = asyncio.ensure_future(dma.aclose())
        if rng.random() < 0.3:
            gc.collect()
        if rng.random() < 0.5:
            await turns(rng.randrange(3))
    if closing is None:
        closing = asyncio.ensure_future(dma.aclose())
    while not closing.done():
        release(1)
        await turns(1)
    await closing
    for outcome in await asyncio.gather(*copies.values(), return_exceptions=True):
        assert outcome == 8 or isinstance(outcome, asyncio.CancelledError | aiodocadma.exceptions.ClosedError)
    counted = dma.statistics()
    assert counted.segments_submitted == counted.segments_completed + counted.segments_failed + counted.segments_flushed
    for i, dst in enumerate(dsts):
        assert dst in (bytes([i]) * 8, bytes(8))
        dst.append(0)  # unlocked
    assert sum(emulator.live_objects()) == 0


@pytest.mark.diagonal
@pytest.mark.timeout(60)
@pytest.mark.usefixtures("held")
async def test_b36_releasing_what_is_still_active() -> None:
    """16 held copies cancelled, dropped, closed over and released in random order: each task is freed exactly once."""
    gc.collect()
    gc.freeze()  # what is there already is not looked at again in each of the collections below
    try:
        for seed in range(300):
            try:
                await mistreat(seed)
            except BaseException as error:
                error.add_note(f"seed {seed}")
                raise
    finally:
        gc.unfreeze()


# How often each cleanup call must fail to fail for good.
CLEANUP: dict[str, int] = {
    # doca_task_free() returns nothing, so it cannot fail.
    "buf_dec_refcount": 1,
    "mmap_destroy": 1,
    "ctx_stop": 3,
    "dma_destroy": 1,
    "buf_inventory_destroy": 1,
    "pe_destroy": 1,
    "dev_close": 1,
}


@pytest.mark.rule("R122")
@pytest.mark.diagonal
@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
@pytest.mark.parametrize("op", CLEANUP)
def test_b37_one_failing_step_aborts_the_cleanup(op: str, kind: str, child: Callable[..., Child]) -> None:
    """Each cleanup call fails in turn: the others are made all the same, one error lists what failed, then quiet."""
    done = child(
        f"""
op, times = {op!r}, {CLEANUP[op]}
emulator.configure("strict=abort")

async def main():
    dma = await aiodocadma.open_dma().__aenter__()
    kept = await dma.alloc(100)
    for _ in range(3):
        await dma.copy(b"abc", bytearray(3))
    emulator.inject(emulator.Fault(op, status="DRIVER", count=times))
    if op == "buf_dec_refcount":
        await dma.copy(b"abc", bytearray(3))
    try:
        await dma.aclose()
    except aiodocadma.exceptions.DocaDriverError as error:
        print("failed:", error.call)
        print(str(error))
    await dma.aclose()
    live = emulator.live_objects()
    print({{name: value for name, value in live._asdict().items() if value}})
    return live

with asyncio.Runner(loop_factory={kind}.new_event_loop) as runner:
    runner.run(main())
""",
    )
    assert (done.code, done.err) == (0, "")
    failed, text, *_, left = done.out.splitlines()
    assert failed == f"failed: doca_{op}"
    # What hangs on the thing that could not be destroyed must stay; everything else is gone.
    expected = {
        "buf_dec_refcount": ("bufs", "devs", "inventories", "mmaps", "pinned_bytes"),
        "mmap_destroy": ("mmaps", "pinned_bytes", "devs"),
        "ctx_stop": ("ctxs", "devs", "inventories", "mmaps", "pes", "pinned_bytes", "workers"),
        "dma_destroy": ("ctxs", "devs", "inventories", "mmaps", "pes", "pinned_bytes"),
        "buf_inventory_destroy": ("inventories",),
        "pe_destroy": ("pes",),
        "dev_close": ("devs",),
    }[op]
    assert sorted(eval(left)) == sorted(expected)
    words = {
        "bufs": "bufs",
        "ctxs": "context",
        "devs": "device",
        "inventories": "inventory",
        "mmaps": "memory",
        "pes": "progress engine",
    }
    for kind, word in words.items():
        assert (word in text.partition("closing mlx5_0, which leaves ")[2].partition(":")[0]) == (kind in expected)


def resizable() -> list[tuple[str, Any, list[Callable[[Any], Any]]]]:
    """Objects whose memory can move or go away, and what makes it."""
    anonymous = mmap.mmap(-1, 8192)
    return [
        (
            "bytearray",
            bytearray(8192),
            [
                lambda b: b.__iadd__(b"x"),
                lambda b: b.clear(),
                lambda b: b.__delitem__(slice(None)),
                lambda b: b.extend(b"x"),
            ],
        ),
        ("array", array.array("B", bytes(8192)), [lambda a: a.append(1), lambda a: a.pop()]),
        ("mmap", anonymous, [lambda m: m.close(), lambda m: m.resize(4096)]),
        ("memoryview", memoryview(bytearray(8192)), [lambda v: v.release()]),
    ]


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
@pytest.mark.parametrize("role", ["src", "dst"])
@pytest.mark.usefixtures("held")
async def test_b38_bytearray_resized_while_pinned(role: str, end: str) -> None:
    """Whatever would move or free memory in flight raises; all of it is allowed right after the end, however it was."""
    async with opened() as dma:
        for _, obj, changes in resizable():
            if end == "failed":
                emulator.inject(emulator.Fault("completion", fatal=False))
            future = dma.copy(obj, bytearray(8192)) if role == "src" else dma.copy(bytes(8192), obj)
            await until(in_flight, "the copy in flight")
            if end == "cancelled":
                future.cancel()
            for change in changes:
                with pytest.raises((BufferError, ValueError)):
                    change(obj)
            assert memoryview(obj).nbytes == 8192
            release()
            with contextlib.suppress(DocaIoFailedError, asyncio.CancelledError):
                assert await future == 8192
                assert end == "completed"
            del future
            assert memoryview(obj).nbytes == 8192
            for change in reversed(changes):
                change(obj)


@pytest.mark.parametrize("role", ["src", "dst"])
@pytest.mark.usefixtures("held")
async def test_b38_numpy_array_resized_while_pinned(role: str) -> None:
    """numpy does not know of exports when told not to check references: the copy holds the memory it was given."""
    async with opened() as dma:
        obj = numpy.full(8192, 7, numpy.uint8)
        other = bytearray(8192)
        future = dma.copy(obj, other) if role == "src" else dma.copy(bytes(8192), obj)
        await until(in_flight, "the copy in flight")
        with pytest.raises(ValueError, match="resize"):
            obj.resize(4096, refcheck=True)
        release()
        assert await future == 8192
        del future
        assert role == "dst" or other == b"\x07" * 8192
        obj.resize(4096, refcheck=True)


@pytest.mark.filterwarnings("ignore:unclosed mlx5_0 DMA:ResourceWarning")
@pytest.mark.usefixtures("held")
async def test_b39_engine_collected_while_work_is_in_flight() -> None:
    """The pending await is the only reference: the copy finishes with the right data, then the engine is collected."""
    loop = asyncio.get_running_loop()

    async def start() -> tuple[Any, weakref.ref[DMA], bytearray]:
        dma = await aiodocadma.open_dma().__aenter__()
        dst = bytearray(1000)
        return asyncio.ensure_future(dma.copy(b"q" * 1000, dst)), weakref.ref(dma), dst

    future, alive, dst = await start()
    loop.call_later(0.1, release)
    end = loop.time() + 0.08
    while loop.time() < end:
        gc.collect()
        await asyncio.sleep(0.005)
    assert alive() is not None
    assert await future == 1000
    assert dst == b"q" * 1000
    del future
    await turns()
    gc.collect()
    assert alive() is None
    assert sum(emulator.live_objects()) == 0


@pytest.mark.diagonal
def test_b39_the_first_await_of_a_process_keeps_nothing_alive(child: Callable[..., Child]) -> None:
    """The loop is closed while it waits: nobody else holds the engine, so it is finalised."""
    done = child(
        """
emulator.configure(engine="manual")

async def wait():
    dma = await aiodocadma.open_dma().__aenter__()
    await dma.copy(bytes(10), bytearray(10))

loop = asyncio.new_event_loop()
task = loop.create_task(wait())
while not emulator.live_objects().in_flight:
    loop.call_soon(loop.stop)
    loop.run_forever()
loop.close()
task._log_destroy_pending = False
del task
gc.collect()
print("end of the script", file=sys.stderr, flush=True)
""",
        "-Wdefault",
    )
    assert done.code == 0, done
    assert "unclosed" in done.err.partition("end of the script")[0]


def rss_kib() -> int:
    """Resident memory of this process."""
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith("VmRSS:")).split()[1])


def count_objects() -> int:
    """Python objects; without cancelled timers, of which asyncio keeps up to a hundred until it sweeps them."""
    gc.collect()  # from now on it leaves out the tuples of numbers that the last error's evidence has, one a mapping
    return sum(not isinstance(obj, asyncio.TimerHandle | contextvars.Context) for obj in gc.get_objects())


@pytest.mark.diagonal
@pytest.mark.parametrize("copies", [20_000, pytest.param(200_000, marks=pytest.mark.deep)])
async def test_b41_slow_leak_of_native_objects(engine: str, copies: int) -> None:
    """Copies of 1 KiB, 10 % cancelled, 5 % failing: memory and Python objects do not grow, native objects neither."""
    batch = 100
    async with opened(num_tasks=64) as dma:
        src, dst = await dma.alloc(1024), await dma.alloc(1024 * batch)

        async def some(n: int) -> None:
            for start in range(0, n, batch):
                futures = [dma.copy(src, dst[1024 * i : 1024 * i + 1024]) for i in range(batch)]
                for future in futures[start // batch % 10 :: 10]:
                    future.cancel()
                await asyncio.gather(*futures, return_exceptions=True)

        emulator.inject(emulator.Fault("completion", interval=20, count=0, fatal=False))
        await some(copies // 10)
        live, rss, objects = emulator.live_objects(), rss_kib(), count_objects()
        await some(copies)
        assert rss_kib() - rss < 2048
        assert count_objects() - objects < 100
        now = emulator.live_objects()
        kept = {"tasks": 0, "bufs": 0, "workers": 0}  # for the next copies, as many as fit the window
        assert now._replace(**kept) == live._replace(**kept)
        assert now.tasks <= 64
        assert now.bufs <= 2 * 64
        done = dma.statistics()
        assert done.copies_cancelled > copies // 20
        # Of failures that come together all but the first pass for flushed, and are tried again.
        assert done.copies_failed + done.segments_replayed > copies // 40
        src.close()
        dst.close()
