"""Part F: shutdown, GIL, fork, callbacks, tests, packaging."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable
from typing import Any

import pytest

import aiodocadma
from aiodocadma import DMA, DMAState, emulator
from aiodocadma.exceptions import ClosedError, DocaDriverError, WrongLoopError
from tests.scenarios.conftest import OPEN_STEPS, Child, Mode, loop_factory, open_fds, opened, release, turns, until


def in_flight() -> int:
    """Tasks that the emulator holds."""
    return emulator.live_objects().in_flight


async def test_b73_no_thread_of_ours(engine: str) -> None:
    """No Python thread is there before, while or after an engine is open, copies and registrations included."""
    before = threading.enumerate()
    async with opened() as dma:
        assert threading.enumerate() == before
        await dma.copy(bytes(1 << 20), bytearray(1 << 20))
        (await dma.alloc(1 << 20)).close()
        assert threading.enumerate() == before
    assert threading.enumerate() == before


EXITS = """
emulator.configure(engine=sys.argv[1])

async def main():
    global dma, futures
    dma = await aiodocadma.open_dma(num_tasks=16).__aenter__()
    futures = [dma.copy(bytes(200_000), bytearray(200_000)) for _ in range(64)]
    for _ in range(int(sys.argv[2])):
        await asyncio.sleep(0)
    if sys.argv[3] == "exit":
        sys.exit(3)
    return 3

factory = uvloop.new_event_loop if sys.argv[4] == "uvloop" else asyncio.new_event_loop
with asyncio.Runner(loop_factory=factory) as runner:
    code = runner.run(main())
sys.exit(code)
"""


@pytest.mark.timeout(300)
@pytest.mark.matrix(engines=("default",))  # the script has both
@pytest.mark.parametrize("cycles", [8, pytest.param(200, marks=pytest.mark.deep)])
def test_b73_exit_while_copies_fly(cycles: int, child: Callable[..., Child]) -> None:
    """Processes that end while 64 copies fly, early and late, by return and by sys.exit(): every exit code is kept."""
    for i in range(cycles):
        arguments = [
            ("default", "worker")[i % 2],
            str(i % 5),
            ("exit", "return")[i // 2 % 2],
            ("asyncio", "uvloop")[i // 4 % 2],
        ]
        done = child(EXITS.replace("sys.argv[", f"{['', *arguments]!r}["))
        assert done.code == 3, (arguments, done.err)
        assert "Traceback" not in done.err
        assert done.err.count("unclosed") <= 1


EXIT_STATES = (
    *("opened", "given to the client", "registering", "in flight", "flying", "cancelled", "completed", "failed"),
    *("restarting", "lost", "closing", "closed"),
)

# Each ends as a process does whose script has come to its end. The parent has opened nothing, so a fork is a new start.
EXITS_BY_STATE = """
import signal

states, cycles = {states!r}, {cycles}
NOISE = "ignored", "destroyed", "retrieved", "Fatal", "rror: "

async def reach(state):
    global dma, futures, closing
    dma = await aiodocadma.open_dma(num_tasks=16).__aenter__()
    if state in ("opened", "closed"):
        await (dma.aclose() if state == "closed" else asyncio.sleep(0))
        return
    if state == "registering":
        futures = [dma.copy(bytes(3 << 20), bytearray(3 << 20)) for _ in range(4)]
        return await asyncio.sleep(0)
    if state in ("failed", "restarting", "lost"):
        emulator.inject(emulator.Fault("completion", skip=3))
    if state == "lost":
        emulator.inject(emulator.Fault("ctx_start", status="DRIVER"))
    emulator.hold(state != "flying")
    futures = [dma.copy(bytes(2000), bytearray(2000)) for _ in range(64)]
    for future in futures:
        future.add_done_callback(lambda future: future.cancelled() or future.exception())
    if state == "given to the client":
        return
    while state != "flying" and emulator.live_objects().in_flight < 16:
        await asyncio.sleep(0)
    if state == "cancelled":
        for future in futures:
            future.cancel()
    if state == "closing":
        closing = asyncio.ensure_future(dma.aclose())
        closing._log_destroy_pending = False
    if state in ("completed", "failed", "restarting", "lost"):
        emulator.hold(False)
        emulator.release()
    if state in ("restarting", "lost"):
        while dma.state.name != state.upper():
            await asyncio.sleep(0)
    await asyncio.sleep(0)

