"""What a failed test has left in the emulator, taken away so that the next one begins clean."""

from __future__ import annotations

import gc
import traceback
import warnings
from collections.abc import Iterable, Iterator
from typing import Final

from aiodocadma import emulator

__all__ = ["abandon", "anything_alive", "let_go"]

_PASSING_NS: Final = 10**9  # virtual time that passes while tasks are in flight


def anything_alive() -> bool:
    """
    Whether there is anything to give up.

    Returns:
        False also where nothing has steered the emulator: it is not loaded for this.

    Source: ``docaemu_live``.
    """
    return emulator._load.cache_info().currsize > 0 and any(emulator.live_objects())


def let_go() -> None:
    """
    Have an emulator that holds back what has ended, or waits to be stepped, let go of it.

    Source: ``docaemu_release``, ``docaemu_step``, ``docaemu_time_advance``.
    """
    emulator.configure("faults=none")
    emulator.hold(False)
    emulator.release()
    emulator.step(2**63)
    if emulator.live_objects().in_flight:
        emulator.time_advance(_PASSING_NS)


def abandon(failures: Iterable[BaseException]) -> None:
    """
    Give up what is alive of tests that failed: a traceback holds the DMA, and the DMA, dropped, closes itself.

    Args:
        failures: The local variables of their frames are gone afterwards.

    Source: aiodocadma.
    """
    if not anything_alive():
        return
    let_go()
    for failure in _all(failures):
        traceback.clear_frames(failure.__traceback__)
        for frame, _ in traceback.walk_tb(failure.__traceback__):
            _ = frame.f_locals  # up to Python 3.12 a copy: pytest has made it, and this has it follow the frame
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # that it was not closed is no news beside the failure
        gc.collect()


def _all(failures: Iterable[BaseException]) -> Iterator[BaseException]:
    """Exceptions with those that they came from, and those that they are a group of."""
    seen: set[int] = set()
    left: list[BaseException | None] = list(failures)
    while left:
        failure = left.pop()
        if failure is not None and id(failure) not in seen:
            seen.add(id(failure))
            yield failure
            left += [failure.__cause__, failure.__context__]
            left += failure.exceptions if isinstance(failure, BaseExceptionGroup) else ()
