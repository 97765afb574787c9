"""
``aiodocadma bench``: what a copy costs on this machine, for the sizes and depths asked for, beside the CPU's own copy.

A mode is a question: ``throughput`` counts copies that are gathered, ``max-bandwidth`` such behind one future,
``bulk-latency`` times a batch from its start to its end, ``precision-latency`` each copy alone. Figures of different
modes answer different questions, so records are compared within one mode only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import platform
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, Final

import aiodocadma
from aiodocadma.cli._exit import Exit, ExitCode
from aiodocadma.cli._options import MAX_COUNT, Commands, add_command, add_device, check_memory, count, seconds, size
from aiodocadma.cli._progress import Rows, open_rows
from aiodocadma.exceptions import AiodocadmaError

FORMAT: Final = 1
MODES: Final = ("throughput", "max-bandwidth", "bulk-latency", "precision-latency")
LATENCY_MODES: Final = ("bulk-latency", "precision-latency")
FIGURES: Final = ("p50", "copies_per_second")  # what is compared with an earlier record, as the mode has it
MEMORY: Final = 64 << 20  # bytes a side at most: beyond the caches, and quick to register
MIN_SAMPLES: Final = 5
WARM_UP: Final = 1  # runs of a point that are not measured


@dataclass(frozen=True, slots=True)
class Point:
    """
    One size at one depth.

    Args:
        size: Bytes of each copy.
        depth: Copies at once.
        copies: How many were made.
        seconds: In what time.
        p50: Half of the samples took so many seconds or less; a sample is a copy or a batch, as the mode has it.
        p99: 99 % did.
        cpu_seconds: The median of the CPU's copy of that size, in this process.
    """

    size: int
    depth: int
    copies: int
    seconds: float
    p50: float
    p99: float
    cpu_seconds: float

    @property
    def copies_per_second(self) -> float:
        """How many."""
        return self.copies / self.seconds

    @property
    def bytes_per_second(self) -> float:
        """How much."""
        return self.size * self.copies_per_second


def _percentile(samples: Sequence[float], part: float) -> float:
    return sorted(samples)[min(len(samples) - 1, math.floor(part * len(samples)))]


async def _sample(work: Callable[[], Awaitable[object]], seconds: float) -> list[float]:
    """Run it for so long, and a few times at least; how long each run took, those of the warm-up left out."""
    for _ in range(WARM_UP):
        await work()
    samples: list[float] = []
    end = time.perf_counter() + seconds
    while len(samples) < MIN_SAMPLES or time.perf_counter() < end:
        start = time.perf_counter()
        await work()
        samples.append(time.perf_counter() - start)
    return samples


def _cpu_seconds(source: memoryview, destination: memoryview, size: int) -> float:
    """The median time of the CPU's copy of so many bytes."""
    samples: list[float] = []
    end = time.perf_counter() + 0.02
    while len(samples) < MIN_SAMPLES or time.perf_counter() < end:
        start = time.perf_counter()
        destination[:size] = source[:size]
        samples.append(time.perf_counter() - start)
    return _percentile(samples, 0.5)


def _side(size: int, depth: int) -> int:
    """Bytes of memory on each side."""
    return min(max(size, MEMORY), size * depth)


def _places(size: int, depth: int, nbytes: int) -> list[int]:
    """Where the copies at once lie: side by side, from the start again when the memory is used up."""
    room = nbytes // size
    return [index % room * size for index in range(depth)]


async def _measure(dma: aiodocadma.DMA, mode: str, size: int, depth: int, seconds: float) -> Point:
    nbytes = _side(size, depth)
    offsets = _places(size, depth, nbytes)
    source, destination = await dma.alloc(nbytes), await dma.alloc(nbytes)
    sides = [(source[at : at + size], destination[at : at + size]) for at in offsets]

    async def one() -> None:
        await dma.copy(*sides[0])

    async def gathered() -> None:
        await asyncio.gather(*[dma.copy(src, dst) for src, dst in sides])

    async def many() -> None:
        await dma.copy_many(sides)

    work = one if mode == "precision-latency" else many if mode == "max-bandwidth" else gathered
    samples = await _sample(work, seconds)
    with memoryview(source) as src_view, memoryview(destination) as dst_view:
        cpu = _cpu_seconds(src_view, dst_view, size)
    for memory in (source, destination):
        await memory.aclose()  # after an error the DMA closes them: this waits for the engine without a bound
    copies = len(samples) * depth
    return Point(size, depth, copies, sum(samples), _percentile(samples, 0.5), _percentile(samples, 0.99), cpu)