async def main():
    await reach(state)
    if way == "exit":
        sys.exit(3)
    if way == "raise":
        raise KeyError("on purpose")
    if way == "interrupt":
        signal.raise_signal(signal.SIGINT)

for i in range(cycles * len(states)):
    state, n = states[i % len(states)], i // len(states)
    way = ("return", "exit", "raise", "interrupt")[n % 4]
    kind = (asyncio, uvloop)[n // 4 % 2]
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        break
    os.close(write)
    with open(read) as pipe:
        noise = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    expected = {{"return": 3, "exit": 3, "raise": 1, "interrupt": -signal.SIGINT}}[way]
    noise = noise.replace("KeyError: 'on purpose'", "")
    if code != expected or any(word in noise for word in NOISE):
        print(state, way, kind.__name__, code, noise)
else:
    print("all", i + 1)
    sys.exit()

os.close(read)
os.dup2(write, 2)
signal.alarm(30)  # a hang
emulator.configure(engine=("default", "worker")[(i + n) % 2])
loop = kind.new_event_loop()
loop.run_until_complete(main())
sys.exit(3)
"""


@pytest.mark.timeout(1200)
@pytest.mark.matrix(modes=("all",), engines=("default",))  # the script has both engines and both loops
@pytest.mark.parametrize("cycles", [4, pytest.param(200, marks=pytest.mark.deep)])
def test_b73_exit_in_each_state(cycles: int, child: Callable[..., Child]) -> None:
    """Processes that end in each state, by return, sys.exit(), an exception, Ctrl-C: the exit code is kept."""
    script = EXITS_BY_STATE.format(states=EXIT_STATES, cycles=cycles)
    done = child(script, "-W", "ignore", limit=1200)
    assert (done.code, done.out) == (0, f"all {cycles * len(EXIT_STATES)}\n"), done


FORK = """
emulator.hold()
from aiodocadma.exceptions import ForkedError

async def fresh():
    emulator.hold(False)
    async with aiodocadma.open_dma() as dma:
        assert await dma.copy(b"abc", dst := bytearray(3)) == 3 and dst == b"abc"

def in_child(dma, fds):
    start = time.perf_counter()
    try:
        dma.copy(b"abc", bytearray(3))
    except ForkedError:
        pass
    else:
        return "not refused"
    if time.perf_counter() - start > 0.1:
        return "refused late"
    before = emulator.counters()
    del dma
    gc.collect()
    if emulator.counters() != before:
        return "native calls"
    for fd in fds:
        os.fstat(fd)  # still open
    failed = []
    def target():
        try:
            asyncio.run(fresh())
        except BaseException as error:
            failed.append(error)
    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
    return repr(failed[0]) if failed else "fine"

async def main():
    async with aiodocadma.open_dma() as dma:
        dsts = [bytearray(3) for _ in range(4)]
        futures = [dma.copy(b"xyz", dst) for dst in dsts]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        pid = os.fork()
        if pid == 0:
            answer = "died"
            try:
                answer = in_child(dma, [dma._native.fd])
            finally:
                os.write(2, (answer + "\\n").encode())
                os._exit(0 if answer == "fine" else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        wakeups = dma.statistics().wakeups
        asyncio.get_running_loop().call_later(0.05, emulator.release, 4)
        assert await asyncio.gather(*futures) == [3] * 4
        assert dsts == [b"xyz"] * 4
        assert dma.statistics().wakeups > wakeups
"""


@pytest.mark.diagonal
@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_b74_fork(kind: str, child: Callable[..., Child]) -> None:
    """Forked with copies held: the child is refused at once, touches nothing, opens its own; the parent goes on."""
    done = child(
        FORK
        + f"""
with asyncio.Runner(loop_factory={kind}.new_event_loop) as runner:
    runner.run(main())
print("parent fine")
"""
    )
    assert (done.code, done.out, done.err) == (0, "parent fine\n", "fine\n")


FORK_AND_EXIT = """
emulator.hold()
loop = {kind}.new_event_loop()
dsts = [bytearray(3) for _ in range(4)]

async def start():
    global dma, idle, futures
    dma = await aiodocadma.open_dma().__aenter__()
    idle = await aiodocadma.open_dma().__aenter__()
    futures = [dma.copy(b"xyz", dst) for dst in dsts]
    while emulator.live_objects().in_flight < 4:
        await asyncio.sleep(0)

async def finish():
    asyncio.get_running_loop().call_later(0.05, emulator.release)
    assert await asyncio.gather(*futures) == [3] * 4
    assert dsts == [b"xyz"] * 4
    emulator.hold(False)
    assert await idle.copy(b"abc" * 100_000, bytearray(300_000)) == 300_000
    await idle.aclose()
    await dma.aclose()

loop.run_until_complete(start())
pid = os.fork()
if pid == 0:
    if {collect}:
        del dma, idle, futures
        gc.collect()
    sys.exit(5)  # and what an interpreter does at its end
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
assert sum(emulator.live_objects()) > 0
loop.run_until_complete(finish())
assert sum(emulator.live_objects()) == 0
loop.close()
"""


@pytest.mark.diagonal
@pytest.mark.parametrize("collect", [False, True])
@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_b74_a_forked_child_exits(kind: str, collect: bool, child: Callable[..., Child]) -> None:
    """The child ends as a process does, with the parent's engines and copies collected or not: the parent goes on."""
    done = child(FORK_AND_EXIT.format(kind=kind, collect=collect), "-W", "default")
    assert (done.code, done.out) == (0, ""), done.err
    assert "mlx5_0" not in done.err  # they are not the child's to close, nor to warn of
    assert "Traceback" not in done.err


MULTIPROCESSING = """
import asyncio
import multiprocessing
import sys

import aiodocadma


async def copy():
    async with aiodocadma.open_dma() as dma:
        dst = bytearray(1000)
        assert await dma.copy(b"x" * 1000, dst) == 1000
        assert dst == b"x" * 1000


def work(i):
    asyncio.run(copy())
    return i


async def main(method):
    async with aiodocadma.open_dma() as dma:
        await dma.copy(b"abc", bytearray(3))
        context = multiprocessing.get_context(method)
        processes = [context.Process(target=entry, args=(i,)) for i in range(2)]
        for process in processes:
            process.start()
        for process in processes:
            await asyncio.to_thread(process.join)
            assert process.exitcode == 0, process.exitcode
        assert await dma.copy(b"abc", bytearray(3)) == 3


def entry(i):
    asyncio._set_running_loop(None)
    work(i)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
    print("fine")
"""


@pytest.mark.diagonal
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_b74_multiprocessing(method: str, tmp_path: Any) -> None:
    """Processes of multiprocessing, however they start, open an engine of their own beside the parent's."""
    script = tmp_path / "script.py"
    script.write_text(MULTIPROCESSING)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), method], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr
    assert done.stderr == ""


