"""The facade for scripts and notebooks: what it adds to the asynchronous DMA, which is the waiting."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Self

import pytest

import aiodocadma
import aiodocadma.sync
from aiodocadma import DMAState, emulator
from aiodocadma._options import Options
from aiodocadma.emulator import Fault
from aiodocadma.exceptions import (
    BoundsError,
    ClosedError,
    DocaError,
    DocaIoFailedError,
)

DMA = aiodocadma.sync.DMA


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def use_uvloop(request: pytest.FixtureRequest) -> bool:
    """Run each of these tests on both loops."""
    return bool(request.param)


@pytest.fixture
def dma(use_uvloop: bool) -> Iterator[DMA]:
    """An open one."""
    with aiodocadma.sync.open_dma(use_uvloop=use_uvloop) as opened:
        yield opened


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for something that another thread does."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, f"still waiting for {what}"
        time.sleep(0.0005)


def in_flight() -> int:
    """Tasks that the emulator holds."""
    return emulator.live_objects().in_flight


class Beside(threading.Thread):
    """Calls something in a thread; ``outcome`` is what comes of it, and leaving the block waits for it."""

    def __init__(self, function: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._function = function
        self.outcome: object = None

    def run(self) -> None:
        """Keep what comes of it."""
        try:
            self.outcome = self._function()
        except BaseException as exc:
            self.outcome = exc

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.join(30)
        assert not self.is_alive(), "a thread hangs"


class Keyboard:
    """Presses Ctrl-C, from another thread, and knows when the main thread has seen it."""

    def __init__(self) -> None:
        self._seen = 0

    def _handle(self, _signal: int, _frame: FrameType | None) -> None:
        self._seen += 1
        raise KeyboardInterrupt(self._seen)

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def press(self, thread: int | None = None) -> None:
        """Once, and wait until it was handled; the system may have a thread take it that is not the main one."""
        seen = self._seen
        if thread is None:
            os.kill(os.getpid(), signal.SIGINT)
        else:
            signal.pthread_kill(thread, signal.SIGINT)
        until(lambda: self._seen > seen, "the signal's handler")


# ---- what it forwards


def test_copies(dma: DMA) -> None:
    src = dma.register(b"payload" * 1000)
    dst = dma.alloc(7000)
    assert dma.copy(src, dst) == 7000
    assert bytes(memoryview(dst)) == b"payload" * 1000
    plain = bytearray(7)
    assert dma.copy(src[7:14], plain) == 7
    assert plain == b"payload"
    assert dma.copy_many([(src[:7], dst[10:17]), (src[1:3], dst[:2])]) == 9
    assert bytes(memoryview(dst)[:2]) + bytes(memoryview(dst)[10:17]) == b"aypayload"
    assert dma.copy_many(src, dst, src_offsets=range(0, 70, 7), dst_offsets=range(0, 100, 10), lengths=7) == 70
    assert bytes(memoryview(dst)[90:97]) == b"payload"
    dma.drain()
    assert dma.statistics().bytes_completed == 7000 + 7 + 9 + 70
    assert dma.capabilities == dma._dma.capabilities
    assert dma.device == dma._dma.device
    assert dma.emulated == dma.device.emulated
    assert dma.state is DMAState.RUNNING
    assert repr(dma) == f"<sync {dma._dma!r}>"


def test_memory_is_given_back_in_any_thread(dma: DMA) -> None:
    with contextlib.closing(dma.alloc(4096)) as memory:
        with Beside(lambda: dma.copy(b"abc", memory)) as thread:
            pass
        assert thread.outcome == 3
    assert memory.closed
    owned = bytearray(100)
    registered = dma.register(owned, access="read")
    with pytest.raises(BufferError):
        owned.append(0)
    registered.close()
    owned.append(0)


def test_exports_and_imports(use_uvloop: bool) -> None:
    emulator.configure("device mlx5_0 pci=0000:03:00.0\ndevice mlx5_1 pci=0000:04:00.0")
    with (
        aiodocadma.sync.open_dma("mlx5_0", use_uvloop=use_uvloop) as host,
        aiodocadma.sync.open_dma("mlx5_1", use_uvloop=use_uvloop) as dpu,
    ):
        memory = host.register(bytearray(b"shared" * 100))
        imported = dpu.import_memory(bytes(host.export(memory, access="write")), allow_remote_write=True)
        dst = bytearray(6)
        assert dpu.copy(imported[:6], dst) == 6
        assert dst == b"shared"
        assert dpu.copy(b"SHARED", imported) == 6
        assert bytes(memoryview(memory)[:12]) == b"SHAREDshared"


def test_options_are_those_of_the_asynchronous_one() -> None:
    parameters = inspect.signature(aiodocadma.open_dma).parameters.values()
    assert set(Options.__annotations__) == {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
    with aiodocadma.sync.open_dma(num_tasks=3, library="emulator") as dma:
        assert "0/3 in flight" in repr(dma)
    with pytest.raises(ValueError, match="num_tasks must be at least 1, not 0"):
        aiodocadma.sync.open_dma(num_tasks=0)


def test_opening_fails_as_the_asynchronous_one_does(use_uvloop: bool) -> None:
    threads = threading.active_count()
    with pytest.raises(DocaError, match="nodev9") as caught:
        aiodocadma.sync.open_dma("nodev9", use_uvloop=use_uvloop)
    assert type(caught.value) is asyncio.run(opening_failure())
    assert threading.active_count() == threads


async def opening_failure() -> type[BaseException]:
    """What the asynchronous one raises."""
    with pytest.raises(DocaError) as caught:
        await aiodocadma.open_dma("nodev9").__aenter__()
    return caught.type


def test_failures_pass_with_their_causes(dma: DMA) -> None:
    emulator.inject(Fault("completion"))
    with pytest.raises(DocaIoFailedError) as caught:
        dma.copy(bytes(1 << 20), bytearray(1 << 20), tag="block 7")
    assert (caught.value.tag, caught.value.phase) == ("block 7", "complete")
    assert caught.value.cause
    with pytest.raises(BoundsError, match="dst has 2 bytes, but src has 3"):
        dma.copy(b"abc", bytearray(2))
    with pytest.raises(TypeError):
        dma.copy("abc", bytearray(3))  # type: ignore[arg-type]
    assert dma.copy(b"abc", bytearray(3)) == 3


async def test_where_a_loop_runs(dma: DMA) -> None:
    """As in a notebook, whose cells run in the thread of its loop."""
    dst = bytearray(3)
    assert dma.copy(b"abc", dst) == 3
    assert dst == b"abc"
    with aiodocadma.sync.open_dma() as other:
        assert other.copy(b"xyz", dst) == 3


def test_copies_have_the_context_of_their_caller(dma: DMA) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    seen = []
    dma._dma.add_start_callback(lambda future: seen.append(variable.get()))
    variable.set("mine")
    dma.copy(b"abc", bytearray(3))
    assert seen == ["mine"]


def test_exceptions_are_no_cycles(dma: DMA) -> None:
    """What failed lets go of its memory when the exception is dropped, without a garbage collection."""
    gc.disable()
    try:
        try:
            dma.copy(b"abc", bytearray(2))
        except BoundsError as exc:
            dropped = weakref.ref(exc)
        until(lambda: dropped() is None, "the exception's end")
    finally:
        gc.enable()


def test_what_was_interrupted_is_let_go_of(use_uvloop: bool) -> None:
    """Its memory is not kept by a cycle either."""
    emulator.configure(engine="manual")
    memory = Memory(3)
    dropped = weakref.ref(memory)

    def press() -> None:
        until(lambda: in_flight() == 1, "the copy")
        keyboard.press()
        emulator.step()

    gc.disable()
    try:
        with aiodocadma.sync.open_dma(use_uvloop=use_uvloop) as dma, Keyboard() as keyboard, Beside(press):
            with contextlib.suppress(KeyboardInterrupt):
                dma.copy(b"abc", memory)
            del memory
            until(lambda: dropped() is None, "the memory's end")
    finally:
        gc.enable()


class Memory(bytearray):
    """Can be referred to weakly."""


# ---- threads


def test_many_threads(dma: DMA) -> None:
    def work(number: int) -> list[bytes]:
        pattern = bytes([number]) * 70_000
        results = []
        for _ in range(20):
            dst = bytearray(len(pattern))
            dma.copy(pattern, dst)
            results.append(bytes(dst))
        return results

    with contextlib.ExitStack() as stack:
        threads = [stack.enter_context(Beside(lambda number=number: work(number))) for number in range(8)]  # type: ignore[misc]
    for number, thread in enumerate(threads):
        assert thread.outcome == [bytes([number]) * 70_000] * 20


def test_closing_ends_what_others_have_called(use_uvloop: bool) -> None:
    """Those that wait are refused, those that the engine has end well, and then close() returns."""
    emulator.configure(engine="manual")
    dma = aiodocadma.sync.open_dma(use_uvloop=use_uvloop, window=1)
    dst = bytearray(3)
    with Beside(lambda: dma.copy(b"abc", dst)) as first:
        until(lambda: in_flight() == 1, "the first copy")
        with Beside(lambda: dma.copy(b"xyz", bytearray(3))) as second:
            until(lambda: dma.statistics().waiting == 1, "the second copy")
            with Beside(dma.close) as closing:
                second.join(20)
                assert isinstance(second.outcome, ClosedError)
                assert first.is_alive()
                assert closing.is_alive()
                emulator.step()
    assert first.outcome == 3
    assert dst == b"abc"
    assert closing.outcome is None


@pytest.mark.parametrize("attempt", range(5))
def test_closing_while_others_call(use_uvloop: bool, attempt: int) -> None:
    """Whenever the close comes, no call hangs, and each is done or refused."""
    dma = aiodocadma.sync.open_dma(use_uvloop=use_uvloop)
    started = threading.Semaphore(0)

    def work() -> None:
        dst = bytearray(3)
        while True:
            dst[:] = bytes(3)
            assert dma.copy(b"abc", dst) == 3
            assert dst == b"abc"
            started.release()

    with contextlib.ExitStack() as stack:
        threads = [stack.enter_context(Beside(work)) for _ in range(4)]
        for _ in range(5 * attempt + 1):
            started.acquire()
        dma.close()
    assert [type(thread.outcome) for thread in threads] == [ClosedError] * 4


# ---- Ctrl-C


@pytest.mark.parametrize("times", [1, 3])
def test_ctrl_c_in_a_copy(use_uvloop: bool, times: int) -> None:
    """The interrupt comes when the engine has let go of the memory and not before, however often it is pressed."""
    emulator.configure(engine="manual")
    log: list[object] = []
    dst = bytearray(3)

    def press() -> None:
        until(lambda: in_flight() == 1, "the copy")
        for _ in range(times):
            keyboard.press()
            dma.alloc(64).close()  # the loop has got round to it
        assert log == []
        log.append("stepped")
        emulator.step()

    with aiodocadma.sync.open_dma(use_uvloop=use_uvloop) as dma, Keyboard() as keyboard, Beside(press) as presser:
        with pytest.raises(KeyboardInterrupt, match="1"):  # the first
            dma.copy(b"abc", dst)
        log.append(f"raised with {in_flight()} in flight")
    assert presser.outcome is None
    assert log == ["stepped", "raised with 0 in flight"]
    assert dma.statistics().copies_cancelled == 1


def test_ctrl_c_in_a_copy_that_waits(use_uvloop: bool) -> None:
    """The engine has nothing of it, so it ends at once."""
    emulator.configure(engine="manual")
    with aiodocadma.sync.open_dma(use_uvloop=use_uvloop, window=1) as dma, Keyboard() as keyboard:
        with Beside(lambda: dma.copy(b"abc", bytearray(3))) as other:
            until(lambda: in_flight() == 1, "the copy of the other thread")

            def press() -> None:
                until(lambda: dma.statistics().waiting == 1, "the copy")
                keyboard.press()

            with Beside(press), pytest.raises(KeyboardInterrupt):
                dma.copy(b"xyz", bytearray(3))
            assert (in_flight(), dma.statistics().pending) == (1, 1)
            emulator.step()
        assert other.outcome == 3


def test_ctrl_c_that_does_not_wake_the_main_thread(use_uvloop: bool) -> None:
    """As one that comes just before it blocks: Python's handler runs only when it is awake."""
    emulator.configure(engine="manual")
    with aiodocadma.sync.open_dma(use_uvloop=use_uvloop) as dma, Keyboard() as keyboard:

        def press() -> None:
            until(lambda: in_flight() == 1, "the copy")
            try:
                keyboard.press(threading.get_ident())
            finally:
                emulator.step()

        with Beside(press) as presser, pytest.raises(KeyboardInterrupt):
            dma.copy(b"abc", bytearray(3))
        assert presser.outcome is None


