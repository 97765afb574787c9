"""Each rule of DOCA DMA has a test that names it, and the table of them is up to date."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "tools/rules", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=50, check=False
    )


def test_no_row_is_missing() -> None:
    done = run("--check")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_table_is_up_to_date() -> None:
    """After a change: ``tools/rules > docs/reference/rules.md``."""
    assert run().stdout == (ROOT / "docs" / "reference" / "rules.md").read_text()
