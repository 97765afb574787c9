"""Registered memory: what the engine may read and write, and who keeps it alive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

from aiodocadma import _native
from aiodocadma._native import Buffer
from aiodocadma.exceptions import BufferInUseError

if TYPE_CHECKING:
    from types import TracebackType

    from aiodocadma._dma import DMA
    from aiodocadma._export import Access, ExportDescriptor
    from aiodocadma._remote import Export

__all__ = ["Buffer", "MemoryMap", "PlainBuffer", "view_of"]


class MemoryMap(Buffer):
    """
    A range of memory registered with the device, as a whole; ``map[a:b]`` is a ``Buffer``, a part of it, no copy.

    Made by ``DMA.alloc()`` (zeroed memory that the library owns) or ``DMA.register()`` (the caller's memory). It
    supports the buffer protocol: ``memoryview(map)`` and ``numpy.asarray(map)`` see the bytes. It belongs to the DMA
    that made it, and to its loop. The memory stays registered while a copy uses it, whatever is dropped, cancelled or
    closed; dropping the last reference closes it.

    Raises:
        TypeError: If called: the two methods above make maps.

    Source: ``doca_mmap_create``, ``doca_mmap_set_memrange``, ``doca_mmap_start``.
    """

    __slots__ = ("_dma", "_exports", "_num_exports")

    _dma: DMA
    _exports: list[Export]
    _num_exports: int

    @classmethod
    def _adopt(cls, dma: DMA, map_address: int, keep: object) -> MemoryMap:
        self = cls.__new__(cls)
        self._attach(map_address, dma, keep)
        self._dma = dma
        self._exports = []
        self._num_exports = 0
        return self

    async def export(self, *, access: Access = "read") -> ExportDescriptor:
        """
        Let the peer of this device (the DPU of a host, another process on the emulator) import the memory.

        Until the export is revoked or the map is closed, whoever has the descriptor can read the memory, and with
        ``access="write"`` write it. The pages are registered a second time for it. ``aiodocadma.peer`` carries
        descriptors to the other side.

        Args:
            access: ``read``, or ``write`` for both; the importer has to ask for writing, too.

        Returns:
            The descriptor: a secret.

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
            raise BufferInUseError(
                f"the map is in use by {self._users} copies and {self._views} exported buffers",
                hint="Await the copies (or map.aclose()), and release memoryviews and arrays made from it.",
            )

    async def aclose(self, *, force: bool = False) -> None:
        """
        Wait until no copy uses the memory, then give it back; idempotent.

        Args:
            force: Close it although it is exported, and revoke that, as leaving ``async with`` does.

        Raises:
            BufferInUseError: If ``memoryview`` objects onto it exist, or it is exported and not to be forced.

        Cancellation: Raises at once; the map stays open.
        Source: ``doca_mmap_destroy``.
        """
        while not self.closed:
            if self._users:
                await self._dma.drain()
            elif self._views and self._dma._registering:
                # The view may be that of a copy whose other side is being registered, even of one that has ended since.
                await self._dma._registered()
            else:
                break
        self.close(force=force)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose(force=True)

    def __repr__(self) -> str:
        if self.closed:
            return f"<MemoryMap {self.nbytes} bytes, closed>"
        engine = "read-only" if self.readonly else "read-write"
        if self.imported:
            return f"<MemoryMap {self.nbytes} bytes of a peer, engine {engine}>"
        given = {export.descriptor.access for export in self._exports}
        peer = "read-write" if "write" in given else "read-only" if given else "no access"
        return f"<MemoryMap {self.nbytes} bytes, engine {engine}, peer {peer}>"


class PlainBuffer(NamedTuple):
    """The caller's memory as the device needs it; ``lock`` keeps the export locked while it lives."""

    lock: object
    address: int
    nbytes: int
    readonly: bool

    @property
    def access(self) -> int:
        """The least permission: read-only memory can only be a source."""
        return _native.ACCESS_LOCAL_READ_ONLY if self.readonly else _native.ACCESS_LOCAL_READ_WRITE


def view_of(obj: Any, argument: str, other: Any = None) -> PlainBuffer:
    """
    Lock an object's memory and tell where it is.

    Args:
        obj: Anything with the buffer protocol and C-contiguous memory, of any item type and shape.
        argument: The argument's name, for the error.
        other: The other side of the copy: two Fortran-contiguous arrays of one shape are copied as they lie.

    Returns:
        The bytes; their export is held as long as ``lock`` lives.

    Raises:
        TypeError: If it has no buffer protocol.
        ValueError: If its memory is not contiguous.

    Source: PEP 688, ``PyObject_GetBuffer``.
    """
    try:
        view = memoryview(obj)
    except TypeError:
        raise TypeError(
            f"{argument} must be a MemoryMap, a Buffer or an object with the buffer protocol, not {type(obj).__name__}"
        ) from None
    if not view.c_contiguous and not _lie_alike(view, other):
        raise ValueError(f"{argument} must be C-contiguous, but its strides are {view.strides} for shape {view.shape}")
    nbytes = view.nbytes
    # A memoryview of a memoryview shares the first one's export, and would let the caller release that.
    lock = _native.export(obj) if isinstance(obj, memoryview) and view.c_contiguous and nbytes else view
    return PlainBuffer(lock, _native.address_of(view) if nbytes else 0, nbytes, view.readonly)


def _lie_alike(view: memoryview, other: Any) -> bool:
    """Whether both are Fortran-contiguous and of one shape: then their bytes correspond."""
    if other is None or not view.f_contiguous:
        return False
    try:
        second = memoryview(other)
    except (TypeError, BufferError):  # no memory, or a peer's
        return False
    return second.f_contiguous and second.shape == view.shape and second.itemsize == view.itemsize
