"""
DMA without ``await``, for scripts and notebooks: each call returns when it is done::

    with aiodocadma.sync.open_dma() as dma:
        src = dma.register(b"payload" * 1000)
        dst = dma.alloc(7000)
        dma.copy(src, dst)

Theory of operation. An open DMA has one thread of its own, in which a loop runs the asynchronous DMA and anyio's
blocking portal; so it does not matter whether a loop runs where it is called, as in a notebook. A call is a task of
that loop, and its caller waits for its end, whatever happens: what a signal's handler raises meanwhile, as Ctrl-C does,
cancels the task, but leaves the wait only when the task has ended, and that is when the engine has let go.

The thread runs the portal, not the portal the thread: ``start_blocking_portal()`` waits for its thread when it is
dropped, also in a forked child, which has no such thread, and when Ctrl-C comes while it starts.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import threading
import warnings
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, Generic, Literal, ParamSpec, Self, TypeVar, Unpack, overload

import anyio
from anyio.from_thread import BlockingPortal

import aiodocadma
from aiodocadma import Buffer, Capabilities, DeviceInfo, DMAState, ExportDescriptor, MemoryMap, ReadOnly, Statistics
from aiodocadma._access import Access, Destination, Source
from aiodocadma._many import Offsets
from aiodocadma._options import Options
from aiodocadma.exceptions import ClosedError, WrongLoopError

__all__ = ["DMA", "open_dma"]

_LOOK_SECONDS: Final = 0.5  # until Ctrl-C is noticed at the latest

T = TypeVar("T")
P = ParamSpec("P")


def _wait(*futures: Future[Any]) -> None:
    """
    Wait until one of them is done.

    A signal that comes just before a thread blocks, or to another thread, does not wake it, and Python's handler waits
    until it is awake: so it looks now and then.
    """
    while not concurrent.futures.wait(futures, _LOOK_SECONDS, concurrent.futures.FIRST_COMPLETED).done:
        pass


def _wait_out(stop: Callable[[], object], *futures: Future[Any]) -> None:
    """After an interrupt: have it stopped, and wait for that through any further ones, as a cancelled copy does."""
    while True:
        try:
            stop()
            _wait(*futures)
            break
        except BaseException:
            continue


class _Call(Generic[T]):
    """One call in the loop's thread; ``run`` and ``cancel`` come there in the order in which they were posted."""

    def __init__(self, function: Callable[[], Awaitable[T]]) -> None:
        self._function = function
        self._task: asyncio.Task[Any] | None = None
        self.outcome: Future[T] = Future()

    async def run(self) -> None:
        self._task = asyncio.current_task()
        try:
            self.outcome.set_result(await self._function())
        except asyncio.CancelledError:
            self.outcome.set_exception(asyncio.CancelledError())  # whose traceback does not lead back to here
        except BaseException as exc:
            self.outcome.set_exception(exc)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        elif not self.outcome.done():  # the interrupt came before run was posted
            self.outcome.set_exception(asyncio.CancelledError())

    def result(self) -> T:
        """Hand out what came of it, once: an exception must not be found again from its own traceback."""
        outcome, self.outcome = self.outcome, Future()
        try:
            if outcome.done():
                return outcome.result()
        except asyncio.CancelledError:
            pass  # closing has failed, and what was left was cancelled
        finally:
            del outcome
        raise ClosedError("the DMA is closed")


class _Host(threading.Thread):
    """The thread: opens the DMA, has the portal until it is told to stop, closes the DMA. No exit waits for it."""

    def __init__(self, opening: aiodocadma.open_dma, use_uvloop: bool) -> None:
        super().__init__(name="aiodocadma-sync", daemon=True)
        self._opening = opening
        self._use_uvloop = use_uvloop
        self.opened: Future[tuple[BlockingPortal, aiodocadma.DMA]] = Future()
        self.stop: Future[None] = Future()
        self.ended: Future[None] = Future()

    def run(self) -> None:
        failure: BaseException | None
        try:
            failure = anyio.run(self._serve, backend_options={"use_uvloop": self._use_uvloop})
        except BaseException as exc:
            failure = exc
        # Nothing here may keep the DMA or an exception from being collected.
        del self._opening
        opened, ended = self.opened, self.ended
        del self
        if not opened.done():
            opened.set_exception(failure)
            failure = None
        if failure is not None:
            ended.set_exception(failure)
        else:
            ended.set_result(None)

    async def _serve(self) -> BaseException | None:
        """Return what went wrong: raised, the portal would make a group of it."""
        async with BlockingPortal() as portal:
            try:
                async with self._opening as dma:
                    self.opened.set_result((portal, dma))
                    await asyncio.wrap_future(self.stop)
            except BaseException as exc:
                await portal.stop(cancel_remaining=True)  # what is called may never end
                return exc
        return None


