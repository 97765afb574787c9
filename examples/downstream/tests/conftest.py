"""A store for each test, on asyncio and on uvloop."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import uvloop

from aiodocadma import DMA
from blockstore import BlockStore


def pytest_asyncio_loop_factories(config, item):
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def store(dma: DMA) -> AsyncIterator[BlockStore]:
    store = await BlockStore.open(dma)
    yield store
    await store.close()
