"""OpenTelemetry's own SDK, exporting to memory, holds a span for each copy, linked to the caller's."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import aiodocadma
from aiodocadma import emulator, tracing
from aiodocadma.exceptions import DocaIoFailedError
from tests.dma.conftest import turns, until


class Telemetry:
    """The SDK with an exporter that keeps what it gets."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("the application")

    def copies(self) -> list[ReadableSpan]:
        """The spans of copies that have ended."""
        return [span for span in self.exporter.get_finished_spans() if span.name == "aiodocadma.copy"]


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry()


async def test_children_of_the_callers_span(telemetry: Telemetry) -> None:
    async with aiodocadma.open_dma() as dma:
        tracing.trace(dma, telemetry.provider)

        async def work(name: str) -> None:
            with telemetry.tracer.start_as_current_span(name):
                await dma.copy(b"abc", bytearray(3), tag=name)
                await dma.copy(bytes(500_000), bytearray(500_000))

        await asyncio.gather(work("a"), work("b"))
        await turns()
    parents = {span.name: span for span in telemetry.exporter.get_finished_spans() if span.name in "ab"}
    copies = telemetry.copies()
    assert len(copies) == 4
    for name, parent in parents.items():
        children = [
            span for span in copies if span.parent is not None and span.parent.span_id == parent.context.span_id
        ]
        assert len(children) == 2
        assert all(child.context.trace_id == parent.context.trace_id for child in children)
        tagged = next(span for span in children if "aiodocadma.tag" in span.attributes)
        assert tagged.attributes == {
            "aiodocadma.device": "mlx5_0",
            "aiodocadma.emulated": True,
            "aiodocadma.nbytes": 3,
            "aiodocadma.tag": name,
        }
        assert tagged.status.status_code is StatusCode.UNSET


async def test_a_span_lasts_as_long_as_its_copy(telemetry: Telemetry, held_dma: aiodocadma.DMA) -> None:
    tracing.trace(held_dma, telemetry.provider)
    future = held_dma.copy(b"abc", bytearray(3))
    await asyncio.sleep(0.02)
    assert telemetry.copies() == []
    emulator.step()
    await future
    await until(telemetry.copies, "the span")
    (span,) = telemetry.copies()
    assert span.end_time - span.start_time > 10_000_000


async def test_failed_and_cancelled(telemetry: Telemetry, held_dma: aiodocadma.DMA) -> None:
    tracing.trace(held_dma, telemetry.provider)
    failing = held_dma.copy(b"abc", bytearray(3))
    held_dma._turn()
    assert emulator.complete(emulator.last_copies()[0].dst, code=17, fatal=False)
    with pytest.raises(DocaIoFailedError):
        await failing
    cancelled = held_dma.copy(b"abc", bytearray(3))
    await turns()
    cancelled.cancel()
    emulator.step()
    await asyncio.wait([cancelled])
    await until(lambda: len(telemetry.copies()) == 2, "the spans")
    failed_span, cancelled_span = telemetry.copies()
    assert failed_span.status.status_code is StatusCode.ERROR
    assert failed_span.attributes["aiodocadma.error_code"] == "DOCA_ERROR_IO_FAILED"
    (event,) = failed_span.events
    assert event.attributes["exception.type"].endswith("DocaIoFailedError")
    assert cancelled_span.status.status_code is StatusCode.UNSET
    assert cancelled_span.attributes["aiodocadma.cancelled"] is True


async def test_a_failure_that_nobody_retrieves_is_still_reported(telemetry: Telemetry) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    emulator.inject(emulator.Fault("completion"))
    async with aiodocadma.open_dma() as dma:
        tracing.trace(dma, telemetry.provider)
        future = dma.copy(b"abc", bytearray(3))
        await until(telemetry.copies, "the span")
        del future
        await until(lambda: reported, "the report")
    asyncio.get_running_loop().set_exception_handler(None)
    assert "never retrieved" in reported[0]["message"]


async def test_stopped(telemetry: Telemetry) -> None:
    async with aiodocadma.open_dma() as dma:
        stop = tracing.trace(dma, telemetry.provider)
        await dma.copy(b"abc", bytearray(3))
        stop()
        await dma.copy(b"abc", bytearray(3))
        await turns()
    assert len(telemetry.copies()) == 1
