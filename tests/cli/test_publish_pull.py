"""``aiodocadma publish`` and ``pull`` as processes: contents, interruptions and what goes on after them, exit codes."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import pty
import random
import resource
import select
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
from tests.secrets import assert_no_secret

import aiodocadma
from aiodocadma import ExportDescriptor, peer
from aiodocadma._library import open_library
from aiodocadma.cli import main

from .conftest import COMMAND, DEADLINE, Run, Start, listing, one_line

MIB = 1 << 20
SLOW = os.environ | {"DOCAEMU_CONFIG": "latency_real=10000"}  # a pull of 64 KiB takes 10 ms
SLOWLY = ("--block-size", "64K", "--blocks", "1")


class Published:
    """A running publisher."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.stderr and process.stderr.read()
        self.record = json.loads(line)
        self.address: str = self.record["address"]

    def kill(self) -> None:
        """End it as a crash does."""
        self.process.kill()
        self.process.wait(DEADLINE)


Publish = Callable[..., Published]


@pytest.fixture
def publish(start: Start, tmp_path: Path) -> Publish:
    """Publish files, by default at a Unix socket, and wait until they can be pulled."""

    def publish(*files: str | Path, listen: str = "", options: tuple[str, ...] = ()) -> Published:
        address = listen or f"unix:{tmp_path / 'socket'}"
        (tmp_path / "socket").unlink(missing_ok=True)
        return Published(start("publish", *files, "--listen", address, "--json", *options))

    return publish


@pytest.fixture
def src(tmp_path: Path) -> Path:
    """A file of ten blocks and a bit."""
    folder = tmp_path / "published"
    folder.mkdir()
    (folder / "src").write_bytes(random.Random(1).randbytes(10 * MIB + 7))
    return folder / "src"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """An empty folder."""
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def partial_name(src: Path) -> str:
    """What a kept part of a pull is called."""
    return f".aiodocadma-{hashlib.sha256(src.read_bytes()).hexdigest()}.part"


def test_files_of_many_sizes(run: Run, publish: Publish, tmp_path: Path, out: Path) -> None:
    sizes = [0, 1, 4096, MIB, MIB + 1, 3 * MIB + 3]
    for size in sizes:
        (tmp_path / f"{size}").write_bytes(random.Random(size).randbytes(size))
    published = publish(*(tmp_path / f"{size}" for size in sizes))
    assert published.record["files"] == [
        {"name": f"{size}", "bytes": size, "sha256": hashlib.sha256((tmp_path / f"{size}").read_bytes()).hexdigest()}
        for size in sizes
    ]
    for size in sizes:
        verify = ["--verify"] if size % 2 else []
        result = run("pull", published.address, f"{size}", out, "--json", *verify)
        assert (result.returncode, result.stderr) == (0, "")
        assert (out / f"{size}").read_bytes() == (tmp_path / f"{size}").read_bytes()
        record = json.loads(result.stdout)
        assert (record["bytes"], record["resumed_at"], record["verified"]) == (size, 0, True)
        assert (record["name"], record["address"]) == (f"{size}", published.address)
        assert record["emulated"] in (True, False)
    assert listing(out) == sorted(map(str, sizes))


def test_reports_are_on_stderr(run: Run, start: Start, src: Path, out: Path, tmp_path: Path) -> None:
    publisher = start("publish", src, "--listen", f"unix:{tmp_path / 'socket'}")
    result = run("pull", f"unix:{tmp_path / 'socket'}", "src", out / "dst")
    assert result.stdout == ""
    assert result.stderr.startswith(f"{out / 'dst'}: 10.5 MB in ")
    assert result.stderr.endswith("mlx5_0, verified\n")
    publisher.send_signal(signal.SIGINT)
    stdout, stderr = publisher.communicate(timeout=DEADLINE)
    address = f"unix:{tmp_path / 'socket'}"
    assert (publisher.returncode, stdout) == (130, "")
    assert stderr.splitlines() == [
        f"{address}: 1 file, 10.5 MB, until Ctrl-C; pull with",
        f"  aiodocadma pull {address} src .",
        "aiodocadma: interrupted",
    ]
    assert not (tmp_path / "socket").exists()


def test_a_file_that_is_given_twice(publish: Publish, src: Path) -> None:
    assert [file["name"] for file in publish(src, src).record["files"]] == ["src"]


def test_over_tcp(run: Run, publish: Publish, src: Path, out: Path) -> None:
    published = publish(src, listen="tcp:localhost:0")
    assert run("pull", published.address, "src", out).returncode == 0
    assert (out / "src").read_bytes() == src.read_bytes()


