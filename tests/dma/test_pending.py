"""Which copies are under way, how long, and who waits for them; and the start callbacks."""

from __future__ import annotations

import argparse
import asyncio
import contextvars
import os
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import aiodocadma
from aiodocadma import CopyFuture, _dma, emulator
from aiodocadma.exceptions import DocaIoFailedError, WrongLoopError
from tests.dma.conftest import turns, until


async def test_states_sizes_and_tags(held_dma: aiodocadma.DMA) -> None:
    dma = held_dma
    assert dma.in_flight() == ()
    small = dma.copy(b"abc", bytearray(3), tag=7)
    await turns()
    big = dma.copy(bytes(500_000), bytearray(500_000), tag="big")  # pinned in a worker
    assert [(copy.state, copy.nbytes, copy.tag) for copy in dma.in_flight()] == [
        ("in flight", 3, 7),
        ("registering", 500_000, "big"),
    ]
    await until(lambda: all(copy.state == "in flight" for copy in dma.in_flight()), "both in flight")
    by_tag = {copy.tag: copy for copy in dma.in_flight()}
    assert (by_tag[7].nbytes, by_tag[7].bytes_done, by_tag[7].segments) == (3, 0, 1)
    assert by_tag["big"].segments > 1
    before = by_tag[7].age
    await asyncio.sleep(0.02)
    after = next(copy.age for copy in dma.in_flight() if copy.tag == 7)
    assert 0.01 < after - before < 5
    big.cancel()
    await turns()
    assert {copy.tag: copy.state for copy in dma.in_flight()} == {7: "in flight", "big": "cancelling"}
    while emulator.step():
        pass
    await asyncio.wait([big, small])
    assert dma.in_flight() == ()


async def test_waiting_behind_a_full_window() -> None:
    emulator.configure(engine="manual")
    async with aiodocadma.open_dma(num_tasks=1) as dma:
        futures = [dma.copy(b"abc", bytearray(3)) for _ in range(3)]
        await turns()
        assert [copy.state for copy in dma.in_flight()] == ["in flight", "waiting", "waiting"]
        await until(lambda: (emulator.step(), all(future.done() for future in futures))[1], "the copies")


async def test_a_dropped_future_is_listed_no_more() -> None:
    """Not even while it is torn down, when a weak reference's callback asks."""
    async with aiodocadma.open_dma() as dma:
        listed: list[object] = []
        future = dma._reserve(10, None)
        watched = weakref.ref(future, lambda _: listed.extend(dma._futures()))
        del future
        assert watched() is None
        assert listed == []


async def directly(future: CopyFuture) -> object:
    return await future


async def gathered(future: CopyFuture) -> object:
    return await asyncio.gather(future, asyncio.sleep(0))


async def gathered_twice(future: CopyFuture) -> object:
    return await asyncio.gather(asyncio.gather(future))


async def waited(future: CopyFuture) -> object:
    return await asyncio.wait([future])


async def shielded(future: CopyFuture) -> object:
    return await asyncio.shield(future)


async def with_deadline(future: CopyFuture) -> object:
    return await asyncio.wait_for(future, 60)


async def with_timeout(future: CopyFuture) -> object:
    async with asyncio.timeout(60):
        return await future


WAYS = (directly, gathered, gathered_twice, waited, shielded, with_deadline, with_timeout)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_who_awaits_it(held_dma: aiodocadma.DMA, way: Callable[[CopyFuture], Awaitable[Any]]) -> None:
    future = held_dma.copy(b"abc", bytearray(3))
    assert held_dma.in_flight()[0].tasks == ()

    async def wait() -> None:
        await way(future)

    tasks = [asyncio.create_task(wait(), name=f"waiter {i}") for i in range(2)]
    await turns()
    found = held_dma.in_flight()[0].tasks
    assert set(found) == set(tasks)
    emulator.step()
    await asyncio.gather(*tasks)


