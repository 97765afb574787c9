"""The page store: what was put comes back, whatever is dropped, cancelled or closed meanwhile."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator

import pytest
from examples.kv_store.page_store import PageStore

import aiodocadma
from aiodocadma import emulator
from aiodocadma.exceptions import BoundsError, ClosedError, DocaError
from aiodocadma.testing import Fault, checked_dma

PAGE = 4096
SLOTS = 9
# The abstract methods of lmcache.v1.storage_backend.connector.base_connector.RemoteConnector, LMCache 0.5.6.
ABSTRACT = {"exists": True, "exists_sync": False, "get": True, "put": True, "list": True, "close": True}


@pytest.fixture
async def store() -> AsyncIterator[PageStore]:
    """A store for eight pages, on a DMA whose use is judged; closed afterwards, if it is not yet."""
    async with checked_dma() as dma:
        store = PageStore(dma, await dma.alloc(SLOTS * PAGE), PAGE)
        yield store
        emulator.hold(False)
        emulator.release()  # a test that failed before it could
        await store.close()


async def turns(n: int = 5) -> None:
    """Let the loop do n turns."""
    for _ in range(n):
        await asyncio.sleep(0)


def test_has_the_methods_of_the_connector() -> None:
    assert {name: asyncio.iscoroutinefunction(getattr(PageStore, name)) for name in ABSTRACT} == ABSTRACT


@pytest.mark.parametrize("length", [0, 1, PAGE - 1, PAGE])
async def test_what_was_put_comes_back(store: PageStore, length: int) -> None:
    page = random.Random(length).randbytes(length)
    await store.put("a", page)
    assert await store.get("a") == page
    assert await store.exists("a")
    assert store.exists_sync("a")
    assert await store.list() == ("a",)


async def test_a_missing_page_is_none(store: PageStore) -> None:
    assert await store.get("a") is None
    assert not await store.exists("a")
    assert not store.exists_sync("a")
    assert await store.list() == ()


async def test_exists_sync_may_be_asked_from_a_thread(store: PageStore) -> None:
    await store.put("a", b"a")
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.extend(map(store.exists_sync, "ab")))
    thread.start()
    thread.join()
    assert answers == [True, False]


async def test_a_put_takes_the_place_of_the_one_before(store: PageStore) -> None:
    for number in range(3 * SLOTS):  # a slot that was not given back would be missed
        await store.put("a", b"%d" % number)
    assert await store.get("a") == b"%d" % (3 * SLOTS - 1)
    assert await store.list() == ("a",)


async def test_the_least_recently_used_page_is_dropped(store: PageStore) -> None:
    for number in range(SLOTS - 1):
        await store.put(f"{number}", b"%d" % number)
    assert await store.get("0") == b"0"
    await store.put("new", b"new")
    assert await store.get("1") is None
    assert await store.list() == ("2", "3", "4", "5", "6", "7", "0", "new")
    assert [await store.get(key) for key in ("0", "7", "new")] == [b"0", b"7", b"new"]


async def test_a_page_that_is_too_long_is_refused(store: PageStore) -> None:
    await store.put("a", b"a")
    for _ in range(2 * SLOTS):
        with pytest.raises(BoundsError):
            await store.put("a", bytes(PAGE + 1))
    assert await store.get("a") == b"a"


async def test_more_puts_at_once_than_slots(store: PageStore) -> None:
    """None waits for ever: when one has ended, a slot is on its way to the next."""
    pages = {f"{number}": b"%d" % number * 100 for number in range(5 * SLOTS)}
    async with asyncio.timeout(20):
        await asyncio.gather(*(store.put(key, page) for key, page in pages.items()))
    kept = await store.list()
    assert len(kept) == SLOTS - 1
    assert [await store.get(key) for key in kept] == [pages[key] for key in kept]


@pytest.mark.parametrize("seed", range(3))
async def test_gets_and_puts_of_the_same_pages_at_once(store: PageStore, seed: int) -> None:
    """A page is whole: every byte of it is of one and the same put, even if its slot is dropped while it is read."""
    emulator.configure(chaos=seed + 1)
    draw = random.Random(seed)

    async def client() -> None:
        for _ in range(40):
            key = str(draw.randrange(2 * SLOTS))
            if draw.random() < 0.5:
                await store.put(key, bytes([int(key), draw.randrange(256)]) * draw.randrange(1, PAGE // 2))
            elif page := await store.get(key):
                assert page == bytes(page[:2]) * (len(page) // 2)
                assert page[0] == int(key)

    await asyncio.gather(*(client() for _ in range(12)))


async def test_a_slot_is_not_used_again_while_it_is_read(store: PageStore) -> None:
    """The page is dropped in the middle of a get, and as many puts come as there are slots."""
    await store.put("a", b"a" * PAGE)
    emulator.hold()
    reading = asyncio.create_task(store.get("a"))
    await turns()
    assert emulator.live_objects().held == 1
    emulator.hold(False)
    for number in range(2 * SLOTS):
        await store.put(f"{number}", bytes(PAGE))
    assert not await store.exists("a")
    assert not reading.done()
    emulator.release()
    assert await reading == b"a" * PAGE


async def test_a_put_that_is_cancelled_leaves_the_page_before_it_and_gives_its_slot_back_late(store: PageStore) -> None:
    await store.put("a", b"before")
    emulator.hold()
    putting = asyncio.create_task(store.put("a", b"after!"))
    await turns()
    putting.cancel()
    await turns()
    assert not putting.done()  # the engine may still write the slot
    emulator.hold(False)
    for number in range(2 * SLOTS):
        await store.put(f"{number}", b"%d" % number)
        await store.get("a")
    assert not putting.done()
    emulator.release()
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert await store.get("a") == b"before"


async def test_a_put_that_fails_leaves_the_page_before_it(store: PageStore) -> None:
    await store.put("a", b"before")
    for _ in range(2 * SLOTS):
        emulator.inject(Fault("completion"))
        with pytest.raises(DocaError):
            await store.put("a", b"after!")
    assert await store.get("a") == b"before"


async def test_close_in_the_middle() -> None:
    """What the engine has ends well, who waits for a slot is told, and nothing is kept."""
    async with aiodocadma.open_dma() as dma:
        store = PageStore(dma, await dma.alloc(3 * PAGE), PAGE)
        await store.put("a", b"a" * PAGE)
        emulator.hold()
        reading = asyncio.create_task(store.get("a"))
        putting = [asyncio.create_task(store.put(key, b"b")) for key in "bcd"]
        await turns()
        closing = asyncio.create_task(store.close())
        await turns()
        assert emulator.live_objects().held == 3
        assert not any(task.done() for task in (reading, *putting, closing))
        emulator.hold(False)
        emulator.release()
        assert await reading == b"a" * PAGE
        results = await asyncio.gather(*putting, return_exceptions=True)
        await closing
        assert await store.list() == ()
        assert await store.get("a") is None
        with pytest.raises(ClosedError):
            await store.put("e", b"e")
        assert results[:2] == [None, None]
        assert results[2] is None or isinstance(results[2], ClosedError)
        await store.close()
        assert dma.statistics().pending == 0
