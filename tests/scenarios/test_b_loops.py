"""Part B: event loops, threads, fds."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import warnings
from collections.abc import Callable
from typing import Any

import anyio
import pytest
import uvloop

import aiodocadma
from aiodocadma import DMA, CopyFuture, _engine, _reader, emulator
from aiodocadma.exceptions import DocaDriverError, WrongLoopError
from tests.scenarios.conftest import (
    OPEN_STEPS,
    Child,
    Iterations,
    Mode,
    cpu_time,
    loop_factory,
    open_fds,
    opened,
    release,
    release_for_ever,
    turns,
    until,
)

KINDS = pytest.mark.parametrize("kind", ["asyncio", "uvloop"])


def run(main: Any, kind: str) -> Any:
    """As ``asyncio.run()``, on one kind of loop."""
    with asyncio.Runner(loop_factory=loop_factory(kind)) as runner:
        return runner.run(main)


async def copy_once(dma: DMA) -> None:
    """A copy works."""
    assert await dma.copy(b"abc", dst := bytearray(3)) == 3
    assert dst == b"abc"


@pytest.mark.filterwarnings("ignore:unclosed mlx5_0 DMA:ResourceWarning")
def test_b17_poller_bound_to_a_dead_loop(engine: str) -> None:
    """Ten runs in one process, alternating loops, some leaving the engine open: each works, no fd is lost."""
    fds = []

    async def main(leave_open: bool) -> None:
        dma = await aiodocadma.open_dma().__aenter__()
        await copy_once(dma)
        if not leave_open:
            await dma.aclose()

    for i in range(10):
        run(main(i % 3 == 0), "uvloop" if i % 2 else "asyncio")
        gc.collect()
        fds.append(open_fds())
    assert fds[9] == fds[1]


@KINDS
def test_b18_created_under_one_loop_used_under_another(kind: str, engine: str) -> None:
    """Opened in loop A, which does not run; a copy in loop B raises at once and names both; A can go on."""
    loop_a = loop_factory(kind)()
    dma = loop_a.run_until_complete(aiodocadma.open_dma().__aenter__())
    loop_b = loop_factory(kind)()

    async def misuse() -> None:
        with pytest.raises(WrongLoopError) as caught:
            dma.copy(b"abc", bytearray(3))
        assert repr(loop_a) in str(caught.value)
        assert repr(loop_b) in str(caught.value)
        with pytest.raises(WrongLoopError):
            await dma.aclose()

    loop_b.run_until_complete(misuse())
    loop_b.close()
    loop_a.run_until_complete(copy_once(dma))
    loop_a.run_until_complete(dma.aclose())
    loop_a.close()


@KINDS
@pytest.mark.usefixtures("held")
def test_b19_completion_after_the_loop_closed(kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    """The loop is closed over three held copies: no traceback, memory locked to the native end, then all is freed."""
    loop = loop_factory(kind)()
    dsts = [bytearray(3) for _ in range(3)]
    kept: list[Any] = []

    async def main() -> None:
        dma = await aiodocadma.open_dma().__aenter__()
        kept.append(dma)
        kept.extend(asyncio.ensure_future(dma.copy_coroutine(b"abc", dst)) for dst in dsts)
        await until(lambda: emulator.live_objects().in_flight == 3, "three tasks in flight")
        # Abruptly: the tasks never see their cancellation, for the loop does not run again.
        for task in kept[1:]:
            task.cancel()
            task._log_destroy_pending = False

    loop.run_until_complete(main())
    loop.close()
    for dst in dsts:
        with pytest.raises(BufferError):
            dst.append(1)
    assert release(3) == 3
    for dst in dsts:
        with pytest.raises(BufferError):
            dst.append(1)  # nobody has heard of the end yet
    with pytest.warns(ResourceWarning, match="unclosed mlx5_0 DMA"):
        kept.clear()
        gc.collect()
    assert sum(emulator.live_objects()) == 0
    assert dsts == [b"abc"] * 3
    for dst in dsts:
        dst.append(1)
    assert "Traceback" not in capfd.readouterr().err


@KINDS
@pytest.mark.diagonal
def test_b20_get_event_loop_at_construction(kind: str, child: Callable[..., Child]) -> None:
    """With every warning an error: made in plain code before there is a loop, used in a run, refused without a loop."""
    done = child(
        f"""
first, second = aiodocadma.open_dma(), aiodocadma.open_dma()

async def main(manager):
    async with manager as dma:
        assert await dma.copy(b"abc", bytearray(3)) == 3

for manager in (first, second):
    with asyncio.Runner(loop_factory={kind}.new_event_loop) as runner:
        runner.run(main(manager))