def descriptors() -> set[int]:
    """The descriptors that are open; the one used for looking is closed again."""
    found = set()
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            os.fstat(fd)
            found.add(fd)
    return found


async def test_b75_fd_inherited_by_subprocesses(engine: str) -> None:
    """A subprocess that inherits what it can has neither the notification fd nor any other of the engine's."""

    def inherited() -> int:
        command = ["/bin/ls", "/proc/self/fd"]
        return len(subprocess.run(command, close_fds=False, stdout=subprocess.PIPE, check=True).stdout.split())

    before, inherited_before = descriptors(), inherited()
    async with opened() as dma:
        await dma.copy(bytes(1 << 20), bytearray(1 << 20))
        ours = descriptors() - before
        assert dma._native.fd in ours
        assert [fd for fd in ours if os.get_inheritable(fd)] == []
        assert inherited() == inherited_before


@pytest.mark.parametrize("error", [MemoryError, KeyError])
@pytest.mark.usefixtures("held")
async def test_b76_exception_where_an_error_is_made(error: type[Exception]) -> None:
    """Making a failed copy's error raises: that copy ends with what was raised, all others of the batch end well."""
    async with opened() as dma:
        emulator.inject(emulator.Fault("completion", skip=2, fatal=False))
        futures = [dma.copy(b"abc", bytearray(3), tag=i) for i in range(6)]

        def failure(*_: object) -> BaseException:
            raise error("hook")

        dma._failure = failure  # type: ignore[method-assign]
        await until(lambda: in_flight() == 6 and not dma._scheduled, "six tasks in flight")
        release()
        results = await asyncio.gather(*futures, return_exceptions=True)
        assert [type(result) for result in results] == [int, int, error, int, int, int]
        del dma._failure  # type: ignore[method-assign]
        results.clear()


