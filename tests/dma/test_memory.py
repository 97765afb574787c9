"""Maps: allocation, access, blocks, closing, and what they tell of themselves."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import gc
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aiodocadma
from aiodocadma import DMA, MemoryMap, _memlock, emulator
from aiodocadma._library import Library
from aiodocadma.exceptions import (
    AccessError,
    BufferInUseError,
    ClosedError,
    DocaNoMemoryError,
    DrainTimeoutError,
    MemlockError,
    WrongLoopError,
)
from tests.dma.conftest import turns, until

HUGE_PAGES = Path("/sys/kernel/mm/hugepages")


@pytest.fixture
async def dma() -> Any:
    async with aiodocadma.open_dma() as opened:
        yield opened


# ---- allocation


@pytest.mark.parametrize("align", [None, 1, 64, 4096, 2**16, 2**21, 2**30])
@pytest.mark.parametrize("nbytes", [1, 4096, 4097, 300_000])
async def test_alignment(dma: DMA, nbytes: int, align: int | None) -> None:
    """The address is a multiple; all of the memory can be used, and it goes back as a whole."""
    before = mapped()
    async with await dma.alloc(nbytes, align=align) as memory:
        assert memory.address % (align or 4096) == 0
        assert memory.nbytes == nbytes
        memoryview(memory)[:] = b"x" * nbytes
        back = bytearray(nbytes)
        await dma.copy(memory, back)
        assert back == b"x" * nbytes
    await dma.aclose()
    del memory
    gc.collect()
    assert mapped() - before < 2**29  # what was reserved for an alignment of 1 GiB was given back


def mapped() -> int:
    """Bytes of this process's address space."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def page_bytes(address: int) -> int:
    """Of the pages at an address that begins a mapping."""
    entry = Path("/proc/self/smaps").read_text().split(f"\n{address:x}-")[1]
    return int(entry.split("KernelPageSize:")[1].split()[0]) * 1024


@pytest.mark.parametrize("align", [0, -1, 3, 4097])
async def test_an_impossible_alignment(dma: DMA, align: int) -> None:
    with pytest.raises(ValueError, match="align"):
        await dma.alloc(10, align=align)


async def test_huge_pages(dma: DMA) -> None:
    """Pages of that size, aligned to it; or an error that says how many are free and where they come from."""
    size = _memlock.huge_page_size(True)
    free = HUGE_PAGES / f"hugepages-{size // 1024}kB" / "nr_hugepages"
    before = int(free.read_text())
    with contextlib.suppress(OSError):  # not root
        free.write_text(str(before + 2))
    try:
        if int(free.read_text()) >= before + 2:
            async with await dma.alloc(size + 1, hugepages=size, align=2 * size) as memory:
                assert memory.address % (2 * size) == 0
                view = memoryview(memory)
                view[size] = 7
                assert page_bytes(memory.address) == size
                view.release()
        with pytest.raises(DocaNoMemoryError, match=r"huge pages of \d+ bytes, of which \d+ are free.*nr_hugepages"):
            await dma.alloc(2**40, hugepages=True)
    finally:
        with contextlib.suppress(OSError):
            free.write_text(str(before))
    assert emulator.live_objects().pinned_bytes == 0


async def test_huge_pages_that_there_are_not(dma: DMA) -> None:
    with pytest.raises(ValueError, match=r"hugepages: there are no pages of 12345 bytes"):
        await dma.alloc(10, hugepages=12345)


async def test_more_than_there_is(dma: DMA) -> None:
    with pytest.raises(DocaNoMemoryError) as caught:
        await dma.alloc(2**62)
    assert caught.value.call == "mmap"


# ---- access