def test_pull_first(start: Start, publish: Publish, src: Path, out: Path, tmp_path: Path) -> None:
    """It waits for the publisher."""
    pull = start("pull", f"unix:{tmp_path / 'socket'}", "src", out)
    publish(src)
    assert pull.wait(DEADLINE) == 0
    assert (out / "src").read_bytes() == src.read_bytes()


@pytest.mark.parametrize("mode", [0o640, 0o444])
def test_modes(run: Run, publish: Publish, src: Path, out: Path, mode: int) -> None:
    """Of a new file those of the published one, less umask, as with cp; of an old one its own."""
    src.chmod(mode)
    published = publish(src)
    assert run("pull", published.address, "src", out, umask=0o027).returncode == 0
    assert stat.S_IMODE((out / "src").stat().st_mode) == mode & ~0o027
    (out / "old").write_bytes(b"old")
    (out / "old").chmod(0o604)
    assert run("pull", published.address, "src", out / "old").returncode == 0
    assert stat.S_IMODE((out / "old").stat().st_mode) == 0o604


async def test_a_name_that_leads_elsewhere(run: Run, tmp_path: Path, out: Path) -> None:
    """A publisher that is no command of ours: a name with parts of a path, and bits that give rights."""
    address = f"unix:{tmp_path}/s"
    async with (
        aiodocadma.open_dma(library="emulator") as dma,
        await dma.alloc(3) as memory,
        peer.listen(dma, address) as publisher,
    ):
        for name in ("../evil", "..", "/etc/evil"):
            await publisher.publish(name, memory, attributes={"mode": 0o7755})
        for name, code in [("../evil", 0), ("..", 1), ("/etc/evil", 0)]:
            done = await asyncio.to_thread(run, "pull", address, name, out)
            assert done.returncode == code, done.stderr
    assert listing(out) == [".._evil", "_etc_evil"]
    assert listing(tmp_path) == ["out"]
    assert stat.S_IMODE((out / ".._evil").stat().st_mode) & ~0o755 == 0


def test_to_a_pipe(run: Run, publish: Publish, src: Path) -> None:
    result = run("pull", publish(src).address, "src", "/dev/stdout", text=False)
    assert result.stdout == src.read_bytes()  # type: ignore[comparison-overlap]


# ---- interruptions


def interrupted_pull(
    start: Start, address: str, out: Path, partial: str, size: int = 256 * 1024
) -> subprocess.Popen[str]:
    """A slow pull of which some has been written, and more is to come."""
    process = start("pull", address, "src", out / "dst", *SLOWLY, env=SLOW)
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        try:
            if (out / partial).stat().st_size >= size:
                return process
        except FileNotFoundError:
            pass
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.001)
    raise AssertionError("nothing was written")


def resume(run: Run, address: str, out: Path, src: Path, at_least: int) -> None:
    """The same pull goes on where the other one ended, and leaves nothing else."""
    result = run("pull", address, "src", out / "dst", "--json")
    assert result.returncode == 0, result.stderr
    record = json.loads(result.stdout)
    assert at_least <= record["resumed_at"] < record["bytes"]
    assert (out / "dst").read_bytes() == src.read_bytes()
    assert listing(out) == ["dst"]


def test_the_publisher_is_killed(run: Run, start: Start, publish: Publish, src: Path, out: Path) -> None:
    """An error within a second; what has arrived is kept, and another publisher of the file has the rest."""
    partial = partial_name(src)
    published = publish(src)
    process = interrupted_pull(start, published.address, out, partial)
    begin = time.monotonic()
    published.kill()
    _, stderr = process.communicate(timeout=DEADLINE)
    assert time.monotonic() - begin < 1
    assert process.returncode == 1
    kept, error = stderr.splitlines()
    assert " of 10.5 MB are kept, and the same pull goes on there" in kept
    assert error.startswith("aiodocadma: src: the publisher has ended or revoked it: DOCA_ERROR_IO_FAILED")
    assert listing(out) == [partial]
    resume(run, publish(src).address, out, src, 256 * 1024)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_pull_is_interrupted(
    run: Run, start: Start, publish: Publish, src: Path, out: Path, number: signal.Signals
) -> None:
    (out / "dst").write_bytes(b"old")
    partial = partial_name(src)
    published = publish(src)
    process = interrupted_pull(start, published.address, out, partial)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=DEADLINE)
    if number != signal.SIGKILL:
        assert process.returncode == 130
        assert stderr.splitlines()[1:] == ["aiodocadma: interrupted"]
        assert "are kept" in stderr.splitlines()[0]
    assert (out / "dst").read_bytes() == b"old"
    assert listing(out) == [partial, "dst"]
    resume(run, published.address, out, src, 256 * 1024)


