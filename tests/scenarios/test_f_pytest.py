"""Part F, B79: engines as fixtures of every loop scope, in a sample project that is run as its users run it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = """
import gc

import pytest
import pytest_asyncio

import aiodocadma
from aiodocadma import emulator


def engine(scope):
    @pytest_asyncio.fixture(scope=scope, loop_scope=scope)
    async def opened():
        async with aiodocadma.open_dma() as dma:
            yield dma
    return opened


function_dma = engine("function")
module_dma = engine("module")
session_dma = engine("session")


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left():
    yield
    gc.collect()
    print("live objects:", sum(emulator.live_objects()))
"""

MATCHING = """
import pytest

pytestmark = pytest.mark.asyncio


async def copies(dma):
    dst = bytearray(3)
    assert await dma.copy(b"abc", dst) == 3
    assert dst == b"abc"


@pytest.mark.parametrize("i", range(3))
async def test_function(function_dma, i):
    await copies(function_dma)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("i", range(3))
async def test_module(module_dma, i):
    await copies(module_dma)


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("i", range(3))
async def test_session(session_dma, i):
    await copies(session_dma)
"""

MISMATCHED = """
import pytest


@pytest.mark.asyncio(loop_scope="function")
async def test_mismatched(session_dma):
    await session_dma.copy(b"abc", bytearray(3))
"""

ANYIO = """
import anyio
import pytest

import aiodocadma

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
async def dma(anyio_backend):
    async with aiodocadma.open_dma() as dma:
        yield dma


async def test_anyio(dma):
    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(dma.copy_coroutine, b"abc", bytearray(3))
"""

FAILING = """
import asyncio
import pytest
from aiodocadma import emulator

pytestmark = pytest.mark.asyncio


async def test_fails_in_flight(function_dma):
    function_dma.copy(bytes(1 << 20), bytearray(1 << 20))
    assert False, "on purpose"


async def test_cancelled_in_flight(function_dma):
    function_dma.copy(bytes(1 << 20), bytearray(1 << 20))
    raise asyncio.CancelledError
"""


def run(folder: Path, *options: str, **files: str) -> str:
    """Run the sample project; what pytest printed."""
    (folder / "conftest.py").write_text(CONFTEST)
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-s", "-q", "-p", "no:cacheprovider", f"--rootdir={folder}", *options]
    done = subprocess.run([*command, str(folder)], capture_output=True, text=True, timeout=60, check=False, cwd=folder)
    return done.stdout + done.stderr


pytestmark = [pytest.mark.matrix(modes=("all",)), pytest.mark.timeout(60)]


def test_b79_loop_scopes_that_match(tmp_path: Path) -> None:
    """Engine and test of one loop scope, function, module or session, and anyio's plugin: all work, nothing is left."""
    out = run(tmp_path, matching=MATCHING, anyio=ANYIO)
    assert re.search(r"\b10 passed", out), out
    assert "live objects: 0" in out


def test_b79_loop_scopes_that_do_not_match(tmp_path: Path) -> None:
    """An engine of the session's loop in a test of its own loop: an error at once that tells which option to set."""
    out = run(tmp_path, mismatched=MISMATCHED)
    assert re.search(r"\b1 failed", out), out
    assert "WrongLoopError" in out
    assert "Under pytest-asyncio give the fixture and the test the same loop_scope" in out
    assert "live objects: 0" in out


def test_b79_teardown_after_a_failed_test(tmp_path: Path) -> None:
    """Tests that fail or are cancelled with a copy in flight: the fixture closes the engine, nothing is left."""
    out = run(tmp_path, failing=FAILING)
    assert re.search(r"\b2 failed", out), out
    assert "live objects: 0" in out


def test_b79_four_workers_of_xdist(tmp_path: Path) -> None:
    """With ``-n 4``, tests of all scopes spread over four processes: each works by itself."""
    pytest.importorskip("xdist")
    files = {f"matching_{i}": MATCHING for i in range(4)}
    out = run(tmp_path, "-p", "xdist", "-n", "4", **files)
    assert re.search(r"\b36 passed", out), out
