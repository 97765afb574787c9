"""``aiodocadma doctor``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from itertools import groupby
from typing import Final

from aiodocadma._version import __version__
from aiodocadma.cli._checks import check_lines, wrapped
from aiodocadma.doctor import Report, System, examine, write_bundle

NO_BUNDLE: Final = 8


def report_lines(report: Report) -> Iterator[str]:
    """The report for people."""
    loaded = report.system.loaded
    emulated = " (the emulator's)" if loaded is not None and loaded.emulated else ""
    yield from wrapped(f"aiodocadma {__version__}, DOCA {report.doca_version or 'none'}{emulated}; {report.method}")
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
    report = examine(System.here(args.library))
    print(json.dumps(report.env(), indent=2) if args.json else "\n".join(report_lines(report)))
    if args.bundle is not None:
        sys.stdout.flush()
        try:
            path = write_bundle(report, args.bundle)
        except OSError as error:
            print(f"aiodocadma: {args.bundle}: {error.strerror}", file=sys.stderr)
            return NO_BUNDLE
        print(f"aiodocadma: evidence is in {path}: look through it before you give it away", file=sys.stderr)
    return int(report.lowest_failing_layer or 0)
