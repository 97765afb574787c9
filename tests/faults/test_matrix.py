"""Each kind of fault at each phase: afterwards the library starts again, copies correctly, and leaves no object."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys

import pytest

import aiodocadma
from aiodocadma import emulator
from aiodocadma.exceptions import AiodocadmaError
from tests.dma.conftest import clean_emulator

__all__ = ["clean_emulator"]

# Every call the client makes that can fail, by the phase of a DMA's life. What fails to be destroyed stays: below.
LIST = ["devinfo_create_list", "devinfo_get_pci_addr_str", "devinfo_get_ibdev_name", "devinfo_get_iface_name"]
CAPS = [
    "dma_cap_task_memcpy_is_supported",
    "dma_cap_task_memcpy_get_max_buf_size",
    "dma_cap_task_memcpy_get_max_buf_list_len",
    "dma_cap_get_max_num_tasks",
    "mmap_cap_is_export_pci_supported",
    "mmap_cap_is_create_from_export_pci_supported",
]
OPEN = [
    "dev_open",
    "pe_create",
    "pe_set_event_mode",
    "pe_get_notification_handle",
    "dma_create",
    "pe_connect_ctx",
    "ctx_set_user_data",
    "ctx_set_state_changed_cb",
    "dma_task_memcpy_set_conf",
    "ctx_start",
    "buf_inventory_create",
    "buf_inventory_start",
]
REGISTER = ["mmap_create", "mmap_add_dev", "mmap_set_permissions", "mmap_set_memrange", "mmap_start"]
COPY = [
    "buf_inventory_buf_get_by_args",
    "buf_chain_list",
    "dma_task_memcpy_alloc_init",
    "task_submit_ex",
    "pe_request_notification",
    "pe_clear_notification",
    "completion",
]
STOP = ["ctx_get_state", "ctx_stop"]
LEAK = ["dma_destroy", "mmap_destroy", "buf_inventory_destroy", "pe_destroy", "dev_close"]


async def life() -> None:
    """Everything that a service does with a DMA, in short; whatever fails, the next step is tried."""
    async with aiodocadma.open_dma() as dma:
        for _ in range(3):
            with contextlib.suppress(AiodocadmaError):
                async with await dma.alloc(3000) as src, await dma.alloc(3000) as dst:
                    futures = [dma.copy(src[i * 10 : i * 10 + 10], dst[i * 10 : i * 10 + 10]) for i in range(100)]
                    futures.append(dma.copy([src[1000:1010], src[2000:2010]], dst[1000:1020]))
                    await asyncio.gather(*futures, return_exceptions=True)
                    await dma.drain()


async def good_copy() -> None:
    async with aiodocadma.open_dma() as dma:
        data = bytes(range(256)) * 1000
        dst = bytearray(len(data))
        assert await dma.copy(data, dst) == len(data)
        assert dst == data


@pytest.mark.parametrize("engine", ["default", "worker"])
@pytest.mark.parametrize("skip", [0, 1, 5])
@pytest.mark.parametrize("op", LIST + CAPS + OPEN + REGISTER + COPY + STOP)
async def test_any_call_may_fail(op: str, skip: int, engine: str) -> None:
    for status in ("IO_FAILED", "DRIVER", "AGAIN", "NO_MEMORY"):
        emulator.configure(engine=engine)
        emulator.inject(emulator.Fault(op, status=status, skip=skip))
        with contextlib.suppress(AiodocadmaError):
            await life()
        emulator.configure(faults="none")
        await good_copy()
        assert sum(emulator.live_objects()) == 0, status
        assert emulator.violations() == []


@pytest.mark.parametrize("engine", ["default", "worker"])
@pytest.mark.parametrize(
    "fault",
    [
        "fault op=completion kind=corrupt",
        "fault op=completion fatal=0",
        "fault op=completion skip=50 count=5",
        "fault op=task_submit_ex kind=again interval=3 count=0",
        "fault op=notification kind=late count=0",
        "fault op=notification kind=spurious count=0",
        "slot_lag=3",
        "order=random",
    ],
)
async def test_any_other_kind(fault: str, engine: str) -> None:
    emulator.configure(engine=engine)
    emulator.configure(fault)
    await life()
    emulator.configure("faults=none slot_lag=0 order=fifo")
    await good_copy()
    assert sum(emulator.live_objects()) == 0


@pytest.mark.parametrize("op", LEAK)
def test_what_cannot_be_destroyed_stays_and_harms_nobody(op: str) -> None:
    """In a process of its own: the object that stays is the emulator's to complain about, not ours to fake away."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"""
import asyncio, contextlib
from aiodocadma import emulator
from aiodocadma.exceptions import AiodocadmaError
from tests.faults.test_matrix import good_copy, life
async def main():
    emulator.inject(emulator.Fault({op!r}, status="DRIVER"))
    with contextlib.suppress(AiodocadmaError):
        await life()
    assert emulator.faults_pending() == 0
    left = emulator.live_objects()
    emulator.configure(faults="none")
    await good_copy()
    now = emulator.live_objects()
    assert (now.in_flight, now.bufs, now.tasks) == (0, 0, 0), now
    assert now == left, (left, now)
asyncio.run(main())
""",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
