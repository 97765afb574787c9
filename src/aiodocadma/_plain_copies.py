"""Copies with plain buffers: their memory is registered for the copy, unless the cache has it from an earlier one."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from aiodocadma._engine import Unexamined
from aiodocadma._memory import Buffer, MemoryMap
from aiodocadma._plain import check_pinnable
from aiodocadma._sides import Item, check_items, items_of

if TYPE_CHECKING:
    from aiodocadma._cache import RegistrationCache
    from aiodocadma._causes import Evidence
    from aiodocadma._dma import DMA
    from aiodocadma._engine import Engine
    from aiodocadma._native import CopyFuture
    from aiodocadma._registrar import Registrar
    from aiodocadma._registrations import Registration, Registrations
    from aiodocadma.exceptions import DocaError

__all__ = ["PlainCopies"]


class PlainCopies:
    """
    Starts those copies of one DMA of which a side is no Buffer: a list, or plain memory.

    Args:
        dma: The DMA.
        engine: Its opened device.
        cache: Its registrations of plain buffers.
        registrar: Registers in the loop.
        registrations: Runs what is registered in a worker.
        is_full: Whether so many copies wait that one more is refused.
        ended: Called when the memory of one is registered, or never will be.

    Source: aiodocadma.
    """

    def __init__(
        self,
        dma: DMA,
        engine: Engine,
        cache: RegistrationCache,
        registrar: Registrar,
        registrations: Registrations,
        is_full: Callable[[], bool],
        ended: Callable[[], None],
    ) -> None:
        self._dma = dma
        self._engine = engine
        self._cache = cache
        self._registrar = registrar
        self._registrations = registrations
        self._is_full = is_full
        self._on_ended = ended
        self._registering: dict[CopyFuture, Registration] = {}

    @property
    def num_registering(self) -> int:
        """Copies that wait for their memory to be registered."""
        return len(self._registering)

    def copy(self, src: Any, dst: Any, tag: object) -> CopyFuture:
        """
        Start one.

        Args:
            src: As for ``DMA.copy()``.
            dst: As for ``DMA.copy()``.
            tag: As for ``DMA.copy()``.

        Returns:
            Its future, also where DOCA refuses the memory.

        Raises:
            UsageError: As for ``DMA.copy()``.
            TypeError: If an argument is of another type.

        Source: ``doca_mmap_start``, ``doca_task_submit``.
        """
        dma = self._dma
        sources, destinations = items_of(src, "src", dst), items_of(dst, "dst", src, writable=True)
        nbytes = check_items(sources, destinations)
        if nbytes == 0:
            return dma._empty(tag)
        if self._is_full():
            dma._refuse("full")
        for item in destinations:
            if item.buffer is None:
                check_pinnable(item.plain, item.argument)
        # What is empty cannot be registered, and takes no part.
        sources = [item for item in sources if item.plain.nbytes]
        items = [*sources, *(item for item in destinations if item.plain.nbytes)]
        num_sources = len(sources)
        buffers = [item.buffer or self._cached(item) for item in items]
        missing = [i for i, buffer in enumerate(buffers) if buffer is None]
        if self._registrar.is_quick(sum(items[i].plain.nbytes for i in missing)):
            try:
                mapped = self._map_now(items, buffers, missing)
            except Unexamined as unexamined:
                return self._refused(unexamined.evidence, nbytes, tag)
            if mapped:
                return self._start(cast("list[Buffer]", buffers), num_sources, tag)

        future = dma._reserve(nbytes, tag)

        def register() -> list[MemoryMap]:
            return [
                MemoryMap._adopt(dma, cast(int, self._engine.register(plain, writable, what=argument)), None)
                for argument, _, plain, writable, _ in (items[i] for i in missing)
            ]

        def then(maps: list[MemoryMap] | None, exception: BaseException | None) -> None:
            try:
                if maps is None:
                    raise cast(BaseException, exception)
                for i, memory_map in zip(missing, maps, strict=True):
                    buffers[i] = self._take(items[i], memory_map)
                ready = cast("list[Buffer]", buffers)
                dma._start_plan(future, dma._plan_lists(ready[:num_sources], ready[num_sources:]))
            except BaseException as exc:
                traceback.clear_frames(exc.__traceback__)
                dma._fail(future, exc)
            finally:
                maps = ready = None  # type: ignore[assignment]  # a traceback may have this frame
                buffers.clear()
                items.clear()  # until here they keep the maps from being closed; now the copy does
                self._ended(future)

        self._registering[future] = self._registrations.run(register, then)
        return future

    def withdraw(self, future: CopyFuture) -> None:
        """
        End a cancelled copy at once if it waits for memory: nothing of it is under way.

        Args:
            future: A reserved one.

        Source: aiodocadma.
        """
        if (registration := self._registering.get(future)) is not None:
            self._registrations.withdraw(registration)

    def _ended(self, future: CopyFuture) -> None:
        self._registering.pop(future, None)
        self._on_ended()

    def _refused(self, evidence: Evidence, nbytes: int, tag: object) -> CopyFuture:
        """A copy whose memory DOCA refused: a worker looks for the cause, and the future tells it."""
        future = self._dma._reserve(nbytes, tag)

        def then(error: DocaError | None, exception: BaseException | None) -> None:
            self._dma._fail(future, cast(BaseException, error or exception))
            self._ended(future)

        look = functools.partial(self._engine.diagnosis.of, evidence, tag)
        try:
            self._registering[future] = self._registrations.run(look, then)
        except RuntimeError:  # no thread can be had
            then(self._engine.diagnosis.error(evidence, tag), None)
        return future

    def _start(self, buffers: list[Buffer], num_sources: int, tag: object) -> CopyFuture:
        # A plan holds the Buffers themselves, and with them the caller's exports; copy() holds their maps only.
        return self._dma._copy_plan(self._dma._plan_lists(buffers[:num_sources], buffers[num_sources:]), tag)

    def _map_now(self, items: list[Item], buffers: list[Buffer | None], missing: list[int]) -> bool:
        """Register what is missing, without a worker; False if that has to wait."""
        maps: list[MemoryMap] = []
        for i in missing:
            _, _, plain, writable, _ = items[i]
            register = functools.partial(self._engine.register, plain, writable, what=items[i].argument, wait=False)
            if (registered := self._registrar.now(register)) is None:
                return False  # what was registered goes back, so that this copy waits with nothing
            maps.append(MemoryMap._adopt(self._dma, registered, None))
        for i, memory_map in zip(missing, maps, strict=True):
            buffers[i] = self._take(items[i], memory_map)
        return True

    def _cached(self, item: Item) -> Buffer | None:
        """The registration that an earlier copy of the same memory left, locked for this one."""
        memory_map = self._cache.find(item.plain, item.writable)
        return None if memory_map is None else memory_map._locked(item.plain.lock)

    def _take(self, item: Item, memory_map: MemoryMap) -> Buffer:
        """A fresh registration for a copy, whose future holds it and the caller's export; the cache may keep it."""
        self._cache.keep(item.plain, item.writable, memory_map)
        return memory_map._locked(item.plain.lock)
