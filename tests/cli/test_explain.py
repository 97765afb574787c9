"""``aiodocadma explain`` as a process."""

from __future__ import annotations

import os

from aiodocadma._explain import explain

from .conftest import Run


def test_explains(run: Run) -> None:
    result = run("explain", "io_failed")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == explain(17) + "\n"


def test_no_such_code(run: Run) -> None:
    result = run("explain", "IO")
    assert (result.returncode, result.stdout) == (2, "")
    assert "NOT_PERMITTED" in result.stderr


def test_needs_no_library(run: Run) -> None:
    assert run("explain", "21", env=os.environ | {"AIODOCADMA_LIBRARY": "/nonexistent"}).returncode == 0
