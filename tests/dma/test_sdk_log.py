"""DOCA's own log: kept in memory, passed on to logging when asked for, never in anybody's way."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

import aiodocadma
from aiodocadma import _library, _sdk_log, emulator
from aiodocadma._sdk_log import number_of_level
from aiodocadma.exceptions import DocaIoFailedError

pytestmark = pytest.mark.usefixtures("embedded_emulator")


@pytest.fixture(autouse=True)
def quiet(embedded_emulator: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nobody has asked for the log; nothing is left in it."""
    for name in _sdk_log.ENVIRONMENT_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    log = _library.open_library("emulator").sdk_log
    log.tail()
    yield
    aiodocadma.set_sdk_log_level(None)
    log.tail()


async def fail(text: str = "completion") -> None:
    """Have DOCA something to complain about."""
    emulator.inject(emulator.Fault(text))
    async with aiodocadma.open_dma(library="emulator") as dma:
        with pytest.raises(DocaIoFailedError):
            await dma.copy(b"abc", bytearray(3))


def of_sdk(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "aiodocadma.sdk"]


@contextlib.contextmanager
def told() -> Iterator[asyncio.Event]:
    """Set when a line is passed on, in whatever thread."""
    event = asyncio.Event()
    handler = logging.Handler()
    loop = asyncio.get_running_loop()
    handler.emit = lambda record: loop.call_soon_threadsafe(event.set)  # type: ignore[method-assign]
    logger = logging.getLogger("aiodocadma.sdk")
    logger.addHandler(handler)
    try:
        yield event
    finally:
        logger.removeHandler(handler)


async def test_not_passed_on_unless_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(1, "aiodocadma.sdk"):
        await fail()
    assert of_sdk(caplog) == []
    assert any("[WRN]" in line or "[ERR]" in line for line in _library.open_library("emulator").sdk_log.tail().lines)


async def test_passed_on_with_its_level_while_the_loop_runs(caplog: pytest.LogCaptureFixture) -> None:
    aiodocadma.set_sdk_log_level("trace")
    log = _library.open_library("emulator").sdk_log
    async with aiodocadma.open_dma(library="emulator") as dma:
        with caplog.at_level(1, "aiodocadma.sdk"), told() as line:
            emulator.inject(emulator.Fault("completion"))
            with pytest.raises(DocaIoFailedError):
                await dma.copy(b"abc", bytearray(3))
            await asyncio.wait_for(line.wait(), 5)
        levels = {record.levelno: record.getMessage() for record in of_sdk(caplog)}
        for level, message in levels.items():
            assert {logging.ERROR: "[ERR]", logging.WARNING: "[WRN]", logging.INFO: "[INF]", 10: "[DBG]", 5: "[TRC]"}[
                level
            ] in message
        assert log._loops[asyncio.get_running_loop()] == 1
    assert asyncio.get_running_loop() not in log._loops


async def test_down_to_the_level_only(caplog: pytest.LogCaptureFixture) -> None:
    aiodocadma.set_sdk_log_level("CRIT")
    with caplog.at_level(1, "aiodocadma.sdk"):
        await fail()
    assert [record.getMessage() for record in of_sdk(caplog)] == []


async def test_two_dmas_share_the_reader() -> None:
    aiodocadma.set_sdk_log_level(70)
    log = _library.open_library("emulator").sdk_log
    loop = asyncio.get_running_loop()
    async with aiodocadma.open_dma(library="emulator"):
        async with aiodocadma.open_dma(library="emulator"):
            assert log._loops[loop] == 2
        assert log._loops[loop] == 1
    assert not loop.remove_reader(log.fd)


async def test_one_that_was_opened_before_the_level_was_set_takes_no_reader_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = _library.open_library("emulator").sdk_log
    earlier = aiodocadma.open_dma(library="emulator")
    await earlier.__aenter__()
    aiodocadma.set_sdk_log_level("trace")
    with caplog.at_level(1, "aiodocadma.sdk"):
        async with aiodocadma.open_dma(library="emulator") as dma:
            await earlier.__aexit__(None, None, None)
            log.tail()
            caplog.clear()
            emulator.inject(emulator.Fault("completion", fatal=False))
            with told() as line:
                with pytest.raises(DocaIoFailedError):
                    await dma.copy(b"abc", bytearray(3))
                await asyncio.wait_for(line.wait(), 5)
    assert not asyncio.get_running_loop().remove_reader(log.fd)


