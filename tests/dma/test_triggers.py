"""The five triggers of rule R84 with the next step of each, and the two stories of R90."""

from __future__ import annotations

import asyncio
import logging
import re

import pytest

import aiodocadma
from aiodocadma import DMA, emulator
from aiodocadma.exceptions import DocaAgainError, DocaInvalidValueError, DocaNotPermittedError, DocaNotSupportedError
from tests.dma.conftest import SUBMIT, turns


@pytest.mark.rule("R84")
async def test_trigger_1_the_wrong_device() -> None:
    """It says that it cannot, and which one can."""
    emulator.add_device("mlx5_0", pci="0000:03:00.0", dma=False)
    emulator.add_device("mlx5_1", pci="0000:04:00.0")
    with pytest.raises(DocaNotSupportedError) as caught:
        async with aiodocadma.open_dma("mlx5_0"):
            pass
    assert caught.value.cause_name == "device_cannot"
    assert "mlx5_1 (0000:04:00.0)" in str(caught.value.next_step)


@pytest.mark.rule("R84")
async def test_trigger_2_a_bulk_too_large() -> None:
    """It is cut; where the limit has shrunk since, the error says from what to what, and what becomes of later ones."""
    emulator.configure(max_buf_size=4096)
    async with aiodocadma.open_dma() as dma:
        data, dst = bytes(range(256)) * 1000, bytearray(256_000)
        assert await dma.copy(data, dst) == len(data)
        assert dst == data
        emulator.configure(max_buf_size=1024)
        emulator.inject(emulator.Fault(SUBMIT, status="INVALID_VALUE"))
        with pytest.raises(DocaInvalidValueError) as caught:
            await dma.copy(data, dst)
        assert caught.value.cause_name == "length_above_limit"
        assert caught.value.caps_diff == {"max_buf_size": (4096, 1024)}
        assert "cut to the new limit" in str(caught.value.next_step)
        del caught


async def stalled(caplog: pytest.LogCaptureFixture) -> None:
    emulator.configure(engine="manual")
    async with aiodocadma.open_dma(stall_timeout=0.01) as dma:
        with caplog.at_level(logging.WARNING, "aiodocadma"):
            future = dma.copy(b"abc", bytearray(3))
            while dma.statistics().watchdog_hits < 1:
                await asyncio.sleep(0.005)
        emulator.step()
        assert await future == 3


@pytest.mark.rule("R84", "R86")
async def test_trigger_3_no_completion(caplog: pytest.LogCaptureFixture) -> None:
    """What holds it up is named: here the engine, for the context runs and the notification is armed."""
    await stalled(caplog)
    assert "nothing ended for 0.01 s: the engine is silent" in caplog.text
    assert "1 of 256 tasks in flight, 0 copies waiting; context: IDLE to RUNNING" in caplog.text


@pytest.mark.rule("R84")
async def test_trigger_4_unexported_memory_after_a_good_local_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Local copies prove nothing of a peer's memory: the missing export is named, beside what is proven."""
    async with aiodocadma.open_dma() as dma:
        assert await dma.copy(b"abc", bytearray(3)) == 3
        monkeypatch.setattr(DMA, "_sides", lambda self, future: (1 << 20, 0, 1 << 30, 1, 3, True, False))
        emulator.inject(emulator.Fault(SUBMIT, status="NOT_PERMITTED"))
        with pytest.raises(DocaNotPermittedError) as caught:
            await dma.copy(b"abc", bytearray(3))
        assert caught.value.cause_name == "src_not_exported"
        assert "exports it first" in str(caught.value.next_step)
        del caught


@pytest.mark.rule("R84", "R41")
async def test_trigger_5_again() -> None:
    """Backpressure, never seen while anything is in flight; without that it is told, and is the one to submit again."""
    async with aiodocadma.open_dma() as dma:
        emulator.inject(emulator.Fault(SUBMIT, kind="again", skip=3, interval=2, count=10))
        copies = [dma.copy(bytes(100), bytearray(100)) for _ in range(50)]
        assert await asyncio.gather(*copies) == [100] * 50
        emulator.inject(emulator.Fault(SUBMIT, kind="again", count=0))
        with pytest.raises(DocaAgainError) as caught:
            await dma.copy(b"abc", bytearray(3))
        assert caught.value.retriable
        assert caught.value.cause_name == "queue_full"
        emulator.configure(faults="none")
        del caught


@pytest.mark.rule("R90", "R82")
async def test_story_1_submitted_and_no_completion(caplog: pytest.LogCaptureFixture) -> None:
    """It leads to who drives the progress engine: a loop that is held up is named, not the device."""
    emulator.configure(engine="manual")
    async with aiodocadma.open_dma() as dma:
        future = dma.copy(bytes(100), bytearray(100))
        await turns()
        before = emulator.counters().progress_calls
        assert emulator.step() == 1  # the engine is done with it, and nobody has looked yet
        assert (emulator.counters().progress_calls, future.done()) == (before, False)
        assert await future == 100
        assert emulator.counters().progress_calls > before  # the loop's turns drive it, and nothing else
    emulator.reset()
    await stalled(caplog)
    assert "the engine is silent" in caplog.text


@pytest.mark.rule("R90", "R64")
async def test_story_2_not_permitted_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """It leads to the permissions: which side's flag, or that both allow it, with what was proven before."""
    async with aiodocadma.open_dma() as dma:
        emulator.inject(emulator.Fault(SUBMIT, status="NOT_PERMITTED"))
        with pytest.raises(DocaNotPermittedError) as first:
            await dma.copy(b"abc", bytearray(3))
        assert first.value.cause_name == "permissions_hold"
        dma._engine.diagnosis.prove("the imported source")
        emulator.inject(emulator.Fault(SUBMIT, status="NOT_PERMITTED"))
        with pytest.raises(DocaNotPermittedError) as second:
            await dma.copy(b"abc", bytearray(3))
        assert re.search(r"permissions of the imported source proven at \d\d:\d\d:\d\d UTC", str(second.value))
        monkeypatch.setattr(DMA, "_sides", lambda self, future: (1 << 20, 0, 1 << 30, 0, 3))
        emulator.inject(emulator.Fault(SUBMIT, status="NOT_PERMITTED"))
        with pytest.raises(DocaNotPermittedError) as third:
            await dma.copy(b"abc", bytearray(3))
        assert third.value.cause_name == "dst_not_writable"
        del first, second, third
