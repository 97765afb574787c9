"""
Registrations of plain buffers that are kept for the next copy of the same memory.

Pages are pinned when they are registered. Once a buffer is freed, the same address comes back with other pages, and
the device would still see the old ones. So an address proves nothing; what proves that the pages are the same is an
object that cannot come to have other memory while it lives: a ``memoryview``, which is referred to weakly and locks
nothing, or ``bytes``, which is held. Everything else (``bytearray``, ``array``, ``mmap``, arrays that can be resized in
place) is registered for each copy.

All of it runs in the loop's thread.
"""

from __future__ import annotations

import sys
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aiodocadma._memory import MemoryMap
    from aiodocadma._plain import PlainBuffer

__all__ = ["RegistrationCache"]

SWEEP: Final = 32  # entries looked at per copy, on average


def _references(view: memoryview) -> int:
    return sys.getrefcount(view.obj)


_ALONE: Final = _references(memoryview(bytes(2)))  # when nobody else has the object


class _Entry:
    """One kept registration, and what proves that its pages are still those of the object."""

    __slots__ = ("_held", "_ref", "memory_map")

    def __init__(self, memory_map: MemoryMap, proof: memoryview | bytes) -> None:
        self.memory_map = memory_map
        self._held = memoryview(proof) if isinstance(proof, bytes) else None
        self._ref = weakref.ref(proof) if isinstance(proof, memoryview) else None

    def is_of(self, proof: memoryview | bytes) -> bool:
        """Whether it was made for this very object."""
        return (self._held.obj if self._held is not None else self._view()) is proof

    def _view(self) -> memoryview | None:
        return None if self._ref is None else self._ref()

    def is_over(self) -> bool:
        """Whether nobody can copy this object any more."""
        if self._held is not None:
            return _references(self._held) <= _ALONE
        view = self._view()
        if view is None:
            return True
        try:
            view.nbytes  # noqa: B018
        except ValueError:  # released
            return True
        return False


class RegistrationCache:
    """
    Keeps registrations of plain buffers while the memory is provably the same, the most recently used ones.

    Args:
        maps: How many at most.
        nbytes: Bytes of them together at most; a larger buffer is not kept.

    Source: aiodocadma.
    """

    def __init__(self, maps: int, nbytes: int) -> None:
        self._max_maps = maps
        self._max_bytes = nbytes
        self._entries: OrderedDict[tuple[int, bool], _Entry] = OrderedDict()  # the least recently used first
        self._until_sweep = 0
        self.nbytes = 0
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._entries)

    def maps(self) -> list[MemoryMap]:
        """
        The registrations that are kept.

        Returns:
            Their maps, the least recently used first.

        Source: aiodocadma.
        """
        return [entry.memory_map for entry in self._entries.values()]

    def find(self, plain: PlainBuffer, writable: bool) -> MemoryMap | None:
        """
        Look for the registration of a plain buffer.

        Args:
            plain: The buffer, locked.
            writable: Whether the device is to write it.

        Returns:
            The map, or None: it has to be registered.

        Source: aiodocadma.
        """
        self._sweep()
        if plain.proof is not None:
            key = id(plain.proof), writable
            entry = self._entries.get(key)
            if entry is not None and entry.is_of(plain.proof) and not entry.memory_map.closed:
                self._entries.move_to_end(key)
                self.hits += 1
                return entry.memory_map
        self.misses += 1
        return None

    def keep(self, plain: PlainBuffer, writable: bool, memory_map: MemoryMap) -> None:
        """
        Keep a fresh registration, if something proves how long the memory stays, and there is room or can be made.

        Args:
            plain: The buffer it is of.
            writable: Whether the device may write it.
            memory_map: The registration.

        Source: aiodocadma.
        """
        if plain.proof is None or plain.nbytes > self._max_bytes:
            return
        key = id(plain.proof), writable
        self._drop(key)  # of an object that had the same id
        if self._make_room(plain.nbytes):
            self._entries[key] = _Entry(memory_map, plain.proof)
            self.nbytes += plain.nbytes

    def evict(self) -> int:
        """
        Drop everything that no copy uses.

        Returns:
            How many registrations that were.

        Source: aiodocadma.
        """
        idle = [key for key, entry in self._entries.items() if not entry.memory_map._users]
        for key in idle:
            self._drop(key)
        return len(idle)

    def clear(self) -> None:
        """Drop everything; copies in flight keep what they use."""
        self._entries.clear()
        self.nbytes = 0

    def _make_room(self, nbytes: int) -> bool:
        """Evict what no copy uses, the least recently used first, until there is room."""
        if self._has_room(nbytes):
            return True
        for key, entry in list(self._entries.items()):
            if not entry.memory_map._users:
                self._drop(key)
                if self._has_room(nbytes):
                    return True
        return False

    def _has_room(self, nbytes: int) -> bool:
        return len(self._entries) < self._max_maps and self.nbytes + nbytes <= self._max_bytes

    def _drop(self, key: tuple[int, bool]) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.nbytes -= entry.memory_map.nbytes

    def _sweep(self) -> None:
        """Drop what no longer has a proof: all of it, every so many copies, every copy while there is little."""
        self._until_sweep -= 1
        if self._until_sweep > 0:
            return
        for key in [key for key, entry in self._entries.items() if entry.is_over()]:
            self._drop(key)
        self._until_sweep = len(self._entries) // SWEEP
