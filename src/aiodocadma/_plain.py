"""The caller's memory: where an object's bytes are, locked, and whether a device can get at them."""

from __future__ import annotations

import mmap
import re
import sys
import weakref
from typing import Any, Final, NamedTuple

from aiodocadma import _native
from aiodocadma.exceptions import AccessError

__all__ = ["PlainBuffer", "check_pinnable", "memory_of", "view_of"]

# DLPack's numbers of devices whose memory the CPU reaches: the CPU, and pinned host memory of CUDA and ROCm.
_HOST_DEVICES: Final = frozenset({1, 3, 11})
_CUDA: Final = 2

# File systems whose pages a device may write. On any other the kernel must know of each write, and a device tells none.
_PINNABLE: Final = frozenset({"tmpfs", "ramfs", "hugetlbfs"})

_files: weakref.WeakKeyDictionary[mmap.mmap, str | None] = weakref.WeakKeyDictionary()


class PlainBuffer(NamedTuple):
    """
    The caller's memory as the device needs it.

    ``lock`` keeps the export locked while it lives. ``proof``, if there is one, is an object that cannot come to have
    other memory while it lives and is not released. ``device`` names whose memory it is, if not the host's.
    """

    lock: object
    address: int
    nbytes: int
    readonly: bool
    proof: memoryview | bytes | None = None
    device: str | None = None
    root: object = None


def view_of(obj: Any, argument: str, other: Any = None) -> PlainBuffer:
    """
    Lock an object's memory and tell where it is.

    Args:
        obj: Anything with the buffer protocol or DLPack and C-contiguous memory, of any item type and shape.
        argument: The argument's name, for the error.
        other: The other side of the copy: two Fortran-contiguous arrays of one shape are copied as they lie.

    Returns:
        The bytes; their export is held as long as ``lock`` lives.

    Raises:
        AccessError: If it is in the memory of a device that gives no access to it.
        TypeError: If it has neither, or holds Python objects.
        ValueError: If its memory is not contiguous, or is not to be had.

    Source: PEP 688, ``PyObject_GetBuffer``; DLPack; the CUDA array interface.
    """
    memory = memory_of(obj, argument)
    if isinstance(memory, PlainBuffer):
        return memory
    view = memory
    if not view.c_contiguous and not _lie_alike(view, other):
        raise _strided(argument, view.strides, view.shape)
    if "O" in view.format and "O" in re.sub(":[^:]*:", "", view.format):
        raise TypeError(f"{argument} holds references to Python objects, which are no bytes to copy")
    nbytes = view.nbytes
    # A memoryview of a memoryview shares the first one's export, and would let the caller release that.
    lock = _native.export(obj) if isinstance(obj, memoryview) and view.c_contiguous and nbytes else view
    proof = obj if type(obj) is memoryview or type(obj) is bytes else None
    return PlainBuffer(lock, _native.address_of(view) if nbytes else 0, nbytes, view.readonly, proof, None, view.obj)


def memory_of(obj: Any, argument: str) -> memoryview | PlainBuffer:
    """
    Find an object's memory, by the first of these that it has: buffer protocol, CUDA array interface, DLPack.

    Args:
        obj: The object.
        argument: Its name, for the error.

    Returns:
        A view of any layout, or where it is in a device's memory.

    Raises:
        AccessError: If it is in the memory of a device that gives no access to it.
        TypeError: If it has none of them.
        ValueError: If its memory is not to be had.

    Source: PEP 688; the CUDA array interface; DLPack, Python specification.
    """
    try:
        return memoryview(obj)
    except TypeError:
        pass
    except ValueError:
        if not hasattr(obj, "__array_interface__"):
            raise
        # A dtype that the buffer protocol has no letter for, such as datetime64.
        return memoryview(obj.view(f"V{obj.itemsize}"))
    if getattr(obj, "requires_grad", False):
        obj = obj.detach()  # the same memory; a copy is no operation that gradients flow through
    if hasattr(obj, "__cuda_array_interface__"):
        return _cuda_array(obj, argument)
    if hasattr(obj, "__dlpack__"):
        return _tensor(obj, argument)
    raise TypeError(
        f"{argument} must be a MemoryMap, a Buffer or an object with the buffer protocol or DLPack, "
        f"not {type(obj).__name__}"
    )


def _strided(argument: str, strides: object, shape: object) -> ValueError:
    return ValueError(
        f"{argument} must be C-contiguous, but its strides are {strides} for shape {shape}; "
        "copy_many() copies strided layouts by their offsets"
    )


