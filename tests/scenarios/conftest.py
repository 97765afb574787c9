"""
The scenarios' world: each runs in event mode ALL with the strict edge and in SELECTIVE, on asyncio and on uvloop.

A test that takes the fixture ``engine``, or ``child``, also runs on the ``default`` and the ``worker`` engine, and so
do those that hold copies by ``held`` and release them by ``release()``. ``@pytest.mark.matrix(...)`` narrows or widens
that; ``@pytest.mark.diagonal`` is for those that take seconds by their nature: without ``deep``, each value of each
axis runs once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import pytest
import uvloop

import aiodocadma
from aiodocadma import DMA, _library, emulator
from tests.dma.conftest import OPEN_CALLS, turns, until

__all__ = [
    "OPEN_STEPS",
    "Child",
    "Iterations",
    "Mode",
    "Ticker",
    "cpu_time",
    "loop_factory",
    "open_fds",
    "opened",
    "release",
    "release_for_ever",
    "turns",
    "until",
]

MODES = ("all", "selective")
ENGINES = ("default", "worker")
LIMIT = 5  # seconds: a scenario that takes longer hangs
OPEN_STEPS = (*OPEN_CALLS, "add_reader")  # what may fail while a DMA is opened


class Mode(NamedTuple):
    """How the progress engine notifies, and the call that submits a task there."""

    name: str
    library: str
    submit: str


def _modes() -> dict[str, Mode]:
    full = Path(_library.emulator_path())
    # Without doca_pe_set_event_mode(), as in DOCA 2.6, the client gets the default: SELECTIVE.
    return {
        "all": Mode("all", str(full.with_name("libdocaemu.so")), "task_submit_ex"),
        "selective": Mode("selective", str(full.with_name("libdocaemu-2.6.so")), "task_submit"),
    }


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks of this folder."""
    config.addinivalue_line("markers", "matrix(modes=..., engines=...): the axes that this scenario runs on")
    config.addinivalue_line("markers", "diagonal: takes seconds; the full product of the axes is deep")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each scenario its axes."""
    marker = metafunc.definition.get_closest_marker("matrix")
    chosen = marker.kwargs if marker else {}
    metafunc.parametrize("mode", chosen.get("modes", MODES), indirect=True)
    if "engine" in metafunc.fixturenames:
        metafunc.parametrize("engine", chosen.get("engines", ENGINES), indirect=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep of each diagonal scenario asyncio in ALL on the default engine, and uvloop in SELECTIVE by workers."""
    for item in items:
        if item.path.parent == Path(__file__).parent and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(30 if item.get_closest_marker("diagonal") else LIMIT))
        callspec = getattr(item, "callspec", None)
        if callspec is None or not item.get_closest_marker("diagonal"):
            continue
        marker = item.get_closest_marker("matrix")
        axes = {"modes": MODES, "engines": ENGINES, "loops": ("asyncio", "uvloop")}
        axes |= dict.fromkeys(marker.kwargs if marker else (), ())
        words = callspec.id.split("-")
        places = {values.index(word) for values in axes.values() for word in words if word in values}
        if len(places) > 1:
            item.add_marker(pytest.mark.deep)


@pytest.fixture(autouse=True)
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mode]:
    """
    Make one flavour of the emulator the default library, from its defaults and at its strictest.

    Afterwards no object is alive, no fault is unused and no rule of DOCA was broken.
    """
    chosen = _modes()[request.param]
    monkeypatch.setenv(_library.ENVIRONMENT_VARIABLE, chosen.library)
    with emulator.using(chosen.library):
        emulator.reset()
        emulator.configure(strict="report", strict_client=True, edge="strict")
        yield chosen
        live = emulator.live_objects()
        assert emulator.violations() == []
        assert live == type(live)(*[0] * len(live)), live
        assert emulator.faults_pending() == 0
        emulator.reset()


@pytest.fixture
def engine(request: pytest.FixtureRequest, mode: Mode) -> str:
    """Let the emulator execute by itself: inside the progress call where it can, or always in a worker."""
    emulator.configure(engine=request.param)
    return str(request.param)


