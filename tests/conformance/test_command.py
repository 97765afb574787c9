"""The command: what it prints, its exit status, its profile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from aiodocadma.testing.conformance import Abi, Case, Outcome, Variant, run_isolated
from aiodocadma.testing.conformance import __main__ as command

COMMAND = (sys.executable, "-m", "aiodocadma.testing.conformance")


def run(
    *arguments: str, stdout: IO[str] | int = subprocess.PIPE, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=50,
        env={**os.environ, **environment},
    )


def test_a_word_selects_cases_and_json_has_them() -> None:
    result = run("--json", "-k", "4.4.11")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert [(one["row"], one["outcome"]) for one in found] == [("4.4.11", "pass")] * 2
    assert [one["findings"] for one in found] == [{"stop_idle": "success"}, {"stop_idle": "bad_state"}]


def test_the_environment_does_not_break_a_case() -> None:
    result = run("-k", "4.3.16", "--engine", "worker", DOCAEMU_CONFIG="fault op=task_submit")
    assert result.returncode == 0, "a case resets what the environment set"


@pytest.mark.rule("R128")
def test_a_failure_gives_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "run_isolated", lambda choice, variant: Outcome("a", "4.3.16", "fail", "broken"))
    assert command.main(["-k", "4.3.16"]) == 1
    assert command.main(["--row", "4.3"]) == 2


def test_a_missing_library_gives_two(tmp_path: Path) -> None:
    result = run("--library", f"{tmp_path}/none.so")
    assert (result.returncode, result.stdout) == (2, "")
    assert "none.so" in result.stderr


def test_a_profile_that_cannot_be_written_is_told_first(tmp_path: Path) -> None:
    """Not when all cases have run, which takes minutes."""
    result = run("-k", "4.4.11", "--profile", f"{tmp_path}/none/card.conf")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.endswith(f"error: {tmp_path}/none/card.conf: No such file or directory\n")


def test_no_case_gives_two(tmp_path: Path) -> None:
    result = run("-k", "no such word", "--profile", str(tmp_path / "profile"))
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "conformance: there is no such case: see -k and --row\n"


@pytest.mark.parametrize(
    ("options", "where"),
    [(["--profile", "/dev/full"], "/dev/full"), ([], "standard output")],
    ids=["profile", "stdout"],
)
def test_a_result_that_cannot_be_written_gives_two(options: list[str], where: str) -> None:
    with open("/dev/full" if not options else os.devnull, "w") as stdout:
        result = run("-k", "4.4.11", *options, stdout=stdout)
    assert (result.returncode, result.stderr) == (2, f"conformance: {where}: No space left on device\n")


def test_interrupted() -> None:
    with subprocess.Popen([*COMMAND, "--engine", "worker"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # one case has ended
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)
    assert (process.returncode, stderr) == (130, b"conformance: interrupted\n")


def test_a_case_that_crashes_fails_alone() -> None:
    def crash(bed: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    variant = Variant(Case("test_4_1_pe_create", "4.1.pe_create", crash, ("default",), "", ()), "default", None)
    outcome = run_isolated("emulator", variant)
    assert (outcome.outcome, outcome.detail) == ("fail", "the process was killed by SIGKILL")
    json.dumps(outcome._asdict())


def test_a_folder_without_a_library_gives_two(tmp_path: Path) -> None:
    result = run("--library", str(tmp_path))
    assert (result.returncode, result.stderr) == (2, f"conformance: {tmp_path} holds no libdoca_common.so\n")


def test_the_profile_is_loaded_by_the_emulator(tmp_path: Path) -> None:
    outcomes = [
        Outcome("a", "4.4.11", "pass", findings={"stop_idle": "bad_state", "flush_status": "SHUTDOWN"}),
        Outcome("b", "4.8.first_device", "pass", findings={"max_buf_size": "1048576", "max_num_tasks": "4096"}),
        Outcome("c", "4.2.1", "pass", notes={"what the handle is": "anon_inode:[eventfd]; as on Linux"}),
    ]
    path = tmp_path / "card.conf"
    path.write_text(command.profile(outcomes, "3.2.1025"))
    code = (
        "from aiodocadma.testing.conformance import Abi\n"
        "a = Abi('emulator')\n"
        "print(a.ffi.string(a.doca_version_runtime()).decode())\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "DOCAEMU_CONFIG_FILE": str(path)},
    )
    assert (result.stdout, result.stderr) == ("3.2.1025\n", "")


def test_a_run_writes_a_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "profile"
    assert command.main(["-k", "4.6.10", "--engine", "default", "--profile", str(path)]) == 0
    assert "dst_list=" in path.read_text()
    assert "2 pass, 0 fail" in capsys.readouterr().out


def test_attributes_of_the_library_are_its_functions() -> None:
    with pytest.raises(AttributeError):
        _ = Abi("emulator").doca_no_such_call
