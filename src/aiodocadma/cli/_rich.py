"""The progress bar with rich; importing this fails where rich is not installed."""

from __future__ import annotations

from rich import progress
from rich.console import Console


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
