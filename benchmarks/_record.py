"""The table on the terminal and the record on disk."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiodocadma
from benchmarks._goals import Row
from benchmarks._peers import first_device

FORMAT = 1
WIDTHS = (4, 34, 15, 11, 11, 9, 10)


def _line(cells: Sequence[str], last: str) -> str:
    left = "  ".join(cell.ljust(width) for cell, width in zip(cells[:3], WIDTHS, strict=False))
    right = "  ".join(cell.rjust(width) for cell, width in zip(cells[3:], WIDTHS[3:], strict=False))
    return f"{left}  {right}  {last}"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def print_header() -> None:
    """Say where it runs, and the columns."""
    device = first_device()
    kind = "the emulator's " if device.emulated else ""
    print(f"aiodocadma {aiodocadma.__version__}, Python {platform.python_version()}, {kind}{device.ibdev_name}")
    if device.emulated:
        print("Figures of the emulator say what the client costs, and nothing about a card.")
    print()
    print(_line(("GOAL", "WHAT", "WHERE", "MEASURED", "PEER", "RATIO", "BAR"), ""))


def print_row(row: Row, *, gate: bool) -> None:
    """Print one row as soon as it is measured."""
    ratio = _number(row.value) if row.peer is not None else ""
    if gate and row.gated:
        verdict = "pass" if row.value <= row.gate else f"EXCEEDED (gate {_number(row.gate)})"
        if verdict == "pass" and not row.passed:
            verdict = f"held (gate {_number(row.gate)})"
    else:
        verdict = "pass" if row.passed else "MISSED"
    if row.spread is not None:
        verdict += f"  [{_number(row.spread[0])} .. {_number(row.spread[1])}]"
    cells = (row.goal, row.what, row.where, _number(row.measured), _number(row.peer), ratio)
    print(_line((*cells, f"{row.sense} {_number(row.bar)}"), verdict), flush=True)


def print_footer(rows: Sequence[Row], exceeded: Sequence[Row], seconds: float, *, gates: bool) -> None:
    """Sum up."""
    met = sum(row.passed for row in rows)
    tail = f", {len(exceeded)} gates exceeded" if gates else ""
    print(f"\n{met} of {len(rows)} goals met{tail}, {seconds:.0f} s")


def environment() -> dict[str, Any]:
    """What a figure depends on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")
    return {
        "python": sys.version,
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu": cpu,
        "cpus": os.cpu_count(),
        "load": os.getloadavg(),
    }


def write(path: str, command: Sequence[str], rows: Sequence[Row], curves: Sequence[dict[str, Any]]) -> None:
    """Write the record."""
    device = first_device()
    record = {
        "format": FORMAT,
        "command": list(command),
        "version": aiodocadma.__version__,
        "device": device.ibdev_name,
        "library": device.library,
        "emulated": device.emulated,
        "environment": environment(),
        "rows": [row.record() for row in rows],
        "curves": list(curves),
    }
    Path(path).write_text(json.dumps(record, indent=1) + "\n")
