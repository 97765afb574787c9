"""``aiodocadma top``: what the DMAs of running processes do, asked over the sockets of ``aiodocadma.live.serve()``."""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from aiodocadma.cli._exit import Exit, ExitCode
from aiodocadma.cli._look import format_bytes, format_count, format_seconds, table
from aiodocadma.cli._options import Commands, add_command, seconds

__all__ = ["Connection", "Screen", "show_top"]

DEFAULT_INTERVAL: Final = 1.0  # seconds
LEAST_INTERVAL: Final = 0.05  # seconds: looking costs those who are looked at
ANSWER_TIMEOUT: Final = 2.0  # seconds: a loop that is blocked longer shows as such
HEADER: Final = (
    "pid",
    "dma",
    "state",
    "copies/s",
    "bytes/s",
    "in flight",
    "waiting",
    "p50",
    "p99",
    "failed",
    "restarts",
    "stalls",
)
NUMBERS: Final = HEADER[3:]
DROPPED: Final = (
    "p50",
    "pid",
    "bytes/s",
    "restarts",
    "p99",
    "failed",
    "waiting",
    "in flight",
    "stalls",
)  # where there is no room, in this order
MAX_LINES: Final = 8  # of copies, and of events


class Connection:
    """
    One process that is looked at.

    Args:
        path: Of its socket.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.trouble: str | None = None
        self._socket: socket.socket | None = None
        self._rest = b""
        self._before: dict[int, dict[str, Any]] = {}

    def close(self) -> None:
        """Hang up."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def look(self) -> list[dict[str, Any]]:
        """
        Ask once.

        Returns:
            One record for each DMA, with ``rates``: of copies and bytes per second since the last look, None at first.
            Empty if the process does not answer; then ``trouble`` says why.
        """
        try:
            records = self._ask()
        except TimeoutError:
            self.trouble = f"no answer within {ANSWER_TIMEOUT:g} s: its event loop is blocked"
        except (ConnectionError, FileNotFoundError, EOFError):
            self.trouble = "the process has ended, or serves no longer"
        except OSError as error:
            self.trouble = error.strerror or str(error)
        except (KeyError, TypeError, ValueError, RecursionError):
            self.trouble = "it answers what this version of aiodocadma does not know"
        else:
            self.trouble = None
            for record in records:
                record["rates"] = self._rates(record)
            self._before = {record["number"]: record for record in records}
            return records
        self.close()
        return []

    def _ask(self) -> list[dict[str, Any]]:
        if self._socket is None:
            self._rest = b""
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.settimeout(ANSWER_TIMEOUT)
            self._socket.connect(str(self.path))
        self._socket.sendall(b"\n")
        while b"\n" not in self._rest:
            data = self._socket.recv(1 << 16)
            if not data:
                raise EOFError
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if answer["version"] != _version():
            raise ValueError
        return list(answer["dmas"])

    def _rates(self, record: dict[str, Any]) -> dict[str, float] | None:
        before = self._before.get(record["number"])
        if before is None or record["monotonic"] <= before["monotonic"]:
            return None
        seconds = record["monotonic"] - before["monotonic"]
        now, then = record["statistics"], before["statistics"]
        return {
            "copies": (now["copies_completed"] - then["copies_completed"]) / seconds,
            "bytes": (now["bytes_completed"] - then["bytes_completed"]) / seconds,
        }


class Screen:
    """
    What is shown of several processes.

    Args:
        path: The one socket to look at; None for all that are in the default folder, which may come and go.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._connections: dict[Path, Connection] = {}

    def close(self) -> None:
        """Hang up everywhere."""
        for connection in self._connections.values():
            connection.close()

    def look(self) -> list[dict[str, Any]]:
        """
        Ask all processes once.

        Returns:
            The records of all DMAs. A process that is gone is dropped at the next look, unless it was asked for.
        """
        for path, connection in list(self._connections.items()):
            if connection.trouble is not None and path != self._path:
                del self._connections[path]
        for path in [self._path] if self._path is not None else sorted(_folder().glob("*.sock")):
            if path not in self._connections:
                self._connections[path] = Connection(path)
        return [record for connection in self._connections.values() for record in connection.look()]

    def troubles(self) -> list[str]:
        """One line for each process that did not answer."""
        return [f"{c.path.name}: {c.trouble}" for c in self._connections.values() if c.trouble is not None]

    @property
    def reachable(self) -> bool:
        """Whether any process answered."""
        return any(connection.trouble is None for connection in self._connections.values())


def rows(records: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """The table's cells, one row for each DMA."""
    return [
        (
            str(record["pid"]),
            f"{record['device']} #{record['number']}{' (emulated)' if record['emulated'] else ''}",
            record["state"],
            format_count(record["rates"]["copies"]) if record["rates"] else "-",
            format_bytes(record["rates"]["bytes"]) if record["rates"] else "-",
            f"{statistics['in_flight']}/{record['window']}",
            format_count(statistics["waiting"]),
            format_seconds(latency.get("p50") if latency.get("count") else None),
            format_seconds(latency.get("p99") if latency.get("count") else None),
            format_count(statistics["copies_failed"] + statistics["copies_flushed"]),
            format_count(statistics["restarts"]),
            format_count(statistics["watchdog_hits"]),
        )
        for record in records
        for statistics in [record["statistics"]]
        for latency in [statistics["latency"] or {}]
    ]


