"""The progress bar and the table with rich; importing this fails where rich is not installed."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box, progress
from rich.console import Console
from rich.live import Live
from rich.table import Table


class RichProgress:
    """
    A bar with speed and remaining time.

    Args:
        total: Bytes to come, or None if nobody knows.
    """

    def __init__(self, total: int | None) -> None:
        self._bar = progress.Progress(
            progress.BarColumn(),
            progress.DownloadColumn(),
            progress.TransferSpeedColumn(),
            progress.TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("copy", total=total)
        self._bar.start()

    def update(self, done: int) -> None:
        """Show how many bytes are done."""
        self._bar.update(self._task, completed=done)

    def close(self) -> None:
        """Remove the bar."""
        self._bar.stop()


class RichRows:
    """
    A table that grows in place.

    Args:
        columns: The headings.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self._table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for column in columns:
            self._table.add_column(column, justify="right")
        self._live = Live(self._table, console=Console(), refresh_per_second=8)
        self._live.start()

    def add(self, cells: Sequence[str]) -> None:
        """Show one more row."""
        self._table.add_row(*cells)

    def close(self) -> None:
        """Leave the table as it is."""
        self._live.stop()
