"""
Why DOCA refused or failed: what is known of a failure, and the causes, in the order in which they are looked for.

Pure: a cause is found from ``Evidence`` and nothing else, so that a test can make any. Who gathers it is in
``_evidence.py``, and no part of either knows which library it talks to. The order is DMA's own causes first, then those
of the libraries below it; within them the more certain first. The texts are those of the exceptions, of ``aiodocadma
explain`` and of the documentation.
"""

from __future__ import annotations

import dataclasses
import datetime
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from aiodocadma._counted import counted
from aiodocadma.exceptions import DocaError, Phase

if TYPE_CHECKING:
    from aiodocadma._devices import Capabilities

__all__ = [
    "CAUSES",
    "CODES",
    "Cause",
    "Check",
    "Checked",
    "Evidence",
    "Finding",
    "Layer",
    "LockedMemory",
    "Log",
    "Proof",
    "Sides",
    "as_record",
    "candidates",
    "checks_for",
    "find",
    "meaning",
    "next_step",
    "tell",
]

Layer: TypeAlias = Literal["install", "version", "build", "link", "runtime", "program", "driver"]
"""The debug ladder, from the bottom: where to look first."""

Check: TypeAlias = Literal["caps", "devices", "locked", "nodes", "mappings", "files", "logs"]
"""What may have to be asked after a failure; it may block."""

# enum doca_access_flag
LOCAL_READ_WRITE: Final = 1
PCI_READ_ONLY: Final = 16
PCI_READ_WRITE: Final = 32
PCI_RELAXED_ORDERING: Final = 64
_ACCESS_FLAGS: Final = {
    1: "LOCAL_READ_WRITE",
    2: "RDMA_READ",
    4: "RDMA_WRITE",
    8: "RDMA_ATOMIC",
    16: "PCI_READ_ONLY",
    32: "PCI_READ_WRITE",
    64: "PCI_RELAXED_ORDERING",
}
# enum doca_ctx_states
IDLE, STARTING, RUNNING, STOPPING = range(4)
_CTX_STATES: Final = ("IDLE", "STARTING", "RUNNING", "STOPPING")


# ---- What is known


class Sides(NamedTuple):
    """Where a copy reads and writes, and what its maps allow: ``DOCA_ACCESS_FLAG_...`` bits."""

    src: int
    src_access: int
    dst: int
    dst_access: int
    nbytes: int
    src_imported: bool = False
    dst_imported: bool = False


class LockedMemory(NamedTuple):
    """Bytes that this process may lock (None: any number) and has locked; ``exempt`` by CAP_IPC_LOCK."""

    limit: int | None
    locked: int
    exempt: bool = False

    def __str__(self) -> str:
        limit = "unlimited" if self.limit is None else f"{self.limit // 1024} KiB"
        return f"RLIMIT_MEMLOCK is {limit}, {self.locked // 1024} KiB are locked"


class Log(NamedTuple):
    """The latest lines of a log; ``unreadable`` says why there are none, which is not the same as a clean log."""

    lines: tuple[str, ...] = ()
    unreadable: str | None = None


class Proof(NamedTuple):
    """A first small copy over a path went through at this time: its permissions are proven."""

    path: str
    at: datetime.datetime

    def __str__(self) -> str:
        return f"permissions of {self.path} proven at {self.at:%H:%M:%S} UTC"


class Checked(NamedTuple):
    """What was asked after the failure; None: it was not, or there was no answer in time."""

    supported: int | None = None  # doca_error_t of the query whether the device can do memcpy tasks
    caps: Capabilities | None = None
    listed: tuple[str, ...] | None = None  # devices that are listed
    able: tuple[str, ...] | None = None  # of those, the ones that can do DMA
    locked: LockedMemory | None = None
    forbidden: tuple[str, ...] | None = None  # device nodes that this user may not open, with owner and mode
    iommus: tuple[str, ...] | None = None
    mappings: tuple[tuple[int, int, str], ...] | None = None  # start, end, permissions
    files: tuple[int, int | None] | None = None  # descriptors open, and the limit
    kernel_log: Log | None = None
    sdk_log: Log | None = None
    trouble: str | None = None  # why less was checked than should have been


