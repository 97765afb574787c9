"""
The sample project with one bug planted at a time: its tests assert data only, the kit names the bug and its place.

``.ci/run`` runs the sample itself as an outside project, against the built wheel in a new environment.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLE = Path(__file__).parents[2] / "examples" / "downstream"
SERVICE = Path("src") / "blockstore" / "__init__.py"

# What is written in the service and what a hurried hand makes of it; a test that runs it; what the kit says, and the
# line of the service it points at.
PLANTED = {
    "lost await": (
        {"await self._dma.copy(stage[: len(data)], slot)": "self._dma.copy(stage[: len(data)], slot)"},
        "test_what_was_put_comes_back",
        "lost await: a copy() of 5 bytes was never awaited",
        "self._dma.copy(stage[: len(data)], slot)",
    ),
    "lost await of a coroutine": (
        {"await self._dma.copy(stage[: len(data)], slot)": "self._dma.copy_coroutine(stage[: len(data)], slot)"},
        "test_what_was_put_comes_back",
        "lost await: copy_coroutine() was called and never awaited",
        "self._dma.copy_coroutine(stage[: len(data)], slot)",
    ),
    "buffer reused in flight": (
        {"stage = await self._free_stages.get()": "stage = self._stages[: slot.nbytes]"},
        "test_many_at_once",
        "memory written in flight: the program changed the source of a copy() of 1000 bytes before it had ended",
        "await self._dma.copy(stage[: len(data)], slot)",
    ),
    "slot read before it is written": (
        {"await self._dma.copy(stage[: len(data)], slot)": "self._dma.copy(stage[: len(data)], slot)"},
        "test_what_was_put_comes_back",
        "buffer reused in flight: a copy reads memory that a copy() of 5 bytes in flight writes",
        "await self._dma.copy(entry.slot[: entry.length], data)",
    ),
    "error ignored": (
        {"{key for key, copy in copies.items() if copy.exception() is not None}": "set[str]()"},
        "test_a_block_that_fails_harms_no_other",
        "error ignored: a copy() of 1003 bytes failed, and nobody looked: doca_task_get_status: DOCA_ERROR_IO_FAILED",
        "copies = {key: self._dma.copy(data, slots[key]) for key, data in items.items()}",
    ),
    "missing export": (
        {
            "async with await dma.import_memory(await self._arena.export()) as arena:": "if arena := self._arena:",
            "        self._arena.revoke()\n": "",
        },
        "test_the_other_side_reads_it",
        "WrongLoopError: src was registered with another DMA",
        "Register it with this one. Memory of a card's other side is exported there and imported here.",
    ),
    "task left behind": (
        {"        self._janitor.cancel()\n        await asyncio.wait([self._janitor])\n": ""},
        "test_put_many",
        r"leak: the task Task-\d+ (BlockStore._forget_expired) still runs; it waits at",
        "await self._changed.wait()",
    ),
    "map left behind": (
        {
            "        await self._arena.aclose()\n": "",
            "        self._arena = arena\n": "        self._arena = arena\n        self.arenas.append(arena)\n",
            "    def __init__(": "    arenas: list[MemoryMap] = []\n\n    def __init__(",
        },
        "test_put_many",
        "was not closed, and somebody still holds it; it was made at",
        "arena = await dma.alloc(num_blocks * block_size)",
    ),
}


def run_sample(folder: Path, *options: str) -> tuple[int, str]:
    """Run a copy of the sample's tests in a process of their own; its exit status and what pytest printed."""
    plugins = ["-p", "pytest_asyncio.plugin", "-p", "pytest_aiodocadma", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *plugins, "tests/test_blockstore.py", *options]
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    for name in ("PYTEST_ADDOPTS", "AIODOCADMA_LIBRARY"):
        environment.pop(name, None)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=50, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """A copy of the sample project."""
    return Path(shutil.copytree(SAMPLE, tmp_path / "downstream", ignore=shutil.ignore_patterns("__pycache__")))


@pytest.mark.parametrize("bug", PLANTED)
def test_planted(sample: Path, bug: str) -> None:
    changes, test, message, line = PLANTED[bug]
    service = sample / SERVICE
    text = service.read_text()
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    service.write_text(text)
    status, out = run_sample(sample, "-k", f"{test} and asyncio")
    assert status == 1, out
    wanted = re.escape(message).replace(r"\\d\+", r"\d+")
    found = re.search(wanted, out)
    assert found, out
    assert line in out[found.start() :], out
    assert re.search(r"blockstore/__init__\.py(:|\", line )\d+", out), out


def test_the_sample_as_it_is(sample: Path) -> None:
    """The tests that the bugs are planted under pass; ``.ci/run`` runs all of them from a wheel."""
    status, out = run_sample(sample)
    assert status == 0, out
    assert "16 passed, 2 skipped" in out


def test_the_sample_asserts_data_only() -> None:
    text = (SAMPLE / "tests" / "test_blockstore.py").read_text()
    asserted = re.findall(r"^\s*assert (.*)$", text, re.MULTILINE)
    assert asserted
    assert all("store.get" in one for one in asserted)
