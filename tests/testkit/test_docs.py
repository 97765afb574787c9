"""The tests that ``docs/`` shows pass, as pytest runs them; ``tests/meta`` runs the other snippets."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.snippets import snippets

CONFTEST = """
import asyncio
import builtins

import uvloop

builtins.asyncio = asyncio  # as in every snippet


def pytest_asyncio_loop_factories(config, item):
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
"""


@pytest.mark.usefixtures("embedded_emulator")
def test_the_tests_in_the_docs(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    shown = 0
    for snippet in snippets("python"):
        if tests := re.findall(r"^(?:async )?def test_", snippet.text, re.MULTILINE):
            shown += len(tests)
            (tmp_path / f"test_{snippet.path.stem}_{snippet.line}.py").write_text(snippet.text)
    assert shown > 10
    common = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    command = [sys.executable, "-m", "pytest", "-q", "--asyncio-mode=auto", "--timeout=20", *common]
    done = subprocess.run([*command, tmp_path], capture_output=True, text=True, timeout=55, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed
    assert int(passed[1]) > shown
