"""How a list of checks looks."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator

__all__ = ["check_lines", "wrapped"]


def _width() -> int | None:
    """The terminal's width; None where the output goes elsewhere, and lines stay whole for grep."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def wrapped(text: str, indent: str = "", first: str | None = None) -> Iterator[str]:
    """A paragraph as lines; on a terminal they fit, and words too long for that stay whole."""
    first = indent if first is None else first
    width = _width()
    if width is None:
        yield first + text
        return
    yield from textwrap.wrap(
        text,
        max(width - 1, 40),
        initial_indent=first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def check_lines(status: str, name: str, details: str, remediation: str | None) -> Iterator[str]:
    """One check: its status, what was found, and below that what to do about it."""
    yield from wrapped(f"{name}: {details}", " " * 8, f"  {status:<6}")
    if remediation is not None:
        yield from wrapped(remediation, " " * 11, f"{'':8}-> ")