def test_another_file_of_the_name_is_not_resumed(
    run: Run, start: Start, publish: Publish, src: Path, out: Path
) -> None:
    partial = partial_name(src)
    published = publish(src)
    interrupted_pull(start, published.address, out, partial).kill()
    published.kill()
    src.write_bytes(random.Random(2).randbytes(10 * MIB + 7))
    result = run("pull", publish(src).address, "src", out / "dst", "--json")
    assert json.loads(result.stdout)["resumed_at"] == 0
    assert (out / "dst").read_bytes() == src.read_bytes()


def test_a_kept_part_that_was_damaged(run: Run, publish: Publish, src: Path, out: Path) -> None:
    """Found by the digest, removed, and pulled anew the next time; also one that is too long."""
    partial = partial_name(src)
    published = publish(src)
    (out / partial).write_bytes(b"x" + src.read_bytes()[1 : 2 * MIB])
    result = run("pull", published.address, "src", out / "dst")
    assert result.returncode == 1
    assert "dst: removed, SHA-256 " in one_line(result.stderr)
    assert listing(out) == []
    (out / partial).write_bytes(src.read_bytes() + b"more")
    assert run("pull", published.address, "src", out / "dst").returncode == 0
    assert (out / "dst").read_bytes() == src.read_bytes()
    assert listing(out) == ["dst"]


def test_a_full_disk(run: Run, publish: Publish, src: Path, out: Path) -> None:
    """The old file stays, what fitted is kept; with more room the same pull goes on."""
    (out / "dst").write_bytes(b"old")

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3 * MIB, 3 * MIB))

    published = publish(src)
    result = run("pull", published.address, "src", out / "dst", preexec_fn=limit)
    assert result.returncode == 1
    kept, error = result.stderr.splitlines()
    assert kept.startswith(f"aiodocadma: {out / 'dst'}: 3.1 MB of 10.5 MB are kept")
    assert error == f"aiodocadma: {out / 'dst'}: File too large"
    assert (out / "dst").read_bytes() == b"old"
    resume(run, published.address, out, src, 3 * MIB)


def test_no_space_on_a_device(run: Run, publish: Publish, src: Path) -> None:
    result = run("pull", publish(src).address, "src", "/dev/full")
    assert result.returncode == 1
    assert one_line(result.stderr) == "aiodocadma: /dev/full: No space left on device\n"


def test_two_pulls_at_once(start: Start, publish: Publish, run: Run, src: Path, out: Path) -> None:
    """The second is told; it harms nothing."""
    published = publish(src)
    first = interrupted_pull(start, published.address, out, partial_name(src))
    second = run("pull", published.address, "src", out / "dst")
    assert second.returncode == 1
    assert one_line(second.stderr) == f"aiodocadma: {out / 'dst'}: another process is writing it\n"
    first.send_signal(signal.SIGINT)
    assert first.wait(DEADLINE) == 130
    resume(run, published.address, out, src, 256 * 1024)


# ---- wrong usage


