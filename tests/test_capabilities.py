"""Capabilities: complete, frozen, of the opened device, and comparable."""

from __future__ import annotations

import dataclasses
import datetime

import pytest

import aiodocadma
from aiodocadma import Capabilities, emulator
from aiodocadma._library import open_library
from tests.dma.conftest import clean_emulator

__all__ = ["clean_emulator"]


@pytest.mark.rule("R03", "R06", "R16", "R79", "X09")
async def test_the_snapshot_is_complete_and_the_opened_device_s() -> None:
    emulator.add_device("mlx5_0", pci="0000:03:00.0", max_buf_size=4096, max_num_tasks=100)
    emulator.add_device(
        "mlx5_1", pci="0000:04:00.0", max_buf_size=8192, max_buf_list_len=3, max_num_tasks=50, export_pci=False
    )
    before = datetime.datetime.now(datetime.UTC)
    async with aiodocadma.open_dma("mlx5_1") as dma:
        caps = dma.capabilities
    assert before <= caps.queried_at <= datetime.datetime.now(datetime.UTC)
    assert dataclasses.replace(caps, queried_at=before) == Capabilities(
        max_buf_size=8192,
        max_buf_list_len=3,
        max_num_tasks=50,
        export_pci=False,
        create_from_export_pci=True,
        queried_at=before,
        device="0000:04:00.0",
        version=open_library("emulator").version,
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        caps.max_buf_size = 1  # type: ignore[misc]


@pytest.mark.rule("R13", "X08")
def test_listing_asks_each_device_for_all() -> None:
    """Also for what only a context knows; nothing stays open."""
    emulator.add_device("mlx5_0", pci="0000:03:00.0", max_num_tasks=100)
    emulator.add_device("mlx5_1", pci="0000:04:00.0", dma=False)
    first, second = aiodocadma.devices("emulator")
    assert first.capabilities is not None
    assert first.capabilities.max_num_tasks == 100
    assert (second.capabilities, second.dma_supported) == (None, False)
    assert "NOT_SUPPORTED" in str(second.reason)


@pytest.mark.rule("R129")
def test_no_device_is_an_answer() -> None:
    emulator.configure("devices=none")
    assert aiodocadma.devices("emulator") == []


@pytest.mark.parametrize("op", ["dev_open", "dma_create", "dma_cap_get_max_num_tasks"])
def test_a_device_that_cannot_be_opened_now_is_listed(op: str) -> None:
    emulator.inject(emulator.Fault(op, status="DRIVER"))
    (info,) = aiodocadma.devices("emulator")
    assert info.dma_supported
    assert info.capabilities is not None
    assert (info.capabilities.max_num_tasks, info.capabilities.max_buf_size) == (None, 2 << 20)


@pytest.mark.rule("R51")
def test_diff() -> None:
    (before,) = aiodocadma.devices("emulator")
    emulator.configure(max_buf_size=4096, max_num_tasks=9)
    (after,) = aiodocadma.devices("emulator")
    assert before.capabilities is not None
    assert after.capabilities is not None
    assert before.capabilities.diff(after.capabilities) == {
        "max_buf_size": (2 << 20, 4096),
        "max_num_tasks": (65536, 9),
    }
    assert (
        before.capabilities.diff(dataclasses.replace(before.capabilities, queried_at=after.capabilities.queried_at))
        == {}
    )
    other = dataclasses.replace(before.capabilities, device="0000:09:00.0", version="1")
    assert before.capabilities.diff(other) == {
        "device": ("0000:03:00.0", "0000:09:00.0"),
        "version": (before.version, "1"),
    }
