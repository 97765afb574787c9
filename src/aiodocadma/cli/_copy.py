"""
``aiodocadma copy``: a ring of blocks, each read, copied by the engine and written, all three at once.

A block is a pair of maps: the reader fills the first, the engine copies it to the second, the writer empties that.
Files are never mapped: kernels refuse to pin such pages.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import sys
import time
from contextlib import AsyncExitStack
from stat import S_ISREG
from typing import Any, Final

import aiodocadma
from aiodocadma.cli._exit import Exit, ExitCode, cancel_on_signals
from aiodocadma.cli._files import File, Stop, Worker, open_source, open_target
from aiodocadma.cli._options import Commands, add_blocks, add_command, add_device, check_blocks
from aiodocadma.cli._progress import Progress, open_progress, summary
from aiodocadma.cli._ring import Block, run_ring
from aiodocadma.exceptions import AiodocadmaError

NUM_MAPS: Final = 2  # a block


async def _transfer(
    dma: aiodocadma.DMA,
    source: File,
    target: File,
    args: argparse.Namespace,
    stop: Stop,
    progress: Progress,
    digest: Any,
) -> int:
    """Move everything from source to target; digest, unless None, sees what was read. Returns the bytes moved."""

    def read(block: Block) -> int:
        length = source.read(block.views[0])
        if digest is not None:
            with block.views[0][:length] as view:
                digest.update(view)
        return length

    async def begin(block: Block, reader: Worker) -> bool:
        block.length = await reader.run(read, block)
        if block.length:
            block.copied = dma.copy(block.maps[0][: block.length], block.maps[1][: block.length])
        return block.length > 0

    async def end(block: Block, writer: Worker) -> None:
        await writer.run(target.write, block.views[1], block.length)

    return await run_ring(
        dma,
        num_maps=NUM_MAPS,
        block_size=args.block_size,
        num_blocks=args.blocks,
        begin=begin,
        end=end,
        stop=stop,
        progress=progress,
    )


async def copy_file(args: argparse.Namespace) -> int:
    """
    Copy a file and report.

    Args:
        args: ``src``, ``dst``, ``verify``, ``json``, ``device``, ``library``, ``block_size``, ``blocks``.

    Returns:
        The exit code.

    Raises:
        Exit: With the code of what went wrong.
        OSError: If a file cannot be opened, read or written.
        AiodocadmaError: If the engine fails.

    Cancellation: Leaves no half file; waits for the engine to let go.

    Source: aiodocadma.
    """
    cancel_on_signals()
    check_blocks(args, NUM_MAPS)
    async with AsyncExitStack() as stack:
        stop = Stop()
        stack.callback(stop.close)
        source = open_source(args.src, stop)
        stack.callback(source.close)
        info = os.fstat(source.fd)
        name = os.path.basename(args.src)
        target = await open_target(args.dst, stop, name=name, mode=info.st_mode, source=info)
        stack.callback(target.close)
        if args.verify and not target.regular:
            raise Exit(ExitCode.USAGE, f"{args.dst}: --verify needs a regular file, which can be read back")
        try:
            dma = await stack.enter_async_context(aiodocadma.open_dma(args.device, library=args.library))
        except AiodocadmaError as error:
            raise Exit(ExitCode.NO_DEVICE) from error
        progress = open_progress(info.st_size if S_ISREG(info.st_mode) and info.st_size else None)
        digest = hashlib.sha256() if args.verify else None
        start = time.perf_counter()
        try:
            done = await _transfer(dma, source, target.file, args, stop, progress, digest)
        finally:
            progress.close()
        seconds = time.perf_counter() - start
        if digest is not None:
            read_back = hashlib.sha256()
            worker = Worker()
            stack.push_async_callback(worker.aclose)
            await worker.run(target.read_back, read_back.update)
            if read_back.digest() != digest.digest():
                raise Exit(
                    ExitCode.FAILED,
                    f"{args.dst}: removed, SHA-256 {read_back.hexdigest()} is not the source's {digest.hexdigest()}",
                )
        target.commit()
        _report(args, dma.device, done, seconds, digest)
    return ExitCode.DONE


def _report(args: argparse.Namespace, device: aiodocadma.DeviceInfo, done: int, seconds: float, digest: Any) -> None:
    rate = done / seconds if seconds else 0.0
    if args.json:
        record = {
            "src": args.src,
            "dst": args.dst,
            "bytes": done,
            "seconds": seconds,
            "bytes_per_second": rate,
            "block_size": args.block_size,
            "blocks": args.blocks,
            "sha256": digest and digest.hexdigest(),
            "verified": digest is not None,
            "device": device.pci_address,
            "library": device.library,
            "emulated": device.emulated,
        }
        print(json.dumps(record))
        return
    verified = ", verified" if digest else ""
    print(f"{args.dst}: {summary(done, seconds, device)}{verified}", file=sys.stderr)


def add_copy(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "copy",
        lambda args: asyncio.run(copy_file(args)),
        help="copy a file through the engine",
        description="Copy SRC to DST; every byte passes through the DMA engine. Reading, DMA and writing overlap. DST "
        "appears whole or not at all: it is written under a temporary name in the same folder, then renamed.",
    )
    parser.add_argument("src", metavar="SRC", help="file, FIFO or device to read until its end")
    parser.add_argument(
        "dst", metavar="DST", help="file to write, or a folder to write into; a FIFO or a device is written in place"
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="read DST back from disk and compare its SHA-256 with that of what was read",
    )
    add_device(parser)
    add_blocks(parser, NUM_MAPS)
