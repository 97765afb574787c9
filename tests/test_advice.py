"""Path advice: every row of the table, the crossover, and times against the emulator's virtual time."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import aiodocadma
from aiodocadma import advise, calibrate, emulator
from aiodocadma._calibration import stored_calibration
from aiodocadma.advice import ROWS, Calibration, Cost, Curve, Route


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep calibrations out of the user's home, and out of the other tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "aiodocadma"


@pytest.fixture
def virtual() -> Iterator[None]:
    emulator.reset()
    yield
    emulator.reset()


def curve(fixed: float, per_byte: float = 0.0) -> Curve:
    """A straight line; CPU time is all of the time."""
    return Curve((0, 1024), tuple(Cost(*[fixed + per_byte * length] * 2) for length in (0, 1024)))


# A CPU that copies a byte per tick, an engine that takes 1024 ticks of CPU time, or 5120 with registering. (Powers of
# two: no rounding blurs the crossover.)
TICK = 2.0**-30
KNOWN = Calibration(curve(0, TICK), curve(1024 * TICK), curve(5120 * TICK))

TABLE: list[tuple[dict[str, Any], Route, str]] = [
    # across a network: RDMA, whatever else is asked
    ({"dst": "peer", "peer": "network"}, Route.RDMA, "R18"),
    ({"src": "peer", "peer": "network"}, Route.RDMA, "R18"),
    ({"dst": "peer", "peer": "network", "pattern": "messages"}, Route.RDMA, "R18"),
    ({"dst": "peer", "peer": "network", "chain": ["sha"]}, Route.RDMA, "R18"),
    ({"dst": "peer", "peer": "network", "length": 1 << 30, "registered": True}, Route.RDMA, "R18"),
    # a chain stays in DOCA
    ({"chain": ["sha"]}, Route.CHAIN, "R21"),
    ({"chain": ["sha", "aes", "compress"], "length": 1 << 30, "registered": True}, Route.CHAIN, "R21"),
    ({"chain": ["sha"], "dst": "peer"}, Route.CHAIN, "R21"),
    ({"chain": ["sha"], "pattern": "messages"}, Route.CHAIN, "R21"),
    # messages
    ({"pattern": "messages"}, Route.COMCH, "R20"),
    ({"pattern": "messages", "dst": "peer"}, Route.COMCH, "R20"),
    ({"pattern": "messages", "length": 1 << 30, "registered": True}, Route.COMCH, "R20"),
    # across PCIe: the engine, however short
    ({"dst": "peer"}, Route.DMA, "R17"),
    ({"src": "peer"}, Route.DMA, "R17"),
    ({"src": "peer", "peer": "pci", "length": 1}, Route.DMA, "R17"),
    ({"dst": "peer", "pattern": "once", "length": 1}, Route.DMA, "R17"),
    ({"dst": "peer", "registered": True}, Route.DMA, "R17"),
    # within one machine: by length
    ({"length": 0}, Route.CPU, "R22"),
    ({"length": 1023}, Route.CPU, "R22"),
    ({"length": 1024}, Route.CPU, "R22"),
    ({"length": 1025}, Route.DMA, "R17"),
    ({"length": 1024, "registered": True}, Route.CPU, "R22"),
    ({"length": 1025, "registered": True}, Route.DMA, "R19"),
    ({"length": 1025, "registered": True, "pattern": "once"}, Route.DMA, "R19"),
    # a single copy pays for the registration, too
    ({"length": 1025, "pattern": "once"}, Route.CPU, "R22"),
    ({"length": 5120, "pattern": "once"}, Route.CPU, "R22"),
    ({"length": 5121, "pattern": "once"}, Route.DMA, "R17"),
]


@pytest.mark.parametrize(("asked", "route", "rule"), TABLE)
@pytest.mark.rule("R17", "R18", "R19", "R20", "R21", "R22", "R67", "R68")
def test_the_path_table(asked: dict[str, Any], route: Route, rule: str) -> None:
    arguments = {"src": "local", "dst": "local", "length": 100, "calibration": KNOWN} | asked
    advice = advise(**arguments)
    assert (advice.route, advice.rule) == (route, rule)
    assert advice.use_dma == (route is Route.DMA)
    assert advice.reason


def test_every_row_of_the_table_is_tested() -> None:
    assert {(row.rule, row.route) for row in ROWS} == {(rule, route) for _, route, rule in TABLE}


def test_every_question_has_an_answer() -> None:
    for sides, pattern, chain, registered, length in itertools.product(
        (
            ("local", "local", None),
            ("local", "peer", None),
            ("peer", "local", "pci"),
            ("local", "peer", "network"),
        ),
        ("bulk", "once", "messages"),
        ((), ("sha",)),
        (False, True),
        (0, 1, 1 << 40),
    ):
        src, dst, peer = sides
        advice = advise(src, dst, length, pattern=pattern, peer=peer, chain=chain, registered=registered)  # type: ignore[arg-type]
        assert advice.route in {estimate.route for estimate in advice.estimates}
        assert any(estimate.route is Route.CPU for estimate in advice.estimates) == (src == dst)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"src": "remote"}, "src must be one of local, peer, not 'remote'"),
        ({"dst": "remote"}, "dst must be one of"),
        ({"length": -1}, "length must not be negative"),
        ({"pattern": "stream"}, "pattern must be one of"),
        ({"peer": "usb"}, "peer must be one of"),
        ({"peer": "network"}, "neither src nor dst is 'peer'"),
        ({"src": "peer", "dst": "peer"}, "both 'peer'"),
        ({"chain": "sha"}, "chain must be a list"),
    ],
)
def test_what_does_not_fit_together_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        advise(**{"src": "local", "dst": "local", "length": 1, **arguments})


def test_estimates_are_those_of_the_calibration() -> None:
    costs = dict(advise("local", "local", 3000, calibration=KNOWN).estimates)
    assert costs[Route.CPU] == pytest.approx(Cost(3000 * TICK, 3000 * TICK))
    assert costs[Route.DMA] == Cost(1024 * TICK, 1024 * TICK)
    costs = dict(advise("local", "local", 3000, pattern="once", calibration=KNOWN).estimates)
    assert costs[Route.DMA] == Cost(5120 * TICK, 5120 * TICK)


@pytest.mark.parametrize("network", [False, True])
def test_what_cannot_be_known_is_not_invented(network: bool) -> None:
    advice = advise("local", "peer", 1 << 20, peer="network") if network else advise("local", "local", 1, chain=["sha"])
    assert dict(advice.estimates)[advice.route] is None


# ---- curves and the crossover


def test_a_curve_is_straight_between_its_points() -> None:
    line = Curve((100, 200, 400), (Cost(1, 10), Cost(2, 10), Cost(6, 30)))
    assert [line.at(length).seconds for length in (0, 100, 150, 200, 300, 400, 500)] == [1, 1, 1.5, 2, 4, 6, 8]
    assert line.at(300).cpu_seconds == 20
    assert Curve((1, 2), (Cost(2, 2), Cost(1, 1))).at(1000) == Cost(2, 2)  # noise must not lead below nothing


@pytest.mark.parametrize(
    ("cpu", "dma", "crossover"),
    [
        (curve(0, 1e-9), curve(1e-6), 1001),
        (curve(0, 1e-9), curve(500e-9), 501),
        (curve(0, 1e-9), curve(100e-6), 100_001),  # past the last measured length
        (curve(0, 1e-9), curve(1e-9, 1e-9), None),
        (curve(1e-6, 1e-9), curve(1e-9), 0),
    ],
)
@pytest.mark.rule("R22")
def test_the_crossover(cpu: Curve, dma: Curve, crossover: int | None) -> None:
    found = Calibration(cpu, dma, dma).crossover()
    assert found == crossover if crossover is None else found == pytest.approx(crossover, abs=1)


def test_without_a_crossover_only_the_cpu_is_advised() -> None:
    never = Calibration(curve(0, 1e-9), curve(1e-6, 1e-9), curve(1e-6, 1e-9))
    assert advise("local", "local", 1 << 40, calibration=never).route is Route.CPU


# ---- measuring


@pytest.mark.parametrize("direction", ["push", "pull"])
@pytest.mark.parametrize("profile", ["bf2", "bf3"])
async def test_predicted_and_simulated_time_differ_by_at_most_a_fifth(
    profile: str, direction: str, virtual: None
) -> None:
    emulator.configure(profile=profile, direction=direction)

    def clock() -> float:
        return emulator.time_ns() / 1e9

    lengths = [1, 3, 700, 3000, 5000, 11_000, 30_000, 50_000, 70_000, 100_000, 150_000, 200_000, 230_000, 300_000]
    lengths += [700_000, 2_000_000, 5_000_000, 11_000_000, 33_000_000]  # the last beyond what was measured
    async with aiodocadma.open_dma() as dma:
        calibration = await calibrate(dma, store=False, clock=clock)
        src, dst = await dma.alloc(lengths[-1]), await dma.alloc(lengths[-1])
        for length in lengths:
            start = clock()
            await dma.copy(src[:length], dst[:length])
            simulated = clock() - start
            estimates = dict(advise("local", "local", length, registered=True, calibration=calibration).estimates)
            predicted = estimates[Route.DMA]
            assert predicted is not None
            assert predicted.seconds == pytest.approx(simulated, rel=0.2), length


async def test_calibrate_measures_this_machine_and_stores_it(cache: Path) -> None:
    async with aiodocadma.open_dma() as dma:
        start = time.perf_counter()
        calibration = await calibrate(dma)
        assert time.perf_counter() - start < 30
        assert (calibration.device, calibration.emulated) == (dma.device.name, dma.emulated)
        assert calibration.max_buf_size == dma.capabilities.max_buf_size
        assert dma.statistics().pending == 0
    assert calibration.cpu.at(16 << 20).seconds > 20 * calibration.cpu.at(64).seconds
    assert calibration.registered.at(64).seconds < calibration.unregistered.at(64).seconds
    (name,) = os.listdir(cache)
    assert stat.S_IMODE(os.stat(cache / name).st_mode) == 0o600
    assert stored_calibration() == calibration
    assert advise("local", "local", 100).measured_at == calibration.measured_at


@pytest.mark.rule("R23")
def test_until_then_times_are_assumed_and_said_to_be() -> None:
    advice = advise("local", "local", 100)
    assert (advice.route, advice.measured_at, advice.emulated) == (Route.CPU, None, False)
    assert advise("local", "local", 1 << 20).route is Route.DMA


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"cpu": 1}', json.dumps({"cpu": {"lengths": [1], "costs": [[1, 1]]}})]
)
def test_a_damaged_calibration_is_none(text: str, cache: Path) -> None:
    from aiodocadma._calibration import _store, _store_path

    _store(KNOWN)
    assert stored_calibration() == KNOWN
    _store_path().write_text(text)
    assert stored_calibration() is None
    assert advise("local", "local", 1).measured_at is None


def test_a_calibration_survives_json() -> None:
    known = dataclasses.replace(KNOWN, device="mlx5_0", measured_at="2026-01-01T00:00:00+00:00")
    assert Calibration.from_record(json.loads(json.dumps(known.record()))) == known