def test_ctrl_c_waits_no_longer_than_drain_timeout(use_uvloop: bool) -> None:
    emulator.configure(engine="manual")
    with (
        aiodocadma.sync.open_dma(use_uvloop=use_uvloop, drain_timeout=0.05, stall_timeout=None) as dma,
        Keyboard() as keyboard,
    ):

        def press() -> None:
            until(lambda: in_flight() == 1, "the copy")
            keyboard.press()

        with Beside(press), pytest.raises(KeyboardInterrupt):
            dma.copy(b"abc", bytearray(3))
        assert in_flight() == 1
        emulator.step()
        dma.drain()


@pytest.mark.parametrize("posted", [False, True], ids=["before", "after"])
def test_ctrl_c_while_a_copy_is_handed_over(dma: DMA, posted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the loop's thread has heard of the copy is not known then; it lets go of it in either case."""
    post = dma._portal.start_task_soon

    def interrupted(function: Callable[[], object]) -> None:
        monkeypatch.undo()
        if posted:
            post(function)
        raise KeyboardInterrupt

    monkeypatch.setattr(dma._portal, "start_task_soon", interrupted)
    dst = bytearray(100_000)
    with pytest.raises(KeyboardInterrupt):
        dma.copy(bytes(100_000), dst)
    assert dma.statistics().pending == 0
    dst.append(0)
    assert dma.copy(b"abc", dst) == 3


def test_ctrl_c_in_close(use_uvloop: bool) -> None:
    emulator.configure(engine="manual")
    log: list[object] = []
    dma = aiodocadma.sync.open_dma(use_uvloop=use_uvloop)

    def press() -> None:
        until(lambda: dma.state is DMAState.CLOSED, "the close")
        keyboard.press()
        keyboard.press()
        assert log == []
        log.append("stepped")
        emulator.step()

    with Keyboard() as keyboard, Beside(lambda: dma.copy(b"abc", bytearray(3))) as other:
        until(lambda: in_flight() == 1, "the copy")
        with Beside(press) as presser:
            with pytest.raises(KeyboardInterrupt, match="1"):
                dma.close()
            log.append("raised")
    assert presser.outcome is None
    assert other.outcome == 3
    assert log == ["stepped", "raised"]
    assert emulator.live_objects().devs == 0


def test_ctrl_c_while_it_opens(use_uvloop: bool) -> None:
    """What was opened is closed again before the interrupt comes."""
    entered, go = threading.Event(), threading.Event()

    class Slow(aiodocadma.open_dma):
        async def __aenter__(self) -> aiodocadma.DMA:
            opened = await super().__aenter__()
            entered.set()
            await asyncio.to_thread(go.wait)
            return opened

    def press() -> None:
        entered.wait()
        try:
            keyboard.press()
        finally:
            go.set()

    threads = threading.active_count()
    with Keyboard() as keyboard, Beside(press), pytest.raises(KeyboardInterrupt):
        DMA(Slow(), use_uvloop=use_uvloop)
    assert emulator.live_objects().devs == 0
    until(lambda: threading.active_count() == threads, "the thread's end")


def in_child(script: str) -> subprocess.CompletedProcess[str]:
    """Run it in a process of its own."""
    preamble = """
import gc, os, signal, sys, threading, time
import aiodocadma, aiodocadma.sync
from aiodocadma import emulator
"""
    return subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", preamble + script],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_ctrl_c_ends_a_script_as_any_other(use_uvloop: bool) -> None:
    done = in_child(f"""
emulator.configure(engine="manual")

def press():
    while emulator.live_objects().in_flight == 0:
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)
    while dma.statistics().copies_cancelled == 0:
        emulator.step()
        time.sleep(0.001)

with aiodocadma.sync.open_dma(use_uvloop={use_uvloop}) as dma:
    threading.Thread(target=press, daemon=True).start()
    dma.copy(b"abc", bytearray(3))
""")
    assert done.returncode == -signal.SIGINT  # 130 in a shell
    assert done.stderr.splitlines()[-1] == "KeyboardInterrupt"
    assert "Warning" not in done.stderr


# ---- the end


def test_closed(dma: DMA) -> None:
    memory = dma.alloc(100)
    dma.close()
    dma.close()
    for call in (
        lambda: dma.alloc(1),
        lambda: dma.register(b"abc"),
        lambda: dma.copy(b"abc", bytearray(3)),
        lambda: dma.copy_many([]),
        lambda: dma.import_memory(b""),
        lambda: dma.export(memory),
        dma.drain,
    ):
        with pytest.raises(ClosedError):
            call()
    assert dma.state is DMAState.CLOSED
    assert dma.statistics().copies_started == 0
    assert memory.closed


def test_leaving_the_block_closes(use_uvloop: bool) -> None:
    threads = threading.active_count()
    fds = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ZeroDivisionError), aiodocadma.sync.open_dma(use_uvloop=use_uvloop) as dma:
        assert threading.active_count() == threads + 1
        raise ZeroDivisionError
    assert dma.state is DMAState.CLOSED
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) == fds


