"""Registrations of plain buffers: kept only while the pages are provably the same, bounded, and given up for room."""

from __future__ import annotations

import array
import asyncio
import ctypes
import gc
import mmap
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aiodocadma
from aiodocadma import DMA, _native, emulator
from aiodocadma.exceptions import ClosedError, DocaDriverError, DocaError, DocaNotPermittedError
from tests.dma.conftest import turns, until

KIB = 1024


def hits(dma: DMA) -> tuple[int, int]:
    done = dma.statistics()
    return done.cache_hits, done.cache_misses


async def stepped_until(*futures: asyncio.Future[Any], what: str) -> None:
    """Let the manual engine do all it has until the futures are done."""

    def done() -> bool:
        emulator.step(100)
        return all(future.done() for future in futures)

    await until(done, what, limit=2_000_000)  # turns are short, and registrations run in threads


class Pages:
    """
    Which memory is at an address, by the test's own account of what it maps and unmaps.

    Notes it for every registration that DOCA is given, and checks for every task that it still is so.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._serials: dict[int, int] = {}
        self._registered: dict[int, int] = {}
        self.reused = 0
        register = _native.NativeDevice.register

        def noted(device: Any, address: Any, length: int, access: int) -> int:
            if address in self._serials:
                self._registered[address] = self._serials[address]
            return register(device, address, length, access)

        monkeypatch.setattr(_native.NativeDevice, "register", noted)

    def map(self, size: int) -> mmap.mmap:
        """Fresh pages, quite often at an address where others were."""
        memory = mmap.mmap(-1, size)
        address = np.frombuffer(memory, np.uint8).ctypes.data
        self.reused += address in self._serials
        self._serials[address] = self._serials.get(address, 0) + 1
        return memory

    def check(self) -> None:
        """The task submitted last reads pages that were registered."""
        (copy,) = emulator.last_copies(1)
        assert self._registered[copy.src] == self._serials[copy.src], "the device would see other pages"


# ---- what is kept


@pytest.mark.parametrize("size", [1000, 300 * KIB])
async def test_a_live_memoryview_and_bytes_are_registered_once(size: int) -> None:
    """By the emulator's own count of what is registered, too."""
    src, dst = bytes(size), memoryview(bytearray(size))
    async with aiodocadma.open_dma() as dma:
        await dma.copy(src, dst)
        mmaps = emulator.live_objects().mmaps
        for i in range(10):
            dst[:4] = b"1234"
            await dma.copy(src, dst)
            assert dst[:4] == src[:4]
            assert emulator.live_objects().mmaps == mmaps == 2
            assert hits(dma) == (2 + 2 * i, 2)
        assert dma.statistics().cached_bytes == 2 * size


UNPROVEN: dict[str, Callable[[], Any]] = {
    "bytearray": lambda: bytearray(1000),
    "mmap": lambda: mmap.mmap(-1, 1000),
    "array": lambda: array.array("B", bytes(1000)),
    "ctypes": lambda: (ctypes.c_uint8 * 1000)(),
    "numpy": lambda: np.zeros(1000, np.uint8),
}


@pytest.mark.parametrize("kind", UNPROVEN)
async def test_what_can_be_resized_is_registered_for_each_copy(kind: str) -> None:
    obj = UNPROVEN[kind]()
    async with aiodocadma.open_dma() as dma, await dma.alloc(1000) as dst:
        for _ in range(5):
            await dma.copy(obj, dst)
        assert hits(dma) == (0, 5)
        assert dma.statistics().cached_bytes == 0


async def test_the_role_counts() -> None:
    """A source is registered read-only, so the same memory as a destination is another registration."""
    view = memoryview(bytearray(100))
    async with aiodocadma.open_dma() as dma:
        await dma.copy(view, bytearray(100))
        await dma.copy(b"x" * 100, view)
        assert hits(dma)[0] == 0
        await dma.copy(view, bytearray(100))
        assert hits(dma)[0] == 1
        assert view == b"x" * 100


async def test_an_idle_registration_locks_nothing_of_a_memoryview() -> None:
    """It may be released, and its object resized; a copy of the released one is refused, registered or not."""
    data = bytearray(1000)
    view = memoryview(data)
    async with aiodocadma.open_dma() as dma:
        await dma.copy(view, bytearray(1000))
        view.release()
        data.append(1)
        with pytest.raises(ValueError, match="released"):
            dma.copy(view, bytearray(1000))
        await dma.copy(b"", bytearray())
        await dma.copy(data, bytearray(2000))  # one further operation
        assert dma.statistics().cached_bytes == 0


