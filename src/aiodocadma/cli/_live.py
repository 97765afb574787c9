"""The live view of ``aiodocadma top``, with rich; importing this fails where rich is not installed."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console, ConsoleDimensions, Group, RenderableType
from rich.live import Live
from rich.text import Text

from aiodocadma._counted import counted
from aiodocadma.cli._exit import Exit, ExitCode
from aiodocadma.cli._look import is_colourful, table
from aiodocadma.cli._top import DROPPED, HEADER, NUMBERS, Screen, copy_lines, event_lines, rows

__all__ = ["show_live"]

REDRAW = 0.1  # seconds at most until a resized terminal shows all again
GOOD = {"running", "closed"}
BAD = ("nothing ended", "failed", "lost", "refuses", "takes no task")  # in what is told of events


def show_live(screen: Screen, interval: float) -> int:
    """
    Show the processes on the whole terminal until q or Ctrl-C.

    Args:
        screen: Whom to ask.
        interval: Seconds between two looks.

    Returns:
        The exit code.

    Raises:
        Exit: If stdout or stdin is no terminal.
    """
    if not (sys.stdout.isatty() and sys.stdin.isatty()):
        raise Exit(ExitCode.USAGE, "the live view needs a terminal; use --once")
    console = Console(no_color=not is_colourful(), highlight=False)
    with _keys() as quit_pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            looked = time.monotonic()
            records = screen.look()
            shown: os.terminal_size | None = None
            while (left := looked + interval - time.monotonic()) > 0 or shown is None:
                if (size := os.get_terminal_size()) != shown:
                    shown = size
                    console.size = ConsoleDimensions(*size)  # else $COLUMNS would count
                    live.update(_view(records, screen, size), refresh=True)
                if quit_pressed(min(max(left, 0), REDRAW)):
                    return ExitCode.DONE


@contextlib.contextmanager
def _keys() -> Iterator[Any]:
    """Read single keys: a function that waits so many seconds for a q."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    tty.setcbreak(fd)

    def pressed(seconds: float) -> bool:
        ready, _, _ = select.select([fd], [], [], seconds)
        return bool(ready) and os.read(fd, 64) in (b"q", b"Q", b"")

    try:
        yield pressed
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def _view(records: Sequence[dict[str, Any]], screen: Screen, size: os.terminal_size) -> RenderableType:
    """What fits: the table first, then what is wrong, then what happened, then what is under way."""
    count = counted(len(records), "DMA")
    lines = [Text(f"aiodocadma top  {time.strftime('%H:%M:%S')}  {count}  q quits", "dim"), Text()]
    if records:
        shown = table(HEADER, rows(records), right=NUMBERS, width=size.columns, drop=DROPPED)
        lines += [Text.from_ansi(shown[0])]
        for line, record in zip(shown[1:], records, strict=True):
            lines.append(Text(line, "" if record["state"] in GOOD else "bold red"))
    else:
        lines.append(Text("No DMA is open."))
    troubles = screen.troubles()
    lines += [Text(), *(Text(trouble, "bold red") for trouble in troubles)] if troubles else []
    for title, found in (("LATEST EVENTS", event_lines(records)), ("OLDEST COPIES UNDER WAY", copy_lines(records))):
        if found:
            bad = [any(word in line for word in BAD) for line in found]
            lines += [
                Text(),
                Text(title, "bold"),
                *(Text(s, "red" if b else "") for s, b in zip(found, bad, strict=True)),
            ]
    for text in lines:
        text.no_wrap, text.overflow = True, "ellipsis"
    return Group(*lines[: size.lines])