async def test_least_permission_by_role(dma: DMA, monkeypatch: pytest.MonkeyPatch) -> None:
    """What DOCA is told: plain sources read-only though the object is writable, destinations read-write."""
    accesses = []
    register = aiodocadma._native.NativeDevice.register
    monkeypatch.setattr(
        aiodocadma._native.NativeDevice,
        "register",
        lambda device, address, length, access: (accesses.append(access), register(device, address, length, access))[1],
    )
    await dma.copy(bytearray(10), bytearray(10))
    assert accesses == [0, 1]
    for obj, access, want in [
        (b"x", None, 0),
        (bytearray(1), None, 1),
        (bytearray(1), "read", 0),
        (bytearray(1), "write", 1),
    ]:
        async with await dma.register(obj, access=access) as memory:
            assert accesses.pop() == want
            assert memory.readonly == (want == 0)


async def test_access_that_cannot_be(dma: DMA) -> None:
    with pytest.raises(AccessError, match="obj is read-only"):
        await dma.register(b"abc", access="write")
    with pytest.raises(ValueError, match="access must be"):
        await dma.register(bytearray(3), access="rw")  # type: ignore[call-overload]
    async with await dma.register(bytearray(3), access="read") as memory:
        with pytest.raises(AccessError, match="dst"):
            dma.copy(b"abc", memory)
        async with await dma.alloc(3) as other:
            with pytest.raises(AccessError, match="dst"):
                dma.copy(other, memory)
        assert memoryview(memory).readonly


async def test_repr_says_who_may_do_what(dma: DMA) -> None:
    writable, read_only = await dma.alloc(7000), await dma.register(b"abc")
    assert repr(writable) == "<MemoryMap 7000 bytes, engine read-write, peer no access>"
    assert repr(read_only) == "<MemoryMap 3 bytes, engine read-only, peer no access>"
    writable.close()
    assert repr(writable) == "<MemoryMap 7000 bytes, closed>"


async def test_views_of_a_map(dma: DMA) -> None:
    """memoryview, a slice's, and NumPy's see the memory itself."""
    async with await dma.alloc(1000) as memory:
        array = np.asarray(memory)
        array[100:104] = [1, 2, 3, 4]
        assert bytes(memory[100:104]) == b"\1\2\3\4"
        assert array.ctypes.data == memory.address
        assert memory[100:].address == memory.address + 100
        with pytest.raises(BufferInUseError, match="1 exported"):
            memory.close()
        del array


async def test_native_pointers(dma: DMA) -> None:
    """For C code: the addresses are those of DOCA's own objects, and cannot be set."""
    library = ctypes.CDLL(dma.device.library)
    async with await dma.alloc(5000) as memory:
        address, length = ctypes.c_void_p(), ctypes.c_size_t()
        call = library.doca_mmap_get_memrange
        assert call(ctypes.c_void_p(memory.doca_mmap), ctypes.byref(address), ctypes.byref(length)) == 0
        assert (address.value, length.value) == (memory.address, 5000)
        library.doca_dev_as_devinfo.restype = ctypes.c_void_p
        info = library.doca_dev_as_devinfo(ctypes.c_void_p(memory.doca_dev))
        name = ctypes.create_string_buffer(64)
        assert library.doca_devinfo_get_ibdev_name(ctypes.c_void_p(info), name, 64) == 0
        assert name.value.decode() == dma.device.ibdev_name
        for field in ("doca_mmap", "doca_dev", "address"):
            with pytest.raises(AttributeError):
                setattr(memory, field, 1)
    with pytest.raises(ClosedError):
        _ = memory.doca_mmap
    with pytest.raises(ClosedError):
        _ = memory.doca_dev


# ---- closing


