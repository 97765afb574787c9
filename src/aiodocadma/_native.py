"""
Typed facade over the extension; the only module that imports it.

``_shim`` (cffi) holds the calls that may block: they release the GIL and belong into a worker thread. ``_fast`` holds
the hot path. Addresses of native objects are plain integers here: what they point to is owned as each class says.
"""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from aiodocadma import _interpreter

# Before the extension, which a sub-interpreter must not even try to load: with a GIL of its own it leaves cffi broken
# for the whole process (seen on Python 3.12.1).
if not _interpreter.is_main():
    raise ImportError("aiodocadma works in the main interpreter only; this is a sub-interpreter")

from aiodocadma._shim import ffi, lib

if TYPE_CHECKING:
    from aiodocadma.exceptions import Phase

if lib.adma_fast_install() != 0:
    raise ImportError("aiodocadma: the native types could not be made")

from aiodocadma._fast import Buffer, Channel, CopyFuture, Tensor, _address, _export, _tensor  # (made by the line above)

__all__ = [
    "ACCESS_LOCAL_READ_ONLY",
    "ACCESS_LOCAL_READ_WRITE",
    "ACCESS_PCI_READ_ONLY",
    "ACCESS_PCI_READ_WRITE",
    "Buffer",
    "Caps",
    "Channel",
    "ChannelStatus",
    "CopyFuture",
    "DevInfo",
    "Failure",
    "LoadError",
    "NativeChannel",
    "NativeDevice",
    "NativeLibrary",
    "Tensor",
    "optional_symbols",
    "required_symbols",
]

ACCESS_LOCAL_READ_ONLY: Final = 0
ACCESS_LOCAL_READ_WRITE: Final = 1
ACCESS_PCI_READ_ONLY: Final = 16
ACCESS_PCI_READ_WRITE: Final = 32

PHASES: Final[tuple[Phase, ...]] = ("open", "register", "alloc", "submit", "complete", "stop")
_COPY_CALLS: Final[dict[Phase, str]] = {
    "alloc": "doca_dma_task_memcpy_alloc_init",
    "submit": "doca_task_submit",
    "complete": "doca_task_get_status",
}
_MAX_CLOSE_FAILURES: Final = 8
_ERROR_BYTES: Final = 1024


class Failure(Exception):
    """A DOCA call failed: its code, its name, the phase; the layers above turn it into a ``DocaError``."""

    def __init__(self, code: int, call: str, phase: Phase) -> None:
        super().__init__(code, call, phase)
        self.code = code
        self.call = call
        self.phase = phase


class LoadError(Exception):
    """The dynamic linker's words, or (missing symbol) the symbol's name."""

    def __init__(self, text: str, *, symbol: bool) -> None:
        super().__init__(text)
        self.text = text
        self.symbol = symbol


class Caps(NamedTuple):
    """What an opened device answered; sizes in bytes."""

    max_buf_size: int
    max_buf_list_len: int
    max_num_tasks: int
    export_pci: bool
    create_from_export_pci: bool


class DevInfo(NamedTuple):
    """One listed device; ``memcpy_supported`` is the ``doca_error_t`` of that query."""

    pci_address: str
    ibdev_name: str
    iface_name: str
    memcpy_supported: int
    caps: Caps


class ChannelStatus(NamedTuple):
    """The channel's own account of itself."""

    state: int
    num_tasks: int
    window: int
    in_flight: int
    faults_in_a_row: int
    transitions: tuple[int, ...]
    pending: int
    waiting: int
    buried_bytes: int
    buried_maps: int
    event_mode_all: bool
    armed: bool


class LatencyCounts(NamedTuple):
    """The histogram as the channel keeps it."""

    num_copies: int
    total: float  # seconds
    buckets: tuple[int, ...]


class NativeEvent(NamedTuple):
    """One event as the recorder keeps it; what ``start`` and ``end`` are depends on the kind."""

    number: int
    time: float  # seconds
    kind: str
    start: int
    end: int
    code: int
    nbytes: int


RUNNING: Final[int] = lib.ADMA_CHANNEL_RUNNING
FAILING: Final[int] = lib.ADMA_CHANNEL_FAILING
PARKED: Final[int] = lib.ADMA_CHANNEL_PARKED
LOST: Final[int] = lib.ADMA_CHANNEL_LOST
CLOSED: Final[int] = lib.ADMA_CHANNEL_CLOSED

