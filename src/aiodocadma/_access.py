"""What type checkers know of memory: whether the device may write it, and what a copy takes on either side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    import ctypes

    from typing_extensions import Buffer as ReadableBuffer
    from typing_extensions import TypeVar
else:
    from typing import TypeVar

__all__ = ["Access", "AccessT_co", "Destination", "ReadOnly", "ReadWrite", "Source"]

Access: TypeAlias = Literal["read", "write"]
"""What the device may do: read, or read and write."""


class ReadOnly:
    """
    In annotations, of a map or Buffer that can only be a source: ``MemoryMap[ReadOnly]``.

    Source: ``doca_mmap_set_permissions``.
    """


class ReadWrite(ReadOnly):
    """
    In annotations, of a map or Buffer that can be either side: ``MemoryMap[ReadWrite]``, or just ``MemoryMap``.

    Source: ``doca_mmap_set_permissions``.
    """


if TYPE_CHECKING:
    from aiodocadma._fast import Buffer

    AccessT_co = TypeVar("AccessT_co", bound=ReadOnly, covariant=True, default=ReadWrite)

    class _WritableBuffer(Protocol):
        """As typeshed marks buffers that can be written: they can be released, too."""

        def __buffer__(self, flags: int, /) -> memoryview: ...
        def __release_buffer__(self, view: memoryview, /) -> None: ...

    class _Array(Protocol):
        @property
        def __array_interface__(self) -> dict[str, Any]: ...

    class _Tensor(Protocol):
        def __dlpack_device__(self) -> tuple[Any, int]: ...

    class _DeviceArray(Protocol):
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]: ...

    _Part: TypeAlias = ReadableBuffer | _Array | _Tensor | _DeviceArray
    _WritablePart: TypeAlias = (
        Buffer[ReadWrite]
        | _WritableBuffer
        | ctypes.Array[Any]
        | ctypes.Structure
        | ctypes.Union
        | _Array
        | _Tensor
        | _DeviceArray
    )
    Source: TypeAlias = _Part | Sequence[_Part]
    Destination: TypeAlias = _WritablePart | Sequence[_WritablePart]
else:
    # A default for a type variable is known from Python 3.13 on.
    AccessT_co = TypeVar("AccessT_co", bound=ReadOnly, covariant=True)
    Source = Destination = Any
