"""The socket for ``top``, and flight records in files."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import stat
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

import aiodocadma
from aiodocadma import emulator, live
from aiodocadma.exceptions import DocaIoFailedError, EngineLostError
from tests.dma.conftest import no_thread, turns, until


async def ask(path: Path) -> dict[str, Any]:
    reader, writer = await asyncio.open_unix_connection(path, limit=1 << 22)
    writer.write(b"\n")
    answer = json.loads(await reader.readline())
    writer.close()
    await writer.wait_closed()
    assert isinstance(answer, dict)
    return answer


async def hung_up(reader: asyncio.StreamReader) -> None:
    """Wait until the other side ends the connection, in whatever way."""
    with contextlib.suppress(ConnectionError):
        while await reader.read(1 << 16):
            pass


async def test_only_this_user_can_connect_and_nothing_stays(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    async with live.serve(path):  # uvloop keeps an fd from the first time on
        await ask(path)
    before = len(os.listdir("/proc/self/fd"))
    async with live.serve(path) as place:
        assert place == path
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert (await ask(path))["dmas"] == []
    assert os.listdir(tmp_path) == []
    await turns()
    assert len(os.listdir("/proc/self/fd")) == before


async def test_others_are_not_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel says who they are; here, that we are somebody else."""
    async with live.serve(tmp_path / "socket") as path:
        monkeypatch.setattr(live.os, "geteuid", lambda: 4711)
        monkeypatch.setattr(live, "ROOT", 4712)
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"\n")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readuntil()
        writer.close()


async def test_each_line_is_answered_with_this_loops_dmas(tmp_path: Path, held_dma: aiodocadma.DMA) -> None:
    async with live.serve(tmp_path / "socket") as path:
        future = held_dma.copy(b"secret", bytearray(6), tag="tag" * 100)
        await turns()
        answer = await ask(path)
        assert answer["pid"] == os.getpid()
        (record,) = answer["dmas"]
        assert (record["state"], record["statistics"]["in_flight"]) == ("running", 1)
        (copy,) = record["copies"]
        assert (copy["nbytes"], copy["tag"]) == (6, ("tag" * 100)[:80])
        assert "secret" not in json.dumps(answer)
        emulator.step()
        await future


async def test_many_lookers(tmp_path: Path) -> None:
    async with live.serve(tmp_path / "socket") as path:
        lookers = [await asyncio.open_unix_connection(path) for _ in range(live.MAX_CONNECTIONS)]
        for reader, writer in lookers:
            writer.write(b"\n")
            await reader.readline()
        reader, writer = await asyncio.open_unix_connection(path)
        await hung_up(reader)  # one too many
        writer.close()
        lookers[0][1].write(b"x" * 1_000_000 + b"\n")  # what it says does not matter
        assert json.loads(await lookers[0][0].readline())["pid"] == os.getpid()
        for _, writer in lookers:
            writer.close()
            await writer.wait_closed()
        await turns(10)
        assert (await ask(path))["dmas"] == []


async def test_one_who_does_not_read_is_hung_up_on(tmp_path: Path, held_dma: aiodocadma.DMA) -> None:
    async with live.serve(tmp_path / "socket") as path:
        with socket.socket(socket.AF_UNIX) as looker:
            looker.setblocking(False)
            looker.connect(str(path))
            with pytest.raises(ConnectionError):
                for _ in range(100_000):
                    with contextlib.suppress(BlockingIOError):
                        looker.send(b"\n")
                    await asyncio.sleep(0)
        assert len((await ask(path))["dmas"]) == 1


async def test_a_looker_that_stays_does_not_hold_up_the_end(tmp_path: Path) -> None:
    async with live.serve(tmp_path / "socket") as path:
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"\n")
        await reader.readline()
    await hung_up(reader)
    writer.close()


async def test_a_cancelled_end_leaves_nothing(tmp_path: Path) -> None:
    """As when Ctrl-C comes twice, or a scope of anyio cancels each await on the way out."""
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    with anyio.CancelScope() as scope:
        async with live.serve(tmp_path / "socket") as path:
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(b"\n")
            await reader.readline()
            scope.cancel()
    assert os.listdir(tmp_path) == []
    await hung_up(reader)
    writer.close()
    await turns()
    assert problems == []


async def test_what_a_dead_process_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    async with live.serve(path):
        assert (await ask(path))["dmas"] == []
        with pytest.raises(OSError, match="in use"):
            async with live.serve(path):
                pass
        assert (await ask(path))["dmas"] == []


async def test_what_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(OSError, match="in use"):
        async with live.serve(path):
            pass
    assert path.read_text() == "mine"


async def test_what_took_its_place_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with live.serve(path):
        path.unlink()
        path.write_text("mine")
    assert path.read_text() == "mine"
    async with live.serve(tmp_path / "t"):
        (tmp_path / "t").unlink()


