"""
Memory of two processes: exporting a map to the PCI peer, importing what the peer has exported.

An export is a registration of its own beside the one that copies here use: it has the peer's permissions and the other
has none of them, it can end while copies here go on, and no context of this process has ever seen it, so ending it ends
the peer's access at once. The price is that the pages are registered twice.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Final, NamedTuple

from aiodocadma import _native
from aiodocadma._export import Access, ExportDescriptor, card_of, exporter_id, machine
from aiodocadma._memory import MemoryMap
from aiodocadma.exceptions import AccessError, ClosedError, DescriptorError, DocaError, PeerError

if TYPE_CHECKING:
    from aiodocadma._dma import DMA
    from aiodocadma._engine import Engine

__all__ = ["Export", "export_map", "import_map"]

SMOKE_BYTES: Final = 4096  # of the source, for the first copy; and of the page that a writable export has for it


class Export:
    """
    One export of a map: it lasts until it is closed, or dropped.

    Args:
        maps: The registrations that the peer reaches: of the memory, and of the page for first copies.
        descriptor: What the peer was given.

    Source: ``doca_mmap_export_pci``.
    """

    __slots__ = ("_maps", "descriptor")

    def __init__(self, maps: list[MemoryMap], descriptor: ExportDescriptor) -> None:
        self._maps = maps
        self.descriptor = descriptor

    def close(self) -> None:
        """End the peer's access; idempotent."""
        for registered in self._maps:
            registered.close()


async def export_map(dma: DMA, memory: MemoryMap, access: Access) -> ExportDescriptor:
    """
    Export a map; see ``MemoryMap.export()``.

    Args:
        dma: The map's.
        memory: The map.
        access: As for ``MemoryMap.export()``.

    Returns:
        The descriptor.

    Raises:
        AccessError: If the map is read-only, or the peer's, and that is not enough.
        ClosedError: If the DMA or the map is closed.
        DocaError: If DOCA refuses.

    Cancellation: Waits for the registration under way, undoes it, then raises.
    Source: ``doca_mmap_export_pci``.
    """
    dma._check()
    if access not in ("read", "write"):
        raise ValueError(f"access must be 'read' or 'write', not {access!r}")
    if memory.closed:
        raise ClosedError("the map is closed")
    if memory.imported:
        raise AccessError("the map is a peer's: only the process whose memory it is can export it")
    if access == "write" and memory.readonly:
        raise AccessError("the map is read-only", hint="Register writable memory to let a peer write it.")
    memory._num_exports = generation = memory._num_exports + 1

    def adopt(exported: tuple[list[int], list[bytes], str | None]) -> _New:
        registered, blobs, card = exported
        descriptor = ExportDescriptor(
            blob=blobs[0],
            nbytes=memory.nbytes,
            access=access,
            generation=generation,
            exporter=exporter_id(),
            machine=machine(),
            library=dma.device.version,
            emulated=dma.emulated,
            card=card,
            scratch=b"".join(blobs[1:]),
        )
        memory._exports.append(Export([MemoryMap._adopt(dma, address, None) for address in registered], descriptor))
        return _New(memory, descriptor)

    run = functools.partial(_export, dma._engine, memory.address, memory.nbytes, access == "write")
    new = await dma._registrar.in_worker(run, adopt, [_native.export(memory)])
    return new.descriptor


class _New(NamedTuple):
    """An export that nobody was told of yet."""

    memory: MemoryMap
    descriptor: ExportDescriptor

    def close(self) -> None:
        self.memory.revoke(self.descriptor)


def _export(engine: Engine, address: int, nbytes: int, writable: bool) -> tuple[list[int], list[bytes], str | None]:
    """In a worker: the registrations, DOCA's descriptors of them, and the card they are exported by."""
    registered, blob = engine.export(address, nbytes, writable)
    if not writable:
        return [registered], [blob], card_of(engine.device)
    try:
        scratch, scratch_blob = engine.export(None, SMOKE_BYTES, True)
    except BaseException:
        engine.channel.retire(registered)
        raise
    return [registered, scratch], [blob, scratch_blob], card_of(engine.device)


