"""Looking for the causes of failures beside the running loop, once for all failures that need the same answers."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from aiodocadma import _worker
from aiodocadma._causes import Check, Checked, Evidence, checks_for, tell

if TYPE_CHECKING:
    from aiodocadma._native import CopyFuture
    from aiodocadma.exceptions import DocaError

__all__ = ["Examinations"]


class _Search:
    """A failed copy whose exceptions are not complete yet; it is held until then."""

    __slots__ = ("future", "left")

    def __init__(self, future: CopyFuture, left: int) -> None:
        self.future = future
        self.left = left


class Examinations:
    """
    Completes exceptions in a worker thread, at most one for each set of checks; failures meanwhile share its answers.

    Args:
        loop: The DMA's.
        check: Asks, in the worker; it bounds its own time.
        conclude: Called with a future whose exceptions say all they can.
        ended: Called when nothing is looked for any more.

    Source: aiodocadma.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        check: Callable[[Evidence], Checked],
        conclude: Callable[[CopyFuture], None],
        ended: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._check = check
        self._conclude = conclude
        self._ended = ended
        self._searches: dict[tuple[Check, ...], list[tuple[_Search, DocaError, Evidence]]] = {}

    @property
    def running(self) -> bool:
        """Whether something is being looked for."""
        return bool(self._searches)

    def start(self, future: CopyFuture, failures: Sequence[tuple[DocaError, Evidence]]) -> bool:
        """
        Look for the causes of a copy's failures.

        Args:
            future: To be concluded then.
            failures: Its exceptions and what is known of each; each needs a check.

        Returns:
            Whether there is anything to wait for: there is not if no thread can be had.

        Source: aiodocadma.
        """
        search = _Search(future, len(failures))
        for error, evidence in failures:
            checks = checks_for(evidence.code, evidence.phase)
            shared = self._searches.get(checks)
            if shared is not None:
                shared.append((search, error, evidence))
                continue
            try:
                _worker.start(
                    self._loop, functools.partial(self._check, evidence), functools.partial(self._answered, checks)
                )
            except RuntimeError as exc:
                tell(error, evidence._replace(checked=Checked(trouble=str(exc))))
                search.left -= 1
            else:
                self._searches[checks] = [(search, error, evidence)]
        return search.left > 0

    def _answered(self, checks: tuple[Check, ...], checked: Checked | None, exception: BaseException | None) -> None:
        if checked is None:  # a bug of ours: it must not hide the failure
            checked = Checked(trouble=repr(exception))
        try:
            for search, error, evidence in self._searches.pop(checks):
                tell(error, evidence._replace(checked=checked))
                search.left -= 1
                if search.left == 0:
                    self._conclude(search.future)
        finally:
            if not self._searches:
                self._ended()
