"""
Draw what a copy costs by the CPU and by DMA, by its length, and from which length on DMA pays off.

    python examples/crossover.py [--measure] [PNG]

These are the times that advise() goes by: as calibrate() has stored them on this machine, else assumptions. With
--measure they are measured now; without a card that is the emulator, whose engine is the CPU. The title says what is
shown. Needs matplotlib: pip install 'aiodocadma[examples]'.

Prints:
    crossover.png: assumed from published figures, no card was measured; DMA saves CPU time from 98.0 kB on
"""

import asyncio
import sys

import matplotlib
from matplotlib import pyplot
from matplotlib.ticker import EngFormatter

import aiodocadma
from aiodocadma.advice import Calibration, Route

LENGTHS = [round(64 * 2 ** (step / 4)) for step in range(73)]  # 64 B to 16 MiB


async def measure() -> Calibration:
    """Measure the first device that there is."""
    async with aiodocadma.open_dma() as dma:
        return await aiodocadma.calibrate(dma, store=False)


def main() -> None:
    """Ask for advice about each length, and draw it."""
    calibration = asyncio.run(measure()) if "--measure" in sys.argv else None
    path = next((arg for arg in sys.argv[1:] if arg != "--measure"), "crossover.png")
    advice = [aiodocadma.advise("local", "local", length, calibration=calibration) for length in LENGTHS]
    costs = [{route: cost for route, cost in one.estimates if cost} for one in advice]
    crossover, measured_at = advice[0].crossover, advice[0].measured_at
    what = "assumed from published figures, no card was measured"
    if measured_at:
        what = f"measured {'on the emulator, not ' if advice[0].emulated else ''}on a card, {measured_at}"
    verdict = f"DMA saves CPU time from {crossover / 1000:.1f} kB on" if crossover else "DMA never saves CPU time"
    matplotlib.use("Agg")
    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    axes.loglog(LENGTHS, [cost[Route.CPU].cpu_seconds for cost in costs], label="memcpy: CPU time and time")
    axes.loglog(LENGTHS, [cost[Route.DMA].cpu_seconds for cost in costs], label="awaited DMA copy: CPU time")
    axes.loglog(LENGTHS, [cost[Route.DMA].seconds for cost in costs], "C1:", label="awaited DMA copy: time")
    axes.axvline(crossover or LENGTHS[-1], color="grey", linestyle="--", label=verdict)
    axes.xaxis.set_major_formatter(EngFormatter(unit="B"))
    axes.yaxis.set_major_formatter(EngFormatter(unit="s"))
    axes.set(title=f"A copy of registered memory within one machine\n({what})", xlabel="length", ylabel="per copy")
    axes.legend()
    figure.savefig(path, dpi=120)
    print(f"{path}: {what}; {verdict}")


if __name__ == "__main__":
    main()