class Evidence(NamedTuple):
    """All that is known of one failure."""

    code: int
    call: str
    phase: Phase
    operation: str = ""  # "copying 4096 bytes from src to dst"
    nbytes: int = 0
    device: str = ""
    sides: Sides | None = None
    access: int = 0  # of what is being registered,
    address: int = 0  # and where it is; 0: fresh pages
    caps: Capabilities | None = None  # as when the context was made
    transitions: tuple[tuple[int, int], ...] = ()  # of the context, the latest last
    in_flight: int = 0
    num_tasks: int = 0
    completed: int | None = None  # tasks that went well before; None: not known in this thread
    proofs: tuple[Proof, ...] = ()
    skew: str | None = None  # versions that do not fit together, as found when the library was opened
    checked: Checked = Checked()


class Finding(NamedTuple):
    """What an exception says."""

    name: str | None
    cause: str
    layer: Layer
    rule: str | None
    next_step: str
    caps_diff: dict[str, tuple[object, object]] | None


# ---- The causes


class Cause(NamedTuple):
    """
    One cause of one or more codes.

    ``find`` gives the facts that show it, perhaps none (""), or None if it is not this one.
    """

    name: str
    codes: tuple[int, ...]
    phases: tuple[Phase, ...]
    rule: str | None
    layer: Layer
    text: str
    next_step: str
    find: Callable[[Evidence], str | None]


# doca_error_t
_UNKNOWN, _NOT_PERMITTED, _IN_USE, _NOT_SUPPORTED, _AGAIN, _INVALID_VALUE, _NO_MEMORY, _INITIALIZATION = range(1, 9)
_TIME_OUT, _NOT_CONNECTED, _NOT_FOUND, _IO_FAILED, _BAD_STATE, _UNSUPPORTED_VERSION = 9, 14, 16, 17, 18, 19
_OPERATING_SYSTEM, _DRIVER, _UNEXPECTED, _TOO_BIG, _IN_PROGRESS, _DEVICE_FATAL = 20, 21, 22, 27, 26, 31

_ANY: Final[tuple[Phase, ...]] = ("open", "register", "alloc", "submit", "complete", "stop")
_COPY: Final[tuple[Phase, ...]] = ("alloc", "submit", "complete")


def _flags(access: int) -> str:
    return " | ".join(name for bit, name in _ACCESS_FLAGS.items() if access & bit) or "LOCAL_READ_ONLY"


def _calls(*calls: str, facts: str = "") -> Callable[[Evidence], str | None]:
    """The call alone tells."""
    return lambda e: facts if e.call in calls else None


def _skew(e: Evidence) -> str | None:
    return e.skew


def _dst_not_writable(e: Evidence) -> str | None:
    if e.sides is None or e.sides.dst_imported or e.sides.dst_access & (LOCAL_READ_WRITE | PCI_READ_WRITE):
        return None
    return f"its map has {_flags(e.sides.dst_access)}"


def _dst_export_read_only(e: Evidence) -> str | None:
    if e.sides is None or not e.sides.dst_imported or e.sides.dst_access & (LOCAL_READ_WRITE | PCI_READ_WRITE):
        return None
    return f"its map has {_flags(e.sides.dst_access)}"


def _src_not_exported(e: Evidence) -> str | None:
    """The destination is known to allow writing by then."""
    peers = e.call == "doca_mmap_create_from_export" or (e.sides is not None and e.sides.src_imported)
    return "; ".join(map(str, e.proofs)) if peers else None


def _export_without_pci(e: Evidence) -> str | None:
    if e.call != "doca_mmap_export_pci" or e.access & (PCI_READ_ONLY | PCI_READ_WRITE):
        return None
    return f"the map has {_flags(e.access)}"


def _memlock(e: Evidence) -> str | None:
    locked = e.checked.locked
    if locked is None or locked.limit is None or locked.exempt or locked.locked + e.nbytes <= locked.limit:
        return None
    return str(locked)


def _nodes(e: Evidence) -> str | None:
    return ", ".join(e.checked.forbidden) if e.checked.forbidden else None


def _iommu(e: Evidence) -> str | None:
    if e.call != "doca_mmap_start" or not e.checked.iommus or e.checked.locked is None:
        return None
    return f"{', '.join(e.checked.iommus)}; {e.checked.locked}"


def _pinning(e: Evidence) -> str | None:
    return str(e.checked.locked) if e.checked.locked is not None and e.call == "doca_mmap_start" else None


