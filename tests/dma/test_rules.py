"""Rules of DOCA DMA that hold by the order of the client's calls and by what it asks for."""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import Any

import pytest

import aiodocadma
from aiodocadma import DMA, CopyFuture, emulator
from aiodocadma._causes import Sides
from aiodocadma.exceptions import DocaError
from tests.dma.conftest import OPTIONAL, SUBMIT

# The client's calls in their order: each comes only after the one before it has succeeded.
OPENING = [
    "devinfo_create_list",
    "dma_cap_task_memcpy_get_max_buf_size",
    "dma_cap_task_memcpy_get_max_buf_list_len",
    "dev_open",
    "pe_create",
    "dma_create",
    "dma_cap_get_max_num_tasks",
    "pe_connect_ctx",
    "dma_task_memcpy_set_conf",
    "ctx_start",
    "buf_inventory_create",
]
REGISTERING = ["mmap_create", "mmap_add_dev", "mmap_set_permissions", "mmap_set_memrange", "mmap_start"]
COPYING = ["mmap_start", "dma_task_memcpy_alloc_init", SUBMIT]


@pytest.mark.rule("R02", "R03", "R07", "R24", "R25", "R60", "R74")
@pytest.mark.parametrize(
    ("first", "second"), [*pairwise(OPENING), *pairwise(REGISTERING), *pairwise(COPYING), ("ctx_start", "mmap_create")]
)
async def test_the_order_of_calls(first: str, second: str) -> None:
    """Where the first call fails, the second is not reached; permissions come before the start of the map."""
    emulator.inject(emulator.Fault(first, status="DRIVER"), emulator.Fault(second, status="DRIVER"))
    with pytest.raises(DocaError) as caught:
        async with aiodocadma.open_dma() as dma:
            await dma.copy(b"abc", bytearray(3))
    assert caught.value.call == f"doca_{first.removesuffix('_ex')}"
    # Further ones of the second kind may have been made after the failure, when closing; none before it.
    assert emulator.faults_pending() == 1
    emulator.configure(faults="none")
    del caught


@pytest.mark.rule("R29")
async def test_a_set_up_does_not_change() -> None:
    opening = aiodocadma.open_dma(num_tasks=3)
    async with opening as dma:
        for name in ("device", "capabilities", "emulated", "state"):
            with pytest.raises(AttributeError):
                setattr(dma, name, None)
        with pytest.raises(RuntimeError, match="entered before"):
            await opening.__aenter__()


@pytest.mark.rule("R56", "R57", "R59")
async def test_the_least_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the maps that DOCA has allow: a source nothing but reading, a destination local writing, a peer nothing."""
    seen: list[Sides] = []
    real = DMA._failure

    def failure(self: DMA, future: CopyFuture, *how: Any) -> BaseException:
        sides = self._sides(future)
        assert sides is not None
        seen.append(Sides(*sides))
        return real(self, future, *how)

    monkeypatch.setattr(DMA, "_failure", failure)
    async with aiodocadma.open_dma() as dma, await dma.register(b"abc") as source, await dma.alloc(3) as target:
        for src, dst in ((b"abc", bytearray(3)), (source, target)):
            emulator.inject(emulator.Fault("completion"))
            with pytest.raises(DocaError):
                await dma.copy(src, dst)
    assert [(sides.src_access, sides.dst_access) for sides in seen] == [(0, 1), (0, 1)]


@pytest.mark.rule("R125", "R81")
async def test_two_logs(caplog: pytest.LogCaptureFixture) -> None:
    """DOCA's own log is kept from the first call on, and does not run into the client's."""
    with caplog.at_level(logging.DEBUG):
        async with aiodocadma.open_dma() as dma:
            emulator.inject(emulator.Fault("completion", status="DRIVER"))
            with pytest.raises(DocaError) as caught:
                await dma.copy(b"abc", bytearray(3))
    assert caught.value.evidence is not None
    lines = caught.value.evidence["checked"]["sdk_log"]["lines"]
    assert bool(lines) == OPTIONAL["doca_log_backend_create_with_file_sdk"]
    assert not [line for line in lines if line in caplog.text]
    del caught
