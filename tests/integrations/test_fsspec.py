"""Progress of copies, told to real callbacks of fsspec."""

from __future__ import annotations

import asyncio
import io
import re
from typing import Any

import pytest
from fsspec.callbacks import Callback, TqdmCallback

import aiodocadma
from aiodocadma import emulator
from aiodocadma.exceptions import DocaIoFailedError
from aiodocadma.integrations.fsspec import report_progress
from tests.dma.conftest import clean_emulator, until

__all__ = ["clean_emulator"]

NBYTES = 10_000


class Seen(Callback):  # type: ignore[misc]
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[int | None, int]] = []

    def call(self, *_: Any, **__: Any) -> None:
        """Note size and value."""
        self.calls.append((self.size, self.value))


@pytest.fixture(autouse=True)
def pieces(clean_emulator: None) -> None:
    """Have copies cut in pieces of 1000 bytes, which the test lets the engine do."""
    emulator.configure(engine="manual", max_buf_size=1000)


async def test_told_while_it_goes_on_and_before_the_await_is_over() -> None:
    async with aiodocadma.open_dma() as dma:
        seen = Seen()
        loop, timers = asyncio.get_running_loop(), []

        def call_later(*args: Any) -> asyncio.TimerHandle:
            timers.append(type(loop).call_later(loop, *args))
            return timers[-1]

        future = dma.copy(bytes(range(250)) * 40, dst := bytearray(NBYTES))
        loop.call_later = call_later  # type: ignore[method-assign, assignment]
        assert report_progress(future, seen, interval=0.001) is future
        assert seen.calls == [(NBYTES, 0)]
        emulator.step(3)
        await until(lambda: seen.value == 3000, "the first report")
        looks = len(timers)
        await until(lambda: len(timers) == looks + 3, "looks that find no news")
        emulator.step(100)
        assert await future == NBYTES
        del loop.call_later
        assert timers[-1].cancelled()
        assert seen.value == NBYTES
        assert dst == bytes(range(250)) * 40
        values = [value for _, value in seen.calls]
        assert values == sorted(set(values)), "a report without news"
        assert {size for size, _ in seen.calls} == {NBYTES}


async def test_done_at_once() -> None:
    emulator.configure(engine="default")
    async with aiodocadma.open_dma() as dma:
        seen = Seen()
        future = dma.copy(b"abc", bytearray(3))
        while not future.done():
            await asyncio.sleep(0)
        report_progress(future, seen)
        assert seen.calls == [(3, 0), (3, 3)]


async def test_many_pairs() -> None:
    async with aiodocadma.open_dma() as dma:
        src, dst = await dma.alloc(NBYTES), await dma.alloc(NBYTES)
        seen = Seen()
        offsets = range(0, NBYTES, 100)
        future = dma.copy_many(src, dst, src_offsets=offsets, dst_offsets=offsets, lengths=50)
        report_progress(future, seen, interval=0.001)
        emulator.step(4)
        await until(lambda: seen.value == 200, "the first report")
        emulator.step(1000)
        assert await future == seen.value == NBYTES // 2


async def test_a_cancelled_copy_tells_how_far_it_got() -> None:
    """And it is cancelled as any other: the await is over when the engine has let go."""
    async with aiodocadma.open_dma(window=4) as dma:
        seen = Seen()

        async def copy() -> int:
            return await report_progress(dma.copy(bytes(NBYTES), bytearray(NBYTES)), seen)

        task = asyncio.ensure_future(copy())
        await until(lambda: emulator.live_objects().in_flight == 4, "the copy")
        task.cancel()
        for _ in range(10):  # turns in which a cancellation that does not wait for the engine would end it
            await asyncio.sleep(0)
        assert not task.done()
        emulator.step(100)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (seen.size, seen.value) == (NBYTES, 4000)


async def test_a_failed_copy_tells_how_far_it_got() -> None:
    async with aiodocadma.open_dma(window=4) as dma:
        seen = Seen()
        emulator.inject(emulator.Fault("completion", skip=2))
        future = report_progress(dma.copy(bytes(NBYTES), bytearray(NBYTES)), seen)
        emulator.step(100)
        with pytest.raises(DocaIoFailedError):
            await future
        assert seen.value == future.bytes_done == 2000


async def test_a_callback_that_fails_does_not_touch_the_copy() -> None:
    class Failing(Callback):  # type: ignore[misc]
        def relative_update(self, inc: int = 1) -> None:
            raise ZeroDivisionError

    loop = asyncio.get_running_loop()
    told: list[object] = []
    loop.set_exception_handler(lambda _, context: told.append(type(context["exception"])))
    async with aiodocadma.open_dma() as dma:
        future = report_progress(dma.copy(b"abc", dst := bytearray(3)), Failing())
        emulator.step(1)
        assert await future == 3
        assert dst == b"abc"
    assert told == [ZeroDivisionError]


async def test_a_bar() -> None:
    """What fsspec makes of it with tqdm."""
    shown = io.StringIO()
    async with aiodocadma.open_dma() as dma:
        with TqdmCallback(tqdm_kwargs={"file": shown, "mininterval": 0, "ascii": True, "ncols": 60}) as bar:
            future = report_progress(dma.copy(bytes(NBYTES), bytearray(NBYTES)), bar, interval=0.001)
            emulator.step(5)
            await until(lambda: "5000/10000" in shown.getvalue(), "half of the bar")
            emulator.step(5)
            await future
    last = shown.getvalue().rstrip().rpartition("\r")[2]
    assert re.match(r"100%\|#+\| 10000/10000 ", last)