async def test_closing_in_use_names_the_copies() -> None:
    emulator.configure(engine="manual")
    async with aiodocadma.open_dma() as dma:
        src, dst, other = await dma.alloc(100), await dma.alloc(100), await dma.alloc(100)
        copies = [dma.copy(src, dst, tag=("request", i)) for i in range(3)]
        copies.append(dma.copy(src[:50], other))
        copies.append(dma.copy([src[:10], src[20:30]], other[50:], tag="list"))
        with pytest.raises(BufferInUseError) as caught:
            src.close()
        assert "5 copies (tagged ('request', 0), ('request', 1), ('request', 2), 'list')" in str(caught.value)
        with pytest.raises(BufferInUseError, match=r"3 copies \(tagged"):
            dst.close()
        with pytest.raises(BufferInUseError, match=r"2 copies \(tagged 'list'\)"):
            other.close()
        closing = asyncio.ensure_future(src.aclose())
        await turns()
        assert not closing.done()
        await until(lambda: (emulator.step(100), all(copy.done() for copy in copies))[1], "the copies")
        await closing
        assert src.closed
        dst.close()
        other.close()
        assert dst.closed
        assert other.closed


async def test_a_copy_that_was_given_up_holds_nobody_up_who_leaves() -> None:
    """Nobody knows when the engine lets go of it: the memory stays its, and the DMA closes the map."""
    emulator.configure(engine="manual")
    async with aiodocadma.open_dma(drain_timeout=0.02) as dma:
        with pytest.raises(DrainTimeoutError):
            async with asyncio.timeout(20), await dma.alloc(8) as dst:
                future = dma.copy(b"payload.", dst, tag="block 7")
                await turns()
                future.cancel()
                await future
        with pytest.raises(BufferInUseError, match=r"1 copy \(tagged 'block 7'\)") as caught:
            async with asyncio.timeout(20), dst:
                assert not dst.closed
        assert "given up" in str(caught.value.hint)
        assert emulator.live_objects().bufs == 2
        emulator.step()
        await dma.drain()
        async with dst:
            pass
        assert dst.closed


async def test_an_ended_copy_holds_no_map() -> None:
    """Maps that nobody else has are retired when their copy has ended, and not before."""
    emulator.configure(engine="manual")
    async with aiodocadma.open_dma() as dma:
        copy = dma.copy(await dma.alloc(100), await dma.alloc(100))
        await turns()
        gc.collect()
        assert dma.statistics().buried_bytes == 0
        assert emulator.step() == 1
        assert await copy == 100
        gc.collect()
        assert dma.statistics().buried_bytes == 200


async def test_closing_waits_for_a_registration_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    async with aiodocadma.open_dma() as dma:
        begun, gate, register = threading.Event(), threading.Event(), dma._engine.register

        def slow(*args: Any, **options: Any) -> int | None:
            begun.set()
            assert gate.wait(10)
            return register(*args, **options)

        monkeypatch.setattr(dma._engine, "register", slow)
        registering = asyncio.ensure_future(dma.register(bytearray(1 << 20)))
        await until(begun.is_set, "the worker")
        closing = asyncio.ensure_future(dma.aclose())
        await turns(20)
        held = not dma._life.hands_off
        gate.set()
        await closing
        assert held
        assert (await registering).closed


async def test_many_tags_are_cut_short() -> None:
    emulator.configure(engine="manual")
    async with aiodocadma.open_dma() as dma, await dma.alloc(100) as src, await dma.alloc(100) as dst:
        copies = [dma.copy(src, dst, tag=i) for i in range(100)]
        with pytest.raises(BufferInUseError, match=r"100 copies \(tagged 0, 1, 2, 3, 4, 5, 6, 7, \.\.\.\)"):
            src.close()
        await until(lambda: (emulator.step(100), all(copy.done() for copy in copies))[1], "the copies")


# ---- blocks


async def test_blocks_are_lent_and_come_back(dma: DMA) -> None:
    async with await dma.alloc(10_000) as memory:
        blocks = memory.blocks(4096)
        assert (len(blocks), blocks.size, blocks.free) == (2, 4096, 2)
        async with blocks.acquire() as one:
            two = await blocks.acquire()
            assert {one.offset, two.offset} == {0, 4096}
            assert len(one) == len(two) == 4096
            await dma.copy(b"abc", one)
            assert repr(blocks) == "<Blocks 2 of 4096 bytes, 0 free, 0 waiting>"
            blocks.release(two)
        assert blocks.free == 2
        with pytest.raises(ValueError, match="no block that was lent"):
            blocks.release(two)
        with pytest.raises(ValueError, match="no block that was lent"):
            blocks.release(memory[:4096])


