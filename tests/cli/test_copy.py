"""``aiodocadma copy`` as a process: kinds of files, what is left behind, exit codes."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import random
import resource
import select
import signal
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from .conftest import COMMAND, DEADLINE, Run, Start, listing, one_line


@pytest.fixture
def src(tmp_path: Path) -> Path:
    """A file of three blocks and a bit."""
    path = tmp_path / "src"
    path.write_bytes(random.Random(1).randbytes(3 * (1 << 20) + 7))
    return path


@pytest.mark.rule("R119", "X24")
@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 1 << 20, (1 << 20) + 1, 10 * (1 << 20) + 3])
@pytest.mark.parametrize("blocks", ["1", "3"])
def test_sizes(run: Run, tmp_path: Path, size: int, blocks: str) -> None:
    data = random.Random(size).randbytes(size)
    (tmp_path / "src").write_bytes(data)
    result = run("copy", "--verify", "--json", "--blocks", blocks, tmp_path / "src", tmp_path / "dst")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "dst").read_bytes() == data
    record = json.loads(result.stdout)
    assert (record["bytes"], record["verified"]) == (size, True)
    assert record["sha256"] == hashlib.sha256(data).hexdigest()
    assert record["emulated"] in (True, False)
    assert listing(tmp_path) == ["dst", "src"]


@pytest.mark.rule("X24")
def test_small_blocks(run: Run, src: Path, tmp_path: Path) -> None:
    result = run("copy", "--block-size", "64K", src, tmp_path / "dst")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "dst").read_bytes() == src.read_bytes()


def test_report_is_on_stderr(run: Run, src: Path, tmp_path: Path) -> None:
    result = run("copy", src, tmp_path / "dst")
    assert result.stdout == ""
    assert result.stderr.startswith(f"{tmp_path / 'dst'}: 3.1 MB in ")


def test_sparse(run: Run, tmp_path: Path) -> None:
    src = tmp_path / "src"
    with src.open("wb") as file:
        file.truncate(8 << 20)
        file.seek(5 << 20)
        file.write(b"here")
    assert run("copy", src, tmp_path / "dst").returncode == 0
    assert (tmp_path / "dst").read_bytes() == src.read_bytes()


def test_proc(run: Run, tmp_path: Path) -> None:
    assert run("copy", "/proc/version", tmp_path / "dst").returncode == 0
    assert (tmp_path / "dst").read_bytes() == Path("/proc/version").read_bytes()


def test_fifo_source(start: Start, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    process = start("copy", tmp_path / "fifo", tmp_path / "dst")
    data = random.Random(2).randbytes(300_000)
    with (tmp_path / "fifo").open("wb", buffering=0) as fifo:
        for offset in range(0, len(data), 1000):
            fifo.write(data[offset : offset + 1000])
    assert process.wait(DEADLINE) == 0
    assert (tmp_path / "dst").read_bytes() == data


def test_fifo_destination(start: Start, src: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    process = start("copy", src, tmp_path / "fifo")
    assert (tmp_path / "fifo").read_bytes() == src.read_bytes()
    assert process.wait(DEADLINE) == 0
    assert stat.S_ISFIFO((tmp_path / "fifo").stat().st_mode)


def test_fifo_reader_leaves(start: Start, src: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    process = start("copy", src, tmp_path / "fifo")
    with (tmp_path / "fifo").open("rb", buffering=0) as fifo:
        fifo.read(10)
    _, stderr = process.communicate(timeout=DEADLINE)
    assert process.returncode == 1
    assert one_line(stderr) == f"aiodocadma: {tmp_path / 'fifo'}: Broken pipe\n"


def test_pipe_to_pipe(src: Path, run: Run) -> None:
    data = src.read_bytes()
    with src.open("rb") as file:
        cat = subprocess.Popen(["cat"], stdin=file, stdout=subprocess.PIPE)
    with cat:
        result = run("copy", "/dev/stdin", "/dev/stdout", stdin=cat.stdout, text=False)
    assert result.stdout == data  # type: ignore[comparison-overlap]


def test_device_destination_is_written_in_place(run: Run, src: Path) -> None:
    assert run("copy", src, "/dev/null").returncode == 0
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755, 0o444, 0o666])
@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_mode_of_a_new_file_is_that_of_cp(run: Run, tmp_path: Path, mode: int, umask: int) -> None:
    (tmp_path / "src").write_bytes(b"x")
    (tmp_path / "src").chmod(mode)
    assert run("copy", tmp_path / "src", tmp_path / "dst", umask=umask).returncode == 0
    subprocess.run(["cp", tmp_path / "src", tmp_path / "cp"], check=True, umask=umask)
    assert (tmp_path / "dst").stat().st_mode == (tmp_path / "cp").stat().st_mode


def test_existing_file_keeps_its_mode(run: Run, src: Path, tmp_path: Path) -> None:
    (tmp_path / "dst").write_bytes(b"old")
    (tmp_path / "dst").chmod(0o604)
    assert run("copy", src, tmp_path / "dst").returncode == 0
    assert stat.S_IMODE((tmp_path / "dst").stat().st_mode) == 0o604
    assert (tmp_path / "dst").read_bytes() == src.read_bytes()


def test_symbolic_link_is_followed(run: Run, src: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder/real")
    assert run("copy", src, tmp_path / "link").returncode == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "real").read_bytes() == src.read_bytes()


def test_into_a_folder(run: Run, src: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    assert run("copy", src, tmp_path / "folder").returncode == 0
    assert (tmp_path / "folder" / "src").read_bytes() == src.read_bytes()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["missing", "dst"], "missing: No such file or directory"),
        (["src", "missing/dst"], "missing/dst: No such file or directory"),
        (["folder", "dst"], "folder: Is a directory"),
        (["src", "src"], "src: source and destination are the same file"),
        (["src", "link"], "link: source and destination are the same file"),
        (["src", "missing/"], "missing/: No such file or directory"),
        (["src", "missing/."], "missing/.: No such file or directory"),
        (["src", "missing/.."], "missing/..: No such file or directory"),
        (["src", ""], "'': No such file or directory"),
        (["", "dst"], "'': No such file or directory"),
    ],
)
def test_files_that_cannot_be(run: Run, src: Path, tmp_path: Path, args: list[str], message: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("src")
    before = listing(tmp_path)
    result = run("copy", *args, cwd=tmp_path)
    assert result.returncode == 1
    assert one_line(result.stderr) == f"aiodocadma: {message}\n"
    assert listing(tmp_path) == before


def test_full_disk_leaves_the_old_file(run: Run, src: Path, tmp_path: Path) -> None:
    (tmp_path / "dst").write_bytes(b"old")

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    result = run("copy", src, tmp_path / "dst", preexec_fn=limit)
    assert result.returncode == 1
    assert one_line(result.stderr) == f"aiodocadma: {tmp_path / 'dst'}: File too large\n"
    assert listing(tmp_path) == ["dst", "src"]
    assert (tmp_path / "dst").read_bytes() == b"old"


def test_no_space_on_a_device(run: Run, src: Path) -> None:
    result = run("copy", src, "/dev/full")
    assert result.returncode == 1
    assert one_line(result.stderr) == "aiodocadma: /dev/full: No space left on device\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_leaves_nothing(start: Start, tmp_path: Path, number: signal.Signals) -> None:
    os.mkfifo(tmp_path / "fifo")
    process = start("copy", tmp_path / "fifo", tmp_path / "dst")
    with (tmp_path / "fifo").open("wb", buffering=0) as fifo:
        # Once more than a pipe holds is taken, it copies; then it waits for us.
        fifo.write(bytes(1 << 20))
        assert len(listing(tmp_path)) == 2
        process.send_signal(number)
        _, stderr = process.communicate(timeout=DEADLINE)
    assert process.returncode == 130
    assert stderr == "aiodocadma: interrupted\n"
    assert listing(tmp_path) == ["fifo"]


def test_interrupted_while_nobody_reads_the_destination(start: Start, src: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    process = start("copy", src, tmp_path / "fifo")
    with (tmp_path / "fifo").open("rb", buffering=0) as fifo:
        fifo.read(1)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=DEADLINE)
    assert (process.returncode, stderr) == (130, "aiodocadma: interrupted\n")


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["copy"],
        ["copy", "a"],
    ],
)
def test_wrong_usage(run: Run, args: list[str], tmp_path: Path) -> None:
    result = run(*args, cwd=tmp_path)
    assert result.returncode == 2
    assert "usage: aiodocadma" in result.stderr
    assert listing(tmp_path) == []


def test_verify_needs_a_regular_file(run: Run, src: Path) -> None:
    result = run("copy", "--verify", src, "/dev/null")
    assert result.returncode == 2
    assert "--verify" in one_line(result.stderr)


@pytest.mark.parametrize(
    "args", [["--library", "/nonexistent/libdoca.so"], ["--library", "emulator", "--device", "no-such-device"]]
)
def test_no_device(run: Run, src: Path, tmp_path: Path, args: list[str]) -> None:
    result = run("copy", *args, src, tmp_path / "dst")
    assert result.returncode == 3
    one_line(result.stderr)
    assert listing(tmp_path) == ["src"]


@pytest.mark.parametrize("args", [["--help"], ["copy", "--help"], ["devices", "--help"]])
def test_help_states_the_exit_codes(run: Run, args: list[str]) -> None:
    result = run(*args)
    assert result.returncode == 0
    assert "130 interrupted" in " ".join(result.stdout.split())


def test_progress_only_on_a_terminal(src: Path, tmp_path: Path) -> None:
    terminal, stderr = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "copy", src, tmp_path / "dst"], stderr=stderr, env=os.environ | {"TERM": "xterm"}
    )
    os.close(stderr)
    shown = b""
    with process:
        while select.select([terminal], [], [], DEADLINE)[0]:
            try:
                shown += os.read(terminal, 4096)
            except OSError:  # EIO: the other end is closed
                break
    os.close(terminal)
    assert process.returncode == 0
    assert b"\x1b[" in shown
    assert bytes(tmp_path / "dst") + b": 3.1 MB in " in shown.splitlines()[-1]


def test_two_at_once(start: Start, src: Path, tmp_path: Path) -> None:
    processes = [start("copy", src, tmp_path / "dst") for _ in range(3)]
    waits = [threading.Thread(target=process.communicate, kwargs={"timeout": DEADLINE}) for process in processes]
    for wait in waits:
        wait.start()
    for wait in waits:
        wait.join()
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert listing(tmp_path) == ["dst", "src"]
    assert (tmp_path / "dst").read_bytes() == src.read_bytes()
