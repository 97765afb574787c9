"""The page that leads from NVIDIA's sample application to this client."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import aiodocadma
from aiodocadma import peer

PAGE = Path(__file__).parents[2] / "docs" / "from-c.md"


@pytest.mark.rule("R78")
def test_every_step_of_the_sample_has_its_own_here() -> None:
    """Both sides' steps, in the sample's order, and each method that is named exists."""
    text = PAGE.read_text().partition("| step in C | here |")[2]
    steps = [row.split("|")[1:3] for row in text.splitlines()[2:] if row.startswith("|")]
    assert len(steps) >= 8
    assert {step.split(":")[0].strip() for step, _ in steps} >= {"Both", "Host", "DPU"}
    assert all(here.strip() for _, here in steps)
    owners = {"dma": aiodocadma.DMA, "publisher": peer.Publisher, "session": peer.Session}
    named = re.findall(r"\b(dma|publisher|session)\.(\w+)\(", text)
    assert named
    assert not [f"{owner}.{name}" for owner, name in named if not hasattr(owners[owner], name)]
