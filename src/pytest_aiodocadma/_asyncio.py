"""The async fixtures as pytest-asyncio wants them: one for each scope that a test's loop can have."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

__all__: list[str] = []


def _define(scope: Any) -> None:
    @pytest_asyncio.fixture(loop_scope=scope, name=f"_aiodocadma_{scope}_dma")
    async def dma(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
        from pytest_aiodocadma import _fixtures

        async with _fixtures.opened(request) as opened:
            yield opened

    @pytest_asyncio.fixture(loop_scope=scope, name=f"_aiodocadma_{scope}_dma_pair")
    async def dma_pair(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
        from pytest_aiodocadma import _fixtures

        async with _fixtures.opened_pair(request) as opened:
            yield opened

    globals()[f"{scope}_dma"], globals()[f"{scope}_dma_pair"] = dma, dma_pair  # where pytest looks for fixtures


for _scope in ("function", "class", "module", "package", "session"):
    _define(_scope)