def _caps_diff(e: Evidence) -> dict[str, tuple[object, object]]:
    if e.caps is None or e.checked.caps is None:
        return {}
    # Only a context knows max_num_tasks, and none was made to ask again.
    return {key: values for key, values in e.caps.diff(e.checked.caps).items() if key != "max_num_tasks"}


def _caps_changed(e: Evidence) -> str | None:
    return ", ".join(f"{key} {before} -> {now}" for key, (before, now) in _caps_diff(e).items()) or None


def _oversize(e: Evidence) -> str | None:
    limit = e.checked.caps.max_buf_size if e.checked.caps is not None else None
    if limit is None or e.caps is None or e.nbytes <= limit or e.caps.max_buf_size <= limit:
        return None
    return f"it takes {limit} bytes now, and took {e.caps.max_buf_size} when the context was made"


def _pci_flags(e: Evidence) -> str | None:
    if e.call != "doca_mmap_set_permissions":
        return None
    pci = e.access & (PCI_READ_ONLY | PCI_READ_WRITE)
    if pci == PCI_READ_ONLY | PCI_READ_WRITE or (pci and e.access & PCI_RELAXED_ORDERING):
        return _flags(e.access)
    return None


def _wraps(e: Evidence) -> str | None:
    if e.call not in ("doca_mmap_set_memrange", "doca_mmap_start") or e.address + e.nbytes <= 1 << 64:
        return None
    return f"{counted(e.nbytes, 'byte')} at {e.address:#x}"


def _device_not_listed(e: Evidence) -> str | None:
    listed = e.checked.listed
    if listed is None or not e.device or e.device in listed:
        return None
    return f"listed are: {', '.join(listed) or 'none'}"


def _device_cannot(e: Evidence) -> str | None:
    if e.checked.supported != _NOT_SUPPORTED:
        return None
    others = [name for name in e.checked.able or () if name != e.device]
    return f"these can: {', '.join(others)}" if others else "and no other device here can"


def _device_can(e: Evidence) -> str | None:
    return "" if e.checked.supported == 0 else None


def _history(e: Evidence) -> str:
    return ", ".join(f"{_CTX_STATES[a]} to {_CTX_STATES[b]}" for a, b in e.transitions)


def _ctx_stopped(e: Evidence) -> str | None:
    stopped = e.transitions and e.transitions[-1][1] in (STOPPING, IDLE)
    return _history(e) if stopped else None


def _ctx_running(e: Evidence) -> str | None:
    return _history(e) if e.transitions and e.transitions[-1][1] == RUNNING else None


def _start_without_running(e: Evidence) -> str | None:
    return _history(e) or "no transition" if e.call == "doca_ctx_start" and e.phase == "open" else None


def _kernel_says(e: Evidence) -> str | None:
    log = e.checked.kernel_log
    lines = [line for line in (log.lines if log is not None else ()) if "mlx5" in line or "infiniband" in line.lower()]
    return lines[-1] if lines else None


def _sdk_says(e: Evidence) -> str | None:
    log = e.checked.sdk_log
    return log.lines[-1] if log is not None and log.lines else None


def _below(e: Evidence) -> str | None:
    log = e.checked.kernel_log
    if log is None:
        return None
    return f"the kernel's log is {log.unreadable}" if log.unreadable else "the kernel's log says nothing of it"


def _unmapped(e: Evidence) -> str | None:
    if e.checked.mappings is None or e.sides is None:
        return None
    for side, start, imported, wanted in (
        ("src", e.sides.src, e.sides.src_imported, "r"),
        ("dst", e.sides.dst, e.sides.dst_imported, "w"),
    ):
        hole = None if imported else _hole(e.checked.mappings, start, start + e.sides.nbytes, wanted)
        if hole is not None:
            return f"{side}: {hole}"
    return None


def _hole(mappings: tuple[tuple[int, int, str], ...], start: int, end: int, wanted: str) -> str | None:
    """What keeps the range from being accessed, or None; the mappings are sorted."""
    for low, high, permissions in mappings:
        if high <= start:
            continue
        if low > start:
            break
        if wanted not in permissions:
            return f"{start:#x} is mapped {permissions}"
        start = high
        if start >= end:
            return None
    return f"nothing is mapped at {start:#x}"


