"""Memory with the bytes that it must hold, and how copies ended."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from aiodocadma import DMA, MemoryMap

SLOT = 32 * 1024
SLOTS = 48


class Range(NamedTuple):
    """Where in an arena: a part of one slot."""

    slot: int
    start: int
    length: int


class WrongDataError(Exception):
    """Memory holds what it must not."""


class Arena:
    """
    A map, the model of its bytes, and its slots, which copies borrow: what a copy reads or writes is its own meanwhile.

    When a copy has succeeded its destination has the source's bytes; when it ended otherwise, each byte is the old or
    the new one; nothing else has changed.
    """

    def __init__(self, rng: random.Random, tally: Counter[str]) -> None:
        self.memory: MemoryMap
        self.tally = tally
        self.model = bytearray(rng.randbytes(SLOTS * SLOT))
        self._bytes = bytearray(self.model)  # looked at here, also when the map is closed
        self._free = list(range(SLOTS))

    async def register(self, dma: DMA) -> None:
        """Have a DMA reach it."""
        self.memory = await dma.register(self._bytes)

    def borrow(self, n: int) -> list[int] | None:
        """So many slots, or None."""
        if len(self._free) < n:
            return None
        taken, self._free = self._free[:n], self._free[n:]
        return taken

    def give_back(self, slots: list[int]) -> None:
        """They are free again."""
        self._free += slots

    def buffer(self, part: Range) -> Any:
        """A slice of the map."""
        start = part.slot * SLOT + part.start
        return self.memory[start : start + part.length]

    def expected(self, part: Range) -> bytes:
        """What must be there."""
        start = part.slot * SLOT + part.start
        return bytes(self.model[start : start + part.length])

    def settle(self, parts: list[Range], new: bytes, succeeded: bool) -> None:
        """A copy into these parts, one after another, has ended."""
        at = 0
        for part in parts:
            start = part.slot * SLOT + part.start
            old = self.model[start : start + part.length]
            fresh = new[at : at + part.length]
            got = self._bytes[start : start + part.length]
            if not (got == fresh if succeeded else mixed(got, old, fresh)):
                raise WrongDataError(f"{part} after a copy that {'succeeded' if succeeded else 'did not succeed'}")
            self.model[start : start + part.length] = got
            at += part.length
        self.tally["bytes checked"] += at

    def check(self) -> None:
        """All of it, by its digest."""
        if hashlib.sha256(self._bytes).digest() != hashlib.sha256(self.model).digest():
            raise WrongDataError("the arena's digest")
        self.tally["bytes checked"] += len(self.model)
        self.tally["digests compared"] += 1


def mixed(got: bytearray, old: bytearray, new: bytes) -> bool:
    """Whether each byte is the old or the new one."""
    a, b, c = (np.frombuffer(data, np.uint8) for data in (got, old, new))
    return bool(np.all((a == b) | (a == c)))


def balance(dma: DMA, tally: Counter[str]) -> None:
    """Count what a DMA did; each copy that was started has ended in exactly one way."""
    done = dma.statistics()
    ends = {
        kind: getattr(done, f"copies_{kind}") for kind in ("completed", "failed", "flushed", "cancelled", "abandoned")
    }
    if done.copies_started != sum(ends.values()) or done.pending or done.in_flight:
        raise WrongDataError(f"{done.copies_started} copies started, but {ends} ended and {done.pending} are pending")
    if done.watchdog_hits:
        raise WrongDataError(f"nothing ended for a long time, {done.watchdog_hits} times")
    tally["copies"] += done.copies_started
    for kind, count in ends.items():
        tally[f"copies {kind}"] += count
    tally["bytes copied"] += done.bytes_completed
    tally["restarts"] += done.restarts
    tally["contexts made anew"] += done.recycles
    tally["tasks flushed"] += done.segments_flushed
    tally["tasks replayed"] += done.segments_replayed
