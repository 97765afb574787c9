"""
An opened device with its channel: the blocking half of a DMA, which knows no event loop.

Every call may block and belongs into a worker thread, unless it says otherwise. One lock lets one of them at a time
into the library. Registration runs beside the pump, which it does not touch; recycling and closing only while the
channel is parked, when the loop's thread stays away from the progress engine.
"""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Callable
from typing import Final, Literal

from aiodocadma import _native
from aiodocadma._devices import Capabilities, DeviceInfo, select_device
from aiodocadma._library import Library, open_library
from aiodocadma.exceptions import ClosedError, DocaError

__all__ = ["Engine", "OnFlush"]

# Policy, not limits of a device.
GRAVEYARD_BYTES: Final = 64 * 1024 * 1024  # closed maps may pin this much before the context is recycled
GRAVEYARD_MAPS: Final = 1024  # or be this many
# From measurements of cards: several tasks at once move a long copy about three times as fast as one, down to pieces of
# 64 KiB. Beside short copies pieces of 12 KiB, 9 at once, still keep the engine busy, and let the short ones pass.
STRIPE_BYTES: Final = 64 * 1024
FAIR_BYTES: Final = 12 * 1024
FAIR_WINDOW_BYTES: Final = 108 * 1024
TURN_BUDGET: Final = 400e-6  # seconds the pump may hold the loop

# Calls whose failure leaves something that uses the device.
DEVICE_USERS: Final = frozenset({"doca_buf_dec_refcount", "doca_ctx_stop", "doca_dma_destroy", "doca_mmap_destroy"})

# What doca_mmap_start() may answer when too much memory is locked: NOT_PERMITTED, NO_MEMORY.
MEMLOCK_CODES: Final = frozenset({2, 7})

# What doca_mmap_create_from_export() means by a code, and what to do.
IMPORT_CAUSES: Final = {
    2: ("the memory is exported no longer, or not to this user", "Ask the exporter for a fresh descriptor."),
    4: ("this device cannot import a peer's memory", "aiodocadma devices --caps shows which device can."),
    6: ("this library did not make the descriptor, or it was changed", "Have both sides use one version of DOCA."),
    21: ("the exporter does not answer", "Start the exporter first, and let it run; then ask for a fresh descriptor."),
}

OnFlush = Literal["replay", "fail"]


def _locked_memory() -> str:
    """The limit of locked memory, and how much of it is used: what a failed registration is about, most often."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    limit = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft // 1024} KiB"
    with open("/proc/self/status") as status:
        locked = next((line.split()[1] for line in status if line.startswith("VmLck:")), "0")
    return f"RLIMIT_MEMLOCK is {limit}, {locked} KiB are locked"


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
    ) -> None:
        self.library: Final[Library] = open_library(library)
        self.device: Final[DeviceInfo] = select_device(self.library, device)
        self._lock = threading.Lock()
        self._closed = False
        try:
            self._device = self.library.native.open_device(self.device.pci_address)
            try:
                self.channel = self._device.open_channel(
                    num_tasks=num_tasks or 0,
                    window=window or 0,
                    window_bytes=window_bytes or 0,
                    stripe_bytes=STRIPE_BYTES,
                    fair_bytes=FAIR_BYTES,
                    fair_window_bytes=FAIR_WINDOW_BYTES,
                    graveyard_bytes=GRAVEYARD_BYTES,
                    graveyard_maps=GRAVEYARD_MAPS,
                    turn_budget=TURN_BUDGET,
                    spin=spin,
                    replay=on_flush == "replay",
                )
            except BaseException:
                self._device.close()
                raise
        except _native.Failure as failure:
            raise self.error(failure) from None

    def error(self, failure: _native.Failure, *, cause: str | None = None, tag: object = None) -> DocaError:
        """Make the exception for a native failure; blocks nobody."""
        return self.library.error(failure, device=self.device.name, cause=cause, tag=tag)

    def capabilities(self) -> Capabilities:
        """What the device answered when the context was made last; blocks nobody."""
        return Capabilities._from_native(self.channel.caps())

    def register(self, address: int | None, nbytes: int, access: int, what: str = "memory") -> int:
        """
        Register memory for this channel.

        Args:
            address: Where it is, or None for fresh pages.
            nbytes: At least 1.
            access: ``ACCESS_...`` bits.
            what: What it is, for the error.

        Returns:
            The address of the ``adma_mmap``.

        Raises:
            ClosedError: If the engine was closed meanwhile.
            DocaError: If DOCA refuses.

        Source: ``doca_mmap_start``.
        """
        with self._lock:
            return self._register(address, nbytes, access, what)

    def register_now(self, address: int | None, nbytes: int, access: int, what: str = "memory") -> int | None:
        """As ``register()``, for the loop's thread and little memory; None if a worker is in the library."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return self._register(address, nbytes, access, what)
        finally:
            self._lock.release()

    def export(self, address: int | None, nbytes: int, writable: bool) -> tuple[int, bytes]:
        """
        Register memory for the PCI peer, apart from any registration it has for copies here.

        Args:
            address: Where it is, or None for fresh pages.
            nbytes: At least 1.
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
        with self._lock:
            registered = self._register(address, nbytes, access, "memory for the peer")
            try:
                return registered, _native.export_descriptor(registered)
            except _native.Failure as failure:
                self.channel.retire(registered)
                raise self.error(failure, cause=f"exporting {nbytes} bytes to the PCI peer") from None

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
                registered = self._device.import_memory(blob, access, space)
            except _native.Failure as failure:
                error = self.error(failure)
                if failure.code in IMPORT_CAUSES:
                    error.cause, error.next_step = IMPORT_CAUSES[failure.code]
                    error.hint = error.next_step
                raise error from None
            self.channel.adopt(registered)
            return registered

    def _register(self, address: int | None, nbytes: int, access: int, what: str) -> int:
        if self._closed:
            raise ClosedError("the DMA was closed")
        try:
            registered = self._device.register(address, nbytes, access)
        except _native.Failure as failure:
            cause = f"registering {nbytes} bytes of {what}"
            if failure.code in MEMLOCK_CODES:
                cause += f"; {_locked_memory()}"
            raise self.error(failure, cause=cause) from None
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
                raise self.error(failure) from None

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
            if DEVICE_USERS.isdisjoint(failure.call for failure in failures) and (code := self._device.close()):
                failures.append(_native.Failure(code, "doca_dev_close", "stop"))
        return [self.error(failure) for failure in failures]

    def finalize(self, timeout: float, ended: Callable[[], object]) -> None:
        """
        For an engine whose loop is gone: progress for at most ``timeout`` seconds, then close, or leak.

        ``ended`` is called when that is done, and before the channel is freed.
        """
        closed = self.channel.finalize(timeout)
        ended()
        if closed:
            self.channel.free()
            self._device.close()
