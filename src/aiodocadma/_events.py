"""What happens to a DMA besides copies that go well: read from the recorder in C, which always runs."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Final, Self

from aiodocadma import _native
from aiodocadma._counted import counted
from aiodocadma.exceptions import DocaError

__all__ = ["CHANNEL_STATES", "CTX_STATES", "Event", "EventKind", "Events", "Recorder", "StallCause"]

CTX_STATES: Final = ("IDLE", "STARTING", "RUNNING", "STOPPING")
CHANNEL_STATES: Final = ("RUNNING", "FAILING", "DRAINING", "PARKED", "LOST", "CLOSED")


class EventKind(enum.StrEnum):
    """
    What an event is about.

    Attributes:
        CONTEXT: The context went from one state to another.
        CHANNEL: The same, for what sends tasks to it.
        FAILED: A task failed for its own sake.
        FLUSHED: DOCA ended tasks because another had failed.
        REFUSED: DOCA takes no task although it holds none.
        RECYCLED: A fresh context was made, to let go of closed maps.
        RESTARTED: The same after a fault.
        CAPABILITIES: The device answers differently than before.
        UNCLEARED: Clearing the notification failed.
        STALLED: Nothing ended for ``stall_timeout`` seconds.
        PEER_LOST: The memory of the task that failed is a peer's, who has gone or taken it back.
        BELOW_CROSSOVER: The first copy so short that the CPU's own costs less.
        LOST: There is no working context any more.

    Source: aiodocadma.
    """

    CONTEXT = "context"
    CHANNEL = "channel"
    FAILED = "failed"
    FLUSHED = "flushed"
    REFUSED = "refused"
    RECYCLED = "recycled"
    RESTARTED = "restarted"
    CAPABILITIES = "capabilities"
    UNCLEARED = "uncleared"
    STALLED = "stalled"
    PEER_LOST = "peer_lost"
    BELOW_CROSSOVER = "below_crossover"
    LOST = "lost"


class StallCause(enum.StrEnum):
    """
    Why pending copies do not end, as the watchdog sees it.

    Attributes:
        ENGINE_SILENT: Tasks are with DOCA, the notification is armed, nothing comes.
        WINDOW_FULL: The same, and copies wait behind a full window.
        READER_MISSING: The notification descriptor is readable, and the loop does not read it.
        NOT_ARMED: Tasks are with DOCA, and the notification cannot be requested.
        REFUSED: DOCA holds nothing of ours, and takes nothing.
        RESTARTING: A task failed, and the context does not become idle.
        RECYCLING: A fresh context is being made, and that does not end.

    Source: aiodocadma.
    """

    ENGINE_SILENT = "engine_silent"
    WINDOW_FULL = "window_full"
    READER_MISSING = "reader_missing"
    NOT_ARMED = "not_armed"
    REFUSED = "refused"
    RESTARTING = "restarting"
    RECYCLING = "recycling"

    @property
    def text(self) -> str:
        """
        The cause in words.

        Returns:
            Half a sentence.

        Source: aiodocadma.
        """
        return _CAUSES[self]


_CAUSES: Final = {
    StallCause.ENGINE_SILENT: "the engine is silent",
    StallCause.WINDOW_FULL: "the window is full and the engine silent",
    StallCause.READER_MISSING: "the notification fd is readable, but the loop does not read it",
    StallCause.NOT_ARMED: "no notification is armed",
    StallCause.REFUSED: "DOCA refuses tasks although it holds none",
    StallCause.RESTARTING: "a task failed and the context does not become idle",
    StallCause.RECYCLING: "a fresh context is being made, and that does not end",
}
STALL_CAUSES: Final = tuple(StallCause)


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """
    Something that happened.

    Args:
        number: Counted from 0 for each DMA; a gap means that events are missing.
        time: Seconds of ``time.monotonic()``, which asyncio's loops have as ``loop.time()``.
        kind: What it is about.
        text: The same in words, one line.
        code: The name of DOCA's error code without ``DOCA_ERROR_``, if there is one.
        nbytes: Bytes of the task that failed, or of the copy below the crossover.
        cause: Of a stall.

    Source: aiodocadma.
    """

    number: int
    time: float
    kind: EventKind
    text: str
    code: str | None = None
    nbytes: int | None = None
    cause: StallCause | None = None


def code_name(code: int) -> str:
    """The name of a ``doca_error_t`` without ``DOCA_ERROR_``, ``?`` if no header has it."""
    known = DocaError._by_code.get(code)
    return known.name.removeprefix("DOCA_ERROR_") if known is not None and known.name else "?"


def _event(native: _native.NativeEvent) -> Event:
    kind = EventKind(native.kind)
    code = code_name(native.code) if native.code else None
    nbytes = cause = None
    match kind:
        case EventKind.CONTEXT:
            text = f"context {CTX_STATES[native.start]} to {CTX_STATES[native.end]}"
        case EventKind.CHANNEL:
            text = f"channel {CHANNEL_STATES[native.start]} to {CHANNEL_STATES[native.end]}"
        case EventKind.FAILED:
            nbytes = native.nbytes
            text = f"a task of {counted(nbytes, 'byte')} failed: {code} ({_native.PHASES[native.end]})"
        case EventKind.FLUSHED:
            text = f"{counted(native.end, 'task')} flushed"
        case EventKind.REFUSED:
            text = f"DOCA takes no task although it holds none: {code}"
        case EventKind.RECYCLED:
            text = "a fresh context was made, to let go of closed maps"
        case EventKind.RESTARTED:
            text = "a fresh context was made after a fault"
        case EventKind.CAPABILITIES:
            text = "the device's capabilities changed"
        case EventKind.UNCLEARED:
            text = f"doca_pe_clear_notification failed: {code}"
        case EventKind.STALLED:
            cause = STALL_CAUSES[native.start]
            text = f"nothing ended for long: {cause.text}"
        case EventKind.PEER_LOST:
            text = "the failed task's memory is a peer's, who has gone or taken it back"
        case EventKind.BELOW_CROSSOVER:
            nbytes = native.nbytes
            text = f"a copy of {counted(nbytes, 'byte')} is below the crossover: the CPU's own costs less; see advise()"
        case EventKind.LOST:
            text = f"the engine is lost: {code or 'see the log'}"
    return Event(native.number, native.time, kind, text, code, nbytes, cause)


class Events(AsyncIterator[Event]):
    """
    The events of a DMA from now on, for one reader; ends when the DMA has been closed and all were read.

    It needs no closing, and may be read as slowly as one likes: events that the recorder has overwritten meanwhile are
    left out and counted.

    Args:
        recorder: The DMA's.

    Source: aiodocadma.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._next = recorder.num_events()
        self._batch: deque[Event] = deque()
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """
        How many events were overwritten before they were read.

        Returns:
            The number so far.

        Source: aiodocadma.
        """
        return self._dropped

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._batch:
            self._batch.extend(self._recorder.events(self._next))
            if self._batch:
                self._dropped += self._batch[0].number - self._next
                self._next = self._batch[-1].number + 1
            elif not await self._recorder.more(self._next):
                raise StopAsyncIteration
        return self._batch.popleft()