def crossover(points: Sequence[Point]) -> int | None:
    """
    The size from which on a copy is quicker than the CPU's.

    Args:
        points: Of one run, in any order.

    Returns:
        The smallest size from which on the engine takes less time per copy, at its best depth, than the CPU; None if
        there is none.

    Source: aiodocadma.
    """
    best: dict[int, float] = {}
    cpu: dict[int, float] = {}
    for point in points:
        taken = point.seconds / point.copies
        best[point.size] = min(best.get(point.size, taken), taken)
        cpu[point.size] = min(cpu.get(point.size, point.cpu_seconds), point.cpu_seconds)
    found = None
    for nbytes in sorted(best, reverse=True):
        if best[nbytes] >= cpu[nbytes]:
            break
        found = nbytes
    return found


def _record(args: argparse.Namespace, device: aiodocadma.DeviceInfo, points: Sequence[Point]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "command": sys.argv,
        "version": aiodocadma.__version__,
        "mode": args.mode,
        "warm_up": WARM_UP,
        "device": device.pci_address,
        "ibdev_name": device.ibdev_name,
        "library": device.library,
        "emulated": device.emulated,
        "environment": {
            "python": platform.python_version(),
            "kernel": platform.release(),
            "machine": platform.machine(),
            "cpus": os.cpu_count(),
        },
        "points": [
            asdict(point) | {"copies_per_second": point.copies_per_second, "bytes_per_second": point.bytes_per_second}
            for point in points
        ],
        "crossover": crossover(points),
    }


def _positive(figure: Any) -> float:
    value = float(figure)
    if not value > 0:
        raise ValueError
    return value


def _load(path: str, mode: str, emulated: bool) -> dict[tuple[int, int], dict[str, float]]:
    """The points of an earlier record, if it can be compared with this run."""
    try:
        with open(path) as file:
            record = json.load(file)
        found = record["format"], record["mode"], record["emulated"]
        points = {
            (point["size"], point["depth"]): {figure: _positive(point[figure]) for figure in FIGURES}
            for point in record["points"]
        }
        if not isinstance(found[2], bool):
            raise ValueError
    except (KeyError, TypeError, ValueError, RecursionError):
        raise Exit(ExitCode.USAGE, f"{path}: not a record of aiodocadma bench --json") from None
    if found[0] != FORMAT:
        raise Exit(ExitCode.USAGE, f"{path}: written by another version of aiodocadma bench")
    if found[1] != mode:
        raise Exit(ExitCode.USAGE, f"{path}: its mode is {found[1]}, not {mode}: such figures do not compare")
    if found[2] != emulated:
        kinds = {True: "the emulator", False: "a card"}
        raise Exit(
            ExitCode.USAGE, f"{path}: of {kinds[found[2]]}, not of {kinds[emulated]}: such figures do not compare"
        )
    return points


