"""The two sides of a copy as the caller gives them: Buffers, plain memory, or lists of both."""

from __future__ import annotations

from typing import Any, NamedTuple

from aiodocadma import _native
from aiodocadma._counted import counted
from aiodocadma._memory import Buffer
from aiodocadma._plain import PlainBuffer, view_of
from aiodocadma.exceptions import (
    AccessError,
    AiodocadmaError,
    BoundsError,
    ClosedError,
    InternalError,
    OverlapError,
    WrongLoopError,
)

__all__ = ["Item", "check_items", "items_of", "refusal"]


class Item(NamedTuple):
    """A part of one side: a Buffer, or plain memory to be registered; locked either way; addresses of one space."""

    argument: str
    buffer: Buffer[Any] | None
    plain: PlainBuffer
    writable: bool
    space: int = 0


def items_of(side: Any, argument: str, other: Any = None, *, writable: bool = False) -> list[Item]:
    """
    Lock the memory of one side.

    Args:
        side: A Buffer, an object with the buffer protocol, or a list or tuple of these.
        argument: Its name, for errors.
        other: The other side: two Fortran-contiguous arrays of one shape are copied as they lie.
        writable: Whether the device is to write it.

    Returns:
        Its parts, in order.

    Raises:
        ClosedError: If a map was closed.
        TypeError: If a part has no buffer protocol.
        ValueError: If a part is not contiguous.

    Source: aiodocadma.
    """
    if isinstance(side, list | tuple):
        return [_item(part, f"{argument}[{i}]", None, writable) for i, part in enumerate(side)]
    return [_item(side, argument, other, writable)]


def _item(part: Any, argument: str, other: Any, writable: bool) -> Item:
    buffer = part if isinstance(part, Buffer) else None
    if buffer is not None and buffer.closed:
        raise refusal("map_closed", argument)
    if buffer is not None and buffer.imported:
        plain = PlainBuffer(_native.export(buffer), buffer.address, buffer.nbytes, buffer.readonly)
        return Item(argument, buffer, plain, writable, buffer._space)
    return Item(argument, buffer, view_of(part, argument, other), writable)


def check_items(sources: list[Item], destinations: list[Item]) -> int:
    """
    Refuse what cannot be copied, before anything is registered.

    Args:
        sources: The parts of the source.
        destinations: The parts of the destination.

    Returns:
        The bytes to copy.

    Raises:
        BoundsError: If the destination is too short.
        AccessError: If a part of it is read-only.
        OverlapError: If what is written overlaps what is read, or is written twice.

    Source: DOCA DMA guide, Task Memcpy.
    """
    nbytes = sum(item.plain.nbytes for item in sources)
    room = sum(item.plain.nbytes for item in destinations)
    if nbytes > room:
        raise refusal("bounds", nbytes, room)
    written = []
    left = nbytes
    for item in destinations:
        if item.plain.readonly:
            imported = item.buffer is not None and item.buffer.imported
            raise refusal("remote_access" if imported else "access", item.argument)
        written.append(item._replace(plain=item.plain._replace(nbytes=min(left, item.plain.nbytes))))
        left -= written[-1].plain.nbytes
    if _overlapping(sources, written):
        raise refusal("overlap")
    return nbytes


def _overlapping(sources: list[Item], destinations: list[Item]) -> bool:
    """Whether a destination shares bytes with a source or with another destination."""
    ranges = sorted(
        (item.space, item.plain.address, item.plain.address + item.plain.nbytes, written)
        for written, side in ((False, sources), (True, destinations))
        for item in side
        if item.plain.nbytes
    )
    end_of_any = end_of_written = 0  # of the ranges passed in this address space
    last = 0
    for space, start, end, written in ranges:
        if space != last:
            end_of_any, end_of_written, last = 0, 0, space
        if start < end_of_written or (written and start < end_of_any):
            return True
        end_of_any = max(end_of_any, end)
        if written:
            end_of_written = max(end_of_written, end)
    return False


def refusal(reason: str, *details: Any) -> AiodocadmaError:
    """
    Make the exception for sides that cannot be copied.

    Args:
        reason: ``map_closed``, ``foreign``, ``access``, ``remote_access`` (each with the argument, or the argument and
            an index), ``bounds`` (lengths of source and destination, and the pair's index if there are pairs), ``pair``
            (argument, index, offset, length, bytes there are), ``overlap`` (nothing, or the argument and the pair's
            index).
        details: What belongs to the reason.

    Returns:
        An exception that names the argument and the limit.

    Source: aiodocadma.
    """
    match reason, details:
        case "map_closed", _:
            return ClosedError(f"{_named(*details)} is a closed map")
        case "foreign", _:
            return WrongLoopError(
                f"{_named(*details)} was registered with another DMA",
                hint="Register it with this one. Memory of a card's other side is exported there and imported here.",
            )
        case "access", _:
            return AccessError(
                f"{_named(*details)} is read-only", hint="The destination of a copy must be writable memory."
            )
        case "remote_access", _:
            return AccessError(
                f"{_named(*details)} is a peer's memory, imported for reading",
                hint="To write it, the exporter says export(access='write') and the importer allow_remote_write=True.",
            )
        case "bounds", (src, dst):
            return BoundsError(f"dst has {counted(dst, 'byte')}, but src has {src}")
        case "bounds", (src, dst, index):
            return BoundsError(f"pair {index}: dst has {counted(dst, 'byte')}, but src has {src}")
        case "pair", (side, index, offset, length, nbytes):
            return BoundsError(
                f"pair {index}: {counted(length, 'byte')} at offset {offset} of {side}, which has {nbytes}"
            )
        case "overlap", ():
            return OverlapError("dst overlaps src")
        case "overlap", (_, index):
            return OverlapError(f"pair {index}: dst overlaps src")
    return InternalError(f"refused: {reason} {details}")


def _named(argument: str, index: int | None = None) -> str:
    return argument if index is None else f"{argument}[{index}]"
