"""Run the soak; see the package. Exit status 1 if anything was lost, wrong, or grows."""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import logging
import os
import random
import statistics
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

import uvloop

import aiodocadma
from aiodocadma import emulator

from . import _peers
from ._load import Load
from ._model import WrongDataError

LOOPS: Final = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
EPOCH_SECONDS: Final = 10.0
LEAST_EPOCHS: Final = 15  # fewer would have the heap judged by single samples, which differ by a MiB or two
WARM_UP: Final = 0.3  # of the epochs: caches of allocators and of Python fill meanwhile
MAX_GROWTH: Final = {"rss_kib": 4096, "heap_kib": 2048}  # of the median of the last third over that of the first
M_ARENA_MAX: Final = -8

# What a summary shows first.
MAIN: Final = ["seconds", "copies", "bytes checked", "faults that fired", "restarts", "engines lost", "peers killed"]

ROOT: Final = Path(__file__).resolve().parents[2]


libc: Final = ctypes.CDLL(None)


class Mallinfo(ctypes.Structure):
    """``struct mallinfo2``; all but two of its numbers are of no interest here."""

    _fields_ = [(f"field{i}", ctypes.c_size_t) for i in range(10)]

    @property
    def in_use(self) -> int:
        """Bytes that malloc has given out: ``hblkhd`` and ``uordblks``."""
        return int(self.field4 + self.field7)


libc.mallinfo2.restype = Mallinfo


class Sample(NamedTuple):
    """What there is between two epochs, when everything is closed."""

    rss_kib: int
    heap_kib: int
    locked_kib: int
    pinned_bytes: int
    doca_objects: int
    fds: int
    threads: int
    python_objects: int


def look() -> Sample:
    """Measure, after everything that can be freed has been."""
    for _ in range(3):
        gc.collect()
    libc.malloc_trim(0)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    live = emulator.live_objects()
    return Sample(
        rss_kib=int(status["VmRSS"].split()[0]),
        heap_kib=libc.mallinfo2().in_use // 1024,
        locked_kib=int(status["VmLck"].split()[0]) + int(status["VmPin"].split()[0]),
        pinned_bytes=live.pinned_bytes,
        doca_objects=sum(live) - live.pinned_bytes,
        fds=len(os.listdir("/proc/self/fd")),
        threads=int(status["Threads"]),
        python_objects=len(gc.get_objects()),  # those that the collector knows
    )


def settings(rng: random.Random) -> dict[str, object]:
    """How the emulator is in an epoch: small limits, so that copies are cut and wait."""
    chosen: dict[str, object] = {
        "engine": rng.choice(["default", "worker"]),
        "max_buf_size": rng.choice([8192, 65536, 1 << 20]),
        "inline_max": rng.choice([0, 4096, 65536]),
    }
    if rng.random() < 0.3:
        chosen |= {"chaos": rng.randrange(1, 10**9), "chaos_faults": rng.choice([0, 200])}
    return chosen


def epoch(seed: int, seconds: float, tally: Counter[str]) -> None:
    """Have every loop work for that long, each in its own thread; raises what must not be."""
    rng = random.Random(seed)
    emulator.reset()
    emulator.configure(strict="report", strict_client=True, edge="strict", **settings(rng))
    tallies: list[Counter[str]] = []
    errors: list[BaseException] = []

    def work(kind: str, number: int) -> None:
        async def main() -> None:
            end = asyncio.get_running_loop().time() + seconds
            await Load(random.Random(number), tallies[-1], end).run()

        try:
            with asyncio.Runner(loop_factory=LOOPS[kind]) as runner:
                runner.run(main())
        except BaseException as exc:
            errors.append(exc)

    threads = []
    for kind in LOOPS:
        tallies.append(Counter())
        threads.append(threading.Thread(target=work, args=(kind, rng.randrange(1 << 32))))
        threads[-1].start()
        time.sleep(0.01)
    deadline = time.monotonic() + seconds + 60
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            raise WrongDataError("a loop did not end: something waits for ever")
    if errors:
        raise errors[0]
    for done in tallies:
        tally.update(done)
    counted = emulator.counters()
    tally["faults that fired"] += counted.faults
    if broken := emulator.violations():
        raise WrongDataError(f"rules of DOCA were broken: {broken}")