async def import_map(
    dma: DMA, descriptor: ExportDescriptor | bytes, smoke: bool, allow_remote_write: bool
) -> MemoryMap:
    """
    Import what a peer has exported; see ``DMA.import_memory()``.

    Args:
        dma: For its device.
        descriptor: As for ``DMA.import_memory()``.
        smoke: As for ``DMA.import_memory()``.
        allow_remote_write: As for ``DMA.import_memory()``.

    Returns:
        The map.

    Raises:
        DescriptorError: If the descriptor is damaged, or can never be of use here.
        AccessError: If it does not allow writing.
        ClosedError: If the DMA is closed.
        DocaError: If DOCA refuses, or the first copy fails.
        PeerError: If the first bytes written do not come back.

    Cancellation: Waits for the engine to let go, undoes the import, then raises.
    Source: ``doca_mmap_create_from_export``.
    """
    dma._check()
    if not isinstance(descriptor, ExportDescriptor):
        descriptor = ExportDescriptor.from_bytes(descriptor)
    if descriptor.kind != "pci":
        raise DescriptorError(
            "the memory was exported for RDMA, which DMA cannot import",
            hint="Export it with MemoryMap.export() (doca_mmap_export_pci), or copy with DOCA RDMA.",
        )
    if allow_remote_write and descriptor.access == "read":
        raise AccessError(
            "allow_remote_write: the memory was exported for reading only",
            hint="The exporter decides, too: map.export(access='write').",
        )
    remote = await _import(dma, descriptor, descriptor.blob, allow_remote_write)
    try:
        if descriptor.nbytes not in (None, remote.nbytes):
            raise DescriptorError(f"the descriptor says {descriptor.nbytes} bytes, DOCA {remote.nbytes}")
        if smoke:
            await _first_copies(dma, descriptor, remote, allow_remote_write)
    except BaseException:
        remote.close()
        raise
    return remote


async def _import(dma: DMA, descriptor: ExportDescriptor, blob: bytes, writable: bool) -> MemoryMap:
    exporter = descriptor.exporter or os.urandom(8).hex()  # of an unknown one: no other map's
    space = 0 if exporter == exporter_id() else int(exporter, 16) or 1
    access = _native.ACCESS_LOCAL_READ_WRITE if writable else _native.ACCESS_LOCAL_READ_ONLY

    def run() -> int:
        here = card_of(dma.device) if descriptor.card is not None else None
        if here is not None and here != descriptor.card:
            raise DescriptorError(
                f"the memory was exported by card {descriptor.card}, but {dma.device.name} is of card {here}",
                hint="DMA does not leave a card: copy between machines with DOCA RDMA.",
            )
        return dma._engine.import_memory(blob, access, space)

    try:
        return await dma._registrar.in_worker(run, lambda registered: MemoryMap._adopt(dma, registered, None))
    except DocaError as error:
        if descriptor.emulated not in (None, dma.emulated):
            sides = ("the emulator", "a card") if descriptor.emulated else ("a card", "the emulator")
            error.cause = f"the memory was exported by {sides[0]}, and this device is {sides[1]}"
            error.hint = error.next_step = "Open both sides with the same library=."
        raise


async def _first_copies(dma: DMA, descriptor: ExportDescriptor, remote: MemoryMap, writable: bool) -> None:
    """Prove over the real path that the memory can be read and, on a page made for it, that it can be written."""
    async with await dma.alloc(SMOKE_BYTES) as page:
        await _first_copy(dma, descriptor, remote[:SMOKE_BYTES], page)
        dma._engine.diagnosis.prove("reading the peer's memory")
        if not writable or not descriptor.scratch:
            return
        async with await _import(dma, descriptor, descriptor.scratch, True) as scratch:
            sent = os.urandom(SMOKE_BYTES)
            with memoryview(page) as view:
                view[:] = sent
            await _first_copy(dma, descriptor, page, scratch)
            with memoryview(page) as view:
                view[:] = bytes(SMOKE_BYTES)
            await _first_copy(dma, descriptor, scratch, page)
            with memoryview(page) as view:
                if view != sent:
                    raise PeerError("what was written to the exporter's page for first copies does not come back")
            dma._engine.diagnosis.prove("writing the peer's memory")


async def _first_copy(dma: DMA, descriptor: ExportDescriptor, src: _native.Buffer, dst: _native.Buffer) -> None:
    try:
        await (await dma.submit(src, dst))
    except DocaError as error:
        error.cause = "the first copy over the imported memory failed"
        error.hint = error.next_step = (
            "This very process exported it, and DMA crosses to another one; a map of one's own needs no import."
            if descriptor.exporter == exporter_id()
            else "Does the exporter still run, with its map open, and is it at the other end of this very card?"
        )
        raise
