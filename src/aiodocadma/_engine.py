"""
An opened device with its channel: the blocking half of a DMA, which knows no event loop.

Every call may block and belongs into a worker thread, unless it says otherwise. One lock lets one of them at a time
into the library. Registration runs beside the pump, which it does not touch; recycling and closing only while the
channel is parked, when the loop's thread stays away from the progress engine.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal

from aiodocadma import _memlock, _native
from aiodocadma._counted import counted
from aiodocadma._devices import Capabilities, DeviceInfo, select_device
from aiodocadma._diagnosis import Diagnosis
from aiodocadma._dmabuf import open_dmabuf
from aiodocadma._library import Library, open_library
from aiodocadma._plain import PlainBuffer
from aiodocadma._versions import verdict
from aiodocadma.exceptions import ClosedError, DocaError

if TYPE_CHECKING:
    from pathlib import Path

    from aiodocadma._causes import Evidence

__all__ = ["Engine", "OnFlush", "Unexamined"]

# Policy, not limits of a device.
# From measurements of cards: several tasks at once move a long copy about three times as fast as one, down to pieces of
# 64 KiB. Beside short copies pieces of 12 KiB, 9 at once, still keep the engine busy, and let the short ones pass.
STRIPE_BYTES: Final = 64 * 1024
FAIR_BYTES: Final = 12 * 1024
FAIR_WINDOW_BYTES: Final = 108 * 1024
TURN_BUDGET: Final = 400e-6  # seconds the pump may hold the loop
CLOSE_TIMEOUT: Final = 2.0  # seconds that closing the device waits for it to answer a query

# What stays when a call fails while closing: what it was to undo, and whatever that uses.
LEFT: Final = {
    "doca_buf_dec_refcount": "the bufs, their inventory, their registered memory and the device",
    "doca_ctx_stop": "the context, its progress engine and inventory, all registered memory and the device",
    "doca_dma_destroy": "the context, its progress engine and inventory, all registered memory and the device",
    "doca_mmap_destroy": "registered memory and the device",
    "doca_buf_inventory_destroy": "the inventory",
    "doca_pe_destroy": "the progress engine",
    "doca_dev_close": "the device",
}
# Calls whose failure leaves something that uses the device.
DEVICE_USERS: Final = frozenset({"doca_buf_dec_refcount", "doca_ctx_stop", "doca_dma_destroy", "doca_mmap_destroy"})

IN_USE: Final = 3  # DOCA_ERROR_IN_USE

# What doca_mmap_start() may answer when too much memory is locked: NOT_PERMITTED, NO_MEMORY, DRIVER.
MEMLOCK_CODES: Final = frozenset({2, 7, 21})

OnFlush = Literal["replay", "fail"]


class Unexamined(Exception):
    """A refusal in the loop's thread whose cause only ``Diagnosis.of()`` can tell, in a worker."""

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self.evidence = evidence