@pytest.mark.usefixtures("held")
async def test_b76_user_callback_raises(caplog: pytest.LogCaptureFixture) -> None:
    """A user's done-callback raises: the loop's exception handler hears of it once, every copy ends."""
    loop = asyncio.get_running_loop()
    heard: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: heard.append(context))
    async with opened() as dma:
        futures = [dma.copy(b"abc", bytearray(3)) for _ in range(4)]

        def raising(_: object) -> None:
            raise KeyError("callback")

        futures[1].add_done_callback(raising)
        await until(lambda: in_flight() == 4 and not dma._scheduled, "four tasks in flight")
        release()
        assert await asyncio.gather(*futures) == [3] * 4
        await turns()
        assert len(heard) == 1
        assert isinstance(heard[0]["exception"], KeyError)
    loop.set_exception_handler(None)


@pytest.mark.usefixtures("held")
async def test_b76_start_callback_raises() -> None:
    """A user's start callback, as metrics and tracing have one, raises: heard of once for each, every copy ends."""
    loop = asyncio.get_running_loop()
    heard: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: heard.append(context))

    def raising(_: object) -> None:
        raise KeyError("hook")

    async with opened() as dma:
        dma.add_start_callback(raising)
        futures = [dma.copy(b"abc", bytearray(3)) for _ in range(4)]
        dma.remove_start_callback(raising)
        await until(lambda: in_flight() == 4, "four tasks in flight")
        release()
        assert await asyncio.gather(*futures) == [3] * 4
        await turns()
        assert [type(context["exception"]) for context in heard] == [KeyError] * 4
    loop.set_exception_handler(None)


@pytest.mark.diagonal
@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_b76_keyboard_interrupt_while_collecting(kind: str, child: Callable[..., Child]) -> None:
    """KeyboardInterrupt comes up inside the turn: it leaves run(), the batch's copies end, and close still works."""
    done = child(
        f"""
emulator.configure(engine="manual")
emulator.inject(emulator.Fault("completion", skip=1, fatal=False))
results = []

async def main():
    global dma
    async with aiodocadma.open_dma() as dma:
        futures = [dma.copy(b"abc", bytearray(3)) for _ in range(4)]
        made = dma._failure
        def failure(*args):
            del dma._failure
            raise KeyboardInterrupt
        dma._failure = failure
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        emulator.step(10)
        try:
            results.extend(await asyncio.gather(*futures, return_exceptions=True))
        finally:
            results.extend(future.done() for future in futures)
            for future in futures:
                future.cancelled() or future.exception()

loop = {kind}.new_event_loop()
task = loop.create_task(main())
try:
    loop.run_until_complete(task)
except KeyboardInterrupt:
    print("interrupted")
try:
    loop.run_until_complete(task)
except KeyboardInterrupt:
    print("interrupted again")
print(results[-4:], dma.state.name, sum(emulator.live_objects()))
loop.close()
"""
    )
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0] == "interrupted"
    assert lines[-1] == "[True, True, True, True] CLOSED 0"


