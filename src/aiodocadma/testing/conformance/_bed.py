"""
What a case stands on: calls that check their code, and one device with map, inventory, engine and DMA context.

Objects are destroyed in reverse when the case ends, however it ends.
"""

from __future__ import annotations

import mmap
import random
import select
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from aiodocadma.testing.conformance._abi import ERRORS, Abi

__all__ = ["IDLE", "RUNNING", "STOPPING", "Bed", "Event", "FailureError", "SkipError"]

IDLE: Final = 0
RUNNING: Final = 2
STOPPING: Final = 3
_DEADLINE: Final = 10.0


class FailureError(Exception):
    """The library does not keep the rule."""


class SkipError(Exception):
    """The rule cannot be tried here."""


class Event(NamedTuple):
    """A completion: of which task, in which callback, with what status."""

    id: int
    ok: bool
    status: str


class Bed:
    """
    A case's library and objects.

    ``reading`` is the one of several readings of a row that the emulator is set to; None on a card, which is asked.
    """

    def __init__(self, abi: Abi, engine: str = "default", reading: str | None = None) -> None:
        self.abi = abi
        self.ffi = abi.ffi
        self.null = abi.ffi.NULL
        self.engine = engine
        self.reading = reading
        self.findings: dict[str, str] = {}
        self.notes: dict[str, str] = {}
        self.events: list[Event] = []
        self.states: list[int] = []
        self.on_task: Callable[[Any, Event], None] = lambda task, event: self.free(task)
        self.on_state: Callable[[int], None] = lambda state: None
        self._undo: list[tuple[Any, Callable[[], object]]] = []
        self._keep: list[Any] = []
        self._raised: list[BaseException] = []
        self._dev: Any = None

    # ---- calls and checks ----

    def code(self, name: str, *args: object) -> str:
        """Call ``doca_NAME``, and give the name of its code."""
        try:
            function = getattr(self.abi, f"doca_{name}")
        except AttributeError:
            raise SkipError(f"this library has no doca_{name}") from None
        result = int(function(*args))
        return ERRORS.get(result, str(result))

    def has(self, name: str) -> bool:
        """Whether the library has ``doca_NAME``; experimental calls came later."""
        return hasattr(self.abi, f"doca_{name}")

    @property
    def modes(self) -> tuple[int | None, ...]:
        """The event modes there are: None is the default one, SELECTIVE."""
        return (None, 1) if self.has("pe_set_event_mode") else (None,)

    def expect(self, codes: str, name: str, *args: object) -> str:
        """Call ``doca_NAME``, which must give one of some codes."""
        code = self.code(name, *args)
        if code not in codes.split():
            raise FailureError(f"doca_{name} gives {code}, not {codes}")
        return code

    def call(self, name: str, *args: object) -> None:
        """Call ``doca_NAME``, which must succeed."""
        self.expect("SUCCESS", name, *args)

    def make(self, ctype: str, name: str, *args: object) -> Any:
        """Call ``doca_NAME`` with an output behind the arguments, and give what it put there."""
        out = self.ffi.new(f"{ctype} *")
        self.call(name, *args, out)
        return out[0]

    def create(self, kind: str, *args: object) -> Any:
        """Create an object, to be destroyed at the end unless the case does."""
        thing = self.make(f"struct doca_{kind} *", f"{kind}_create", *args)
        self._undo.append((thing, lambda: getattr(self.abi, f"doca_{kind}_destroy")(thing)))
        return thing

    def destroy(self, kind: str, thing: Any) -> None:
        """Destroy an object before the end."""
        self.call(f"{kind}_destroy", thing)
        self.forget(thing)

    def forget(self, thing: Any) -> None:
        """Do not destroy an object at the end: the case did."""
        last = max(i for i, (other, _) in enumerate(self._undo) if other == thing)
        del self._undo[last]

    def check(self, condition: object, otherwise: str) -> None:
        """Fail with a sentence unless something holds."""
        if not condition:
            raise FailureError(otherwise)

    def equal(self, what: str, found: object, expected: object) -> None:
        """Fail unless a value is the expected one."""
        if found != expected:
            raise FailureError(f"{what} is {found!r}, not {expected!r}")

    def observed(self, setting: str, value: str) -> None:
        """State which reading of a row the library follows; the emulator must follow the one it is set to."""
        self.findings[setting] = value
        if self.reading is not None:
            self.equal(setting, value, self.reading)

    def note(self, question: str, answer: object) -> None:
        """Answer a question that no setting of the emulator asks."""
        self.notes[question] = str(answer)

    # ---- the emulator's control ----

    def configure(self, text: str) -> None:
        """Change settings of the emulator; nothing on a card."""
        if self.abi.emulated:
            error = self.abi.control_ffi.new("char[]", 512)
            if self.abi.control.docaemu_configure(text.encode(), error, 512):
                raise FailureError(self.abi.control_ffi.string(error).decode())

    def emulator_only(self) -> None:
        """Skip the case on a card."""
        if not self.abi.emulated:
            raise SkipError("only the emulator can be made to")

    def step(self, n: int = 2**62, order: int = 0) -> None:
        """Let the manual engine execute; the others do by themselves."""
        if self.abi.emulated:
            self.abi.control.docaemu_step(n, order, self.abi.control_ffi.NULL)

    def violations(self) -> int:
        """How many violations of the contract the emulator has noted."""
        return int(self.abi.control.docaemu_violations(self.abi.control_ffi.NULL, 0)) if self.abi.emulated else 0

    # ---- objects ----

    def devinfos(self) -> Iterator[Any]:
        """Every listed device; the list lives while the generator does."""
        infos, number = self.ffi.new("struct doca_devinfo ***"), self.ffi.new("uint32_t *")
        self.call("devinfo_create_list", infos, number)
        try:
            yield from (infos[0][i] for i in range(number[0]))
        finally:
            self.call("devinfo_destroy_list", infos[0])

    @property
    def dev(self) -> Any:
        """The first device that copies memory, opened."""
        if self._dev is None:
            for info in self.devinfos():
                if self.code("dma_cap_task_memcpy_is_supported", info) == "SUCCESS":
                    self._dev = self.open_dev(info)
                    break
            else:
                raise SkipError("no device supports DMA")
        return self._dev

    @property
    def devinfo(self) -> Any:
        """The devinfo of the device."""
        return self.abi.doca_dev_as_devinfo(self.dev)

    def open_dev(self, info: Any) -> Any:
        """Open a device."""
        dev = self.make("struct doca_dev *", "dev_open", info)
        self._undo.insert(0, (dev, lambda: self.abi.doca_dev_close(dev)))
        return dev

    def close_dev(self, dev: Any) -> None:
        """Close a device before the end."""
        self.call("dev_close", dev)
        self.forget(dev)

    def capability(self, name: str, ctype: str) -> int:
        """A limit of memcpy tasks."""
        return int(self.make(ctype, f"dma_cap_task_memcpy_get_{name}", self.devinfo))

    def memory(self, size: int) -> Any:
        """Memory with a pattern in it, page-aligned."""
        area = mmap.mmap(-1, size)
        area[:] = random.Random(size).randbytes(size)
        self._keep.append(area)
        return self.ffi.from_buffer("uint8_t[]", area)

    def map(self, memory: Any, permissions: int | None = None, *, start: bool = True) -> Any:
        """A map of some memory on the device."""
        mapping = self.create("mmap")
        self.call("mmap_add_dev", mapping, self.dev)
        self.call("mmap_set_memrange", mapping, memory, len(memory))
        if permissions is not None:
            self.call("mmap_set_permissions", mapping, permissions)
        if start:
            self.call("mmap_start", mapping)
        return mapping

    def inventory(self, num: int = 64, *, start: bool = True) -> Any:
        """An inventory of bufs."""
        inventory = self.create("buf_inventory", num)
        if start:
            self.call("buf_inventory_start", inventory)
        return inventory

    def engine_with_ctx(self, num_tasks: int = 16) -> None:
        """Make ``pe``, ``fd``, ``dma``, ``ctx``: connected and configured, not started."""
        self.pe = self.create("pe")
        self.fd = self.make("int", "pe_get_notification_handle", self.pe)
        self.dma = self.create("dma", self.dev)
        self.ctx = self.abi.doca_dma_as_ctx(self.dma)
        self.call("pe_connect_ctx", self.pe, self.ctx)
        pe, ctx = self.pe, self.ctx
        self._undo.append((ctx, lambda: self._to_idle(pe, ctx)))
        self.set_conf(self.dma, num_tasks)
        self.call("ctx_set_state_changed_cb", self.ctx, self._state_callback())

    def open(self, num_tasks: int = 16, *, size: int = 1 << 16, start: bool = True, mode: int | None = None) -> None:
        """Make everything: ``ram`` in ``mapping``, ``bufs``, engine and ctx; start the ctx unless told not to."""
        self.ram = self.memory(size)
        self.mapping = self.map(self.ram)
        self.bufs = self.inventory(2 * num_tasks + 16)
        self.engine_with_ctx(num_tasks)
        if mode is not None:
            self.call("pe_set_event_mode", self.pe, mode)
        if start:
            self.call("ctx_start", self.ctx)

    def callback(self, ctype: str, function: Callable[..., None]) -> Any:
        """A C callback; what it raises fails the case."""

        def guarded(*args: Any) -> None:
            try:
                function(*args)
            except BaseException as error:
                self._raised.append(error)

        made = self.ffi.callback(ctype, guarded)
        self._keep.append(made)
        return made

    def task_callback(self, *, ok: bool) -> Any:
        """A completion callback that notes the event."""

        def ended(task: Any, data: int, _: int) -> None:
            status = self.code("task_get_status", self.abi.doca_dma_task_memcpy_as_task(task))
            event = Event(int(data), ok, status)
            self.events.append(event)
            self.on_task(task, event)

        return self.callback("doca_dma_task_memcpy_completion_cb_t", ended)

    def set_conf(self, dma: Any, num_tasks: int) -> None:
        """Configure memcpy tasks that note their events."""
        callbacks = self.task_callback(ok=True), self.task_callback(ok=False)
        self.call("dma_task_memcpy_set_conf", dma, *callbacks, num_tasks)

    def _state_callback(self) -> Any:
        def changed(_data: int, _ctx: Any, _previous: int, state: int) -> None:
            self.states.append(int(state))
            self.on_state(int(state))

        return self.callback("doca_ctx_state_changed_callback_t", changed)

    # ---- bufs and tasks ----

    def src(self, offset: int, length: int, mapping: Any = None) -> Any:
        """A buf whose data are all of its range."""
        at = self.ram + offset
        buf = self.make(
            "struct doca_buf *",
            "buf_inventory_buf_get_by_args",
            *(self.bufs, mapping or self.mapping, at, length, at, length),
        )
        return buf

    def dst(self, offset: int, length: int, mapping: Any = None) -> Any:
        """A buf without data."""
        at = self.ram + offset
        return self.make(
            "struct doca_buf *",
            "buf_inventory_buf_get_by_args",
            *(self.bufs, mapping or self.mapping, at, length, at, 0),
        )

    def drop(self, *bufs: Any) -> None:
        """Drop a reference of each."""
        for buf in bufs:
            self.call("buf_dec_refcount", self.ffi.cast("struct doca_buf *", buf), self.null)

    def task(self, src: Any, dst: Any, id: int = 0) -> Any:
        """A task, not submitted."""
        return self.make("struct doca_dma_task_memcpy *", "dma_task_memcpy_alloc_init", self.dma, src, dst, id)

    def as_task(self, task: Any) -> Any:
        """The ``doca_task`` of a memcpy task."""
        return self.abi.doca_dma_task_memcpy_as_task(task)

    def copy(self, id: int, src: int, dst: int, length: int) -> None:
        """Submit a copy inside ``ram``."""
        self.call("task_submit", self.as_task(self.task(self.src(src, length), self.dst(dst, length), id)))

    def free(self, task: Any) -> None:
        """Free a task with its bufs."""
        src, dst = self.abi.doca_dma_task_memcpy_get_src(task), self.abi.doca_dma_task_memcpy_get_dst(task)
        self.abi.doca_task_free(self.as_task(task))
        self.drop(*(buf for buf in (src, dst) if buf != self.null))

    def data(self, offset: int, length: int) -> bytes:
        """Bytes of ``ram``."""
        return bytes(self.ffi.buffer(self.ram + offset, length))

    def in_each(self, look: Callable[[], object]) -> None:
        """Do something in each completion callback, and free the task."""

        def ended(task: Any, _: Event) -> None:
            look()
            self.free(task)

        self.on_task = ended

    # ---- progress ----

    def progress(self) -> int:
        """Progress until there is nothing to do; how many steps did something."""
        steps = 0
        while self.abi.doca_pe_progress(self.pe):
            steps += 1
        self._reraise()
        return steps

    def in_flight(self) -> int:
        """Tasks in flight on the engine."""
        return int(self.make("size_t", "pe_get_num_inflight_tasks", self.pe))

    def state(self) -> int:
        """The state of the ctx."""
        return int(self.make("enum doca_ctx_states", "ctx_get_state", self.ctx))

    def arm(self) -> None:
        """Request a notification."""
        self.call("pe_request_notification", self.pe)

    def clear(self) -> None:
        """Clear the notification."""
        self.call("pe_clear_notification", self.pe, self.fd)

    def readable(self, timeout: float = 0) -> bool:
        """Whether the fd is readable, now or within so many seconds."""
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        return bool(poll.poll(timeout * 1000))

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Progress until something holds."""
        deadline = time.monotonic() + _DEADLINE
        while not condition():
            self.step()
            if self.progress() == 0 and time.monotonic() > deadline:
                raise FailureError(f"{what} does not come within {_DEADLINE:g} s")

    def run(self) -> None:
        """Progress until nothing is in flight."""
        self.until(lambda: self.in_flight() == 0, "the end of all tasks")

    def settle(self, dst: int, expected: bytes) -> None:
        """Wait for the bytes of a copy, without progressing."""
        self.step()
        deadline = time.monotonic() + _DEADLINE
        while self.data(dst, len(expected)) != expected:
            if time.monotonic() > deadline:
                raise FailureError("a submitted copy does not begin unless the engine is progressed")

    def wait_idle(self) -> None:
        """Progress until the ctx is IDLE."""
        self.until(lambda: self.state() == IDLE, "IDLE")

    def stop(self) -> None:
        """Stop the ctx and wait for IDLE."""
        self.expect("SUCCESS IN_PROGRESS", "ctx_stop", self.ctx)
        self.wait_idle()

    def destroy_ctx(self) -> None:
        """Destroy the idle DMA context."""
        self.call("dma_destroy", self.dma)
        self.ctx_is_gone()

    def ctx_is_gone(self) -> None:
        """Do not touch the context at the end."""
        self.forget(self.ctx)
        self.forget(self.dma)

    # ---- the end ----

    def _reraise(self) -> None:
        if self._raised:
            raise self._raised.pop(0)

    def _to_idle(self, pe: Any, ctx: Any) -> None:
        state = self.ffi.new("enum doca_ctx_states *", STOPPING)
        deadline = time.monotonic() + 1
        self.abi.doca_ctx_stop(ctx)
        while state[0] != IDLE and time.monotonic() < deadline:
            self.step()
            self.abi.doca_pe_progress(pe)
            self.abi.doca_ctx_get_state(ctx, state)

    def close(self) -> None:
        """Destroy what the case left, in reverse."""
        self.configure("strict=off")
        self.on_task = lambda task, event: self.free(task)
        self.on_state = lambda state: None
        while self._undo:
            self._undo.pop()[1]()
        self._reraise()

    def remains(self) -> list[str]:
        """Names of the kinds of objects that are still alive in the emulator."""
        ffi = self.abi.control_ffi
        live = ffi.new("struct docaemu_live *")
        self.abi.control.docaemu_live(live, ffi.sizeof(live[0]))
        return [name for name, _ in ffi.typeof("struct docaemu_live").fields if getattr(live, name)]