def warm_up() -> None:
    """Have the emulator make its record of chaos, 2 MiB that it keeps from the first epoch with chaos on."""

    async def main() -> None:
        async with aiodocadma.open_dma() as dma:
            await dma.copy(bytes(1 << 20), bytearray(1 << 20))

    emulator.configure(chaos=1)
    asyncio.run(main())


def growth(samples: list[Sample]) -> list[str]:
    """What is not flat."""
    found = []
    steady = samples[int(len(samples) * WARM_UP) :]
    for field in ("locked_kib", "pinned_bytes", "doca_objects"):
        if any(getattr(sample, field) for sample in samples):
            found.append(f"{field} is not 0 while everything is closed")
    for field in ("fds", "threads"):
        values = [getattr(sample, field) for sample in steady]
        if max(values) > values[0]:
            found.append(f"{field} grows: {values}")
    third = max(1, len(steady) // 3)
    for field, most in MAX_GROWTH.items():
        values = [getattr(sample, field) for sample in steady]
        if statistics.median(values[-third:]) - statistics.median(values[:third]) > most:
            found.append(f"{field} grows: {values}")
    return found


def show(tally: Counter[str], samples: list[Sample]) -> None:
    """The figures, for a person."""
    for name in sorted(tally):
        print(f"{name:40} {tally[name]:>16,}")
    print()
    for field in Sample._fields:
        values = [getattr(sample, field) for sample in samples]
        print(
            f"{field:16} first {values[0]:>9,}  least {min(values):>9,}  most {max(values):>9,}  last {values[-1]:>9,}"
        )


def soak(seconds: float, seed: int, report: Path | None) -> int:
    """All epochs."""
    libc.mallopt(M_ARENA_MAX, 1)  # each of the many threads would begin one of its own, and leave it half empty
    logging.getLogger("aiodocadma").addHandler(logging.NullHandler())
    logging.getLogger("aiodocadma").propagate = False
    tally: Counter[str] = Counter()
    samples: list[Sample] = []
    start = time.monotonic()
    number = 0
    problems: list[str] = []
    print(f"seed {seed}, {seconds:g} s", flush=True)
    warm_up()
    while time.monotonic() - start < seconds or number < LEAST_EPOCHS:
        try:
            epoch(seed + number, min(EPOCH_SECONDS, seconds / LEAST_EPOCHS), tally)
        except Exception as exc:
            import traceback

            traceback.print_exception(exc)
            problems.append(f"epoch {number} (--seed {seed + number}): {exc!r}")
            break
        samples.append(look())
        number += 1
    tally["epochs"] = number
    if samples:
        problems += growth(samples)
        show(tally, samples)
    for problem in problems:
        print(f"FAILED: {problem}")
    if report is not None:
        sys.path.insert(0, str(ROOT / "tools"))
        from report import write

        steady = samples[int(len(samples) * WARM_UP) :]
        seconds_taken = round(time.monotonic() - start)
        figures = {"seconds": seconds_taken, "seed": seed, "problems": problems, **dict(sorted(tally.items()))}
        levels = {
            field: [min(values), max(values)]
            for field in Sample._fields
            if (values := [getattr(sample, field) for sample in steady])
        }
        write(report, f"python -m tests.soak --seconds {seconds:g}", figures, levels=levels, main=MAIN)
    return int(bool(problems))


def main() -> int:
    """Run the soak, or a peer of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="Everything at once, for some time.")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=None, help="of the first epoch; each next one has the next number")
    parser.add_argument("--report", type=Path, metavar="FILE", help="where to write the figures, as JSON")
    parser.add_argument("--exporter", metavar="ADDRESS", help=argparse.SUPPRESS)
    parser.add_argument("--importer", metavar="ADDRESS", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.exporter:
        asyncio.run(_peers.export(options.exporter, options.seed))
    elif options.importer:
        asyncio.run(_peers.import_(options.importer, options.seed))
    else:
        seed = random.SystemRandom().randrange(1, 10**6) if options.seed is None else options.seed
        return soak(options.seconds, seed, options.report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
