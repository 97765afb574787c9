"""The confusion matrix: each cause, produced on the emulator with each code and at each phase it has, is named."""

from __future__ import annotations

import subprocess
import sys

import pytest

from aiodocadma import emulator
from tests.dma.conftest import clean_emulator
from tests.faults.producing import CELLS, Cell, fail

__all__ = ["clean_emulator"]

STOPS = [cell for cell in CELLS if cell.phase == "stop"]


@pytest.mark.rule("R05", "R38", "R42", "R43", "R124", "X03", "X10", "X22")
@pytest.mark.parametrize("cell", [c for c in CELLS if c.phase != "stop"], ids=lambda c: f"{c.cause}-{c.code}-{c.phase}")
async def test_the_cause_is_named(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    error = await fail(cell, monkeypatch)
    assert (error.code, error.phase, error.cause_name) == (cell.code, cell.phase, cell.named)
    if cell.named is None:
        assert error.evidence["checked"]["sdk_log"]["unreadable"]
        return
    assert error.layer
    assert error.rule
    assert error.next_step
    assert error.device in ("mlx5_0", None)
    emulator.configure("devices=default")


@pytest.mark.rule("X11")
def test_the_cause_is_named_where_stopping_fails() -> None:
    """What fails to be destroyed stays: in one process of its own."""
    script = "import asyncio\nfrom tests.faults.producing import CELLS, stops\n"
    script += "asyncio.run(stops([cell for cell in CELLS if cell.phase == 'stop']))"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("", 0), done.stderr
    assert STOPS
