"""
Count the instructions of one awaited copy, beside the bare futures it cannot be cheaper than.

Instructions, not seconds: they repeat to a fraction of a percent on a busy machine. Each case runs under callgrind with
two numbers of operations; the slope between them leaves out what is paid once. Needs valgrind and a C compiler.

    python benchmarks/instructions.py [--json] [--loop asyncio|uvloop] [CASE ...]
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import aiodocadma

LENGTH = 4096  # bytes per copy
BATCH = 1000  # copies per gather
COUNTS = (1000, 4000)

Case: TypeAlias = Callable[[int], Awaitable[None]]


async def future_done(count: int) -> None:
    """Await a future that is done already."""
    future = asyncio.get_running_loop().create_future()
    future.set_result(None)
    for _ in range(count):
        await future


async def future(count: int) -> None:
    """Await a fresh future that the next turn of the loop resolves."""
    loop = asyncio.get_running_loop()
    for _ in range(count):
        future = loop.create_future()
        loop.call_soon(future.set_result, None)
        await future


async def future_gather(count: int) -> None:
    """Gather fresh futures, resolved together in the next turn."""
    loop = asyncio.get_running_loop()

    def resolve(futures: list[asyncio.Future[None]]) -> None:
        for future in futures:
            future.set_result(None)

    for _ in range(count // BATCH):
        futures = [loop.create_future() for _ in range(BATCH)]
        loop.call_soon(resolve, futures)
        await asyncio.gather(*futures)


def copy(src: aiodocadma.Buffer, dst: aiodocadma.Buffer, dma: aiodocadma.DMA) -> Case:
    """Await copies one after another."""

    async def run(count: int) -> None:
        for _ in range(count):
            await dma.copy(src, dst)

    return run


def copy_gather(src: aiodocadma.Buffer, dst: aiodocadma.Buffer, dma: aiodocadma.DMA) -> Case:
    """Gather copies, a batch at a time."""

    async def run(count: int) -> None:
        for _ in range(count // BATCH):
            await asyncio.gather(*[dma.copy(src, dst) for _ in range(BATCH)])

    return run


FLOORS = {"future_done": future_done, "future": future, "future_gather": future_gather}
COPIES = {"copy": copy, "copy_gather": copy_gather}
FLOOR_OF = {"copy": "future_done", "copy_gather": "future_gather"}


async def measured(name: str, count: int, region: ctypes.CDLL) -> None:
    """Run a case once to warm up, then once between the marks."""

    async def both(case: Case) -> None:
        await case(BATCH)
        gc.collect()
        gc.disable()
        region.region_start()
        await case(count)
        region.region_stop()

    if name in FLOORS:
        await both(FLOORS[name])
        return
    async with aiodocadma.open_dma() as dma:
        src, dst = await dma.alloc(LENGTH), await dma.alloc(LENGTH)
        await both(COPIES[name](src[:], dst[:], dma))


def count_instructions(name: str, loop: str, count: int, region: Path, folder: Path) -> int:
    """Run this file under callgrind and read what the region cost."""
    out = folder / f"{name}.{loop}.{count}"
    command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}", sys.executable]
    result = subprocess.run(
        [*command, __file__, "--loop", loop, "--measure", name, str(count), str(region)],
        env=os.environ | {"PYTHONHASHSEED": "0"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    if result.returncode:
        sys.exit(f"{name} on {loop} failed under valgrind:\n{result.stderr}")
    # The first dump is the region's; the one at exit is not.
    totals = re.search(r"^totals: (\d+)$", Path(f"{out}.1").read_text(), re.MULTILINE)
    assert totals is not None
    return int(totals[1])


def run_loop(loop: str, main: Awaitable[None]) -> None:
    """Run on asyncio or uvloop."""
    if loop == "uvloop":
        import uvloop

        factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    else:
        factory = asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main)  # type: ignore[arg-type]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Instructions per awaited copy, and per bare future.")
    parser.add_argument("cases", metavar="CASE", nargs="*", help=f"from {', '.join([*FLOORS, *COPIES])} (default: all)")
    parser.add_argument("--loop", choices=["asyncio", "uvloop"], help="default: both")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        name, count, region_path = args.measure
        run_loop(args.loop, measured(name, int(count), ctypes.CDLL(region_path)))
        return
    if unknown := set(args.cases) - {*FLOORS, *COPIES}:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")

    results = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        region = folder / "region.so"
        source = Path(__file__).with_name("region.c")
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", source, "-o", region], check=True)
        for loop in [args.loop] if args.loop else ["asyncio", "uvloop"]:
            cost: dict[str, float] = {}
            for case in args.cases or [*FLOORS, *COPIES]:
                low, high = (count_instructions(case, loop, count, region, folder) for count in COUNTS)
                cost[case] = (high - low) / (COUNTS[1] - COUNTS[0])
                floor = cost.get(FLOOR_OF.get(case, ""))
                results.append(
                    {
                        "case": case,
                        "loop": loop,
                        "instructions": cost[case],
                        "ratio": cost[case] / floor if floor else None,
                        "python": sys.version.split()[0],
                        "emulated": None if case in FLOORS else emulated(),
                    }
                )
                if not args.json:
                    ratio = f"  {cost[case] / floor:5.2f} x {FLOOR_OF[case]}" if floor else ""
                    print(f"{loop:8}{case:16}{cost[case]:10,.0f}{ratio}", flush=True)
    if args.json:
        print(json.dumps(results, indent=2))


def emulated() -> bool:
    """Whether the copies ran on the emulator."""
    return next(device.emulated for device in aiodocadma.devices() if device.dma_supported)


if __name__ == "__main__":
    main()
