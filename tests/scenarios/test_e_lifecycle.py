"""Part E: DOCA lifecycle, arguments, errors, environment."""

from __future__ import annotations

import array
import asyncio
import copy
import ctypes
import gc
import inspect
import logging
import mmap
import os
import pickle
import random
import re
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

import aiodocadma
from aiodocadma import DMAState, _engine, _open, emulator
from aiodocadma.exceptions import (
    AccessError,
    AiodocadmaError,
    BoundsError,
    BufferInUseError,
    ClosedError,
    DocaDriverError,
    DocaError,
    DocaIoFailedError,
    DocaNotFoundError,
    DocaNotPermittedError,
    DocaNotSupportedError,
    DrainTimeoutError,
)
from tests.scenarios.conftest import Child, Ticker, opened, release, turns, until


def in_flight() -> int:
    """Tasks that the emulator holds."""
    return emulator.live_objects().in_flight


@pytest.mark.rule("X13")
@pytest.mark.parametrize("reaction", ["close", "copy"])
async def test_b51_stopping_inside_an_error_callback(engine: str, reaction: str) -> None:
    """A done-callback of a failed copy closes the DMA, or submits a new copy: no rule is broken, both work."""
    outcomes: list[asyncio.Future[Any]] = []
    async with opened() as dma:
        emulator.inject(emulator.Fault("completion"))

        def react(_: object) -> None:
            if reaction == "close":
                outcomes.append(asyncio.ensure_future(dma.aclose()))
            else:
                outcomes.append(dma.copy(b"abc", bytearray(3)))

        failing = dma.copy(b"abc", bytearray(3))
        failing.add_done_callback(react)
        with pytest.raises(DocaIoFailedError):
            await failing
        await until(lambda: outcomes, "the callback")
        assert await outcomes[0] == (None if reaction == "close" else 3)
        outcomes.clear()


