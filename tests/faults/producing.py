"""
Failures made to order: each cause that an exception can name, for each code and at each phase where it can occur.

What is made is the world in which the cause holds: the device's limits, the list of devices, what the process may do,
its memory. The code and the phase come from a fault of the emulator. Readers of files that this machine does not have
(device nodes, an IOMMU, the kernel's log) are replaced by others; the classifier itself sees nothing but evidence.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

import aiodocadma
from aiodocadma import DMA, _diagnosis, _engine, _evidence, _sdk_log, emulator
from aiodocadma._causes import CAUSES, Log
from aiodocadma.exceptions import CopyManyError, DocaError, Phase
from tests.dma.conftest import OPTIONAL, SUBMIT

PHASES: tuple[Phase, ...] = ("open", "register", "alloc", "submit", "complete", "stop")
OPERATIONS = {
    "open": "ctx_start",
    "register": "mmap_start",
    "alloc": "dma_task_memcpy_alloc_init",
    "submit": SUBMIT,
    "complete": "completion",
    "stop": "mmap_destroy",
}
CALLS = {"alloc": "doca_dma_task_memcpy_alloc_init", "submit": "doca_task_submit", "complete": "doca_task_get_status"}
AGAIN, NO_MEMORY = 5, 7
KERNEL_LINE = "mlx5_core 0000:03:00.0: health compromised"

# What the client cannot do wrong: it is found from evidence alone, in tests/test_causes.py.
BY_CONSTRUCTION = {("export_without_pci_flag", "register")}
# The causes of a refused import.
IMPORTS = {"src_not_exported", "device_cannot_import", "descriptor_foreign", "exporter_silent"}


_memory = bytearray(3000)
_HERE = ctypes.addressof(ctypes.c_char.from_buffer(_memory))


class Cell(NamedTuple):
    """One field of the matrix."""

    cause: str
    code: int
    phase: Phase

    @property
    def named(self) -> str | None:
        """The cause that the error names: where DOCA cannot be made to tell its log, what is left without it."""
        if self.cause != "sdk_log" or OPTIONAL["doca_log_backend_create_with_file_sdk"]:
            return self.cause
        return "below_dma" if self.code in _BELOW else None


_BELOW = next(cause.codes for cause in CAUSES if cause.name == "below_dma")
CELLS = [
    Cell(cause.name, code, phase)
    for cause in CAUSES
    for code in cause.codes
    for phase in cause.phases
    if (cause.name, phase) not in BY_CONSTRUCTION
]


class World(NamedTuple):
    """How a cell's failure is brought about, where it differs from the rule."""

    op: str | None = None
    after_open: Callable[[DMA], object] = lambda dma: None
    fatal: bool = True
    provoke: Callable[[DMA], Any] | None = None
    by_itself: bool = False  # the emulator refuses of its own accord


def _sides(src_access: int, dst_access: int, *imported: bool) -> Callable[..., Any]:
    def sides(self: DMA, future: Any, index: int = 0) -> Any:
        return (_HERE, src_access, _HERE, dst_access, 3000, *imported)

    return sides


def _limits(**settings: object) -> Callable[[DMA], object]:
    return lambda dma: emulator.configure(**settings)


def _no_device(**keys: object) -> Callable[[DMA], object]:
    return lambda dma: emulator.add_device("mlx5_9", pci="0000:09:00.0", **keys)


def _not_able(dma: DMA) -> None:
    """Asked again, the opened device says no; another one can."""
    emulator.inject(emulator.Fault("dma_cap_task_memcpy_is_supported", status="NOT_SUPPORTED"))
    emulator.add_device("mlx5_9", pci="0000:09:00.0")


async def _unmapped(dma: DMA, code: int, phase: str) -> None:
    """The user takes the access from memory that a copy uses; the fault spares the emulator from touching it."""
    pages = mmap.mmap(-1, 1 << 20)
    with await_map(await dma.register(pages)) as memory, await_map(await dma.alloc(3000)) as dst:
        emulator.inject(emulator.Fault(OPERATIONS[phase], status=code))
        address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        assert libc.mprotect(address, 1 << 20, 0) == 0
        try:
            await dma.copy(memory[:3000], dst)
        finally:
            libc.mprotect(address, 1 << 20, mmap.PROT_READ | mmap.PROT_WRITE)


@contextlib.contextmanager
def await_map(memory: aiodocadma.MemoryMap) -> Iterator[aiodocadma.MemoryMap]:
    """Close a map, whatever happens."""
    try:
        yield memory
    finally:
        memory.close()


