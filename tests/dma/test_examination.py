"""Looking for a cause: off the loop, bounded, once for all that ask the same; it hides no error and holds up nobody."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pickle
import resource
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import aiodocadma
from aiodocadma import DMAState, _diagnosis, _engine, _evidence, emulator
from aiodocadma._causes import Log
from aiodocadma._library import Library, open_library
from aiodocadma._versions import Anchor, VersionVerdict, verdict_of
from aiodocadma.exceptions import (
    CopyManyError,
    DocaDriverError,
    DocaError,
    DocaInvalidValueError,
    DocaIoFailedError,
    DocaNoMemoryError,
    FlushedError,
)
from tests.dma.conftest import NO_THREAD, OPTIONAL, SUBMIT, turns, until


class Gate:
    """A reader of the kernel's log that waits until it is opened, and counts its calls."""

    def __init__(self) -> None:
        self.calls = 0
        self._open = threading.Event()

    def open(self) -> None:
        """Let all readers go on."""
        self._open.set()

    def __call__(self) -> Log:
        self.calls += 1
        self._open.wait(30)
        return Log(("mlx5_core 0000:03:00.0: bad",))


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Hold every look into the kernel's log."""
    made = Gate()
    monkeypatch.setattr(_evidence, "kernel_log", made)
    yield made
    made.open()


def fault(op: str = "completion", status: str = "DRIVER", **keys: object) -> None:
    emulator.inject(emulator.Fault(op, status=status, **keys))  # type: ignore[arg-type]


async def test_other_copies_go_on_meanwhile(gate: Gate) -> None:
    fault(fatal=False)
    async with aiodocadma.open_dma() as dma:
        bad = dma.copy(b"abc", bytearray(3))
        await until(lambda: gate.calls, "the collection")
        assert not bad.done()
        dst = bytearray(1000)
        for _ in range(100):
            assert await dma.copy(b"x" * 1000, dst) == 1000
        assert dst == b"x" * 1000
        assert not bad.done()
        # Nothing that ends what is pending gets between the copy and its own error.
        assert dma._futures() == [bad]
        assert dma._give_up(bad, RuntimeError()) is False
        gate.open()
        with pytest.raises(DocaDriverError) as caught:
            await bad
        assert caught.value.cause_name == "kernel_log"
        del caught


async def test_cancelling_does_not_wait_for_it(gate: Gate) -> None:
    """The engine has let go: the await ends in this turn, and the device's error is on the CancelledError."""
    fault(fatal=False)
    async with aiodocadma.open_dma() as dma:
        task = asyncio.ensure_future(dma.copy_coroutine(b"abc", bytearray(3)))
        await until(lambda: gate.calls, "the collection")
        task.cancel()
        await turns(5)
        assert task.cancelled()
        assert gate.calls == 1
        gate.open()
    assert await asyncio.gather(task, return_exceptions=True)


@pytest.mark.rule("R44")
async def test_a_collection_that_hangs_ends(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_diagnosis, "CHECK_TIMEOUT", 0.05)
    fault()
    async with aiodocadma.open_dma() as dma:
        with pytest.raises(DocaDriverError) as caught:
            async with asyncio.timeout(5):
                await dma.copy(b"abc", bytearray(3))
        assert caught.value.evidence is not None
        assert "no answer within 0.05 s" in caught.value.evidence["checked"]["trouble"]
        assert caught.value.evidence["checked"]["listed"] == ["mlx5_0"]  # what came in time
        del caught
        assert await dma.copy(b"abc", bytearray(3)) == 3
    gate.open()
    hung = [thread for thread in threading.enumerate() if thread.name == "aiodocadma-evidence"]
    for thread in hung:
        thread.join(10)


@pytest.mark.rule("R44")
async def test_a_collection_that_fails_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Log:
        raise ZeroDivisionError("the reader's bug")

    monkeypatch.setattr(_evidence, "kernel_log", broken)
    monkeypatch.setattr(_evidence, "mappings", broken)
    async with aiodocadma.open_dma() as dma:
        fault()
        with pytest.raises(DocaDriverError) as caught:
            await dma.copy(b"abc", bytearray(3))
        assert caught.value.evidence is not None
        assert "the reader's bug" in caught.value.evidence["checked"]["trouble"]
        fault(status="IO_FAILED")
        with pytest.raises(DocaIoFailedError) as caught_io:
            await dma.copy(b"abc", bytearray(3))
        assert "the reader's bug" in caught_io.value.__notes__[0]
        del caught, caught_io


