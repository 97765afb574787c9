"""Each rule has its tests, and the table of them is up to date."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*command: str) -> str:
    result = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=50)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_each_rule_has_a_c_test() -> None:
    run("tests/c/rows.py")


def test_the_table_is_up_to_date() -> None:
    """After a change: ``tools/emulator-rules > docs/reference/emulator-rules.md``."""
    assert run("tools/emulator-rules") == (ROOT / "docs" / "reference" / "emulator-rules.md").read_text()
