"""How all commands look: one style of tables, numbers and colours; colours on a terminal only."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TextIO

__all__ = ["bold", "format_bytes", "format_count", "format_seconds", "is_colourful", "table"]


def is_colourful(stream: TextIO | None = None) -> bool:
    """Whether colours may be written: to a terminal, unless ``NO_COLOR`` is set."""
    return (stream or sys.stdout).isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def bold(text: str) -> str:
    """Text in bold where colours may be written."""
    return f"\x1b[1m{text}\x1b[0m" if is_colourful() else text


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[str] = (),
    width: int | None = None,
    drop: Sequence[str] = (),
) -> list[str]:
    """
    Lay out a table.

    Args:
        header: Names of the columns, which are shown in capitals.
        rows: Cells.
        right: Columns to align to the right: numbers.
        width: How wide it may be; None for any width.
        drop: Columns to leave out until it fits, in this order.

    Returns:
        The lines, none with trailing blanks.
    """
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    if width is not None and drop and sum(widths) + 2 * (len(widths) - 1) > width:
        kept = [i for i, name in enumerate(header) if name != drop[0]]
        fewer = [[cells[i] for i in kept] for cells in rows]
        return table([header[i] for i in kept], fewer, right=right, width=width, drop=drop[1:])

    def line(cells: Sequence[str]) -> str:
        aligned = (
            cell.rjust(width) if name in right else cell.ljust(width)
            for name, cell, width in zip(header, cells, widths, strict=True)
        )
        return "  ".join(aligned).rstrip()

    return [bold(line([name.upper() for name in header])), *(line(row) for row in rows)]


def format_bytes(count: float) -> str:
    """Format a number of bytes for people: 7 B, 1.5 MB (powers of 1000)."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def format_count(count: float) -> str:
    """Format a number for people: 950, 12.3 k, 4.5 M."""
    for unit in ("", " k", " M"):
        if count < 1000:
            return f"{count:.0f}{unit}" if not unit else f"{count:.1f}{unit}"
        count /= 1000
    return f"{count:.1f} G"


def format_seconds(seconds: float | None) -> str:
    """Format a time for people: 7 us, 1.5 ms, 2.0 s; - if there is none."""
    if seconds is None:
        return "-"
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"
