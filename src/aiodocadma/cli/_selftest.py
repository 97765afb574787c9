"""``aiodocadma selftest``."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aiodocadma.cli._checks import check_lines, wrapped
from aiodocadma.cli._exit import Exit, ExitCode
from aiodocadma.cli._options import Commands, add_command, add_device

if TYPE_CHECKING:
    from aiodocadma.doctor import Check
    from aiodocadma.selftest import SelftestResult

BELOW: Final = (
    "below DMA: the same failure twice in the same environment. Running it a third time tells nothing new; start with "
    "the lowest layer that 'aiodocadma doctor' names, or give the evidence to whoever knows this machine"
)


def _read(path: str) -> dict[str, Any]:
    from aiodocadma.selftest import compare

    try:
        record = json.loads(Path(path).read_text())
        compare(record, record)
    except (ValueError, RecursionError):  # no text, no JSON, no record
        raise Exit(ExitCode.USAGE, f"{path}: not a record of aiodocadma selftest --json") from None
    return dict(record)


def _own(record: dict[str, Any], key: str) -> Any:
    own = record.get("x_aiodocadma")
    return own.get(key) if isinstance(own, dict) else None


def _print(check: Check) -> None:
    print("\n".join(check_lines(check.status, check.name, check.details, check.remediation)), flush=True)


def _bundle(args: argparse.Namespace, record: dict[str, Any]) -> str:
    from aiodocadma.doctor import System, examine, write_bundle

    folder = args.bundle or f"aiodocadma-bundle-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    report = examine(System.here(args.library))
    return write_bundle(report, folder, {"selftest.json": json.dumps(record, indent=2) + "\n"})


def _code(result: SelftestResult) -> int:
    if result.result == "pass":
        return ExitCode.DONE
    return ExitCode.FAILED if result.opened else ExitCode.NO_DEVICE


def run_selftest(args: argparse.Namespace) -> int:
    """
    Run the selftest and print what came of it.

    Args:
        args: ``device``, ``library``, ``full``, ``compare``, ``bundle``, ``json``.

    Returns:
        0 if all passed, 1 if a step failed, 3 if nothing could be opened.

    Raises:
        Exit: If the old record cannot be used, or says that a further run tells nothing.
        OSError: If the old record cannot be read.

    Source: NVIDIA's published test loop for DOCA DMA.
    """
    from aiodocadma.selftest import compare, selftest  # here: no other command needs it

    old = _read(args.compare) if args.compare else None
    if old is not None and _own(old, "below_dma"):
        raise Exit(
            ExitCode.FAILED,
            f"{args.compare} is the second of two identical failures: change something, then run without --compare",
        )
    result = asyncio.run(
        selftest(args.device, library=args.library, full=args.full, progress=None if args.json else _print)
    )
    record = result.record()
    own = record["x_aiodocadma"]
    below = False
    if old is not None:
        own["outcome"] = compare(old, record)
        same = _own(old, "environment") == own["environment"] and _own(old, "full") == own["full"]
        below = result.result == "fail" and own["outcome"] == "unchanged" and same
    own["below_dma"] = below
    trouble = None
    if below or (args.bundle and result.result == "fail"):
        try:
            own["bundle"] = _bundle(args, record)
        except OSError as error:  # the result counts more
            trouble = f"no evidence was written: {error.filename}: {error.strerror}"
    if args.json:
        print(json.dumps(record, indent=2))
    else:
        _print_end(result, own, args.compare)
    if below:
        print(f"aiodocadma: {BELOW}.", file=sys.stderr)
    if trouble is not None:
        print(f"aiodocadma: {trouble}", file=sys.stderr)
    if "bundle" in own:
        print(f"aiodocadma: evidence is in {own['bundle']}: look through it before you give it away", file=sys.stderr)
    return _code(result)


def _print_end(result: SelftestResult, own: dict[str, Any], old: str | None) -> None:
    print()
    if result.measurements:
        dma, cpu = (result.measurements[f"{path}_bytes_per_second"] / 1e9 for path in ("dma", "cpu"))
        print(f"Sustained: {dma:.1f} GB/s by DMA; the CPU copies {cpu:.1f} GB/s.")
    if old is not None:
        print(f"Compared with {old}: {own['outcome']}.")
    print("\n".join(wrapped(result.statement)), flush=True)


def add_selftest(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "selftest",
        run_selftest,
        help="try whether copying works, by the bytes",
        description="Copy in steps of growing size and compare every byte: capabilities, permissions, a small copy, "
        "completions, cases that must be refused, a bulk copy. Runs on a card and on the emulator.",
    )
    add_device(parser)
    parser.add_argument("--full", action="store_true", help="also a larger bulk copy, and copies for two seconds")
    parser.add_argument(
        "--compare",
        metavar="OLD",
        help="the JSON of the run before: say whether the change in between resolved, changed or left it; the same "
        "failure twice means that the cause is below DMA",
    )
    parser.add_argument(
        "--bundle",
        metavar="DIR",
        help="where the evidence goes if it fails (default: only after the same failure twice, into a new folder here)",
    )
