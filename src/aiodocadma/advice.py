"""
Which path a copy should take: the CPU, DMA, RDMA, Comch, or staying in a chain of accelerators.

``advise()`` walks a table of rows from the top, and the first that fits decides. It needs no device and no library. The
times come from ``calibrate()``, which measures this machine once and keeps the result, or are assumed until then.
``copy()`` never asks: what is given to the engine goes through the engine.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

from aiodocadma._calibration import Calibration, Cost, Curve, assumed, calibrate, stored_calibration

__all__ = [
    "ROWS",
    "Advice",
    "Calibration",
    "Cost",
    "Curve",
    "Estimate",
    "Question",
    "Route",
    "Row",
    "advise",
    "calibrate",
]

Side = Literal["local", "peer"]
Pattern = Literal["bulk", "once", "messages"]
Peer = Literal["pci", "network"]


class Route(enum.Enum):
    """
    The paths.

    Attributes:
        CPU: Copy with the CPU: ``dst[:] = src``.
        DMA: Copy with this library.
        RDMA: The other side is across a network: DOCA RDMA.
        COMCH: Messages from a producer to a consumer: DOCA Comch.
        CHAIN: Stay in DOCA's queues, in C, for the accelerators that follow.

    Source: NVIDIA's published path rules for DOCA DMA.
    """

    CPU = "cpu"
    DMA = "dma"
    RDMA = "rdma"
    COMCH = "comch"
    CHAIN = "chain"


# ---- the table


class Question(NamedTuple):
    """
    What is asked, and what the calibration says to it.

    Args:
        src: Where the source is.
        dst: Where the destination is.
        length: Bytes per copy.
        pattern: How the copies come.
        peer: Where the peer is, or None.
        chain: The accelerators that follow.
        registered: Whether both sides are registered already.
        worth: Whether the length reaches the crossover.

    Source: aiodocadma.
    """

    src: Side
    dst: Side
    length: int
    pattern: Pattern
    peer: Peer | None
    chain: tuple[str, ...]
    registered: bool
    worth: bool


class Row(NamedTuple):
    """
    A row of the path table.

    Args:
        rule: Its number in the project's list of rules.
        route: The verdict.
        fits: Whether it decides.
        reason: Why, for people.

    Source: NVIDIA's published path rules for DOCA DMA.
    """

    rule: str
    route: Route
    fits: Callable[[Question], bool]
    reason: str


ROWS: Final[tuple[Row, ...]] = (
    Row(
        "R18",
        Route.RDMA,
        lambda ask: ask.peer == "network",
        "the other side is across a network, which DMA does not cross: use DOCA RDMA",
    ),
    Row(
        "R21",
        Route.CHAIN,
        lambda ask: bool(ask.chain),
        "more accelerators follow: keep the data in DOCA's queues from one to the next, in C",
    ),
    Row(
        "R20",
        Route.COMCH,
        lambda ask: ask.pattern == "messages",
        "these are messages from a producer to a consumer: use DOCA Comch",
    ),
    Row(
        "R17",
        Route.DMA,
        lambda ask: ask.peer == "pci",
        "one side is across the PCIe link between host and DPU, which is what DMA is for",
    ),
    Row(
        "R22",
        Route.CPU,
        lambda ask: not ask.worth,
        "the copy is too short: telling the engine about it takes more CPU time than the copy itself",
    ),
    Row(
        "R19",
        Route.DMA,
        lambda ask: ask.registered,
        "both sides are registered, and the copy is long enough to pay for its submission",
    ),
    Row(
        "R17",
        Route.DMA,
        lambda ask: True,
        "a bulk copy within one machine: the engine does it while the CPU does something else",
    ),
)


class Estimate(NamedTuple):
    """
    What one path would cost.

    Args:
        route: The path.
        cost: Of one copy, or None where it is not known: aiodocadma does not measure other libraries.

    Source: aiodocadma.
    """

    route: Route
    cost: Cost | None


@dataclasses.dataclass(frozen=True, slots=True)
class Advice:
    """
    A verdict.

    Args:
        route: The path to take.
        rule: The row of the table that decided.
        reason: Why, in a sentence.
        estimates: What one copy costs on each path that is possible.
        crossover: From which length on DMA saves CPU time here, or None if never.
        measured_at: When the times were measured, or None if they are assumed.
        emulated: Whether they were measured on the emulator.

    Source: NVIDIA's published path rules for DOCA DMA.
    """

    route: Route
    rule: str
    reason: str
    estimates: tuple[Estimate, ...]
    crossover: int | None
    measured_at: str | None
    emulated: bool

    @property
    def use_dma(self) -> bool:
        """
        Whether this library is the right one.

        Returns:
            True for the route DMA.

        Source: aiodocadma.
        """
        return self.route is Route.DMA


def advise(
    src: Side,
    dst: Side,
    length: int,
    *,
    pattern: Pattern = "bulk",
    peer: Peer | None = None,
    chain: Sequence[str] = (),
    registered: bool = False,
    calibration: Calibration | None = None,
) -> Advice:
    """
    Say which path a copy should take, and what it costs on each. Needs no device and no library.

    Args:
        src: Where the source is: ``local`` or ``peer``.
        dst: Where the destination is.
        length: Bytes per copy.
        pattern: ``bulk``: many copies over the same memory; ``once``: a single one; ``messages``: small records from a
            producer to a consumer.
        peer: Where the peer is: ``pci``, host and DPU of one machine (the default where a side is ``peer``), or
            ``network``.
        chain: Accelerators that work on the data next, for example ``["sha", "compress"]``.
        registered: Whether both sides are registered already. With ``bulk`` they are registered once for all.
        calibration: What the paths cost. None: what ``calibrate()`` stored on this machine, else assumptions.

    Returns:
        The verdict.

    Raises:
        ValueError: If an argument is none of the above, or neither side is local.

    Source: NVIDIA's published path rules for DOCA DMA.
    """
    for name, value, allowed in (
        ("src", src, ("local", "peer")),
        ("dst", dst, ("local", "peer")),
        ("pattern", pattern, ("bulk", "once", "messages")),
        ("peer", peer, (None, "pci", "network")),
    ):
        if value not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(map(str, allowed))}, not {value!r}")
    if length < 0:
        raise ValueError(f"length must not be negative, it is {length}")
    if "peer" not in (src, dst):
        if peer is not None:
            raise ValueError(f"peer is {peer!r}, but neither src nor dst is 'peer'")
    elif src == dst:
        raise ValueError("src and dst are both 'peer': let the peer copy within its own memory")
    if isinstance(chain, str):
        raise ValueError(f"chain must be a list of names, not {chain!r}")
    across = peer or ("pci" if "peer" in (src, dst) else None)

    calibration = calibration or stored_calibration() or assumed()
    amortised = registered or pattern == "bulk"
    crossover = calibration.crossover(registered=amortised)
    worth = crossover is not None and length >= crossover
    question = Question(src, dst, length, pattern, across, tuple(chain), registered, worth)
    row = next(row for row in ROWS if row.fits(question))
    estimates = []
    if across is None:
        estimates.append(Estimate(Route.CPU, calibration.cpu.at(length)))
    if across != "network":
        curve = calibration.registered if amortised else calibration.unregistered
        estimates.append(Estimate(Route.DMA, curve.at(length)))
    if row.route not in (Route.CPU, Route.DMA):
        estimates.append(Estimate(row.route, None))
    return Advice(
        row.route,
        row.rule,
        row.reason,
        tuple(estimates),
        crossover,
        calibration.measured_at,
        calibration.emulated,
    )
