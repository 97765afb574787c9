"""Numbers on the command line: each has its limits, and a wrong one is told by name before anything is done."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from aiodocadma.cli import main

from .conftest import Run, listing, one_line

NOT_WHOLE = ("", "0", "-1", "1.5", "1e3", "1_000", " 7", "\u0663", "nan", "inf", "x", "9" * 5000)
NOT_SIZES = (*NOT_WHOLE, "K", "1T", "1KK", "8589934592G")
NOT_COUNTS = (*NOT_WHOLE, "1K", "65537", "99999999999")
NOT_SECONDS = ("", "-1", "-0.001", "nan", "inf", "-inf", "1e10", "x")
NOT_INTERVALS = (*NOT_SECONDS, "0", "0.049")
NOT_USERS = ("", "-1", "no such user", "4294967295", "99999999999999999999")

WRONG = [
    *(("copy a b", "--block-size", "must be from 1 to 8589934591G bytes", text) for text in NOT_SIZES),
    *(("bench", "--sizes", "must be from 1 to 8589934591G bytes", text) for text in NOT_SIZES),
    *(("copy a b", "--blocks", "must be a whole number from 1 to 65536", text) for text in NOT_COUNTS),
    *(("bench", "--depths", "must be a whole number from 1 to 65536", text) for text in NOT_COUNTS),
    *(("bench", "--seconds", "must be from 0 to 1000000000 seconds", text) for text in NOT_SECONDS),
    *(("pull unix:x a b", "--wait", "must be from 0 to 1000000000 seconds", text) for text in NOT_SECONDS),
    *(("top", "--interval", "must be from 0.05 to 1000000000 seconds", text) for text in NOT_INTERVALS),
    *(("publish a --listen=unix:x", "--user", "no user of this machine", text) for text in NOT_USERS),
]


@pytest.mark.parametrize(
    ("command", "option", "limits", "text"), [pytest.param(*case, id=f"{case[1]}-{case[3][:9]}") for case in WRONG]
)
def test_a_number_out_of_its_limits(
    command: str, option: str, limits: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), f"{option}={text}"])
    assert ended.value.code == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert f"argument {option}: {limits}" in error
    assert repr(text) in error


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["copy", "f", "out", "--blocks", "65536", "--block-size", "1G"], "--blocks 65536 of --block-size 1073741824"),
        (["copy", "f", "out", "--block-size", "8589934591G"], "--blocks 4 of --block-size"),
        (["pull", "unix:s", "f", "out", "--blocks", "65536", "--block-size", "1G"], "--blocks 65536"),
        (["bench", "--sizes", "64", "8589934591G", "--seconds", "0"], "--sizes 8589934591G"),
    ],
    ids=["copy", "block size", "pull", "bench"],
)
def test_more_memory_than_there_is(arguments: list[str], names: str, run: Run, tmp_path: Path) -> None:
    """Told at once, and not tried: the address space is limited only so that a try ends, too."""
    (tmp_path / "f").write_bytes(b"x")
    room = 4 << 30
    limit = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_AS, (room, room))}
    result = run(*arguments, cwd=tmp_path, **limit)
    assert (result.returncode, result.stdout) == (2, "")
    assert names in one_line(result.stderr)
    assert "of memory, and this machine has" in result.stderr
    assert listing(tmp_path) == ["f"]


def test_a_file_larger_than_memory_is_not_published(run: Run, tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"x")
    with open(tmp_path / "large", "wb") as file:
        os.truncate(file.fileno(), 1 << 42)
    result = run("publish", tmp_path / "small", tmp_path / "large", "--listen", f"unix:{tmp_path}/s")
    assert (result.returncode, result.stdout) == (1, "")
    assert f"{tmp_path}/large take 4.4 TB of memory" in one_line(result.stderr)
    assert listing(tmp_path) == ["large", "small"]