def world(cell: Cell, patch: pytest.MonkeyPatch) -> World:
    """Make what can be made beforehand, and tell the rest."""
    cause, code, phase = cell
    patch.setattr(_evidence, "kernel_log", Log)
    patch.setattr(_evidence, "device_nodes", tuple)
    patch.setattr(_evidence, "iommus", tuple)
    match cause:
        case "versions_disagree":
            verdict = SimpleNamespace(sentence="doca-dma.pc 2.9.4 against 3.0.0")
            patch.setattr(_engine, "verdict", lambda library: verdict)
        case "dst_not_writable":
            patch.setattr(DMA, "_sides", _sides(0, 0))
        case "dst_export_read_only":
            patch.setattr(DMA, "_sides", _sides(0, 0, False, True))
        case _ if cause in IMPORTS and phase == "register":
            return World(op="mmap_create_from_export", provoke=_import)
        case "src_not_exported":
            patch.setattr(DMA, "_sides", _sides(0, 1, True, False))
        case "peer_gone":
            patch.setattr(DMA, "_sides", _sides(0, 1, True, False))
        case "length_above_limit":
            return World(after_open=_limits(max_buf_size=1024))
        case "capabilities_changed":
            return World(after_open=_limits(max_buf_list_len=7))
        case "permission_combination":
            return World(by_itself=True, provoke=lambda dma: _register(dma, 0x10000, 4096, 16 | 32))
        case "range_past_address_space":
            return World(by_itself=True, provoke=lambda dma: _register(dma, (1 << 64) - 4096, 8192, 0))
        case "device_cannot":
            if phase == "open":
                emulator.add_device("mlx5_0", dma=False)
                return World(by_itself=True)
            return World(after_open=_not_able, fatal=False)  # a restart would ask, too
        case "state_of_object":
            return World(fatal=False)
        case "memory_not_mapped":
            return World(provoke=lambda dma: _unmapped(dma, code, phase), by_itself=True)
        case "memlock":
            locked = _evidence.LockedMemory(limit=65536, locked=65536)
            patch.setattr(_evidence, "locked_memory", lambda: locked)
        case "iommu":
            patch.setattr(_evidence, "iommus", lambda: ("dmar0",))
        case "device_node":
            patch.setattr(_evidence, "device_nodes", lambda: ("/dev/infiniband/uverbs0 crw------- 0:0",))
        case "bufs_out":
            return World(op="buf_inventory_destroy")
        case "context_not_idle":
            return World(op="dma_destroy")
        case "context_connected":
            return World(op="pe_destroy")
        case "device_in_use":
            return World(op="dev_open" if phase == "open" else "dev_close")
        case "too_many_files":
            patch.setattr(_evidence, "open_files", lambda: (1020, 1024))
        case "device_not_opened":
            return World(op="dev_open")
        case "device_not_listed":
            if phase == "open":
                # Between the listing and the opening.
                patch.setattr(_diagnosis, "list_devices", lambda library: [])
            return World(after_open=_no_device())
        case "kernel_log":
            patch.setattr(_evidence, "kernel_log", lambda: Log((KERNEL_LINE, "usb 1-1: new device")))
        case "below_dma":
            patch.setattr(_sdk_log.SdkLog, "tail", lambda self: Log())
    return World()


async def _import(dma: DMA) -> None:
    await dma.import_memory(aiodocadma.ExportDescriptor(b"x" * 64), smoke=False)


async def _register(dma: DMA, address: int, nbytes: int, access: int) -> None:
    engine = dma._engine
    what = f"registering {nbytes} bytes of memory"
    engine._registered(
        lambda: engine._opened.register(address, nbytes, access),
        what,
        True,
        nbytes=nbytes,
        access=access,
        address=address,
    )


async def fail(cell: Cell, patch: pytest.MonkeyPatch) -> DocaError:
    """Bring the failure about; what was raised."""
    made = world(cell, patch)
    _, code, phase = cell
    # AGAIN and NO_MEMORY there mean "wait", unless nothing of ours is there to wait for, for long.
    for_ever = phase in ("alloc", "submit") and code in (AGAIN, NO_MEMORY)
    fault = emulator.Fault(made.op or OPERATIONS[phase], status=code, count=0 if for_ever else 1, fatal=made.fatal)
    inject = not made.by_itself
    with pytest.raises(DocaError) as caught:
        if inject and phase == "open":
            emulator.inject(fault)
        async with aiodocadma.open_dma() as dma:
            made.after_open(dma)
            if inject:
                emulator.inject(fault)
            if made.provoke is not None:
                await made.provoke(dma)
            else:
                await dma.copy(bytes(3000), bytearray(3000))
    emulator.configure(faults="none")
    return caught.value


async def stops(cells: list[Cell]) -> None:
    """For a process of its own, since what fails to be destroyed stays; prints what is named otherwise."""
    for cell in cells:
        with pytest.MonkeyPatch.context() as patch:
            error = await fail(cell, patch)
        if (error.code, error.phase, error.cause_name) != (cell.code, cell.phase, cell.named):
            print(cell, "named", error.cause_name, str(error))
        emulator.configure("devices=default")


__all__ = ["CELLS", "Cell", "CopyManyError", "fail", "stops"]
