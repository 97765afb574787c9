"""
What copies cost on each path of this machine: measured once by ``calibrate()`` and kept, or assumed until then.

``advise()`` and the count of copies that do not pay off read it; ``copy()`` never does.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import datetime
import json
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aiodocadma._private import environment, make_folder

if TYPE_CHECKING:
    from aiodocadma._devices import DeviceInfo
    from aiodocadma._dma import DMA

__all__ = ["Calibration", "Cost", "Curve", "assumed", "calibrate", "crossover_of", "stored_calibration"]


class Cost(NamedTuple):
    """
    What one copy takes.

    Args:
        seconds: Until it has ended, Python and the loop included.
        cpu_seconds: Of this process's CPU time, its threads included.

    Source: aiodocadma.
    """

    seconds: float
    cpu_seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class Curve:
    """
    What copies of some lengths take; between them, and past the last, it is a straight line.

    Args:
        lengths: In bytes, ascending, at least two.
        costs: One for each length.

    Source: aiodocadma.
    """

    lengths: tuple[int, ...]
    costs: tuple[Cost, ...]

    def at(self, length: int) -> Cost:
        """
        What a copy of this length takes.

        Args:
            length: In bytes; below the first of the curve it costs as much as that.

        Returns:
            The cost.

        Source: aiodocadma.
        """
        if length <= self.lengths[0]:
            return self.costs[0]
        right = min(bisect.bisect_left(self.lengths, length), len(self.lengths) - 1)
        (x0, x1), (a, b) = self.lengths[right - 1 : right + 1], self.costs[right - 1 : right + 1]
        part = (length - x0) / (x1 - x0)
        return Cost(*(max(low, low + part * (high - low)) for low, high in zip(a, b, strict=True)))


@dataclasses.dataclass(frozen=True, slots=True)
class Calibration:
    """
    What the paths cost on one machine.

    Args:
        cpu: A copy by the CPU, as a slice assignment.
        registered: An awaited ``dma.copy()`` between registered maps.
        unregistered: The same between plain objects, which are registered for it.
        device: The device it was measured on, or None if nothing was measured.
        emulated: Whether that was the emulator.
        max_buf_size: What one task could move there, or None.
        measured_at: When, in UTC, or None if these are assumptions.

    Source: aiodocadma.
    """

    cpu: Curve
    registered: Curve
    unregistered: Curve
    device: str | None = None
    emulated: bool = False
    max_buf_size: int | None = None
    measured_at: str | None = None

    def crossover(self, *, registered: bool = True) -> int | None:
        """
        From which length on a copy by DMA takes less CPU time than one by the CPU.

        Args:
            registered: Whether the memory is registered already.

        Returns:
            Bytes, or None if no copy does. On the emulator the CPU does the work of both.

        Source: aiodocadma.
        """
        dma = self.registered if registered else self.unregistered

        def saved(length: int) -> float:
            return self.cpu.at(length).cpu_seconds - dma.at(length).cpu_seconds

        lengths = sorted({*self.cpu.lengths, *dma.lengths})
        low, high = lengths[-1], lengths[-1] * 1024
        if saved(low) <= 0:
            if saved(high) <= 0:
                return None
        else:
            below = [length for length in lengths if saved(length) <= 0]
            if not below:
                return lengths[0]
            low = below[-1]
            high = lengths[lengths.index(low) + 1]
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if saved(middle) <= 0 else (low, middle)
        return high

    def record(self) -> dict[str, Any]:
        """
        The calibration as JSON has it.

        Returns:
            What ``from_record()`` takes.

        Source: aiodocadma.
        """
        return dataclasses.asdict(self)

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Calibration:
        """
        Make one from JSON.

        Args:
            record: From ``record()``.

        Returns:
            The calibration.

        Raises:
            ValueError: If it is none.

        Source: aiodocadma.
        """
        try:
            curves = {
                name: Curve(
                    tuple(map(int, record[name]["lengths"])),
                    tuple(Cost(float(seconds), float(cpu)) for seconds, cpu in record[name]["costs"]),
                )
                for name in ("cpu", "registered", "unregistered")
            }
            if any(len(curve.lengths) < 2 or len(curve.lengths) != len(curve.costs) for curve in curves.values()):
                raise ValueError("a curve has at least two points")
            return cls(**{**record, **curves})
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a calibration: {error}") from None


# What is assumed until calibrate() has run. A CPU copies at 10 GB/s; an awaited copy costs the loop 10 us of CPU time;
# a lone task of the engine takes 1.5 us and moves 10.8 GB/s, several together 31.7 GB/s, as published for cards;
# pinning is 30 us and 0.25 us per page.
_ASSUMED_LENGTHS: Final = (64, 64 << 10, 256 << 10, 16 << 20)


def assumed() -> Calibration:
    """
    Make the calibration that stands for a machine that has none.

    Returns:
        What is published for cards, and what is typical of CPUs; ``measured_at`` is None.

    Source: NVIDIA's published figures for DOCA DMA.
    """

    def engine(length: int) -> float:
        return 1.5e-6 + max(min(length, 64 << 10) / 10.8e9, length / 31.7e9)

    def curve(cost: Callable[[int], Cost]) -> Curve:
        return Curve(_ASSUMED_LENGTHS, tuple(map(cost, _ASSUMED_LENGTHS)))

    def pinning(length: int) -> float:
        return 30e-6 + 0.25e-6 * length / 4096

    return Calibration(
        cpu=curve(lambda length: Cost(*[0.2e-6 + length / 10e9] * 2)),
        registered=curve(lambda length: Cost(10e-6 + engine(length), 10e-6)),
        unregistered=curve(lambda length: Cost(10e-6 + engine(length) + pinning(length), 10e-6 + pinning(length))),
    )


# ---- measuring

_LENGTHS: Final = tuple(64 << step for step in range(19))  # 64 B to 16 MiB
_PLAIN_LENGTHS: Final = (64, 64 << 10, 1 << 20, 16 << 20)
_SAMPLE_BYTES: Final = 8 << 20  # a sample moves about so much,
_SAMPLE_COPIES: Final = 100  # but in no more copies than these
_ROUNDS: Final = 3


async def calibrate(dma: DMA, *, store: bool = True, clock: Callable[[], float] = time.perf_counter) -> Calibration:
    """
    Measure what copies cost on this machine, by the CPU and by the engine; takes a second or so.

    Copies between local memory. The machine should have little else to do.

    Args:
        dma: An open DMA, with nothing in flight.
        store: Whether to keep the result for ``advise()``, in the user's cache folder.
        clock: What tells the engine's time in seconds; for tests against virtual time.

    Returns:
        The calibration.

    Raises:
        DocaError: If a copy fails.
        OSError: If it cannot be stored.

    Cancellation: Stores nothing; waits for the copy under way.
    Source: aiodocadma.
    """
    size = _LENGTHS[-1]
    plain = bytes(range(256)) * (size // 256), bytearray(size)
    from_, to = memoryview(plain[0]), memoryview(plain[1])

    async def by_cpu(length: int) -> None:
        to[:length] = from_[:length]

    async def unregistered(length: int) -> None:
        await dma.copy(from_[:length], to[:length])

    src, dst = await dma.alloc(size), await dma.alloc(size)
    async with src, dst:

        async def registered(length: int) -> None:
            await dma.copy(src[:length], dst[:length])

        measured = Calibration(
            cpu=await _curve(by_cpu, _LENGTHS, time.perf_counter),
            registered=await _curve(registered, _LENGTHS, clock),
            unregistered=await _curve(unregistered, _PLAIN_LENGTHS, clock),
            device=dma.device.name,
            emulated=dma.emulated,
            max_buf_size=dma.capabilities.max_buf_size,
            measured_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        )
    if store:
        _store(measured)
    return measured


async def _curve(copy: Callable[[int], Awaitable[None]], lengths: tuple[int, ...], clock: Callable[[], float]) -> Curve:
    """Median cost of one copy, for each length; the first round warms up."""
    costs = []
    for length in lengths:
        copies = max(1, min(_SAMPLE_COPIES, _SAMPLE_BYTES // length))
        samples = []
        for _ in range(1 + _ROUNDS):
            start, cpu_start = clock(), time.process_time()
            for _ in range(copies):
                await copy(length)
            samples.append(((clock() - start) / copies, (time.process_time() - cpu_start) / copies))
        costs.append(Cost(*(sorted(column)[_ROUNDS // 2] for column in zip(*samples[1:], strict=True))))
    return Curve(lengths, tuple(costs))


def _store_path() -> Path:
    cache = environment("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "aiodocadma" / f"calibration-{os.uname().nodename or 'here'}.json"


def _store(calibration: Calibration) -> None:
    path = _store_path()
    make_folder(path.parent)
    fd, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with open(fd, "w") as file:
            json.dump(calibration.record(), file)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def crossover_of(device: DeviceInfo) -> int:
    """
    From which length on copies of registered memory pay off on a card: as measured there, else as assumed.

    Args:
        device: The card's.

    Returns:
        Bytes; 0 where no copy pays off.

    Source: aiodocadma.
    """
    stored = stored_calibration()
    measured = stored is not None and stored.device == device.name and not stored.emulated
    return (stored if stored is not None and measured else assumed()).crossover() or 0


def stored_calibration() -> Calibration | None:
    """
    What ``calibrate()`` stored on this machine.

    Returns:
        The calibration; None if there is none, or none that can be read.

    Source: aiodocadma.
    """
    try:
        return Calibration.from_record(json.loads(_store_path().read_text()))
    except (OSError, ValueError, RuntimeError):  # RuntimeError: no home folder
        return None
