"""
What the open DMAs of a process have done, for Prometheus. Needs the extra ``metrics``.

    prometheus_client.REGISTRY.register(aiodocadma.metrics.Collector())

Nothing is counted here: a scrape reads ``DMA.statistics()``, and between two scrapes nothing runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector as PrometheusCollector

from aiodocadma._dma import DMAState, open_dmas
from aiodocadma._statistics import Latency, Statistics

__all__ = ["Collector"]

_LABELS: Final = ("device", "dma")
# Name, what it says, label and the fields by its values; no label: one field.
_COUNTERS: Final[tuple[tuple[str, str, str | None, dict[str, str]], ...]] = (
    ("copies_started", "Copies that needed the engine.", None, {"": "copies_started"}),
    (
        "copies",
        "Copies that have ended, by how.",
        "outcome",
        {name: f"copies_{name}" for name in ("completed", "failed", "flushed", "cancelled", "abandoned")},
    ),
    (
        "copies_below_crossover",
        "Copies so short that the CPU's own costs less.",
        None,
        {"": "copies_below_crossover"},
    ),
    (
        "tasks",
        "Tasks given to DOCA, replays included, and what became of them.",
        "event",
        {name: f"segments_{name}" for name in ("submitted", "completed", "failed", "flushed", "replayed")},
    ),
    ("bytes", "Bytes that the engine has written.", None, {"": "bytes_completed"}),
    (
        "refusals",
        "Submissions that DOCA refused for lack of room.",
        "code",
        {"AGAIN": "again", "NO_MEMORY": "no_memory"},
    ),
    ("recycles", "Contexts made anew, restarts included.", None, {"": "recycles"}),
    ("restarts", "Contexts made anew after a fault.", None, {"": "restarts"}),
    ("turns", "Turns of the pump.", None, {"": "turns"}),
    ("wakeups", "Times the notification fd was readable.", None, {"": "wakeups"}),
    ("arms", "Notifications requested.", None, {"": "arms"}),
    ("clear_errors", "Times clearing the notification failed.", None, {"": "clear_errors"}),
    ("doorbells", "Flushes of held-back tasks.", None, {"": "doorbells"}),
    ("spins", "Short polls for a completion, by whether one came.", "hit", {"any": "spins", "yes": "spin_hits"}),
    (
        "registrations",
        "Plain buffers of copies, by whether their registration was kept from an earlier one.",
        "cache",
        {"hit": "cache_hits", "miss": "cache_misses"},
    ),
    ("stalls", "Times nothing ended for stall_timeout seconds.", None, {"": "watchdog_hits"}),
)
_GAUGES: Final = (
    ("tasks_in_flight", "Tasks that DOCA holds.", "in_flight"),
    ("tasks_in_flight_peak", "The most tasks that DOCA held at once.", "peak_in_flight"),
    ("copies_waiting", "Copies that wait for room.", "waiting"),
    ("copies_pending", "Copies started and not ended.", "pending"),
    ("cached_bytes", "Bytes of plain buffers that are kept registered.", "cached_bytes"),
    ("buried_bytes", "Bytes of closed maps that are still registered.", "buried_bytes"),
)


class Collector(PrometheusCollector):
    """
    All open DMAs of the process, labelled with their device and a number that tells them apart.

    May be scraped from any thread. The series of a DMA end when it is closed.

    Source: aiodocadma; the Prometheus exposition format.
    """

    def collect(self) -> Iterable[Metric]:
        """
        Read the statistics.

        Returns:
            The metrics, all named ``aiodocadma_...``.

        Source: aiodocadma.
        """
        read = [((dma.device.name, str(dma._number)), dma.statistics(), dma.state) for dma in open_dmas()]
        return [*_counters(read), *_gauges(read), _states(read), _failures(read), _latencies(read)]

    def describe(self) -> Iterable[Metric]:
        """
        Name the metrics, so that a registry notices if another collector has the same.

        Returns:
            The metrics without samples.

        Source: aiodocadma.
        """
        return [*_counters([]), *_gauges([]), _states([]), _failures([]), _latencies([])]


_Read = list[tuple[tuple[str, str], Statistics, DMAState]]


def _counters(read: _Read) -> Iterator[Metric]:
    for name, text, label, fields in _COUNTERS:
        family = CounterMetricFamily(f"aiodocadma_{name}", text, labels=(*_LABELS, *([label] if label else [])))
        for labels, statistics, _ in read:
            for value, field in fields.items():
                family.add_metric((*labels, *([value] if label else [])), getattr(statistics, field))
        yield family


def _gauges(read: _Read) -> Iterator[Metric]:
    for name, text, field in _GAUGES:
        family = GaugeMetricFamily(f"aiodocadma_{name}", text, labels=_LABELS)
        for labels, statistics, _ in read:
            family.add_metric(labels, getattr(statistics, field))
        yield family


def _states(read: _Read) -> Metric:
    family = GaugeMetricFamily("aiodocadma_state", "1 for the state that the DMA is in.", labels=(*_LABELS, "state"))
    for labels, _, now in read:
        for state in DMAState:
            family.add_metric((*labels, state.value), state is now)
    return family


def _failures(read: _Read) -> Metric:
    family = CounterMetricFamily("aiodocadma_failures", "Failed copies by DOCA's code.", labels=(*_LABELS, "code"))
    for labels, statistics, _ in read:
        for code, count in statistics.failed.items():
            family.add_metric((*labels, code), count)
    return family


def _latencies(read: _Read) -> Metric:
    family = HistogramMetricFamily(
        "aiodocadma_copy_latency_seconds", "From start to success; with measure_latency only.", labels=_LABELS
    )
    for labels, statistics, _ in read:
        if statistics.latency is not None:
            family.add_metric(labels, _octaves(statistics.latency), statistics.latency.total)
    return family


def _octaves(latency: Latency) -> list[tuple[str, float]]:
    """Cumulative buckets, one to an octave: a quarter of those that the histogram has."""
    buckets = []
    reached = 0
    for i, (bound, copies) in enumerate(zip(latency.bounds, latency.buckets, strict=True)):
        reached += copies
        if i % 4 == 0 and bound != latency.bounds[-1]:
            buckets.append((repr(bound), float(reached)))
    return [*buckets, ("+Inf", float(reached))]