try:
    aiodocadma.open_dma().__aenter__().send(None)
except aiodocadma.exceptions.WrongLoopError as error:
    print(error)
""",
        "-W",
        "error",
        "-X",
        "dev",
    )
    assert (done.code, done.err) == (0, "")
    assert "running" in done.out
    assert "loop" in done.out


@pytest.mark.timeout(30)
@pytest.mark.asyncio(loop_factories=["uvloop"])
async def test_b21_reader_removal_is_asynchronous_in_libuv() -> None:
    """Opened, used and closed 500 times without a pause: no fd lost, nothing runs afterwards."""
    for i in range(500):
        async with opened() as dma:
            await copy_once(dma)
        if i == 10:
            await turns()
            fds = open_fds()
    await turns()
    assert open_fds() == fds
    gc.collect()
    cpu = cpu_time()
    await asyncio.sleep(2)
    assert cpu_time() - cpu < 0.04


def is_nonblocking(fd: int) -> bool:
    """Whether a read of the descriptor returns at once."""
    return bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK)


@pytest.mark.parametrize("nonblocking", [False, True])
async def test_b22_uvloop_switches_the_fd_to_nonblocking(engine: str, nonblocking: bool) -> None:
    """Whoever sets or clears O_NONBLOCK on the notification fd: all paths work, and none blocks or fails."""
    async with opened() as dma:
        fd = dma._native.fd
        for i in range(20):
            fcntl.fcntl(
                fd, fcntl.F_SETFL, (fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_NONBLOCK) | (os.O_NONBLOCK * nonblocking)
            )
            dsts = [bytearray(100_000) for _ in range(4)]
            assert await asyncio.gather(*[dma.copy(bytes([i]) * 100_000, dst) for dst in dsts]) == [100_000] * 4
            emulator.spurious_notification()
            await turns()
            dma._readable()  # nothing to read: must not wait for it
            assert is_nonblocking(fd) == nonblocking


async def test_b24_two_readers_on_one_fd(engine: str) -> None:
    """The notification fd is not public, so no add_reader() replaces ours; 200 copies finish beside other fds."""
    loop = asyncio.get_running_loop()
    async with opened() as dma:
        assert not hasattr(dma, "fileno")
        assert not [name for name in dir(dma) if not name.startswith("_") and "fd" in name.split("_")]
        with pytest.raises(ValueError):  # noqa: PT011 - the loop's own words
            loop.add_reader(dma, lambda: None)
        read, write = os.pipe()
        seen = []
        loop.add_reader(read, lambda: seen.append(os.read(read, 10)))
        os.write(write, b"x")
        async with asyncio.timeout(1):
            for _ in range(200):
                await dma.copy(b"abc", bytearray(3))
            await until(lambda: seen, "the user's own reader")
        loop.remove_reader(read)
        os.close(read)
        os.close(write)


@pytest.mark.usefixtures("held")
async def test_b25_anyio_users() -> None:
    """A held copy in a scope of 10 ms: it ends after the native end, and anyio's repeated cancels do not spin."""
    loop = asyncio.get_running_loop()
    async with opened() as dma:
        released = False

        def let_go() -> None:
            nonlocal released
            released = True
            release()

        loop.call_later(0.3, let_go)
        iterations = Iterations()
        with anyio.move_on_after(0.01) as scope:
            await dma.copy(b"abc", bytearray(3))
        assert scope.cancelled_caught
        assert released
        assert iterations() <= 50


def test_b25_other_event_loops_are_refused() -> None:
    """Without a running asyncio loop, trio's for example, opening says what is missing."""
    with pytest.raises(WrongLoopError) as caught:
        aiodocadma.open_dma().__aenter__().send(None)
    assert "asyncio" in str(caught.value)
    assert "trio" in str(caught.value)


EAGER = getattr(asyncio, "eager_task_factory", None)
NO_EAGER = pytest.mark.skipif(EAGER is None, reason="eager tasks came with Python 3.12")


@pytest.mark.parametrize("eager", [False, pytest.param(True, marks=NO_EAGER)], ids=["tasks", "eager tasks"])
@pytest.mark.usefixtures("held")
async def test_b26_tasks_are_admitted_in_the_order_of_creation(eager: bool) -> None:
    """1,000 tasks in a TaskGroup with room for four: all finish, in the order they were created."""
    loop = asyncio.get_running_loop()

    def factory(*args: Any, eager_start: bool | None = None, **kwargs: Any) -> Any:
        assert EAGER is not None
        return EAGER(*args, **kwargs)  # uvloop passes eager_start also where the factory does not know it

    if eager:
        loop.set_task_factory(factory)
    async with opened(num_tasks=4) as dma:
        order: list[int] = []
        src, dst = await dma.alloc(8), await dma.alloc(8000)

        async def one(i: int) -> None:
            await dma.copy(src, dst[8 * i : 8 * i + 8])
            order.append(i)

        ticker = loop.create_task(release_for_ever())
        async with asyncio.TaskGroup() as group:
            for i in range(1000):
                group.create_task(one(i))
        ticker.cancel()
        assert order == list(range(1000))
        dst.close()
        src.close()