def _peer_gone(e: Evidence) -> str | None:
    if e.sides is None or not (e.sides.src_imported or e.sides.dst_imported):
        return None
    return "the imported side is " + ("src" if e.sides.src_imported else "dst")


def _proven(e: Evidence) -> str:
    if e.proofs:
        return "; ".join(map(str, e.proofs))
    return f"{counted(e.completed, 'task')} of this context went well before" if e.completed else ""


def _maps_allow(e: Evidence) -> str | None:
    return _proven(e) if e.sides is not None else None


def _limits_hold(e: Evidence) -> str | None:
    return _proven(e) if e.checked.caps is not None else None


def _all_holds(e: Evidence) -> str | None:
    return _proven(e) if e.checked.caps is not None and e.checked.mappings is not None else None


def _pool(e: Evidence) -> str | None:
    return f"{e.in_flight} of {e.num_tasks} tasks are with DOCA" if e.phase in ("alloc", "submit") else None


def _descriptors(e: Evidence) -> str | None:
    if e.checked.files is None:
        return None
    used, limit = e.checked.files
    return f"RLIMIT_NOFILE is {limit}, {used} are open" if limit is not None and used + 8 > limit else None


CAUSES: Final[tuple[Cause, ...]] = (
    # ---- versions first: while they disagree, no other advice is worth much
    Cause(
        name="versions_disagree",
        codes=tuple(range(1, 32)),
        phases=_ANY,
        rule="R34",
        layer="version",
        text="the DOCA that is installed does not fit together, so what follows may mislead",
        next_step="Make the versions agree first: one release for the libraries, the headers and the driver.",
        find=_skew,
    ),
    # ---- DMA's own
    Cause(
        name="dst_not_writable",
        codes=(_NOT_PERMITTED, _IO_FAILED),
        phases=_COPY,
        rule="R42",
        layer="program",
        text="the destination does not allow the device to write",
        next_step="Give a destination that was registered as writable memory.",
        find=_dst_not_writable,
    ),
    Cause(
        name="dst_export_read_only",
        codes=(_NOT_PERMITTED, _IO_FAILED),
        phases=_COPY,
        rule="R42",
        layer="program",
        text="the destination is a peer's, and was exported for reading only",
        next_step="The peer must export it with write access, and both sides must allow remote writing.",
        find=_dst_export_read_only,
    ),
    Cause(
        name="src_not_exported",
        codes=(_NOT_PERMITTED,),
        phases=("register", *_COPY),
        rule="R42",
        layer="program",
        text="the memory is a peer's, and is not exported to this device and user, or not any more",
        next_step="The side that owns the memory exports it first; then import that descriptor.",
        find=_src_not_exported,
    ),
    Cause(
        name="device_cannot_import",
        codes=(_NOT_SUPPORTED,),
        phases=("register",),
        rule="R13",
        layer="runtime",
        text="this device cannot import a peer's memory",
        next_step="aiodocadma devices --caps shows which device can.",
        find=_calls("doca_mmap_create_from_export"),
    ),
    Cause(
        name="descriptor_foreign",
        codes=(_INVALID_VALUE,),
        phases=("register",),
        rule="X02",
        layer="program",
        text="this library did not make the export descriptor, or it was changed on the way",
        next_step="Have both sides use one version of DOCA, and pass the descriptor on as it is.",
        find=_calls("doca_mmap_create_from_export"),
    ),
    Cause(
        name="exporter_silent",
        codes=(_DRIVER,),
        phases=("register",),
        rule="X22",
        layer="runtime",
        text="the exporter of the memory does not answer",
        next_step="Start the exporter first, and let it run; then ask it for a fresh descriptor.",
        find=_calls("doca_mmap_create_from_export"),
    ),
    Cause(
        name="export_without_pci_flag",
        codes=(_NOT_PERMITTED,),
        phases=("register",),
        rule="X02",
        layer="program",
        text="memory can be exported to the PCI peer only with PCI_READ_ONLY or PCI_READ_WRITE",
        next_step="Register the memory with access for the peer, then export it.",
        find=_export_without_pci,
    ),
    Cause(
        name="length_above_limit",
        codes=(_INVALID_VALUE, _IO_FAILED),
        phases=_COPY,
        rule="R38",
        layer="program",
        text="the device takes shorter tasks than it did when the context was made",
        next_step="Later copies are cut to the new limit: a context that is made anew reads it anew.",
        find=_oversize,
    ),
    Cause(
        name="capabilities_changed",
        codes=(_INVALID_VALUE, _NOT_SUPPORTED, _IO_FAILED),
        phases=_COPY,
        rule="R51",
        layer="runtime",
        text="the device answers the capability queries otherwise than when the context was made",
        next_step="Find out who reconfigured the device; a context that is made anew reads its limits anew.",
        find=_caps_changed,
    ),
    Cause(
        name="permission_combination",
        codes=(_INVALID_VALUE,),
        phases=("register",),
        rule="X03",
        layer="program",
        text="these access flags exclude each other",
        next_step="PCI access is for reading or for writing, and goes without relaxed ordering.",
        find=_pci_flags,
    ),
    Cause(
        name="range_past_address_space",
        codes=(_INVALID_VALUE,),
        phases=("register",),
        rule="R75",
        layer="program",
        text="the memory would reach past the end of the address space",
        next_step="Give an address and a length of memory that exists.",
        find=_wraps,
    ),
    Cause(
        name="device_cannot",
        codes=(_NOT_SUPPORTED,),
        phases=_ANY,
        rule="R43",
        layer="runtime",
        text="asked again, the device says that it cannot do memcpy tasks",
        next_step="Take another device ('aiodocadma devices' lists them), or bring a BlueField out of NIC mode.",
        find=_device_cannot,
    ),
    Cause(
        name="call_not_supported",
        codes=(_NOT_SUPPORTED,),
        phases=_ANY,
        rule="R43",
        layer="runtime",
        text="asked again, the device says that it can do memcpy tasks: it is this call that it does not support",
        next_step="See what this release of DOCA says of the call; another device or size will not help.",
        find=_device_can,
    ),
    Cause(
        name="context_stopped",
        codes=(_BAD_STATE,),
        phases=("complete",),
        rule="R36",
        layer="program",
        text="the context is not running any more: a task that failed, or closing, has stopped it",
        next_step="Look for the first error before this one; the context restarts by itself unless it is being closed.",
        find=_ctx_stopped,
    ),
    Cause(
        name="context_did_not_run",
        codes=(_BAD_STATE,),
        phases=("open",),
        rule="X10",
        layer="runtime",
        text="the context was started, but is not RUNNING, although the start of a DMA context is synchronous",
        next_step="Look into DOCA's own log for the reason.",
        find=_start_without_running,
    ),
    Cause(
        name="state_of_object",
        codes=(_BAD_STATE,),
        phases=_COPY,
        rule="R86",
        layer="program",
        text="the context is running, so it is another object whose state forbids the call",
        next_step="Look into DOCA's own log: it names the object.",
        find=_ctx_running,
    ),
    Cause(
        name="queue_full",
        codes=(_AGAIN,),
        phases=("alloc", "submit"),
        rule="R41",
        layer="program",
        text="the queue is full, although no completion is due that would make room",
        next_step="Submit it again later, or give this DMA fewer tasks (num_tasks=).",
        find=_pool,
    ),
    Cause(
        name="pool_empty",
        codes=(_NO_MEMORY,),
        phases=("alloc", "submit"),
        rule="X06",
        layer="program",
        text="a pool of DOCA's is exhausted, although no completion is due that would make room",
        next_step="Either a pool is too small (num_tasks=), or memory is short: what DOCA may lock, see 'ulimit -l'.",
        find=_pool,
    ),
    Cause(
        name="memory_not_mapped",
        codes=(_IO_FAILED,),
        phases=_COPY,
        rule="R37",
        layer="program",
        text="memory of the copy is not there any more, or does not allow the access",
        next_step="Keep both sides mapped and accessible until the copy has ended.",
        find=_unmapped,
    ),
    Cause(
        name="peer_gone",
        codes=(_IO_FAILED,),
        phases=_COPY,
        rule="X22",
        layer="runtime",
        text="a side of the copy is a peer's, who ended, revoked the export or unmapped the memory",
        next_step="Look at the other side; import its memory anew when it is back.",
        find=_peer_gone,
    ),
    # ---- the libraries below
    Cause(
        name="memlock",
        codes=(_NOT_PERMITTED, _NO_MEMORY),
        phases=("register",),
        rule="R124",
        layer="runtime",
        text="more memory would be locked than this process may lock",
        next_step="Register less, or raise the limit: 'ulimit -l', LimitMEMLOCK=, --ulimit memlock=.",
        find=_memlock,
    ),
    Cause(
        name="device_node",
        codes=(_NOT_PERMITTED, _NOT_CONNECTED, _OPERATING_SYSTEM),
        phases=("open", "register"),
        rule="R124",
        layer="runtime",
        text="this user may not open the device's files",
        next_step="Let the administrator give this user's group access to them; a container needs them passed in.",
        find=_nodes,
    ),
    Cause(
        name="iommu",
        codes=(_NOT_PERMITTED,),
        phases=("register",),
        rule="R124",
        layer="runtime",
        text="locked memory and device files allow it, but an IOMMU is on, which may keep the device from this memory",
        next_step="Ask the administrator whether the device may reach all memory through the IOMMU.",
        find=_iommu,
    ),
    Cause(
        name="pages_not_pinned",
        codes=(_NOT_PERMITTED, _NO_MEMORY),
        phases=("register",),
        rule="R124",
        layer="runtime",
        text="the pages of the memory could not be pinned",
        next_step="Check what kind of memory it is (files and device memory may be refused) and 'ulimit -l'.",
        find=_pinning,
    ),
    Cause(
        name="map_in_use",
        codes=(_NOT_PERMITTED, _IN_USE),
        phases=("stop",),
        rule="X11",
        layer="program",
        text="bufs still point into the memory map, or the device did not let go of it",
        next_step="The memory stays registered; close other users of the device, then end the process.",
        find=_calls("doca_mmap_destroy", "doca_mmap_stop", "doca_buf_dec_refcount"),
    ),
    Cause(
        name="bufs_out",
        codes=(_IN_USE,),
        phases=("stop",),
        rule="X11",
        layer="program",
        text="bufs of the inventory are still in use",
        next_step="What could not be destroyed stays until the process ends; please report it.",
        find=_calls("doca_buf_inventory_destroy"),
    ),
    Cause(
        name="context_not_idle",
        codes=(_IN_USE, _TIME_OUT, _IN_PROGRESS),
        phases=("stop",),
        rule="X13",
        layer="program",
        text="the context did not become idle: the device still has tasks of it",
        next_step="What is left stays until the process ends; look into the kernel's log for the device.",
        find=_calls("doca_dma_destroy", "doca_ctx_stop"),
    ),
    Cause(
        name="context_connected",
        codes=(_IN_USE,),
        phases=("stop",),
        rule="X11",
        layer="program",
        text="a context is still connected to the progress engine",
        next_step="Look for the first error of closing: what it left is still connected.",
        find=_calls("doca_pe_destroy"),
    ),
    Cause(
        name="device_in_use",
        codes=(_IN_USE,),
        phases=("open", "stop"),
        rule="R122",
        layer="program",
        text="something else still uses the opened device",
        next_step="Look for the first error of closing; another part of this process may have the device open, too.",
        find=_calls("doca_dev_close", "doca_dev_open"),
    ),
    Cause(
        name="too_many_files",
        codes=(_INITIALIZATION, _OPERATING_SYSTEM, _NO_MEMORY, _NOT_CONNECTED),
        phases=("open",),
        rule="R124",
        layer="runtime",
        text="this process has as many file descriptors open as it may have, or nearly",
        next_step="Close what is not needed, or raise the limit: 'ulimit -n', LimitNOFILE=, --ulimit nofile=.",
        find=_descriptors,
    ),
    Cause(
        name="device_not_opened",
        codes=(_NOT_CONNECTED, _INITIALIZATION),
        phases=("open",),
        rule="R13",
        layer="driver",
        text="the driver did not open the device, or has too many open",
        next_step="Check that the driver is loaded and the device is not claimed by others: 'aiodocadma devices'.",
        find=_calls("doca_dev_open"),
    ),
    Cause(
        name="device_not_listed",
        codes=(_NOT_FOUND, _DRIVER, _DEVICE_FATAL, _OPERATING_SYSTEM, _UNEXPECTED, _UNKNOWN),
        phases=_ANY,
        rule="R16",
        layer="driver",
        text="no such device is listed",
        next_step="Bring the device back (the driver, or the machine's administrator), then open a new DMA.",
        find=_device_not_listed,
    ),
    Cause(
        name="kernel_log",
        codes=(_DRIVER, _DEVICE_FATAL, _OPERATING_SYSTEM, _UNEXPECTED, _UNKNOWN),
        phases=_ANY,
        rule="R44",
        layer="driver",
        text="it lies below DMA, and the kernel's log has a line about such a device",
        next_step="Take the evidence to whoever looks after the driver; then close this DMA and open a new one.",
        find=_kernel_says,
    ),
    Cause(
        name="sdk_log",
        codes=(_DRIVER, _DEVICE_FATAL, _OPERATING_SYSTEM, _UNEXPECTED, _UNKNOWN, _INITIALIZATION),
        phases=_ANY,
        rule="R44",
        layer="driver",
        text="it lies below DMA, and DOCA's own log has lines, here the latest",
        next_step="Take the evidence to whoever looks after the driver; then close this DMA and open a new one.",
        find=_sdk_says,
    ),
    Cause(
        name="below_dma",
        codes=(_DRIVER, _DEVICE_FATAL, _OPERATING_SYSTEM, _UNEXPECTED, _UNKNOWN),
        phases=_ANY,
        rule="R44",
        layer="driver",
        text="it lies below DMA, in the driver or the device, and no log that can be read tells more",
        next_step="Ask whoever looks after the driver and the firmware; then close this DMA and open a new one.",
        find=_below,
    ),
    Cause(
        name="permissions_hold",
        codes=(_NOT_PERMITTED,),
        phases=_COPY,
        rule="R87",
        layer="driver",
        text="the maps of both sides allow the access, so it is none of their flags",
        next_step="Look into DOCA's own log: it names the object and the call that was not permitted.",
        find=_maps_allow,
    ),
    Cause(
        name="limits_hold",
        codes=(_INVALID_VALUE,),
        phases=_COPY,
        rule="R64",
        layer="program",
        text="the limits of the device are as they were, so it is not the size",
        next_step="Look into DOCA's own log: it names the argument.",
        find=_limits_hold,
    ),
    Cause(
        name="limits_and_permissions_hold",
        codes=(_IO_FAILED,),
        phases=_COPY,
        rule="R64",
        layer="driver",
        text="the limits are as they were, the memory is there and both maps allow the access, so it is none of these",
        next_step="Look into DOCA's own log and the kernel's; do not trust the bytes of the destination.",
        find=_all_holds,
    ),
)

