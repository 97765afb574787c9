"""Two sides on the emulator: in one process with a device each, or in two processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import pytest

import aiodocadma
from aiodocadma import DMA, emulator

DEADLINE = 30  # seconds: a child that takes longer hangs


@pytest.fixture(autouse=True)
def clean_emulator() -> Iterator[None]:
    """Start from the defaults; afterwards no object is alive, no fault unused, no rule of DOCA broken."""
    emulator.reset()
    yield
    live = emulator.live_objects()
    assert live == type(live)(*[0] * len(live)), live
    assert emulator.faults_pending() == 0
    assert emulator.violations() == []
    emulator.reset()


class Sides(NamedTuple):
    """Host and DPU: a device each, since an engine does not import what it exports itself."""

    host: DMA
    dpu: DMA


@pytest.fixture
async def sides() -> AsyncIterator[Sides]:
    """Open two devices."""
    emulator.configure("device mlx5_0 pci=0000:03:00.0\ndevice mlx5_1 pci=0000:04:00.0")
    async with aiodocadma.open_dma("mlx5_0") as host, aiodocadma.open_dma("mlx5_1") as dpu:
        yield Sides(host, dpu)


async def until(condition: Callable[[], object], what: str) -> None:
    """Let the loop run until a condition holds; after five seconds, say what is missing."""
    async with asyncio.timeout(5):
        try:
            while not condition():
                await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            raise AssertionError(f"still waiting for {what}") from None


# Python itself may be where the other user cannot read: everything is loaded first.
BECOME = """
import asyncio, concurrent.futures.thread, encodings.idna, hashlib, os, queue, random, sys
import anyio._backends._asyncio
import aiodocadma
from aiodocadma import peer
from aiodocadma.exceptions import AiodocadmaError

def become(user):
    if user:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
"""

# Publishes `size` bytes of a pattern under "data" at argv[1], as a user or (0) as who it is, for some users more.
EXPORTER = (
    BECOME
    + """
address, size, user = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

async def main():
    async with aiodocadma.open_dma(library="emulator") as dma:
        become(user)
        memory = await dma.alloc(size)
        with memoryview(memory) as view:
            block = random.Random(size).randbytes(1 << 20)
            for at in range(0, size, len(block)):
                part = block[at // len(block) % 251:][: size - at]
                view[at : at + len(part)] = part
                view[at : at + 8] = at.to_bytes(8, "little")[: size - at]
            digest = hashlib.sha256(view).hexdigest()
        async with peer.listen(dma, address, users=[int(u) for u in sys.argv[4:]]) as publisher:
            await publisher.publish("data", memory, access="write", attributes={"sha256": digest})
            print(publisher.address, flush=True)
            await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""
)


class Exporter:
    """A process that publishes memory."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self.process = process
        self.address = address

    def kill(self) -> None:
        """End it as a crash does."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(DEADLINE)


StartExporter = Callable[..., Exporter]


@pytest.fixture
def exporter() -> Iterator[StartExporter]:
    """Start an exporter and wait until it listens; it ends with the test."""
    processes: list[subprocess.Popen[str]] = []

    def start(address: str, size: int, *, user: int = 0, users: tuple[int, ...] = (), config: str = "") -> Exporter:
        process = subprocess.Popen(
            [sys.executable, "-c", EXPORTER, address, str(size), str(user), *map(str, users)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"DOCAEMU_CONFIG": config},
        )
        processes.append(process)
        line = cast(IO[str], process.stdout).readline().strip()
        assert line, "the exporter has ended"
        return Exporter(process, line)

    yield start
    for process in processes:
        with process:
            process.kill()


@pytest.fixture
def socket_path(tmp_path: Path) -> str:
    """An address for a Unix socket."""
    return f"unix:{tmp_path / 's'}"


def patched(monkeypatch: pytest.MonkeyPatch, module: Any, **values: object) -> None:
    """Set constants of a module for a test."""
    for name, value in values.items():
        monkeypatch.setattr(module, name, value)
