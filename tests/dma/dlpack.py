"""A DLPack producer in pure Python: whatever dtype, layout, device and version a test asks for."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

CPU, CUDA, ROCM = 1, 2, 10
BFLOAT = 4
READ_ONLY, IS_COPIED, SUBBYTE_PADDED = 1, 2, 4


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _DELETER)]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", _DELETER),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_DESTRUCTOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_new = ctypes.pythonapi.PyCapsule_New
_new.restype = ctypes.py_object
_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, _DESTRUCTOR]
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes = [ctypes.c_void_p, ctypes.c_char_p]


# A capsule or whoever has taken it over may be the last to need a producer, and calls code of its own: none is freed.
_alive: list[Producer] = []


class Producer:
    """
    Memory that is to be had through DLPack only.

    Args:
        nbytes: Bytes of memory.
        shape: In items; None for one dimension of all.
        strides: In items; None for C-contiguous.
        code: DLPack's type code.
        bits: Of an item.
        lanes: Of an item.
        version: (1, 0), or None for a producer of before versions; it then takes no keywords.
        flags: Of a versioned one.
        device: DLPack's device type.
        byte_offset: Where in the memory the first item is.

    Attributes:
        memory: The bytes.
        deleted: How often the deleter was called.
    """

    def __init__(
        self,
        nbytes: int,
        *,
        shape: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        code: int = BFLOAT,
        bits: int = 16,
        lanes: int = 1,
        version: tuple[int, int] | None = (1, 0),
        flags: int = 0,
        device: int = CPU,
        byte_offset: int = 0,
    ) -> None:
        self.memory = (ctypes.c_uint8 * (nbytes + byte_offset))()
        self.address = ctypes.addressof(self.memory) + byte_offset
        self.deleted = 0
        self.device = device
        self.version = version
        self.shape = list(shape) if shape is not None else [nbytes * 8 // (bits * lanes)]
        size = math.ceil(bits * lanes / 8)
        assert strides is not None or flags & SUBBYTE_PADDED or bits < 8 or math.prod(self.shape) * size <= nbytes
        self._shape = (ctypes.c_int64 * max(1, len(self.shape)))(*self.shape)
        self._strides = (ctypes.c_int64 * len(strides))(*strides) if strides is not None else None
        tensor = _Tensor(
            ctypes.addressof(self.memory), device, 0, len(self.shape), code, bits, lanes, self._shape, None, byte_offset
        )
        if self._strides is not None:
            tensor.strides = self._strides
        self._deleter = _DELETER(self._delete)
        self._managed = (
            _Managed(tensor, None, self._deleter)
            if version is None
            else _Versioned(*version, None, self._deleter, flags, tensor)
        )
        self._name = b"dltensor" if version is None else b"dltensor_versioned"
        self._destructor = _DESTRUCTOR(self._destroy)
        _alive.append(self)

    def _delete(self, _: int) -> None:
        self.deleted += 1

    def _destroy(self, capsule: int) -> None:
        if _is_valid(capsule, self._name):  # not taken over: the capsule's own business
            self.deleted += 1

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0

    def __dlpack__(self, **keywords: Any) -> object:
        if self.version is None and keywords:
            raise TypeError("__dlpack__() takes no keyword arguments")
        return _new(ctypes.addressof(self._managed), self._name, self._destructor)
