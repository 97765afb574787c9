"""One copy, two copies."""

from __future__ import annotations

import pytest

import aiodocadma
from aiodocadma import emulator
from aiodocadma._counted import counted
from aiodocadma.exceptions import BoundsError
from aiodocadma.selftest import selftest


def test_the_number_chooses() -> None:
    assert [counted(number, "task") for number in (0, 1, 2)] == ["0 tasks", "1 task", "2 tasks"]
    assert [counted(number, "copy", "copies") for number in (0, 1, 2)] == ["0 copies", "1 copy", "2 copies"]


async def test_where_it_is_read() -> None:
    result = await selftest(library="/nonexistent/libdoca_common.so")
    assert " ran 1 check on no device " in result.statement
    emulator.reset()
    async with aiodocadma.open_dma(library="emulator") as dma:
        with pytest.raises(BoundsError, match=r"^dst has 1 byte, but src has 2"):
            await dma.copy(b"ab", bytearray(1))
        map_ = await dma.alloc(1)
        assert repr(map_).startswith("<MemoryMap 1 byte, ")
        await map_.aclose()