class DMA:
    """
    An open DMA engine, as ``aiodocadma.DMA``, whose calls return when they are done.

    Made by ``open_dma()``; a context manager, which closes it. Any thread may use it, and copies of several threads go
    on beside each other. Its maps are those of ``aiodocadma``: slices, ``memoryview(map)`` and ``map.close()`` work in
    any thread; ``export()`` is here. In a child process that was forked, any call raises ``ForkedError``.

    Ctrl-C in the middle of a call, or whatever else a signal's handler raises, cancels what was called, and is raised
    when the engine has let go of the memory, or after ``drain_timeout``. Pressing it again does not shorten that.

    Args:
        opening: What ``aiodocadma.open_dma()`` returned.
        use_uvloop: As for ``open_dma()``.

    Raises:
        AiodocadmaError: What entering ``opening`` raises.

    Source: aiodocadma.
    """

    def __init__(self, opening: aiodocadma.open_dma, *, use_uvloop: bool = False) -> None:
        self._host = _Host(opening, use_uvloop)
        self._posting = threading.RLock()  # what is posted before the stop will run; a signal's handler may post, too
        try:
            self._host.start()
            _wait(self._host.opened)
        except BaseException:
            self._stop()
            if self._host.is_alive():
                _wait_out(self._stop, self._host.ended)
            raise
        self._portal, self._dma = self._host.opened.result()

    # ---- what it is

    @property
    def device(self) -> DeviceInfo:
        """
        The opened device.

        Returns:
            As ``aiodocadma.DMA.device``.

        Source: ``doca_dev_as_devinfo``.
        """
        return self._dma.device

    @property
    def capabilities(self) -> Capabilities:
        """
        What the opened device answered when the context was made last.

        Returns:
            As ``aiodocadma.DMA.capabilities``.

        Source: the ``doca_dma_cap_...`` and ``doca_mmap_cap_...`` calls.
        """
        return self._dma.capabilities

    @property
    def emulated(self) -> bool:
        """
        Whether the device is the software emulator and not a card.

        Returns:
            True for the emulator.

        Source: aiodocadma.
        """
        return self._dma.emulated

    @property
    def state(self) -> DMAState:
        """
        What it is doing.

        Returns:
            As ``aiodocadma.DMA.state``.

        Source: aiodocadma.
        """
        return self._dma.state

    def statistics(self) -> Statistics:
        """
        What it has done so far; also of a closed one.

        Returns:
            As ``aiodocadma.DMA.statistics()``.

        Source: aiodocadma.
        """
        return self._dma.statistics()

    def __repr__(self) -> str:
        return f"<sync {self._dma!r}>" if hasattr(self, "_dma") else "<sync DMA>"

    # ---- memory

    def alloc(self, nbytes: int, *, hugepages: bool | int = False, align: int | None = None) -> MemoryMap:
        """
        Allocate zeroed, page-aligned memory and register it, readable and writable by the device.

        Args:
            nbytes: At least 1.
            hugepages: As for ``aiodocadma.DMA.alloc()``.
            align: Bytes, a power of two: the address is a multiple of it. None for a page's.

        Returns:
            The map; it owns the memory.

        Raises:
            AiodocadmaError: As ``aiodocadma.DMA.alloc()``.
            ValueError: As it.

        Cancellation: Ctrl-C waits for the registration under way, undoes it, and is raised.
        Source: ``doca_mmap_set_memrange``, ``doca_mmap_start``; ``mmap(2)``.
        """
        return self._call(self._dma.alloc, nbytes, hugepages=hugepages, align=align)

    @overload
    def register(self, obj: bytes, *, access: Literal["read"] | None = None) -> MemoryMap[ReadOnly]: ...
    @overload
    def register(self, obj: Any, *, access: Literal["read"]) -> MemoryMap[ReadOnly]: ...
    @overload
    def register(self, obj: Any, *, access: Literal["write"] | None = None) -> MemoryMap: ...
    def register(self, obj: Any, *, access: Access | None = None) -> MemoryMap[Any]:
        """
        Register the caller's memory, with the least permission it needs.

        Args:
            obj: At least one byte of C-contiguous memory of any item type and shape; locked until the map is closed.
            access: What the device may do: ``read`` for a source, ``write`` for both. None for what the object allows.

        Returns:
            The map; the memory stays the caller's.

        Raises:
            AiodocadmaError: As ``aiodocadma.DMA.register()``.
            TypeError: As it.
            ValueError: As it.

        Cancellation: Ctrl-C waits for the registration under way, undoes it, and is raised.
        Source: ``doca_mmap_set_memrange``, ``doca_mmap_set_permissions``, ``doca_mmap_start``.
        """
        register: Callable[..., Awaitable[MemoryMap[Any]]] = self._dma.register
        return self._call(register, obj, access=access)

    @overload
    def import_memory(
        self, descriptor: ExportDescriptor | bytes, *, smoke: bool = True, allow_remote_write: Literal[False] = False
    ) -> MemoryMap[ReadOnly]: ...
    @overload
    def import_memory(
        self, descriptor: ExportDescriptor | bytes, *, smoke: bool = True, allow_remote_write: Literal[True]
    ) -> MemoryMap: ...
    @overload
    def import_memory(
        self, descriptor: ExportDescriptor | bytes, *, smoke: bool = True, allow_remote_write: bool
    ) -> MemoryMap[Any]: ...
    def import_memory(
        self, descriptor: ExportDescriptor | bytes, *, smoke: bool = True, allow_remote_write: bool = False
    ) -> MemoryMap[Any]:
        """
        Make a map of memory that the peer (the host of a DPU, another process on the emulator) has exported.

        Args:
            descriptor: What ``export()`` gave on the other side, or its ``bytes()``.
            smoke: As for ``aiodocadma.DMA.import_memory()``.
            allow_remote_write: Let copies write the memory; the exporter must have allowed it, too.

        Returns:
            The map; closing it does nothing to the exporter's memory.

        Raises:
            AiodocadmaError: As ``aiodocadma.DMA.import_memory()``.

        Cancellation: Ctrl-C waits for the engine to let go, undoes the import, and is raised.
        Source: ``doca_mmap_create_from_export``.
        """
        import_memory: Callable[..., Awaitable[MemoryMap[Any]]] = self._dma.import_memory
        return self._call(import_memory, descriptor, smoke=smoke, allow_remote_write=allow_remote_write)

    def export(self, memory: MemoryMap[Any], *, access: Access = "read") -> ExportDescriptor:
        """
        Let the peer of this device import a map of this DMA, until ``memory.revoke()`` or the map is closed.

        Args:
            memory: The map.
            access: ``read``, or ``write`` for both; the importer has to ask for writing, too.

        Returns:
            The descriptor, a secret.

        Raises:
            AiodocadmaError: As ``aiodocadma.MemoryMap.export()``.

        Cancellation: Ctrl-C waits for the registration under way, undoes it, and is raised.
        Source: ``doca_mmap_export_pci``.
        """
        return self._call(memory.export, access=access)

    # ---- copies

    def copy(self, src: Source, dst: Destination, *, tag: object = None) -> int:
        """
        Copy ``src`` into the start of ``dst``.

        Args:
            src: As for ``aiodocadma.DMA.copy()``: maps and their slices, plain buffers, lists of them.
            dst: At least as long as ``src``, not overlapping it.
            tag: Any object, to know the copy again by in errors and events.

        Returns:
            Bytes copied, always ``len(src)``.

        Raises:
            AiodocadmaError: As ``aiodocadma.DMA.copy()`` and its future.
            TypeError: If a side is no memory.

        Cancellation: Ctrl-C waits for the device to let go of both buffers, and is raised.
        Source: ``doca_dma_task_memcpy_alloc_init``, ``doca_task_submit``.
        """
        return self._call(self._dma.copy, src, dst, tag=tag)

    def copy_many(
        self,
        src: Buffer[ReadOnly] | Iterable[tuple[Buffer[ReadOnly], Buffer]],
        dst: Buffer | None = None,
        *,
        src_offsets: Offsets = 0,
        dst_offsets: Offsets = 0,
        lengths: Offsets | None = None,
        tag: object = None,
    ) -> int:
        """
        Copy many pairs, in any order, each for itself: all that is in flight at once goes here.

        Either ``copy_many(pairs)`` with (source, destination) pairs, or ``copy_many(src, dst, src_offsets=...,
        dst_offsets=..., lengths=...)`` with one entry for each pair.

        Args:
            src: The pairs; or the Buffer that the sources are in.
            dst: The Buffer that the destinations are in.
            src_offsets: Bytes from the start of ``src``: a number for all, a range, or a one-dimensional buffer of
                int64.
            dst_offsets: Bytes from the start of ``dst``; the same.
            lengths: Bytes of each pair; the same. None with pairs, where the source's length counts.
            tag: Any object, to know the copy again by in errors and events.

        Returns:
            The bytes of all pairs together.

        Raises:
            CopyManyError: If some pairs failed, named by index; all others are done.
            AiodocadmaError: As ``aiodocadma.DMA.copy_many()``.
            TypeError: If an argument is of another type.

        Cancellation: As for ``copy()``, for all pairs as one.
        Source: ``doca_dma_task_memcpy_alloc_init``, ``doca_task_submit``.
        """
        return self._call(
            self._dma.copy_many,
            src,
            dst,
            src_offsets=src_offsets,
            dst_offsets=dst_offsets,
            lengths=lengths,
            tag=tag,
        )

    def drain(self) -> None:
        """
        Wait until no copy of any thread is pending: the engine touches no memory of ours then.

        Cancellation: Ctrl-C is raised at once; the copies go on.
        Source: aiodocadma.
        """
        self._call(self._dma.drain)

    # ---- closing

    def close(self) -> None:
        """
        Refuse new copies, end those that wait, let the engine finish the rest, and give everything back; idempotent.

        Raises:
            DrainTimeoutError: If the engine does not let go within ``drain_timeout``; the memory stays pinned then.
            DocaError: If DOCA fails to undo something. Only the first caller gets either.
            ForkedError: In a forked child process.

        Cancellation: Ctrl-C waits for the end, and is raised.
        Source: ``doca_ctx_stop``, ``doca_dma_destroy``, ``doca_mmap_destroy``, ``doca_pe_destroy``, ``doca_dev_close``.
        """
        self._check()
        first = False
        try:
            first = self._stop()
            _wait(self._host.ended)
        except BaseException:
            _wait_out(self._stop, self._host.ended)
            raise
        self._host.join()
        if first:
            self._host.ended.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Exception as close_error:
            if exc is None:
                raise
            exc.add_note(f"and closing the DMA failed: {close_error}")

    def __del__(self) -> None:
        if not hasattr(self, "_dma") or self._dma._forked or self._host.stop.done():
            return
        try:
            warnings.warn(
                f"unclosed {self.device.name} DMA; use 'with aiodocadma.sync.open_dma()'",
                ResourceWarning,
                stacklevel=1,
                source=self,
            )
        finally:  # a filter may turn the warning into an exception
            self._stop()

    # ---- the way there

    def _stop(self) -> bool:
        """Have the thread close the DMA and end. False if it was told before."""
        with self._posting:
            if self._host.stop.done():
                return False
            self._host.stop.set_result(None)
            return True

    def _post(self, function: Callable[[], Any]) -> bool:
        """Have something run in the loop's thread. False if it ends."""
        with self._posting:
            if self._host.stop.done() or self._host.ended.done():
                return False
            self._portal.start_task_soon(function)
            return True

    def _check(self) -> None:
        if self._dma._forked:
            self._dma._refuse("forked")
        if threading.current_thread() is self._host:
            raise WrongLoopError("called in the thread that would have to do it", hint="Call it in any other thread.")

    def _call(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call it in the loop's thread, and wait for its end in any case."""
        self._check()
        call = _Call(functools.partial(function, *args, **kwargs))
        try:
            if self._post(call.run):
                _wait(call.outcome, self._host.ended)
        except BaseException:
            # If it is being closed, that ends the call, too.
            _wait_out(lambda: self._post(call.cancel), call.outcome, self._host.ended)
            raise
        return call.result()


def open_dma(device: str | None = None, *, use_uvloop: bool = False, **options: Unpack[Options]) -> DMA:
    """
    Open a DMA engine, for calls that return when they are done.

    Args:
        device: A PCI address, an ibdev or interface name; None takes the first device that can do DMA.
        use_uvloop: Run uvloop's event loop in the DMA's thread, not asyncio's; it must be installed.
        options: All others of ``aiodocadma.open_dma()``.

    Returns:
        The open DMA. It is a context manager, and has a ``close()``.

    Raises:
        AiodocadmaError: As ``aiodocadma.open_dma()``.
        ValueError: If a number is out of range.

    Cancellation: Ctrl-C waits for the opening under way, undoes it, and is raised.
    Source: ``doca_dev_open``, ``doca_pe_create``, ``doca_dma_create``, ``doca_ctx_start``.
    """
    return DMA(aiodocadma.open_dma(device, **options), use_uvloop=use_uvloop)