class Recorder:
    """
    The recorder of one DMA, and who waits for its events.

    Args:
        loop: The DMA's.
        channel: What is recorded.
        want: Told whether ``publish()`` is to be called when events were noted.

    Source: aiodocadma.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, channel: _native.NativeChannel, want: Callable[[bool], None]
    ) -> None:
        self._loop = loop
        self._channel = channel
        self._want = want
        self._waiters: list[asyncio.Future[None]] = []
        self._watchers: list[Callable[[], None]] = []
        self._ended = False

    def num_events(self) -> int:
        """How many events there ever were."""
        return self._channel.num_events()

    def events(self, start: int = 0) -> list[Event]:
        """The events that are still there, from a number on, oldest first."""
        return [_event(native) for native in self._channel.events(start)]

    def stalled(self, cause: StallCause) -> None:
        """Note a stall."""
        self._channel.note("stalled", STALL_CAUSES.index(cause))
        self.publish()

    def lost(self, code: int) -> None:
        """Note that the engine is lost."""
        self._channel.note("lost", code=code)
        self.publish()

    async def more(self, start: int) -> bool:
        """
        Wait for an event.

        Args:
            start: The number of the first that is of interest.

        Returns:
            False if there will be none any more.

        Cancellation: Raises at once.
        Source: aiodocadma.
        """
        if self.num_events() > start:
            return True
        if self._ended:
            return False
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        self._want(True)
        await waiter
        return True

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call somebody, in the loop's thread, whenever events were noted."""
        self._watchers.append(watcher)
        self._want(True)

    def publish(self) -> None:
        """Events were noted."""
        waiters, self._waiters = self._waiters, []
        self._want(bool(self._watchers))
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        for watcher in self._watchers:
            watcher()

    def end(self) -> None:
        """Nothing will happen any more."""
        self._ended = True
        self.publish()
