"""The command ``aiodocadma``: copy files, diagnose what is wrong, measure, build C programs on the emulator."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
from collections.abc import Sequence

from aiodocadma._version import __version__
from aiodocadma.cli._advise import add_advise
from aiodocadma.cli._bench import add_bench
from aiodocadma.cli._completion import add_completion
from aiodocadma.cli._config import add_config
from aiodocadma.cli._copy import add_copy
from aiodocadma.cli._devices import add_devices
from aiodocadma.cli._doctor import add_doctor
from aiodocadma.cli._exit import Exit, ExitCode
from aiodocadma.cli._explain import add_explain
from aiodocadma.cli._logging import shown_sdk_log
from aiodocadma.cli._options import EXIT_CODES, add_sdk_log_level
from aiodocadma.cli._publish import add_publish
from aiodocadma.cli._pull import add_pull
from aiodocadma.cli._selftest import add_selftest
from aiodocadma.cli._top import add_top
from aiodocadma.exceptions import AiodocadmaError, LibraryError

__all__ = ["main"]

COMMANDS = (  # in the order of the help
    add_copy,
    add_publish,
    add_pull,
    add_devices,
    add_advise,
    add_doctor,
    add_selftest,
    add_explain,
    add_bench,
    add_top,
    add_config,
    add_completion,
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="aiodocadma",
        description="Copy memory with NVIDIA DOCA DMA. Where no DOCA is installed, a software device does the work.",
        epilog=EXIT_CODES,
    )
    parser.add_argument("--version", action="version", version=f"aiodocadma {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add in COMMANDS:
        add(commands)
    for command in commands.choices.values():
        add_sdk_log_level(command)
    return parser


def _line(error: BaseException) -> str:
    """One line for any error that is not a bug of ours."""
    if isinstance(error, OSError) and not isinstance(error, AiodocadmaError) and error.strerror:
        what = None if error.filename is None else os.fsdecode(error.filename) or "''"
        return error.strerror if what is None else f"{what}: {error.strerror}"
    return ". ".join(str(error).splitlines()) or type(error).__name__


def _open_missing_streams() -> None:
    """Have the null device where a standard stream is closed: else the next file that is opened gets its messages."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free, which is fd
            setattr(sys, name, os.fdopen(fd, "r" if fd == 0 else "w", closefd=False))


def _give_up_stdout() -> None:
    """If stdout cannot be written, drop the rest: the interpreter tries again at exit, and would complain, too."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(argv: Sequence[str] | None = None) -> int:
    """
    Run the command line.

    Args:
        argv: Arguments without the program's name; None for those of the process.

    Returns:
        The exit code, usually 0 done, 1 failed, 2 wrong usage, 3 no usable device or library, 130 interrupted.

    Source: aiodocadma.
    """
    _open_missing_streams()
    try:
        try:
            args = _parser().parse_args(argv)
            with shown_sdk_log(args.sdk_log_level):
                return int(args.run(args))
        finally:
            sys.stdout.flush()  # also what --help has printed
    except (KeyboardInterrupt, asyncio.CancelledError):
        message, code = "interrupted", ExitCode.INTERRUPTED
    except Exit as exit_:
        message, code = _line(exit_.__cause__ or exit_), exit_.code
    except BrokenPipeError as error:
        if error.filename is None:  # our own stdout; the reader of it has gone and wants to hear no more
            _give_up_stdout()
            return ExitCode.FAILED
        message, code = _line(error), ExitCode.FAILED
    except LibraryError as error:
        message, code = _line(error), ExitCode.NO_DEVICE
    except (AiodocadmaError, OSError, MemoryError) as error:
        message, code = _line(error), ExitCode.FAILED
    _give_up_stdout()
    with contextlib.suppress(OSError):  # the code counts more
        print(f"aiodocadma: {message}", file=sys.stderr)
    return code