def test_a_failing_close_is_told_once(use_uvloop: bool) -> None:
    """Of the first caller, and as a note on the block's own exception."""
    done = in_child(f"""
from aiodocadma.exceptions import DocaDriverError
emulator.inject(emulator.Fault("buf_inventory_destroy", status="DRIVER", count=0))
dma = aiodocadma.sync.open_dma(use_uvloop={use_uvloop})
try:
    dma.close()
except DocaDriverError:
    print("failed")
dma.close()
try:
    with aiodocadma.sync.open_dma(use_uvloop={use_uvloop}):
        raise KeyError
except KeyError as exc:
    print(*exc.__notes__)
""")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("failed\nand closing the DMA failed: doca_buf_inventory_destroy: DOCA_ERROR_DRIVER")


def test_dropped_open(use_uvloop: bool) -> None:
    """It warns, and its thread closes it."""
    threads = threading.active_count()
    fds = len(os.listdir("/proc/self/fd"))
    dma = aiodocadma.sync.open_dma(use_uvloop=use_uvloop)
    memory = dma.alloc(100)
    with pytest.warns(ResourceWarning, match=r"unclosed \S+ DMA; use 'with aiodocadma.sync.open_dma\(\)'"):
        del dma
        gc.collect()
    until(lambda: threading.active_count() == threads, "the thread's end")
    assert len(os.listdir("/proc/self/fd")) == fds
    assert memory.closed