@pytest.mark.parametrize(
    "args",
    [
        ["publish"],
        ["publish", "src"],
        ["publish", "--listen", "unix:s"],
        ["publish", "src", "--listen", "s"],
        ["publish", "src", "--listen", "unix:s", "--user", "no such user"],
        ["pull"],
        ["pull", "unix:s", "src"],
        ["pull", "tcp:localhost", "src", "dst"],
        ["pull", "unix:s", "src", "dst", "--wait", "-1"],
        ["pull", "unix:s", "src", "dst", "--wait", "nan"],
        ["pull", "unix:s", "src", "dst", "--blocks", "0"],
    ],
)
def test_wrong_arguments(
    src: Path, args: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(src.parent)
    with pytest.raises(SystemExit) as exited:
        main(args)
    assert exited.value.code == 2
    assert "usage: aiodocadma p" in capsys.readouterr().err
    assert listing(src.parent) == ["src"]


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["publish", "src", "--listen", "tcp:0.0.0.0:0"], 2, "can be reached from other machines"),
        (
            ["publish", "src", "--listen", "tcp:localhost:0", "--user", "root"],
            2,
            "--user: TCP does not tell who connects",
        ),
        (["publish", "src", "src2/src", "--listen", "unix:s"], 2, "src2/src: src has the same name"),
        (["publish", "a\nb", "--listen", "unix:s"], 2, "'a\\nb': the name cannot be published"),
        (["publish", "src", "--listen", "unix:s", "--cert", "c"], 2, "--cert and --ca go together"),
        (["publish", "missing", "--listen", "unix:s"], 1, "missing: No such file or directory"),
        (["publish", "src2", "--listen", "unix:s"], 1, "src2: Is a directory"),
        (["publish", "fifo", "--listen", "unix:s"], 1, "fifo: not a regular file"),
        (["publish", "src", "--listen", "unix:src"], 1, "src: there is a file that is no socket"),
        (["publish", "src", "--listen", "unix:no/s"], 1, "unix:no/s: No such file or directory"),
        (["publish", "src", "--listen", "tcp:192.0.2.1:5", "--insecure"], 1, "tcp:192.0.2.1:5: Cannot assign"),
        (["publish", "src", "--listen", "unix:s", "--cert", "c", "--ca", "no"], 1, "no: No such file or directory"),
        (["publish", "src", "--listen", "unix:s", "--cert", "c", "--ca", "src"], 1, "src: [X509"),
        (["publish", "src", "--listen", "unix:s", "--device", "no"], 3, "no device 'no'"),
        (["publish", "src", "--listen", "unix:s", "--library", "/no"], 3, "/no"),
        (["pull", "unix:s", "src", "dst", "--device", "no"], 3, "no device 'no'"),
        (["pull", "unix:s", "src", "dst", "--wait", "0"], 1, "unix:s: nobody listens"),
        (["pull", "tcp:no.invalid:5", "src", "dst"], 1, "tcp:no.invalid:5: "),
        (["pull", "tcp:192.0.2.1:5", "src", "dst"], 2, "can be reached from other machines"),
    ],
)
def test_what_cannot_be(
    src: Path,
    args: list[str],
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(src.parent)
    (src.parent / "src2").mkdir()
    (src.parent / "src2" / "src").write_bytes(b"x")
    os.mkfifo(src.parent / "fifo")
    before = listing(src.parent)
    assert main(args) == code
    assert message in one_line(capsys.readouterr().err)
    assert listing(src.parent) == before


@pytest.mark.parametrize(
    ("name", "dst", "options", "code", "message"),
    [
        ("nope", "dst", ["--wait", "0"], 1, "'nope' is not published at unix:"),
        ("src", "missing/dst", [], 1, "missing/dst: No such file or directory"),
        ("src", "/dev/null", ["--verify"], 2, "--verify needs a regular file"),
    ],
)
def test_what_cannot_be_pulled(
    run: Run, publish: Publish, src: Path, out: Path, name: str, dst: str, options: list[str], code: int, message: str
) -> None:
    result = run("pull", publish(src).address, name, dst, *options, cwd=out)
    assert result.returncode == code
    assert message in one_line(result.stderr)
    assert listing(out) == []


def test_a_device_that_cannot_export(run: Run, src: Path) -> None:
    config = {"DOCAEMU_CONFIG": "device mlx5_0 pci=0000:03:00.0 export_pci=0"}
    result = run("publish", src, "--listen", "unix:s", cwd=src.parent, env=os.environ | config)
    assert result.returncode == 1
    assert "DOCA_ERROR_NOT_SUPPORTED" in one_line(result.stderr)


def test_help_states_the_exit_codes(run: Run) -> None:
    for command in ("publish", "pull"):
        result = run(command, "--help")
        assert result.returncode == 0
        assert "130 interrupted" in " ".join(result.stdout.split())


def test_certificates(run: Run, publish: Publish, src: Path, out: Path, tmp_path: Path) -> None:
    """Each side shows one; a stranger's is refused, and so is nobody's."""
    options = {}
    for name, authority in (("own", trustme.CA()), ("other", trustme.CA())):
        authority.cert_pem.write_to_path(tmp_path / f"{name}.ca")
        authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(tmp_path / f"{name}.pem")
        options[name] = ("--cert", str(tmp_path / f"{name}.pem"), "--ca", str(tmp_path / f"{name}.ca"))
    published = publish(src, listen="tcp:0.0.0.0:0", options=options["own"])
    address = f"tcp:localhost:{published.record['address'].rpartition(':')[2]}"
    assert run("pull", address, "src", out, *options["own"]).returncode == 0
    assert (out / "src").read_bytes() == src.read_bytes()
    mixed = ("--cert", str(tmp_path / "other.pem"), "--ca", str(tmp_path / "own.ca"))
    for wrong in (options["other"], mixed, ()):
        result = run("pull", address, "src", out / "dst", "--wait", "1", *wrong)
        assert result.returncode == 1
        one_line(result.stderr)
    assert listing(out) == ["src"]


def test_insecure_if_told(run: Run, publish: Publish, src: Path, out: Path) -> None:
    published = publish(src, listen="tcp:0.0.0.0:0", options=("--insecure",))
    port = published.record["address"].rpartition(":")[2]
    host = socket.gethostbyname(socket.gethostname())
    assert run("pull", f"tcp:{host}:{port}", "src", out, "--insecure").returncode == 0


# ---- what is shown


def test_progress_only_on_a_terminal(publish: Publish, src: Path, out: Path) -> None:
    address = publish(src).address
    terminal, stderr = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "pull", address, "src", out / "dst"], stderr=stderr, env=os.environ | {"TERM": "xterm"}
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
    assert bytes(out / "dst") + b": 10.5 MB in " in shown.splitlines()[-1]