async def test_whatever_a_callback_has(held_dma: aiodocadma.DMA) -> None:
    """Only asyncio's own callbacks are looked into."""

    class Callback:
        args = argparse.Namespace()

        def __call__(self, future: CopyFuture) -> None:
            pass

    future = held_dma.copy(b"abc", bytearray(3))
    future.add_done_callback(Callback())
    assert [copy.tasks for copy in held_dma.in_flight()] == [()]
    await turns()
    emulator.step()
    await future


async def test_only_in_its_own_loop(held_dma: aiodocadma.DMA) -> None:
    with pytest.raises(WrongLoopError):
        await asyncio.to_thread(held_dma.in_flight)


# ---- start callbacks


async def test_every_way_to_start_is_told() -> None:
    async with aiodocadma.open_dma() as dma, await dma.alloc(8) as src, await dma.alloc(8) as dst:
        seen: list[CopyFuture] = []
        dma.add_start_callback(seen.append)
        started = [
            dma.copy(src, dst),
            dma.copy(src[:0], dst),
            dma.copy(b"abc", bytearray(3), tag="tag"),
            dma.copy([src[:4], src[4:]], dst),
            dma.copy(bytes(500_000), bytearray(500_000)),
            dma.copy_many([(src, dst)]),
            dma.copy_many([]),
            await dma.submit(src, dst),
        ]
        assert len(seen) == len(started)
        assert all(a is b for a, b in zip(seen, started, strict=True))
        await asyncio.gather(*started)
        assert dma.remove_start_callback(seen.append) == 1
        await dma.copy(src, dst)
        assert len(seen) == len(started)
        assert dma.remove_start_callback(seen.append) == 0


async def test_in_the_context_of_who_starts_it() -> None:
    variable = contextvars.ContextVar[str]("variable")
    seen = []
    async with aiodocadma.open_dma() as dma:
        dma.add_start_callback(lambda future: seen.append(variable.get()))
        variable.set("mine")
        await dma.copy(b"abc", bytearray(3))
    assert seen == ["mine"]


async def test_what_it_raises_does_not_touch_the_copy() -> None:
    reported: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context))
    seen: list[CopyFuture] = []

    def fail(future: CopyFuture) -> None:
        raise LookupError("mine")

    async with aiodocadma.open_dma() as dma:
        dma.add_start_callback(fail)
        dma.add_start_callback(seen.append)
        target = bytearray(3)
        assert await dma.copy(b"abc", target) == 3
        assert target == b"abc"
    loop.set_exception_handler(None)
    assert [repr(context["exception"]) for context in reported] == ["LookupError('mine')"]
    assert len(seen) == 1


async def test_an_exit_goes_through_and_the_copy_goes_on() -> None:
    def leave(future: CopyFuture) -> None:
        raise SystemExit(3)

    async with aiodocadma.open_dma() as dma:
        dma.add_start_callback(leave)
        target = bytearray(3)
        with pytest.raises(SystemExit):
            dma.copy(b"abc", target)
        await dma.drain()
        assert target == b"abc"


async def test_a_failure_that_is_looked_at_still_counts_as_not_retrieved() -> None:
    emulator.inject(emulator.Fault("completion"))
    reported: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context))
    async with aiodocadma.open_dma() as dma:
        failures = []
        dma.add_start_callback(lambda future: future.add_done_callback(lambda future: failures.append(future._failure)))
        future = dma.copy(b"abc", bytearray(3))
        await until(lambda: failures, "the end")
        assert isinstance(failures[0], DocaIoFailedError)
        del future
        failures.clear()
        await until(lambda: reported, "the report")
    loop.set_exception_handler(None)
    assert "never retrieved" in reported[0]["message"]


async def test_a_forked_child_has_no_open_dma(held_dma: aiodocadma.DMA) -> None:
    assert _dma.open_dmas() == [held_dma]
    pid = os.fork()
    if pid == 0:
        os._exit(len(_dma.open_dmas()))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0  # noqa: ASYNC222 - a moment
