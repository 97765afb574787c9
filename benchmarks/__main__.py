"""
Measure aiodocadma beside its peers: a table on the terminal, a JSON record, plots.

    python -m benchmarks [--gates] [--only GOAL ...] [--json FILE] [--plots FOLDER]

Needs valgrind, perf or strace, and a C compiler; plots need matplotlib (pip install 'aiodocadma[bench]'). All of it
takes some five minutes; --gates, what CI runs, about one.
"""

from __future__ import annotations

import argparse
import sys
import time

from benchmarks import _curves, _goals, _record


def main() -> int:
    """Run it; returns 1 if a gate is exceeded."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.split("\n\n")[0].strip())
    parser.add_argument(
        "--gates",
        action="store_true",
        help="only what CI holds (P1, P2, P3, P9, P10, in counts), with 3 %% slack; exit code 1 if one is exceeded",
    )
    parser.add_argument("--only", metavar="GOAL", nargs="+", help="show only these goals, for example P1 P8")
    parser.add_argument("--json", metavar="FILE", help="write the record there")
    parser.add_argument("--plots", metavar="FOLDER", help="draw operations per second and latency there (PNG)")
    args = parser.parse_args()

    start = time.monotonic()
    rows = []
    _record.print_header()
    for row in _goals.gates() if args.gates else _goals.everything():
        if not args.only or row.goal in args.only:
            rows.append(row)
            _record.print_row(row, gate=args.gates)
    exceeded = [row for row in rows if row.gated and row.value > row.gate] if args.gates else []
    _record.print_footer(rows, exceeded, time.monotonic() - start, gates=args.gates)
    curves = _curves.measure() if args.plots else []
    if args.plots:
        _curves.draw(curves, args.plots)
    if args.json:
        _record.write(args.json, sys.argv, rows, curves)
    return 1 if exceeded else 0


if __name__ == "__main__":
    sys.exit(main())
