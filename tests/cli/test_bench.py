"""``aiodocadma bench`` as a process."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import select
import subprocess
from pathlib import Path

import pytest

import aiodocadma
from aiodocadma import emulator
from aiodocadma.cli._bench import WARM_UP, Point, _load, _measure, _sample, crossover, format_size
from aiodocadma.cli._exit import Exit
from aiodocadma.exceptions import DrainTimeoutError

from .conftest import COMMAND, DEADLINE, Run

QUICK = ("--seconds", "0.001", "--sizes", "64", "4K", "--depths", "1", "3")
FIELDS = {
    "format", "command", "version", "mode", "warm_up", "device", "ibdev_name", "library", "emulated", "environment",
    "points", "crossover",
}  # fmt: skip


@pytest.mark.rule("R132")
async def test_the_warm_up_is_not_measured() -> None:
    calls = 0

    async def work() -> None:
        nonlocal calls
        calls += 1

    assert len(await _sample(work, 0)) == calls - WARM_UP


async def test_interrupted_while_the_engine_stands_still() -> None:
    emulator.reset()
    emulator.configure(engine="manual")
    dma = await aiodocadma.open_dma(library="emulator", drain_timeout=0.1).__aenter__()
    task = asyncio.ensure_future(_measure(dma, "throughput", 64, 4, 0.1))
    while dma.statistics().pending < 4:
        await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=5)
    emulator.step(2**63)
    with pytest.raises(DrainTimeoutError):
        await task
    await dma.aclose()
    emulator.reset()
    assert done


@pytest.mark.rule("R133")
@pytest.mark.parametrize("mode", ["throughput", "max-bandwidth", "bulk-latency", "precision-latency"])
def test_json(run: Run, mode: str) -> None:
    result = run("bench", "--json", "--mode", mode, *QUICK)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    record = json.loads(result.stdout)
    assert record.keys() == FIELDS
    assert record["mode"] == mode
    assert record["command"][1:] == ["bench", "--json", "--mode", mode, *QUICK]
    depths = [1] if mode == "precision-latency" else [1, 3]
    assert [(point["size"], point["depth"]) for point in record["points"]] == [
        (size, depth) for size in (64, 4096) for depth in depths
    ]
    for point in record["points"]:
        assert point["copies"] >= 5 * point["depth"]
        assert point["copies_per_second"] == pytest.approx(point["copies"] / point["seconds"])
        assert point["bytes_per_second"] == pytest.approx(point["size"] * point["copies_per_second"])
        assert 0 < point["p50"] <= point["p99"] <= point["seconds"]
        assert point["cpu_seconds"] > 0


def test_text(run: Run) -> None:
    result = run("bench", *QUICK)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    rows = [line.split() for line in lines if line.startswith("  ")]
    assert rows[0][:4] == ["SIZE", "DEPTH", "COPIES/S", "GB/S"]
    assert [row[:2] for row in rows[1:]] == [["64", "1"], ["64", "3"], ["4K", "1"], ["4K", "3"]]
    assert ("say nothing about a card" in result.stdout) == ("the emulator's" in lines[0])


def test_compare(run: Run, tmp_path: Path) -> None:
    before = tmp_path / "before.json"
    before.write_text(run("bench", "--json", *QUICK).stdout)
    record = json.loads(before.read_text())
    for point in record["points"]:
        point["copies_per_second"] = 1.0
    before.write_text(json.dumps(record))
    result = run("bench", "--compare", before, "--seconds", "0.001", "--sizes", "64", "1K", "--depths", "3")
    assert result.returncode == 0, result.stderr
    head, *rows = [line.split() for line in result.stdout.splitlines() if line.startswith("  ")]
    assert head[-1] == "RATIO"
    assert float(rows[0][-1]) == pytest.approx(float(rows[0][2].replace(",", "")), rel=0.01)
    assert rows[1][-1] == "-"  # 1K was not in the record


@pytest.mark.rule("R131")
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"mode": "bulk-latency"}, "its mode is bulk-latency, not throughput"),
        ({"emulated": None}, "such figures do not compare"),
        ({"format": 0}, "another version"),
        ({"points": None}, "not a record"),
    ],
)
def test_what_does_not_compare(run: Run, tmp_path: Path, change: dict[str, object], says: str) -> None:
    before = tmp_path / "before.json"
    record = json.loads(run("bench", "--json", *QUICK).stdout)
    if change == {"emulated": None}:
        change = {"emulated": not record["emulated"]}
    before.write_text(json.dumps(record | change))
    result = run("bench", "--compare", before, *QUICK)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert says in result.stderr
    assert str(before) in result.stderr


@pytest.mark.parametrize(
    "change",
    [
        {"emulated": []},
        {"points": {"size": 64}},
        {"points": [{"size": 64, "depth": 1}]},
        {"points": [{"size": 64, "depth": 1, "p50": 0, "copies_per_second": 0}]},
        {"points": [{"size": 64, "depth": 1, "p50": "x", "copies_per_second": "x"}]},
        {"points": [{"size": [], "depth": 1, "p50": 1, "copies_per_second": 1}]},
    ],
    ids=str,
)
def test_a_record_that_was_damaged(change: dict[str, object], tmp_path: Path) -> None:
    """It is refused before anything is measured, whatever is wrong with it."""
    whole = {
        "format": 1,
        "mode": "throughput",
        "emulated": True,
        "points": [{"size": 64, "depth": 1, "p50": 1e-6, "copies_per_second": 1e6}],
    }
    path = tmp_path / "old.json"
    path.write_text(json.dumps(whole))
    assert list(_load(str(path), "throughput", True)) == [(64, 1)]
    path.write_text(json.dumps(whole | change))
    with pytest.raises(Exit, match="not a record of aiodocadma bench") as caught:
        _load(str(path), "throughput", True)
    assert caught.value.code == 2


def test_no_record(run: Run, tmp_path: Path) -> None:
    result = run("bench", "--compare", tmp_path / "none.json", *QUICK)
    assert result.returncode == 1
    assert "No such file" in result.stderr


def test_no_device(run: Run) -> None:
    result = run("bench", "--device", "no such device", *QUICK)
    assert result.returncode == 3
    assert result.stdout == ""


def on_a_terminal(columns: int) -> str:
    """What the command shows."""
    terminal, stdout = pty.openpty()
    environment = os.environ | {"COLUMNS": str(columns)}
    with subprocess.Popen([*COMMAND, "bench", *QUICK], stdout=stdout, env=environment) as process:
        os.close(stdout)
        shown = b""
        while select.select([terminal], [], [], DEADLINE)[0]:
            try:
                shown += os.read(terminal, 4096)
            except OSError:  # the other end is closed
                break
        assert process.wait(DEADLINE) == 0
    os.close(terminal)
    return shown.decode()


def test_on_a_terminal() -> None:
    shown = on_a_terminal(100)
    assert "COPIES/S" in shown
    assert "\x1b[" in shown  # it moves the cursor: rich's table


def test_on_a_narrow_terminal() -> None:
    """No figure is cut short: lines are broken by the terminal instead."""
    shown = on_a_terminal(40)
    assert "COPIES/S" in shown
    assert "…" not in shown


def _point(size: int, per_copy: float, cpu: float, depth: int = 1) -> Point:
    return Point(size, depth, copies=10, seconds=10 * per_copy, p50=per_copy, p99=per_copy, cpu_seconds=cpu)


def test_crossover() -> None:
    slow, quick = _point(64, 2.0, 1.0), _point(4096, 2.0, 3.0)
    assert crossover([slow, quick]) == 4096
    assert crossover([slow]) is None
    assert crossover([quick]) == 4096
    # The best depth counts, and no size above may be slower.
    assert crossover([slow, _point(64, 0.5, 1.0, depth=8), quick]) == 64
    assert crossover([slow, quick, _point(1 << 20, 9.0, 8.0)]) is None


def test_format_size() -> None:
    assert [format_size(size) for size in (1, 64, 1024, 1536, 4096, 1 << 20, 3 << 30)] == [
        "1", "64", "1K", "1536", "4K", "1M", "3G",
    ]  # fmt: skip