# Codes that DMA and the libraries below it answer, and what to do where no cause was found.
CODES: Final[Mapping[int, tuple[Layer, str]]] = {
    _UNKNOWN: ("driver", "Look into DOCA's own log for the call."),
    _NOT_PERMITTED: ("program", "Check the permissions of the memory, and what this user may lock and open."),
    _IN_USE: ("program", "Look for the first error of closing: what it left is still in use."),
    _NOT_SUPPORTED: ("runtime", "'aiodocadma devices' lists what can do DMA. A BlueField in NIC mode cannot."),
    _AGAIN: ("program", "Submit it again later: the queue is full."),
    _INVALID_VALUE: ("program", "Look into DOCA's own log: it names the argument."),
    _NO_MEMORY: ("runtime", "Either a pool is too small (num_tasks=), or memory, locked memory above all, is short."),
    _INITIALIZATION: ("driver", "Look into DOCA's own log and the kernel's for what could not be set up."),
    _TIME_OUT: ("driver", "Look into the kernel's log for the device: it did not answer in time."),
    _NOT_CONNECTED: ("runtime", "Check that the driver is loaded: 'aiodocadma devices'."),
    _NOT_FOUND: ("runtime", "See what is there: 'aiodocadma devices'."),
    _IO_FAILED: ("program", "Check that both memory ranges stay mapped and allow the access until the copy has ended."),
    _BAD_STATE: ("program", "Look for the first error before this one."),
    _UNSUPPORTED_VERSION: ("version", "Make the versions agree: one release for libraries, headers and driver."),
    _OPERATING_SYSTEM: ("driver", "The kernel's log may say which system call failed, and why."),
    _DRIVER: ("driver", "Check the driver and the firmware; then close this DMA and open a new one."),
    _UNEXPECTED: ("driver", "Look into DOCA's own log for the call."),
    _TOO_BIG: ("program", "Give fewer or shorter ones."),
    _DEVICE_FATAL: ("driver", "The device is lost: its administrator must bring it back; then open a new DMA."),
}  # fmt: skip
_OTHER: Final[tuple[Layer, str]] = (
    "runtime",
    "DMA does not use this code itself: look into DOCA's own log for the call.",
)