@pytest.mark.parametrize(("engine_mode", "threads"), [("default", 0), ("worker", 2), ("manual", 2)])
def test_exit_without_close(use_uvloop: bool, engine_mode: str, threads: int) -> None:
    """The exit code is kept, also while copies fly, and nothing hangs; it warns, unless a thread still holds it."""
    done = in_child(f"""
emulator.configure(engine={engine_mode!r})
dma = aiodocadma.sync.open_dma(use_uvloop={use_uvloop})
def work():
    while True:
        dma.copy(bytes(1 << 20), bytearray(1 << 20))
for _ in range({threads}):
    threading.Thread(target=work, daemon=True).start()
while dma.statistics().copies_started < {threads}:
    time.sleep(0.001)
sys.exit(3)
""")
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    assert done.stderr.count("ResourceWarning: unclosed") == (threads == 0)


def test_an_engine_that_does_not_let_go(use_uvloop: bool) -> None:
    """close() says so after drain_timeout, other threads' calls end too, and so does the process."""
    done = in_child(f"""
from aiodocadma.exceptions import DrainTimeoutError
emulator.configure(engine="manual")
dma = aiodocadma.sync.open_dma(use_uvloop={use_uvloop}, drain_timeout=0.1)
dst = bytearray(1000)
def work():
    try:
        dma.copy(bytes(1000), dst)
    except Exception as exc:
        print(type(exc).__name__)
thread = threading.Thread(target=work)
thread.start()
while emulator.live_objects().in_flight == 0:
    time.sleep(0.001)
try:
    dma.close()
except DrainTimeoutError as exc:
    closing = type(exc).__name__
thread.join()
print("closing:", closing)
try:
    dst.append(1)
except BufferError:
    print("pinned")
""")
    assert sorted(done.stdout.split("\n")[:-1]) == ["DrainTimeoutError", "closing: DrainTimeoutError", "pinned"]
    assert done.returncode == 0


def test_fork(use_uvloop: bool) -> None:
    """The child's objects refuse, also in their finalisers; it opens its own; the parent's goes on."""
    done = in_child(f"""
import warnings
from aiodocadma.exceptions import ForkedError
warnings.filterwarnings("ignore", "This process .* is multi-threaded, use of fork", DeprecationWarning)
dma = aiodocadma.sync.open_dma(use_uvloop={use_uvloop})
memory = dma.alloc(100)
pid = os.fork()
if pid == 0:
    for call in (lambda: dma.copy(b"abc", memory), lambda: dma.alloc(1), dma.drain, dma.close):
        try:
            call()
        except ForkedError:
            continue
        sys.exit(9)
    with aiodocadma.sync.open_dma(use_uvloop={use_uvloop}) as own:
        dst = bytearray(3)
        own.copy(b"abc", dst)
    del dma, memory
    gc.collect()
    sys.exit(4 if dst == b"abc" else 8)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4
assert dma.copy(b"abc", memory) == 3
dma.close()
sys.exit(5)
""")
    assert (done.returncode, done.stderr) == (5, "")
