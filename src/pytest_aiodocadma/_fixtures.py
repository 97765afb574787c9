"""What the fixtures do. Imported when the first one is used."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from types import ModuleType
from typing import Any, Final, NamedTuple

import pytest

import aiodocadma
from aiodocadma import DMA
from aiodocadma import emulator as control
from aiodocadma._counted import counted
from aiodocadma.exceptions import AiodocadmaError
from aiodocadma.testing import Chaos, Fault
from aiodocadma.testing._abandon import abandon, anything_alive, let_go
from aiodocadma.testing._checks import InvariantError, raise_problems
from aiodocadma.testing._dma import judged_dma

__all__ = ["emulator", "failed", "faults", "need_card", "on_loop_of_test", "opened"]


class Pair(NamedTuple):
    """The two sides of a card, each with a device of its own: what one exports the other can import."""

    host: DMA
    dpu: DMA


LATENCY_NS: Final = 2000  # of virtual time

_failed = pytest.StashKey[bool]()
_chaos = pytest.StashKey[Chaos]()
_failures: Final[list[BaseException]] = []


# ---- which library


def _library(item: pytest.Item) -> str:
    """What the test's DMA is opened on: a test for a card never gets the emulator."""
    chosen = str(item.config.getoption("--doca"))
    return "system" if chosen == "emulator" and item.get_closest_marker("bluefield") else chosen


@functools.cache
def _is_emulator(library: str) -> bool:
    if library in ("emulator", "system"):
        return library == "emulator"
    try:
        with control.using(library):
            control.counters()
    except (OSError, AttributeError):
        return False
    return True


def need_card(config: pytest.Config) -> None:
    """
    Skip a test where no device of a real DOCA can do DMA.

    Args:
        config: Says which library.

    Source: aiodocadma.
    """
    chosen = str(config.getoption("--doca"))
    library = "system" if chosen == "emulator" else chosen
    try:
        able = [device for device in aiodocadma.devices(library) if device.dma_supported]
    except AiodocadmaError as error:
        pytest.skip(f"no BlueField: {str(error).splitlines()[0]}")
    if any(device.emulated for device in able):  # the drop-ins are a system's library, too
        pytest.skip(f"no BlueField: {library} is an emulator")
    if not able:
        pytest.skip(f"no BlueField: {library} lists no device that can do DMA")


# ---- how the test went


def failed(
    item: pytest.Item, report: pytest.TestReport, failure: pytest.ExceptionInfo[BaseException] | None = None
) -> None:
    """
    Note a failure; add to the report how to see it again.

    Args:
        item: The test.
        report: Of one of its phases.
        failure: What was raised, unless another plugin has made a failure of it.

    Source: aiodocadma.
    """
    item.stash[_failed] = True
    if failure is not None:
        _failures.append(failure.value)
    if (chaos := item.stash.get(_chaos, None)) is not None:
        faults = f" and faults={chaos.faults}" if chaos.faults else ""
        report.sections.append(
            (
                "aiodocadma chaos",
                f"This test ran in chaos with seed {chaos.seed}{faults}. The same again:\n"
                f"    pytest {item.nodeid!r} --doca-chaos={chaos.seed}",
            )
        )


def _passed(item: pytest.Item) -> bool:
    return not item.stash.get(_failed, False)


def _its_emulator(item: pytest.Item) -> contextlib.AbstractContextManager[None]:
    library = _library(item)
    return control.using(library) if library != "emulator" and _is_emulator(library) else contextlib.nullcontext()


def let_go_if_failed(item: pytest.Item) -> None:
    """
    Before the fixtures of a failed test end: they must not wait for an emulator that holds a copy back.

    Args:
        item: The test.

    Source: aiodocadma.
    """
    if not _passed(item):
        with _its_emulator(item):
            if anything_alive():
                let_go()


def abandon_failed(item: pytest.Item) -> None:
    """
    Before a test: give up what those that have failed left alive. No debugger looks at their frames any more.

    Args:
        item: The test that comes.

    Source: aiodocadma.
    """
    failures, _failures[:] = _failures[:], []
    if failures:
        with _its_emulator(item):
            abandon(failures)


@contextlib.contextmanager
def _told_plainly() -> Iterator[None]:
    """The message names places in the program; those in the kit are no help."""
    try:
        yield
    except InvariantError as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None


# ---- fixtures


def _item(request: pytest.FixtureRequest) -> pytest.Function:
    item: pytest.Function = request.node
    return item


def _wanted_chaos(item: pytest.Item) -> Chaos | None:
    marker = item.get_closest_marker("doca_chaos")
    option: str | None = item.config.getoption("--doca-chaos")
    if marker is None:
        return None if option is None else _chaos_of(option)
    return _chaos_of(option, *marker.args, **marker.kwargs)


