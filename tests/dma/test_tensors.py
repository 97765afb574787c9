"""Tensors of torch and buffers of Arrow: deep, since these packages are large."""

from __future__ import annotations

import gc
import warnings
from typing import Any

import pytest

import aiodocadma
from aiodocadma import emulator
from aiodocadma.exceptions import AccessError

pytestmark = [pytest.mark.deep, pytest.mark.filterwarnings("default")]


def dtypes(torch: Any) -> list[Any]:
    """Every dtype that a CPU tensor can have."""
    found = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    return sorted(found, key=str)


async def test_torch_tensors_of_every_dtype() -> None:
    """The engine reads and writes the tensor's own memory."""
    torch = pytest.importorskip("torch", reason="needs torch (the CPU build)")
    tried = 0
    async with aiodocadma.open_dma() as dma:
        for dtype in dtypes(torch):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    src, dst = torch.empty(64, dtype=dtype), torch.empty(64, dtype=dtype)
                except (RuntimeError, NotImplementedError):
                    continue
            nbytes = src.untyped_storage().nbytes()
            bytes_of = [
                torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage(), 0, (nbytes,)) for tensor in (src, dst)
            ]
            bytes_of[0].copy_(torch.arange(nbytes) % 251)
            bytes_of[1].zero_()
            assert await dma.copy(src, dst) == nbytes, dtype
            assert bytes_of[0].equal(bytes_of[1]), dtype
            (copy,) = emulator.last_copies(1)
            assert (copy.src, copy.dst) == (src.data_ptr(), dst.data_ptr())
            tried += 1
    assert tried > 25


async def test_torch_tensors_of_every_layout() -> None:
    torch = pytest.importorskip("torch", reason="needs torch (the CPU build)")
    async with aiodocadma.open_dma() as dma:
        learning = torch.ones(100, requires_grad=True)
        dst = torch.zeros(100)
        assert await dma.copy(learning, dst) == 400
        assert dst.equal(learning.detach())
        assert await dma.copy(torch.full((100,), 7.0), learning) == 400
        assert learning.requires_grad
        assert learning.detach().eq(7).all()
        matrix = torch.arange(100, dtype=torch.float64).reshape(10, 10)
        with pytest.raises(ValueError, match=r"src must be C-contiguous.*copy_many"):
            dma.copy(matrix.T, bytearray(800))
        with pytest.raises(ValueError, match="copy_many"):
            dma.copy(bytes(400), matrix[:, ::2])
        back = bytearray(80)
        assert await dma.copy(matrix[3], back) == 80
        assert torch.frombuffer(back, dtype=torch.float64).equal(matrix[3])
        for lazy in (torch.ones(4, dtype=torch.complex64).conj(), torch.ones(4).to_sparse()):
            with pytest.raises((ValueError, TypeError), match="src"):
                dma.copy(lazy, bytearray(100))
        async with await dma.register(matrix) as registered, await dma.alloc(800) as target:
            offsets = torch.arange(0, 800, 80)
            await dma.copy_many(registered, target, src_offsets=offsets, dst_offsets=offsets.flip(0), lengths=80)
            assert torch.frombuffer(bytearray(target), dtype=torch.float64).reshape(10, 10).equal(matrix.flip(0))
    gc.collect()


async def test_arrow_buffers() -> None:
    arrow = pytest.importorskip("pyarrow", reason="needs pyarrow")
    async with aiodocadma.open_dma() as dma:
        array = arrow.array(range(1000), arrow.int64())
        data = array.buffers()[1]
        room = arrow.allocate_buffer(8000)
        assert room.is_mutable
        assert await dma.copy(data, room) == 8000
        assert room.equals(data)
        assert emulator.last_copies(1)[0].src == data.address
        assert await dma.copy(array, bytearray(8000)) == 8000  # through DLPack
        with pytest.raises(AccessError):
            dma.copy(bytes(8), arrow.py_buffer(b"12345678"))
