"""The command ``aiodocadma``: copy files, diagnose what is wrong, measure, build C programs on the emulator."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import pwd
import sys
from collections.abc import Callable, Sequence

from aiodocadma._sdk_log import number_of_level
from aiodocadma._version import __version__
from aiodocadma.cli._bench import MODES, bench
from aiodocadma.cli._completion import SHELLS, print_completion
from aiodocadma.cli._config import ITEMS, print_config
from aiodocadma.cli._copy import copy_file
from aiodocadma.cli._devices import list_devices
from aiodocadma.cli._exit import Exit, ExitCode
from aiodocadma.cli._explain import code as error_code
from aiodocadma.cli._explain import print_explanation
from aiodocadma.cli._logging import shown_sdk_log
from aiodocadma.cli._peer import add_security, address
from aiodocadma.cli._publish import publish_files
from aiodocadma.cli._pull import pull_file
from aiodocadma.exceptions import AiodocadmaError, LibraryError

__all__ = ["main"]

EXIT_CODES = "exit codes: 0 done, 1 failed, 2 wrong usage, 3 no usable device or library, 130 interrupted"
ADVISE_EXIT_CODES = "exit codes: 0 use DMA, 1 failed, 2 wrong usage, 3 use something else, 130 interrupted"
DOCTOR_EXIT_CODES = (
    "exit codes: 0 nothing fails; 1 to 7 the lowest layer that fails (1 install, 2 version, 3 build, 4 link, "
    "5 runtime, 6 program, 7 driver; 2 also for wrong usage); 8 the bundle could not be written"
)

DEFAULT_BLOCK_SIZE = 1 << 20
DEFAULT_BLOCKS = 4
DEFAULT_WAIT = 30.0
DEFAULT_INTERVAL = 1.0  # seconds


def _size(text: str) -> int:
    """Parse a number of bytes with an optional K, M or G (powers of 1024)."""
    factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper())
    value = int(text[:-1]) * factor if factor else int(text)
    if value < 1:
        raise ValueError(text)
    return value


def _count(text: str) -> int:
    """Parse a number of at least 1."""
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def _seconds(text: str) -> float:
    """Parse a number of seconds, 0 or more."""
    value = float(text)
    if not 0 <= value < 1e9:
        raise ValueError(text)
    return value


def _interval(text: str) -> float:
    """Parse a number of seconds, 0.05 or more: looking costs those who are looked at."""
    value = float(text)
    if not 0.05 <= value < 1e9:
        raise ValueError(text)
    return value


def _user(text: str) -> int:
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


_size.__name__ = "size"  # argparse: "invalid size value: 'x'"
_count.__name__ = "count"
_seconds.__name__ = "number of seconds"
_interval.__name__ = "interval"
_user.__name__ = "user"


def _add_device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device", metavar="NAME", help="PCI address or name of the device (default: the first that can)"
    )


def _add_blocks(parser: argparse.ArgumentParser, memory: str) -> None:
    parser.add_argument(
        "--block-size",
        metavar="SIZE",
        type=_size,
        default=DEFAULT_BLOCK_SIZE,
        help="bytes per block; K, M, G are powers of 1024 (default: 1M)",
    )
    parser.add_argument(
        "--blocks",
        metavar="COUNT",
        type=_count,
        default=DEFAULT_BLOCKS,
        help=f"blocks under way at once; each takes {memory} of memory (default: %(default)s)",
    )


def _later(module: str, function: str) -> Callable[[argparse.Namespace], int]:
    """Import what only this command needs when it runs: the others start sooner."""

    def run(args: argparse.Namespace) -> int:
        code: int = getattr(importlib.import_module(f"aiodocadma.cli.{module}"), function)(args)
        return code

    return run


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="aiodocadma",
        description="Copy memory with NVIDIA DOCA DMA. Where no DOCA is installed, a software device does the work.",
        epilog=EXIT_CODES,
    )
    parser.add_argument("--version", action="version", version=f"aiodocadma {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    as_json = argparse.ArgumentParser(add_help=False)
    as_json.add_argument("--json", action="store_true", help="print the result as JSON on stdout")
    common = argparse.ArgumentParser(add_help=False, parents=[as_json])
    common.add_argument(
        "--library",
        metavar="LIBRARY",
        help="auto, system, emulator, or a path (default: $AIODOCADMA_LIBRARY, else auto: the system's DOCA, and the "
        "emulator only where none is installed)",
    )

    copy = commands.add_parser(
        "copy",
        parents=[common],
        help="copy a file through the engine",
        description="Copy SRC to DST; every byte passes through the DMA engine. Reading, DMA and writing overlap. DST "
        "appears whole or not at all: it is written under a temporary name in the same folder, then renamed.",
        epilog=EXIT_CODES,
    )
    copy.add_argument("src", metavar="SRC", help="file, FIFO or device to read until its end")
    copy.add_argument(
        "dst", metavar="DST", help="file to write, or a folder to write into; a FIFO or a device is written in place"
    )
    copy.add_argument(
        "--verify",
        action="store_true",
        help="read DST back from disk and compare its SHA-256 with that of what was read",
    )
    _add_device(copy)
    _add_blocks(copy, "twice SIZE")
    copy.set_defaults(run=lambda args: asyncio.run(copy_file(args)))

    publish = commands.add_parser(
        "publish",
        parents=[common],
        help="let another process pull files through its engine",
        description="Read each FILE into memory and let the other side of the card, the DPU or the host, pull it under "
        "its base name: aiodocadma pull. On the emulator that is any other process. Runs until it is interrupted.",
        epilog=EXIT_CODES,
    )
    publish.add_argument("files", metavar="FILE", nargs="+", help="file to publish; it must fit into memory")
    publish.add_argument(
        "--listen",
        metavar="ADDRESS",
        type=address,
        required=True,
        help="unix:PATH, or tcp:HOST:PORT; port 0 for any that is free",
    )
    publish.add_argument(
        "--user",
        metavar="NAME",
        type=_user,
        action="append",
        default=[],
        help="user who may pull, too, through a Unix socket (default: this user and root)",
    )
    add_security(publish)
    _add_device(publish)
    publish.set_defaults(run=lambda args: asyncio.run(publish_files(args)))

    pull = commands.add_parser(
        "pull",
        parents=[common],
        help="copy a published file through the engine",
        description="Copy the file that is published as NAME to DST; every byte comes through the DMA engine of this "
        "side. Its SHA-256 is compared with the publisher's. DST appears whole or not at all; what an interrupted pull "
        "has written is kept beside it, and the same pull goes on there.",
        epilog=EXIT_CODES,
    )
    pull.add_argument(
        "address", metavar="ADDRESS", type=address, help="where it is published: unix:PATH or tcp:HOST:PORT"
    )
    pull.add_argument("name", metavar="NAME", help="base name of the published file")
    pull.add_argument(
        "dst", metavar="DST", help="file to write, or a folder to write into; a FIFO or a device is written in place"
    )
    pull.add_argument(
        "--verify", action="store_true", help="read DST back from disk before comparing, not only what arrived"
    )
    pull.add_argument(
        "--wait",
        metavar="SECONDS",
        type=_seconds,
        default=DEFAULT_WAIT,
        help="how long to wait for the publisher, and for the name (default: %(default)s)",
    )
    add_security(pull)
    _add_device(pull)
    _add_blocks(pull, "SIZE")
    pull.set_defaults(run=lambda args: asyncio.run(pull_file(args)))

    devices = commands.add_parser(
        "devices",
        parents=[common],
        help="list the devices",
        description="List all devices, also those that cannot do DMA, with the reason.",
        epilog=EXIT_CODES,
    )
    devices.add_argument(
        "--caps",
        action="store_true",
        help="ask each device what it can do, and show it; with --json as a capability snapshot",
    )
    devices.set_defaults(run=list_devices)

    advise = commands.add_parser(
        "advise",
        parents=[common],
        help="say whether a copy should go by DMA at all",
        description="Say which path a copy should take: the CPU, DMA, RDMA, Comch, or staying in a chain of "
        "accelerators. Needs no device and no DOCA.",
        epilog=ADVISE_EXIT_CODES,
    )
    advise.add_argument("src", metavar="SRC", choices=("local", "peer"), help="where the source is: local or peer")
    advise.add_argument("dst", metavar="DST", choices=("local", "peer"), help="where the destination is")
    advise.add_argument("length", metavar="LENGTH", type=_size, help="bytes per copy; K, M, G are powers of 1024")
    advise.add_argument(
        "--pattern",
        choices=("bulk", "once", "messages"),
        default="bulk",
        help="many copies over the same memory (default), a single one, or messages to a consumer",
    )
    advise.add_argument(
        "--peer",
        choices=("pci", "network"),
        help="where the peer is: across PCIe, as host and DPU are (default), or across a network",
    )
    advise.add_argument(
        "--chain",
        metavar="NAME",
        action="append",
        default=[],
        help="an accelerator that works on the data next; may be given several times",
    )
    advise.add_argument("--registered", action="store_true", help="both sides are registered already")
    advise.add_argument(
        "--calibrate", action="store_true", help="measure this machine first, and keep the result for later"
    )
    advise.set_defaults(run=_later("_advise", "run_advise"), usage_error=advise.error)

    doctor = commands.add_parser(
        "doctor",
        parents=[common],
        help="find out what is wrong with this machine's DOCA",
        description="Examine the installation of DOCA, its versions, headers, libraries, devices and drivers, from the "
        "bottom layer up. Only reads, and needs no privilege.",
        epilog=DOCTOR_EXIT_CODES,
    )
    doctor.add_argument(
        "--bundle", metavar="DIR", help="also write the evidence into the new folder DIR, without addresses and secrets"
    )
    doctor.set_defaults(run=_later("_doctor", "run_doctor"))

    selftest = commands.add_parser(
        "selftest",
        parents=[common],
        help="try whether copying works, by the bytes",
        description="Copy in steps of growing size and compare every byte: capabilities, permissions, a small copy, "
        "completions, cases that must be refused, a bulk copy. Runs on a card and on the emulator.",
        epilog=EXIT_CODES,
    )
    selftest.add_argument(
        "--device", metavar="NAME", help="PCI address or name of the device (default: the first that can)"
    )
    selftest.add_argument("--full", action="store_true", help="also a larger bulk copy, and copies for two seconds")
    selftest.add_argument(
        "--compare",
        metavar="OLD",
        help="the JSON of the run before: say whether the change in between resolved, changed or left it; the same "
        "failure twice means that the cause is below DMA",
    )
    selftest.add_argument(
        "--bundle",
        metavar="DIR",
        help="where the evidence goes if it fails (default: only after the same failure twice, into a new folder here)",
    )
    selftest.set_defaults(run=_later("_selftest", "run_selftest"))

    explain = commands.add_parser(
        "explain",
        parents=[as_json],
        help="explain an error code of DOCA",
        description="Print what an error code of DOCA means, which causes are looked for when it occurs, and what to "
        "do. Needs no DOCA.",
        epilog=EXIT_CODES,
    )
    explain.add_argument(
        "code", metavar="CODE", type=error_code, help="for example IO_FAILED, DOCA_ERROR_IO_FAILED or 17"
    )
    explain.set_defaults(run=print_explanation)

    benchmark = commands.add_parser(
        "bench",
        parents=[common],
        help="measure copies on this machine",
        description="Measure copies of each SIZE at each DEPTH, beside the CPU's own copy, and tell from which size on "
        "the engine is quicker. throughput: copies gathered, COUNT at once; max-bandwidth: the same behind one future; "
        "bulk-latency: a batch of COUNT from its start to its end; precision-latency: one copy at a time.",
        epilog=EXIT_CODES,
    )
    benchmark.add_argument("--mode", choices=MODES, default=MODES[0], help="what to measure (default: %(default)s)")
    benchmark.add_argument(
        "--sizes",
        metavar="SIZE",
        type=_size,
        nargs="+",
        default=[64, 4 << 10, 64 << 10, 1 << 20, 16 << 20],
        help="bytes per copy; K, M, G are powers of 1024 (default: 64 4K 64K 1M 16M)",
    )
    benchmark.add_argument(
        "--depths",
        metavar="COUNT",
        type=_count,
        nargs="+",
        default=[1, 16, 256],
        help="copies at once; precision-latency has one (default: 1 16 256)",
    )
    benchmark.add_argument(
        "--seconds", metavar="SECONDS", type=float, default=0.5, help="time for each figure (default: %(default)s)"
    )
    benchmark.add_argument("--compare", metavar="FILE", help="show the ratio to an earlier --json record of that mode")
    benchmark.add_argument(
        "--device", metavar="NAME", help="PCI address or name of the device (default: the first that can)"
    )
    benchmark.set_defaults(run=lambda args: asyncio.run(bench(args)))

    top = commands.add_parser(
        "top",
        parents=[as_json],
        help="watch the DMAs of running processes",
        description="Show what the DMAs of running processes do: throughput, window, latency, who waits, restarts, "
        "stalls. A process shows itself with aiodocadma.live.serve(). Without SOCKET, all processes of this user that "
        "do are shown.",
        epilog=EXIT_CODES,
    )
    top.add_argument("socket", metavar="SOCKET", nargs="?", help="the Unix socket of one process")
    top.add_argument("--once", action="store_true", help="print once and end; works without a terminal")
    top.add_argument(
        "--interval",
        metavar="SECONDS",
        type=_interval,
        default=DEFAULT_INTERVAL,
        help="time between two looks, over which rates are taken (default: %(default)g)",
    )
    top.set_defaults(run=_later("_top", "show_top"))

    config = commands.add_parser(
        "config",
        parents=[as_json],
        help="show how to build C programs on the emulator",
        description="Print what a C or C++ program is built and run with on the embedded emulator, one line for each "
        "option, for example: cc -o prog prog.c $(aiodocadma config --cflags --libs)",
        epilog=EXIT_CODES,
    )
    for item, (what, _) in ITEMS.items():
        config.add_argument(f"--{item}", dest="items", action="append_const", const=item, help=what)
    config.set_defaults(run=print_config, items=[])

    completion = commands.add_parser(
        "completion",
        help="print the completion script of a shell",
        description="Print a script that completes this command. For bash: source <(aiodocadma completion bash)",
        epilog=EXIT_CODES,
    )
    completion.add_argument("shell", metavar="SHELL", choices=SHELLS, help="bash, zsh or fish")
    completion.set_defaults(run=print_completion)

    for command in commands.choices.values():
        command.add_argument(
            "--sdk-log-level",
            metavar="LEVEL",
            type=_sdk_log_level,
            help="show DOCA's own log on stderr down to LEVEL: CRIT, ERROR, WARNING, INFO, DEBUG, TRACE, or 20 to 70 "
            "(default: $DOCA_LOG_LEVEL_SDK, else $DOCA_LOG_LEVEL, else nothing)",
        )
    return parser


def _line(error: BaseException) -> str:
    """One line for any error that is not a bug of ours."""
    if isinstance(error, OSError) and not isinstance(error, AiodocadmaError) and error.strerror:
        return f"{os.fsdecode(error.filename)}: {error.strerror}" if error.filename else error.strerror
    return ". ".join(str(error).splitlines()) or type(error).__name__


def main(argv: Sequence[str] | None = None) -> int:
    """
    Run the command line.

    Args:
        argv: Arguments without the program's name; None for those of the process.

    Returns:
        The exit code: 0 done, 1 failed, 2 wrong usage, 3 no usable device or library, 130 interrupted.

    Source: aiodocadma.
    """
    parser = _parser()
    args = parser.parse_args(argv)
    if args.command == "config" and not args.items:
        parser.error("config: say what to print, see aiodocadma config --help")
    try:
        with shown_sdk_log(args.sdk_log_level):
            code: int = args.run(args)
        sys.stdout.flush()
        return code
    except (KeyboardInterrupt, asyncio.CancelledError):
        message, code = "interrupted", ExitCode.INTERRUPTED
    except Exit as exit_:
        message, code = _line(exit_.__cause__ or exit_), exit_.code
    except BrokenPipeError as error:
        if error.filename is None:  # our own stdout; the reader of it has gone and wants to hear no more
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return ExitCode.FAILED
        message, code = _line(error), ExitCode.FAILED
    except LibraryError as error:
        message, code = _line(error), ExitCode.NO_DEVICE
    except (AiodocadmaError, OSError, MemoryError) as error:
        message, code = _line(error), ExitCode.FAILED
    print(f"aiodocadma: {message}", file=sys.stderr)
    return code