async def test_the_default_folder_must_be_ours_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    async with live.serve() as path:
        assert path == tmp_path / "aiodocadma" / f"{os.getpid()}.sock"
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.parent.chmod(0o777)
    with pytest.raises(PermissionError, match="not a folder of this user's alone"):
        async with live.serve():
            pass


# ---- flight records in files


async def fail_one(dma: aiodocadma.DMA) -> None:
    emulator.inject(emulator.Fault("completion"))
    with pytest.raises(DocaIoFailedError):
        await dma.copy(b"abcde", bytearray(5), tag="the bad one")
    await until(lambda: dma.state is aiodocadma.DMAState.RUNNING, "the restart")


def written(folder: Path) -> list[dict[str, Any]]:
    """The records there, whole ones only."""
    found = []
    for path in sorted(folder.glob("aiodocadma-flight-*.json")):
        if (text := path.read_text()).endswith("}\n"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            found.append(json.loads(text))
    return found


async def test_a_failure_is_written_down_once_a_minute(tmp_path: Path) -> None:
    async with aiodocadma.open_dma(flight_dir=tmp_path / "flight") as dma:
        await fail_one(dma)
        await until(lambda: written(tmp_path / "flight"), "the record")
        await fail_one(dma)
        await turns()
    (record,) = written(tmp_path / "flight")
    assert record["reason"] == "a task of 5 bytes failed: IO_FAILED (complete)"
    assert record["statistics"]["failed"] == {"IO_FAILED": 1}
    assert "channel RUNNING to FAILING" in [event["text"] for event in record["events"]]


async def test_a_stall_is_written_down_with_who_waits(tmp_path: Path) -> None:
    emulator.configure(engine="manual")
    async with aiodocadma.open_dma(flight_dir=tmp_path, stall_timeout=0.01) as dma:
        future = dma.copy(b"abc", bytearray(3), tag=7)
        waiting = asyncio.create_task(asyncio.wait([future]), name="the one who waits")
        await until(lambda: written(tmp_path), "the record")
        emulator.step()
        await waiting
    (record,) = written(tmp_path)
    assert record["reason"] == "nothing ended for long: the engine is silent"
    assert [(copy["tag"], copy["tasks"]) for copy in record["copies"]] == [("7", ["the one who waits"])]


async def test_nothing_is_written_unless_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with aiodocadma.open_dma() as dma:
        await fail_one(dma)
    assert os.listdir(tmp_path) == []


async def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    async with aiodocadma.open_dma(flight_dir=tmp_path / "file") as dma:
        await fail_one(dma)
        await until(lambda: "the flight record could not be written" in caplog.text, "the warning")


class _Unspeakable:
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize("trouble", ["the tag has no words", "no thread can be had"])
async def test_a_record_that_cannot_be_made_keeps_nobody_waiting(
    trouble: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is lost: those that wait are told so, whether or not that can be written down."""
    emulator.configure(engine="manual")
    opened = aiodocadma.open_dma(flight_dir=tmp_path, num_tasks=2, drain_timeout=0.02)
    dma = await opened.__aenter__()
    failing = dma.copy(b"abc", bytearray(3))
    await turns()
    emulator.hold()
    tag = _Unspeakable() if trouble == "the tag has no words" else None
    others = [dma.copy(b"abc", bytearray(3), tag=tag) for _ in range(3)]  # one with the engine, two wait
    await turns()
    assert emulator.complete(emulator.last_copies(2)[1].dst, code=17)
    with monkeypatch.context() as patch:
        if tag is None:
            patch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(DocaIoFailedError):
            await failing
        await asyncio.wait(others, timeout=5)
    ended = [type(other.exception()) for other in others if other.done()]
    emulator.hold(False)
    emulator.release()
    await until(lambda: (emulator.step(), emulator.live_objects().in_flight == 0)[1], "the engine to let go")
    await asyncio.wait(others)
    await opened.__aexit__(None, None, None)
    assert ended == [EngineLostError] * 3


@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGUSR2, "SIGUSR2"), (signal.SIGRTMIN + 3, f"{signal.SIGRTMIN + 3}")], ids=str
)
async def test_on_a_signal(tmp_path: Path, number: int, name: str) -> None:
    """Also on one that has no name."""
    async with aiodocadma.open_dma() as first, aiodocadma.open_dma() as second:
        live.dump_on_signal(tmp_path, number)
        os.kill(os.getpid(), number)
        await until(lambda: len(written(tmp_path)) == 2, "the records")
        asyncio.get_running_loop().remove_signal_handler(number)
        assert {record["number"] for record in written(tmp_path)} == {first._number, second._number}
        assert {record["reason"] for record in written(tmp_path)} == {f"signal {name}"}
