"""A type checker tells sources from destinations: what it takes, and what it refuses."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROLOGUE = """
import array
import ctypes
import mmap

import numpy as np

import aiodocadma
import aiodocadma.sync
from aiodocadma import DMA, Buffer, MemoryMap, ReadOnly, ReadWrite
from aiodocadma.peer import Session


async def use(
    dma: DMA,
    script: aiodocadma.sync.DMA,
    peer: Session,
    read_only: MemoryMap[ReadOnly],
    writable: MemoryMap,
    plain: bytearray,
) -> None:
"""

GOOD = """
    allocated = await dma.alloc(100)
    source = await dma.register(b"abc")
    registered = await dma.register(plain)
    reader = await dma.register(plain, access="read")
    writer: MemoryMap = await dma.register(plain, access="write")
    part: Buffer[ReadOnly] = source[1:]
    room: Buffer[ReadWrite] = allocated[:10]
    for destination in (allocated, registered, writer, room, allocated[5:], writable):
        for origin in (source, reader, part, read_only, destination):
            await dma.copy(origin, destination)
    await dma.copy(b"abc", plain)
    await dma.copy(read_only, memoryview(plain))
    await dma.copy(array.array("q"), array.array("q"))
    await dma.copy(mmap.mmap(-1, 10), mmap.mmap(-1, 10))
    await dma.copy(np.zeros(10), np.zeros(10))
    await dma.copy((ctypes.c_int * 3)(), (ctypes.c_int * 3)())
    await dma.copy([b"abc", source], [plain, allocated[:7]])
    await dma.submit(source, allocated)
    await dma.copy_coroutine(source, allocated)
    await dma.copy_many([(source, allocated[:3]), (part, room)])
    await dma.copy_many(source, allocated, lengths=1)
    async with allocated.blocks(10).acquire() as block:
        await dma.copy(source, block)
    async with allocated as entered:
        await dma.copy(source, entered)
    memoryview(source)
    descriptor = await allocated.export()
    theirs = await dma.import_memory(descriptor)
    shared: MemoryMap = await dma.import_memory(descriptor, allow_remote_write=True)
    either = await peer.import_memory("name", allow_remote_write=bool(plain))
    named: MemoryMap = await peer.import_memory("name", allow_remote_write=True)
    for destination in (allocated, shared, either, named):
        await dma.copy(theirs, destination)
    script.copy(script.register(b"abc"), script.alloc(3))
    script.copy(b"abc", script.register(plain, access="write"))
    aiodocadma.sync.open_dma("mlx5_0", library="emulator", window=3, use_uvloop=True)
"""

BAD = [
    'await dma.copy(b"abc", await dma.register(b"abc"))',
    'await dma.copy(b"abc", await dma.register(plain, access="read"))',
    'await dma.copy(b"abc", read_only)',
    'await dma.copy(b"abc", read_only[1:])',
    'await dma.copy(b"abc", [writable, read_only])',
    'await dma.copy(b"abc", bytes(3))',
    'await dma.submit(b"abc", read_only)',
    'await dma.copy_coroutine(b"abc", read_only)',
    "await dma.copy_many([(writable, read_only)])",
    "await dma.copy_many(writable, read_only, lengths=1)",
    'await dma.copy(b"abc", await read_only.blocks(10).acquire())',
    "writable = read_only",
    'await dma.copy("text", writable)',
    "await dma.copy(3, writable)",
    'await dma.copy(b"abc", "text")',
    'await dma.register(plain, access="rw")',
    'await dma.copy(b"abc", await dma.import_memory(b"descriptor"))',
    'await dma.copy(b"abc", await peer.import_memory("name"))',
    'script.copy(b"abc", script.register(b"abc"))',
    'script.copy(b"abc", read_only)',
    "script.copy_many(writable, read_only, lengths=1)",
    'script.copy(b"abc", script.import_memory(b"descriptor"))',
    'script.register(plain, access="rw")',
    "aiodocadma.sync.open_dma(windows=3)",
    'aiodocadma.sync.open_dma(window="3")',
]


def test_what_type_checkers_take_and_refuse(tmp_path: Path) -> None:
    """All of the good file, and nothing of the bad one."""
    pytest.importorskip("mypy")
    (tmp_path / "good.py").write_text(PROLOGUE + GOOD)
    (tmp_path / "bad.py").write_text(PROLOGUE + "".join(f"    {line}\n" for line in BAD))
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "good.py", "bad.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "good.py" not in done.stdout, done.stdout
    first = PROLOGUE.count("\n") + 1
    refused = {int(number) - first for number in re.findall(r"^bad\.py:(\d+): error: ", done.stdout, re.MULTILINE)}
    assert refused == set(range(len(BAD))), [line for i, line in enumerate(BAD) if i not in refused]
