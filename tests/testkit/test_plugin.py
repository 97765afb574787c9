"""The pytest plugin in projects as its users have them, run as they run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scenarios.conftest import _modes

ASYNCIO = """
import asyncio

import pytest
import uvloop

pytestmark = pytest.mark.asyncio


def pytest_asyncio_loop_factories(config, item):
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


async def copies(dma):
    source, target = await dma.register(b"abc"), await dma.alloc(3)
    assert await dma.copy(source, target) == 3
    assert bytes(target) == b"abc"


async def test_function(dma):
    await copies(dma)


@pytest.mark.asyncio(loop_scope="class")
class TestClass:
    async def test_one(self, dma):
        await copies(dma)

    async def test_two(self, dma):
        await copies(dma)


@pytest.mark.asyncio(loop_scope="module")
async def test_module(dma):
    await copies(dma)


@pytest.mark.asyncio(loop_scope="package")
async def test_package(dma):
    await copies(dma)


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("n", range(3))
async def test_session(dma, n):
    await copies(dma)


async def test_pair(dma_pair):
    await copies(dma_pair.host)
    await copies(dma_pair.dpu)
    assert (dma_pair.host.device.name, dma_pair.dpu.device.name) == ("host", "dpu")


@pytest.mark.doca_emulator(max_buf_size=1024)
@pytest.mark.doca_emulator(engine="manual")
async def test_settings(dma, dma_emulator):
    copy = dma.copy(bytes(5000), bytearray(5000))
    await asyncio.sleep(0)
    assert not copy.done()
    assert dma_emulator.step(100) == 5
    await copy
"""

CONFTEST = """
import asyncio
import uvloop


def pytest_asyncio_loop_factories(config, item):
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
"""

ANYIO = """
import anyio
import pytest

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request):
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture
async def memory(dma):
    yield await dma.alloc(100)


async def test_copies(dma, memory):
    async with anyio.create_task_group() as group:
        for i in range(0, 100, 10):
            group.start_soon(dma.copy_coroutine, b"x" * 10, memory[i : i + 10])
    assert bytes(memory) == b"x" * 100


async def test_pair(dma_pair):
    await dma_pair.host.copy(b"abc", bytearray(3))


async def test_lost(dma, memory):
    dma.copy(b"abc", memory)
"""

MISMATCHED = """
import pytest
import pytest_asyncio


@pytest_asyncio.fixture(loop_scope="function")
async def memory(dma):
    return await dma.alloc(10)


@pytest.mark.asyncio(loop_scope="session")
async def test_mismatched(dma, memory):
    pass


def test_no_loop(dma):
    pass
"""

OPTIONS = """
import pytest

from aiodocadma import emulator
from aiodocadma.testing import Fault

pytestmark = pytest.mark.asyncio


async def test_passes(dma):
    assert await dma.copy(b"abc", bytearray(3)) == 3


@pytest.mark.doca_chaos
async def test_fails_in_chaos(dma):
    await dma.copy(b"abc", bytearray(3))
    print("events:", emulator.chaos_events())
    assert False, "on purpose"


@pytest.mark.doca_chaos(seed=77, faults=1)
async def test_chaos_that_is_given(dma):
    with pytest.raises(OSError):
        try:
            await dma.copy(b"abc", bytearray(3))
        except Exception as error:
            raise OSError from error
    assert emulator.counters().faults


async def test_fault_that_never_fires(dma, dma_faults):
    dma_faults(Fault("completion", skip=1))
    await dma.copy(b"abc", bytearray(3))


async def test_fault(dma, dma_faults):
    dma_faults(Fault("completion"))
    with pytest.raises(Exception, match="DOCA_ERROR_IO_FAILED"):
        await dma.copy(b"abc", bytearray(3))


async def test_handled_error_holds_no_maps(dma, dma_faults):
    source, target = await dma.register(b"abc"), await dma.alloc(3)
    dma_faults(Fault("completion"))
    with pytest.raises(Exception, match="DOCA_ERROR_IO_FAILED"):
        await dma.copy(source, target)


async def test_only_on_emulator(dma_emulator, dma):
    dma_emulator.counters()


async def test_failed_test_holds_its_maps(dma):
    memory = await dma.alloc(10)
    assert memory is None


@pytest.mark.bluefield
async def test_card(dma):
    assert not dma.emulated
