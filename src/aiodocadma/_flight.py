"""The flight record of a DMA: what it is, what it has done, what is under way, what happened last."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import logging
import os
import weakref
from typing import TYPE_CHECKING, Any, Final

from aiodocadma import _evidence, _native, _worker
from aiodocadma._events import CHANNEL_STATES, EventKind
from aiodocadma._tags import in_words

if TYPE_CHECKING:
    import asyncio
    from pathlib import Path

    from aiodocadma._dma import DMA
    from aiodocadma._pending import PendingCopy

__all__ = ["FlightDumps", "dump", "flight_record"]

logger = logging.getLogger("aiodocadma")

DUMP_INTERVAL: Final = 60.0  # seconds between two files for the same kind of event
DUMPED: Final = (EventKind.FAILED, EventKind.STALLED, EventKind.LOST)
MAX_COPIES: Final = 100  # the oldest are those that say something


def flight_record(dma: DMA, *, max_copies: int = MAX_COPIES, max_events: int | None = None) -> dict[str, Any]:
    """
    Write down all that a DMA knows of itself; for its loop's thread.

    Args:
        dma: Open or closed.
        max_copies: How many of the copies under way are listed, the oldest first.
        max_events: How many events, the latest; None for all that the recorder has.

    Returns:
        What JSON can hold. No memory contents, addresses or descriptors are in it; tags are, shortened.

    Source: aiodocadma.
    """
    counted = dma.statistics()
    statistics, latency = dataclasses.asdict(counted), counted.latency
    if latency is not None:
        statistics["latency"] = {
            "count": latency.count,
            "mean": latency.total / latency.count if latency.count else 0.0,
            **{f"p{percent:g}": _finite(latency.percentile(percent)) for percent in (50, 90, 99, 99.9)},
        }
    status = dma._native.status()
    copies = dma.in_flight()
    return {
        "at": datetime.datetime.now(datetime.UTC).isoformat(),
        "monotonic": _native.now(),
        "pid": os.getpid(),
        "number": dma._number,
        "device": dma.device.name,
        "pci_address": dma.device.pci_address,
        "emulated": dma.emulated,
        "library": dma._engine.library.path,
        "doca_version": dma._engine.library.version,
        "state": dma.state.value,
        "channel": CHANNEL_STATES[status.state],
        "window": status.window,
        "armed": status.armed,
        "statistics": statistics,
        "copies": [_copy(copy) for copy in copies[:max_copies]],
        "copies_left_out": max(0, len(copies) - max_copies),
        "events": [
            {name: value for name, value in dataclasses.asdict(event).items() if value is not None}
            for event in dma._recorder.events(0 if max_events is None else dma._recorder.num_events() - max_events)
        ],
    }


def _finite(seconds: float) -> float | None:
    return seconds if seconds < float("inf") else None  # JSON knows no infinity


def _copy(copy: PendingCopy) -> dict[str, Any]:
    return {
        "state": copy.state,
        "nbytes": copy.nbytes,
        "bytes_done": copy.bytes_done,
        "segments": copy.segments,
        "age": copy.age,
        "tag": None if copy.tag is None else in_words(copy.tag, str),
        "tasks": [task.get_name() for task in copy.tasks],
    }


def dump(dma: DMA, loop: asyncio.AbstractEventLoop, folder: Path, reason: str) -> None:
    """
    Write the flight record into a file, and log where it is; the loop does not wait for the disk.

    Args:
        dma: Whose.
        loop: The DMA's.
        folder: Where; made if it is not there.
        reason: Why, in words.

    Source: aiodocadma.
    """
    record = flight_record(dma) | {"reason": reason}
    device = dma.device.name

    def told(path: Path | None, exception: BaseException | None) -> None:
        if exception is not None:
            logger.warning("%s: the flight record could not be written: %s", device, exception)
        else:
            logger.warning("%s: the flight record is in %s", device, path)

    try:
        _worker.start(loop, functools.partial(_evidence.write_bundle, folder, record, "aiodocadma-flight"), told)
    except RuntimeError as exc:  # no thread can be had
        told(None, exc)


class FlightDumps:
    """
    Writes the flight record into a folder when a task fails, the engine stalls or is lost.

    At most one file a minute for each of the three: a storm of failures is one incident.

    Args:
        dma: Whose.
        loop: The DMA's.
        folder: Where.

    Source: aiodocadma.
    """

    def __init__(self, dma: DMA, loop: asyncio.AbstractEventLoop, folder: Path) -> None:
        self._dma = weakref.ref(dma)  # which holds this
        self._loop = loop
        self._folder = folder
        self._next = 0  # event
        self._quiet_until: dict[EventKind, float] = {}

    def look(self) -> None:
        """Events were noted."""
        dma = self._dma()
        if dma is None:
            return
        events = dma._recorder.events(self._next)
        if events:
            self._next = events[-1].number + 1
        now = self._loop.time()
        for event in events:
            if event.kind in DUMPED and now >= self._quiet_until.get(event.kind, 0.0):
                self._quiet_until[event.kind] = now + DUMP_INTERVAL
                dump(dma, self._loop, self._folder, event.text)
