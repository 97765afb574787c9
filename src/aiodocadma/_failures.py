"""The exceptions of copies that did not end well, with the cause that evidence or a worker's questions tell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from aiodocadma import _native
from aiodocadma._causes import Evidence, Sides, checks_for
from aiodocadma._counted import counted
from aiodocadma._examination import Examinations
from aiodocadma.exceptions import AiodocadmaError, CopyManyError, DocaError, FlushedError

if TYPE_CHECKING:
    from aiodocadma._devices import Capabilities
    from aiodocadma._diagnosis import Diagnosis
    from aiodocadma._native import Channel, CopyFuture, NativeChannel

__all__ = ["Failures"]

SidesOfCopy: TypeAlias = "tuple[int, int, int, int, int, bool, bool]"


class Failures:
    """
    Makes the exceptions of one DMA's copies.

    Where the cause is not known at once, the future stays pending until a worker has asked. The engine has let go of
    the copy: all that is late is its exception, other copies go on, and cancelling it ends it at once.

    Args:
        channel: The DMA.
        native: Its channel.
        loop: Its loop.
        diagnosis: What is known of its device and library.
        capabilities: What the device can do.
        ended: Called when no cause is looked for any more.

    Source: aiodocadma.
    """

    def __init__(
        self,
        channel: Channel,
        native: NativeChannel,
        loop: asyncio.AbstractEventLoop,
        diagnosis: Diagnosis,
        capabilities: Callable[[], Capabilities],
        ended: Callable[[], None],
    ) -> None:
        self._channel = channel
        self._native = native
        self._diagnosis = diagnosis
        self._capabilities = capabilities
        self._examinations = Examinations(loop, diagnosis.check, channel._conclude, ended)

    @property
    def examining(self) -> bool:
        """Whether a cause is looked for."""
        return self._examinations.running

    def of_copy(self, future: CopyFuture, code: int, phase: int, flushed: bool) -> AiodocadmaError:
        """
        Make the exception of a copy.

        Args:
            future: The copy's.
            code: The ``doca_error_t`` that its first failing task ended with.
            phase: Where that was.
            flushed: Whether it was another copy's failure.

        Returns:
            The exception; the future waits for it to be complete.

        Source: ``doca_task_get_status``.
        """
        error, evidence = self._make(
            future, code, phase, future._nbytes, self._channel._sides(future), self._engine_now()
        )
        if flushed:
            return _flushed(error, future.tag)
        self._complete(future, [(error, evidence)])
        return error

    def of_many(self, future: CopyFuture, failures: list[tuple[int, int, int, bool]], count: int) -> CopyManyError:
        """
        Make the exception of a copy of many pairs of which some failed.

        Args:
            future: The copy's.
            failures: Index, code, phase and whether it was flushed, of each that failed.
            count: How many pairs there are.

        Returns:
            The exception; the future waits for it to be complete.

        Source: ``doca_task_get_status``.
        """
        errors: dict[int, Exception] = {}
        failed = []
        engine = self._engine_now()
        for index, code, phase, flushed in failures:
            sides = self._channel._sides(future, index)
            error, evidence = self._make(future, code, phase, sides[4] if sides is not None else 0, sides, engine)
            errors[index] = _flushed(error, future.tag) if flushed else error
            if not flushed:
                failed.append((error, evidence))
        self._complete(future, failed)
        return CopyManyError(errors, count)

    def _make(
        self,
        future: CopyFuture,
        code: int,
        phase: int,
        nbytes: int,
        sides: SidesOfCopy | None,
        engine: Mapping[str, Any],
    ) -> tuple[DocaError, Evidence]:
        evidence = self._diagnosis.evidence(
            _native.copy_failure(code, phase),
            f"copying {counted(nbytes, 'byte')} from src to dst",
            nbytes=nbytes,
            sides=Sides(*sides) if sides is not None else None,
            **engine,
        )
        return self._diagnosis.error(evidence, future.tag), evidence

    def _engine_now(self) -> Mapping[str, Any]:
        """What is known of the engine, for the evidence."""
        status = self._native.status()
        return {
            "caps": self._capabilities(),
            "transitions": tuple((step >> 4, step & 15) for step in status.transitions if step),
            "in_flight": status.in_flight,
            "num_tasks": status.num_tasks,
            "completed": self._native.counters()["segments_completed"],
        }

    def _complete(self, future: CopyFuture, failed: list[tuple[DocaError, Evidence]]) -> None:
        unknown = [(error, evidence) for error, evidence in failed if checks_for(evidence.code, evidence.phase)]
        if self._examinations.start(future, unknown):
            self._channel._examine(future)


def _flushed(culprit: DocaError, tag: object) -> FlushedError:
    return FlushedError("another copy's failure ended this one, and it was not replayed", culprit=culprit, tag=tag)
