"""The options of ``open_dma()``, for those who pass them on."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    import os

    from aiodocadma._engine import OnFlush

__all__ = ["Options"]


class Options(TypedDict, total=False):
    """All keyword arguments of ``aiodocadma.open_dma()``, for type checkers."""

    library: str | os.PathLike[str] | None
    num_tasks: int | None
    window: int | None
    window_bytes: int | None
    on_flush: OnFlush
    max_waiting: int | None
    drain_timeout: float
    stall_timeout: float | None
    spin: float
    evidence_dir: str | os.PathLike[str] | None
    flight_dir: str | os.PathLike[str] | None
    measure_latency: bool
    cache_maps: int
    cache_bytes: int
