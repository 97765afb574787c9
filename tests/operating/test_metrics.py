"""A real scrape of the Prometheus text format holds what the DMAs have counted."""

from __future__ import annotations

import asyncio
import itertools
import re
import urllib.request
from collections.abc import Iterator
from typing import Any

import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

import aiodocadma
from aiodocadma import DMA, Statistics, emulator, metrics
from aiodocadma.exceptions import DocaIoFailedError
from tests.dma.conftest import until

Labels = frozenset[tuple[str, str]]


@pytest.fixture
def port() -> Iterator[int]:
    """Where a Prometheus server of the library's own answers, in its own threads."""
    registry = prometheus_client.CollectorRegistry()
    registry.register(metrics.Collector())
    server, thread = prometheus_client.start_http_server(0, "127.0.0.1", registry)
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


async def scrape(port: int) -> dict[str, dict[Labels, float]]:
    """Scrape over HTTP, from another thread, and parse with the library's own parser."""

    def get() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return str(answer.read().decode())

    found: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(await asyncio.to_thread(get)):
        for sample in family.samples:
            labels = frozenset((k, v) for k, v in sample.labels.items() if k != "device")
            assert labels not in found.setdefault(sample.name, {}), f"{sample.name} twice"
            found[sample.name][labels] = sample.value
    return found


def of(dma: DMA, **labels: str) -> Labels:
    return frozenset({"dma": str(dma._number), **labels}.items())


async def fail_one(dma: DMA) -> None:
    emulator.inject(emulator.Fault("completion"))
    with pytest.raises(DocaIoFailedError):
        await dma.copy(b"abcde", bytearray(5))
    await until(lambda: dma.state is aiodocadma.DMAState.RUNNING, "the restart")


async def test_a_scrape(port: int) -> None:
    assert all(not samples for samples in (await scrape(port)).values())
    async with aiodocadma.open_dma(measure_latency=True) as first, aiodocadma.open_dma() as second:
        for _ in range(10):
            await first.copy(bytes(1000), bytearray(1000))
        await second.copy(b"abc", bytearray(3))
        await fail_one(first)
        found = await scrape(port)
        assert found["aiodocadma_copies_total"][of(first, outcome="completed")] == 10
        assert found["aiodocadma_copies_total"][of(first, outcome="failed")] == 1
        assert found["aiodocadma_failures_total"] == {of(first, code="IO_FAILED"): 1}
        assert found["aiodocadma_restarts_total"] == {of(first): 1, of(second): 0}
        assert found["aiodocadma_bytes_total"] == {of(first): 10_000, of(second): 3}
        assert found["aiodocadma_tasks_total"][of(second, event="submitted")] == 1
        assert found["aiodocadma_state"][of(first, state="running")] == 1
        assert sum(found["aiodocadma_state"].values()) == 2
        assert found["aiodocadma_copy_latency_seconds_count"] == {of(first): 10}
        latency = first.statistics().latency
        assert latency is not None
        assert found["aiodocadma_copy_latency_seconds_sum"][of(first)] == pytest.approx(latency.total)
        buckets = found["aiodocadma_copy_latency_seconds_bucket"]
        assert buckets[of(first, le="+Inf")] == 10
        bounds = sorted(float(dict(labels)["le"]) for labels in buckets)
        values = [buckets[of(first, le="+Inf" if bound == float("inf") else repr(bound))] for bound in bounds]
        assert values == sorted(values)
        assert all(b == pytest.approx(2 * a) for a, b in itertools.pairwise(bounds[:-1]))
        for bound, value in zip(bounds[:-1], values, strict=False):
            assert value == sum(n for upper, n in zip(latency.bounds, latency.buckets, strict=True) if upper <= bound)
    assert all(not samples for samples in (await scrape(port)).values())  # closed: the series end


async def test_every_counter_is_exported(port: int) -> None:
    """Each field of Statistics is somewhere in the scrape, with its value."""
    async with aiodocadma.open_dma(measure_latency=True) as dma:
        await fail_one(dma)
        found = await scrape(port)
        exported = {field for *_, fields in metrics._COUNTERS for field in fields.values()}
        exported |= {field for *_, field in metrics._GAUGES}
        assert exported == set(Statistics.__dataclass_fields__) - {"failed", "latency"}
        statistics = dma.statistics()
        for name, _, label, fields in metrics._COUNTERS:
            for value, field in fields.items():
                labels: dict[str, Any] = {label: value} if label else {}
                assert found[f"aiodocadma_{name}_total"][of(dma, **labels)] == getattr(statistics, field), field
        for name, _, field in metrics._GAUGES:
            assert found[f"aiodocadma_{name}"][of(dma)] == getattr(statistics, field), field


async def test_while_dmas_come_and_go(port: int) -> None:
    """Scraped from other threads all the time: nothing is read that has been freed."""
    done = False

    async def keep_scraping() -> int:
        count = 0
        while not done:
            await scrape(port)
            count += 1
        return count

    scraping = [asyncio.ensure_future(keep_scraping()) for _ in range(2)]
    for _ in range(30):
        async with aiodocadma.open_dma() as dma:
            await dma.copy(b"abc", bytearray(3))
    done = True
    assert all(count > 0 for count in await asyncio.gather(*scraping))


def test_registering_twice_is_noticed() -> None:
    registry = prometheus_client.CollectorRegistry()
    registry.register(metrics.Collector())
    with pytest.raises(ValueError, match="Duplicated"):
        registry.register(metrics.Collector())


def test_names_follow_the_conventions() -> None:
    for metric in metrics.Collector().describe():
        assert re.fullmatch(r"aiodocadma_[a-z_]+", metric.name)
        assert metric.documentation.endswith(".")