async def test_b52_copy_before_open_finished(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening takes 200 ms: there is nothing to copy with before, and the loop is not held up meanwhile."""
    opening = _engine.Engine.__init__

    def slow(self: Any, *args: Any, **options: Any) -> None:
        time.sleep(0.2)  # in the worker thread: a device that is slow to start
        opening(self, *args, **options)

    monkeypatch.setattr(_engine.Engine, "__init__", slow)
    manager = aiodocadma.open_dma()
    assert not hasattr(manager, "copy")
    async with Ticker(0.005) as ticker, manager as dma:
        assert await dma.copy(b"abc", bytearray(3)) == 3
    assert ticker.ticks > 5  # of 40: it was not blocked for as long as opening took


@pytest.mark.rule("R36")
@pytest.mark.usefixtures("held")
async def test_b52_copy_while_stopping_and_after() -> None:
    """While a fault stops the context a copy waits for the restart; while closing and after it is refused."""
    async with opened() as dma:
        emulator.inject(emulator.Fault("completion"))
        failing = dma.copy(b"abc", bytearray(3))
        await until(in_flight, "the failing copy")
        release()
        await until(lambda: dma.state is DMAState.RESTARTING, "the context to stop")
        waiting = dma.copy(b"abc", dst := bytearray(3))
        with pytest.raises(DocaIoFailedError):
            await failing
        await until(release, "the restart")
        assert await waiting == 3
        assert dst == b"abc"
        maps = await dma.alloc(3), await dma.alloc(3)
        last = dma.copy(b"abc", bytearray(3))
        await turns(1)
        closing = asyncio.ensure_future(dma.aclose())
        await turns(1)
        with pytest.raises(ClosedError):
            dma.copy(b"abc", bytearray(3))
        with pytest.raises(ClosedError):
            dma.copy(*maps)
        release()
        await closing
        assert await last == 3
        with pytest.raises(ClosedError):
            dma.copy(b"abc", bytearray(3))


@pytest.mark.rule("R10")
@pytest.mark.usefixtures("held")
async def test_b54_zero_length_copies() -> None:
    """Empty sources of every kind: 0 at once, no task for DOCA, a copy in flight is not touched; the loop has turns."""
    async with opened() as dma, await dma.alloc(10) as src, await dma.alloc(10) as dst:
        other = dma.copy(b"abc", bytearray(3))
        await until(in_flight, "the other copy")
        submits = emulator.counters().submits
        pairs: list[tuple[Any, Any]] = [
            (b"", bytearray()),
            (b"", bytearray(10)),
            (src[:0], dst[:0]),
            (src[5:5], dst),
            (numpy.zeros(0), numpy.zeros((0, 3))),
            (numpy.zeros((3, 0)), bytearray(5)),
            (memoryview(b"abc")[3:], memoryview(bytearray(3))[:0]),
        ]
        for source, destination in pairs:
            copying = dma.copy(source, destination)
            assert copying.done()
            assert await copying == 0
        yielded: list[bool] = []
        asyncio.get_running_loop().call_soon(yielded.append, True)
        for _ in range(1024):
            assert await dma.copy(b"", bytearray()) == 0
        assert yielded
        assert emulator.counters().submits == submits
        assert not other.done()
        release()
        assert await other == 3


@pytest.mark.usefixtures("held")
async def test_b55_stop_says_in_progress() -> None:
    """Five held copies, close starts, one is released each 20 ms: close ends after the fifth, all five succeed."""
    loop = asyncio.get_running_loop()
    async with opened() as dma:
        dsts = [bytearray(3) for _ in range(5)]
        futures = [dma.copy(b"abc", dst) for dst in dsts]
        await until(lambda: in_flight() == 5, "five tasks in flight")
        async with Ticker(0.005) as ticker:
            closing = asyncio.ensure_future(dma.aclose())
            await turns(1)
            for i in range(5):
                loop.call_later(0.02 * (i + 1), release, 1)
            for i in range(5):
                with pytest.raises(ClosedError):
                    dma.copy(b"abc", bytearray(3))
                assert not closing.done()
                assert await futures[i] == 3
            await closing
        assert dsts == [b"abc"] * 5
        assert ticker.starved < 0.05


async def test_b56_stop_fails_twice_then_works(engine: str) -> None:
    """doca_ctx_stop() says DRIVER twice: close succeeds all the same."""
    async with opened() as dma:
        assert await dma.copy(b"abc", bytearray(3)) == 3
        emulator.inject(emulator.Fault("ctx_stop", status="DRIVER", count=2))
        await dma.aclose()
    assert sum(emulator.live_objects()) == 0


@pytest.mark.diagonal
@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_b56_stop_never_works(kind: str, child: Callable[..., Child]) -> None:
    """doca_ctx_stop() never works: one error, nothing below is destroyed, the memory stays pinned, exit code 0."""
    done = child(
        f"""
emulator.configure(strict="abort")

async def main():
    dma = await aiodocadma.open_dma().__aenter__()
    kept = await dma.alloc(1000)
    await dma.copy(b"abc", kept)
    emulator.inject(emulator.Fault("ctx_stop", status="DRIVER", count=0))
    start = time.perf_counter()
    try:
        await dma.aclose(timeout=0.5)
    except aiodocadma.exceptions.DocaDriverError as error:
        print(error.call, error.phase)
        print("the context, its progress engine and inventory, all registered memory and the device" in str(error))
    print(time.perf_counter() - start < 0.5, emulator.counters().faults <= 3)
    live = emulator.live_objects()
    print(live.ctxs, live.pes, live.inventories, live.devs, live.mmaps >= 1, live.pinned_bytes >= 1000)

with asyncio.Runner(loop_factory={kind}.new_event_loop) as runner:
    runner.run(main())
"""
    )
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == ["doca_ctx_stop stop", "True", "True True", "1 1 1 1 True True"]


@pytest.mark.diagonal
@pytest.mark.usefixtures("held")
async def test_b56_close_with_a_timeout() -> None:
    """The engine does not let go: aclose(timeout=0.5) raises one error in time; nothing is destroyed before it does."""
    loop = asyncio.get_running_loop()
    async with opened() as dma:
        future = dma.copy(b"abc", bytearray(3))
        await turns()
        start = loop.time()
        with pytest.raises(DrainTimeoutError, match=r"still holds 1 task after 0\.5 s"):
            await dma.aclose(timeout=0.5)
        assert loop.time() - start < 1
        assert emulator.live_objects().ctxs == 1
        release()
        assert await future == 3


@pytest.mark.rule("R37")
@pytest.mark.usefixtures("held")
async def test_b57_unmapping_memory_in_use() -> None:
    """A map closed during a held copy: refused with the number of copies; aclose() waits and then succeeds."""
    async with opened() as dma:
        memory_map = await dma.register(bytearray(100))
        other = await dma.alloc(100)
        future = dma.copy(other, memory_map)
        await until(in_flight, "the copy in flight")
        with pytest.raises(BufferInUseError, match="in use by 1 copy"):
            memory_map.close()
        closing = asyncio.ensure_future(memory_map.aclose())
        await turns(5)
        assert not closing.done()
        release()
        await closing
        assert memory_map.closed
        assert await future == 100
        other.close()


@pytest.mark.rule("R04", "R07", "R56")
async def test_b58_permissions_do_not_allow_the_copy(engine: str) -> None:
    """A read-only region as destination fails before the device is asked, as PermissionError; the context runs on."""
    async with opened() as dma:
        readonly = await dma.register(b"x" * 10)
        submits = emulator.counters().submits
        for dst in (readonly, b"x" * 10, memoryview(bytearray(10)).toreadonly()):
            with pytest.raises(PermissionError) as caught:
                dma.copy(bytes(10), dst)
            assert type(caught.value) is AccessError
            assert "dst" in str(caught.value)
            assert "writable" in str(caught.value)
            del caught
        assert emulator.counters().submits == submits
        assert dma.state is DMAState.RUNNING
        assert await dma.copy(b"abc", bytearray(3)) == 3
        readonly.close()


TWO_DEVICES = "device mlx5_0 pci=0000:03:00.0\ndevice mlx5_1 pci=0000:04:00.0"  # none imports its own export


async def test_b57_unmapping_memory_that_was_exported(engine: str) -> None:
    """An exported region: closing it is an explicit error, unless forced; then the importer gets a typed error."""
    emulator.configure(TWO_DEVICES)
    async with opened("mlx5_0") as dma, opened("mlx5_1") as importer:
        memory = await dma.alloc(4096)
        remote = await importer.import_memory(await memory.export())
        assert await importer.copy(remote, bytearray(4096)) == 4096
        with pytest.raises(BufferInUseError, match="exported"):
            memory.close()
        assert await importer.copy(remote, bytearray(4096)) == 4096
        memory.close(force=True)
        with pytest.raises(DocaIoFailedError):
            await importer.copy(remote, bytearray(4096))
        remote.close()


async def test_b58_permissions_of_remote_memory(engine: str) -> None:
    """Exported for reading and used as a destination: refused before the device is asked, naming what it takes."""
    emulator.configure(TWO_DEVICES)
    async with opened("mlx5_0") as dma, opened("mlx5_1") as importer:
        memory = await dma.register(b"x" * 4096)
        remote = await importer.import_memory(await memory.export())
        submits = emulator.counters().submits
        with pytest.raises(PermissionError) as caught:
            importer.copy(bytes(4096), remote)
        assert type(caught.value) is AccessError
        assert "export(access='write')" in str(caught.value)
        with pytest.raises(PermissionError) as caught:
            await memory.export(access="write")  # of a map that is not for writing
        assert type(caught.value) is AccessError
        assert "Register writable memory" in str(caught.value)
        del caught
        assert emulator.counters().submits == submits
        assert dma.state is importer.state is DMAState.RUNNING
        remote.close()
        memory.close(force=True)


@pytest.mark.parametrize("case", ["truncated", "empty", "noise", "stopped", "another device's", "whole"])
async def test_b59_bad_export_descriptors(engine: str, case: str, caplog: pytest.LogCaptureFixture) -> None:
    """Truncated, empty, noise, of a stopped map, of no use here: errors that do not show it; a whole one works."""
    emulator.configure(TWO_DEVICES)
    caplog.set_level(logging.DEBUG)
    async with opened("mlx5_0") as dma, opened("mlx5_1") as importer:
        memory = await dma.alloc(4096)
        exported = await memory.export()
        descriptor = bytes(exported)
        assert descriptor.hex()[:16] not in repr(exported)
        assert repr(descriptor)[2:10] not in repr(exported)
        if case == "stopped":
            memory.close(force=True)
        blob = {"truncated": descriptor[:-1], "empty": b"", "noise": os.urandom(65_536)}.get(case, descriptor)
        if case == "whole":
            async with await importer.import_memory(blob) as remote:
                assert await importer.copy(remote, bytearray(4096)) == 4096
        else:
            with pytest.raises(AiodocadmaError) as caught:
                await (dma if case == "another device's" else importer).import_memory(blob)
            for text in (str(caught.value), repr(caught.value), caplog.text):
                assert case == "empty" or blob.hex()[:16] not in text
                assert case == "empty" or repr(blob)[2:10] not in text
        memory.close(force=True)


@pytest.mark.rule("R14", "X05")
@pytest.mark.parametrize("num_tasks", [1, 8])
async def test_b60_copy_larger_than_the_device_limit(engine: str, num_tasks: int) -> None:
    """A limit of 64 KiB, sizes around its multiples, odd offsets: exact data, ceil(size / limit) tasks each."""
    limit = 65_536
    emulator.configure(max_buf_size=limit)
    rng = random.Random(60)
    async with opened(num_tasks=num_tasks) as dma:
        for size in (limit - 1, limit, limit + 1, 3 * limit, (10 << 20) + 1):
            data = rng.randbytes(size)
            dst = bytearray(b"\xaa" * (size + 20))
            ends: list[object] = []
            submits = emulator.counters().submits
            future = dma.copy(memoryview(b"-" * 7 + data)[7:], memoryview(dst)[13 : 13 + size])
            future.add_done_callback(ends.append)
            assert await future == size
            await turns(1)
            assert len(ends) == 1
            assert dst[:13] == b"\xaa" * 13
            assert dst[13 : 13 + size] == data
            assert dst[13 + size :] == b"\xaa" * 7
            assert emulator.counters().submits - submits == -(-size // limit)
            del future
            ends.clear()
        # Two at once share the places without a deadlock.
        dsts = [bytearray(5 * limit) for _ in range(2)]
        data = rng.randbytes(5 * limit)
        assert await asyncio.gather(*[dma.copy(data, dst) for dst in dsts]) == [5 * limit] * 2
        assert dsts == [data, data]


def sparse(size: int) -> mmap.mmap:
    """Memory that is not there until it is touched."""
    no_reserve = 0x4000  # MAP_NORESERVE, which Python has no name for
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve)


@pytest.mark.parametrize("size", [2**32 - 1, 2**32, 2**32 + 1, 2**32 + 4097])
@pytest.mark.parametrize("striped", [False, True])
@pytest.mark.matrix(engines=("manual",))  # which can end tasks without executing them
async def test_b61_truncation_at_4_gib(engine: str, size: int, striped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """4 GiB and a little, cut by a limit of 2^32 - 1: the tasks' lengths and addresses add up exactly."""
    limit = 2**32 - 1
    emulator.configure(max_buf_size=limit)
    if not striped:
        monkeypatch.setattr(_engine, "STRIPE_BYTES", 0)  # cut at the limit only
    src, dst = sparse(size), sparse(size)
    async with opened(num_tasks=32) as dma, await dma.register(src) as source, await dma.register(dst) as destination:
        future = dma.copy(source, destination)
        await turns(10)
        traces = list(reversed(emulator.last_copies(64)))
        assert sum(trace.length for trace in traces) == size
        assert striped or len(traces) == -(-size // limit)
        position = 0
        for trace in traces:
            assert trace.src - traces[0].src == trace.dst - traces[0].dst == position
            assert 0 < trace.length <= limit
            position += trace.length
        # In account only: the tasks end without being executed.
        for trace in traces:
            assert emulator.complete(trace.dst, code=17, fatal=False)
        with pytest.raises(DocaIoFailedError) as caught:
            await future
        assert f"copying {size} bytes" in str(caught.value)
        del caught, future
    src.close()
    dst.close()


@pytest.mark.deep
@pytest.mark.diagonal
async def test_b61_truncation_at_4_gib_with_data(engine: str) -> None:
    """4 GiB and 4,097 bytes with the last byte set: it arrives, and so does one in the middle."""
    size = 2**32 + 4097
    src, dst = sparse(size), sparse(size)
    src[size - 1] = 0x5A
    src[2**31] = 0xA5
    async with opened() as dma, await dma.register(src) as source, await dma.register(dst) as destination:
        # All but the last chunk is read as zeros from the shared zero page and would be written as real memory.
        tail = 2**32 - 10
        assert await dma.copy(source[tail:], destination[tail:]) == size - tail
        assert await dma.copy(source[2**31 : 2**31 + 1], destination[2**31 :]) == 1
    assert dst[size - 1] == 0x5A
    assert dst[2**31] == 0xA5
    assert dst[size - 2] == 0
    src.close()
    dst.close()


async def test_b61_numbers_that_do_not_fit() -> None:
    """2^31, 2^32 and 2^63 as sizes and offsets: exact, or an error, never another number."""
    async with opened() as dma, await dma.alloc(10) as memory:
        for number in (2**31, 2**32, 2**63, 2**64):
            with pytest.raises((BoundsError, IndexError, OverflowError, ValueError)):
                dma.copy(bytes(11), memory[number:])
            assert memory[number:].nbytes == 0
            with pytest.raises((ValueError, OverflowError)):
                aiodocadma.open_dma(num_tasks=-number)
        with pytest.raises((OverflowError, ValueError, DocaError, MemoryError)):
            await dma.alloc(2**63)
        with pytest.raises((OverflowError, ValueError, DocaError, MemoryError)):
            await dma.alloc(2**64 + 10)
    for number in (2**32, 2**63):
        with pytest.raises((OverflowError, ValueError)):
            async with aiodocadma.open_dma(num_tasks=number):
                pass


def odd_pairs() -> dict[str, tuple[Any, Any, Any]]:
    """Sides that are not plain bytes: source, destination, and the bytes copied or the error expected."""
    square = numpy.arange(12, dtype=numpy.uint8).reshape(3, 4)
    fortran = numpy.asfortranarray(square)
    readonly = mmap.mmap(-1, 4096, prot=mmap.PROT_READ)
    return {
        "strided src": (memoryview(bytearray(20))[::2], bytearray(10), ValueError),
        "strided dst": (bytes(6), numpy.zeros((3, 4), numpy.uint8)[:, ::2], ValueError),
        "F order pair": (fortran, numpy.zeros((3, 4), numpy.uint8, order="F"), 12),
        "F to C order": (fortran, numpy.zeros((3, 4), numpy.uint8), ValueError),
        "bytes as dst": (bytes(3), b"abc", AccessError),
        "read-only mmap as dst": (bytes(3), readonly, AccessError),
        "dst shorter": (bytes(5), bytearray(4), BoundsError),
        "dst longer": (b"12345", bytearray(10), 5),
        "items of 8 bytes": (array.array("Q", [1, 2, 3]), memoryview(bytearray(24)).cast("Q"), 24),
        "0-d array": (numpy.array(7.5), bytearray(8), 8),
        "ctypes array": ((ctypes.c_int * 4)(1, 2, 3, 4), (ctypes.c_int * 4)(), 16),
        "array.array": (array.array("i", [1, 2]), array.array("i", [0, 0]), 8),
        "no buffer src": (object(), bytearray(3), TypeError),
        "no buffer dst": (bytes(3), object(), TypeError),
        "str src": ("abc", bytearray(3), TypeError),
        "str dst": (bytes(3), "abc", TypeError),
    }


@pytest.mark.parametrize("case", odd_pairs())
async def test_b62_buffers_that_are_not_plain_bytes(engine: str, case: str) -> None:
    """Contiguous ones copy exactly; all others raise before any native call, name the argument, and lock nothing."""
    src, dst, expected = odd_pairs()[case]
    async with opened() as dma:
        live = emulator.live_objects()
        if isinstance(expected, int):
            assert await dma.copy(src, dst) == expected
            if case == "F order pair":
                assert (src == dst).all()
            else:
                assert memoryview(dst).cast("B")[:expected] == memoryview(src).cast("B", [expected])
        else:
            with pytest.raises(expected) as caught:
                dma.copy(src, dst)
            assert ("src" if "src" in case or case == "F to C order" else "dst") in str(caught.value)
            del caught
            assert emulator.live_objects() == live
            assert emulator.counters().submits == 0
            if isinstance(dst, bytearray):
                dst.append(0)
            if isinstance(dst, mmap.mmap):
                dst.close()


USAGE = """
import asyncio
from typing import assert_type

import aiodocadma
from aiodocadma import DMA, CopyFuture, MemoryMap, ReadOnly


async def use(dma: DMA) -> None:
    src = await dma.register(b"payload")
    dst = await dma.alloc(7)
    assert_type(src, MemoryMap[ReadOnly])
    assert_type(dst, MemoryMap)
    future = dma.copy(src, dst)
    assert_type(future, CopyFuture)
    assert_type(await future, int)
    assert_type(await dma.copy_coroutine(src, dst), int)
    assert_type(await asyncio.gather(dma.copy(src, dst), dma.copy(src, dst)), tuple[int, int])
    assert_type(future.bytes_done, int)
    assert_type(await dma.drain(), None)
    assert_type(await dma.aclose(), None)
    assert_type(dst[0:3].nbytes, int)
    assert_type(dma.emulated, bool)
    assert_type(dma.statistics().copies_completed, int)


async def main() -> None:
    async with aiodocadma.open_dma() as dma:
        assert_type(dma, DMA)
        await use(dma)
    assert_type(aiodocadma.devices()[0].name, str)
"""


@pytest.mark.timeout(60)  # mypy has no cache here
@pytest.mark.matrix(modes=("all",))
def test_b63_wrong_input_types(tmp_path: Path) -> None:
    """A type checker in strict mode knows the type of every result: none is Any or None where a value comes."""
    pytest.importorskip("mypy")
    file = tmp_path / "usage.py"
    file.write_text(USAGE.replace("from typing import assert_type", "from typing_extensions import assert_type"))
    command = [sys.executable, "-m", "mypy", "--strict", "--disallow-any-expr", "--cache-dir", str(tmp_path), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout


@pytest.mark.rule("R55", "R75")
async def test_b63_wrong_input_raises_at_the_call(engine: str) -> None:
    """None, wrong types, closed objects, swapped arguments: an exception at that call, from every function."""
    async with opened() as dma:
        closed = await dma.alloc(10)
        closed.close()
        wrong: list[Any] = [None, 7, 1.5, object(), "text", {}]
        for value in wrong:
            with pytest.raises(TypeError):
                dma.copy(value, bytearray(3))
            with pytest.raises(TypeError):
                dma.copy(b"abc", value)
            with pytest.raises(TypeError):
                await dma.copy_coroutine(value, bytearray(3))
            with pytest.raises(TypeError):
                await dma.register(value)
            with pytest.raises((TypeError, ValueError)):
                await dma.alloc(value if value != 7 else "7")
            with pytest.raises((TypeError, aiodocadma.exceptions.AiodocadmaError, ValueError)):
                async with aiodocadma.open_dma(library=value or 0):
                    pass
            if value is not None:
                with pytest.raises((TypeError, aiodocadma.exceptions.AiodocadmaError)):
                    async with aiodocadma.open_dma(value):
                        pass
        with pytest.raises(ValueError, match="at least"):
            await dma.alloc(0)
        with pytest.raises(AccessError):
            dma.copy(bytearray(3), b"abc")  # swapped
        with pytest.raises(ClosedError):
            dma.copy(closed, bytearray(10))
        with pytest.raises(ClosedError):
            dma.copy(b"abc", closed)
        with pytest.raises(TypeError):
            dma.copy(b"abc")  # type: ignore[call-arg]
        assert emulator.counters().submits == 0


async def test_b63_wrong_input_to_every_other_function(engine: str) -> None:
    """The same for all that is public of a DMA and a map, and once they are closed."""
    dma = await aiodocadma.open_dma().__aenter__()
    memory = await dma.alloc(10)
    wrong: list[Any] = [-1.5, object(), "text", {}]
    refusals = (TypeError, ValueError, AiodocadmaError)
    calls: list[Callable[[Any], Any]] = [
        lambda value: dma.submit(value, memory),
        lambda value: dma.submit(memory, value),
        lambda value: dma.copy_many(value, memory, src_offsets=[0], dst_offsets=[0], lengths=1),
        lambda value: dma.copy_many(memory, value, src_offsets=[0], dst_offsets=[0], lengths=1),
        lambda value: dma.copy_many(memory, memory, src_offsets=value, dst_offsets=[5], lengths=1),
        lambda value: dma.copy_many(memory, memory, src_offsets=[0], dst_offsets=[5], lengths=value),
        lambda value: dma.copy_many([(memory[:5], value)]),
        dma.import_memory,
        lambda value: dma.aclose(timeout=value),
        lambda value: dma.register(bytearray(10), access=value),
        lambda value: dma.alloc(10, align=value),
        lambda value: memory.export(access=value),
        lambda value: memory[value],
        lambda value: memory.blocks(value),
        lambda value: aiodocadma.devices(value or 0),
        lambda value: dma.add_start_callback(value),
    ]
    accepted = []
    for number, call in enumerate(calls):
        for value in wrong:
            try:
                if inspect.isawaitable(result := call(value)):
                    await result
            except refusals:
                continue
            accepted.append((number, value))
    assert dma.state is DMAState.RUNNING
    assert emulator.counters().submits == 0
    await dma.aclose()
    assert accepted == []
    for call in (
        lambda: dma.copy(b"abc", bytearray(3)),
        lambda: dma.copy_many([(b"abc", bytearray(3))]),
        lambda: dma.submit(b"abc", bytearray(3)),
        lambda: dma.copy_coroutine(b"abc", bytearray(3)),
        lambda: dma.register(bytearray(3)),
        lambda: dma.alloc(3),
        lambda: dma.import_memory(b"descriptor"),
        lambda: memory.export(),
        lambda: dma.copy(memory, bytearray(10)),
    ):
        with pytest.raises(AiodocadmaError):
            await call()


def check_error(error: DocaError, *words: str) -> None:
    """It names all that, in its first line; a next step on the second; it survives pickle and copy."""
    line, *rest = str(error).splitlines()
    for word in words:
        assert word in line
    assert error.device == "mlx5_0"
    assert error.next_step
    assert rest == [error.next_step]
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is type(error)
        assert str(twin) == str(error)


@pytest.mark.parametrize("side", ["src", "dst"])
@pytest.mark.parametrize("length", [4096, 1 << 20])
async def test_b65_error_text_of_a_registration(side: str, length: int) -> None:
    """A registration fails on one side: the error names the operation, the side, the size, the device."""
    async with opened() as dma:
        emulator.inject(emulator.Fault("mmap_start", status="DRIVER", skip=int(side == "dst")))
        with pytest.raises(DocaDriverError) as caught:
            await dma.copy(bytes(length), bytearray(length))
        check_error(caught.value, "doca_mmap_start", f"registering {length} bytes of {side}", "mlx5_0")
        del caught


@pytest.mark.parametrize("code", ["DRIVER", "IO_FAILED", "NOT_SUPPORTED", "NOT_FOUND"])
async def test_b65_error_text_of_a_completion(engine: str, code: str) -> None:
    """A copy fails in the device: the error names the operation, both sides, the size, the device, the code."""
    async with opened() as dma:
        emulator.inject(emulator.Fault("completion", status=code))
        with pytest.raises(DocaError) as caught:
            await dma.copy(bytes(4096), bytearray(4096))
        check_error(caught.value, f"DOCA_ERROR_{code}", "copying 4096 bytes from src to dst", "mlx5_0")
        del caught


def compiled(folder: Path, name: str, source: str, *options: str) -> Path:
    """A shared library made from C source."""
    folder.mkdir(exist_ok=True)
    file = folder / f"{name}.c"
    file.write_text(source)
    library = folder / f"{name}.so.2"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, file, *options], check=True)
    return library


def forwarding(without: str = "", version: str | None = None) -> str:
    """
    C source of a library that has DOCA's symbols, forwarded to the emulator that is linked, but one.

    Args:
        without: A symbol to leave out.
        version: What ``doca_version_runtime`` says instead.
    """
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", os.environ["AIODOCADMA_LIBRARY"]], capture_output=True, text=True, check=True
    )
    names = sorted({line.split()[2].partition("@")[0] for line in listed.stdout.splitlines() if " T doca_" in line})
    lines = ["#include <dlfcn.h>", "static void *real;"]
    # A jump through a table: arguments and results pass unchanged.
    for name in names:
        if name == without or (version is not None and name == "doca_version_runtime"):
            continue
        lines.append(f"static void *p_{name};")
        lines.append(f'__asm__(".globl {name}\\n.type {name},@function\\n{name}: jmp *p_{name}(%rip)\\n");')
    lines.append("__attribute__((constructor)) static void start(void) {")
    lines.append(f'real = dlopen("{os.environ["AIODOCADMA_LIBRARY"]}", RTLD_NOW);')
    for name in names:
        if name != without and not (version is not None and name == "doca_version_runtime"):
            lines.append(f'p_{name} = dlsym(real, "{name}");')
    lines.append("}")
    if version is not None:
        lines.append(f'const char *doca_version_runtime(void) {{ return "{version}"; }}')
    return "\n".join(lines)


