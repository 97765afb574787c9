"""
The pytest plugin of aiodocadma: options, markers and fixtures. ``docs/how-to/test-without-a-card.md`` describes them.

pytest loads it in every run, so it imports nothing: what fixtures do is in ``_fixtures``, and importing aiodocadma
waits until one of them is used. It is not in the package ``aiodocadma`` because importing a part imports the package.
"""

from __future__ import annotations

import sys

import pytest

__all__: list[str] = []

_MARKERS = (
    "bluefield: needs a card; skipped, with the reason, where there is none",
    "doca_emulator(**settings): settings of the emulator for this test, as emulator.configure() takes them",
    "doca_chaos(seed=None, faults=0): random but repeatable timing, and one task in so many failing",
    "doca_sanitize: red zones around allocated memory, poisoned destinations",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("aiodocadma")
    group.addoption(
        "--doca",
        metavar="LIBRARY",
        default="emulator",
        help="what the fixture dma opens: emulator (the default), system, or the path of a DOCA library",
    )
    group.addoption(
        "--doca-chaos",
        metavar="SEED",
        help="run every test that uses dma on the emulator in chaos, with this seed or with a 'random' one each",
    )
    group.addoption(
        "--doca-sanitize",
        action="store_true",
        help="red zones around allocated memory and poisoned destinations in every test that uses dma",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Check the seed, declare the markers, and fixtures for the plugins that run async tests here."""
    seed = config.getoption("--doca-chaos")
    if seed not in (None, "random") and not (seed.isascii() and seed.isdigit() and 0 < int(seed) < 2**64):
        raise pytest.UsageError(f"--doca-chaos: a seed is random or a number from 1 to 2**64 - 1, not {seed!r}")
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)
    pytest_asyncio = sys.modules.get("pytest_asyncio.plugin")
    if pytest_asyncio is not None and config.pluginmanager.is_registered(pytest_asyncio):
        from pytest_aiodocadma import _asyncio

        config.pluginmanager.register(_asyncio, "aiodocadma-asyncio")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let no test suffer from one that failed before; skip what needs a card where there is none."""
    if (fixtures := sys.modules.get("pytest_aiodocadma._fixtures")) is not None:
        fixtures.abandon_failed(item)
    if item.get_closest_marker("bluefield") is not None:
        from pytest_aiodocadma import _fixtures

        _fixtures.need_card(item.config)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):  # type: ignore[no-untyped-def]
    """Remember that a test failed, for its fixtures; and tell the seed that made it fail."""
    report = yield
    if report.failed:
        from pytest_aiodocadma import _fixtures

        _fixtures.failed(item, report, call.excinfo)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item):  # type: ignore[no-untyped-def]
    """Have the fixtures of a failed test not wait for what it holds back."""
    if (fixtures := sys.modules.get("pytest_aiodocadma._fixtures")) is not None:
        fixtures.let_go_if_failed(item)


@pytest.fixture
def dma_emulator(request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    """Steer the emulator: the module ``aiodocadma.emulator``; afterwards no rule of DOCA was broken."""
    from pytest_aiodocadma import _fixtures

    yield from _fixtures.emulator(request)


@pytest.fixture
def dma_faults(dma_emulator, request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    """Inject faults: ``dma_faults(Fault(...), ...)``; afterwards all of them must have fired."""
    from pytest_aiodocadma import _fixtures

    yield from _fixtures.faults(request)


@pytest.fixture
def dma(request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    """Open a DMA on the emulator, on the test's event loop; afterwards judge what the test did with it."""
    from pytest_aiodocadma import _fixtures

    return _fixtures.on_loop_of_test(request, "dma")


@pytest.fixture
def dma_pair(request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    """Open the two sides of a card on the emulator, as ``dma`` does: ``dma_pair.host`` and ``dma_pair.dpu``."""
    from pytest_aiodocadma import _fixtures

    return _fixtures.on_loop_of_test(request, "dma_pair")


@pytest.fixture
async def _aiodocadma_anyio_dma(request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    from pytest_aiodocadma import _fixtures

    async with _fixtures.opened(request) as opened:
        yield opened


@pytest.fixture
async def _aiodocadma_anyio_dma_pair(request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    from pytest_aiodocadma import _fixtures

    async with _fixtures.opened_pair(request) as opened:
        yield opened