_CHECKS: Final[Mapping[int, Mapping[Phase, tuple[Check, ...]]]] = {
    _NOT_PERMITTED: {"open": ("nodes", "locked"), "register": ("locked", "nodes")},
    _NO_MEMORY: {"open": ("locked", "files"), "register": ("locked",)},
    _NOT_SUPPORTED: dict.fromkeys(_ANY, ("caps", "devices")),
    _INVALID_VALUE: dict.fromkeys(_COPY, ("caps",)),
    _IO_FAILED: dict.fromkeys(_COPY, ("caps", "mappings")),
    _NOT_CONNECTED: {"open": ("nodes", "files"), "register": ("nodes",)},
    _NOT_FOUND: dict.fromkeys(_ANY, ("devices",)),
    _INITIALIZATION: dict.fromkeys(_ANY, ("files", "logs")),
    _OPERATING_SYSTEM: dict.fromkeys(_ANY, ("nodes", "files", "devices", "logs")),
    **{code: dict.fromkeys(_ANY, ("devices", "logs")) for code in (_UNKNOWN, _DRIVER, _UNEXPECTED, _DEVICE_FATAL)},
}


def checks_for(code: int, phase: Phase) -> tuple[Check, ...]:
    """What must be asked to find the cause; nothing for codes whose causes are known at once."""
    return _CHECKS.get(code, {}).get(phase, ())