@pytest.mark.rule("R120")
@pytest.mark.matrix(engines=("default", "worker"))
@pytest.mark.parametrize("copies", [200, pytest.param(2000, marks=pytest.mark.deep)])
def test_b77_threads_side_by_side(engine: str, copies: int) -> None:
    """Eight threads, each with a loop and an engine: the totals are right; use from another thread still raises."""
    errors: list[BaseException] = []
    opened_by: list[DMA] = []
    ready = threading.Barrier(8)

    async def work(seed: int) -> None:
        async with aiodocadma.open_dma() as dma:
            opened_by.append(dma)
            await asyncio.get_running_loop().run_in_executor(None, ready.wait)
            dsts = [bytearray(500) for _ in range(copies)]
            data = bytes([seed + 1]) * 500
            assert await asyncio.gather(*[dma.copy(data, dst) for dst in dsts]) == [500] * copies
            assert all(dst == data for dst in dsts)
            assert dma.statistics().copies_completed == copies
            other = next(one for one in opened_by if one is not dma)
            with pytest.raises(WrongLoopError):
                other.copy(b"abc", bytearray(3))
            await asyncio.get_running_loop().run_in_executor(None, ready.wait)

    def thread(seed: int) -> None:
        try:
            with asyncio.Runner(loop_factory=loop_factory("uvloop" if seed % 2 else "asyncio")) as runner:
                runner.run(work(seed))
        except BaseException as error:
            errors.append(error)
            ready.abort()

    threads = [threading.Thread(target=thread, args=(seed,)) for seed in range(8)]
    for started in threads:
        started.start()
    for started in threads:
        started.join()
    assert errors == []
    opened_by.clear()
    gc.collect()


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="needs a free-threaded Python")
@pytest.mark.matrix(modes=("all",))
def test_b77_the_gil_stays_off(child: Callable[..., Child]) -> None:
    """On a free-threaded build importing the package does not switch the GIL on."""
    done = child("print(sys._is_gil_enabled())")
    assert (done.code, done.out) == (0, "False\n")


@pytest.mark.usefixtures("held")
async def test_b78_one_operation_awaited_twice() -> None:
    """One future awaited by two tasks at once and again after its end: one submit, one shared result."""
    async with opened() as dma:
        operation = dma.copy(b"abc", bytearray(3))

        async def wait() -> int:
            return await operation

        waiters = [asyncio.ensure_future(wait()) for _ in range(2)]
        await until(in_flight, "the copy in flight")
        release()
        assert await asyncio.gather(*waiters) == [3, 3]
        assert await operation == 3
        assert emulator.counters().submits == 1
        coroutine = dma.copy_coroutine(b"abc", bytearray(3))
        task = asyncio.ensure_future(coroutine)
        await until(release, "the second copy")
        await task
        with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
            await coroutine
        assert emulator.counters().submits == 2


