"""What the commands show while they work, a bar or a growing table, and what they say at the end."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from typing import Protocol

from aiodocadma import DeviceInfo
from aiodocadma.cli._look import format_bytes


class Progress(Protocol):
    """What a bar does."""

    def update(self, done: int) -> None:
        """Show how many bytes are done; called after every block."""

    def close(self) -> None:
        """Leave the terminal clean."""


class NoProgress:
    """For a stderr that is not a terminal."""

    def update(self, done: int) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class PlainProgress:
    """
    A line that rewrites itself, for terminals without rich.

    Args:
        total: Bytes to come, or None if nobody knows.
    """

    def __init__(self, total: int | None) -> None:
        self._total = total
        self._shown = 0.0

    def update(self, done: int) -> None:
        """Show how many bytes are done, at most ten times a second."""
        now = time.monotonic()
        if now - self._shown >= 0.1:
            self._shown = now
            part = f" of {format_bytes(self._total)}, {100 * done // self._total} %" if self._total else ""
            print(f"\r{format_bytes(done)}{part}\x1b[K", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Clear the line."""
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def open_progress(total: int | None) -> Progress:
    """Choose the bar: rich's, a plain one, or none when stderr is no terminal."""
    if not sys.stderr.isatty():
        return NoProgress()
    try:
        from aiodocadma.cli._rich import RichProgress
    except ImportError:
        return PlainProgress(total)
    return RichProgress(total)


class Rows(Protocol):
    """A table that grows."""

    def add(self, cells: Sequence[str]) -> None:
        """Show one more row."""

    def close(self) -> None:
        """Leave the table as it is."""


class NoRows:
    """For output that a program reads."""

    def add(self, cells: Sequence[str]) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class PlainRows:
    """
    Lines on stdout, one for each row as it comes.

    Args:
        columns: The headings; the cells are aligned to the right below them.
    """

    WIDTH = 11

    def __init__(self, columns: Sequence[str]) -> None:
        self.add(columns)

    def add(self, cells: Sequence[str]) -> None:
        """Show one more row."""
        print("".join(cell.rjust(self.WIDTH) for cell in cells), flush=True)

    def close(self) -> None:
        """Do nothing."""


def open_rows(columns: Sequence[str], *, quiet: bool) -> Rows:
    """Choose the table: rich's on a terminal that is wide enough, plain lines elsewhere, none if quiet."""
    if quiet:
        return NoRows()
    if sys.stdout.isatty() and shutil.get_terminal_size().columns >= PlainRows.WIDTH * len(columns):
        try:
            from aiodocadma.cli._rich import RichRows
        except ImportError:
            return PlainRows(columns)
        return RichRows(columns)
    return PlainRows(columns)


def summary(done: int, seconds: float, device: DeviceInfo) -> str:
    """What was moved, how fast, and by what."""
    rate = done / seconds if seconds else 0.0
    where = f"the emulator's {device.ibdev_name}" if device.emulated else device.ibdev_name
    return f"{format_bytes(done)} in {seconds:.2f} s ({format_bytes(rate)}/s) on {where}"