@pytest.fixture
def held(engine: str) -> Iterator[None]:
    """Withhold every completion until ``release()``; what is still held when the test fails is released."""
    emulator.hold()
    yield
    emulator.hold(False)
    emulator.release()


def release(n: int | None = None) -> int:
    """Let the held engine report n tasks, all unless told, oldest first; how many there were."""
    return emulator.release(n)


async def release_for_ever() -> None:
    """Let the held engine report everything in every turn of the loop."""
    while True:
        release()
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def opened(*args: Any, **options: Any) -> AsyncIterator[DMA]:
    """As ``open_dma()``; when the test fails, what the engine holds is released, so that closing ends."""
    async with aiodocadma.open_dma(*args, **options) as dma:
        try:
            yield dma
            assert dma.statistics().watchdog_hits == 0
        except BaseException:
            timer = asyncio.get_running_loop().call_soon(_release_for_ever, dma)
            await dma.aclose()
            timer.cancel()
            raise


def _release_for_ever(dma: DMA) -> None:
    if dma._native._channel is not None:
        release()
        with contextlib.suppress(RuntimeError):  # no manual engine
            emulator.step(1000)
        dma._loop.call_later(0.01, _release_for_ever, dma)


class Ticker:
    """
    A timer that fires every ``period`` seconds beside the scenario.

    Attributes:
        starved: How late it was at worst; what the loop's thread waited for a processor that others had is left out.
        ticks: How often it fired.
    """

    def __init__(self, period: float) -> None:
        self.period = period
        self.starved = 0.0
        self.ticks = 0

    async def _run(self) -> None:
        while True:
            waited, start = self._not_running(), time.perf_counter()
            await asyncio.sleep(self.period)
            late = time.perf_counter() - start - self.period
            self.starved = max(self.starved, late - (self._not_running() - waited))
            self.ticks += 1

    @staticmethod
    def _not_running() -> float:
        with open("/proc/thread-self/schedstat") as schedstat:
            return int(schedstat.read().split()[1]) / 1e9

    async def __aenter__(self) -> Self:
        self._task = asyncio.ensure_future(self._run())
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(0)
        self._task.cancel()
        await asyncio.wait([self._task])


class Iterations:
    """How often the loop looked for events since this was made: exact on asyncio, its sleeps on uvloop."""

    def __init__(self) -> None:
        selector = getattr(asyncio.get_running_loop(), "_selector", None)
        self._selects = 0
        if selector is not None:
            select = selector.select

            def counting(timeout: float | None = None) -> Any:
                self._selects += 1
                return select(timeout)

            selector.select = counting
        self._exact = selector is not None
        self._sleeps = self._voluntary()

    @staticmethod
    def _voluntary() -> int:
        return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw

    def __call__(self) -> int:
        return self._selects if self._exact else self._voluntary() - self._sleeps


def cpu_time() -> float:
    """Seconds of processor time that this process has used, in all its threads."""
    return time.process_time()


def open_fds() -> int:
    """How many descriptors this process has open, the one used for looking included."""
    return len(os.listdir("/proc/self/fd"))


def loop_factory(kind: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """asyncio's or uvloop's."""
    return uvloop.new_event_loop if kind == "uvloop" else asyncio.new_event_loop


class Child(NamedTuple):
    """How a process ended."""

    code: int
    out: str
    err: str


PREAMBLE = """
import asyncio, gc, os, sys, threading, time
import uvloop
import aiodocadma
from aiodocadma import emulator
using = emulator.using(os.environ["AIODOCADMA_LIBRARY"])
using.__enter__()
emulator.configure(engine="{engine}", strict="report", strict_client=True, edge="strict")
"""


@pytest.fixture
def child(mode: Mode, engine: str) -> Callable[..., Child]:
    """Run a script in a process of its own, on the same flavour of the emulator and the same engine."""

    def run(script: str, *options: str, limit: float = 30) -> Child:
        done = subprocess.run(
            [sys.executable, *options, "-c", PREAMBLE.replace("{engine}", engine) + script],
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return Child(done.returncode, done.stdout, done.stderr)

    return run
