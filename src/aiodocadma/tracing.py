"""
A span for each copy, for OpenTelemetry. Needs the extra ``tracing``; the SDK is the application's own.

    aiodocadma.tracing.trace(dma)

A copy's span is a child of the span that was current where ``copy()`` was called. A DMA that is not traced knows
nothing of all this.
"""

from __future__ import annotations

from collections.abc import Callable

from opentelemetry import trace as opentelemetry_trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider

from aiodocadma._dma import DMA
from aiodocadma._native import CopyFuture
from aiodocadma._tags import in_words
from aiodocadma._version import __version__

__all__ = ["trace"]


def trace(dma: DMA, tracer_provider: TracerProvider | None = None) -> Callable[[], None]:
    """
    Make a span ``aiodocadma.copy`` for each copy from now on.

    Its attributes: ``aiodocadma.device``, ``aiodocadma.emulated``, ``aiodocadma.nbytes``, and ``aiodocadma.tag`` if the
    copy has one. A failed copy's span has the status ERROR and the exception, with ``aiodocadma.error_code``; a
    cancelled one ``aiodocadma.cancelled``.

    Args:
        dma: The DMA.
        tracer_provider: The SDK's; None for the global one.

    Returns:
        A function that ends the tracing; copies under way then still get their span's end.

    Source: OpenTelemetry API specification, Tracing.
    """
    tracer = opentelemetry_trace.get_tracer("aiodocadma", __version__, tracer_provider)
    device, emulated = dma.device.name, dma.emulated

    def started(future: CopyFuture) -> None:
        attributes: dict[str, str | int | bool] = {
            "aiodocadma.device": device,
            "aiodocadma.emulated": emulated,
            "aiodocadma.nbytes": future._nbytes,
        }
        if future.tag is not None:
            attributes["aiodocadma.tag"] = in_words(future.tag, str)
        span = tracer.start_span("aiodocadma.copy", kind=SpanKind.CLIENT, attributes=attributes)
        if future.done():
            _end(span, future)
        else:
            future.add_done_callback(lambda future: _end(span, future))

    dma.add_start_callback(started)

    def stop() -> None:
        dma.remove_start_callback(started)

    return stop


def _end(span: Span, future: CopyFuture) -> None:
    failure = future._failure
    if future.cancelled():
        span.set_attribute("aiodocadma.cancelled", True)
    elif failure is not None:
        span.record_exception(failure)
        span.set_status(Status(StatusCode.ERROR, str(failure).partition("\n")[0]))
        if (code := getattr(failure, "name", None)) is not None:
            span.set_attribute("aiodocadma.error_code", str(code))
    span.end()