async def test_memory_that_nobody_else_has_is_given_up_by_the_next_copy() -> None:
    class Tracked(bytearray):
        freed = 0

        def __del__(self) -> None:
            Tracked.freed += 1

    async with aiodocadma.open_dma() as dma:
        view: memoryview | None = memoryview(Tracked(50_000))
        await dma.copy(view, bytearray(50_000))
        await dma.copy(b"abc" * 20_000, bytearray(60_000))
        kept = bytes(70_000)
        await dma.copy(kept, bytearray(70_000))
        assert dma.statistics().cached_bytes in (50_000 + 70_000, 50_000 + 60_000 + 70_000)
        view = None
        gc.collect()
        assert Tracked.freed == 1  # never held
        await dma.copy(bytearray(1), bytearray(1))
        assert dma.statistics().cached_bytes in (
            70_000,
            130_000,
        )  # a constant may be somebody's
        del kept
        await dma.copy(bytearray(1), bytearray(1))
        assert dma.statistics().cached_bytes in (0, 60_000)


async def test_a_hit_locks_the_memory_as_a_miss_does() -> None:
    emulator.configure(engine="manual")
    data = bytearray(1000)
    view = memoryview(data)
    async with aiodocadma.open_dma() as dma:
        for _ in range(2):
            future = dma.copy(view, bytearray(1000))
            with pytest.raises(BufferError):
                view.release()
            await stepped_until(future, what="the copy")
            await future
            del future
        assert hits(dma)[0] == 1
        view.release()
        data.append(1)


# ---- re-used addresses