@pytest.mark.parametrize("op", OPEN_STEPS)
async def test_b80_del_of_a_half_built_object(op: str, mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step of opening fails in turn: the original error surfaces, nothing stays, the next open works."""
    if op == "pe_set_event_mode" and mode.name == "selective":
        return  # there is no such call
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    fds = open_fds()
    loop = asyncio.get_running_loop()
    expected: type[Exception] = DocaDriverError
    if op == "add_reader":
        expected = OSError

        class Refusing(DMA):
            def __init__(self, engine: Any, loop: asyncio.AbstractEventLoop, **options: Any) -> None:
                class Loop:
                    def __getattr__(self, name: str) -> Any:
                        if name == "add_reader":
                            raise OSError("no room in the selector")
                        return getattr(loop, name)

                super().__init__(engine, Loop(), **options)  # type: ignore[arg-type]

        monkeypatch.setattr(aiodocadma._open, "DMA", Refusing)
    else:
        emulator.inject(emulator.Fault(op, status="DRIVER"))
    with pytest.raises(expected) as caught:
        async with aiodocadma.open_dma():
            pass
    if isinstance(caught.value, DocaDriverError):
        assert caught.value.call == f"doca_{op}"
    del caught
    assert sum(emulator.live_objects()) == 0
    gc.collect()
    await turns()
    assert unraisable == []
    assert open_fds() == fds
    monkeypatch.undo()
    assert loop is asyncio.get_running_loop()
    async with aiodocadma.open_dma(library=mode.library) as dma:
        assert await dma.copy(b"abc", bytearray(3)) == 3


@pytest.mark.usefixtures("held")
async def test_b81_close_with_waiters_twice_and_from_inside() -> None:
    """One held, 50 waiting, closed by three tasks, one of them cancelled, and by a copy's own task: all ends."""
    loop = asyncio.get_running_loop()
    heard: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: heard.append(context))
    async with opened(num_tasks=1) as dma:

        async def copy_then_close() -> int:
            copied = await dma.copy(b"abc", bytearray(3))
            await dma.aclose()
            return copied

        held = asyncio.ensure_future(copy_then_close())
        await until(in_flight, "the held copy")
        waiting = [dma.copy(b"abc", bytearray(3)) for _ in range(50)]
        closers = [asyncio.ensure_future(dma.aclose()) for _ in range(3)]
        await turns(1)
        closers[1].cancel()
        await turns(1)
        assert all(future.done() for future in waiting)
        for future in waiting:
            with pytest.raises(ClosedError):
                await future
        assert not held.done()
        assert not any(closer.done() for closer in closers)
        release()
        assert await held == 3
        results = await asyncio.gather(*closers, return_exceptions=True)
        assert [type(result) for result in results] == [type(None), asyncio.CancelledError, type(None)]
        assert dma.state is DMAState.CLOSED
        waiting.clear()
    assert heard == []
    loop.set_exception_handler(None)


@pytest.mark.matrix(modes=("all",))
def test_b81_the_body_is_the_news(child: Callable[..., Child]) -> None:
    """The body of ``async with`` raised and closing fails, too: the body's exception is what comes out."""
    done = child("""
async def main():
    emulator.inject(emulator.Fault("pe_destroy", status="DRIVER"))
    try:
        async with aiodocadma.open_dma():
            raise KeyError("body")
    except KeyError as error:
        print(error.args, len(error.__notes__), "doca_pe_destroy" in error.__notes__[0])

asyncio.run(main())
""")
    assert (done.code, done.out, done.err) == (0, "('body',) 1 True\n", "")


@pytest.mark.matrix(engines=("default", "worker", "manual"))
async def test_b82_callback_before_the_object_is_registered(engine: str) -> None:
    """10,000 copies that complete as early as can be, places recycled: none lost, none mixed up."""
    count = 10_000
    async with opened(num_tasks=16) as dma:
        src, dst = await dma.alloc(8 * count), await dma.alloc(8 * count)
        memoryview(src)[:] = b"".join(i.to_bytes(8, "little") for i in range(count))
        futures = []
        for i in range(count):
            futures.append(dma.copy(src[8 * i : 8 * i + 8], dst[8 * i : 8 * i + 8], tag=i))
            if engine == "manual":
                emulator.step(1, order="random")
            if i % 100 == 0:
                await turns(1)
        while engine == "manual" and not all(future.done() for future in futures):
            emulator.step(16, order="random")
            await turns(1)
        assert await asyncio.gather(*futures) == [8] * count
        assert bytes(dst) == bytes(src)
        assert [future.tag for future in futures] == list(range(count))
        assert dma._pending == 0
        assert dma._futures() == []
        assert emulator.counters().submits == count
        futures.clear()
        src.close()
        dst.close()
