"""
asyncio-native client for NVIDIA DOCA DMA.

    async with aiodocadma.open_dma() as dma:
        src = await dma.register(b"payload" * 1000)
        dst = await dma.alloc(7000)
        await dma.copy(src, dst)

Where no DOCA is installed, the device is a software emulator behind the same C ABI.
"""

from aiodocadma import exceptions
from aiodocadma._access import ReadOnly, ReadWrite
from aiodocadma._blocks import Blocks
from aiodocadma._devices import Capabilities, DeviceInfo, devices
from aiodocadma._dma import DMA, DMAState
from aiodocadma._events import Event, EventKind, Events, StallCause
from aiodocadma._export import ExportDescriptor
from aiodocadma._future import CopyFuture
from aiodocadma._memory import Buffer, MemoryMap
from aiodocadma._open import open_dma
from aiodocadma._pending import PendingCopy
from aiodocadma._sdk_log import set_sdk_log_level
from aiodocadma._statistics import Latency, Statistics
from aiodocadma._version import __version__
from aiodocadma.advice import Advice, advise, calibrate
from aiodocadma.exceptions import *  # noqa: F403

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
