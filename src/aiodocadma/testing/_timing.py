"""When completions come: by a plan, by the virtual clock, or by chaos."""

from __future__ import annotations

import dataclasses
import random
from typing import Literal, Self

from aiodocadma import emulator

__all__ = ["Chaos", "Schedule", "VirtualClock"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """
    A plan for the completions of the copies submitted from ``apply()`` on.

    Args:
        hold: Withhold them until ``emulator.release()``.
        order: In which order those are reported that are due together; of a block of 64.
        latency: Seconds of virtual time a copy takes at least.
        bandwidth: Bytes per second of virtual time; 0 for no limit.
        profile: A card's speed, in virtual time; ``latency`` and ``bandwidth`` replace what it says.
        seed: Of a random order.

    Source: ``docaemu_configure``.
    """

    hold: bool = False
    order: Literal["fifo", "lifo", "random"] = "fifo"
    latency: float = 0.0
    bandwidth: int = 0
    profile: Literal["none", "bf2", "bf3"] = "none"
    seed: int = 1

    def apply(self) -> None:
        """
        Have the emulator keep to it.

        Raises:
            ValueError: If a number is out of range.

        Source: ``docaemu_configure``.
        """
        emulator.configure(
            hold=self.hold,
            order=self.order,
            latency=round(self.latency * 1e9),
            bandwidth=self.bandwidth,
            profile=self.profile,
            seed=self.seed,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Chaos:
    """
    Random latencies, orders, storms of AGAIN, spurious notifications and failures, all from a seed.

    The same seed gives the same program the same events, ``emulator.chaos_events()``. It is the same if it makes the
    same calls in the same order: what it does in threads or by real time may change that. More than 256 KiB are
    registered in a thread; after a failed task the engine is restarted, and the cause looked for, in one.

    Args:
        seed: Not 0.
        faults: One task in so many fails; 0 for none.

    Source: ``docaemu_chaos.h``.
    """

    seed: int
    faults: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.seed < 2**64:
            raise ValueError(f"seed must be between 1 and 2**64 - 1, not {self.seed}")

    @classmethod
    def random(cls, faults: int = 0) -> Self:
        """
        Draw a seed.

        Args:
            faults: One task in so many fails; 0 for none.

        Returns:
            Chaos with a seed short enough to type.

        Source: aiodocadma.
        """
        return cls(random.SystemRandom().randrange(1, 10**9), faults)

    def apply(self) -> None:
        """
        Turn it on, for the DMAs opened from now on.

        Source: ``docaemu_configure``.
        """
        emulator.configure(chaos=self.seed, chaos_faults=self.faults)


class VirtualClock:
    """
    The emulator's virtual clock: for code that takes a clock in place of ``time.monotonic``.

    It moves when it is advanced, and by what copies take (``Schedule(latency=...)``): when the program sleeps, to the
    end of the next copy. After ``emulator.configure(clock="manual")`` it moves when it is advanced only, and a copy
    ends when its time has come.

    Source: ``docaemu_time``, ``docaemu_time_advance``.
    """

    def __call__(self) -> float:
        return emulator.time_ns() / 1e9

    def advance(self, seconds: float) -> None:
        """
        Let time pass; copies that are due by then end.

        Args:
            seconds: To add to the clock, not negative.

        Source: ``docaemu_time_advance``.
        """
        emulator.time_advance(round(seconds * 1e9))
