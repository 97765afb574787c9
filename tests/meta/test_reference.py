"""The reference has an entry for every public object, on one page for each public module."""

from __future__ import annotations

import re
from pathlib import Path

from .public import modules

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
# A command, whose page is command-line.md, and a table whose page is emulator-rules.md.
OTHERS = {"aiodocadma.cli", "aiodocadma.testing.conformance.rules"}


def test_each_module_has_one_page() -> None:
    shown = [name for page in FOLDER.glob("*.md") for name in re.findall(r"automodule:: (\S+)", page.read_text())]
    public = {module.__name__ for module in modules()} - OTHERS
    assert sorted(shown) == sorted(public)