class Engine:
    """
    One opened device and one channel on it.

    Args:
        library: ``auto``, ``system``, ``emulator``, a path, or None for the default.
        device: A name or address, or None for the first that can do DMA.
        num_tasks: Size of the task pool, or None for the default.
        window: Tasks that DOCA may hold at once, or None for all of the pool.
        window_bytes: Bytes that these may have together, or None for what suits.
        on_flush: What becomes of flushed copies.
        spin: Seconds that a turn polls for a completion before it sleeps.
        evidence_dir: Where evidence of failures below DMA is written, or None to keep it in memory only.
        graveyard_maps: Closed maps that may stay registered before the context is recycled.
        graveyard_bytes: Bytes that these may pin.
        measure_latency: Keep the histogram of latencies.
        crossover_of: From which length on a copy by a device costs less than one by the CPU; shorter ones are counted.

    Raises:
        LibraryError: If no usable DOCA library is found.
        DocaError: If there is no such device, it cannot do DMA, or DOCA fails to open it; nothing stays open.

    Source: ``doca_dev_open``, ``doca_pe_create``, ``doca_dma_create``, ``doca_ctx_start``.
    """

    def __init__(
        self,
        library: str | os.PathLike[str] | None,
        device: str | None,
        num_tasks: int | None,
        window: int | None,
        window_bytes: int | None,
        on_flush: OnFlush,
        spin: float,
        evidence_dir: Path | None = None,
        *,
        graveyard_maps: int,
        graveyard_bytes: int,
        measure_latency: bool = False,
        crossover_of: Callable[[DeviceInfo], int] = lambda device: 0,
    ) -> None:
        self.library: Final[Library] = open_library(library)
        self.library.skew = verdict(self.library).sentence  # errors say so first
        self.library.sdk_log.tail()  # from here on it is kept
        self.device: Final[DeviceInfo] = select_device(self.library, device)
        self.diagnosis: Final = Diagnosis(self.library, self.device, self._query, evidence_dir)
        self._lock = threading.Lock()
        self._closed = False
        self._device: _native.NativeDevice | None = None
        self._device_lock = threading.Lock()  # against closing it while it is asked
        try:
            opened = self.library.native.open_device(self.device.pci_address)
            try:
                self.channel = opened.open_channel(
                    num_tasks=num_tasks or 0,
                    window=window or 0,
                    window_bytes=window_bytes or 0,
                    stripe_bytes=STRIPE_BYTES,
                    fair_bytes=FAIR_BYTES,
                    fair_window_bytes=FAIR_WINDOW_BYTES,
                    graveyard_bytes=graveyard_bytes,
                    graveyard_maps=graveyard_maps,
                    turn_budget=TURN_BUDGET,
                    spin=spin,
                    crossover=crossover_of(self.device),
                    replay=on_flush == "replay",
                    measure_latency=measure_latency,
                )
            except BaseException:
                opened.close()
                raise
        except _native.Failure as failure:
            evidence = self.diagnosis.evidence(failure, f"opening {self.device.name}")
            raise self.diagnosis.of(evidence) from None
        self._device = opened

    def capabilities(self) -> Capabilities:
        """What the device answered when the context was made last; blocks nobody."""
        return Capabilities._from_native(self.channel.caps(), self.device.pci_address, self.library.version)

    def _query(self) -> _native.Caps | None:
        """The opened device asked anew, beside registrations: a failure must not hold them up. None if it is closed."""
        with self._device_lock:
            return self._device.query() if self._device is not None else None

    def register(self, plain: PlainBuffer, writable: bool, *, what: str = "memory", wait: bool = True) -> int | None:
        """
        Register the caller's memory for this channel.

        Args:
            plain: It, not empty.
            writable: Whether the device may write it.
            what: What it is, for the error.
            wait: For a worker that is in the library. False, in the loop's thread, for little memory.

        Returns:
            The address of the ``adma_mmap``; None without ``wait`` if a worker is in the library.

        Raises:
            AccessError: If it is a device's memory, and there is no way to let another device at it.
            ClosedError: If the engine was closed meanwhile.
            DocaError: If DOCA refuses.
            Unexamined: The same without ``wait``: to tell the cause takes a worker.

        Source: ``doca_mmap_start``.
        """
        access = _native.ACCESS_LOCAL_READ_WRITE if writable else _native.ACCESS_LOCAL_READ_ONLY

        def call() -> int:
            if plain.device is None:
                return self._opened.register(plain.address, plain.nbytes, access)
            with open_dmabuf(plain, what) as (fd, offset):
                return self._opened.register_dmabuf(fd, offset, plain.address, plain.nbytes, access)

        kind = f"{what}, {plain.device} memory" if plain.device else what
        operation = f"registering {counted(plain.nbytes, 'byte')} of {kind}"
        return self._registered(call, operation, wait, nbytes=plain.nbytes, access=access, address=plain.address)

    def alloc(self, nbytes: int, *, align: int = 0, huge_page: int = 0, wait: bool = True) -> int | None:
        """
        Register fresh pages for this channel.

        Args:
            nbytes: Bytes, at least 1.
            align: A power of two, or 0 for a page's.
            huge_page: Size of the pages, or 0 for ordinary ones.
            wait: As for ``register()``.

        Returns:
            As ``register()``.

        Raises:
            ClosedError: If the engine was closed meanwhile.
            DocaError: If there are no such pages, or DOCA refuses.

        Source: ``mmap(2)``, ``doca_mmap_start``.
        """

        def call() -> int:
            return self._opened.alloc(nbytes, _native.ACCESS_LOCAL_READ_WRITE, align=align, huge_page=huge_page)

        what = f"registering {counted(nbytes, 'byte')} of memory"
        if huge_page:
            what = f"registering {counted(nbytes, 'byte')} in {_memlock.describe_huge_pages(huge_page)}"
        return self._registered(call, what, wait, nbytes=nbytes, access=_native.ACCESS_LOCAL_READ_WRITE, address=0)

    def is_short_of_memory(self, failure: BaseException) -> bool:
        """Whether a registration failed in a way that too little lockable memory has, too."""
        error = failure.evidence if isinstance(failure, Unexamined) else failure
        if not isinstance(failure, Unexamined | DocaError):
            return False
        return getattr(error, "call", None) == "doca_mmap_start" and getattr(error, "code", None) in MEMLOCK_CODES

    def lockable(self) -> int | None:
        """Bytes that this process may lock yet; None for no limit, and on the emulator, which locks nothing."""
        return None if self.library.emulated else _memlock.lockable()

    @property
    def doca_dev(self) -> int:
        """The address of the ``doca_dev``; blocks nobody."""
        return self._opened.doca_dev

    def export(self, address: int | None, nbytes: int, writable: bool) -> tuple[int, bytes]:
        """
        Register memory for the PCI peer, apart from any registration it has for copies here.

        Args:
            address: Where it is, or None for fresh pages.
            nbytes: Bytes, at least 1.
            writable: Whether the peer may write it, too.

        Returns:
            The address of the ``adma_mmap``, whose end is the end of the export, and DOCA's descriptor.

        Raises:
            ClosedError: If the engine was closed meanwhile.
            DocaError: If DOCA refuses; nothing stays registered.

        Source: ``doca_mmap_set_permissions``, ``doca_mmap_export_pci``.
        """
        access = (
            _native.ACCESS_LOCAL_READ_WRITE | _native.ACCESS_PCI_READ_WRITE
            if writable
            else _native.ACCESS_LOCAL_READ_ONLY | _native.ACCESS_PCI_READ_ONLY
        )
        try:
            with self._lock:
                registered = self._register(
                    lambda: self._opened.register(address, nbytes, access),
                    f"registering {counted(nbytes, 'byte')} of memory for the peer",
                    nbytes=nbytes,
                    access=access,
                    address=address or 0,
                )
                try:
                    return registered, _native.export_descriptor(registered)
                except _native.Failure as failure:
                    self.channel.retire(registered)
                    operation = f"exporting {counted(nbytes, 'byte')} to the PCI peer"
                    raise Unexamined(
                        self.diagnosis.evidence(failure, operation, nbytes=nbytes, access=access)
                    ) from None
        except Unexamined as unexamined:
            raise self.diagnosis.of(unexamined.evidence) from None

    def import_memory(self, blob: bytes, access: int, space: int) -> int:
        """
        Make a map of memory that a peer has exported.

        Args:
            blob: DOCA's descriptor.
            access: What copies may do to it: ``ACCESS_LOCAL_...``.
            space: The same for all maps whose addresses are of one address space; 0 for this process.

        Returns:
            The address of the ``adma_mmap``.

        Raises:
            ClosedError: If the engine was closed meanwhile.
            DocaError: If DOCA refuses.

        Source: ``doca_mmap_create_from_export``.
        """
        with self._lock:
            if self._closed:
                raise ClosedError("the DMA was closed")
            try:
                registered = self._opened.import_memory(blob, access, space)
            except _native.Failure as failure:
                evidence = self.diagnosis.evidence(failure, "importing memory of the peer", access=access)
            else:
                self.channel.adopt(registered)
                return registered
        raise self.diagnosis.of(evidence)

    def _registered(
        self, call: Callable[[], int], what: str, wait: bool, *, nbytes: int, access: int, address: int
    ) -> int | None:
        try:
            if not self._lock.acquire(blocking=wait):
                return None
            try:
                return self._register(call, what, nbytes=nbytes, access=access, address=address)
            finally:
                self._lock.release()
        except Unexamined as unexamined:
            if not wait:
                raise
            raise self.diagnosis.of(unexamined.evidence) from None

    def _register(self, call: Callable[[], int], what: str, *, nbytes: int, access: int, address: int) -> int:
        if self._closed:
            raise ClosedError("the DMA was closed")
        try:
            registered = call()
        except _native.Failure as failure:
            evidence = self.diagnosis.evidence(failure, what, nbytes=nbytes, access=access, address=address)
            raise Unexamined(evidence) from None
        self.channel.adopt(registered)
        return registered

    def recycle(self) -> bool:
        """
        Make a fresh context.

        Returns:
            Whether the capabilities changed.

        Raises:
            DocaError: If no context can be had.

        Source: ``doca_dma_destroy``, ``doca_dma_create``, ``doca_ctx_start``.
        """
        with self._lock:
            try:
                return self.channel.recycle()
            except _native.Failure as failure:
                evidence = self.diagnosis.evidence(failure, "making a fresh context")
        raise self.diagnosis.of(evidence)

    def close(self) -> list[DocaError]:
        """
        Undo everything.

        Returns:
            What DOCA failed to undo, in order; it stays, and so does the memory it may touch.

        Source: ``doca_ctx_stop``, ``doca_dma_destroy``, ``doca_mmap_destroy``, ``doca_pe_destroy``, ``doca_dev_close``.
        """
        with self._lock:
            self._closed = True
            failures = self.channel.close()
            # What could not be destroyed keeps the device open: closing it then would only fail, too.
            if DEVICE_USERS.isdisjoint(failure.call for failure in failures) and (code := self._close_device()):
                failures.append(_native.Failure(code, "doca_dev_close", "stop"))
        return [
            self.diagnosis.of(
                self.diagnosis.evidence(failure, f"closing {self.device.name}, which leaves {LEFT[failure.call]}")
            )
            for failure in failures
        ]

    def discard(self) -> None:
        """Close one that no loop has seen; what DOCA fails to undo stays."""
        if not self.close():
            self.channel.free()

    def finalize(self, timeout: float, ended: Callable[[], object]) -> None:
        """
        For an engine whose loop is gone: progress for at most ``timeout`` seconds, then close, or leak.

        ``ended`` is called when that is done, and before the channel is freed.
        """
        closed = self.channel.finalize(timeout)
        ended()
        if closed:
            self.channel.free()
            self._close_device()

    def _close_device(self) -> int:
        if not self._device_lock.acquire(timeout=CLOSE_TIMEOUT):
            return IN_USE  # it does not answer
        try:
            device, self._device = self._opened, None
            return device.close()
        finally:
            self._device_lock.release()

    @property
    def _opened(self) -> _native.NativeDevice:
        assert self._device is not None, "opened by __init__"
        return self._device
