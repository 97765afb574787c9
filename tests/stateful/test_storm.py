"""The storm of cancels between guard pages, in a process of its own: a stray access is a crash of that one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("storm.py")


def run(engine: str, loop: str, copies: int, seed: int, limit: float) -> None:
    options = [f"--engine={engine}", f"--loop={loop}", f"--copies={copies}", f"--seed={seed}"]
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(PROGRAM), *options],
        capture_output=True,
        text=True,
        timeout=limit,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"{options}\n{done.stdout}\n{done.stderr}"
    finished, cancelled = (int(done.stdout.split()[i]) for i in (0, 2))
    assert finished + cancelled == copies
    assert cancelled > copies // 4  # of the half that was to be, some were faster


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("engine", ["default", "worker"])
def test_storm(engine: str, loop: str) -> None:
    run(engine, loop, copies=1000, seed=1, limit=50)


@pytest.mark.deep
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("engine", ["default", "worker"])
def test_storm_deep(engine: str, loop: str, seed: int) -> None:
    """Also under the address sanitizer, when the interpreter that runs this has it preloaded."""
    run(engine, loop, copies=10_000, seed=seed, limit=800)
