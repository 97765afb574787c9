"""What every test gets: both event loops, the invariants after each test, and no silent skips in CI."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
from collections.abc import Callable, Iterator

import pytest
import uvloop

from aiodocadma import emulator
from tests import blocked

# Reasons for which a test may be skipped on a machine where CI runs. Everything else it must be able to run.
ALLOWED_SKIPS = ("no BlueField", "no system DOCA", "came with Python", "free-threaded Python", "needs root")


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run every async test on asyncio and on uvloop; ``@pytest.mark.asyncio(loop_factories=[...])`` selects."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def pytest_collection_finish() -> None:
    """Keep the thousands of collected tests out of garbage collections: many a test has it run, and measures time."""
    gc.collect()
    gc.freeze()


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if os.environ.get("AIODOCADMA_FAIL_ON_SKIP") and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not any(allowed in reason for allowed in ALLOWED_SKIPS):
            report.outcome = "failed"
            report.longrepr = f"{reason}\n(a skip that is not allowed here: see ALLOWED_SKIPS in tests/conftest.py)"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Turn a skip that this machine could run into a failure, when AIODOCADMA_FAIL_ON_SKIP is set."""
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """The same for a module that skips itself."""
    report = yield
    _refuse_skip(report)
    return report


_failed = False


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note that a test has failed, which may not have come to where it resets the emulator."""
    global _failed
    _failed |= report.failed


def pytest_runtest_setup() -> None:
    """Undo the settings of the emulator that a failed test has left. What is alive of it the plugin has given up."""
    global _failed
    if _failed:
        _failed = False
        with contextlib.suppress(RuntimeError):  # a fixture of a wider scope has a DMA
            emulator.reset()


def pytest_configure() -> None:
    """Take Ctrl-C, which a shell starts jobs in the background without; look at what holds loops up, if asked."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # in child processes as well
    if blocked.SECONDS:
        blocked.watch()


@pytest.fixture
def embedded_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever emulator the tests run on, this test is about the one that comes with the package."""
    monkeypatch.delenv("AIODOCADMA_EMULATOR", raising=False)


class _Errors(logging.Handler):
    """Collects what a loop's exception handler logs."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message, unless it is of tornado's own timers, on which Dask runs and which nobody awaits."""
        kind = record.exc_info[0] if record.exc_info else None
        if kind is None or not kind.__module__.startswith("tornado."):
            self.messages.append(self.format(record))


@pytest.fixture(autouse=True)
def invariants() -> Iterator[None]:
    """
    Check after every test what must hold after every test.

    This is the place for: no task in flight, inventory full, no fd and no thread leaked.
    """
    errors = _Errors()
    logger = logging.getLogger("asyncio")
    logger.addHandler(errors)
    yield
    logger.removeHandler(errors)
    assert not errors.messages, f"the event loop saw an exception: {errors.messages}"
    held_up, blocked.found[:] = blocked.found[:], []
    assert not held_up, held_up
