"""The reference has an entry for every public object, on one page for each public module."""

from __future__ import annotations

import operator
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import aiodocadma

from .public import modules

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
# A command, whose page is command-line.md, and a table, whose page is emulator-rules.md.
OTHERS = {"aiodocadma.cli", "aiodocadma.testing.conformance.rules"}
PAGES = "".join(page.read_text() for page in FOLDER.glob("*.md"))
PUBLIC: list[ModuleType] = [module for module in modules() if module.__all__ and module.__name__ not in OTHERS]


def named(dotted: str) -> Any:
    """The object that a directive names."""
    return operator.attrgetter(dotted.removeprefix("aiodocadma."))(aiodocadma)


def test_each_module_has_one_page() -> None:
    shown = re.findall(r"automodule:: (\S+)", PAGES)
    assert sorted(shown) == sorted(module.__name__ for module in PUBLIC)


def test_each_object_has_an_entry() -> None:
    shown = [named(dotted) for dotted in re.findall(r"auto(?:class|function|data):: (\S+)", PAGES)]
    for module in PUBLIC:
        if re.search(rf"automodule:: {re.escape(module.__name__)}\n +:members:\n", PAGES):
            shown += [getattr(module, name) for name in module.__all__]
    entries = {id(value) for value in shown}
    public = [(module, name) for module in PUBLIC for name in module.__all__ if name != "__version__"]
    assert not [f"{module.__name__}.{name}" for module, name in public if id(getattr(module, name)) not in entries]