async def test_a_bug_of_the_check_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with aiodocadma.open_dma() as dma:
        monkeypatch.setattr(dma._failures._examinations, "_check", lambda evidence: 1 // 0)
        fault(status="IO_FAILED")
        with pytest.raises(DocaIoFailedError) as caught:
            await dma.copy(b"abc", bytearray(3))
        assert "ZeroDivisionError" in caught.value.__notes__[0]
        del caught


@pytest.mark.rule("R44")
@NO_THREAD
@pytest.mark.parametrize("op", ["completion", "mmap_start"])
async def test_without_a_thread(
    op: str, no_thread: Callable[[threading.Thread], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread can be had to look for the cause: the error comes all the same, at once."""
    opened = aiodocadma.open_dma()
    dma = await opened.__aenter__()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        fault(op=op, fatal=False)
        with pytest.raises(DocaDriverError) as caught:
            await dma.copy(b"abc", bytearray(3))
        assert caught.value.code == DocaDriverError.code
        if op == "mmap_start":
            fault(op=op)
            with pytest.raises(DocaDriverError):
                await dma.register(bytearray(3))
        del caught
    await opened.__aexit__(None, None, None)


async def test_once_per_incident(gate: Gate) -> None:
    """Failures that come while it is collected share it, and so do those behind it until a task goes well again."""
    async with aiodocadma.open_dma() as dma:
        assert await dma.copy(b"abc", bytearray(3)) == 3
        fault(fatal=False, count=5)
        bad = []
        for _ in range(3):
            bad.append(dma.copy(b"abc", bytearray(3)))
            await until(lambda: gate.calls, "the collection")
            await turns(5)  # what fails in one burst with another counts as flushed
        gate.open()
        errors = await asyncio.gather(*bad, return_exceptions=True)
        assert {type(error) for error in errors} == {DocaDriverError}
        assert gate.calls == 1
        for _ in range(2):
            with pytest.raises(DocaDriverError):
                await dma.copy(b"abc", bytearray(3))
        assert gate.calls == 1
        assert await dma.copy(b"abc", bytearray(3)) == 3
        fault(fatal=False)
        with pytest.raises(DocaDriverError):
            await dma.copy(b"abc", bytearray(3))
        assert gate.calls == 2


async def test_closing_and_draining_wait_for_it(gate: Gate) -> None:
    fault(fatal=False)
    async with aiodocadma.open_dma() as dma:
        bad = dma.copy(b"abc", bytearray(3))
        await until(lambda: gate.calls, "the collection")
        draining = asyncio.ensure_future(dma.drain())
        closing = asyncio.ensure_future(dma.aclose())
        await turns(20)
        assert not draining.done()
        assert not closing.done()
        assert not dma._life.hands_off
        gate.open()
        await asyncio.wait_for(asyncio.gather(draining, closing), 10)
        assert bad.done()
        assert isinstance(bad.exception(), DocaDriverError)
        assert dma.state is DMAState.CLOSED


def test_a_loop_that_ends_meanwhile() -> None:
    """A process whose loop is gone while a cause is looked for exits at once, without a word about it."""
    script = """
import asyncio, threading, time
import aiodocadma
from aiodocadma import _evidence, emulator
looking = threading.Event()
def kernel_log():
    looking.set()
    time.sleep(0.3)
    return _evidence.Log()
_evidence.kernel_log = kernel_log
emulator.inject(emulator.Fault("completion", status="DRIVER", fatal=False))
loop = asyncio.new_event_loop()
async def main():
    opened = aiodocadma.open_dma()
    dma = await opened.__aenter__()
    future = dma.copy(b"abc", bytearray(3))
    while not looking.is_set():
        await asyncio.sleep(0)
    return opened, future
kept = loop.run_until_complete(main())
loop.close()
print(kept[1].done())
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::ResourceWarning", "-c", script], capture_output=True, text=True, timeout=30
    )
    assert (done.stdout, done.stderr, done.returncode) == ("False\n", "", 0)


@pytest.mark.rule("R38", "R51")
async def test_the_pairs_of_copy_many_share_it(gate: Gate) -> None:
    gate.open()
    async with aiodocadma.open_dma() as dma, await dma.alloc(900) as src, await dma.alloc(900) as dst:
        fault(op=SUBMIT, status="INVALID_VALUE", skip=2, count=2)
        fault(fatal=False, skip=5)
        emulator.configure(max_buf_list_len=5)
        with pytest.raises(CopyManyError) as caught:
            await dma.copy_many(src, dst, src_offsets=range(0, 900, 100), dst_offsets=range(0, 900, 100), lengths=100)
        errors = [error for error in caught.value.exceptions if isinstance(error, DocaError)]
        assert sorted((error.code, str(error.cause_name)) for error in errors) == [
            (DocaInvalidValueError.code, "capabilities_changed"),
            (DocaInvalidValueError.code, "capabilities_changed"),
            (DocaDriverError.code, "kernel_log"),
        ]
        assert errors[0].caps_diff == {"max_buf_list_len": (32, 5)}
        assert "max_buf_list_len 32 -> 5" in str(errors[0])
        assert gate.calls == 1
        del caught, errors


async def test_flushed_copies_name_the_culprit_at_once() -> None:
    emulator.configure(engine="manual")
    fault()
    async with aiodocadma.open_dma() as dma:
        futures = [dma.copy(b"abc", bytearray(3)) for _ in range(3)]
        await turns()
        emulator.step(10)
        errors = await asyncio.gather(*futures, return_exceptions=True)
        assert isinstance(errors[0], DocaDriverError)
        assert all(isinstance(error, FlushedError) for error in errors[1:])


async def test_registering_is_examined_off_the_loop(gate: Gate) -> None:
    """Little memory is registered in the loop's thread; why it was refused is looked for elsewhere."""
    loop_thread = threading.get_ident()
    async with aiodocadma.open_dma() as dma:
        fault(op="mmap_start")
        future = dma.copy(b"abc", bytearray(3), tag="mine")
        await until(lambda: gate.calls, "the collection")
        assert not future.done()
        assert threading.get_ident() == loop_thread
        gate.open()
        with pytest.raises(DocaDriverError) as caught:
            await future
        assert (caught.value.phase, caught.value.tag, caught.value.cause_name) == ("register", "mine", "kernel_log")
        fault(op="mmap_start", status="NOT_PERMITTED")
        with pytest.raises(PermissionError, match="RLIMIT_MEMLOCK is"):
            await dma.register(bytes(100))
        del caught


@pytest.mark.rule("R44", "R103")
async def test_what_the_exception_carries(gate: Gate) -> None:
    """The bundle is in the exception, survives pickling, and has what a person below DMA needs."""
    gate.open()
    fault()
    async with aiodocadma.open_dma() as dma:
        with pytest.raises(DocaDriverError) as caught:
            await dma.copy(b"abc", bytearray(3))
        error = caught.value
        evidence = error.evidence
        assert evidence is not None
        assert json.loads(json.dumps(evidence)) == evidence
        assert evidence["checked"]["kernel_log"]["lines"] == ["mlx5_core 0000:03:00.0: bad"]
        assert evidence["checked"]["listed"] == ["mlx5_0"]
        assert evidence["call"] == "doca_task_get_status"
        assert evidence["caps"]["max_buf_size"] == 2 << 20
        twin = pickle.loads(pickle.dumps(error))
        assert (twin.evidence, twin.cause_name, twin.rule) == (evidence, "kernel_log", "R44")
        del caught


@pytest.mark.rule("R53", "R81")
async def test_doca_s_own_log_is_in_it() -> None:
    fault()
    async with aiodocadma.open_dma() as dma:
        with pytest.raises(DocaDriverError) as caught:
            await dma.copy(b"abc", bytearray(3))
        assert caught.value.evidence is not None
        log = caught.value.evidence["checked"]["sdk_log"]
        if OPTIONAL["doca_log_backend_create_with_file_sdk"]:
            assert any("Driver call failed" in line for line in log["lines"])
        else:
            assert "does not offer its log: DOCA_ERROR_NOT_SUPPORTED" in log["unreadable"]
        del caught


@pytest.mark.rule("R106")
async def test_written_only_where_told(gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file per incident, for this user only, addresses left out; nothing is written unless a folder is given."""
    gate.open()
    monkeypatch.setattr(
        _evidence, "kernel_log", lambda: Log(("mlx5 02:42:ac:11:00:02 at 10.1.2.3 and fe80::42:acff:fe11:2, 10:11:12",))
    )
    before = os.listdir(tmp_path)
    monkeypatch.chdir(tmp_path)
    async with aiodocadma.open_dma() as dma:
        fault(fatal=False)
        with pytest.raises(DocaDriverError):
            await dma.copy(b"abc", bytearray(3))
    assert os.listdir(tmp_path) == before == []
    async with aiodocadma.open_dma(evidence_dir=tmp_path / "incidents") as dma:
        fault(fatal=False, count=3)
        for _ in range(3):
            with pytest.raises(DocaDriverError):
                await dma.copy(b"abc", bytearray(3))
    (name,) = os.listdir(tmp_path / "incidents")
    path = tmp_path / "incidents" / name
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    record = json.loads(path.read_text())
    assert record["checked"]["kernel_log"]["lines"] == ["mlx5 <mac 1> at <ip 2> and <ip 1>, 10:11:12"]
    assert record["emulated"] is True
    assert (record["doca_version"] is not None) == OPTIONAL["doca_version_runtime"]


async def test_a_folder_that_cannot_be_written(gate: Gate, tmp_path: Path) -> None:
    gate.open()
    (tmp_path / "file").write_text("")
    async with aiodocadma.open_dma(evidence_dir=tmp_path / "file") as dma:
        fault()
        with pytest.raises(DocaDriverError) as caught:
            await dma.copy(b"abc", bytearray(3))
        assert caught.value.evidence is not None
        assert "writing" in caught.value.evidence["checked"]["trouble"]
        del caught


def test_no_process_is_started() -> None:
    """Whatever fails, and at whatever phase: no fork, no exec."""
    script = """
import asyncio, sys
import pytest
seen = []
sys.addaudithook(lambda event, args: seen.append(event) if event in
    ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.spawn", "os.system") else None)
from tests.faults.producing import CELLS, Cell, fail
from aiodocadma import _evidence, emulator
for read in ("kernel_log", "device_nodes", "iommus", "locked_memory", "mappings", "open_files"):
    getattr(_evidence, read)()
async def main():
    for cell in {(c.code, c.phase): c for c in CELLS if c.phase != "stop" and c.cause != "device_not_listed"}.values():
        with pytest.MonkeyPatch.context() as patch:
            await fail(cell, patch)
        emulator.configure("devices=default")
asyncio.run(main())
print(seen)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


@pytest.mark.rule("R124")
async def test_no_file_descriptor_is_left() -> None:
    """DOCA calls it NO_MEMORY; the list of descriptors cannot be read then, as that takes one."""
    async with aiodocadma.open_dma(library="emulator"):
        pass  # all that has to be loaded is
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, limits[1]))
    taken: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        with pytest.raises(DocaNoMemoryError) as caught:
            await aiodocadma.open_dma(library="emulator").__aenter__()
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    error = caught.value
    assert (error.call, error.cause_name, error.layer) == ("doca_pe_create", "too_many_files", "runtime")
    assert "(RLIMIT_NOFILE is 512, 512 are open)" in str(error)
    assert "raise the limit: 'ulimit -n'" in str(error)


@pytest.mark.rule("R34", "R98")
async def test_versions_that_disagree_are_said_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdict is formed once, when the DMA is opened, in the worker thread; an error has it from there."""
    threads: list[int] = []
    anchors = [Anchor(f"pkg-config {name}", f"/{name}.pc", raw) for name, raw in (("a", "3.0.0058"), ("b", "2.9.4005"))]

    def skewed(library: Library) -> VersionVerdict:
        threads.append(threading.get_ident())
        return verdict_of(anchors)

    monkeypatch.setattr(_engine, "verdict", skewed)
    try:
        async with aiodocadma.open_dma() as dma:
            emulator.configure("fault op=completion status=IO_FAILED count=2")
            for _ in range(2):
                with pytest.raises(DocaIoFailedError) as caught:
                    await dma.copy(b"1234", bytearray(4))
                assert caught.value.cause is not None
                assert "pkg-config b says 2.9.4005 (2.9.4 build 5), in /b.pc" in caught.value.cause
                assert caught.value.layer == "version"
    finally:
        open_library().skew = None  # libraries are never unloaded
    assert len(threads) == 1
    assert threads != [threading.get_ident()]
