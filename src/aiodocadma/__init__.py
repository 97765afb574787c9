"""
asyncio-native client for NVIDIA DOCA DMA.

A copy::

    async with aiodocadma.open_dma() as dma:
        src = await dma.register(b"payload" * 1000)
        dst = await dma.alloc(7000)
        await dma.copy(src, dst)

Where no DOCA is installed, the device is a software emulator behind the same C ABI.
"""

import typing as _typing

# _native first: a sub-interpreter is refused before it imports what Python itself cannot always unload there again.
from aiodocadma import _native, exceptions  # noqa: F401
from aiodocadma._access import ReadOnly, ReadWrite
from aiodocadma._blocks import Blocks
from aiodocadma._devices import Capabilities, DeviceInfo, devices
from aiodocadma._dma import DMA, DMAState
from aiodocadma._events import Event, EventKind, Events, StallCause
from aiodocadma._future import CopyFuture
from aiodocadma._memory import Buffer, MemoryMap
from aiodocadma._open import open_dma
from aiodocadma._pending import PendingCopy
from aiodocadma._sdk_log import set_sdk_log_level
from aiodocadma._statistics import Latency, Statistics
from aiodocadma._version import __version__
from aiodocadma.exceptions import *  # noqa: F403

if _typing.TYPE_CHECKING:
    from aiodocadma._export import ExportDescriptor
    from aiodocadma.advice import Advice, advise, calibrate

__all__ = [
    "DMA",
    "Advice",
    "Blocks",
    "Buffer",
    "Capabilities",
    "CopyFuture",
    "DMAState",
    "DeviceInfo",
    "Event",
    "EventKind",
    "Events",
    "ExportDescriptor",
    "Latency",
    "MemoryMap",
    "PendingCopy",
    "ReadOnly",
    "ReadWrite",
    "StallCause",
    "Statistics",
    "__version__",
    "advise",
    "calibrate",
    "devices",
    "open_dma",
    "set_sdk_log_level",
]
__all__ += exceptions.__all__

# What an awaited copy does not need is imported by whoever asks for it first.
_LAZY = {"Advice": "advice", "ExportDescriptor": "_export", "advise": "advice", "calibrate": "advice"}


def __getattr__(name: str) -> _typing.Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