@pytest.mark.parametrize("size", [0, -1, 101])
async def test_blocks_that_do_not_fit(dma: DMA, size: int) -> None:
    async with await dma.alloc(100) as memory:
        with pytest.raises(ValueError, match="size must be 1 to 100"):
            memory.blocks(size)


async def test_blocks_first_come_first_served(dma: DMA) -> None:
    """Nobody who comes later passes, not even in the turn in which a block comes back."""
    order = []
    async with await dma.alloc(100) as memory:
        blocks = memory.blocks(100)

        async def use(i: int) -> None:
            async with blocks.acquire():
                order.append(i)
                await turns(i % 3)

        block = await blocks.acquire()
        tasks = [asyncio.ensure_future(use(i)) for i in range(20)]
        await turns()
        blocks.release(block)
        tasks += [asyncio.ensure_future(use(i)) for i in range(20, 40)]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await blocks.acquire()
        await asyncio.gather(*tasks)
        assert order == list(range(40))
        assert blocks.free == 1


async def test_cancelled_waiters_lose_no_block(dma: DMA) -> None:
    """Before a block comes, in the turn in which it comes, and after."""
    async with await dma.alloc(1000) as memory:
        blocks = memory.blocks(500)
        for _ in range(50):
            held = [await blocks.acquire(), await blocks.acquire()]
            tasks = [asyncio.ensure_future(blocks._take()) for _ in range(6)]
            await turns()
            tasks[0].cancel()
            blocks.release(held.pop())
            tasks[1].cancel()  # it has the block already
            tasks[3].cancel()
            blocks.release(held.pop())
            done = await asyncio.wait_for(asyncio.gather(tasks[2], tasks[4]), 5)
            tasks[5].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for block in done:
                blocks.release(block)
            assert (blocks.free, len(blocks)) == (2, 2)
            assert {block.offset for block in done} == {0, 500}


async def test_closing_the_map_ends_those_that_wait(dma: DMA) -> None:
    memory = await dma.alloc(100)
    blocks = memory.blocks(100)
    block = await blocks.acquire()
    waiting = asyncio.ensure_future(blocks._take())
    await turns()
    memory.close()
    with pytest.raises(ClosedError, match="closed"):
        await waiting
    with pytest.raises(ClosedError):
        await blocks.acquire()
    with pytest.raises(ClosedError):
        memory.blocks(10)
    blocks.release(block)


async def test_closing_the_dma_ends_those_that_wait() -> None:
    """A block that is never given back keeps nobody waiting for a map that is closed."""
    async with aiodocadma.open_dma() as dma:
        blocks = (await dma.alloc(10)).blocks(10)
        block = await blocks.acquire()
        waiter = asyncio.ensure_future(blocks._take())
        await turns()
    await asyncio.wait([waiter], timeout=5)
    ended = waiter.done()
    blocks.release(block)
    with pytest.raises(ClosedError):
        await waiter
    assert ended


async def test_blocks_belong_to_the_loop(dma: DMA) -> None:
    async with await dma.alloc(100) as memory:
        blocks = memory.blocks(10)

        async def elsewhere() -> None:
            with pytest.raises(WrongLoopError):
                await blocks.acquire()

        await asyncio.to_thread(asyncio.run, elsewhere())


