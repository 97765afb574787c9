"""The offsets of ``copy_many()``: numbers, ranges and buffers of int64, brought to one form."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from aiodocadma._plain import PlainBuffer, memory_of
from aiodocadma.exceptions import BoundsError

__all__ = ["Offsets", "offset_columns"]

Offsets: TypeAlias = Any
"""A number for all pairs, a range, or a one-dimensional buffer of int64, strided or not."""

_INT64: Final = range(-(2**63), 2**63)


def offset_columns(**given: Offsets) -> tuple[int, list[Any]]:
    """
    Find how many pairs there are, and what C takes for each argument.

    Args:
        given: The arguments by name.

    Returns:
        The number of pairs, and for each argument a (start, step) tuple or the buffer.

    Raises:
        TypeError: If an argument is no number, range or buffer.
        BoundsError: If a number is no int64.
        ValueError: If two arguments differ in length.

    Source: aiodocadma.
    """
    columns: list[Any] = []
    view: memoryview | PlainBuffer | None
    counts: dict[str, int] = {}
    for name, value in given.items():
        if isinstance(value, range):
            counts[name], start_and_step = _line(name, value)
            columns.append(start_and_step)
        elif hasattr(value, "__index__") and not getattr(value, "shape", ()):
            number = value.__index__()
            columns.append(_line(name, range(number, number + 1))[1])
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


def _line(name: str, values: range) -> tuple[int, tuple[int, int]]:
    """How many there are, which may be more than ``len()`` can say, with the first and the step."""
    if not values:
        return 0, (0, 0)
    first, last = values[0], values[-1]
    step = values.step if last != first else 0
    for number in (first, last, step):
        if number not in _INT64:
            raise BoundsError(f"{name}: {number} is beyond any memory")
    return 1 if step == 0 else (last - first) // step + 1, (first, step)
