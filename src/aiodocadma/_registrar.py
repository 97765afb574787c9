"""Registering memory: in the loop what is quickly registered, else in a worker thread."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

from aiodocadma import _memlock, _worker
from aiodocadma._engine import Unexamined
from aiodocadma._memory import MemoryMap
from aiodocadma._plain import check_pinnable, view_of
from aiodocadma.exceptions import AccessError

if TYPE_CHECKING:
    from aiodocadma._access import Access
    from aiodocadma._dma import DMA
    from aiodocadma._engine import Engine
    from aiodocadma._memlock import MemlockBatch
    from aiodocadma._registrations import Registrations

__all__ = ["Registrar"]

QUICK_PIN_BYTES: Final = 256 * 1024  # registering this much is cheaper than a thread


class _Closeable(Protocol):
    def close(self) -> None: ...


T = TypeVar("T")
R = TypeVar("R", bound=_Closeable)


class Registrar:
    """
    Makes the maps of one DMA.

    Args:
        dma: The DMA.
        engine: Its opened device.
        loop: Its loop.
        registrations: Runs what is registered in a worker.
        memlock: Checks the bytes of all that is registered at once against the limit.

    Source: ``doca_mmap_set_memrange``, ``doca_mmap_start``.
    """

    def __init__(
        self,
        dma: DMA,
        engine: Engine,
        loop: asyncio.AbstractEventLoop,
        registrations: Registrations,
        memlock: MemlockBatch,
    ) -> None:
        self._dma = dma
        self._engine = engine
        self._loop = loop
        self._registrations = registrations
        self._memlock = memlock

    async def alloc(self, nbytes: int, hugepages: bool | int, align: int | None) -> MemoryMap:
        """See ``DMA.alloc()``."""
        if nbytes < 1:
            raise ValueError(f"nbytes must be at least 1, not {nbytes}")
        if nbytes >= 1 << 63:
            raise ValueError(f"nbytes must be less than 2**63, not {nbytes}")
        if align is not None and (align < 1 or align & (align - 1)):
            raise ValueError(f"align must be a power of two, not {align}")
        huge_page = _memlock.huge_page_size(hugepages)
        alloc = functools.partial(self._engine.alloc, nbytes, align=align or 0, huge_page=huge_page)
        return await self._register(nbytes, alloc, None, quick=not huge_page)

    async def register(self, obj: Any, access: Access | None) -> MemoryMap[Any]:
        """See ``DMA.register()``."""
        if access not in (None, "read", "write"):
            raise ValueError(f"access must be 'read' or 'write', not {access!r}")
        plain = view_of(obj, "obj")
        if plain.nbytes == 0:
            raise ValueError("obj must hold at least one byte")
        if access == "write" and plain.readonly:
            raise AccessError("obj is read-only", hint="access='read' registers a source.")
        writable = access != "read" and not plain.readonly
        if writable:
            check_pinnable(plain, "obj")
        register = functools.partial(self._engine.register, plain, writable)
        return await self._register(plain.nbytes, register, plain.lock)

    async def _register(
        self, nbytes: int, register: Callable[..., int | None], keep: object, *, quick: bool = True
    ) -> MemoryMap[Any]:
        await self._memlock.check(nbytes)
        if quick and self.is_quick(nbytes):
            try:
                registered = self.now(functools.partial(register, wait=False))
            except Unexamined as unexamined:
                evidence = unexamined.evidence
                try:
                    error = await _worker.call(self._engine.diagnosis.of, evidence)
                except RuntimeError:  # no thread can be had
                    error = self._engine.diagnosis.error(evidence)
                raise error from None
            if registered is not None:
                return MemoryMap._adopt(self._dma, registered, keep)
        return await self.in_worker(
            register, lambda registered: MemoryMap._adopt(self._dma, cast(int, registered), keep)
        )

    def is_quick(self, nbytes: int) -> bool:
        """Whether registering so many bytes is no work for a worker."""
        return nbytes <= QUICK_PIN_BYTES

    def now(self, register: Callable[[], T | None]) -> T | None:
        """
        Try to register without a worker.

        Args:
            register: Does it; None if it would have to wait.

        Returns:
            What ``register`` returned; None if a worker has to try.

        Raises:
            Unexamined: If DOCA refuses.

        Source: aiodocadma.
        """
        if self._registrations.short_of_memory:
            return None
        try:
            return register()
        except Unexamined as error:
            if not self._engine.is_short_of_memory(error) or not self._registrations.can_wait():
                raise
            return None  # a worker tries again, and makes room

    async def in_worker(
        self, function: Callable[[], T], adopt: Callable[[T], R], locks: list[object] | None = None
    ) -> R:
        """
        Run a registration.

        Args:
            function: Run in a worker.
            adopt: Makes the owner of what it returned, in the loop.
            locks: Emptied when it has ended: until then they keep maps from being closed.

        Returns:
            The owner.

        Raises:
            DocaError: What ``function`` or ``adopt`` raised.

        Cancellation: Raises at once if it waits for memory, else when it has ended; its owner is closed then.
        Source: aiodocadma.
        """
        outcome: asyncio.Future[R] = self._loop.create_future()

        def then(result: T | None, exception: BaseException | None) -> None:
            try:
                if exception is None:
                    outcome.set_result(adopt(cast(T, result)))
                else:
                    outcome.set_exception(exception)
            except BaseException as exc:
                outcome.set_exception(exc)
            if locks is not None:
                locks.clear()

        registration = self._registrations.run(function, then)
        stop = None
        try:
            await asyncio.wait([outcome])
        except asyncio.CancelledError as exc:
            stop = exc
            if self._registrations.withdraw(registration):
                outcome.exception()  # seen
                raise
        stop = await _worker.wait_out(outcome) or stop
        owner = outcome.result()
        if stop is not None:
            owner.close()
            raise stop
        return owner
