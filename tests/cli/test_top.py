"""``aiodocadma top``, in a real terminal (tmux) and without one, looking at a service in which things go wrong."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aiodocadma.cli import _top
from aiodocadma.cli import main as run_command

HERE = Path(__file__).parent
DEADLINE = 20  # seconds until something must be seen


class Service:
    """The workload in a process of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.process = subprocess.Popen(
            [sys.executable, HERE / "workload.py", path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=HERE.parents[1],
        )
        assert self.heard() == "serving"

    def heard(self) -> str:
        """What it said."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self, command: str) -> None:
        """Have it do something, and wait until it has."""
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        assert self.heard() == command

    def end(self) -> int:
        """End it as it ends by itself."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(DEADLINE)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    running = Service(tmp_path / "service.sock")
    yield running
    running.process.kill()
    running.process.wait()
    for pipe in (running.process.stdin, running.process.stdout):
        assert pipe is not None
        pipe.close()


def top(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run the command in this process: its code, stdout and stderr."""
    code = run_command(["top", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def once(capsys: pytest.CaptureFixture[str], path: Path) -> dict[str, Any]:
    code, out, _ = top(capsys, str(path), "--once", "--json", "--interval", "0.1")
    assert code == 0
    (record,) = json.loads(out)["dmas"]
    assert isinstance(record, dict)
    return record


def see(look: Callable[[], Any], what: str) -> Any:
    """Look until there is something, and say what is missing if there never is."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        if (seen := look()) is not None:
            return seen
        time.sleep(0.05)  # another process's clock: there is nothing to wait for
    pytest.fail(f"never seen: {what}")


# ---- without a terminal


def test_once_as_json(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    record = once(capsys, service.path)
    assert record["pid"] == service.process.pid
    assert (record["device"], record["emulated"], record["state"]) == ("mlx5_0", True, "running")
    assert record["rates"]["copies"] > 0
    assert record["rates"]["bytes"] == pytest.approx(4000 * record["rates"]["copies"])
    statistics = record["statistics"]
    assert statistics["copies_completed"] > 0
    assert statistics["latency"]["p99"] >= statistics["latency"]["p50"] > 0

    service.tell("fault")
    see(lambda: once(capsys, service.path)["statistics"]["restarts"] or None, "the restart")
    record = once(capsys, service.path)
    assert record["statistics"]["failed"] == {"IO_FAILED": 1}
    assert "a fresh context was made after a fault" in [event["text"] for event in record["events"]]

    service.tell("hold")
    see(lambda: once(capsys, service.path)["statistics"]["watchdog_hits"] > 2 or None, "the stall")
    record = once(capsys, service.path)
    stalled = [event for event in record["events"] if event["kind"] == "stalled"]
    assert stalled[0]["cause"] == "engine_silent"
    assert record["rates"] == {"copies": 0, "bytes": 0}
    assert [copy["tag"] for copy in record["copies"]] == [f"row {i}" for i in range(0, 64_000, 4000)]
    assert {tuple(copy["tasks"]) for copy in record["copies"]} == {("copying",)}
    assert len(stalled) == 1  # though the watchdog has hit more often
    service.tell("release")
    see(lambda: once(capsys, service.path)["rates"]["copies"] or None, "copies that go on")


def test_once_as_text(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = top(capsys, str(service.path), "--once", "--interval", "0.1")
    assert (code, err) == (0, "")
    header, row, *rest = out.splitlines()
    assert header.split("  ")[0] == "PID"
    assert row.startswith(f"{service.process.pid}")
    assert "mlx5_0 #0 (emulated)  running" in row
    assert "\x1b" not in out
    assert "Latest events:" in rest


def test_all_processes_of_the_user(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    code, out, err = top(capsys, "--once", "--interval", "0.1")
    assert (code, out) == (1, "")
    assert err == f"aiodocadma: no process serves in {tmp_path}/aiodocadma: it must use aiodocadma.live.serve()\n"
    (tmp_path / "aiodocadma").mkdir()
    services = [Service(tmp_path / "aiodocadma" / f"{name}.sock") for name in "ab"]
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / "aiodocadma" / "dead.sock"))
    left.close()
    code, out, err = top(capsys, "--once", "--json", "--interval", "0.1")
    assert {record["pid"] for record in json.loads(out)["dmas"]} == {one.process.pid for one in services}
    for one in services:
        assert one.end() == 0
        assert one.process.stdout is not None
        one.process.stdout.close()
    assert os.listdir(tmp_path / "aiodocadma") == ["dead.sock"]


def test_nobody_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "missing.sock"
    assert top(capsys, str(missing), "--once") == (1, "", f"aiodocadma: {missing}: no such socket\n")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
        b"[]\n",
        b"{}\n",
        b'{"version": 2, "dmas": []}\n',
    ],
    ids=["http", "binary", "deep", "list", "empty", "version"],
)
def test_somebody_else_answers(answer: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another program's socket, or another version's: told in a line."""
    path = tmp_path / "other.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            with listener.accept()[0] as connection:
                connection.recv(1)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        code, out, err = top(capsys, str(path), "--once")
        thread.join()
    assert (code, out) == (1, "")
    assert err == "aiodocadma: other.sock: it answers what this version of aiodocadma does not know\n"


def test_what_is_no_socket(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (tmp_path, tmp_path / "file"):
        path.touch()
        assert top(capsys, str(path), "--once") == (1, "", f"aiodocadma: {path}: no such socket\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_a_socket_of_another_user(service: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    os.seteuid(65534)
    try:
        seen = top(capsys, str(service.path), "--once")
    finally:
        os.seteuid(0)
    assert seen == (1, "", "aiodocadma: service.sock: Permission denied\n")


def test_a_blocked_loop_is_told(
    service: Service, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_top, "ANSWER_TIMEOUT", 0.2)
    service.process.send_signal(signal.SIGSTOP)
    code, _, err = top(capsys, str(service.path), "--once")
    service.process.send_signal(signal.SIGCONT)
    assert code == 1
    assert "no answer within 0.2 s: its event loop is blocked" in err


def test_usage(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert top(capsys, "--json")[0] == 2
    code, _, err = top(capsys, str(tmp_path / "x"))
    assert (code, err) == (2, "aiodocadma: the live view needs a terminal; use --once\n")


# ---- in a terminal


class Terminal:
    """A tmux server of our own, with the live view in its only window."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._socket = str(folder / "tmux")
        command = f"{sys.executable} -m aiodocadma top --interval 0.2 {' '.join(arguments)}; echo ended: $?; read x"
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", "130", "-y", "40", command)

    def _tmux(self, *arguments: str) -> str:
        return subprocess.run(
            ["tmux", "-S", self._socket, *arguments],
            check=True,
            capture_output=True,
            text=True,
            env=os.environ | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"},
        ).stdout

    def screen(self, *options: str) -> list[str]:
        """What it shows."""
        return self._tmux("capture-pane", "-p", *options).splitlines()

    def resize(self, columns: int, lines: int) -> None:
        """Make the terminal another size."""
        self._tmux("resize-window", "-x", str(columns), "-y", str(lines))

    def press(self, key: str) -> None:
        """Press a key."""
        self._tmux("send-keys", key)

    def end(self) -> None:
        """Close it."""
        self._tmux("kill-server")

    def shows(self, what: str, *options: str) -> list[str]:
        """Wait until a text is to be seen."""

        def look() -> list[str] | None:
            lines = self.screen(*options)
            return lines if any(what in line for line in lines) else None

        try:
            found = see(look, what)
        except BaseException:
            print("\n".join(self.screen()))
            raise
        assert isinstance(found, list)
        return found


@pytest.fixture
def terminal(service: Service, tmp_path: Path) -> Iterator[Terminal]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    opened = Terminal(tmp_path, str(service.path))
    yield opened
    opened.end()


def test_live(service: Service, terminal: Terminal) -> None:
    lines = terminal.shows("mlx5_0 #0")
    assert lines[0].startswith("aiodocadma top ")
    assert lines[2].split() == [
        *("PID", "DMA", "STATE", "COPIES/S", "BYTES/S", "IN", "FLIGHT", "WAITING", "P50", "P99"),
        *("FAILED", "RESTARTS", "STALLS"),
    ]
    # Numbers that come alive: the second look has rates.
    see(lambda: " - " not in terminal.screen()[3] or None, "rates")

    service.tell("fault")
    lines = terminal.shows("a fresh context was made after a fault")
    assert any("a task of 4000 bytes failed: IO_FAILED (complete)" in line for line in lines)
    assert any(line.split()[-2] == "1" for line in terminal.shows("mlx5_0 #0")[3:4])  # RESTARTS

    service.tell("hold")
    lines = terminal.shows("nothing ended for long: the engine is silent")
    assert any("in flight, 0 B of 4.0 kB, tag row 0, awaited by copying" in line for line in terminal.shows("row 0"))
    assert any("\x1b[31m" in line for line in terminal.shows("nothing ended", "-e"))  # in red

    terminal.resize(72, 9)
    lines = terminal.shows("STALLS")
    see(lambda: "BYTES/S" not in terminal.screen()[2] or None, "a table that fits")
    assert all(len(line) <= 72 for line in terminal.screen())
    assert "STATE" in terminal.screen()[2]
    terminal.resize(150, 45)
    terminal.shows("BYTES/S")
    terminal.shows("OLDEST COPIES UNDER WAY")
    service.tell("release")

    assert service.end() == 0
    lines = terminal.shows("service.sock: the process has ended, or serves no longer")
    assert not any("mlx5_0" in line for line in lines)
    terminal.press("q")
    lines = terminal.shows("ended: 0")
    assert not any("aiodocadma top " in line for line in lines)  # the terminal is as it was


def test_resized_between_two_looks(service: Service, tmp_path: Path) -> None:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    terminal = Terminal(tmp_path, str(service.path), "--interval", "600")
    try:
        terminal.shows("BYTES/S")
        terminal.resize(72, 20)

        def fits() -> bool | None:  # the terminal by itself would cut off the last columns
            header = terminal.screen()[2]
            return ("BYTES/S" not in header and "STALLS" in header) or None

        see(fits, "a table that fits")
        terminal.press("q")
        terminal.shows("ended: 0")
    finally:
        terminal.end()


def test_interrupted(service: Service, terminal: Terminal) -> None:
    terminal.shows("mlx5_0 #0")
    terminal.press("C-c")
    terminal.shows("ended: 130")
    terminal.shows("aiodocadma: interrupted")
