"""The threat model: each test it names is there, each promise has one, and each variable is in its table."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threat-model.md").read_text()
NAMED = sorted(set(re.findall(r"`(test_\w+)`", PAGE)))


@functools.cache
def present() -> frozenset[str]:
    """All tests; in C those that are called, too."""
    names: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        names |= set(re.findall(r"^(?:async )?def (test_\w+)\(", path.read_text(), re.MULTILINE))
    for path in (ROOT / "tests" / "c").glob("test_*.c"):
        text = path.read_text()
        defined = re.findall(r"^(test_\w+)\(", text, re.MULTILINE)
        names |= {name for name in defined if len(re.findall(rf"\b{name}\b", text)) > 1}
    return frozenset(names)


@pytest.mark.parametrize("name", NAMED)
def test_a_named_test_exists(name: str) -> None:
    assert name in present()


def test_each_promise_names_a_test() -> None:
    """In the tables whose last column is for that."""
    tables = re.findall(r"^\| (?:promise|bound) \| shown by \|\n\| --- \| --- \|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    rows = [row for table in tables for row in table.splitlines()]
    assert len(tables) >= 8
    assert len(rows) > 35
    for row in rows:
        assert re.search(r"`test_\w+` \|$", row), row


def test_each_variable_is_in_the_table() -> None:
    """Whatever the client or the emulator asks the environment for."""
    asked = set()
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text()
        asked |= set(re.findall(r"environ(?:ment)?(?:\.get)?[\[(]\"(\w+)\"", text))
        asked |= set(re.findall(r"\"(AIODOCADMA_[A-Z_]+)\"", text))
        if names := re.search(r"^ENVIRONMENT_VARIABLES.*= \((.*)\)", text, re.MULTILINE):
            asked |= set(re.findall(r"\"(\w+)\"", names[1]))
    for path in (ROOT / "native").rglob("*.c"):
        found = re.findall(r"(\w*getenv)\(\"(\w+)\"", path.read_text())
        assert {function for function, _ in found} <= {"secure_getenv"}, path
        asked |= {name for _, name in found}
    assert {"AIODOCADMA_LIBRARY", "DOCAEMU_CONFIG", "DOCA_LOG_LEVEL", "XDG_RUNTIME_DIR"} <= asked
    table = PAGE.partition("| variable | read by |")[2].partition("\n\n")[0]
    assert asked <= set(re.findall(r"`(\w+)`", table))
