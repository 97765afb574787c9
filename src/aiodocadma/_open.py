"""Opening a DMA for the running loop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from typing import TYPE_CHECKING, Final, cast

from aiodocadma import _worker
from aiodocadma._cache import RegistrationCache
from aiodocadma._dma import DMA
from aiodocadma._engine import Engine, OnFlush
from aiodocadma.exceptions import WrongLoopError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from aiodocadma._devices import DeviceInfo

__all__ = ["open_dma"]

MAX_SPIN: Final = 0.001  # seconds: the loop does nothing else meanwhile
# Policy, not limits of a device.
CACHE_MAPS: Final = 2048
CACHE_BYTES: Final = 128 * 1024 * 1024


def _folder(path: str | os.PathLike[str] | None) -> Path | None:
    if path is None:
        return None
    from pathlib import Path

    return Path(path)


def _crossover_of(device: DeviceInfo) -> int:
    """In the worker that opens; on the emulator the CPU does the work of both."""
    if device.emulated:
        return 0
    from aiodocadma._calibration import crossover_of

    return crossover_of(device)


class _Unclaimed:
    """An opened engine on its way to its loop. If that is closed before it comes, nobody but this knows of it."""

    def __init__(self, engine: Engine) -> None:
        self._engine: Engine | None = engine
        self._pid = os.getpid()

    def claim(self) -> Engine:
        """Take it; once."""
        engine, self._engine = self._engine, None
        assert engine is not None
        return engine

    def __del__(self) -> None:
        if self._engine is not None and os.getpid() == self._pid:  # in a forked child it is the parent's
            self._engine.discard()


class open_dma(contextlib.AbstractAsyncContextManager[DMA]):
    """
    Open a DMA engine for the running loop, as an async context manager.

    Args:
        device: A PCI address, an ibdev or interface name; None takes the first device that can do DMA.
        library: ``auto``, ``system``, ``emulator`` or a path; None takes the environment variable
            ``AIODOCADMA_LIBRARY``, or ``auto``: the system's DOCA, or the emulator where none is installed.
        num_tasks: Size of the context's task pool; None for what suits the device; never above its cap.
        window: Tasks that DOCA may hold at once; None for all of the pool.
        window_bytes: Bytes that these tasks may have together; None for what keeps the engine busy.
        on_flush: What becomes of copies that another copy's failure flushed: ``replay`` them, or ``fail`` them with
            ``FlushedError``.
        max_waiting: Copies that may wait for the engine: one more raises ``QueueFullError`` from ``copy()`` and makes
            ``submit()`` wait. None for no bound.
        drain_timeout: Seconds that a cancelled copy, a restart and closing wait for the engine to let go.
        spin: Seconds, at most 0.001, that the loop polls for a completion before it sleeps: a wake-up less for copies
            that end within it. It backs off while it finds nothing. 0 for never.
        stall_timeout: Seconds without a completion, while DOCA holds tasks, that the watchdog counts and logs as a
            stall; it does nothing else. None for no watchdog.
        evidence_dir: A folder for what is collected when something fails below DMA (the latest lines of DOCA's log and
            the kernel's, the devices), one file per incident with addresses left out. None keeps it in memory: it is
            the exception's ``evidence``.
        flight_dir: A folder for the flight record (state, statistics, copies under way, latest events) when a task
            fails, the engine stalls or is lost; at most one file a minute for each of these. None writes nothing:
            ``DMA.recorded()`` has the events.
        measure_latency: Keep a histogram of how long copies take, for ``statistics().latency``. Copies that wait are
            timed all; of those that the engine finishes at once one in 16, and the others count like it.
        cache_maps: Registrations that may stay while no copy uses them and no map is open: half of them kept for the
            next copy of the same plain buffer, half of closed maps, which DOCA lets go of only with their context.
        cache_bytes: Bytes of memory that these may pin.

    Returns:
        The DMA, on entering; leaving closes it.

    Raises:
        LibraryError: If no usable DOCA library is found.
        DocaError: If there is no such device, it cannot do DMA, or DOCA fails to open it.
        ValueError: If a number is out of range.
        WrongLoopError: If no asyncio event loop runs.

    Cancellation: Waits for the opening under way, undoes it, then raises.
    Source: ``doca_dev_open``, ``doca_pe_create``, ``doca_dma_create``, ``doca_ctx_start``.
    """

    def __init__(
        self,
        device: str | None = None,
        *,
        library: str | os.PathLike[str] | None = None,
        num_tasks: int | None = None,
        window: int | None = None,
        window_bytes: int | None = None,
        on_flush: OnFlush = "replay",
        max_waiting: int | None = None,
        drain_timeout: float = 30.0,
        stall_timeout: float | None = 10.0,
        spin: float = 0.0,
        evidence_dir: str | os.PathLike[str] | None = None,
        flight_dir: str | os.PathLike[str] | None = None,
        measure_latency: bool = False,
        cache_maps: int = CACHE_MAPS,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        for name, value in {
            "num_tasks": num_tasks,
            "window": window,
            "window_bytes": window_bytes,
            "max_waiting": max_waiting,
        }.items():
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        if on_flush not in ("replay", "fail"):
            raise ValueError(f"on_flush must be 'replay' or 'fail', not {on_flush!r}")
        for name, seconds in (("drain_timeout", drain_timeout), ("stall_timeout", stall_timeout)):
            if seconds is not None and not seconds > 0:  # nor NaN
                raise ValueError(f"{name} must be positive, not {seconds}")
        if not 0 <= spin <= MAX_SPIN:
            raise ValueError(f"spin must be from 0 to {MAX_SPIN} seconds, not {spin}")
        for name, bound in (("cache_maps", cache_maps), ("cache_bytes", cache_bytes)):
            if bound < 0:
                raise ValueError(f"{name} must not be negative, but is {bound}")
        cache = RegistrationCache(cache_maps // 2, cache_bytes // 2)
        self._open = functools.partial(
            Engine,
            library,
            device,
            num_tasks,
            window,
            window_bytes,
            on_flush,
            spin,
            _folder(evidence_dir),
            measure_latency=measure_latency,
            graveyard_maps=cache_maps - cache_maps // 2,
            graveyard_bytes=cache_bytes - cache_bytes // 2,
            crossover_of=_crossover_of,
        )
        self._bind = functools.partial(
            DMA,
            max_waiting=max_waiting,
            drain_timeout=drain_timeout,
            stall_timeout=stall_timeout,
            flight_dir=_folder(flight_dir),
            cache=cache,
        )
        self._dma: DMA | None = None

    async def __aenter__(self) -> DMA:
        """Open the device; leaving closes it."""
        if self._dma is not None:
            raise RuntimeError("this open_dma() was entered before")
        loop = asyncio._get_running_loop()
        if loop is None:
            raise WrongLoopError(
                "open_dma() needs a running asyncio event loop",
                hint="Use it in a coroutine under asyncio or uvloop; trio is not supported.",
            )
        outcome: asyncio.Future[DMA] = loop.create_future()

        def opened(unclaimed: _Unclaimed | None, exception: BaseException | None) -> None:
            if unclaimed is None:
                outcome.set_exception(cast(BaseException, exception))
                return
            engine = unclaimed.claim()
            try:
                outcome.set_result(self._bind(engine, loop))
            except BaseException as exc:
                failure = exc
                _worker.finish(loop, engine.discard, lambda *_: outcome.set_exception(failure))

        _worker.start(loop, lambda: _Unclaimed(self._open()), opened)
        stop = await _worker.wait_out(outcome)
        dma = outcome.result()
        if stop is not None:
            await dma.aclose()
            raise stop
        self._dma = dma
        return dma

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._dma is not None:
            await self._dma.__aexit__(exc_type, exc, traceback)
