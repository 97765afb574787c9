"""The examples run and print what their header says."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_prints_what_it_says(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    assert docstring is not None
    _, _, expected = docstring.partition("\nPrints:\n")
    assert expected, "the header has no 'Prints:'"
    result = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=50)
    assert result.stderr == ""
    assert result.stdout.strip() == textwrap.dedent(expected).strip()
    assert result.returncode == 0


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_is_short_and_has_a_main(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") < 60
    assert "main()" in text
