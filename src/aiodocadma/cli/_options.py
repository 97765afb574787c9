"""What the commands' parsers share: how a command is added, the options of several, and the types of values."""

from __future__ import annotations

import argparse
import pwd
from collections.abc import Callable
from typing import Final, TypeAlias

from aiodocadma._sdk_log import number_of_level

__all__ = [
    "EXIT_CODES",
    "Commands",
    "add_blocks",
    "add_command",
    "add_device",
    "add_sdk_log_level",
    "count",
    "seconds",
    "size",
    "user",
]

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

EXIT_CODES: Final = "exit codes: 0 done, 1 failed, 2 wrong usage, 3 no usable device or library, 130 interrupted"

DEFAULT_BLOCK_SIZE: Final = 1 << 20
DEFAULT_BLOCKS: Final = 4


def size(text: str) -> int:
    """Parse a number of bytes with an optional K, M or G (powers of 1024)."""
    factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper())
    value = int(text[:-1]) * factor if factor else int(text)
    if not 1 <= value < 1 << 63:
        raise ValueError(text)
    return value


def count(text: str) -> int:
    """Parse a number of at least 1."""
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def seconds(text: str) -> float:
    """Parse a number of seconds, 0 or more."""
    value = float(text)
    if not 0 <= value < 1e9:
        raise ValueError(text)
    return value


def user(text: str) -> int:
    """Parse a user's name or number."""
    try:
        return int(text) if text.isdigit() else pwd.getpwnam(text).pw_uid
    except KeyError:
        raise ValueError(text) from None


def _sdk_log_level(text: str) -> int:
    """Parse a level of DOCA's log."""
    try:
        return number_of_level(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


seconds.__name__ = "number of seconds"  # argparse: "invalid number of seconds value: 'x'"


def add_command(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace], int],
    *,
    help: str,
    description: str,
    epilog: str = EXIT_CODES,
    json: bool = True,
    library: bool = True,
) -> argparse.ArgumentParser:
    """
    Add a command.

    Args:
        commands: What to add it to.
        name: As it is typed.
        run: Carries it out and returns the exit code.
        help: One line, for the list of commands.
        description: For its own help.
        epilog: Its exit codes.
        json: Whether it has ``--json``.
        library: Whether it has ``--library``.

    Returns:
        Its parser, for its own arguments.

    Source: aiodocadma.
    """
    parser = commands.add_parser(name, help=help, description=description, epilog=epilog)
    parser.set_defaults(run=run)
    if json:
        parser.add_argument("--json", action="store_true", help="print the result as JSON on stdout")
    if library:
        parser.add_argument(
            "--library",
            metavar="LIBRARY",
            help="auto, system, emulator, or an absolute path (default: $AIODOCADMA_LIBRARY, else auto: the system's "
            "DOCA, and the emulator only where none is installed)",
        )
    return parser


def add_device(parser: argparse.ArgumentParser) -> None:
    """Add ``--device``."""
    parser.add_argument(
        "--device", metavar="NAME", help="PCI address or name of the device (default: the first that can)"
    )


def add_blocks(parser: argparse.ArgumentParser, memory: str) -> None:
    """Add what a ring of blocks is made of, each of which takes ``memory``."""
    parser.add_argument(
        "--block-size",
        metavar="SIZE",
        type=size,
        default=DEFAULT_BLOCK_SIZE,
        help="bytes per block; K, M, G are powers of 1024 (default: 1M)",
    )
    parser.add_argument(
        "--blocks",
        metavar="COUNT",
        type=count,
        default=DEFAULT_BLOCKS,
        help=f"blocks under way at once; each takes {memory} of memory (default: %(default)s)",
    )


def add_sdk_log_level(parser: argparse.ArgumentParser) -> None:
    """Add ``--sdk-log-level``, which all commands have."""
    parser.add_argument(
        "--sdk-log-level",
        metavar="LEVEL",
        type=_sdk_log_level,
        help="show DOCA's own log on stderr down to LEVEL: CRIT, ERROR, WARNING, INFO, DEBUG, TRACE, or 20 to 70 "
        "(default: $DOCA_LOG_LEVEL_SDK, else $DOCA_LOG_LEVEL, else nothing)",
    )