async def test_b26_reentrancy_of_completion_callbacks(engine: str) -> None:
    """A completion callback that submits the next copy, 5,000 times over: no recursion error, nothing lost."""
    loop = asyncio.get_running_loop()
    async with opened(num_tasks=4) as dma:
        src, dst = await dma.alloc(8), await dma.alloc(8)
        left = 5000
        ended = loop.create_future()

        def next_one(future: CopyFuture | None) -> None:
            nonlocal left
            if future is not None:
                assert future.result() == 8
            if left:
                left -= 1
                dma.copy(src, dst).add_done_callback(next_one)
            else:
                ended.set_result(None)

        next_one(None)
        await ended
        assert dma.statistics().copies_completed == 5000
        src.close()
        dst.close()


class Order:
    """What was done to the notification fd, in order: by the loop, and by the native side."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[str] = []
        for cls, name in ((_engine.Engine, "close"), (_engine.Engine, "finalize")):
            monkeypatch.setattr(cls, name, self._recorded(getattr(cls, name), "destroy"))

    def _recorded(self, function: Callable[..., Any], event: str) -> Callable[..., Any]:
        def recorded(*args: Any, **kwargs: Any) -> Any:
            self.events.append(event)
            return function(*args, **kwargs)

        return recorded

    def loop(self, kind: str) -> asyncio.AbstractEventLoop:
        """A loop of this kind that records who is removed."""
        recorded = self

        class Spied(uvloop.Loop if kind == "uvloop" else asyncio.SelectorEventLoop):  # type: ignore[misc]
            def remove_reader(self, fd: Any) -> bool:
                if fd in recorded.fds:
                    os.fstat(fd)  # still there
                    recorded.events.append("remove")
                return bool(super().remove_reader(fd))

            def add_reader(self, fd: Any, callback: Any, *args: Any) -> Any:
                if isinstance(callback, _reader.Reader):
                    recorded.fds.add(fd)
                    recorded.events.append("add")
                return super().add_reader(fd, callback, *args)

        self.fds: set[int] = set()
        return Spied()


@KINDS
@pytest.mark.parametrize("end", ["close", "collected", "loop closed"])
def test_b27_fd_closed_while_a_reader_is_registered(kind: str, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closed, collected, or outliving its loop: the reader is removed first, then the engine destroyed, each once."""
    order = Order(monkeypatch)
    loop = order.loop(kind)

    async def main() -> list[DMA]:
        dma = await aiodocadma.open_dma().__aenter__()
        await copy_once(dma)
        if end == "close":
            await dma.aclose()
            await dma.aclose()
        return [dma]

    kept = loop.run_until_complete(main())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        if end == "collected":
            kept.clear()
            gc.collect()
        loop.close()
        kept.clear()
        gc.collect()
    for fd in order.fds:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
    # A loop that closes forgets its readers by itself.
    assert order.events == (["add", "destroy"] if end == "loop closed" else ["add", "remove", "destroy"])


@KINDS
@pytest.mark.parametrize("op", OPEN_STEPS)
def test_b27_fd_of_a_failed_open(kind: str, op: str, mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed open leaves no reader and no fd, and destroys what it had made once."""
    if op == "pe_set_event_mode" and mode.name == "selective":
        return  # there is no such call
    order = Order(monkeypatch)
    loop = order.loop(kind)
    loop.run_until_complete(asyncio.sleep(0))
    fds = open_fds()

    async def main() -> None:
        async with aiodocadma.open_dma():
            pass

    if op == "add_reader":

        def refuse(*_: Any) -> None:
            raise OSError("no room in the selector")

        monkeypatch.setattr(type(loop), "add_reader", refuse)
        with pytest.raises(OSError, match="no room in the selector"):
            loop.run_until_complete(main())
        assert order.events == ["destroy"]
    else:
        emulator.inject(emulator.Fault(op, status="DRIVER"))
        with pytest.raises(DocaDriverError):
            loop.run_until_complete(main())
        assert order.events == []
    assert order.fds == set()
    assert open_fds() == fds
    loop.close()
    gc.collect()
    assert sum(emulator.live_objects()) == 0