def candidates(code: int, phase: Phase | None = None) -> Iterator[Cause]:
    """The causes that a code can have, in their order."""
    return (cause for cause in CAUSES if code in cause.codes and (phase is None or phase in cause.phases))


def find(evidence: Evidence) -> Finding:
    """
    Find the cause.

    Args:
        evidence: All that is known.

    Returns:
        The first cause whose facts are there, or what to do without one.

    Source: aiodocadma.
    """
    diff = _caps_diff(evidence) or None
    for cause in candidates(evidence.code, evidence.phase):
        facts = cause.find(evidence)
        if facts is not None:
            sentence = f"{cause.text} ({facts})" if facts else cause.text
            return Finding(cause.name, _prefixed(evidence, sentence), cause.layer, cause.rule, cause.next_step, diff)
    layer, step = CODES.get(evidence.code, _OTHER)
    return Finding(None, evidence.operation, layer, None, step, diff)


def tell(error: DocaError, evidence: Evidence) -> None:
    """Have an exception say what is known now; it may have said less before."""
    finding = find(evidence)
    error.cause_name, error.cause, error.layer, error.rule, error.next_step, error.caps_diff = finding
    error.cause = finding.cause or None
    error.hint = finding.next_step
    if "logs" in checks_for(evidence.code, evidence.phase) and evidence.checked != Checked():
        error.evidence = as_record(evidence)
    elif evidence.checked.trouble is not None:
        error.add_note(f"less could be checked than should have been: {evidence.checked.trouble}")


def _prefixed(evidence: Evidence, sentence: str) -> str:
    return f"{evidence.operation}: {sentence}" if evidence.operation else sentence


def meaning(code: int) -> str:
    """What a code says, one sentence, as its exception class documents it."""
    doc = inspect.getdoc(DocaError._by_code.get(code, DocaError)) or ""
    sentence = doc.partition("\n\n")[0].partition(": ")[2].replace("``", "")
    return sentence[:1].upper() + sentence[1:]


def next_step(code: int) -> str:
    """What to do about a code where no cause was found."""
    return CODES.get(code, _OTHER)[1]


def as_record(value: Any) -> Any:
    """Evidence as JSON can hold it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_record(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {key: as_record(item) for key, item in value._asdict().items()}
    if isinstance(value, tuple | list):
        return [as_record(item) for item in value]
    return value.isoformat() if isinstance(value, datetime.datetime) else value