# Upper bounds of the buckets in seconds, four to an octave; see recorder.h.
LATENCY_BOUNDS: Final[tuple[float, ...]] = (
    (1 << lib.ADMA_LATENCY_SHIFT) / 1e9,
    *(((5 + i % 4) << (lib.ADMA_LATENCY_SHIFT - 2 + i // 4)) / 1e9 for i in range(lib.ADMA_LATENCY_BUCKETS - 2)),
    math.inf,
)
EVENT_KINDS: Final[tuple[str, ...]] = tuple(
    name.removeprefix("ADMA_EVENT_").lower() for _, name in sorted(ffi.typeof("enum adma_event_kind").elements.items())
)
COUNTER_NAMES: Final[tuple[str, ...]] = tuple(name for name, _ in ffi.typeof("struct adma_counters").fields)


def is_privileged() -> bool:
    """Whether this process has privileges that whoever set its environment has not."""
    return bool(lib.adma_is_privileged())


def now() -> float:
    """The time in seconds by the clock that events and copies are stamped with."""
    return int(lib.adma_clock_ns()) / 1e9


def started(future: CopyFuture) -> float:
    """When a pending copy was started, by the same clock."""
    return future._started_ns / 1e9


def _text(pointer: Any) -> str:
    return cast(str, ffi.string(pointer).decode(errors="replace")) if pointer else ""


def _symbols(wanted: bool) -> Iterator[str]:
    required = ffi.new("int *")
    index = 0
    while name := _text(lib.adma_symbol(index, required)):
        if bool(required[0]) == wanted:
            yield name
        index += 1


def required_symbols() -> tuple[str, ...]:
    """The DOCA symbols without which no library is loaded."""
    return tuple(_symbols(True))


def optional_symbols() -> tuple[str, ...]:
    """The DOCA symbols that are used where a library has them."""
    return tuple(_symbols(False))


def _failure(failure: Any) -> Failure:
    return Failure(int(failure.code), _text(failure.call), PHASES[failure.phase])


def copy_failure(code: int, phase: int) -> Failure:
    """The failure that a copy ended with, as the channel recorded it."""
    return Failure(code, _COPY_CALLS.get(PHASES[phase], "doca_task_submit"), PHASES[phase])


def _caps(caps: Any) -> Caps:
    return Caps(
        caps.max_buf_size,
        caps.max_buf_list_len,
        caps.max_num_tasks,
        bool(caps.export_pci),
        bool(caps.create_from_export_pci),
    )


class NativeLibrary:
    """A loaded DOCA library; never unloaded."""

    def __init__(self, common: str, dma: str) -> None:
        """Open both files; raises LoadError."""
        out = ffi.new("struct adma_library **")
        error = ffi.new("char[]", _ERROR_BYTES)
        code = lib.adma_library_load(common.encode(), dma.encode(), out, error, _ERROR_BYTES)
        if code != 0:
            raise LoadError(_text(error), symbol=code == lib.DOCA_ERROR_UNSUPPORTED_VERSION)
        self._library = out[0]

    @property
    def path(self) -> str:
        """The file the symbols came from."""
        return _text(lib.adma_library_path(self._library))

    @property
    def version(self) -> str | None:
        """What ``doca_version_runtime`` says; None where the library has no such symbol."""
        return _text(lib.adma_library_version(self._library)) or None

    def optional_symbols(self) -> dict[str, bool]:
        """The optional symbols, and which of them the library has."""
        return dict(self._optional_symbols())

    def _optional_symbols(self) -> Iterator[tuple[str, bool]]:
        present = ffi.new("int *")
        index = 0
        while name := _text(lib.adma_library_optional(self._library, index, present)):
            yield name, bool(present[0])
            index += 1

    def error_name(self, code: int) -> str:
        """``doca_error_get_name``."""
        return _text(lib.adma_library_error_name(self._library, code))

    def error_descr(self, code: int) -> str:
        """``doca_error_get_descr``."""
        return _text(lib.adma_library_error_descr(self._library, code))

    def open_log(self, fd: int, level: int) -> NativeLog:
        """Have DOCA write its own log to a non-blocking descriptor, for ever; raises Failure."""
        out = ffi.new("struct adma_log **")
        if code := lib.adma_log_open(self._library, fd, level, out):
            raise Failure(int(code), "doca_log_backend_create_with_file_sdk", "open")
        return NativeLog(self._library, out[0])

    def num_tasks(self, pci_address: str) -> int:
        """How many tasks a context of a listed device may have; raises Failure. May reach firmware."""
        out = ffi.new("uint32_t *")
        failure = ffi.new("struct adma_failure *")
        if lib.adma_device_num_tasks(self._library, pci_address.encode(), out, failure) != 0:
            raise _failure(failure)
        return int(out[0])

    def devices(self) -> list[DevInfo]:
        """List the devices; raises Failure. May reach firmware."""
        out = ffi.new("struct adma_devinfo **")
        count = ffi.new("uint32_t *")
        failure = ffi.new("struct adma_failure *")
        if lib.adma_devices_list(self._library, out, count, failure) != 0:
            raise _failure(failure)
        try:
            return [
                DevInfo(
                    _text(info.pci_addr),
                    _text(info.ibdev_name),
                    _text(info.iface_name),
                    int(info.memcpy_supported),
                    _caps(info.caps),
                )
                for info in ffi.unpack(out[0], count[0])
            ]
        finally:
            lib.adma_devices_free(out[0])

    def open_device(self, pci_address: str) -> NativeDevice:
        """Open a device; raises Failure. May reach firmware."""
        out = ffi.new("struct adma_device **")
        failure = ffi.new("struct adma_failure *")
        if lib.adma_device_open(self._library, pci_address.encode(), out, failure) != 0:
            raise _failure(failure)
        return NativeDevice(out[0])


class NativeLog:
    """Where DOCA writes its own log."""

    def __init__(self, library: Any, log: Any) -> None:
        self._library = library
        self._log = log

    def set_level(self, level: int) -> None:
        """Take lines down to another level, where the library can."""
        lib.adma_log_set_level(self._library, self._log, level)

    def dropped(self) -> int:
        """Lines that did not fit."""
        return int(lib.adma_log_dropped(self._log))


class NativeDevice:
    """An open device; whoever opened it closes it."""

    def __init__(self, device: Any) -> None:
        self._device = device

    def close(self) -> int:
        """Close; the ``doca_error_t`` of ``doca_dev_close``."""
        return int(lib.adma_device_close(self._device))

    def query(self) -> Caps:
        """Ask anew; raises Failure. May reach firmware. ``max_num_tasks`` is 0: that needs a context."""
        caps = ffi.new("struct adma_caps *")
        failure = ffi.new("struct adma_failure *")
        if lib.adma_device_query(self._device, caps, failure) != 0:
            raise _failure(failure)
        return _caps(caps)

    @property
    def doca_dev(self) -> int:
        """The address of the ``doca_dev``."""
        return int(ffi.cast("uintptr_t", lib.adma_device_doca(self._device)))

    def register(self, address: int | None, length: int, access: int) -> int:
        """
        Register ``length`` bytes at ``address``, or fresh pages; the address of the ``adma_mmap``. Raises Failure.

        May block while pages are pinned.
        """
        if address is None:
            return self.alloc(length, access)
        return self._made(lib.adma_mmap_register, ffi.cast("void *", address), length, access)

    def register_dmabuf(self, fd: int, offset: int, address: int, length: int, access: int) -> int:
        """Register memory of another device, as ``register()`` does; the fd may be closed afterwards."""
        return self._made(lib.adma_mmap_register_dmabuf, fd, offset, ffi.cast("void *", address), length, access)

    def alloc(self, length: int, access: int, *, align: int = 0, huge_page: int = 0) -> int:
        """Register fresh pages, as ``register()`` does; ``align`` and ``huge_page`` are powers of two, or 0."""
        huge_shift = huge_page.bit_length() - 1 if huge_page else 0
        return self._made(lib.adma_mmap_alloc, length, align, huge_shift, access)

    def _made(self, call: Any, *args: Any) -> int:
        out = ffi.new("struct adma_mmap **")
        failure = ffi.new("struct adma_failure *")
        if call(self._device, *args, out, failure) != 0:
            raise _failure(failure)
        return int(ffi.cast("uintptr_t", out[0]))

    def import_memory(self, descriptor: bytes, access: int, space: int) -> int:
        """
        Make a map of what a peer has exported; the address of the ``adma_mmap``. Raises Failure. May block.

        ``space`` is the same for all maps whose addresses are of one address space, and 0 for this process.
        """
        out = ffi.new("struct adma_mmap **")
        failure = ffi.new("struct adma_failure *")
        if lib.adma_mmap_import(self._device, descriptor, len(descriptor), access, space, out, failure) != 0:
            raise _failure(failure)
        return int(ffi.cast("uintptr_t", out[0]))

    def open_channel(
        self,
        *,
        num_tasks: int,
        window: int,
        window_bytes: int,
        stripe_bytes: int,
        fair_bytes: int,
        fair_window_bytes: int,
        graveyard_bytes: int,
        graveyard_maps: int,
        turn_budget: float,
        spin: float,
        crossover: int,
        replay: bool,
        measure_latency: bool,
    ) -> NativeChannel:
        """Open a channel; raises Failure. May reach firmware. ``turn_budget`` and ``spin`` in seconds, 0 for none."""
        config = ffi.new("struct adma_channel_config *")
        config.num_tasks = num_tasks
        config.window = window
        config.window_bytes = window_bytes
        config.stripe_bytes = stripe_bytes
        config.fair_bytes = fair_bytes
        config.fair_window_bytes = fair_window_bytes
        config.graveyard_bytes = graveyard_bytes
        config.graveyard_maps = graveyard_maps
        config.turn_budget_ns = int(turn_budget * 1e9)
        config.spin_ns = int(spin * 1e9)
        config.crossover_bytes = crossover
        config.replay = replay
        config.measure_latency = measure_latency
        out = ffi.new("struct adma_channel **")
        failure = ffi.new("struct adma_failure *")
        if lib.adma_channel_open(self._device, config, out, failure) != 0:
            raise _failure(failure)
        return NativeChannel(out[0])


_channels: weakref.WeakSet[NativeChannel] = weakref.WeakSet()


def _renew_locks() -> None:
    """In a forked child: the thread that held one is not here."""
    for channel in _channels:
        channel._lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_locks)


class NativeChannel:
    """The calls on a channel that are not hot. Those that only read may come from any thread."""

    _last: tuple[ChannelStatus, dict[str, int], Caps, list[int], LatencyCounts | None, list[NativeEvent]]

    def __init__(self, channel: Any) -> None:
        self._channel: Any = channel
        self._lock = threading.Lock()  # against freeing the struct while another thread reads it
        _channels.add(self)
        self.address = int(ffi.cast("uintptr_t", channel))
        self.fd = int(lib.adma_channel_fd(channel))

    def park(self) -> None:
        """Give DOCA nothing more; the channel parks when DOCA holds nothing."""
        lib.adma_channel_park(self._channel)

    def recycle(self) -> bool:
        """Make a fresh context; True if the capabilities changed. Raises Failure. In a worker, while parked."""
        failure = ffi.new("struct adma_failure *")
        changed = ffi.new("int *")
        if lib.adma_channel_recycle(self._channel, failure, changed) != 0:
            raise _failure(failure)
        return bool(changed[0])

    def resume(self, *, recycled: bool) -> None:
        """After ``recycle()``: go on, or be lost."""
        lib.adma_channel_resume(self._channel, recycled)

    def close(self) -> list[Failure]:
        """Undo everything; the calls that failed. In a worker, while parked or lost."""
        failures = ffi.new("struct adma_failure[]", _MAX_CLOSE_FAILURES)
        count = lib.adma_channel_close(self._channel, failures, _MAX_CLOSE_FAILURES)
        return [_failure(failures[i]) for i in range(min(count, _MAX_CLOSE_FAILURES))]

    def finalize(self, timeout: float) -> bool:
        """Progress for at most ``timeout`` seconds, then close; False if something had to be leaked."""
        return bool(lib.adma_channel_finalize(self._channel, int(timeout * 1e9)))

    def free(self) -> None:
        """Free the struct of a closed channel; what it counted stays readable."""
        last = (self.status(), self.counters(), self.caps(), self.failed(), self.latency(), self.events(0))
        with self._lock:
            self._last = last
            channel, self._channel = self._channel, None
            lib.adma_channel_free(channel)

    def adopt(self, map_address: int) -> None:
        """Take note of a map, so that closing unregisters it."""
        lib.adma_channel_adopt(self._channel, ffi.cast("struct adma_mmap *", map_address))

    def retire(self, map_address: int) -> None:
        """Give back a map that was adopted and that no object has; also from a worker."""
        lib.adma_channel_retire(self._channel, ffi.cast("struct adma_mmap *", map_address))

    def status(self) -> ChannelStatus:
        """A snapshot."""
        status = ffi.new("struct adma_channel_status *")
        with self._lock:
            if self._channel is None:
                return self._last[0]
            lib.adma_channel_get_status(self._channel, status)
        return ChannelStatus(
            status.state,
            status.num_tasks,
            status.window,
            status.in_flight,
            status.faults_in_a_row,
            tuple(status.transitions),
            status.pending,
            status.waiting,
            status.buried_bytes,
            status.buried_maps,
            bool(status.event_mode_all),
            bool(status.armed),
        )

    def num_reported(self) -> int:
        """Segments that DOCA has reported, whatever became of them."""
        return int(lib.adma_channel_num_reported(self._channel))

    def counters(self) -> dict[str, int]:
        """All counters by name."""
        counters = ffi.new("struct adma_counters *")
        with self._lock:
            if self._channel is None:
                return self._last[1]
            lib.adma_channel_get_counters(self._channel, counters)
        return {name: int(getattr(counters, name)) for name in COUNTER_NAMES}

    def failed(self) -> list[int]:
        """How many copies failed with each code; the last number is for all codes that no header has."""
        failed = ffi.new("uint64_t[]", lib.ADMA_NUM_CODES)
        with self._lock:
            if self._channel is None:
                return self._last[3]
            lib.adma_channel_get_failed(self._channel, failed)
        return list(failed)

    def latency(self) -> LatencyCounts | None:
        """The histogram; None if it is not kept."""
        latency = ffi.new("struct adma_latency *")
        with self._lock:
            if self._channel is None:
                return self._last[4]
            if not lib.adma_channel_get_latency(self._channel, latency):
                return None
        return LatencyCounts(latency.count, latency.sum_ns / 1e9, tuple(latency.buckets))

    def num_events(self) -> int:
        """How many events were ever noted."""
        with self._lock:
            if self._channel is not None:
                return int(lib.adma_channel_num_events(self._channel))
        return self._last[5][-1].number + 1 if self._last[5] else 0

    def events(self, start: int) -> list[NativeEvent]:
        """The events that are still there, from a number on, oldest first."""
        start = max(0, start)
        events = ffi.new("struct adma_event[]", lib.ADMA_RECORDER_EVENTS)
        with self._lock:
            if self._channel is None:
                return [event for event in self._last[5] if event.number >= start]
            count = lib.adma_channel_events(self._channel, start, events, len(events))
        return [
            NativeEvent(e.number, e.time_ns / 1e9, EVENT_KINDS[e.kind], getattr(e, "from"), e.to, e.code, e.bytes)
            for e in events[0:count]
        ]

    def note(self, kind: str, start: int = 0, end: int = 0, code: int = 0) -> None:
        """Note an event that the driver has seen; nothing once the struct is freed."""
        with self._lock:
            if self._channel is not None:
                lib.adma_channel_note(self._channel, EVENT_KINDS.index(kind), start, end, code)

    def caps(self) -> Caps:
        """What the device answered when the context was made last."""
        caps = ffi.new("struct adma_caps *")
        with self._lock:
            if self._channel is None:
                return self._last[2]
            lib.adma_channel_get_caps(self._channel, caps)
        return _caps(caps)


def export_descriptor(map_address: int) -> bytes:
    """Export a map that was registered with a PCI flag, and tell what the peer needs. Raises Failure. May block."""
    descriptor = ffi.new("void const **")
    length = ffi.new("size_t *")
    failure = ffi.new("struct adma_failure *")
    if lib.adma_mmap_export(ffi.cast("struct adma_mmap *", map_address), descriptor, length, failure) != 0:
        raise _failure(failure)
    return bytes(ffi.buffer(descriptor[0], length[0]))


def doca_mmap(map_address: int) -> int:
    """The address of the ``doca_mmap`` of an ``adma_mmap`` that is registered."""
    return int(ffi.cast("uintptr_t", lib.adma_mmap_doca(ffi.cast("struct adma_mmap *", map_address))))


def tensor(capsule: object) -> Tensor:
    """Take over the memory of a DLPack capsule; raises BufferError if it is laid out as no memory can be."""
    return _tensor(capsule)


def export(obj: Any) -> object:
    """
    Hold an export of an object's C-contiguous buffer for as long as the result lives.

    Also that of a Buffer of a peer's memory, which no memoryview can be had of.
    """
    return _export(obj)


def address_of(view: memoryview) -> int:
    """The address of a contiguous view's first byte; valid while the view lives."""
    return _address(view)
