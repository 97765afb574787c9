"""The goals, and how each is measured. A row of the table is one figure with its bar."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from benchmarks import _times
from benchmarks._bodies import WIDTHS, Bench, new_loop, opened, set_engine
from benchmarks._counts import slopes, syscalls
from benchmarks._peers import build

LOOPS = ("asyncio", "uvloop")
SLACK = 1.03  # of a gate
# Of a goal that is not met, what has been reached: a gate that it does not get worse.
REACHED: dict[tuple[str, str], float] = {
    ("P2", "one by one / futures"): 1.12,
    ("P10", "per copy, 100,000 / 10 waiting"): 1.25,
}

Result = TypeVar("Result")


@dataclass
class Row:
    """
    One figure of a goal.

    Args:
        goal: P1 to P11.
        what: What is measured, in a few words; with goal and where it names the row in a record.
        where: Loop and engine.
        measured: The client's figure.
        peer: What it is compared with; None if the bar is absolute.
        value: What the bar is for: a ratio, or the figure itself.
        sense: ``<=`` or ``>=``.
        bar: The goal.
        counted: Whether it is a count, and not a time.
        gated: Whether it is a gate: it repeats from run to run.
        spread: Lowest and highest ratio of the rounds.
    """

    goal: str
    what: str
    where: str
    measured: float
    peer: float | None
    value: float
    sense: Literal["<=", ">="]
    bar: float
    counted: bool = False
    gated: bool = True
    spread: tuple[float, float] | None = field(default=None)

    @property
    def passed(self) -> bool:
        """Whether the goal is met."""
        return self.value <= self.bar if self.sense == "<=" else self.value >= self.bar

    @property
    def gate(self) -> float:
        """What a gate allows: the goal, or what has been reached where it is not met yet, and some slack."""
        bar = max(self.bar, REACHED.get((self.goal, self.what), 0.0))
        return bar * SLACK

    def record(self) -> dict[str, Any]:
        """As JSON has it."""
        return self.__dict__ | {"passed": self.passed}


def _counted(goal: str, what: str, where: str, measured: float, peer: float, bar: float) -> Row:
    return Row(goal, what, where, measured, peer, measured / peer, "<=", bar, counted=True)


def _timed(goal: str, what: str, where: str, ratios: _times.Ratios, sense: Literal["<=", ">="], bar: float) -> Row:
    measured, peer = statistics.median(ratios.measured), statistics.median(ratios.peer)
    spread = min(ratios.ratios), max(ratios.ratios)
    return Row(goal, what, where, measured, peer, ratios.ratio, sense, bar, spread=spread)


# ---- counts


def instructions(loop: str) -> Iterator[Row]:
    """P1, P2, P3 and P10, by callgrind."""
    each, many = (1000, 3048), (10_000, 20_000)
    cost = slopes(loop, "default", {"slices": each, "copies": each, "poll_loop": many, "copy_many": many})
    yield _counted("P1", "await copy(4 KiB) / slice", loop, cost["copies"], cost["slices"], 1.0)
    yield _counted("P3", "copy_many / C poll loop", loop, cost["copy_many"], cost["poll_loop"], 1.10)

    batch = (1000, 2000)
    queued = {"copies_gather": batch, "copies_tasks": batch}
    waits = {"waiting_1": (50, 100), "waiting_10": (50, 100), "waiting_1000": (1, 2), "waiting_100000": (0, 1)}
    floors = {"futures_each": batch, "futures_gather": batch, "futures_tasks": batch}
    cost = slopes(loop, "queue", floors | queued | waits) | slopes(loop, "halves", {"copies_each": batch})
    yield _counted("P2", "one by one / futures", loop, cost["copies_each"], cost["futures_each"], 1.1)
    yield from _queue(loop, cost, cost)
    # Whether a thread has finished a task when the loop looks is a matter of luck, which gather levels out.
    for row in _queue(f"{loop}, worker", slopes(loop, "worker", queued | waits), cost):
        row.gated = "gather" in row.what
        if "/ 10 waiting" not in row.what:  # a round of ten is all luck
            yield row


def _queue(where: str, cost: dict[str, float], floor: dict[str, float]) -> Iterator[Row]:
    yield _counted("P2", "gather of 1,000 / futures", where, cost["copies_gather"], floor["futures_gather"], 1.1)
    yield _counted("P2", "64 tasks / futures", where, cost["copies_tasks"], floor["futures_tasks"], 1.15)
    # What a round costs whatever its width is left out.
    per_copy = {width: (cost[f"waiting_{width}"] - cost["waiting_1"]) / (width - 1) for width in WIDTHS}
    for few in WIDTHS[:-1]:
        what = f"per copy, 100,000 / {few:,} waiting"
        yield _counted("P10", what, where, per_copy[WIDTHS[-1]], per_copy[few], 1.1)


def quiet(loop: str, engine: str) -> Iterator[Row]:
    """P9: idle CPU, system calls, wake-ups."""
    where = loop if engine == "default" else f"{loop}, {engine}"
    calls = syscalls(loop, "queue" if engine == "default" else engine, "copies_gather", 10_000, 110_000)
    what = "system calls per copy, fan-out"
    yield Row("P9", what, where, calls, None, calls, "<=", 0.01, counted=True, gated=engine == "default")


async def quiet_times(bench: Bench, where: str) -> list[Row]:
    """The rest of P9, in this process."""
    cpu, wakes = await _times.idle_cpu(), await _times.wake_ups(bench)
    return [
        Row("P9", "idle CPU, percent", where, 100 * cpu, None, 100 * cpu, "<=", 0.1, counted=True),
        Row("P9", "wake-ups per 100 completions", where, wakes, None, wakes, "<=", 1.0, counted=True),
    ]


# ---- times


async def _worker_times(bench: Bench, where: str) -> list[Row]:
    ratios = await _times.events_against_c(bench)
    return [_timed("P2", "one by one / C event loop, time", where, ratios, "<=", 1.5)]


async def _times_of(bench: Bench, where: str) -> list[Row]:
    rows = [_timed("P3", "copy_many / C poll loop, copies/s", where, await _times.many_against_poll(bench), ">=", 0.87)]
    for state, neighbour in (("quiet", None), ("busy neighbour", _times.busy_neighbour)):
        for name, part in (("p50", 0.5), ("p99", 0.99)):
            if neighbour is None:
                ratios = await _times.latency_against_to_thread(bench, part)
            else:
                with neighbour():
                    ratios = await _times.latency_against_to_thread(bench, part)
            rows.append(_timed("P4", f"to_thread / copy, {name}, {state}", where, ratios, ">=", 100))
    for what, measure, bar in (
        ("to_thread", _times.fan_out_against_to_thread, 15),
        ("executor", _times.fan_out_against_executor, 1),  # no goal names it
        ("naive binding", _times.fan_out_against_naive, 5),
    ):
        rows.append(_timed("P5", f"10,000 copies/s / {what}", where, await measure(bench), ">=", bar))
    rows.append(
        _timed("P6", "copy beside a busy thread / alone", where, await _times.slow_down_by_thread(bench), "<=", 2)
    )
    return rows


async def _large(where: str) -> list[Row]:
    rates, lags = await _times.large_against_to_thread()
    lag = lags.ratio
    return [
        _timed("P8", "1 GiB / to_thread, GB/s", where, rates, ">=", 1.25),
        Row("P8", "largest lag, ms", where, lag, None, lag, "<=", 1.5, spread=(min(lags.ratios), max(lags.ratios))),
    ]


def memory() -> Iterator[Row]:
    """P7."""
    copy, future, pair = (_times.resident_bytes(what) for what in ("copy", "future", "pair"))
    yield _counted("P7", "bytes per waiting copy / future", "", copy, future, 1.4)
    yield Row("P7", "bytes per copy in copy_many", "", pair, None, pair, "<=", 32, counted=True)


def starting() -> Iterator[Row]:
    """P11."""
    yield _timed("P11", "import aiodocadma / asyncio", "", _times.import_against_asyncio(), "<=", 1.5)
    seconds = run("asyncio", _times.first_copy)
    yield Row("P11", "open_dma to first copy, ms", "asyncio", seconds * 1e3, None, seconds * 1e3, "<=", 5)


def run(loop: str, main: Callable[[], Awaitable[Result]]) -> Result:
    """Run on a loop of that name."""
    with asyncio.Runner(loop_factory=new_loop(loop)) as runner:
        return runner.run(main())  # type: ignore[arg-type]


def _with_bench(loop: str, measure: Callable[[Bench, str], Awaitable[list[Row]]], where: str) -> list[Row]:
    async def main() -> list[Row]:
        async with opened(build()) as bench:
            return await measure(bench, where)

    return run(loop, main)


def _engine(engine: str, rows: Callable[[], list[Row]]) -> list[Row]:
    from aiodocadma import emulator

    set_engine(engine)
    try:
        return rows()
    finally:
        emulator.reset()


def gates() -> Iterator[Row]:
    """What CI holds: the counts."""
    for loop in LOOPS:
        yield from instructions(loop)
        for engine in ("default", "worker"):
            yield from quiet(loop, engine)
            where = loop if engine == "default" else f"{loop}, {engine}"
            yield from _engine(engine, lambda loop=loop, where=where: _with_bench(loop, quiet_times, where))  # type: ignore[misc]


def everything() -> Iterator[Row]:
    """All goals."""
    yield from gates()
    for loop in LOOPS:
        yield from _with_bench(loop, _times_of, loop)
        yield from _engine("worker", lambda loop=loop: _with_bench(loop, _worker_times, f"{loop}, worker"))  # type: ignore[misc]
        yield from run(loop, lambda loop=loop: _large(loop))  # type: ignore[misc]
    yield from memory()
    yield from starting()