async def test_2000_rounds_at_reused_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Allocate, copy, free: the address comes back with other pages.

    Exact data each time, no task on pages other than those registered, and a hit whenever the buffer did stay.
    """
    rng = random.Random(6)
    pages = Pages(monkeypatch)
    async with aiodocadma.open_dma() as dma, await dma.alloc(64 * KIB) as result:
        seen = memoryview(result)
        # With so many kept, what is over is not looked for at every copy: a stale entry would be found.
        kept = [memoryview(bytearray(8)) for _ in range(300)]
        for view in kept:
            await dma.copy(view, result)
        for i in range(2000):
            size = rng.choice([1, 7, 13]) * 4 * KIB
            memory = pages.map(size)
            view = memoryview(memory)
            times = rng.choice([1, 1, 3])
            before = dma.statistics().cache_hits
            for j in range(times):
                view[:] = bytes([(i + j) % 256]) * size
                await dma.copy(view, result)
                pages.check()
                assert bytes(seen[:size]) == bytes(view)
            assert dma.statistics().cache_hits - before == times - 1
            if rng.random() < 0.5:
                view.release()  # the object may live on
                memory.close()
            del view, memory
        seen.release()
        assert pages.reused > 1000, "the addresses were not used again: the test shows nothing"


async def test_an_object_of_the_same_id_is_another_one() -> None:
    """A memoryview freed and made again often has the id of the first, and its memory the same address."""
    ids: dict[int, int] = {}
    async with aiodocadma.open_dma() as dma, await dma.alloc(4 * KIB) as result:
        kept = [memoryview(bytearray(8)) for _ in range(300)]
        for view in kept:
            await dma.copy(view, result)
        for i in range(500):
            view = memoryview(bytearray([i % 256]) * 4 * KIB)
            ids[id(view)] = ids.get(id(view), 0) + 1
            await dma.copy(view, result)
            assert bytes(result) == view
            del view
        assert dma.statistics().cache_hits == 0
    assert len(ids) < 500


# ---- the bound


@pytest.mark.parametrize("live", [False, True])
async def test_the_bound_holds_over_10000_buffers(live: bool) -> None:
    """Never more is registered than cache_maps and cache_bytes, and what one copy needs; judged by the emulator."""
    size, maps, nbytes = 8 * KIB, 32, 192 * KIB
    kept: list[memoryview] = []
    async with aiodocadma.open_dma(cache_maps=maps, cache_bytes=nbytes) as dma, await dma.alloc(size) as dst:
        for i in range(10_000):
            view = memoryview(bytearray(size))
            if live:
                kept.append(view)
                if i % 7 == 0:
                    await dma.copy(kept[max(0, i - 2)], dst)
            await dma.copy(view, dst)
            now = emulator.live_objects()
            assert now.mmaps <= maps + 2
            assert now.pinned_bytes <= nbytes + 2 * size
            assert dma.statistics().cached_bytes <= nbytes // 2
        if live:
            assert dma.statistics().cache_hits > 1000


async def test_what_is_in_flight_is_never_evicted() -> None:
    """More copies at once than the cache may keep: all are exact, and the cache keeps its bound."""
    emulator.configure(engine="manual")
    sources = [memoryview(bytearray([i]) * 1000) for i in range(20)]
    destinations = [bytearray(1000) for _ in range(20)]
    async with aiodocadma.open_dma(cache_maps=8) as dma:
        futures = [dma.copy(src, dst) for src, dst in zip(sources, destinations, strict=True)]
        assert dma.statistics().cached_bytes == 4000
        assert emulator.live_objects().mmaps == 40
        await stepped_until(*futures, what="the copies")
        assert await asyncio.gather(*futures) == [1000] * 20
        assert [bytes(dst) for dst in destinations] == [bytes(src) for src in sources]
        for i in range(4):
            again = dma.copy(sources[i], destinations[i])
            await stepped_until(again, what="a copy from the cache")
        assert dma.statistics().cache_hits == 4


async def test_nothing_is_kept_with_a_bound_of_0() -> None:
    async with aiodocadma.open_dma(cache_maps=0) as dma:
        data = bytes(1000)
        for _ in range(5):
            await dma.copy(data, bytearray(1000))
        assert hits(dma) == (0, 10)
        assert emulator.live_objects().mmaps <= 2


@pytest.mark.parametrize("name", ["cache_maps", "cache_bytes"])
def test_a_negative_bound(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        aiodocadma.open_dma(**{name: -1})  # type: ignore[arg-type]


async def test_closing_keeps_nothing() -> None:
    data = bytearray(1000)
    view = memoryview(data)
    held = bytes(1000)
    async with aiodocadma.open_dma() as dma:
        await dma.copy(view, bytearray(1000))
        await dma.copy(held, bytearray(1000))
    assert emulator.live_objects().mmaps == 0
    assert dma.statistics().cached_bytes == 0
    view.release()
    data.append(1)


# ---- memory pressure


@pytest.mark.parametrize("status", ["NOT_PERMITTED", "NO_MEMORY", "DRIVER"])
@pytest.mark.parametrize("size", [100 * KIB, 300 * KIB], ids=["inline", "worker"])
async def test_idle_registrations_make_room(status: str, size: int) -> None:
    """What fills the limit is what the cache keeps and closed maps: both are given up, and it is tried again."""
    emulator.configure(memlock=3 * size, memlock_status=status)
    kept = [memoryview(bytearray([i]) * size) for i in range(10)]
    async with aiodocadma.open_dma() as dma:
        for view in kept:
            dst = bytearray(size)
            assert await dma.copy(view, dst) == size
            assert dst == view
        async with await dma.register(bytearray(2 * size)), await dma.alloc(size):
            pass
        assert dma.statistics().recycles > 0
        assert dma.statistics().copies_failed == 0


@pytest.mark.parametrize("engine", ["default", "worker", "manual"])
async def test_many_at_once_under_a_limit_for_two(engine: str) -> None:
    """Each waits until what is in flight has ended; none fails, and none waits for ever with half of what it needs."""
    size = 64 * KIB
    emulator.configure(engine=engine, memlock=4 * size)
    sources = [memoryview(bytearray([i]) * size) for i in range(40)]
    destinations = [bytearray(size) for _ in range(40)]
    async with aiodocadma.open_dma() as dma:
        futures = [dma.copy(src, dst) for src, dst in zip(sources, destinations, strict=True)]
        await stepped_until(*futures, what="all copies")
        assert [await f for f in futures] == [size] * 40
        assert [bytes(dst) for dst in destinations] == [bytes(src) for src in sources]


async def test_what_cannot_be_locked_fails_and_nothing_else_does() -> None:
    """It names the limit, the request and the fix; copies in flight meanwhile are not disturbed, later ones work."""
    emulator.configure(engine="manual", memlock=256 * KIB)
    async with aiodocadma.open_dma() as dma:
        data, dst = bytes(100 * KIB), bytearray(100 * KIB)
        flying = dma.copy(data, dst)
        await turns()
        large = asyncio.ensure_future(dma.register(bytearray(300 * KIB)))
        copy = dma.copy(bytes(200 * KIB), bytearray(200 * KIB))
        await stepped_until(flying, what="the first copy")
        assert await flying == 100 * KIB
        for failing in (large, copy):
            with pytest.raises(DocaNotPermittedError) as caught:
                await failing
            assert re.search(r"registering \d+ bytes", str(caught.value))
            assert re.search(r"RLIMIT_MEMLOCK is (\d+ KiB|unlimited), \d+ KiB are locked", str(caught.value))
            assert "ulimit -l" in str(caught.value)
            del caught
        last = dma.copy(data, dst)
        await stepped_until(last, what="the last copy")
        assert await last == 100 * KIB


async def test_a_failure_that_is_no_lack_of_memory_is_not_retried() -> None:
    async with aiodocadma.open_dma() as dma:
        await dma.copy(memoryview(bytearray(100)), bytearray(100))
        emulator.inject(emulator.Fault("mmap_create", status="DRIVER"))
        with pytest.raises(DocaDriverError):
            await dma.copy(bytearray(100), bytearray(100))
        emulator.inject(emulator.Fault("mmap_start", status="INVALID_VALUE"))
        with pytest.raises(DocaError):
            await dma.copy(bytearray(100), bytearray(100))
        assert dma.statistics().recycles == 0


async def test_a_fault_that_passes_is_not_seen() -> None:
    """mmap_start fails once although nothing is locked by us but an idle registration."""
    async with aiodocadma.open_dma() as dma:
        view = memoryview(bytearray(100))
        await dma.copy(view, bytearray(100))
        emulator.inject(emulator.Fault("mmap_start", status="NO_MEMORY"))
        assert await dma.copy(bytearray(b"x" * 100), view) == 100
        assert view == b"x" * 100


async def test_closing_ends_those_that_wait_for_memory() -> None:
    emulator.configure(engine="manual", memlock=256 * KIB)
    async with aiodocadma.open_dma() as dma:
        flying = dma.copy(bytes(100 * KIB), bytearray(100 * KIB))
        await turns()
        waiting = [asyncio.ensure_future(dma.register(bytearray(100 * KIB))) for _ in range(3)]
        copy = dma.copy(bytes(100 * KIB), bytearray(100 * KIB))
        await until(lambda: dma._registrations.short_of_memory, "the line")
        closing = asyncio.ensure_future(dma.aclose())
        await stepped_until(flying, what="the first copy")
        await flying
        for failing in (*waiting, copy):
            with pytest.raises(ClosedError):
                await failing
        await closing


@pytest.mark.parametrize("place", [0, 1])
async def test_one_that_waits_for_memory_is_withdrawn_at_once(place: int) -> None:
    """The engine may never let go of what would leave memory; the others stay in line."""
    emulator.configure(engine="manual", memlock=256 * KIB)
    async with aiodocadma.open_dma() as dma:
        flying = dma.copy(bytes(100 * KIB), bytearray(100 * KIB))
        await turns()
        plain = [bytearray(100 * KIB) for _ in range(2)]
        registering = [asyncio.ensure_future(dma.register(buffer)) for buffer in plain]
        await until(lambda: len(dma._registrations._line) == 2, "the line")
        registering[place].cancel()
        await asyncio.wait([registering[place]], timeout=5)
        withdrawn = registering[place].cancelled()
        if withdrawn:
            plain[place].append(1)
        await stepped_until(flying, what="the copy")
        await flying
        assert (await registering[1 - place]).nbytes == 100 * KIB
        assert withdrawn


@pytest.mark.parametrize("place", [0, 1])
async def test_a_copy_that_waits_for_memory_is_withdrawn_at_once(place: int) -> None:
    """DOCA has nothing of it, so its deadline is no matter of when the engine lets go of other memory."""
    emulator.configure(engine="manual", memlock=256 * KIB)
    async with aiodocadma.open_dma() as dma:
        flying = dma.copy(bytes(100 * KIB), bytearray(100 * KIB))
        await turns()
        plain = [bytearray(100 * KIB) for _ in range(2)]
        copies = [dma.copy(bytes(100 * KIB), buffer) for buffer in plain]
        await until(lambda: len(dma._registrations._line) == 2, "the line")
        copies[place].cancel("enough")
        await asyncio.wait([copies[place]], timeout=5)
        withdrawn = copies[place].cancelled()
        if withdrawn:
            plain[place].append(1)
            with pytest.raises(asyncio.CancelledError, match="enough"):
                await copies[place]
        await stepped_until(asyncio.gather(flying, copies[1 - place]), what="the copies")
        assert plain[1 - place] == bytes(100 * KIB)
        assert withdrawn


async def test_cancelling_one_that_waits_for_memory() -> None:
    emulator.configure(engine="manual", memlock=256 * KIB)
    async with aiodocadma.open_dma() as dma:
        flying = dma.copy(bytes(100 * KIB), bytearray(100 * KIB))
        await turns()
        plain = bytearray(100 * KIB)
        register = asyncio.ensure_future(dma.register(plain))
        copy = dma.copy(bytes(100 * KIB), bytearray(100 * KIB))
        await until(lambda: dma._registrations.short_of_memory, "the line")
        register.cancel()
        copy.cancel()
        await turns(10)
        await stepped_until(flying, what="the first copy")
        await flying
        for cancelled in (register, copy):
            with pytest.raises(asyncio.CancelledError):
                await cancelled
        plain.append(1)
        assert dma.state is aiodocadma.DMAState.RUNNING