# ---- the limit of locked memory


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a card, for a process that may lock 1 MiB; the emulator itself locks nothing."""
    monkeypatch.setattr(_memlock, "lockable", lambda: 2**20)
    library = Library.__init__

    def not_emulated(self: Library, *args: Any) -> None:
        library(self, *args)
        self.emulated = False

    monkeypatch.setattr(Library, "__init__", not_emulated)
    aiodocadma._library._load.cache_clear()


@pytest.mark.usefixtures("limited")
async def test_many_registrations_are_checked_together_first() -> None:
    """What cannot succeed as a whole fails at once with nothing registered; it names limit, request and fix."""
    try:
        async with aiodocadma.open_dma() as dma:
            buffers = [bytearray(300_000) for _ in range(4)]
            done = await asyncio.gather(*[dma.register(buffer) for buffer in buffers], return_exceptions=True)
            for error in done:
                assert isinstance(error, MemlockError)
                assert "4 registrations of 1200000 bytes together cannot be locked, only 1048576 more" in str(error)
                assert "RLIMIT_MEMLOCK is" in str(error)
                assert "ulimit -l" in str(error)
            assert emulator.live_objects().mmaps == 0
            del done, error
            for buffer in buffers:
                buffer.append(1)
            maps = await asyncio.gather(*[dma.register(buffer) for buffer in buffers[:3]])
            assert emulator.live_objects().pinned_bytes == 3 * 300_001
            for memory in maps:
                memory.close()
            with pytest.raises(MemlockError, match=r"^2097152 bytes cannot be locked"):
                await dma.alloc(2**21)
            assert len(await dma.alloc(2**20)) == 2**20
    finally:
        aiodocadma._library._load.cache_clear()


def test_the_system_tells_what_may_be_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    """No limit with CAP_IPC_LOCK or without RLIMIT_MEMLOCK; else what pinned pages have left of it."""
    limits = [2**20]
    monkeypatch.setattr(_memlock.resource, "getrlimit", lambda _: (limits[0], limits[0]))
    status = {"CapEff": 0, "VmPin": 256}
    monkeypatch.setattr(_memlock, "_status", lambda field, base=10: status[field])
    assert _memlock.lockable() == 2**20 - 256 * 1024
    status["VmPin"] = 5000
    assert _memlock.lockable() == 0
    status["CapEff"] = 1 << 14
    assert _memlock.lockable() is None
    status["CapEff"], limits[0] = 0, -1
    assert _memlock.lockable() is None


async def test_limits_that_cannot_be_read_hold_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when there is no file descriptor left to read them by: the kernel has the last word anyway."""

    def no_files(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(_memlock, "open", no_files, raising=False)
    monkeypatch.setattr(_memlock.resource, "getrlimit", lambda _: (2**20, 2**20))
    assert _memlock.lockable() == 2**20
    batch = _memlock.MemlockBatch(asyncio.get_running_loop(), lambda: 2**20, lambda: 0)
    async with asyncio.timeout(5):
        with pytest.raises(MemlockError, match=r"^1048577 bytes cannot be locked"):
            await batch.check(2**20 + 1)


async def test_a_map_cannot_be_made() -> None:
    with pytest.raises(TypeError):
        aiodocadma.Buffer()
    assert MemoryMap[aiodocadma.ReadOnly].__origin__ is MemoryMap


async def test_a_turn_that_another_thread_asks_for_is_not_lost(dma: DMA) -> None:
    """A map is closed in another thread, and the turn that this takes runs before that thread goes on."""
    loop = asyncio.get_running_loop()
    post = loop.call_soon_threadsafe

    def post_and_wait(*args: Any, **kwargs: Any) -> asyncio.Handle:
        handle = post(*args, **kwargs)
        ran = threading.Event()
        post(ran.set)
        ran.wait(20)
        return handle

    memory = await dma.alloc(64)
    loop.call_soon_threadsafe = post_and_wait  # type: ignore[method-assign]
    await asyncio.to_thread(memory.close)
    loop.call_soon_threadsafe = post  # type: ignore[method-assign]
    async with asyncio.timeout(10):
        assert await dma.copy(bytes(100_000), bytearray(100_000)) == 100_000
