"""
C2: a cancelled copy's memory stays while the engine has it, and goes when the engine lets go, whoever dropped what.

In a process of its own. Where an instrumented build is at hand, the process runs under the address sanitizer, to which
an access to memory that was freed is an error; else finalisers tell when the memory goes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import asyncio, gc, sys, weakref
import uvloop
import aiodocadma
from aiodocadma import emulator

kind, loop = sys.argv[1:]
NBYTES = 5000
DATA = bytes(range(250)) * (NBYTES // 250)
freed = []

class Memory(bytearray):
    def __init__(self, name, content):
        super().__init__(content)
        self.name = name
    def __del__(self):
        freed.append((self.name, bytes(self)))

async def start(dma):
    '''Start a copy and cancel it; return nothing that holds on to it or its memory.'''
    src, dst = Memory("src", DATA), Memory("dst", bytes(NBYTES))
    sides = src, dst
    if kind in ("registered", "slices", "many"):
        sides = [await dma.register(side) for side in sides]
    if kind == "slices":
        sides = [side[:2000][:NBYTES] for side in sides]
    if kind == "views":
        sides = [memoryview(side) for side in sides]
    if kind == "lists":
        sides = [[memoryview(side)[:1000], memoryview(side)[1000:]] for side in sides]
    if kind == "many":
        future = dma.copy_many(*sides, src_offsets=range(0, NBYTES, 10), dst_offsets=range(0, NBYTES, 10), lengths=10)
    elif kind == "task":
        future = asyncio.ensure_future(dma.copy_coroutine(*sides))
    else:
        future = dma.copy(*sides)
    del src, dst, sides
    while not emulator.live_objects().in_flight or dma._scheduled:
        await asyncio.sleep(0)
    future.cancel()

async def main():
    dma = await aiodocadma.open_dma().__aenter__()
    await start(dma)
    for _ in range(5):
        await asyncio.sleep(0)
        gc.collect()
        churn = [bytearray(NBYTES) for _ in range(200)]
    assert not freed, freed
    assert emulator.live_objects().in_flight, "the engine has it"
    assert emulator.live_objects().pinned_bytes >= 2 * NBYTES
    assert dma.statistics().pending == 1
    while dma.statistics().pending:
        emulator.step(1000)
        await asyncio.sleep(0)
    await dma.drain()
    await asyncio.sleep(0)
    gc.collect()
    assert sorted(name for name, _ in freed) == ["dst", "src"], [name for name, _ in freed]
    written = dict(freed)["dst"]
    length = 2000 if kind == "slices" else NBYTES
    # Not all of it: what DOCA did not have yet was dropped with the cancel.
    assert all(written[i] in (0, DATA[i]) for i in range(NBYTES)), "the engine wrote elsewhere"
    assert any(written[:length])
    assert not any(written[length:])
    assert dma.statistics().copies_cancelled == 1
    assert dma.statistics().watchdog_hits == 0
    await dma.aclose()
    assert sum(emulator.live_objects()) == 0, emulator.live_objects()
    assert emulator.violations() == []
    print("freed")

emulator.configure(engine="manual", strict="report", strict_client=True, edge="strict")
factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
with asyncio.Runner(loop_factory=factory) as runner:
    runner.run(main())
"""


def sanitized() -> tuple[str, dict[str, str]] | None:
    """Find the interpreter of an instrumented build, and what it needs; this one's, if it is one."""
    environment = dict(os.environ)
    if "libasan" in environment.get("LD_PRELOAD", ""):
        return sys.executable, environment
    venv = Path(os.environ.get("AIODOCADMA_VENV", "."))
    for library in venv.glob("lib/python*/site-packages/aiodocadma/_emulator/lib/libdocaemu.so"):
        if b"__asan_init" in library.read_bytes():
            names = [
                subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout
                for name in ("libasan.so", "libubsan.so")
            ]
            preload = " ".join(name.strip() for name in names)
            return str(venv / "bin" / "python"), {
                **environment,
                "LD_PRELOAD": preload,
                "ASAN_OPTIONS": "detect_leaks=0",
                "PYTHONMALLOC": "malloc",
            }
    return None


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("kind", ["plain", "views", "registered", "slices", "lists", "many", "task"])
def test_cancelled_memory(kind: str, loop: str) -> None:
    python, environment = sanitized() or (sys.executable, dict(os.environ))
    done = subprocess.run(
        [python, "-X", "faulthandler", "-c", SCRIPT, kind, loop],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        stdin=subprocess.DEVNULL,
        env=environment,
    )
    assert (done.returncode, done.stdout) == (0, "freed\n"), done.stderr
