"""``aiodocadma doctor``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Final

from aiodocadma._version import __version__
from aiodocadma.cli._checks import check_lines, wrapped
from aiodocadma.cli._options import Commands, add_command

if TYPE_CHECKING:
    from aiodocadma.doctor import Report

NO_BUNDLE: Final = 8
EXIT_CODES: Final = (
    "exit codes: 0 nothing fails; 1 to 7 the lowest layer that fails (1 install, 2 version, 3 build, 4 link, "
    "5 runtime, 6 program, 7 driver; 2 also for wrong usage); 8 the bundle could not be written"
)


def report_lines(report: Report) -> Iterator[str]:
    """The report for people."""
    yield from wrapped(f"aiodocadma {__version__}, {report.doca}; {report.method}")
    for layer, checks in groupby(report.checks, key=lambda check: check.layer):
        yield ""
        yield f"{int(layer)} {layer.name.lower()}"
        for check in checks:
            yield from check_lines(check.status, check.name, check.details, check.remediation)
    yield ""
    lowest = report.lowest_failing_layer
    if lowest is None:
        yield "Nothing fails."
    else:
        yield from wrapped(
            f"The lowest layer that fails is {int(lowest)}, {lowest.name.lower()}: start there, then run this again."
        )


def run_doctor(args: argparse.Namespace) -> int:
    """
    Examine this machine and print what was found.

    Args:
        args: ``library``, ``json``, ``bundle``.

    Returns:
        The lowest layer that fails, 0 if none, 8 if the bundle could not be written.

    Source: aiodocadma.
    """
    from aiodocadma.doctor import System, examine, write_bundle  # here: no other command needs it

    report = examine(System.here(args.library))
    print(json.dumps(report.env(), indent=2) if args.json else "\n".join(report_lines(report)))
    if args.bundle is not None:
        sys.stdout.flush()
        try:
            path = write_bundle(report, args.bundle)
        except OSError as error:
            print(f"aiodocadma: {args.bundle or repr('')}: {error.strerror}", file=sys.stderr)
            return NO_BUNDLE
        print(f"aiodocadma: evidence is in {path}: look through it before you give it away", file=sys.stderr)
    return int(report.lowest_failing_layer or 0)


def add_doctor(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "doctor",
        run_doctor,
        help="find out what is wrong with this machine's DOCA",
        description="Examine the installation of DOCA, its versions, headers, libraries, devices and drivers, from the "
        "bottom layer up. Only reads, and needs no privilege.",
        epilog=EXIT_CODES,
    )
    parser.add_argument(
        "--bundle", metavar="DIR", help="also write the evidence into the new folder DIR, without addresses and secrets"
    )
