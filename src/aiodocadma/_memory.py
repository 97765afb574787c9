"""Registered memory: what the engine may read and write, and who keeps it alive."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from aiodocadma import _native
from aiodocadma._access import AccessT_co
from aiodocadma._blocks import Blocks
from aiodocadma._counted import counted
from aiodocadma._native import Buffer
from aiodocadma._tags import in_words
from aiodocadma.exceptions import BufferInUseError, ClosedError

if TYPE_CHECKING:
    from types import TracebackType

    from aiodocadma._dma import DMA
    from aiodocadma._export import Access, ExportDescriptor
    from aiodocadma._remote import Export

__all__ = ["Buffer", "MemoryMap"]

_MAX_TAGS = 8  # in an error's text


class MemoryMap(Buffer[AccessT_co]):
    """
    A range of memory registered with the device, as a whole; ``map[a:b]`` is a ``Buffer``, a part of it, no copy.

    Made by ``DMA.alloc()`` (zeroed memory that the library owns) or ``DMA.register()`` (the caller's memory). It
    supports the buffer protocol: ``memoryview(map)`` and ``numpy.asarray(map)`` see the bytes. It belongs to the DMA
    that made it, and to its loop. The memory stays registered while a copy uses it, whatever is dropped, cancelled or
    closed; dropping the last reference closes it.

    For type checkers ``MemoryMap`` is memory that can be a destination, ``MemoryMap[ReadOnly]`` such as can only be a
    source.

    Raises:
        TypeError: If called: the two methods above make maps.

    Source: ``doca_mmap_create``, ``doca_mmap_set_memrange``, ``doca_mmap_start``.
    """

    __slots__ = ("_dma", "_exports", "_num_exports")

    _dma: DMA
    _exports: list[Export]
    _num_exports: int

    @classmethod
    def _adopt(cls, dma: DMA, map_address: int, keep: object) -> MemoryMap[AccessT_co]:
        self = cls.__new__(cls)
        self._attach(map_address, dma, keep)
        self._dma = dma
        self._exports = []
        self._num_exports = 0
        return self

    @property
    def doca_mmap(self) -> int:
        """
        The address of the ``doca_mmap``, for C code that makes bufs of it for other accelerators of the same device.

        Such bufs must be given back before the map is closed, or it stays registered for good.

        Returns:
            The address; valid while the map is open.

        Raises:
            ClosedError: If it is closed.

        Source: ``doca_mmap_create``.
        """
        if self.closed:
            raise ClosedError("the map is closed")
        return _native.doca_mmap(self._map_address)

    @property
    def doca_dev(self) -> int:
        """
        The address of the ``doca_dev`` that the map was made for, for C code, which must not close it.

        Returns:
            The address; valid while the DMA is open.

        Raises:
            ClosedError: If the map is closed.

        Source: ``doca_dev_open``.
        """
        if self.closed:
            raise ClosedError("the map is closed")
        return self._dma._engine.doca_dev

    def blocks(self, size: int) -> Blocks[AccessT_co]:
        """
        Cut the map into equal blocks that are lent one at a time, for a buffer per request.

        Args:
            size: Bytes of a block, at least 1; what is left over at the end of the map is not used.

        Returns:
            The free list; each call makes its own, so call once.

        Raises:
            ValueError: If not even one block fits.
            ClosedError: If the map is closed.

        Source: aiodocadma.
        """
        if not 1 <= size <= self.nbytes:
            raise ValueError(f"size must be 1 to {self.nbytes}, the map's length, not {size}")
        if self.closed:
            raise ClosedError("the map is closed")
        blocks = Blocks(self, size)
        self._dma._blocks.add(blocks)
        return blocks

    async def export(self, *, access: Access = "read") -> ExportDescriptor:
        """
        Let the peer of this device (the DPU of a host, another process on the emulator) import the memory.

        Until the export is revoked or the map is closed, whoever has the descriptor can read the memory, and with
        ``access="write"`` write it. The pages are registered a second time for it. ``aiodocadma.peer`` carries
        descriptors to the other side.

        Args:
            access: ``read``, or ``write`` for both; the importer has to ask for writing, too.

        Returns:
            The descriptor, a secret.

        Raises:
            AccessError: If the map is read-only and ``access`` is not, or it is imported itself.
            ClosedError: If the DMA or the map is closed.
            DocaError: If DOCA refuses, as on a device that cannot export.

        Cancellation: Waits for the registration under way, undoes it, then raises.
        Source: ``doca_mmap_export_pci``.
        """
        return await self._dma._export(self, access)

    def revoke(self, descriptor: ExportDescriptor | None = None) -> None:
        """
        End the peer's access at once: copies that it has under way fail, and what it has imported is of no more use.

        Args:
            descriptor: Of the export to end; None for all of this map.

        Source: ``doca_mmap_destroy``.
        """
        for export in self._exports.copy():
            if descriptor is None or export.descriptor == descriptor:
                self._exports.remove(export)
                export.close()

    def close(self, *, force: bool = False) -> None:
        """
        Give the memory back; idempotent.

        The registration itself may outlive the call: a map that a context has used is unregistered when the context is
        recycled or closed. The caller's own memory is unlocked at once.

        Args:
            force: Close it although it is exported, and revoke that.

        Raises:
            BufferInUseError: If copies that use it have not ended, ``memoryview`` objects onto it exist, or it is
                exported and not to be forced.

        Source: ``doca_mmap_destroy``.
        """
        if self._exports and not force:
            raise BufferInUseError(
                f"the map is exported: the peer may use it ({len(self._exports)} exports)",
                hint="revoke() ends that, and so does close(force=True).",
            )
        if not self._users and not self._views:
            self.revoke()
        # Closing the DMA has closed its maps, but the caller's memory is unlocked here.
        if not self._close() and not self.closed:
            raise self._in_use()
        self._dma._dismiss_blocks()

    def _in_use(self) -> BufferInUseError:
        copies = self._dma._users_of(self)
        tags = [in_words(copy.tag) for copy in copies if copy.tag is not None]
        names = ", ".join(tags[:_MAX_TAGS]) + (", ..." if len(tags) > _MAX_TAGS else "")
        named = f" (tagged {names})" if tags else ""
        if copies and all(copy.done() for copy in copies):
            hint = (
                "They were given up, and the engine still has them: closing the DMA waits for it, dma.drain() as well."
            )
        else:
            hint = "Await the copies (or map.aclose()), and release memoryviews and arrays made from it."
        users = f"{counted(len(copies), 'copy', 'copies')}{named} and {counted(self._views, 'exported buffer')}"
        return BufferInUseError(f"the map is in use by {users}", hint=hint)

    async def aclose(self, *, force: bool = False) -> None:
        """
        Wait until no copy uses the memory, then give it back; idempotent.

        Args:
            force: Close it although it is exported, and revoke that, as leaving ``async with`` does.

        Raises:
            BufferInUseError: If ``memoryview`` objects onto it exist, or it is exported and not to be forced. Leaving
                ``async with`` also raises it, if no exception is under way, where the engine still has a copy that was
                given up (``drain_timeout``, a lost engine): this call waits for that, which may take for ever.

        Cancellation: Raises at once; the map stays open.
        Source: ``doca_mmap_destroy``.
        """
        await self._ended()
        while self._users and not self.closed:
            await self._dma.drain()
            await self._ended()
        self.close(force=force)

    async def _ended(self) -> None:
        """Wait for the copies that use it, but for those that were given up: only the engine ends them."""
        while not self.closed:
            if self._users:
                self._dma._check_owner()
                copies = [copy for copy in self._dma._users_of(self) if not copy.done()]
                if not copies:
                    break
                await asyncio.wait(copies)
            elif self._views and self._dma._registrations:
                # The view may be that of a copy whose other side is being registered, even of one that has ended since.
                await self._dma._registrations.ended()
            else:
                break

    async def __aenter__(self) -> Self:
        """Give the map itself; leaving closes it."""
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._ended()
        if exc is None or not self._users:
            self.close(force=True)
        # Else the engine has a copy that was given up. The exception under way says more, and the DMA closes the map.

    def __repr__(self) -> str:
        if self.closed:
            return f"<MemoryMap {counted(self.nbytes, 'byte')}, closed>"
        engine = "read-only" if self.readonly else "read-write"
        if self.imported:
            return f"<MemoryMap {counted(self.nbytes, 'byte')} of a peer, engine {engine}>"
        given = {export.descriptor.access for export in self._exports}
        peer = "read-write" if "write" in given else "read-only" if given else "no access"
        return f"<MemoryMap {counted(self.nbytes, 'byte')}, engine {engine}, peer {peer}>"
