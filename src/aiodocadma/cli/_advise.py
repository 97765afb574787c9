"""``aiodocadma advise``."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterator
from typing import Any, Final

import aiodocadma
from aiodocadma.advice import Advice, Cost, Route
from aiodocadma.cli._checks import wrapped
from aiodocadma.cli._exit import ExitCode
from aiodocadma.cli._look import format_bytes, table

SOMETHING_ELSE: Final = 3

_NAMES: Final = {
    Route.CPU: "the CPU",
    Route.DMA: "DMA",
    Route.RDMA: "RDMA",
    Route.COMCH: "Comch",
    Route.CHAIN: "the accelerators' own queues",
}


def _record(advice: Advice) -> dict[str, Any]:
    return {
        "route": advice.route.value,
        "use_dma": advice.use_dma,
        "rule": advice.rule,
        "reason": advice.reason,
        "estimates": [
            {
                "route": estimate.route.value,
                "seconds": estimate.cost.seconds if estimate.cost else None,
                "cpu_seconds": estimate.cost.cpu_seconds if estimate.cost else None,
            }
            for estimate in advice.estimates
        ],
        "crossover": advice.crossover,
        "measured_at": advice.measured_at,
        "emulated": advice.emulated,
    }


def _time(seconds: float) -> str:
    for unit, factor in (("us", 1e6), ("ms", 1e3)):
        if seconds * factor < 1000:
            return f"{seconds * factor:.1f} {unit}"
    return f"{seconds:.1f} s"


def _cells(cost: Cost | None) -> tuple[str, str]:
    return (_time(cost.seconds), _time(cost.cpu_seconds)) if cost else ("not known", "not known")


def _lines(advice: Advice) -> Iterator[str]:
    yield from wrapped(f"Use {_NAMES[advice.route]} (rule {advice.rule}): {advice.reason}.")
    yield ""
    rows = [(estimate.route.value.upper(), *_cells(estimate.cost)) for estimate in advice.estimates]
    yield from table(("path", "time", "cpu time"), rows)
    yield ""
    if advice.crossover is None:
        crossover = "DMA saves no CPU time at any length"
    else:
        crossover = f"DMA saves CPU time from {format_bytes(advice.crossover)} on"
    if advice.measured_at is None:
        source = "The times are assumed: 'aiodocadma advise --calibrate' measures them."
    else:
        emulated = ", on the emulator, where the CPU does the engine's work" if advice.emulated else ""
        source = f"Measured {advice.measured_at}{emulated}."
    yield from wrapped(f"Within this machine {crossover}. {source}")


async def _calibrate(args: argparse.Namespace) -> None:
    async with aiodocadma.open_dma(library=args.library) as dma:
        await aiodocadma.calibrate(dma)


def run_advise(args: argparse.Namespace) -> int:
    """
    Print which path a copy should take.

    Args:
        args: ``src``, ``dst``, ``length``, ``pattern``, ``peer``, ``chain``, ``registered``, ``calibrate``,
            ``library``, ``json``.

    Returns:
        0 for DMA, 2 for arguments that do not fit together, 3 for anything else.

    Raises:
        DocaError: If calibrating fails.
        OSError: If its result cannot be stored.

    Source: NVIDIA's published path rules for DOCA DMA.
    """
    if args.calibrate:
        try:
            asyncio.run(_calibrate(args))
        except aiodocadma.LibraryError as error:
            raise aiodocadma.AiodocadmaError(f"cannot calibrate: {error}") from error  # 1, not 3: no verdict
    try:
        advice = aiodocadma.advise(
            args.src,
            args.dst,
            args.length,
            pattern=args.pattern,
            peer=args.peer,
            chain=args.chain,
            registered=args.registered,
        )
    except ValueError as error:
        args.usage_error(str(error))
    print(json.dumps(_record(advice), indent=2) if args.json else "\n".join(_lines(advice)))
    return ExitCode.DONE if advice.use_dma else SOMETHING_ELSE
