"""The selftest finds what is wrong, by the bytes, and never hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from aiodocadma import emulator, selftest
from aiodocadma._library import open_library
from aiodocadma.doctor import Check
from aiodocadma.emulator import Fault
from aiodocadma.selftest import compare

from .dma.conftest import SUBMIT
from .doctor.test_trees import validate

STEPS = [
    "open",
    "capabilities",
    "permissions",
    "small copy",
    "completion count",
    "wrong cases are rejected",
    "bulk copy",
]
ONCE = 1  # completed task: that of the permissions


@pytest.fixture(autouse=True)
def clean_emulator() -> Iterator[None]:
    """Start from the defaults and leave nothing alive."""
    emulator.reset()
    yield
    live = emulator.live_objects()
    assert live == type(live)(*[0] * len(live)), live
    assert emulator.violations() == []
    emulator.reset()


def statuses(result: selftest.SelftestResult) -> dict[str, str]:
    return {check.name: check.status for check in result.checks}


@pytest.mark.rule("R83", "R112", "R62", "R128")
async def test_all_steps_pass() -> None:
    seen: list[Check] = []
    result = await selftest.selftest(progress=seen.append)
    assert statuses(result) == dict.fromkeys(STEPS, "pass")
    assert list(result.checks) == seen
    assert (result.result, result.opened) == ("pass", True)
    validate(result.record(), "validate")
    counters = emulator.counters()
    assert counters.violations == counters.completions_error == 0
    assert counters.bytes == result.bytes_compared, "every byte that the engine moved was compared"


@pytest.mark.rule("R72")
async def test_caps_are_quoted() -> None:
    emulator.configure(max_buf_size=8192, max_buf_list_len=1)
    result = await selftest.selftest()
    assert "max_buf_size=8192, max_buf_list_len=1" in result.checks[1].details
    assert result.result == "pass"
    assert result.checks[-1].details == f"{2 * 8192 + 4097} bytes in 3 tasks"


@pytest.mark.rule("R112")
async def test_the_full_one_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "_SUSTAINED", 0.05)
    result = await selftest.selftest(full=True)
    assert statuses(result) == dict.fromkeys([*STEPS, "sustained copies"], "pass")
    assert result.bytes_compared > 32 << 20
    assert set(result.measurements) == {"dma_bytes_per_second", "cpu_bytes_per_second"}
    assert all(value > 0 for value in result.measurements.values())
    validate(result.record(), "validate")


@pytest.mark.parametrize(
    ("skip", "step"),
    [
        (0, "permissions"),
        (ONCE, "small copy"),
        (ONCE + 1, "completion count"),
        (ONCE + 40, "completion count"),
        (ONCE + 1 + 64, "bulk copy"),
    ],
)
@pytest.mark.rule("R119")
async def test_success_that_is_none_is_found(skip: int, step: str) -> None:
    """The emulator flips a byte and reports success: only comparing finds that."""
    emulator.inject(Fault("completion", "corrupt", skip=skip))
    result = await selftest.selftest()
    found = statuses(result)
    assert found[step] == "fail"
    at = STEPS.index(step)
    assert [found[name] for name in STEPS[:at]] == ["pass"] * at
    assert [found[name] for name in STEPS[at + 1 :]] == ["skip"] * (len(STEPS) - at - 1)
    check = next(check for check in result.checks if check.name == step)
    assert "; 1 byte wrong" in check.details
    validate(result.record(), "validate")
    assert emulator.faults_pending() == 0


@pytest.mark.parametrize(
    ("fault", "step", "words"),
    [
        (Fault("completion", status="IO_FAILED", skip=ONCE), "small copy", "DOCA_ERROR_IO_FAILED"),
        (Fault("mmap_start", status="NOT_PERMITTED"), "permissions", "DOCA_ERROR_NOT_PERMITTED"),
        (Fault(SUBMIT, status="DRIVER", skip=ONCE), "small copy", "DOCA_ERROR_DRIVER"),
    ],
)
async def test_an_error_fails_its_step(fault: Fault, step: str, words: str) -> None:
    emulator.inject(fault)
    result = await selftest.selftest()
    check = next(check for check in result.checks if check.status == "fail")
    assert (check.name, words in check.details, bool(check.remediation)) == (step, True, True)


async def test_backpressure_is_no_failure() -> None:
    emulator.inject(Fault(SUBMIT, "again", skip=3, count=20))
    emulator.inject(Fault("dma_task_memcpy_alloc_init", status="NO_MEMORY", skip=3))
    assert (await selftest.selftest()).result == "pass"
    assert emulator.faults_pending() == 0


async def test_an_engine_that_is_silent_does_not_hang_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "_STEP_TIMEOUT", 0.1)
    monkeypatch.setattr(selftest, "_DRAIN_TIMEOUT", 0.2)
    emulator.inject(Fault("completion", "hold", skip=ONCE))
    result = await selftest.selftest()
    found = statuses(result)
    assert (found["small copy"], found["bulk copy"], found["close"]) == ("fail", "skip", "fail")
    assert "did not end within" in next(check.details for check in result.checks if check.name == "small copy")
    emulator.release()
    await drained()


async def drained() -> None:
    """Wait until the DMA that was left behind has closed itself."""
    async with asyncio.timeout(20):
        while any(emulator.live_objects()):
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("settings", ["device mlx5_9 dma=0", "devices=none", "fault op=ctx_start status=DRIVER"])
async def test_a_device_that_cannot_be_opened_is_a_result(settings: str) -> None:
    emulator.configure(settings)
    result = await selftest.selftest()
    assert (result.result, result.opened, statuses(result)) == ("fail", False, {"open": "fail"})
    assert "no DOCA opened" in result.statement
    validate(result.record(), "validate")


@pytest.mark.rule("R112")
async def test_the_statement_is_auditable() -> None:
    result = await selftest.selftest()
    for fact in (
        result.started_at,
        "mlx5_0 (0000:03:00.0)",
        f"DOCA {open_library().version or 'of unknown version'}, emulated",
        "7 passed, 0 failed, 0 skipped",
        f"{result.bytes_compared} bytes",
    ):
        assert fact in result.statement
    assert result.statement.count(". ") == 0, "one sentence"
    assert result.record()["x_aiodocadma"]["statement"] == result.statement


def record(*failing: str) -> dict[str, Any]:
    checks = [{"name": name, "status": "fail", "details": "d", "remediation": "r"} for name in failing]
    return {"checks": [{"name": "open", "status": "pass", "details": "", "remediation": None}, *checks]}


@pytest.mark.parametrize(
    ("old", "new", "outcome"),
    [
        (record("a"), record(), "resolved"),
        (record("a"), record("a"), "unchanged"),
        (record(), record(), "unchanged"),
        (record("a"), record("b"), "changed"),
        (record("a"), record("a", "b"), "changed"),
        (record(), record("a"), "changed"),
    ],
)
@pytest.mark.rule("R104")
def test_outcomes(old: dict[str, Any], new: dict[str, Any], outcome: str) -> None:
    assert compare(old, new) == outcome


@pytest.mark.parametrize("value", [[], {}, {"checks": 1}, {"checks": [1]}, "x"])
def test_what_is_no_record_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="not a record of a selftest"):
        compare(value, record())
