"""What the commands' parsers share: how a command is added, the options of several, and the types of values."""

from __future__ import annotations

import argparse
import math
import mmap
import os
import pwd
import re
from collections.abc import Callable
from typing import Final, TypeAlias

from aiodocadma._sdk_log import number_of_level
from aiodocadma.cli._exit import Exit, ExitCode
from aiodocadma.cli._look import format_bytes

__all__ = [
    "EXIT_CODES",
    "Commands",
    "add_blocks",
    "add_command",
    "add_device",
    "add_sdk_log_level",
    "check_blocks",
    "check_memory",
    "count",
    "seconds",
    "size",
    "user",
]

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

EXIT_CODES: Final = "exit codes: 0 done, 1 failed, 2 wrong usage, 3 no usable device or library, 130 interrupted"

DEFAULT_BLOCK_SIZE: Final = 1 << 20
DEFAULT_BLOCKS: Final = 4
MAX_COUNT: Final = 1 << 16  # each costs time and memory of its own, however short
MAX_SECONDS: Final = 10**9
MAX_UID: Final = (1 << 32) - 2


def size(text: str) -> int:
    """Parse a number of bytes with an optional K, M or G (powers of 1024)."""
    found = re.fullmatch(r"([0-9]{1,19})([KMG]?)", text.upper())
    value = int(found[1]) * {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[found[2]] if found else 0
    if not 1 <= value < 1 << 63:
        raise argparse.ArgumentTypeError(f"must be from 1 to 8589934591G bytes, for example 64K, not {text!r}")
    return value


def count(text: str) -> int:
    """Parse a number of things that are there at once."""
    value = int(text) if re.fullmatch("[0-9]{1,9}", text) else 0
    if not 1 <= value <= MAX_COUNT:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {MAX_COUNT}, not {text!r}")
    return value


def seconds(text: str, least: float = 0) -> float:
    """Parse a number of seconds."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= MAX_SECONDS:
        raise argparse.ArgumentTypeError(f"must be from {least:g} to {MAX_SECONDS} seconds, not {text!r}")
    return value


def check_memory(what: str, nbytes: int, code: ExitCode = ExitCode.USAGE) -> None:
    """
    Refuse what this machine cannot hold, before it is brought to a standstill by trying.

    Args:
        what: Takes the memory; several of them.
        nbytes: How much.
        code: Whose fault it is.

    Raises:
        Exit: If that is more than there is.

    Source: aiodocadma.
    """
    there = os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE
    if nbytes > there:
        raise Exit(code, f"{what} take {format_bytes(nbytes)} of memory, and this machine has {format_bytes(there)}")


def user(text: str) -> int:
    """Parse a user's name or number."""
    try:
        return pwd.getpwnam(text).pw_uid
    except KeyError:
        if not re.fullmatch("[0-9]{1,10}", text) or int(text) > MAX_UID:
            raise argparse.ArgumentTypeError(f"no user of this machine: {text!r}") from None
        return int(text)


def _sdk_log_level(text: str) -> int:
    """Parse a level of DOCA's log."""
    try:
        return number_of_level(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


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


def add_blocks(parser: argparse.ArgumentParser, num_maps: int) -> None:
    """Add what a ring is made of: blocks of so many maps each."""
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
        help=f"blocks under way at once, {MAX_COUNT} at most; each takes {'twice ' * (num_maps == 2)}SIZE of memory "
        "(default: %(default)s)",
    )


def check_blocks(args: argparse.Namespace, num_maps: int) -> None:
    """Refuse a ring for which there is not enough memory."""
    what = f"--blocks {args.blocks} of --block-size {args.block_size}"
    check_memory(what, args.blocks * num_maps * max(args.block_size, mmap.PAGESIZE))


def add_sdk_log_level(parser: argparse.ArgumentParser) -> None:
    """Add ``--sdk-log-level``, which all commands have."""
    parser.add_argument(
        "--sdk-log-level",
        metavar="LEVEL",
        type=_sdk_log_level,
        help="show DOCA's own log on stderr down to LEVEL: CRIT, ERROR, WARNING, INFO, DEBUG, TRACE, or 20 to 70 "
        "(default: $DOCA_LOG_LEVEL_SDK, else $DOCA_LOG_LEVEL, else nothing)",
    )
