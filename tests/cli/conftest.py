"""The command as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

COMMAND = (sys.executable, "-m", "aiodocadma")
DEADLINE = 30  # seconds; no command here takes more than a few

Run: TypeAlias = Callable[..., "subprocess.CompletedProcess[str]"]
Start: TypeAlias = Callable[..., "subprocess.Popen[str]"]


def listing(path: Path) -> list[str]:
    """The names in the folder: shows a temporary file that was left behind."""
    return sorted(os.listdir(path))


def one_line(stderr: str) -> str:
    """Assert that an error was one line, and return it."""
    assert stderr.startswith("aiodocadma: ")
    assert stderr.count("\n") == 1, stderr
    assert "Traceback" not in stderr
    return stderr


@pytest.fixture(scope="session")
def run() -> Run:
    """Run ``aiodocadma ARGS...`` to its end; stdout and stderr as text."""

    def run(*args: str | Path, **kwargs: Any) -> subprocess.CompletedProcess[str]:
        kwargs = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "stdin": subprocess.DEVNULL,
            "text": True,
        } | kwargs
        return subprocess.run([*COMMAND, *args], timeout=DEADLINE, **kwargs)

    return run


@pytest.fixture
def start() -> Iterator[Start]:
    """Start ``aiodocadma ARGS...``; killed at the end of the test if it still runs."""
    processes: list[subprocess.Popen[str]] = []

    def start(*args: str | Path, **kwargs: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*COMMAND, *args],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            **kwargs,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        with process:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
