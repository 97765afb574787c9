"""The pages of the errors are what ``aiodocadma explain`` says; their programs are run as all snippets are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_pages_are_up_to_date() -> None:
    """After a change: ``tools/error-pages``."""
    done = subprocess.run(
        [sys.executable, "tools/error-pages", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=50
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_each_has_a_reproduction() -> None:
    pages = [path for path in (ROOT / "docs" / "reference" / "errors").glob("*.md") if path.name != "index.md"]
    assert len(pages) == 31
    assert all(path.read_text().count("```python\n") == 1 for path in pages)