def _tensor(obj: Any, argument: str) -> memoryview | PlainBuffer:
    device, _ = obj.__dlpack_device__()
    try:
        try:
            capsule = obj.__dlpack__(max_version=(1, 0), copy=False)
        except TypeError:  # a producer of before DLPack 1.0
            capsule = obj.__dlpack__()
    except (BufferError, RuntimeError) as error:
        if (view := _torch_bytes(obj)) is not None:
            return memory_of(view, argument)
        raise ValueError(f"{argument} gives no access to its memory: {error}") from None
    tensor = _native.tensor(capsule)
    if int(device) in _HOST_DEVICES:
        return memoryview(tensor)
    if int(device) != _CUDA:
        raise AccessError(
            f"{argument} is in the memory of DLPack device {int(device)}, of which the engine gets no dmabuf",
            hint="Copy it to the host's memory first.",
        )
    if not tensor.contiguous:
        raise _strided(argument, "those of a strided tensor", getattr(obj, "shape", "unknown"))
    return PlainBuffer(tensor, tensor.address, tensor.nbytes, tensor.readonly, None, "CUDA")


def _torch_bytes(obj: Any) -> Any:
    """A tensor of torch as bytes, where torch's own DLPack does not know the dtype; None if that is not the reason."""
    torch: Any = sys.modules.get("torch")  # whoever has a tensor has imported it
    if torch is None or not isinstance(obj, torch.Tensor) or obj.dtype is torch.uint8:
        return None
    if obj.layout is not torch.strided or obj.is_conj() or obj.is_neg() or not obj.is_contiguous():
        return None  # the values, in their order, are not what the memory holds
    storage = obj.untyped_storage()
    start = obj.storage_offset() * obj.element_size()
    length = min(obj.numel() * obj.element_size(), storage.nbytes() - start)  # items may be packed
    return torch.empty(0, dtype=torch.uint8).set_(storage, start, (length,))


def _cuda_array(obj: Any, argument: str) -> PlainBuffer:
    interface = obj.__cuda_array_interface__
    address, readonly = interface["data"]
    shape, strides = interface["shape"], interface.get("strides")
    itemsize = int(interface["typestr"][2:])
    contiguous: list[int] = []
    nbytes = itemsize
    for extent in reversed(shape):
        contiguous.insert(0, nbytes)
        nbytes *= extent
    if strides is not None and nbytes and tuple(strides) != tuple(contiguous):
        raise _strided(argument, strides, shape)
    return PlainBuffer(obj, address or 0, nbytes, bool(readonly), None, "CUDA")


def _lie_alike(view: memoryview, other: Any) -> bool:
    """Whether both are Fortran-contiguous and of one shape: then their bytes correspond."""
    if other is None or not view.f_contiguous:
        return False
    try:
        second = memory_of(other, "")
    except (TypeError, ValueError, BufferError, AccessError):  # no memory, or nobody's to look at
        return False
    return (
        isinstance(second, memoryview)
        and second.f_contiguous
        and second.shape == view.shape
        and second.itemsize == view.itemsize
    )


def check_pinnable(plain: PlainBuffer, argument: str) -> None:
    """
    Refuse a destination whose pages no device may write: a shared mapping of a file.

    Args:
        plain: The destination.
        argument: Its name, for the error.

    Raises:
        AccessError: If it is one.

    Source: Linux, ``mm/gup.c``: long-term pins for writing need pages without dirty tracking.
    """
    root = plain.root
    while not isinstance(root, mmap.mmap):
        base = root.obj if isinstance(root, memoryview) else getattr(root, "base", None)
        if base is None or base is root:
            return
        root = base
    try:
        file = _files[root]
    except KeyError:
        file = _files[root] = _tracked_file(plain.address) if plain.nbytes else None
    if file is not None:
        raise AccessError(
            f"{argument} is a shared mapping of {file}: the kernel refuses to pin such pages for a device that writes, "
            "since it would not see the writes",
            hint="Copy into other memory (anonymous, tmpfs, hugetlbfs) and write that to the file.",
        )


def _tracked_file(address: int) -> str | None:
    """The file and its file system, if the memory is a writable shared mapping of a file that is written back."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            bounds, mode, _, device, _, *name = line.split(maxsplit=5)
            start, _, end = bounds.partition("-")
            if int(start, 16) <= address < int(end, 16):
                break
        else:
            return None
    if mode[1] != "w" or mode[3] != "s" or not name:
        return None
    major, _, minor = device.partition(":")
    number = f"{int(major, 16)}:{int(minor, 16)}"
    with open("/proc/self/mountinfo") as mounts:
        for line in mounts:
            fields = line.split()
            if fields[2] == number:
                kind = fields[fields.index("-") + 1]
                return None if kind in _PINNABLE else f"{name[0].strip()} ({kind})"
    return None  # the kernel's own: memfd, anonymous shared memory
