"""Standard streams that are full, closed, or that nobody reads: what every command does then."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import COMMAND, DEADLINE, Run, one_line

BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
UNBUFFERED = BUFFERED | {"PYTHONUNBUFFERED": "1"}


@pytest.mark.parametrize("env", [BUFFERED, UNBUFFERED], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("args", [["explain", "17"], ["devices"], ["completion", "bash"]], ids=lambda args: args[0])
def test_a_full_stdout(run: Run, args: list[str], env: dict[str, str]) -> None:
    with open("/dev/full", "w") as full:
        result = run(*args, stdout=full, env=env)
    assert result.returncode == 1
    assert one_line(result.stderr) == "aiodocadma: No space left on device\n"


def test_help_to_a_full_stdout(run: Run) -> None:
    with open("/dev/full", "w") as full:
        result = run("--help", stdout=full, env=BUFFERED)
    assert result.returncode == 1
    assert one_line(result.stderr) == "aiodocadma: No space left on device\n"


@pytest.mark.parametrize("args", [["--help"], ["explain", "17"]], ids=lambda args: args[0])
def test_nobody_reads_stdout(run: Run, args: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        result = run(*args, stdout=writer, env=BUFFERED)
    finally:
        os.close(writer)
    assert (result.returncode, result.stderr) == (1, "")


def without(*fds: int) -> Callable[[], None]:
    """For ``preexec_fn``: close them."""
    return lambda: [os.close(fd) for fd in fds] and None


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_a_copy_with_closed_streams(tmp_path: Path, closed: tuple[int, ...]) -> None:
    data = bytes(range(256)) * 5000
    (tmp_path / "src").write_bytes(data)
    # The emulator writes what is wrong with its settings to fd 2, which must not be the destination.
    result = subprocess.run(
        [*COMMAND, "copy", tmp_path / "src", tmp_path / "dst"],
        env=os.environ | {"DOCAEMU_CONFIG": "nonsense"},
        preexec_fn=without(*closed),
        stderr=None if 2 in closed else subprocess.PIPE,
        stdout=None if 1 in closed else subprocess.PIPE,
        text=True,
        timeout=DEADLINE,
    )
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "dst").read_bytes() == data
    assert not result.stdout


def test_an_error_with_a_closed_stderr_is_not_on_stdout(tmp_path: Path) -> None:
    result = subprocess.run(
        [*COMMAND, "copy", tmp_path / "none", tmp_path / "dst"],
        preexec_fn=without(2),
        stdout=subprocess.PIPE,
        timeout=DEADLINE,
    )
    assert (result.returncode, result.stdout) == (1, b"")


def test_a_full_stderr_does_not_change_the_exit_code(run: Run, tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        assert run("devices", "--library", "/none", stderr=full).returncode == 3
