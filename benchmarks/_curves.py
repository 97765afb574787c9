"""Operations per second and latency over size and depth, for the plots."""

from __future__ import annotations

import asyncio
import ctypes
import functools
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import aiodocadma
from benchmarks import _goals
from benchmarks._peers import address_of

SIZES = tuple(1 << n for n in range(6, 25, 2))  # 64 B to 16 MiB
DEPTHS = tuple(1 << n for n in range(0, 13, 2))  # 1 to 4096
DEPTH_LENGTH = 4096
SAMPLE = 0.02  # seconds of each sample, about
ROUNDS = 5

Work = Callable[[int], Awaitable[object]]


async def _rate(work: Work) -> float:
    """Operations per second, the median of some rounds; `work` does as many as it is told."""
    count = 1
    while True:
        start = time.perf_counter()
        await work(count)
        took = time.perf_counter() - start
        if took >= SAMPLE / 2:
            break
        count *= 2
    rates = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        await work(count)
        rates.append(count / (time.perf_counter() - start))
    return statistics.median(rates)


async def _measure(loop: str) -> list[dict[str, Any]]:
    points: list[dict[str, Any]] = []

    def add(axis: str, what: str, x: int, rate: float) -> None:
        points.append({"loop": loop, "axis": axis, "what": what, "x": x, "ops": rate})

    async with aiodocadma.open_dma() as dma:
        src_map, dst_map = await dma.alloc(SIZES[-1]), await dma.alloc(SIZES[-1])
        src_view, dst_view = memoryview(src_map), memoryview(dst_map)
        src_address, dst_address = address_of(src_view), address_of(dst_view)
        for size in SIZES:
            src, dst = src_map[:size], dst_map[:size]

            async def copies(count: int, src: Any = src, dst: Any = dst) -> None:
                for _ in range(count):
                    await dma.copy(src, dst)

            async def slices(count: int, size: int = size) -> None:
                for _ in range(count):
                    dst_view[:size] = src_view[:size]

            async def threads(count: int, size: int = size) -> None:
                for _ in range(count):
                    await asyncio.to_thread(ctypes.memmove, dst_address, src_address, size)

            add("size", "await copy", size, await _rate(copies))
            add("size", "slice statement", size, await _rate(slices))
            add("size", "to_thread(memmove)", size, await _rate(threads))
        src, dst = src_map[:DEPTH_LENGTH], dst_map[:DEPTH_LENGTH]
        memmove = functools.partial(ctypes.memmove, dst_address, src_address, DEPTH_LENGTH)
        for depth in DEPTHS:

            async def gathered(count: int, depth: int = depth) -> None:
                for _ in range(count):
                    await asyncio.gather(*[dma.copy(src, dst) for _ in range(depth)])

            async def many(count: int, depth: int = depth) -> None:
                for _ in range(count):
                    await dma.copy_many(
                        src_map, dst_map, src_offsets=range(0, depth), dst_offsets=0, lengths=DEPTH_LENGTH
                    )

            async def threads_gathered(count: int, depth: int = depth) -> None:
                for _ in range(count):
                    await asyncio.gather(*[asyncio.to_thread(memmove) for _ in range(depth)])

            add("depth", "gather of copy", depth, depth * await _rate(gathered))
            add("depth", "copy_many", depth, depth * await _rate(many))
            add("depth", "gather of to_thread", depth, depth * await _rate(threads_gathered))
        src_view.release()
        dst_view.release()
    return points


def measure() -> list[dict[str, Any]]:
    """All points, on both loops."""
    points = []
    for loop in _goals.LOOPS:
        points += _goals.run(loop, lambda loop=loop: _measure(loop))  # type: ignore[misc]
    return points


def draw(points: Sequence[dict[str, Any]], folder: str) -> None:
    """
    Draw them: a picture for each axis, with operations per second above and time per operation below.

    Args:
        points: From ``measure()``.
        folder: Gets ``size.png`` and ``depth.png``.

    Raises:
        ImportError: If there is no matplotlib.

    Source: aiodocadma.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter

    Path(folder).mkdir(parents=True, exist_ok=True)
    for axis, label in (("size", "bytes per copy"), ("depth", "copies at once, 4 KiB each")):
        figure, rows = pyplot.subplots(2, 2, figsize=(9, 6), sharex=True, sharey="row", layout="constrained")
        for column, loop in enumerate(_goals.LOOPS):
            mine = [point for point in points if point["axis"] == axis and point["loop"] == loop]
            for what in dict.fromkeys(point["what"] for point in mine):
                xs = [point["x"] for point in mine if point["what"] == what]
                ops = [point["ops"] for point in mine if point["what"] == what]
                rows[0][column].loglog(xs, ops, marker=".", label=what)
                rows[1][column].loglog(xs, [1e6 / rate for rate in ops], marker=".", label=what)
            rows[0][column].set_title(loop)
            rows[1][column].set_xlabel(label)
            rows[1][column].set_xscale("log", base=2)
            rows[1][column].xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
        rows[0][0].set_ylabel("copies per second")
        rows[1][0].set_ylabel("microseconds per copy")
        for row in rows.flat:
            row.grid(visible=True, alpha=0.3)
        figure.legend(*rows[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
        figure.savefig(Path(folder) / f"{axis}.png", dpi=80)
        pyplot.close(figure)


def _short(value: float) -> str:
    """A power of two with K or M."""
    for unit, size in (("M", 1 << 20), ("K", 1 << 10)):
        if value >= size:
            return f"{value / size:.0f}{unit}"
    return f"{value:.0f}"
