"""``aiodocadma advise``."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import aiodocadma
from aiodocadma.cli._checks import wrapped
from aiodocadma.cli._exit import ExitCode
from aiodocadma.cli._look import format_bytes, table
from aiodocadma.cli._options import Commands, add_command, size

if TYPE_CHECKING:
    from aiodocadma.advice import Advice, Cost

EXIT_CODES: Final = "exit codes: 0 use DMA, 1 failed, 2 wrong usage, 3 use something else, 130 interrupted"
SOMETHING_ELSE: Final = 3

_NAMES: Final = {
    "cpu": "the CPU",
    "dma": "DMA",
    "rdma": "RDMA",
    "comch": "Comch",
    "chain": "the accelerators' own queues",
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
    yield from wrapped(f"Use {_NAMES[advice.route.value]} (rule {advice.rule}): {advice.reason}.")
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


def add_advise(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "advise",
        run_advise,
        help="say whether a copy should go by DMA at all",
        description="Say which path a copy should take: the CPU, DMA, RDMA, Comch, or staying in a chain of "
        "accelerators. Needs no device and no DOCA.",
        epilog=EXIT_CODES,
    )
    parser.add_argument("src", metavar="SRC", choices=("local", "peer"), help="where the source is: local or peer")
    parser.add_argument("dst", metavar="DST", choices=("local", "peer"), help="where the destination is")
    parser.add_argument("length", metavar="LENGTH", type=size, help="bytes per copy; K, M, G are powers of 1024")
    parser.add_argument(
        "--pattern",
        choices=("bulk", "once", "messages"),
        default="bulk",
        help="many copies over the same memory (default), a single one, or messages to a consumer",
    )
    parser.add_argument(
        "--peer",
        choices=("pci", "network"),
        help="where the peer is: across PCIe, as host and DPU are (default), or across a network",
    )
    parser.add_argument(
        "--chain",
        metavar="NAME",
        action="append",
        default=[],
        help="an accelerator that works on the data next; may be given several times",
    )
    parser.add_argument("--registered", action="store_true", help="both sides are registered already")
    parser.add_argument(
        "--calibrate", action="store_true", help="measure this machine first, and keep the result for later"
    )
    parser.set_defaults(usage_error=parser.error)
