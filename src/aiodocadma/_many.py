"""The offsets of ``copy_many()``: numbers, ranges and buffers of int64, brought to one form."""

from __future__ import annotations

from typing import Any, TypeAlias

from aiodocadma._plain import PlainBuffer, memory_of

__all__ = ["Offsets", "offset_columns"]

Offsets: TypeAlias = Any
"""A number for all pairs, a range, or a one-dimensional buffer of int64, strided or not."""


def offset_columns(**given: Offsets) -> tuple[int, list[Any]]:
    """
    Find how many pairs there are, and what C takes for each argument.

    Args:
        given: The arguments by name.

    Returns:
        The number of pairs, and for each argument a (start, step) tuple or the buffer.

    Raises:
        TypeError: If an argument is no number, range or buffer.
        ValueError: If two arguments differ in length.

    Source: aiodocadma.
    """
    columns: list[Any] = []
    view: memoryview | PlainBuffer | None
    counts: dict[str, int] = {}
    for name, value in given.items():
        if isinstance(value, range):
            counts[name] = len(value)
            columns.append((value.start, value.step))
        elif hasattr(value, "__index__") and not getattr(value, "shape", ()):
            columns.append((value.__index__(), 0))
        else:
            try:
                view = memory_of(value, name)
            except TypeError:
                view = None
            if not isinstance(view, memoryview):
                raise TypeError(f"{name} must be a number, a range or a buffer of int64, not {type(value).__name__}")
            column: memoryview[Any] = view
            if column.ndim == 1 and not column.c_contiguous and len(column.format) == 1:  # a column of a block table
                column = memoryview(column.tobytes()).cast(column.format)  # type: ignore[call-overload]
            counts[name] = len(column) if column.ndim == 1 else column.nbytes // 8
            columns.append(column)
    if len(set(counts.values())) > 1:
        raise ValueError(
            "different numbers of pairs: " + ", ".join(f"{count} {name}" for name, count in counts.items())
        )
    return next(iter(counts.values()), 1), columns
