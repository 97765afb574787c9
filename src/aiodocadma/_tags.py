"""A copy's tag in words: it is the caller's object, of any size, and its ``repr()`` and ``str()`` are his code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["in_words"]

MAX_CHARACTERS: Final = 80


def in_words(tag: object, form: Callable[[object], str] = repr) -> str:
    """
    Put a tag into words, for errors and records, which a tag must not keep from being made.

    Args:
        tag: It.
        form: ``str`` or ``repr``.

    Returns:
        At most 80 characters.

    Source: aiodocadma.
    """
    try:
        return form(tag)[:MAX_CHARACTERS]
    except Exception as exc:
        return f"<{type(tag).__name__}, {form.__name__}() of which raises {type(exc).__name__}>"[:MAX_CHARACTERS]
