"""``aiodocadma doctor`` as a process, on the machine that runs the tests."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from resource import RLIMIT_FSIZE, setrlimit

import pytest

from aiodocadma._library import open_library

from ..doctor.test_trees import validate
from .conftest import Run


@pytest.mark.rule("R102")
def test_json_and_exit_status(run: Run) -> None:
    result = run("doctor", "--json")
    env = json.loads(result.stdout)
    validate(env, "env")
    assert result.returncode == (env["x_aiodocadma"]["lowest_failing_layer"] or 0)
    assert result.stderr == ""


def test_takes_less_than_two_seconds(run: Run) -> None:
    """The best of three: other tests may run beside this one."""

    def seconds() -> float:
        start = time.perf_counter()
        run("doctor")
        return time.perf_counter() - start

    assert min(seconds() for _ in range(3)) < 2


@pytest.mark.rule("R71", "R108")
def test_text_says_the_version_and_how(run: Run) -> None:
    result = run("doctor")
    first = result.stdout.splitlines()[0]
    assert f"DOCA {open_library().version or 'of unknown version'} " in first
    assert "manual chain" in first
    assert "\x1b" not in result.stdout
    for line in ("1 install", "2 version", "3 build", "4 link", "5 runtime", "6 program", "7 driver"):
        assert f"\n{line}\n" in result.stdout


def test_asked_for_the_emulator_nothing_is_missing(run: Run) -> None:
    env = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    result = run("doctor", "--library", "emulator", "--json", env=env)
    checks = json.loads(result.stdout)["x_aiodocadma"]["checks"]
    assert not [check for check in checks if check["status"] == "fail" and check["layer"] < 5]


def test_a_library_that_cannot_be_loaded(run: Run) -> None:
    result = run("doctor", "--library", "/nonexistent/libdoca_common.so")
    assert result.returncode in range(1, 6)
    assert "/nonexistent/libdoca_common.so: cannot open shared object file" in result.stdout


def test_bundle(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    status = run("doctor", "--json").returncode
    result = run("doctor", "--bundle", folder)
    assert result.returncode == status
    assert str(folder) in result.stderr
    validate(json.loads((folder / "devices" / "env.json").read_text()), "env")
    again = run("doctor", "--bundle", folder)
    assert (again.returncode, again.stderr) == (8, f"aiodocadma: {folder}: File exists\n")
    nowhere = run("doctor", "--bundle", "")
    assert (nowhere.returncode, nowhere.stderr) == (8, "aiodocadma: '': No such file or directory\n")


def test_no_bundle_in_part(run: Run, tmp_path: Path) -> None:
    """As on a full disk: what does not fit any more is the file that is written last, or one before."""
    folder = tmp_path / "bundle"
    status = run("doctor", "--json").returncode
    for room in (0, 100, 2000):
        result = run("doctor", "--bundle", folder, preexec_fn=lambda room=room: setrlimit(RLIMIT_FSIZE, (room, room)))
        assert (result.returncode, result.stderr) == (8, f"aiodocadma: {folder}: File too large\n"), room
        assert not os.listdir(tmp_path)
    assert run("doctor", "--bundle", f"{folder}/").returncode == status  # as a shell completes it
    assert os.listdir(tmp_path) == ["bundle"]