@pytest.mark.parametrize(
    ("given", "number"),
    [
        ("DISABLE", 10),
        ("crit", 20),
        ("critical", 20),
        ("Error", 30),
        ("ERR", 30),
        ("warn", 40),
        ("DOCA_LOG_LEVEL_WARNING", 40),
        (50, 50),
        ("60", 60),
        (" trace ", 70),
    ],
)
def test_spellings(given: str | int, number: int) -> None:
    assert number_of_level(given) == number


@pytest.mark.parametrize("bad", ["", "loud", "15", 0, -10, 80, "true"])
def test_bad_levels_are_refused_with_those_that_exist(bad: str | int) -> None:
    with pytest.raises(ValueError, match=r"WARNING \(40\)"):
        aiodocadma.set_sdk_log_level(bad)


@pytest.mark.parametrize(
    ("environment", "level"),
    [
        ({}, None),
        ({"DOCA_LOG_LEVEL": "trace"}, 70),
        ({"DOCA_LOG_LEVEL_SDK": "60"}, 60),
        ({"DOCA_LOG_LEVEL": "trace", "DOCA_LOG_LEVEL_SDK": "ERROR"}, 30),
        ({"DOCA_LOG_LEVEL": "gibberish"}, 50),
        ({"DOCA_LOG_LEVEL": ""}, None),
    ],
)
def test_the_environment(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], level: int | None) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert _sdk_log.wanted_level() == level
    aiodocadma.set_sdk_log_level("crit")
    assert _sdk_log.wanted_level() == 20  # who says it in code knows best


def test_a_full_pipe_drops_and_counts_and_never_blocks() -> None:
    """Nobody reads; a failure on every call, thousands of lines; then the count and the oldest lines are there."""
    code = """
import asyncio, logging
import aiodocadma
from aiodocadma import _library, emulator
told = []
logging.getLogger("aiodocadma.sdk").addHandler(handler := logging.Handler())
handler.emit = lambda record: told.append(record.getMessage())
aiodocadma.set_sdk_log_level("trace")
log = _library.open_library("emulator").sdk_log
log.attach = lambda loop: None  # nobody reads while the loop runs
async def main():
    emulator.inject(emulator.Fault("task_submit_ex", status="DRIVER", count=0))
    async with aiodocadma.open_dma(library="emulator", measure_latency=True) as dma:
        src, dst = await dma.alloc(8), await dma.alloc(8)
        futures = [dma.copy(src, dst) for _ in range(5000)]
        await asyncio.gather(*futures, return_exceptions=True)
asyncio.run(main())
dropped = log.dropped
lines = log.tail().lines
# A search for the cause of a failure may have read it, too.
told = [line for line in told if line.startswith("(")]
print(dropped, len(lines), sum(int(line[1:].split()[0]) for line in told), told[-1] == lines[-1], lines[-1])
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50, env=os.environ | {"PYTHONPATH": ""}
    )
    assert result.returncode == 0, result.stderr
    dropped, num_lines, told, is_last, line = result.stdout.split(maxsplit=4)
    assert int(dropped) > 1000
    assert (num_lines, told, is_last) == ("200", dropped, "True")
    assert re.fullmatch(r"\(\d+ lines? of DOCA's log left out: it came faster than it was read\)\n", line)


async def test_no_thread_and_no_reader_when_nobody_asks() -> None:
    threads = threading.active_count()
    async with aiodocadma.open_dma(library="emulator") as dma:
        await dma.copy(b"abc", bytearray(3))
        assert threading.active_count() == threads
        assert not asyncio.get_running_loop().remove_reader(_library.open_library("emulator").sdk_log.fd)


@pytest.mark.parametrize("level", [None, "off", "crit"])
def test_a_library_without_a_log_says_so_to_who_asks(level: str | None) -> None:
    """As 2.6: once, and nothing is left open for it."""
    code = f"""
import asyncio, os
import aiodocadma
from aiodocadma import _library
library = str(_library.emulator_folder() / "lib" / "libdocaemu-2.6.so")
aiodocadma.set_sdk_log_level({level!r})
async def main():
    for _ in range(2):
        async with aiodocadma.open_dma(library=library) as dma:
            await dma.copy(b"abc", bytearray(3))
            log = _library.open_library(library).sdk_log
            assert log.tail().unreadable and not log.tail().lines and log.dropped == 0
asyncio.run(main())
print(sum("/pipe:" in os.path.realpath(f"/proc/self/fd/{{fd}}") for fd in os.listdir("/proc/self/fd")))
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50, stdin=subprocess.DEVNULL
    )
    assert result.stdout == "2\n"  # ours: stdout and stderr
    asked = level == "crit"
    assert result.stderr == asked * "this DOCA does not offer its log: DOCA_ERROR_NOT_SUPPORTED\n"
