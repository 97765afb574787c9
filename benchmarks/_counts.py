"""
Counting: instructions under callgrind, system calls by perf or strace, in processes of their own.

Two counts of operations in one process, and the slope between them, leave out what is paid once; a second run gives the
same to 0.1 %. Only the loop's own thread is counted: what a worker of the emulator does, the card does in reality.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks._peers import build

Counts = Mapping[str, Sequence[int]]  # body: the numbers of operations to count


_EVENT = "raw_syscalls:sys_enter"


class CountError(Exception):
    """A counting process failed."""


def _run(tool: Sequence[str], loop: str, engine: str, budget: str, counts: Counts) -> None:
    bodies = [f"{name}:{'-'.join(map(str, numbers))}" for name, numbers in counts.items()]
    command = [*tool, sys.executable, "-m", "benchmarks._bodies", loop, engine, budget, str(build()), *bodies]
    env = os.environ | {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    result = subprocess.run(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if result.returncode:
        raise CountError(f"{' '.join(command)} failed:\n{result.stderr}")


def instructions(loop: str, engine: str, counts: Counts) -> dict[str, list[int]]:
    """
    Count the instructions of the loop's thread.

    Args:
        loop: ``asyncio`` or ``uvloop``.
        engine: The emulator's engine: ``default`` or ``worker``.
        counts: The bodies, and the numbers of operations to count each at.

    Returns:
        For each body the instructions, in the order of its numbers.

    Raises:
        CountError: If the process fails.

    Source: callgrind's client requests.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        options = ["--tool=callgrind", "--instr-atstart=no", "--separate-threads=yes", f"--callgrind-out-file={out}"]
        _run(["valgrind", *options], loop, engine, "none", counts)
        totals = []
        for part in range(1, sum(map(len, counts.values())) + 1):
            total = re.search(r"^totals: (\d+)$", Path(f"{out}.{part}-01").read_text(), re.MULTILINE)
            if total is None:
                raise CountError(f"callgrind's dump {part} has no totals")
            totals.append(int(total[1]))
    numbers = iter(totals)
    return {name: [next(numbers) for _ in counts[name]] for name in counts}


def slopes(loop: str, engine: str, counts: Counts) -> dict[str, float]:
    """Instructions per operation: the slope between the first and the last number of each body."""
    measured = instructions(loop, engine, counts)
    return {name: (totals[-1] - totals[0]) / (counts[name][-1] - counts[name][0]) for name, totals in measured.items()}


def syscalls(loop: str, engine: str, name: str, low: int, high: int) -> float:
    """
    Count the system calls per operation, of all threads, as the slope between two numbers of operations.

    Args:
        loop: ``asyncio`` or ``uvloop``.
        engine: The emulator's engine: ``default`` or ``worker``.
        name: The body.
        low: The smaller number of operations.
        high: The larger one.

    Returns:
        Calls per operation; a little below zero is zero, where a worker ticked more often in the shorter run.

    Raises:
        CountError: If the process fails.

    Source: perf-stat(1), or strace(1) where the kernel has no such tracepoint.
    """
    tool = _perf if _perf_works() else _strace
    totals = [tool(loop, engine, {name: [number]}) for number in (low, high)]
    return (totals[1] - totals[0]) / (2 * (high - low))  # a body runs twice: once to warm up


@functools.cache
def _perf_works() -> bool:
    """Whether the kernel lets perf count system calls, which disturbs least."""
    try:
        command = ["perf", "stat", "-e", _EVENT, "true"]
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
    except FileNotFoundError:
        return False


def _perf(loop: str, engine: str, counts: Counts) -> int:
    with tempfile.NamedTemporaryFile() as out:
        _run(["perf", "stat", "-x", ",", "-e", _EVENT, "-o", out.name], loop, engine, "default", counts)
        line = next((line for line in Path(out.name).read_text().splitlines() if _EVENT in line), "")
    if not line.split(",")[0].isdigit():
        raise CountError(f"perf counted nothing: {line!r}")
    return int(line.split(",")[0])


def _strace(loop: str, engine: str, counts: Counts) -> int:
    with tempfile.NamedTemporaryFile() as out:
        _run(["strace", "-f", "-c", "-o", out.name], loop, engine, "default", counts)
        line = next((line for line in Path(out.name).read_text().splitlines() if line.endswith(" total")), None)
    if line is None:
        raise CountError("strace gave no total")
    return int(line.split()[3])  # % time, seconds, usecs/call, calls
