"""``aiodocadma explain``."""

from __future__ import annotations

import argparse
import json

from aiodocadma._events import code_name
from aiodocadma._explain import explain, number_of
from aiodocadma.cli._exit import ExitCode
from aiodocadma.cli._options import Commands, add_command

__all__ = ["add_explain"]


def code(text: str) -> int:
    """
    Read a code from the command line.

    Args:
        text: As it was typed.

    Returns:
        The ``doca_error_t``.

    Raises:
        ArgumentTypeError: If there is no such code; it lists those that exist.

    Source: ``doca_error_t``.
    """
    try:
        return number_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def print_explanation(args: argparse.Namespace) -> int:
    """
    Print what a code means.

    Args:
        args: ``code``, ``json``.

    Returns:
        The exit code.

    Source: aiodocadma.
    """
    text = explain(args.code)
    print(json.dumps({"code": args.code, "name": code_name(args.code), "text": text}, indent=2) if args.json else text)
    return ExitCode.DONE


def add_explain(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "explain",
        print_explanation,
        help="explain an error code of DOCA",
        description="Print what an error code of DOCA means, which causes are looked for when it occurs, and what to "
        "do. Needs no DOCA.",
        library=False,
    )
    parser.add_argument("code", metavar="CODE", type=code, help="for example IO_FAILED, DOCA_ERROR_IO_FAILED or 17")
