"""``aiodocadma completion``: the scripts that ``tools/generate-cli`` makes of the parser."""

from __future__ import annotations

import argparse
import importlib.resources
from typing import Final

from aiodocadma.cli._exit import ExitCode
from aiodocadma.cli._options import Commands, add_command

__all__ = ["SHELLS", "add_completion"]

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


def add_completion(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "completion",
        print_completion,
        help="print the completion script of a shell",
        description="Print a script that completes this command. For bash: source <(aiodocadma completion bash)",
        json=False,
        library=False,
    )
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help="bash, zsh or fish")
