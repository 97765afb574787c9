"""Copies that the CPU would have made for less are counted and told of; they go through the engine all the same."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import aiodocadma
from aiodocadma import DeviceInfo, EventKind, _open, emulator
from aiodocadma._calibration import Calibration, Cost, Curve, _store, crossover_of


@pytest.mark.parametrize("engine", ["default", "worker"])
async def test_short_copies_are_counted_and_told_of_once(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_open, "_crossover_of", lambda device: 1000)
    emulator.configure(engine=engine)
    async with aiodocadma.open_dma() as dma, await dma.alloc(2000) as src, await dma.alloc(2000) as dst:
        events = dma.events()
        submits = emulator.counters().submits
        for length in (1000, 999, 1, 2000):
            assert await dma.copy(src[:length], dst) == length
        assert emulator.counters().submits - submits == 4
        assert dma.statistics().copies_below_crossover == 2
        await dma.aclose()
        told = [event async for event in events if event.kind is EventKind.BELOW_CROSSOVER]
    assert [event.nbytes for event in told] == [999]
    assert "999 bytes" in told[0].text


async def test_on_the_emulator_none_is() -> None:
    async with aiodocadma.open_dma() as dma:
        await dma.copy(b"abc", bytearray(3))
        assert dma.statistics().copies_below_crossover == 0


def test_what_was_measured_on_this_card_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    [listed] = aiodocadma.devices("emulator")
    card: DeviceInfo = dataclasses.replace(listed, emulated=False)
    assumed = crossover_of(card)
    assert assumed > 0
    lengths = (64, 4096)
    cpu = Curve(lengths, (Cost(1e-9, 1e-9), Cost(1e-5, 1e-5)))
    engine = Curve(lengths, (Cost(1e-6, 1e-6), Cost(1e-6, 1e-6)))
    measured = Calibration(cpu, engine, engine, device=card.name)
    _store(measured)
    assert crossover_of(card) == measured.crossover()
    assert 64 < crossover_of(card) < 4096
    _store(dataclasses.replace(measured, device="mlx5_7"))
    assert crossover_of(card) == assumed
    _store(dataclasses.replace(measured, emulated=True))
    assert crossover_of(card) == assumed
