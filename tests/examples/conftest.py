"""The examples under test run on the emulator, from its defaults, and leave nothing behind."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

from aiodocadma import emulator


def open_files() -> set[str]:
    """What this process has open, but for pipes: DOCA's log and libuv's signals have one each for good."""
    names = set()
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that listed the folder
            names.add(os.readlink(f"/proc/self/fd/{fd}"))
    return {name for name in names if not name.startswith("pipe:")}


@pytest.fixture(autouse=True)
def clean_emulator() -> Iterator[None]:
    """Start from the defaults; afterwards no object is alive, no fd open, no rule of DOCA broken."""
    emulator.reset()
    before = open_files()
    yield
    live = emulator.live_objects()
    assert live == type(live)(*[0] * len(live)), live
    assert emulator.violations() == []
    assert open_files() <= before
    emulator.reset()
