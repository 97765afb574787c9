"""The page that leads from NVIDIA's samples to this client."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import aiodocadma
from aiodocadma import peer

PAGE = Path(__file__).parents[2] / "docs" / "from-c.md"


def steps() -> list[list[tuple[str, str]]]:
    """The rows of each table of steps."""
    tables = PAGE.read_text().split("| step in C | here |\n| --- | --- |\n")[1:]
    rows = [table.partition("\n\n")[0].splitlines() for table in tables]
    return [[(row.split("|")[1].strip(), row.split("|")[2].strip()) for row in table] for table in rows]


@pytest.mark.rule("R78")
def test_every_step_of_the_samples_has_its_own_here() -> None:
    local, pair = steps()
    assert len(local) >= 12
    assert len(pair) >= 12
    assert {step.split(":")[0] for step, _ in pair} >= {"Both", "Host", "DPU"}
    assert all(step and here for step, here in local + pair)


def test_what_is_named_exists() -> None:
    owners: dict[str, type] = {"dma": aiodocadma.DMA, "map": aiodocadma.MemoryMap}
    owners |= {"publisher": peer.Publisher, "session": peer.Session}
    named = re.findall(rf"`(?:await )?({'|'.join(owners)})\.(\w+)", PAGE.read_text())
    assert {owner for owner, _ in named} == set(owners)
    assert not [f"{owner}.{name}" for owner, name in named if not hasattr(owners[owner], name)]
