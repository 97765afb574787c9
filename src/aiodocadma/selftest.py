"""
Does copying work here? Steps of growing size through the public API, each judged by the bytes.

Runs on the emulator and on a card alike. What failed once is tried no larger: the steps after a failure are skipped.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal

from aiodocadma import DMA, MemoryMap, open_dma
from aiodocadma._counted import counted
from aiodocadma._version import __version__
from aiodocadma.doctor._check import Check, Layer, failed, passed, skipped
from aiodocadma.exceptions import (
    AccessError,
    AiodocadmaError,
    BoundsError,
    ClosedError,
    DocaError,
    DrainTimeoutError,
    LibraryError,
    OverlapError,
)

__all__ = ["Outcome", "SelftestResult", "compare", "selftest"]

Outcome = Literal["resolved", "changed", "unchanged"]

_PAGE: Final = 4096
_SMALL: Final = 4 * 1024
_COUNT: Final = 64
_QUICK_BYTES: Final = 2 << 20  # of the bulk step, and a little; unless two tasks hold less
_FULL_BYTES: Final = 32 << 20
_SUSTAINED: Final = 2.0  # seconds
_SUSTAINED_DEPTH: Final = 8
_STEP_TIMEOUT = 10.0  # seconds
_DRAIN_TIMEOUT = 3.0
_GUARD: Final = 0xA5


@dataclasses.dataclass(frozen=True, slots=True)
class SelftestResult:
    """
    What came of a selftest.

    Args:
        checks: The steps, in order.
        environment: What it ran on: versions, library, device, whether emulated. Two runs with the same one are alike.
        started_at: In UTC.
        full: Whether it was the long one.
        bytes_compared: Bytes that were copied and compared.
        measurements: Numbers of the long one.
        opened: Whether a device could be opened at all.

    Source: NVIDIA's published contract for validation; aiodocadma.
    """

    checks: tuple[Check, ...]
    environment: Mapping[str, Any]
    started_at: str
    full: bool
    bytes_compared: int
    measurements: Mapping[str, float]
    opened: bool

    @property
    def result(self) -> Literal["pass", "fail", "skip"]:
        """
        The verdict.

        Returns:
            ``fail`` if any step failed.

        Source: NVIDIA's published contract for validation.
        """
        return "fail" if any(check.status == "fail" for check in self.checks) else "pass"

    @property
    def statement(self) -> str:
        """
        One sentence for a record, with what ran, on what, and what came of it.

        Returns:
            The sentence.

        Source: NVIDIA's published rules for verification.
        """
        count = {status: sum(check.status == status for check in self.checks) for status in ("pass", "fail", "skip")}
        env = self.environment
        device = f"{env['device']} ({env['pcie_address']})" if env.get("device") else "no device"
        emulated = ", emulated" if env.get("emulated") else ""
        doca = f"DOCA {env.get('doca_version') or 'of unknown version'}{emulated}" if self.opened else "no DOCA opened"
        return (
            f"On {self.started_at} aiodocadma {env['aiodocadma_version']} ran {counted(len(self.checks), 'check')} "
            f"on {device} with {doca}: {count['pass']} passed, {count['fail']} failed, {count['skip']} skipped; "
            f"{self.bytes_compared} bytes were copied and compared one by one."
        )

    def record(self) -> dict[str, Any]:
        """
        The result as JSON.

        Returns:
            A record of the ``validate`` schema; what is ours is under ``x_aiodocadma``.

        Source: NVIDIA's published contract for validation; ``doctor/schemas/validate.json``.
        """
        return {
            "library": "doca-dma",
            "spec_path": None,
            "result": self.result,
            "checks": [
                {name: value for name, value in check.record().items() if name != "layer"} for check in self.checks
            ],
            "x_aiodocadma": {
                "environment": dict(self.environment),
                "started_at": self.started_at,
                "full": self.full,
                "bytes_compared": self.bytes_compared,
                "measurements": dict(self.measurements),
                "statement": self.statement,
            },
        }


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> Outcome:
    """
    What a change between two runs has changed.

    Args:
        old: The record of the run before.
        new: The record of this run.

    Returns:
        ``resolved`` if nothing fails any more, ``unchanged`` if the same fails in the same words, else ``changed``.

    Raises:
        ValueError: If one of them is no record of a selftest.

    Source: NVIDIA's published rules for debugging: one variable per iteration.
    """
    try:
        before, after = (
            {(check["name"], check["details"]) for check in record["checks"] if check["status"] == "fail"}
            for record in (old, new)
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a record of a selftest: {error!r}") from None
    if before and not after:
        return "resolved"
    return "unchanged" if before == after else "changed"


class _Wrong(Exception):
    """A step found something wrong; the message says what."""


class _Steps:
    """The steps of one run, and what they share."""

    def __init__(self, dma: DMA, full: bool) -> None:
        self._dma = dma
        self._full = full
        self.bytes_compared = 0
        self.measurements: dict[str, float] = {}
        self._maps: list[MemoryMap] = []

    async def run(self, name: str, step: Callable[[], Awaitable[str]]) -> Check:
        """Run one; only if it passes are its maps closed, which would wait for an engine that is stuck."""
        check = await _run(name, step)
        maps, self._maps = self._maps, []
        if check.status == "pass":
            for memory_map in maps:
                await memory_map.aclose()
        return check

    async def _register(self, obj: bytes | bytearray) -> MemoryMap:
        self._maps.append(await self._dma.register(obj))
        return self._maps[-1]

    async def _alloc(self, nbytes: int) -> MemoryMap:
        self._maps.append(await self._dma.alloc(nbytes))
        return self._maps[-1]

    def all(self) -> list[tuple[str, Callable[[], Awaitable[str]]]]:
        """Names and functions, in order; a function returns what it did, or raises."""
        steps: list[tuple[str, Callable[[], Awaitable[str]]]] = [
            ("capabilities", self._capabilities),
            ("permissions", self._permissions),
            ("small copy", self._small_copy),
            ("completion count", self._completion_count),
            ("wrong cases are rejected", self._wrong_cases),
            ("bulk copy", self._bulk_copy),
        ]
        return [*steps, ("sustained copies", self._sustained)] if self._full else steps

    def _same(self, found: bytes, wanted: bytes, what: str) -> None:
        """Compare, and name the first byte that differs."""
        if found != wanted:
            at = next(index for index, (a, b) in enumerate(zip(found, wanted, strict=True)) if a != b)
            wrong = sum(a != b for a, b in zip(found, wanted, strict=True))
            raise _Wrong(
                f"{what}: byte {at} of {len(wanted)} is {found[at]:#04x}, not {wanted[at]:#04x}; "
                f"{counted(wrong, 'byte')} wrong"
            )

    def _arrived(self, found: bytes, wanted: bytes) -> None:
        """Compare what a copy wrote."""
        self._same(found, wanted, "destination")
        self.bytes_compared += len(wanted)

    async def _capabilities(self) -> str:
        caps = self._dma.capabilities
        if caps.max_buf_size < 1 or caps.max_buf_list_len < 1:
            raise _Wrong(f"the device says max_buf_size={caps.max_buf_size}, max_buf_list_len={caps.max_buf_list_len}")
        return (
            f"max_buf_size={caps.max_buf_size}, max_buf_list_len={caps.max_buf_list_len}, "
            f"max_num_tasks={caps.max_num_tasks}, export_pci={caps.export_pci}, "
            f"create_from_export_pci={caps.create_from_export_pci}"
        )

    async def _permissions(self) -> str:
        """Read-only memory can be read and nothing else."""
        data, target = random.Random(1).randbytes(_SMALL), bytearray(_SMALL)
        source, destination = await self._register(data), await self._register(target)
        try:
            await self._dma.copy(destination, source)
        except AccessError:
            pass
        else:
            raise _Wrong("a copy into read-only memory was not refused")
        await self._dma.copy(source, destination)
        self._arrived(bytes(target), data)
        return "read-only memory is a source and is refused as a destination"

    async def _small_copy(self) -> str:
        data = random.Random(2).randbytes(_SMALL)
        source = await self._register(data)
        target = await self._alloc(_SMALL + 2 * _PAGE)
        guard = bytes([_GUARD]) * _PAGE
        _fill(target, guard + bytes(_SMALL) + guard)
        copied = await self._dma.copy(source, target[_PAGE : _PAGE + _SMALL])
        if copied != _SMALL:
            raise _Wrong(f"the copy of {_SMALL} bytes gave {copied}")
        found = bytes(target)
        self._arrived(found[_PAGE:-_PAGE], data)
        self._same(found[:_PAGE], guard, "the page before the destination")
        self._same(found[-_PAGE:], guard, "the page after the destination")
        self._same(data, random.Random(2).randbytes(_SMALL), "source")
        return f"{_SMALL} bytes arrived, the pages around them and the source are as they were"

    async def _completion_count(self) -> str:
        part = 512
        data = random.Random(3).randbytes(_COUNT * part)
        source, target = await self._register(data), await self._alloc(len(data))
        before = self._dma.statistics()
        lengths = await asyncio.gather(
            *(
                self._dma.copy(source[at : at + part], target[at : at + part])
                for at in random.Random(3).sample(range(0, len(data), part), _COUNT)
            )
        )
        after = self._dma.statistics()
        self._arrived(bytes(target), data)
        completed = after.copies_completed - before.copies_completed
        moved = after.bytes_completed - before.bytes_completed
        if (completed, moved, sum(lengths)) != (_COUNT, len(data), len(data)):
            raise _Wrong(f"{_COUNT} copies of {part} bytes gave {completed} completions and {moved} bytes")
        return f"{_COUNT} copies, {completed} completions"

    async def _wrong_cases(self) -> str:
        """What must not work does not, and leaves no trace."""
        dma = self._dma
        source, target = await self._alloc(_PAGE), await self._alloc(_PAGE)
        closed = await dma.alloc(_PAGE)
        await closed.aclose()
        cases: list[tuple[str, type[AiodocadmaError], Callable[[], Awaitable[int]]]] = [
            ("a destination that is too short", BoundsError, lambda: dma.copy(source, target[:1])),
            ("an overlap", OverlapError, lambda: dma.copy(source[: _PAGE // 2], source[1 : _PAGE // 2 + 1])),
            ("a closed map", ClosedError, lambda: dma.copy(closed, target)),
        ]
        before = dma.statistics().copies_started
        _fill(source, bytes([_GUARD]) * _PAGE)
        for what, error, copy in cases:
            try:
                await copy()
            except error:
                continue
            raise _Wrong(f"{what} was not refused")
        self._same(bytes(target), bytes(_PAGE), "the destination of refused copies")
        if dma.statistics().copies_started != before:
            raise _Wrong("a refused copy was started")
        return ", ".join(what for what, *_ in cases)

    async def _bulk_copy(self) -> str:
        """More than one task can move, where memory allows."""
        limit = self._dma.capabilities.max_buf_size
        length = _FULL_BYTES if self._full else min(2 * limit, _QUICK_BYTES) + _PAGE + 1
        data = random.Random(4).randbytes(length)
        before = self._dma.statistics().segments_completed
        source, target = await self._register(data), await self._alloc(length)
        await self._dma.copy(source, target)
        self._arrived(bytes(target), data)
        segments = self._dma.statistics().segments_completed - before
        return f"{length} bytes in {counted(segments, 'task')}"

    async def _sustained(self) -> str:
        """Copies side by side for a while, beside the CPU's own rate as a baseline; the last of each is compared."""
        length = 1 << 20
        data = random.Random(5).randbytes(length)
        source = await self._register(data)
        target = await self._alloc(length * _SUSTAINED_DEPTH)
        whole = data * _SUSTAINED_DEPTH
        _fill(target, whole)  # the first touch of a page is dear
        start = time.perf_counter()
        _fill(target, whole)
        baseline = len(whole) / (time.perf_counter() - start)
        _fill(target, bytes(len(whole)))
        rounds, start = 0, time.perf_counter()
        while (seconds := time.perf_counter() - start) < _SUSTAINED:
            await asyncio.gather(
                *(
                    self._dma.copy(source, target[index * length : (index + 1) * length])
                    for index in range(_SUSTAINED_DEPTH)
                )
            )
            rounds += 1
        self._arrived(bytes(target), whole)
        self.measurements["dma_bytes_per_second"] = rounds * len(whole) / seconds
        self.measurements["cpu_bytes_per_second"] = baseline
        return f"copies of {length} bytes, {_SUSTAINED_DEPTH} at once, for {_SUSTAINED:.0f} s"


