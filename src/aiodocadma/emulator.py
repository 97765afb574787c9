"""
Steering the embedded emulator: devices and their limits, engine modes, faults, steps, counters.

A product of its own and not part of the client: this is the control API of ``docaemu.h``, the one that C programs use.
All of it is process-wide. Settings, with their defaults, are described in that header, which is installed beside the
library; chaos, which draws every decision from a seed, in ``docaemu_chaos.h``. ``using()`` points these functions at
another file, for example the flavour without experimental symbols.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple

import cffi

from aiodocadma._library import emulator_path

__all__ = [
    "CopyTrace",
    "Counters",
    "Event",
    "Fault",
    "LiveObjects",
    "add_device",
    "chaos_events",
    "complete",
    "configure",
    "counters",
    "faults_pending",
    "hold",
    "inject",
    "last_copies",
    "live_objects",
    "release",
    "reset",
    "revoke_exports",
    "spurious_notification",
    "step",
    "time_advance",
    "time_ns",
    "using",
    "violations",
]

_MAX_TRACED: Final = 64
_MAX_EVENTS: Final = 65536
_EVENTS: Final = ("", "submit", "again", "run", "report", "spurious")
_ORDERS: Final = {"fifo": 0, "lifo": 1, "random": 2}


class Counters(NamedTuple):
    """
    What the emulator itself counted since the start or the last ``reset()``.

    Attributes:
        progress_calls: Calls of ``doca_pe_progress``.
        progress_empty: Of those, the ones that returned 0.
        arms: Notifications requested.
        clears: Notifications cleared.
        notifications: Times a descriptor was made readable.
        submits: Tasks taken.
        doorbells: Submits and flushes that let tasks begin.
        worker_wakes: System calls that woke a worker.
        worker_sleeps: Times a worker went to sleep.
        tasks_inline: Tasks executed inside ``doca_pe_progress``.
        tasks_worker: Tasks executed by a worker.
        tasks_step: Tasks executed by ``step()``.
        completions_ok: Tasks that ended well.
        completions_error: Tasks that failed, the flushed ones included.
        flushed: Tasks ended because another failed or the context stopped.
        bytes: Bytes copied by tasks that succeeded.
        again: Submits refused by a full queue.
        no_memory: Tasks and bufs refused by an empty pool.
        faults: Faults fired.
        violations: Calls that broke a rule of DOCA.
        max_in_flight: Most tasks in flight on one progress engine.
        ctx_starts: Contexts started.
        ctx_faults: Contexts stopped by a failed task.
        notifications_late: Notifications kept back for a while.
        notifications_suppressed: Notifications never given.
        notifications_spurious: Notifications given for no reason, by a fault.
        peer_reads: Pieces of memory exported here that peers read.
        peer_writes: The same, that peers wrote.
        peer_refused: Requests of peers that were refused.

    Source: ``docaemu_counters``.
    """

    progress_calls: int
    progress_empty: int
    arms: int
    clears: int
    notifications: int
    submits: int
    doorbells: int
    worker_wakes: int
    worker_sleeps: int
    tasks_inline: int
    tasks_worker: int
    tasks_step: int
    completions_ok: int
    completions_error: int
    flushed: int
    bytes: int
    again: int
    no_memory: int
    faults: int
    violations: int
    max_in_flight: int
    ctx_starts: int
    ctx_faults: int
    notifications_late: int
    notifications_suppressed: int
    notifications_spurious: int
    peer_reads: int
    peer_writes: int
    peer_refused: int


class LiveObjects(NamedTuple):
    """
    What exists in the emulator now.

    Attributes:
        devinfo_lists: Lists of devices.
        devs: Open devices, not opens.
        mmaps: Memory maps.
        inventories: Buf inventories.
        bufs: Bufs that are out.
        pes: Progress engines.
        ctxs: Contexts.
        tasks: Allocated and not freed.
        in_flight: Of those, submitted and not reported.
        workers: Threads that execute tasks.
        pinned_bytes: Bytes in started maps.
        held: Completions withheld until ``release()``.
        exports: Descriptors in force.
        imports: Maps created from an export.

    Source: ``docaemu_live``.
    """

    devinfo_lists: int
    devs: int
    mmaps: int
    inventories: int
    bufs: int
    pes: int
    ctxs: int
    tasks: int
    in_flight: int
    workers: int
    pinned_bytes: int
    held: int
    exports: int
    imports: int


class CopyTrace(NamedTuple):
    """
    One task as it was submitted; of lists of bufs the first element.

    Attributes:
        src: Address of the source.
        dst: Address of the destination.
        length: Bytes.

    Source: ``docaemu_last_copies``.
    """

    src: int
    dst: int
    length: int


class Event(NamedTuple):
    """
    One decision of chaos.

    Attributes:
        time_ns: Of the virtual clock.
        kind: ``submit`` (taken; ``value``: nanoseconds it takes at least), ``again`` (a submit was refused; ``value``:
            how many more will be), ``run`` (the bytes moved; ``value``: how many), ``report`` (the task ended;
            ``value``: its code), ``spurious`` (an arm was answered for no reason).
        task: The how-manyth submit that was taken; 0 for none.
        value: See ``kind``.

    Source: ``docaemu_chaos_events``.
    """

    time_ns: int
    kind: str
    task: int
    value: int


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """
    A fault to inject.

    Args:
        op: A DOCA function without its ``doca_`` prefix (``task_submit``, ``ctx_start``, ...), or ``completion``, or
            ``notification``.
        kind: ``fail``; ``again`` (as fail with AGAIN). For a completion also ``corrupt`` (flips a byte, reports
            success) and ``hold`` (withholds it until ``release()``). For a notification ``late`` (a tick later),
            ``suppress`` (never) and ``spurious`` (an arm is answered for no reason). For a submit also ``accepted``
            (reports the status although the task is taken, as a library would that breaks its word).
        status: The code's name without ``DOCA_ERROR_``, or its number.
        skip: Calls let through first.
        interval: Then every so many-th fails.
        count: So many times; 0 for ever.
        fatal: Completion only: whether the context stops, as on a card.
        src: Completion only: tasks that read from this address first, as from a broken page; 0 for all.

    Source: ``docaemu_configure``.
    """

    op: str
    kind: Literal["fail", "again", "corrupt", "hold", "late", "suppress", "spurious", "accepted"] = "fail"
    status: str | int = "IO_FAILED"
    skip: int = 0
    interval: int = 1
    count: int = 1
    fatal: bool = True
    src: int = 0

    def _line(self) -> str:
        status = f" status={self.status}" if self.kind in ("fail", "accepted") else ""
        fatal = f" fatal={self.fatal:d} src={self.src}" if self.op == "completion" else ""
        return (
            f"fault op={self.op} kind={self.kind}{status} skip={self.skip} interval={self.interval} "
            f"count={self.count}{fatal}"
        )


_chosen: str | None = None  # by using(); None: the embedded one


@contextlib.contextmanager
def using(path: str | os.PathLike[str]) -> Iterator[None]:
    """
    Let every function of this module address another emulator library, in all threads, within a ``with`` block.

    Each file is an emulator of its own: settings, devices, counters and live objects are not shared.

    Args:
        path: The library's file, the one given to ``open_dma(library=...)``.

    Yields:
        Nothing.

    Raises:
        OSError: If it cannot be loaded.

    Source: ``dlopen(3)``; aiodocadma.
    """
    global _chosen
    _load(os.fspath(path))
    before, _chosen = _chosen, os.fspath(path)
    try:
        yield
    finally:
        _chosen = before


def _emulator() -> tuple[cffi.FFI, Any]:
    return _load(_chosen or emulator_path())


@functools.cache
def _load(path: str) -> tuple[cffi.FFI, Any]:
    ffi = cffi.FFI()
    fields = {cls: " ".join(f"uint64_t {name};" for name in cls._fields) for cls in (Counters, LiveObjects, CopyTrace)}
    ffi.cdef(f"""
        struct docaemu_event {{ uint64_t time; uint64_t kind; uint64_t task; uint64_t value; }};
        struct docaemu_counters {{ {fields[Counters]} }};
        struct docaemu_live {{ {fields[LiveObjects]} }};
        struct docaemu_copy {{ {fields[CopyTrace]} }};
        int docaemu_configure(const char *text, char *error, size_t error_size);
        int docaemu_reset(void);
        int docaemu_step(size_t n, int order, size_t *stepped);
        int docaemu_complete(uint64_t dst, int status, int fatal);
        int docaemu_faults_pending(size_t *pending);
        int docaemu_counters(struct docaemu_counters *counters, size_t size);
        int docaemu_live(struct docaemu_live *live, size_t size);
        uint64_t docaemu_violations(char *buf, size_t size);
        int docaemu_spurious_notification(void);
        int docaemu_last_copies(struct docaemu_copy *copies, size_t max, size_t *num);
        int docaemu_revoke_exports(void);
        int docaemu_time(uint64_t *ns);
        int docaemu_time_advance(uint64_t ns);
        int docaemu_hold(int on);
        int docaemu_release(size_t n, int order, size_t *released);
        int docaemu_chaos_events(struct docaemu_event *events, size_t max, size_t *num, uint64_t *total);
    """)
    return ffi, ffi.dlopen(path)


def _checked(code: int, call: str) -> None:
    if code:
        raise RuntimeError(f"{call}: the emulator answered with code {code}")


def configure(text: str = "", /, **settings: object) -> None:
    """
    Change settings.

    Args:
        text: Lines as ``docaemu.h`` describes them.
        settings: Further settings, for example ``engine="manual", max_buf_size=4096``.

    Raises:
        ValueError: If a setting is unknown or its value is bad; the message names it. Those before it took effect.

    Source: ``docaemu_configure``.
    """
    ffi, lib = _emulator()
    lines = [text, *(f"{key}={int(value) if isinstance(value, bool) else value}" for key, value in settings.items())]
    error = ffi.new("char[]", 512)
    if lib.docaemu_configure("\n".join(lines).encode(), error, 512):
        raise ValueError(ffi.string(error).decode())


def add_device(name: str, **keys: object) -> None:
    """
    Add a device; the first one added replaces the default list.

    Args:
        name: Its ibdev name.
        keys: ``pci``, ``iface``, ``dma``, ``max_buf_size``, ``max_buf_list_len``, ``max_num_tasks``, ``export_pci``,
            ``import_pci``.

    Raises:
        ValueError: If a key is unknown or its value is bad.

    Source: ``docaemu_configure``.
    """
    configure(
        f"device {name} "
        + " ".join(f"{key}={value:d}" if isinstance(value, bool) else f"{key}={value}" for key, value in keys.items())
    )


def inject(*faults: Fault) -> None:
    """
    Inject faults.

    Args:
        faults: They fire in the order of the calls they match.

    Raises:
        ValueError: If a fault names no operation or status of the emulator.

    Source: ``docaemu_configure``.
    """
    configure("\n".join(fault._line() for fault in faults))


def reset() -> None:
    """
    Return to the defaults: settings, devices, faults, counters, violations.

    Raises:
        RuntimeError: If DOCA objects are alive, or memory runs out; nothing was changed.

    Source: ``docaemu_reset``.
    """
    _, lib = _emulator()
    _checked(lib.docaemu_reset(), "docaemu_reset")


def step(n: int = 1, *, order: Literal["fifo", "lifo", "random"] = "fifo") -> int:
    """
    With ``engine="manual"``, execute tasks that have not begun.

    Args:
        n: How many at most.
        order: Which come first.

    Returns:
        How many were executed.

    Source: ``docaemu_step``.
    """
    ffi, lib = _emulator()
    stepped = ffi.new("size_t *")
    _checked(lib.docaemu_step(n, _ORDERS[order], stepped), "docaemu_step")
    return int(stepped[0])


def complete(dst: int, *, code: int = 0, fatal: bool = True) -> bool:
    """
    With ``engine="manual"``, end the one task that writes to an address.

    Args:
        dst: The address.
        code: A ``doca_error_t`` that it fails with, unexecuted; 0 to execute it.
        fatal: Whether a failure stops the context, as on a card.

    Returns:
        False if no such task waits.

    Source: ``docaemu_complete``.
    """
    _, lib = _emulator()
    return bool(lib.docaemu_complete(dst, code, fatal) == 0)


def hold(on: bool = True, /) -> None:
    """
    Withhold the completions of all tasks submitted from now on, in every engine mode, or no longer do so.

    Args:
        on: False does not let go of those withheld: ``release()`` does.

    Source: ``docaemu_hold``.
    """
    _, lib = _emulator()
    _checked(lib.docaemu_hold(on), "docaemu_hold")


def release(n: int | None = None, *, order: Literal["fifo", "lifo", "random"] = "fifo") -> int:
    """
    Let withheld completions be reported, in the order in which they are released.

    Args:
        n: How many at most; None for all.
        order: Which come first, by their submission.

    Returns:
        How many were released.

    Source: ``docaemu_release``.
    """
    ffi, lib = _emulator()
    released = ffi.new("size_t *")
    _checked(lib.docaemu_release(2**63 if n is None else n, _ORDERS[order], released), "docaemu_release")
    return int(released[0])


def time_ns() -> int:
    """
    Read the virtual clock.

    Returns:
        Nanoseconds since the start or the last ``reset()``; 0 while nothing asked for virtual time.

    Source: ``docaemu_time``.
    """
    ffi, lib = _emulator()
    ns = ffi.new("uint64_t *")
    _checked(lib.docaemu_time(ns), "docaemu_time")
    return int(ns[0])


def time_advance(ns: int, /) -> None:
    """
    Move the virtual clock; what is due by then can be reported.

    Args:
        ns: Nanoseconds, not negative.

    Raises:
        RuntimeError: Past the end of the clock, which is 213 days.

    Source: ``docaemu_time_advance``.
    """
    _, lib = _emulator()
    _checked(lib.docaemu_time_advance(ns), "docaemu_time_advance")


def faults_pending() -> int:
    """
    How many times injected faults are still to fire.

    Returns:
        Faults without end are not counted.

    Source: ``docaemu_faults_pending``.
    """
    ffi, lib = _emulator()
    pending = ffi.new("size_t *")
    _checked(lib.docaemu_faults_pending(pending), "docaemu_faults_pending")
    return int(pending[0])


def counters() -> Counters:
    """
    Read the counters.

    Returns:
        A snapshot.

    Source: ``docaemu_counters``.
    """
    ffi, lib = _emulator()
    struct = ffi.new("struct docaemu_counters *")
    _checked(lib.docaemu_counters(struct, ffi.sizeof(struct[0])), "docaemu_counters")
    return Counters(*(int(getattr(struct, name)) for name in Counters._fields))


def live_objects() -> LiveObjects:
    """
    Read how many DOCA objects are alive.

    Returns:
        A snapshot.

    Source: ``docaemu_live``.
    """
    ffi, lib = _emulator()
    struct = ffi.new("struct docaemu_live *")
    _checked(lib.docaemu_live(struct, ffi.sizeof(struct[0])), "docaemu_live")
    return LiveObjects(*(int(getattr(struct, name)) for name in LiveObjects._fields))


def violations() -> list[str]:
    """
    The contract violations since the start or the last ``reset()``.

    Returns:
        The latest 64, each with call, object and what is wrong.

    Source: ``docaemu_violations``.
    """
    ffi, lib = _emulator()
    size = 64 * 1024
    text = ffi.new("char[]", size)
    lib.docaemu_violations(text, size)
    return [line for line in ffi.string(text).decode().splitlines() if line]


def spurious_notification() -> None:
    """
    Make every progress engine's fd readable with nothing to report.

    Source: ``docaemu_spurious_notification``.
    """
    _, lib = _emulator()
    _checked(lib.docaemu_spurious_notification(), "docaemu_spurious_notification")


def revoke_exports() -> None:
    """
    End all exports of this process, as if their maps had been stopped.

    Importers' copies fail from now on, and the descriptors can be imported no more.

    Source: ``docaemu_revoke_exports``.
    """
    _, lib = _emulator()
    _checked(lib.docaemu_revoke_exports(), "docaemu_revoke_exports")


def last_copies(n: int = 1) -> list[CopyTrace]:
    """
    The tasks submitted last.

    Args:
        n: How many, at most 64.

    Returns:
        The latest first.

    Source: ``docaemu_last_copies``.
    """
    ffi, lib = _emulator()
    copies = ffi.new("struct docaemu_copy[]", min(n, _MAX_TRACED))
    num = ffi.new("size_t *")
    _checked(lib.docaemu_last_copies(copies, len(copies), num), "docaemu_last_copies")
    return [CopyTrace(copies[i].src, copies[i].dst, copies[i].length) for i in range(num[0])]


def chaos_events(n: int = _MAX_EVENTS, /) -> list[Event]:
    """
    What chaos decided since its seed was set.

    Args:
        n: How many at most; the emulator keeps 65,536.

    Returns:
        The latest ones, the oldest of them first.

    Source: ``docaemu_chaos_events``.
    """
    ffi, lib = _emulator()
    events = ffi.new("struct docaemu_event[]", max(0, min(n, _MAX_EVENTS)))
    num = ffi.new("size_t *")
    _checked(lib.docaemu_chaos_events(events, len(events), num, ffi.NULL), "docaemu_chaos_events")
    return [Event(e.time, _EVENTS[e.kind], e.task, e.value) for e in events[0 : num[0]]]