def test_different_versions_are_shown(run: Run, publish: Publish, src: Path, out: Path) -> None:
    there = open_library().version or "unknown"
    env = {name: value for name, value in os.environ.items() if name != "AIODOCADMA_EMULATOR"}
    env["DOCAEMU_CONFIG"] = "version=2.9.0072"
    result = run("pull", publish(src).address, "src", out, "--library", "emulator", env=env)
    assert result.returncode == 0
    first = result.stderr.splitlines()[0]
    assert first == f"aiodocadma: the two sides differ: doca is 2.9.0072 here, {there} there"


LOGGING = (
    "import logging, sys; logging.basicConfig(level=logging.DEBUG); from aiodocadma.cli import main; sys.exit(main())"
)


def test_no_output_shows_a_descriptor(tmp_path: Path, src: Path, out: Path) -> None:
    """Of both commands, with --json and every log line, and when the pull fails."""
    command = [sys.executable, "-c", LOGGING]
    address = f"unix:{tmp_path / 'socket'}"
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    publisher = subprocess.Popen([*command, "publish", src, "--listen", address, "--json"], **pipes)
    shown = []
    with publisher:
        try:

            async def descriptor() -> ExportDescriptor:
                async with aiodocadma.open_dma(library="emulator") as dma, peer.connect(dma, address) as session:
                    return await session.get("src")

            secret = asyncio.run(descriptor())
            for config in (
                "",
                "fault op=completion status=IO_FAILED",
                "fault op=mmap_create_from_export status=DRIVER",
            ):
                result = subprocess.run(
                    [*command, "pull", address, "src", out, "--json"],
                    env=os.environ | {"DOCAEMU_CONFIG": config},
                    check=False,
                    timeout=DEADLINE,
                    **pipes,
                )
                assert (result.returncode == 0) == (config == "")
                shown += [result.stdout, result.stderr]
        finally:
            publisher.send_signal(signal.SIGINT)
        shown += publisher.communicate(timeout=DEADLINE)
    assert "is handed out" in "".join(shown)
    assert_no_secret("".join(shown), secret)


# ---- much


@pytest.mark.deep
@pytest.mark.timeout(300)
@pytest.mark.parametrize("size", [1 << 30, 4 << 30], ids=["1 GiB", "4 GiB"])
def test_large_files(publish: Publish, tmp_path: Path, out: Path, size: int) -> None:
    """Past 2**32 bytes, too, where the machine has the room."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    room = os.statvfs(tmp_path)
    if free < size + MIB * 512 or room.f_bavail * room.f_frsize < 2 * size + MIB * 512:
        pytest.skip("not enough free memory or disk")
    with (tmp_path / "src").open("wb") as file:
        block = random.Random(3).randbytes(MIB)
        for at in range(0, size, MIB):
            file.write(at.to_bytes(8, "little") + block[8:])
        file.write(b"the end")
    try:
        published = publish(tmp_path / "src")
        pull = [*COMMAND, "pull", published.address, "src", out / "dst", "--json"]
        assert json.loads(subprocess.run(pull, capture_output=True, check=True).stdout)["bytes"] == size + 7
        assert subprocess.run(["cmp", tmp_path / "src", out / "dst"], check=False).returncode == 0
    finally:  # pytest keeps folders
        (tmp_path / "src").unlink()
        (out / "dst").unlink(missing_ok=True)
