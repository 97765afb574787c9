"""What a DMA has done; the engine keeps no counters of its own, so these are the client's."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping

from aiodocadma import _native

__all__ = ["Latency", "Statistics"]


@dataclasses.dataclass(frozen=True, slots=True)
class Latency:
    """
    How long copies took from their start to their success: a histogram.

    Args:
        count: Copies.
        total: Seconds of all of them together.
        bounds: Upper bound of each bucket in seconds, exclusive; the last is infinite.
        buckets: Copies in each bucket.

    Source: aiodocadma; measured with ``open_dma(measure_latency=True)`` only.
    """

    count: int
    total: float
    bounds: tuple[float, ...]
    buckets: tuple[int, ...]

    @classmethod
    def _from_native(cls, counts: _native.LatencyCounts) -> Latency:
        return cls(counts.num_copies, counts.total, _native.LATENCY_BOUNDS, counts.buckets)

    def percentile(self, percent: float) -> float:
        """
        Which time that part of the copies did not exceed.

        Args:
            percent: From 0 to 100.

        Returns:
            Seconds, at most a quarter too many, the upper bound of the bucket. 0 without copies, infinite for copies
            of more than half a minute.

        Raises:
            ValueError: If ``percent`` is out of range.

        Source: aiodocadma.
        """
        if not 0 <= percent <= 100:
            raise ValueError(f"percent must be from 0 to 100, not {percent}")
        if not self.count:
            return 0.0
        rank = max(1, math.ceil(self.count * percent / 100))
        reached = itertools.accumulate(self.buckets)
        return next(bound for bound, copies in zip(self.bounds, reached, strict=True) if copies >= rank)


@dataclasses.dataclass(frozen=True, slots=True)
class Statistics:
    """
    Counters since the DMA was opened, and what is going on now: a snapshot. Counted client-side.

    Args:
        copies_started: Copies given to ``copy()`` that needed the engine.
        copies_completed: Of them, ended with success.
        copies_failed: Ended with an error of their own; ``failed`` has them by code.
        copies_flushed: Ended because another's failure flushed them, and they were not replayed.
        copies_cancelled: Ended as cancelled, whatever the engine made of them.
        copies_abandoned: Ended because the DMA was closed or lost before DOCA had all of them.
        copies_below_crossover: Copies so short that the CPU's own costs less; none on the emulator. See ``advise()``.
        segments_submitted: Memcpy tasks given to DOCA, replays included.
        segments_completed: Tasks that ended with success.
        segments_failed: Tasks that failed for their own sake.
        segments_flushed: Tasks that DOCA ended because another failed.
        segments_replayed: Flushed tasks submitted again.
        bytes_completed: Bytes the engine has written.
        again: Submissions that DOCA answered with ``DOCA_ERROR_AGAIN``.
        no_memory: Tasks or bufs that DOCA refused for lack of room.
        recycles: Contexts made anew, to let go of closed maps or after a fault.
        restarts: Of them, after a fault.
        turns: Turns of the pump.
        wakeups: Times the notification fd was readable.
        arms: Notifications requested.
        clear_errors: Times ``doca_pe_clear_notification`` failed.
        doorbells: Flushes of held-back tasks.
        peak_in_flight: The most tasks DOCA held at once.
        spins: Times the loop polled for a completion before it slept; see ``open_dma(spin=)``.
        spin_hits: Of them, those that found one.
        in_flight: Tasks that DOCA holds now.
        waiting: Copies now waiting for room.
        pending: Copies now started and not ended.
        watchdog_hits: Times nothing ended for ``stall_timeout`` seconds although DOCA held tasks.
        buried_bytes: Bytes of closed maps that stay registered until the context is recycled.
        cache_hits: Plain buffers that were registered already when a copy came.
        cache_misses: Plain buffers that had to be registered for a copy.
        cached_bytes: Bytes of plain buffers that are kept registered for the next copy.
        failed: Failed copies by the name of their code, without ``DOCA_ERROR_``; codes that no header has are together
            under ``?``. A copy of many counts with the first of its pairs that failed.
        latency: How long copies took; None unless ``open_dma(measure_latency=True)``.

    Each copy that was started is pending or has ended in one of five ways: ``copies_started`` is ``pending`` and
    ``copies_completed``, ``copies_failed``, ``copies_flushed``, ``copies_cancelled``, ``copies_abandoned`` together.

    Source: aiodocadma; counted where it happens, success in the completion callback.
    """

    copies_started: int
    copies_completed: int
    copies_failed: int
    copies_flushed: int
    copies_cancelled: int
    copies_abandoned: int
    copies_below_crossover: int
    segments_submitted: int
    segments_completed: int
    segments_failed: int
    segments_flushed: int
    segments_replayed: int
    bytes_completed: int
    again: int
    no_memory: int
    recycles: int
    restarts: int
    turns: int
    wakeups: int
    arms: int
    clear_errors: int
    doorbells: int
    peak_in_flight: int
    spins: int
    spin_hits: int
    in_flight: int
    waiting: int
    pending: int
    watchdog_hits: int
    buried_bytes: int
    cache_hits: int
    cache_misses: int
    cached_bytes: int
    failed: Mapping[str, int] = dataclasses.field(hash=False)
    latency: Latency | None