"""


def run(folder: Path, files: dict[str, str], *options: str, **environment: str) -> str:
    """Run a project's tests; what pytest printed."""
    for name, text in files.items():
        (folder / name).write_text(text)
    # Hypothesis' plugin takes more time than the rest together.
    common = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest", f"--rootdir={folder}"]
    command = [sys.executable, "-m", "pytest", *common, *options, str(folder)]
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTEST_ADDOPTS", "AIODOCADMA_LIBRARY")}
    done = subprocess.run(
        command, cwd=folder, env=kept | environment, capture_output=True, text=True, timeout=50, check=False
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("mode", ["strict", "auto"])
def test_pytest_asyncio_in_both_modes_and_every_loop_scope(tmp_path: Path, mode: str) -> None:
    out = run(
        tmp_path,
        {"conftest.py": CONFTEST, "test_asyncio.py": ASYNCIO},
        f"--asyncio-mode={mode}",
        "-Werror::ResourceWarning",
    )
    assert re.search(r"\b20 passed", out), out
    assert " failed" not in out
    assert " error" not in out


def test_anyio_with_and_without_pytest_asyncio(tmp_path: Path) -> None:
    for options in ((), ("-p", "no:asyncio")):
        out = run(tmp_path, {"test_anyio.py": ANYIO}, *options)
        assert re.search(r"\b6 passed.*\b2 errors", out), out
        assert out.count("lost await: a copy() of 3 bytes was never awaited") >= 2


def test_xdist_and_the_seed_of_a_failure(tmp_path: Path) -> None:
    """Tests end in other processes as they do alone, and a failure in chaos comes back from its seed."""
    files = {"conftest.py": CONFTEST, "test_options.py": OPTIONS}
    out = run(tmp_path, files, "-n2", "--doca-sanitize", "-rs")
    assert re.search(r"\b4 failed, 12 passed, 2 skipped.*\b2 errors", out), out
    assert re.search("no BlueField: (no DOCA is installed|system is an emulator)", out)
    assert "1 fault of the plan did not fire" in out
    assert "Fault(op='completion', kind='fail'" in out
    assert "leak:" not in out
    assert "seed 77 " not in out
    seeds = set(re.findall(r"pytest '\S*test_fails_in_chaos\S*' --doca-chaos=(\d+)", out))
    assert len(seeds) == 2
    seed = min(seeds)
    again = [run(tmp_path, files, f"--doca-chaos={seed}", "-k", "fails_in_chaos") for _ in range(2)]
    assert all(f"seed {seed}" in one for one in again)
    events = [re.findall(r"^events: (.+)$", one, re.MULTILINE) for one in again]
    assert len(events[0]) == 2
    assert events[0] == events[1]


HELD = """
import asyncio
import functools

import pytest

import aiodocadma
from aiodocadma import emulator

open_dma = functools.partial(aiodocadma.open_dma, library="emulator", drain_timeout=0.05)


async def copies_at_once():
    emulator.reset()
    async with asyncio.timeout(5), open_dma() as dma:
        assert await dma.copy(b"abc", bytearray(3)) == 3


async def test_fails_1():
    emulator.hold()
    async with open_dma() as dma:
        copy = dma.copy(b"abc", bytearray(3))
        raise ValueError("a plain one")


async def test_copies_1():
    await copies_at_once()


async def test_fails_2(dma_emulator):
    dma_emulator.configure(engine="manual")
    dma = await open_dma().__aenter__()
    copy = dma.copy(b"abc", bytearray(3))
    try:
        raise ValueError("its cause")
    except ValueError as error:
        raise ExceptionGroup("a group", [OSError("in a group")]) from error


async def test_copies_2(dma):
    await dma.copy(b"abc", bytearray(3))


async def test_fails_3(dma):
    emulator.hold()
    await asyncio.wait([dma.copy(b"abc", bytearray(3))], timeout=0)
    raise ValueError("with the fixture")


async def test_copies_3():
    await copies_at_once()


@pytest.fixture
async def broken():
    async with open_dma() as dma:
        yield dma
        emulator.hold()
        copy = dma.copy(b"abc", bytearray(3))


async def test_fails_4(broken):
    pass  # and its end raises


async def test_copies_4():
    await copies_at_once()
"""


def test_what_fails_with_a_copy_held_leaves_the_next_one_alone(tmp_path: Path) -> None:
    """The failures are told, and nothing else fails: neither behind them nor at the end of the process."""
    files = {"conftest.py": CONFTEST, "test_held.py": HELD}
    out = run(tmp_path, files, "--asyncio-mode=auto", "-Werror::ResourceWarning", "-rA", "--timeout=20")
    told = sorted(re.findall(r"^(PASSED|FAILED|ERROR) \S+::test_(\w+)\[asyncio\]", out, re.MULTILINE))
    assert told == [
        ("ERROR", "fails_3"),  # the copy that is still pending
        ("ERROR", "fails_4"),
        *(("FAILED", f"fails_{n}") for n in (1, 2, 3)),
        *(("PASSED", name) for name in ("copies_1", "copies_2", "copies_3", "copies_4", "fails_4")),
    ], out
    for failure in ("a plain one", "its cause", "in a group", "with the fixture", "still holds 1 task after 0.05 s"):
        assert failure in out


def test_a_mismatch_says_what_to_set(tmp_path: Path) -> None:
    out = run(tmp_path, {"test_mismatched.py": MISMATCHED})
    assert "WrongLoopError" in out
    assert "Under pytest-asyncio give the fixture and the test the same loop_scope" in out
    assert (
        "the fixture dma needs an async test that pytest-asyncio or anyio's plugin runs: set asyncio_mode=auto" in out
    )


def test_another_library(tmp_path: Path) -> None:
    """The flavour of an old release is an emulator; the system has none here, or one that is no emulator."""
    files = {"test_options.py": OPTIONS}
    old = _modes()["selective"].library
    out = run(tmp_path, files, f"--doca={old}", "-k", "passes or only_on or card", "-rs")
    assert re.search(r"\b2 passed, 1 skipped", out), out
    assert f"no BlueField: {old} is an emulator" in out
    out = run(tmp_path, files, "-k", "card", "-rs", LD_LIBRARY_PATH=str(Path(old).parents[1] / "dropin"))
    assert re.search(r"\b1 skipped", out), out
    assert "no BlueField: system is an emulator" in out
    out = run(tmp_path, files, "--doca=/nowhere/libdoca_common.so", "-k", "passes or only_on or card", "-rs")
    assert re.search(r"\b2 skipped.*\b1 error", out), out
    assert "needs the emulator, and this test runs on /nowhere/libdoca_common.so" in out


@pytest.mark.parametrize("seed", ["abc", f"{2**64}"])
def test_a_seed_that_is_none_is_told_once(tmp_path: Path, seed: str) -> None:
    out = run(tmp_path, {"test_options.py": OPTIONS}, f"--doca-chaos={seed}")
    assert f"ERROR: --doca-chaos: a seed is random or a number from 1 to 2**64 - 1, not {seed!r}" in out
    assert "Traceback" not in out


MARKED = """
import pytest

from aiodocadma import emulator

pytestmark = pytest.mark.asyncio


@pytest.mark.doca_chaos(77)
async def test_seed(dma):
    await dma.copy(b"abc", bytearray(3))
    print("events:", emulator.chaos_events())


@pytest.mark.doca_chaos(0)
async def test_no_seed(dma):
    pass


@pytest.mark.doca_chaos(seed=1, fault=20)
async def test_misspelt(dma):
    pass


@pytest.mark.doca_emulator("max_buf_size=1024")
async def test_text(dma):
    assert dma.capabilities.max_buf_size == 1024
"""


def test_markers_take_their_arguments_as_they_are_declared(tmp_path: Path) -> None:
    """By position, too; what means nothing is told, and no other seed is drawn for it."""
    outs = [run(tmp_path, {"test_marked.py": MARKED}, "-rP") for _ in range(2)]
    assert re.search(r"\b2 passed.*\b2 errors", outs[0]), outs[0]
    assert "seed must be between 1 and" in outs[0]
    assert "got an unexpected keyword argument 'fault'" in outs[0]
    events = [re.findall(r"^events: (.+)$", out, re.MULTILINE) for out in outs]
    assert len(events[0]) == 1
    assert events[0] == events[1]


LIGHT = """
import sys
before = set(sys.modules)
import pytest
import pytest_asyncio.plugin
with_pytest = set(sys.modules)
import pytest_aiodocadma, pytest_aiodocadma._asyncio
print(sorted(set(sys.modules) - with_pytest))
"""


def test_a_run_that_does_not_use_it_imports_nothing(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, timeout=50, check=True)
    assert done.stdout.strip() == "['pytest_aiodocadma', 'pytest_aiodocadma._asyncio']"
    looks = "import sys\ndef pytest_unconfigure():\n    print('heavy:', {'aiodocadma', 'cffi'} & set(sys.modules))\n"
    out = run(tmp_path, {"conftest.py": looks, "test_plain.py": "def test_plain():\n    pass\n"})
    assert "1 passed" in out
    assert "heavy: set()" in out
