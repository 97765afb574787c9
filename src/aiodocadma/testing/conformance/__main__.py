"""
Run the conformance suite.

Exit status: 0 when no case failed, 1 when one did, 2 when the library is not there, no case was selected, or a result
cannot be written, 130 when it was interrupted.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import sys
from collections import Counter
from pathlib import Path

from aiodocadma.testing.conformance._abi import Abi, LibraryMissingError
from aiodocadma.testing.conformance._runner import ENGINES, Outcome, run_case, run_isolated, variants


def profile(outcomes: list[Outcome], version: str) -> str:
    """
    The answers of a library as text that the emulator loads; those without a setting are comments.

    Args:
        outcomes: Of a run on a card.
        version: The library's; empty if it does not tell.

    Returns:
        Lines as ``docaemu.h`` describes them.

    Source: ``docaemu_configure``.
    """
    findings = {key: value for outcome in outcomes for key, value in outcome.findings.items()}
    notes = {key: value for outcome in outcomes for key, value in outcome.notes.items()}
    lines = ["# How a DOCA library answered the open questions; for DOCAEMU_CONFIG_FILE or docaemu_configure.", ""]
    lines += [
        *([f"version={version}"] if version else []),
        *(f"{key}={value}" for key, value in sorted(findings.items())),
    ]
    lines += ["", *(f"# {question}: {answer}" for question, answer in sorted(notes.items()))]
    return "\n".join(line.replace(";", ",") if line.startswith("#") else line for line in lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    """
    Run cases and print how they ended.

    Args:
        argv: Arguments of the command.

    Returns:
        The exit status.

    Source: aiodocadma.
    """
    try:
        status = _run(argv)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _ended("interrupted", 130)
    except OSError as error:
        if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EPIPE, errno.EIO):
            raise
        return _ended(f"standard output: {error.strerror}", 2)
    return status


def _ended(why: str, status: int) -> int:
    """Early; what stdout does not take must not be tried again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    print(f"conformance: {why}", file=sys.stderr)
    return status


def _run(argv: list[str] | None) -> int:
    parser = argparse.ArgumentParser(prog="python -m aiodocadma.testing.conformance", description=__doc__)
    parser.add_argument(
        "--library", default="emulator", help="emulator, system, or the path of a library or its folder"
    )
    parser.add_argument("--engine", choices=[*ENGINES, "all"], default="all", help="the emulator's engine")
    parser.add_argument("-k", metavar="WORD", default="", help="only cases whose name or row has the word")
    parser.add_argument("--row", default="", help="only the case of this row")
    parser.add_argument("--json", action="store_true", help="print one JSON array")
    parser.add_argument("--profile", type=Path, metavar="FILE", help="write the answers to open questions to a file")
    parser.add_argument("--in-process", action="store_true", help="no process per case; what crashes ends the run")
    arguments = parser.parse_args(argv)
    try:
        abi = Abi(arguments.library)
    except LibraryMissingError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 2
    if arguments.profile:
        try:
            arguments.profile.open("a").close()  # now, as the cases take minutes
        except OSError as error:
            parser.error(f"{arguments.profile}: {error.strerror}")
    engines = ENGINES if arguments.engine == "all" else (arguments.engine,)
    selected = [
        variant
        for variant in variants(abi, engines)
        if (arguments.k in variant.name or arguments.k in variant.case.row) and arguments.row in ("", variant.case.row)
    ]
    if not selected:
        return _ended("there is no such case: see -k and --row", 2)
    outcomes = []
    for variant in selected:
        run = run_case(abi, variant) if arguments.in_process else run_isolated(arguments.library, variant)
        outcomes.append(run)
        if not arguments.json:
            detail = f": {run.detail}" if run.detail else ""
            print(f"{run.outcome.upper():4} {run.row:38} {run.name}{detail}", flush=True)
    version = abi.ffi.string(abi.doca_version_runtime()).decode() if hasattr(abi, "doca_version_runtime") else ""
    if arguments.json:
        print(json.dumps([outcome._asdict() for outcome in outcomes], indent=1))
    else:
        counts = Counter(outcome.outcome for outcome in outcomes)
        ends = ", ".join(f"{counts[end]} {end}" for end in ("pass", "fail", "skip"))
        print(f"{abi.path}, DOCA {version or 'of unknown version'}: {ends}")
        if not abi.emulated:
            print(profile(outcomes, version), end="")
    if arguments.profile:
        try:
            arguments.profile.write_text(profile(outcomes, version))
        except OSError as error:
            return _ended(f"{arguments.profile}: {error.strerror}", 2)
    return int(any(outcome.outcome == "fail" for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
