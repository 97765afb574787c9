"""The page of what was measured is that of the reports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_is_up_to_date() -> None:
    """After a new report: ``tools/reliability > docs/reliability.md``."""
    done = subprocess.run(
        [sys.executable, "tools/reliability"], cwd=ROOT, capture_output=True, text=True, timeout=50, check=True
    )
    assert done.stdout == (ROOT / "docs" / "reliability.md").read_text()
