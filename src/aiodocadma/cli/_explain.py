"""``aiodocadma explain``."""

from __future__ import annotations

import argparse
import json

from aiodocadma._events import code_name
from aiodocadma._explain import explain, number_of
from aiodocadma.cli._exit import ExitCode

__all__ = ["code", "print_explanation"]


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
