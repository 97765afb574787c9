"""How a number of things is told."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """
    A number with its noun.

    Args:
        number: How many.
        noun: For one of them.
        plural: For none or several; None if that ends in s.

    Returns:
        For example "1 copy" or "2 copies".

    Source: aiodocadma.
    """
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"
