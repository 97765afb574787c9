"""Processes at the other end of an export, which are killed."""

from __future__ import annotations

import asyncio
import hashlib
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import aiodocadma
from aiodocadma import DMA, peer
from aiodocadma.exceptions import AiodocadmaError

from ._model import WrongDataError

NBYTES = 1 << 20
CHUNK = 128 * 1024
LIVES = (0.05, 0.6)  # seconds that a peer has, from the first copy on


def content(seed: int) -> bytes:
    """What an exporter publishes."""
    return random.Random(seed).randbytes(NBYTES)


def spawn(role: str, address: str, seed: int) -> subprocess.Popen[bytes]:
    """Start a peer."""
    command = [sys.executable, "-m", "tests.soak", f"--{role}", address, "--seed", str(seed)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def begun(address: str) -> Path:
    """The file that an importer makes when it has connected."""
    return Path(address.removeprefix("unix:") + ".begun")


def has_begun(address: str) -> bool:
    """Whether it has."""
    return begun(address).exists()


async def reap(child: subprocess.Popen[bytes], tally: Counter[str]) -> None:
    """Kill a peer, whatever it is doing."""
    child.kill()
    status = await asyncio.to_thread(child.wait)
    if status != -signal.SIGKILL:
        raise WrongDataError(f"a peer ended by itself: {status}")
    tally["peers killed"] += 1


async def pull(dma: DMA, session: peer.Session, data: bytes, rng: random.Random, tally: Counter[str]) -> None:
    """Copy what a peer publishes, for ever: chunk by chunk, some side by side, and compare."""
    async with await session.import_memory("data") as remote, await dma.alloc(NBYTES) as local:
        while True:
            starts = [rng.randrange(0, NBYTES - CHUNK) for _ in range(3)]
            copies = [
                dma.copy(remote[start : start + CHUNK], local[n * CHUNK : (n + 1) * CHUNK])
                for n, start in enumerate(starts)
            ]
            try:
                ends = await asyncio.gather(*copies, return_exceptions=True)
            finally:
                await dma.drain()
            for n, (start, end) in enumerate(zip(starts, ends, strict=True)):
                if isinstance(end, BaseException):
                    raise end
                with memoryview(local) as view:
                    if view[n * CHUNK : (n + 1) * CHUNK] != data[start : start + CHUNK]:
                        raise WrongDataError("what a peer exports")
                tally["bytes checked"] += CHUNK
                tally["copies from a peer's memory"] += 1


async def exporter_killed(rng: random.Random, tally: Counter[str]) -> None:
    """Import from a process that is killed while copies read its memory."""
    seed = rng.randrange(1 << 32)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        address = f"unix:{folder}/peer"
        child = spawn("exporter", address, seed)
        try:
            async with aiodocadma.open_dma() as dma, peer.connect(dma, address) as session:
                pulling = asyncio.ensure_future(pull(dma, session, content(seed), rng, tally))
                await asyncio.wait([pulling], timeout=rng.uniform(*LIVES))
                await reap(child, tally)
                try:
                    await pulling  # it has nobody to copy from any more
                except AiodocadmaError:
                    tally["copies that a killed peer ended"] += 1
        finally:
            child.kill()
            child.wait()


async def importer_killed(rng: random.Random, tally: Counter[str]) -> None:
    """Export to a process that is killed while it reads; the next importer finds everything."""
    seed = rng.randrange(1 << 32)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        address = f"unix:{folder}/peer"
        async with aiodocadma.open_dma() as dma, await dma.alloc(NBYTES) as memory:
            with memoryview(memory) as view:
                view[:] = content(seed)
            async with peer.listen(dma, address) as publisher:
                await publisher.publish("data", memory)
                child = spawn("importer", address, seed)
                try:
                    while not has_begun(address) and child.poll() is None:
                        await asyncio.sleep(0.02)
                    await asyncio.sleep(rng.uniform(*LIVES))
                    await reap(child, tally)
                finally:
                    child.kill()
                    child.wait()
            with memoryview(memory) as view:
                if hashlib.sha256(view).digest() != hashlib.sha256(content(seed)).digest():
                    raise WrongDataError("what was exported for reading has changed")


async def export(address: str, seed: int) -> None:
    """The child: publish until killed."""
    async with aiodocadma.open_dma() as dma, await dma.alloc(NBYTES) as memory:
        with memoryview(memory) as view:
            view[:] = content(seed)
        async with peer.listen(dma, address) as publisher:
            await publisher.publish("data", memory)
            await asyncio.Event().wait()


async def import_(address: str, seed: int) -> None:
    """The child: pull until killed."""
    async with aiodocadma.open_dma() as dma, peer.connect(dma, address) as session:
        asyncio.get_running_loop().call_soon(begun(address).touch)
        await pull(dma, session, content(seed), random.Random(seed), Counter())
