"""
Memory of another device as a dmabuf, the form in which the DMA device can get at it.

Written after NVIDIA's documentation of the CUDA driver API; never run with a GPU so far.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterator
from typing import Final

from aiodocadma._plain import PlainBuffer
from aiodocadma.exceptions import AccessError

__all__ = ["open_dmabuf"]

_CUDA_LIBRARY: Final = "libcuda.so.1"
_HANDLE_TYPE_DMA_BUF_FD: Final = 1


@contextlib.contextmanager
def open_dmabuf(plain: PlainBuffer, argument: str) -> Iterator[tuple[int, int]]:
    """
    Get a dmabuf of CUDA memory from the driver.

    Args:
        plain: The memory.
        argument: Its name, for the error.

    Yields:
        The dmabuf's fd, which is closed afterwards, and where in it the memory begins.

    Raises:
        AccessError: If the driver is not there, or refuses.

    Source: ``cuMemGetHandleForAddressRange``.
    """
    import ctypes  # needed where there is CUDA

    try:
        export = ctypes.CDLL(_CUDA_LIBRARY).cuMemGetHandleForAddressRange
    except (OSError, AttributeError) as error:
        raise AccessError(
            f"{argument} is in {plain.device} memory, and the driver that gives out its dmabuf is not there: {error}",
            hint="Copy it to the host's memory first.",
        ) from None
    start = plain.address & -mmap.PAGESIZE
    end = (plain.address + plain.nbytes + mmap.PAGESIZE - 1) & -mmap.PAGESIZE
    fd = ctypes.c_int(-1)
    code = export(
        ctypes.byref(fd),
        ctypes.c_uint64(start),
        ctypes.c_size_t(end - start),
        ctypes.c_int(_HANDLE_TYPE_DMA_BUF_FD),
        ctypes.c_uint64(0),
    )
    if code != 0:
        raise AccessError(
            f"{argument} is in {plain.device} memory, of which the driver gives out no dmabuf: "
            f"cuMemGetHandleForAddressRange failed with {code}",
            hint="Copy it to the host's memory first.",
        )
    try:
        yield fd.value, plain.address - start
    finally:
        os.close(fd.value)
