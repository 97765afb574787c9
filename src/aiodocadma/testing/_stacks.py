"""Where the program was: stacks that are cheap to take and hold only the program's own lines."""

from __future__ import annotations

import asyncio
import linecache
import sys
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

__all__ = ["Stack", "here", "waiting"]

_LIMIT: Final = 6
_BETWEEN: Final = ("aiodocadma", "contextlib", "pytest_aiodocadma")  # passed over
_RUNNERS: Final = ("_pytest", "anyio", "asyncio", "pluggy", "pytest_asyncio", "uvloop")  # what called the program


class Stack(NamedTuple):
    """Lines of a program, the innermost last."""

    lines: tuple[tuple[CodeType, int], ...]

    def __str__(self) -> str:
        if not self.lines:
            return "    (no line of the program)"
        text = []
        for code, number in self.lines:
            text.append(f'    File "{code.co_filename}", line {number}, in {code.co_qualname}')
            if line := linecache.getline(code.co_filename, number).strip():
                text.append(f"      {line}")
        return "\n".join(text)


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def here() -> Stack:
    """
    Where the caller was called from.

    Returns:
        The innermost lines of the program.

    Source: aiodocadma.
    """
    lines: list[tuple[CodeType, int]] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(lines) < _LIMIT:
        package = _package(frame)
        if package in _RUNNERS and lines:
            break
        if package not in _BETWEEN + _RUNNERS:
            lines.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return Stack(tuple(reversed(lines)))


def waiting(task: asyncio.Task[Any]) -> Stack:
    """
    Where a task is suspended.

    Args:
        task: Of the running loop.

    Returns:
        The innermost lines of the program.

    Source: aiodocadma.
    """
    lines: list[tuple[CodeType, int]] = []
    coroutine: Any = task.get_coro()
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        if _package(frame) not in _BETWEEN + _RUNNERS:
            lines.append((frame.f_code, frame.f_lineno))
        coroutine = coroutine.cr_await
    return Stack(tuple(lines[-_LIMIT:]))
