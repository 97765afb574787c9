"""The benchmarks' own judgement: what a gate lets pass, and what `benchmarks/compare` calls a regression."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks._goals import REACHED, SLACK, Row

COMPARE = Path(__file__).parents[1] / "benchmarks" / "compare"
COUNT = Row("P1", "what", "asyncio", 90.0, 100.0, 0.9, "<=", 1.0, counted=True)
TIME = Row("P5", "rate", "asyncio", 20.0, 1.0, 20.0, ">=", 15.0)


def test_a_goal_is_met_up_to_its_bar() -> None:
    assert COUNT.passed
    assert replace(COUNT, value=1.0).passed
    assert not replace(COUNT, value=1.0001).passed
    assert TIME.passed
    assert not replace(TIME, value=14.9).passed


def test_a_gate_has_slack_and_holds_what_was_reached() -> None:
    assert COUNT.gate == pytest.approx(SLACK)
    (goal, what), reached = next(iter(REACHED.items()))
    missed = replace(COUNT, goal=goal, what=what)
    assert reached > missed.bar
    assert missed.gate == pytest.approx(reached * SLACK)


def _record(path: Path, *rows: Row, **changes: object) -> Path:
    path.write_text(json.dumps({"format": 1, "emulated": True, "rows": [row.record() for row in rows]} | changes))
    return path


def _compare(*paths: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, COMPARE, *paths], capture_output=True, text=True, timeout=30)


@pytest.mark.parametrize(
    ("after", "regressions"),
    [
        (COUNT, 0),
        (replace(COUNT, value=0.9 * 1.02), 0),
        (replace(COUNT, value=0.9 * 1.04), 1),
        (replace(COUNT, value=0.5), 0),
        (replace(TIME, value=16.0), 0),
        (replace(TIME, value=14.0), 1),
        (replace(TIME, value=99.0), 0),
    ],
)
def test_compare(tmp_path: Path, after: Row, regressions: int) -> None:
    before = _record(tmp_path / "a.json", COUNT, TIME)
    rows = [after if row.goal == after.goal else row for row in (COUNT, TIME)]
    result = _compare(before, _record(tmp_path / "b.json", *rows))
    assert result.stdout.count("REGRESSION") == regressions, result.stdout
    assert result.returncode == (1 if regressions else 0)


def test_what_does_not_compare(tmp_path: Path) -> None:
    a = _record(tmp_path / "a.json", COUNT)
    result = _compare(a, _record(tmp_path / "b.json", COUNT, emulated=False))
    assert result.returncode == 2
    assert "emulated" in result.stderr
    assert _compare(a).returncode == 2