def copy_lines(records: Sequence[dict[str, Any]]) -> list[str]:
    """The oldest copies that are under way, with who awaits them."""
    copies = sorted(
        ((record, copy) for record in records for copy in record["copies"]), key=lambda pair: -float(pair[1]["age"])
    )
    return [
        f"{format_seconds(copy['age']):>8}  {record['device']} #{record['number']}: {copy['state']}, "
        f"{format_bytes(copy['bytes_done'])} of {format_bytes(copy['nbytes'])}"
        + (f", tag {copy['tag']}" if copy["tag"] is not None else "")
        + (f", awaited by {', '.join(copy['tasks'])}" if copy["tasks"] else "")
        for record, copy in copies[:MAX_LINES]
    ]


def event_lines(records: Sequence[dict[str, Any]]) -> list[str]:
    """What happened last, the latest first."""
    events = sorted(
        ((record, event) for record in records for event in record["events"]), key=lambda pair: -float(pair[1]["time"])
    )
    return [
        f"{format_seconds(max(0.0, record['monotonic'] - event['time'])):>8}  "
        f"{record['device']} #{record['number']}: {event['text']}"
        for record, event in events[:MAX_LINES]
    ]


def text(records: Sequence[dict[str, Any]], troubles: Sequence[str]) -> str:
    """All of it, for ``--once``."""
    lines = table(HEADER, rows(records), right=NUMBERS) if records else ["No DMA is open."]
    for title, found in (("Oldest copies under way:", copy_lines(records)), ("Latest events:", event_lines(records))):
        if found:
            lines += ["", title, *found]
    return "\n".join([*lines, *([""] if troubles else []), *troubles])


def show_top(args: argparse.Namespace) -> int:
    """
    Show what running processes do.

    Args:
        args: ``socket``, ``once``, ``interval``, ``json``.

    Returns:
        The exit code: 1 if there is nobody to look at.

    Raises:
        Exit: If the live view lacks a terminal or rich.

    Source: aiodocadma.
    """
    if args.json and not args.once:
        raise Exit(ExitCode.USAGE, "--json needs --once")
    with contextlib.closing(Screen(Path(args.socket) if args.socket is not None else None)) as screen:
        if not args.once:
            try:
                from aiodocadma.cli._live import show_live
            except ImportError:
                raise Exit(ExitCode.FAILED, "the live view needs rich: pip install 'aiodocadma[cli]'") from None
            return show_live(screen, args.interval)
        records = screen.look()
        if records:
            time.sleep(args.interval)
            records = screen.look()
        if not screen.reachable:
            raise Exit(ExitCode.FAILED, _nobody(screen, args.socket))
        print(json.dumps({"dmas": records, "troubles": screen.troubles()}, indent=2) if args.json else "", end="")
        if not args.json:
            print(text(records, screen.troubles()))
    return ExitCode.DONE


def _folder() -> Path:
    from aiodocadma.live import default_folder  # here: no other command needs asyncio's servers

    return default_folder()


def _version() -> int:
    from aiodocadma.live import VERSION

    return VERSION


def _nobody(screen: Screen, path: str | None) -> str:
    if path is not None and not Path(path).is_socket():
        return f"{path}: no such socket"
    where = path or str(_folder())
    return "; ".join(screen.troubles()) or f"no process serves in {where}: it must use aiodocadma.live.serve()"


def add_top(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "top",
        show_top,
        help="watch the DMAs of running processes",
        description="Show what the DMAs of running processes do: throughput, window, latency, who waits, restarts, "
        "stalls. A process shows itself with aiodocadma.live.serve(). Without SOCKET, all processes of this user that "
        "do are shown.",
        library=False,
    )
    parser.add_argument("socket", metavar="SOCKET", nargs="?", help="the Unix socket of one process")
    parser.add_argument("--once", action="store_true", help="print once and end; works without a terminal")
    parser.add_argument(
        "--interval",
        metavar="SECONDS",
        type=partial(seconds, least=LEAST_INTERVAL),
        default=DEFAULT_INTERVAL,
        help="time between two looks, over which rates are taken (default: %(default)g)",
    )