def _fill(target: MemoryMap, data: bytes) -> None:
    """Write to a map; no view is left behind, which would keep the map from being closed."""
    with memoryview(target) as view:
        view[:] = data


async def selftest(
    device: str | None = None,
    *,
    library: str | os.PathLike[str] | None = None,
    full: bool = False,
    progress: Callable[[Check], object] | None = None,
) -> SelftestResult:
    """
    Try whether copying works here: capabilities, permissions, a small copy, completions, wrong cases, a bulk copy.

    Args:
        device: As for ``open_dma()``.
        library: As for ``open_dma()``.
        full: Also a larger bulk copy, and copies side by side for two seconds.
        progress: Called with each check as it ends.

    Returns:
        The result. A device that cannot be opened is a result, too.

    Cancellation: Waits for the copy under way, then raises.
    Source: NVIDIA's published test loop for DOCA DMA.
    """
    started_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    environment: dict[str, Any] = {"aiodocadma_version": __version__}
    checks: list[Check] = []

    def ended(check: Check) -> None:
        checks.append(check)
        if progress is not None:
            progress(check)

    steps: _Steps | None = None
    try:
        async with open_dma(device, library=library, drain_timeout=_DRAIN_TIMEOUT) as dma:
            info = dma.device
            environment |= {
                "doca_version": info.version,
                "library": info.library,
                "emulated": info.emulated,
                "device": info.name,
                "pcie_address": info.pci_address,
            }
            emulated = " (emulated: no card moves these bytes)" if info.emulated else ""
            doca = f"DOCA {info.version or 'of unknown version'}"
            ended(passed(Layer.RUNTIME, "open", f"{info.name} at {info.pci_address}, {doca}{emulated}"))
            steps = _Steps(dma, full)
            broken = None
            for name, step in steps.all():
                if broken is not None:
                    ended(skipped(Layer.PROGRAM, name, f"not tried, since {broken!r} fails"))
                    continue
                check = await steps.run(name, step)
                ended(check)
                broken = name if check.status == "fail" else None
    except (LibraryError, DocaError, DrainTimeoutError) as error:
        ended(_closing(error) if checks else _unopened(error))
    return SelftestResult(
        checks=tuple(checks),
        environment=environment,
        started_at=started_at,
        full=full,
        bytes_compared=steps.bytes_compared if steps is not None else 0,
        measurements=steps.measurements if steps is not None else {},
        opened=steps is not None,
    )


async def _run(name: str, step: Callable[[], Awaitable[str]]) -> Check:
    try:
        async with asyncio.timeout(_STEP_TIMEOUT):
            return passed(Layer.PROGRAM, name, await step())
    except _Wrong as wrong:
        remedy = "The engine reports success and the bytes say otherwise: trust no copy on this device."
        return failed(Layer.PROGRAM, name, str(wrong), remedy)
    except TimeoutError:
        remedy = "The engine does not report what it was given: see 'aiodocadma doctor', layer 7."
        return failed(Layer.PROGRAM, name, f"did not end within {_STEP_TIMEOUT:.0f} s", remedy)
    except AiodocadmaError as error:
        return failed(Layer.PROGRAM, name, _words(error), error.hint or "See 'aiodocadma doctor'.")


def _words(error: AiodocadmaError) -> str:
    return str(error).splitlines()[0]


def _unopened(error: AiodocadmaError) -> Check:
    return failed(Layer.RUNTIME, "open", _words(error), error.hint or "See 'aiodocadma doctor'.")


def _closing(error: AiodocadmaError) -> Check:
    return failed(Layer.PROGRAM, "close", _words(error), error.hint or "See 'aiodocadma doctor', layer 7.")