def _chaos_of(option: str | None, seed: int | None = None, faults: int = 0) -> Chaos:
    """What the option asks for, else the marker, with the marker's arguments."""
    chosen = seed if option is None else option
    return Chaos.random(faults) if chosen in (None, "random") else Chaos(int(chosen), faults)


def emulator(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """
    The fixture ``dma_emulator``.

    Args:
        request: Its own.

    Yields:
        The module that steers the emulator.

    Source: aiodocadma.
    """
    item = _item(request)
    library = _library(item)
    if not _is_emulator(library):
        pytest.skip(f"needs the emulator, and this test runs on {library}")
    with contextlib.nullcontext() if library == "emulator" else control.using(library):
        try:
            control.reset()
        except RuntimeError:
            pytest.fail(f"the emulator cannot begin anew, objects are alive in it: {control.live_objects()}")
        # As on a card, no copy is done when copy() returns. Nothing depends on the machine, and nobody reads too early.
        control.configure(engine="late", latency=LATENCY_NS)
        if "dma_pair" in request.fixturenames:
            for device in Pair._fields:
                control.add_device(device)
        for marker in reversed(list(item.iter_markers("doca_emulator"))):
            control.configure(*marker.args, **marker.kwargs)
        if (chaos := _wanted_chaos(item)) is not None:
            item.stash[_chaos] = chaos
            chaos.apply()
        yield control
        broken = [line for line in control.violations() if "in flight" not in line]
        left = control.faults_pending()
        with contextlib.suppress(RuntimeError):  # what is alive was somebody's who tells it
            control.reset()
        problems = [f"a rule of DOCA was broken: {line}" for line in broken]
        if left:
            problems.append(f"{counted(left, 'fault')} of the plan did not fire: no such call was made")
        if _passed(item):
            with _told_plainly():
                raise_problems(problems)


def faults(request: pytest.FixtureRequest) -> Iterator[Callable[..., None]]:
    """
    The fixture ``dma_faults``.

    Args:
        request: Its own.

    Yields:
        A function that injects faults.

    Source: aiodocadma.
    """
    plan: list[Fault] = []

    def inject(*injected: Fault) -> None:
        control.inject(*injected)
        plan.extend(injected)

    yield inject
    if _passed(_item(request)) and (left := control.faults_pending()):
        control.configure("faults=none")
        listed = "\n    ".join(map(repr, plan))
        with _told_plainly():
            raise_problems([f"{counted(left, 'fault')} of the plan did not fire; the plan was\n    {listed}"])


def on_loop_of_test(request: pytest.FixtureRequest, name: str) -> Any:
    """
    Have a fixture set up by the plugin that runs the test, on the loop that the test will run on.

    Args:
        request: Of the public fixture.
        name: Its name.

    Returns:
        The fixture's value.

    Source: aiodocadma.
    """
    if _is_emulator(_library(_item(request))):
        request.getfixturevalue("dma_emulator")
    if "anyio_backend" in request.fixturenames:
        return request.getfixturevalue(f"_aiodocadma_anyio_{name}")
    marker = _item(request).get_closest_marker("asyncio")
    if marker is None:
        pytest.fail(
            f"the fixture {name} needs an async test that pytest-asyncio or anyio's plugin runs: "
            "set asyncio_mode=auto, or mark the test with @pytest.mark.asyncio or @pytest.mark.anyio",
            pytrace=False,
        )
    scope = marker.kwargs.get("loop_scope") or request.config.getini("asyncio_default_test_loop_scope") or "function"
    return request.getfixturevalue(f"_aiodocadma_{scope}_{name}")


@contextlib.asynccontextmanager
async def opened(request: pytest.FixtureRequest) -> AsyncIterator[DMA]:
    """
    The fixture ``dma``, whatever plugin runs it.

    Args:
        request: Of the async fixture.

    Yields:
        The DMA.

    Source: aiodocadma.
    """
    item = _item(request)
    with _told_plainly():
        async with _judged(item, None) as dma:
            yield dma
            item.funcargs.clear()  # they would keep the maps that fixtures have made


@contextlib.asynccontextmanager
async def opened_pair(request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    """
    The fixture ``dma_pair``, whatever plugin runs it.

    Args:
        request: Of the async fixture.

    Yields:
        Both sides.

    Source: aiodocadma.
    """
    item = _item(request)
    request.getfixturevalue("dma_emulator")  # skips without
    with _told_plainly():
        async with _judged(item, "host") as host, _judged(item, "dpu") as dpu:
            yield Pair(host, dpu)
            item.funcargs.clear()


def _judged(item: pytest.Function, device: str | None) -> contextlib.AbstractAsyncContextManager[DMA]:
    sanitize = bool(item.config.getoption("--doca-sanitize") or item.get_closest_marker("doca_sanitize"))
    passed = functools.partial(_passed, item)
    return judged_dma(passed, device, library=_library(item), sanitize=sanitize, judge_maps=True)
