"""``aiodocadma completion``: the scripts that ``tools/generate-cli`` makes of the parser."""

from __future__ import annotations

import argparse
import importlib.resources
from typing import Final

from aiodocadma.cli._exit import ExitCode

__all__ = ["SHELLS", "print_completion"]

SHELLS: Final = ("bash", "zsh", "fish")


def print_completion(args: argparse.Namespace) -> int:
    """
    Print a script.

    Args:
        args: ``shell``.

    Returns:
        The exit code.

    Source: aiodocadma.
    """
    folder = importlib.resources.files("aiodocadma.cli") / "completion"
    print((folder / f"aiodocadma.{args.shell}").read_text(), end="")
    return ExitCode.DONE