def format_size(size: int) -> str:
    """Format a size as the options take it: 64, 4K, 1M."""
    for unit, factor in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def _time(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def _cells(point: Point, mode: str, before: dict[tuple[int, int], dict[str, float]] | None) -> list[str]:
    cells = [format_size(point.size), str(point.depth)]
    if mode in LATENCY_MODES:
        cells += [_time(point.p50), _time(point.p99)]
    else:
        cells += [f"{point.copies_per_second:,.0f}", f"{point.bytes_per_second / 1e9:.3g}"]
    cells += [_time(point.seconds / point.copies), _time(point.cpu_seconds)]
    if before is not None:
        old = before.get((point.size, point.depth))
        if old is None:
            cells.append("-")
        elif mode in LATENCY_MODES:
            cells.append(f"{point.p50 / old['p50']:.2f}")
        else:
            cells.append(f"{point.copies_per_second / old['copies_per_second']:.2f}")
    return cells


def _columns(mode: str, compared: bool) -> list[str]:
    middle = ["P50", "P99"] if mode in LATENCY_MODES else ["COPIES/S", "GB/S"]
    return ["SIZE", "DEPTH", *middle, "PER COPY", "CPU", *(["RATIO"] if compared else [])]


async def bench(args: argparse.Namespace) -> int:
    """
    Measure and report.

    Args:
        args: ``mode``, ``sizes``, ``depths``, ``seconds``, ``compare``, ``json``, ``device``, ``library``.

    Returns:
        The exit code.

    Raises:
        Exit: With the code of what went wrong; a record that does not compare is wrong usage.
        OSError: If the record to compare with cannot be read.
        AiodocadmaError: If the engine fails.

    Cancellation: Waits for the engine to let go.

    Source: aiodocadma.
    """
    depths = [1] if args.mode == "precision-latency" else args.depths
    for nbytes, depth in product(args.sizes, depths):
        check_memory(f"copies of --sizes {format_size(nbytes)}", 2 * _side(nbytes, depth))
    async with AsyncExitStack() as stack:
        try:
            dma = await stack.enter_async_context(aiodocadma.open_dma(args.device, library=args.library))
        except AiodocadmaError as error:
            raise Exit(ExitCode.NO_DEVICE) from error
        device = dma.device
        before = _load(args.compare, args.mode, device.emulated) if args.compare else None
        if not args.json:
            print(_heading(args.mode, device))
        rows: Rows = open_rows(_columns(args.mode, before is not None), quiet=args.json)
        points = []
        try:
            for nbytes, depth in product(args.sizes, depths):
                point = await _measure(dma, args.mode, nbytes, depth, args.seconds)
                points.append(point)
                rows.add(_cells(point, args.mode, before))
        finally:
            rows.close()
    if args.json:
        print(json.dumps(_record(args, device, points), indent=2))
    else:
        print(_conclusion(crossover(points), device))
    return ExitCode.DONE


def _heading(mode: str, device: aiodocadma.DeviceInfo) -> str:
    where = f"the emulator's {device.ibdev_name}" if device.emulated else device.ibdev_name
    return f"{mode} on {where}\n"


def _conclusion(size: int | None, device: aiodocadma.DeviceInfo) -> str:
    if size is None:
        line = "\nThe CPU's own copy is quicker at the largest of these sizes."
    else:
        line = f"\nFrom {format_size(size)} on a copy takes less time than the CPU's own."
    if device.emulated:
        line += "\nThe emulator copies with the CPU: these figures say nothing about a card."
    return line


def add_bench(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "bench",
        lambda args: asyncio.run(bench(args)),
        help="measure copies on this machine",
        description="Measure copies of each SIZE at each DEPTH, beside the CPU's own copy, and tell from which size on "
        "the engine is quicker. throughput: copies gathered, COUNT at once; max-bandwidth: the same behind one future; "
        "bulk-latency: a batch of COUNT from its start to its end; precision-latency: one copy at a time.",
    )
    parser.add_argument("--mode", choices=MODES, default=MODES[0], help="what to measure (default: %(default)s)")
    parser.add_argument(
        "--sizes",
        metavar="SIZE",
        type=size,
        nargs="+",
        default=[64, 4 << 10, 64 << 10, 1 << 20, 16 << 20],
        help="bytes per copy; K, M, G are powers of 1024 (default: 64 4K 64K 1M 16M)",
    )
    parser.add_argument(
        "--depths",
        metavar="COUNT",
        type=count,
        nargs="+",
        default=[1, 16, 256],
        help=f"copies at once, {MAX_COUNT} at most; precision-latency has one (default: 1 16 256)",
    )
    parser.add_argument(
        "--seconds", metavar="SECONDS", type=seconds, default=0.5, help="time for each figure (default: %(default)s)"
    )
    parser.add_argument("--compare", metavar="FILE", help="show the ratio to an earlier --json record of that mode")
    add_device(parser)