SCRIPT_B66 = """
try:
    devices = aiodocadma.devices(sys.argv[1])
except aiodocadma.exceptions.LibraryError as error:
    print("refused:", str(error).splitlines()[0], "| path", error.path, "| symbol", error.symbol)
else:
    async def main():
        async with aiodocadma.open_dma(library=sys.argv[1]) as dma:
            print("copied:", await dma.copy(b"abc", bytearray(3)), dma.emulated)
    asyncio.run(main())
"""


@pytest.mark.matrix(modes=("all",))
@pytest.mark.parametrize("case", "abcdefg")
def test_b66_version_mismatch_and_partial_install(case: str, tmp_path: Path) -> None:
    """Libraries absent, partial, old, new, damaged: the package imports, and asking for hardware says what is wrong."""
    common, dma = tmp_path / "libdoca_common.so.2", tmp_path / "libdoca_dma.so.2"
    expected: tuple[str, ...]
    match case:
        case "a":  # absent
            expected = ("refused:", "libdoca_common", str(tmp_path))
        case "b":  # libdoca_common only
            compiled(tmp_path, "libdoca_common", forwarding("doca_dma_create"))
            expected = ("refused:", "libdoca_dma.so.2")
        case "c":  # an optional symbol missing
            compiled(tmp_path, "libdoca_common", forwarding("doca_pe_set_event_mode"))
            compiled(tmp_path, "libdoca_dma", forwarding("doca_pe_set_event_mode"))
            expected = ("copied: 3",)
        case "d":  # a required symbol missing
            compiled(tmp_path, "libdoca_common", forwarding("doca_pe_progress"))
            compiled(tmp_path, "libdoca_dma", forwarding("doca_pe_progress"))
            expected = ("refused:", "doca_pe_progress", str(common))
        case "e":  # an old version
            compiled(tmp_path, "libdoca_common", forwarding(version="1.5.0"))
            compiled(tmp_path, "libdoca_dma", forwarding(version="1.5.0"))
            expected = ("refused:", "1.5.0", "2.5", str(common))
        case "f":  # a newer major
            compiled(tmp_path, "libdoca_common", forwarding(version="9.0.0"))
            compiled(tmp_path, "libdoca_dma", forwarding(version="9.0.0"))
            expected = ("copied: 3",)
        case _:  # no ELF file at all
            common.write_bytes(b"\x7fELF and then garbage")
            dma.write_bytes(b"garbage")
            expected = ("refused:", str(common))
    script = "import asyncio, sys\nimport aiodocadma\n" + SCRIPT_B66
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    for word in expected:
        assert word in done.stdout
    doctor = subprocess.run(
        [sys.executable, "-m", "aiodocadma", "doctor", "--library", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert doctor.returncode != 0, doctor
    shown = {"c": ("doca_pe_set_event_mode",), "f": ("9.0.0",)}.get(case, expected[1:])
    for word in shown:
        assert word in doctor.stdout, doctor


@pytest.mark.matrix(modes=("all",))
def test_b66_hardware_asked_for_is_never_an_emulator(tmp_path: Path) -> None:
    """Without DOCA the default is the emulator; ``library="system"`` raises, here where no DOCA is installed."""
    script = """
import aiodocadma
print(aiodocadma.devices()[0].emulated)
try:
    aiodocadma.devices("system")
except aiodocadma.exceptions.LibraryError as error:
    print(error)
"""
    environment = {key: value for key, value in os.environ.items() if key != "AIODOCADMA_LIBRARY"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True, env=environment
    )
    assert done.stdout.startswith("True\nno DOCA is installed")


@pytest.mark.matrix(modes=("all",))
def test_b67_bundled_and_system_libraries_collide(tmp_path: Path, child: Callable[..., Child]) -> None:
    """A library with the same names is loaded before, with RTLD_GLOBAL: the emulator's calls go to itself."""
    names = ("doca_pe_create", "doca_pe_progress", "doca_dev_open", "doca_task_submit", "doca_dma_create")
    source = "unsigned long calls;\n" + "".join(f"int {name}(void) {{ calls++; return 21; }}\n" for name in names)
    decoy = compiled(tmp_path, "libdecoy", source)
    done = child(
        f"""
import ctypes
decoy = ctypes.CDLL({str(decoy)!r}, mode=ctypes.RTLD_GLOBAL)

async def main():
    async with aiodocadma.open_dma() as dma:
        assert await dma.copy(bytes(1000), bytearray(1000)) == 1000
        print(dma.device.library == os.path.realpath(os.environ["AIODOCADMA_LIBRARY"]))

asyncio.run(main())
print(emulator.counters().submits, ctypes.c_ulong.in_dll(decoy, "calls").value)
"""
    )
    assert (done.code, done.out, done.err) == (0, "True\n1 0\n", "")
    installed = Path(aiodocadma._library.emulator_path()).parents[1]
    foreign = [file for file in installed.rglob("*.so*") if b"NVIDIA Corporation" in file.read_bytes()]
    assert foreign == []


@pytest.mark.rule("R13")
async def test_b68_wrong_device_or_mode() -> None:
    """One device cannot do DMA, one has a limit of none, one is good: that one is taken; the others are explained."""
    emulator.add_device("mlx5_0", pci="0000:03:00.0", dma=False)
    emulator.add_device("mlx5_1", pci="0000:04:00.0")
    async with opened() as dma:
        assert dma.device.ibdev_name == "mlx5_1"
        assert await dma.copy(b"abc", bytearray(3)) == 3
    with pytest.raises(DocaNotSupportedError) as refused:
        async with aiodocadma.open_dma("0000:03:00.0"):
            pass
    assert "mode" in (refused.value.hint or "")
    assert "mlx5_1" in (refused.value.hint or "")
    with pytest.raises(DocaNotFoundError) as unknown:
        async with aiodocadma.open_dma("0000:99:00.0"):
            pass
    for name in ("mlx5_0", "0000:03:00.0", "mlx5_1", "0000:04:00.0"):
        assert name in str(unknown.value)


@pytest.mark.rule("R124")
@pytest.mark.parametrize("length", [4 << 20, 200_000])
async def test_b69_locked_memory_limit(length: int) -> None:
    """More than may be locked: a typed error that names the limit in force and its current value."""
    emulator.configure(memlock=length // 4)
    async with opened() as dma:
        with pytest.raises(DocaNotPermittedError) as caught:
            await dma.register(bytes(length))
        text = str(caught.value)
        assert f"registering {length} bytes" in text
        assert re.search(r"RLIMIT_MEMLOCK is (\d+ KiB|unlimited), \d+ KiB are locked", text)
        del caught
        # Room is made by giving memory back, not by a new DMA.
        assert await dma.copy(bytes(length // 16), bytearray(length // 16)) == length // 16


class Weakly(bytearray):
    """A buffer that tells when it is freed."""

    __slots__ = ("__weakref__",)


async def test_b71_dropped_memory_is_freed(engine: str) -> None:
    """The last user reference of a cached buffer goes: its memory is freed by the next copy."""
    async with opened(cache_maps=8, cache_bytes=1 << 20) as dma:
        alive = []
        for _ in range(20):
            src, dst = Weakly(64 << 10), Weakly(64 << 10)
            assert await dma.copy(src, dst) == 64 << 10
            alive += [weakref.ref(src), weakref.ref(dst)]
            del src, dst
            assert await dma.copy(b"abc", bytearray(3)) == 3
            assert [ref() for ref in alive if ref() is not None] == []


async def test_b71_registrations_do_not_grow_without_bound(engine: str) -> None:
    """Distinct buffers of 64 KiB without end: what stays registered is bounded, and dropped memory is freed."""
    rounds, peak = 2000, 0
    async with opened() as dma:
        for i in range(rounds):
            dst = bytearray(64 << 10)
            assert await dma.copy(i.to_bytes(2, "big") * (32 << 10), dst) == 64 << 10
            peak = max(peak, emulator.live_objects().pinned_bytes)
            dst.append(0)  # the caller's memory is free as soon as the copy has ended
        assert peak <= _open.CACHE_BYTES + (1 << 20)
        assert emulator.live_objects().mmaps <= _open.CACHE_MAPS + 4
    gc.collect()


async def test_b69_distinct_buffers_fill_the_limit(engine: str) -> None:
    """A limit of 1 MiB, ten copies of distinct 256 KiB buffers one after another: idle registrations make room."""
    emulator.configure(memlock=1 << 20)
    async with opened() as dma:
        kept = [bytes([i]) * (256 << 10) for i in range(10)]
        for data in kept:
            dst = bytearray(256 << 10)
            assert await dma.copy(data, dst) == 256 << 10
            assert dst == data


@pytest.mark.diagonal
@pytest.mark.parametrize("buffers", [500, pytest.param(10_000, marks=pytest.mark.deep)])
async def test_b71_cache_with_a_cap(engine: str, buffers: int) -> None:
    """A cap of 8 maps and 1 MiB, distinct buffers of 64 KiB: never more than that and what is in flight."""
    async with opened(cache_maps=8, cache_bytes=1 << 20) as dma:
        for _ in range(buffers):
            await dma.copy(bytes(64 << 10), bytearray(64 << 10))
            live = emulator.live_objects()
            assert live.mmaps <= 8 + 2
            assert live.pinned_bytes <= (1 << 20) + (128 << 10)
