"""
``aiodocadma pull``: a published file, copied by the engine block by block and written as it arrives.

What was written before an interruption is kept beside the target, under a name made of the file's digest, so that the
next pull of the same file, and only that, goes on there.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import logging
import ssl
import sys
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

import aiodocadma
from aiodocadma.cli._exit import Exit, ExitCode, cancel_on_signals
from aiodocadma.cli._files import File, Stop, Target, Worker, naming, open_target
from aiodocadma.cli._look import format_bytes
from aiodocadma.cli._options import Commands, add_blocks, add_command, add_device, check_blocks, seconds
from aiodocadma.cli._peer import FileInfo, add_security, address, security_message, tls
from aiodocadma.cli._progress import Progress, open_progress, summary
from aiodocadma.cli._ring import Block, run_ring
from aiodocadma.exceptions import AiodocadmaError, DocaError, EngineLostError, UsageError
from aiodocadma.peer._wire import shown_differences

if TYPE_CHECKING:
    from aiodocadma.peer import Session

DEFAULT_WAIT: Final = 30.0  # seconds
NUM_MAPS: Final = 1  # a block


async def pull_file(args: argparse.Namespace) -> int:
    """
    Pull a file and report.

    Args:
        args: ``address``, ``name``, ``dst``, ``wait``, ``cert``, ``ca``, ``insecure``, ``verify``, ``json``,
            ``device``, ``library``, ``block_size``, ``blocks``.

    Returns:
        The exit code.

    Raises:
        Exit: With the code of what went wrong.
        OSError: If the file cannot be written.
        AiodocadmaError: If the publisher cannot be reached, or the engine fails.

    Cancellation: Keeps what has arrived; waits for the engine to let go.

    Source: aiodocadma.
    """
    from aiodocadma import peer  # here: most commands have no peer

    cancel_on_signals()
    check_blocks(args, NUM_MAPS)
    logging.getLogger(peer.__name__).addHandler(logging.NullHandler())  # what it warns of is shown below
    context = tls(args, ssl.Purpose.SERVER_AUTH)
    async with AsyncExitStack() as stack:
        stop = Stop()
        stack.callback(stop.close)
        try:
            dma = await stack.enter_async_context(aiodocadma.open_dma(args.device, library=args.library))
        except AiodocadmaError as error:
            raise Exit(ExitCode.NO_DEVICE) from error
        try:
            with naming(str(args.address)):
                session = await stack.enter_async_context(
                    peer.connect(dma, args.address, wait_timeout=args.wait, ssl_context=context, insecure=args.insecure)
                )
        except UsageError as error:
            raise Exit(ExitCode.USAGE, security_message(error)) from None
        if session.differences:
            print(f"aiodocadma: the two sides differ: {shown_differences(session.differences)}", file=sys.stderr)
        remote = await stack.enter_async_context(await session.import_memory(args.name, wait_timeout=args.wait))
        found = [publication for publication in await session.list() if publication.name == args.name]
        if not found:
            raise Exit(ExitCode.FAILED, f"{args.name}: it was revoked")
        info = FileInfo.of(found[0])
        target = await open_target(
            args.dst,
            stop,
            name=args.name.replace("/", "_"),
            mode=info.mode,
            temporary=None if info.sha256 is None else f".aiodocadma-{info.sha256}.part",
        )
        stack.callback(target.close)
        if args.verify and not target.regular:
            raise Exit(ExitCode.USAGE, f"{args.dst}: --verify needs a regular file, which can be read back")
        if args.verify and info.sha256 is None:
            raise Exit(ExitCode.USAGE, f"{args.name}: --verify needs a publisher that tells the SHA-256")
        try:
            done, start, seconds = await _transfer(dma, remote, target, info, args, stop, stack)
        except (DocaError, EngineLostError) as error:
            name = error.name if isinstance(error, DocaError) else type(error).__name__
            message = f"{args.name}: the publisher has ended or revoked it: {name}"
            raise Exit(ExitCode.FAILED, message) from None
        finally:
            _keep(target, info, args)
        _report(args, session, dma.device, info, done, start, seconds)
    return ExitCode.DONE


async def _transfer(
    dma: aiodocadma.DMA,
    remote: aiodocadma.MemoryMap[aiodocadma.ReadOnly],
    target: Target,
    info: FileInfo,
    args: argparse.Namespace,
    stop: Stop,
    stack: AsyncExitStack,
) -> tuple[int, int, float]:
    """Pull what is missing, compare, commit. Returns the bytes pulled, where they begin, and the seconds."""
    digest = hashlib.sha256()
    worker = Worker()
    stack.push_async_callback(worker.aclose)
    start = await worker.run(target.resume, info.size, digest.update) if info.sha256 and target.regular else 0
    progress = open_progress(info.size or None)
    clock = time.perf_counter()
    try:
        done = await _pull(dma, remote, target.file, start, info.size, args, stop, progress, digest)
    finally:
        progress.close()
    seconds = time.perf_counter() - clock
    if args.verify:
        digest = hashlib.sha256()
        await worker.run(target.read_back, digest.update)
    if info.sha256 is not None and digest.hexdigest() != info.sha256:
        target.close()
        raise Exit(
            ExitCode.FAILED,
            f"{args.dst}: removed, SHA-256 {digest.hexdigest()} is not the publisher's {info.sha256}",
        )
    target.commit()
    return done, start, seconds


async def _pull(
    dma: aiodocadma.DMA,
    remote: aiodocadma.MemoryMap[aiodocadma.ReadOnly],
    file: File,
    start: int,
    size: int,
    args: argparse.Namespace,
    stop: Stop,
    progress: Progress,
    digest: Any,
) -> int:
    offset = start

    async def begin(block: Block, _: Worker) -> bool:
        nonlocal offset
        block.length = min(args.block_size, size - offset)
        if block.length:
            block.copied = dma.copy(remote[offset : offset + block.length], block.maps[0][: block.length])
            offset += block.length
        return block.length > 0

    def store(block: Block) -> None:
        with block.views[0][: block.length] as view:
            digest.update(view)
        file.write(block.views[0], block.length)

    async def end(block: Block, writer: Worker) -> None:
        await writer.run(store, block)

    return await run_ring(
        dma,
        num_maps=NUM_MAPS,
        block_size=args.block_size,
        num_blocks=args.blocks,
        begin=begin,
        end=end,
        stop=stop,
        progress=progress,
        done=start,
    )


def _keep(target: Target, info: FileInfo, args: argparse.Namespace) -> None:
    """Unless the file has its name, or was removed: keep what has arrived, and say so."""
    size = target.keep() if info.sha256 is not None else 0
    if size:
        kept = f"{format_bytes(size)} of {format_bytes(info.size)} are kept, and the same pull goes on there"
        print(f"aiodocadma: {args.dst}: {kept}", file=sys.stderr)


def _report(
    args: argparse.Namespace,
    session: Session,
    device: aiodocadma.DeviceInfo,
    info: FileInfo,
    done: int,
    start: int,
    seconds: float,
) -> None:
    if args.json:
        record = {
            "address": str(session.address),
            "name": args.name,
            "dst": args.dst,
            "bytes": info.size,
            "resumed_at": start,
            "seconds": seconds,
            "bytes_per_second": done / seconds if seconds else 0.0,
            "block_size": args.block_size,
            "blocks": args.blocks,
            "sha256": info.sha256,
            "verified": info.sha256 is not None,
            "device": device.pci_address,
            "library": device.library,
            "emulated": device.emulated,
        }
        print(json.dumps(record))
        return
    resumed = f", resumed at {format_bytes(start)}" if start else ""
    verified = ", verified" if info.sha256 is not None else ""
    print(f"{args.dst}: {summary(done, seconds, device)}{resumed}{verified}", file=sys.stderr)


def add_pull(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "pull",
        lambda args: asyncio.run(pull_file(args)),
        help="copy a published file through the engine",
        description="Copy the file that is published as NAME to DST; every byte comes through the DMA engine of this "
        "side. Its SHA-256 is compared with the publisher's. DST appears whole or not at all; what an interrupted pull "
        "has written is kept beside it, and the same pull goes on there.",
    )
    parser.add_argument(
        "address", metavar="ADDRESS", type=address, help="where it is published: unix:PATH or tcp:HOST:PORT"
    )
    parser.add_argument("name", metavar="NAME", help="base name of the published file")
    parser.add_argument(
        "dst", metavar="DST", help="file to write, or a folder to write into; a FIFO or a device is written in place"
    )
    parser.add_argument(
        "--verify", action="store_true", help="read DST back from disk before comparing, not only what arrived"
    )
    parser.add_argument(
        "--wait",
        metavar="SECONDS",
        type=seconds,
        default=DEFAULT_WAIT,
        help="how long to wait for the publisher, and for the name (default: %(default)s)",
    )
    add_security(parser)
    add_device(parser)
    add_blocks(parser, NUM_MAPS)
