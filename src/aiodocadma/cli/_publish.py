"""
``aiodocadma publish``: files in memory, which another process, on the host or on the DPU, pulls through its engine.

Files are read, not mapped: kernels refuse to pin the pages of a file.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import hashlib
import json
import os
import ssl
import stat
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import aiodocadma
from aiodocadma._counted import counted
from aiodocadma.cli._exit import Exit, ExitCode, cancel_on_signals
from aiodocadma.cli._files import File, Stop, Worker, naming, open_source
from aiodocadma.cli._look import format_bytes
from aiodocadma.cli._options import Commands, add_command, add_device, check_memory, user
from aiodocadma.cli._peer import FileInfo, add_security, address, security_message, tls
from aiodocadma.cli._progress import Progress, open_progress
from aiodocadma.exceptions import AiodocadmaError, UsageError

if TYPE_CHECKING:
    from aiodocadma.peer import Publisher


def _names(paths: list[str]) -> dict[str, str]:
    """The path of each base name; a path that is given twice counts once."""
    names: dict[str, str] = {}
    for path in paths:
        name = os.path.basename(path)
        if not name.isprintable():
            raise Exit(ExitCode.USAGE, f"{path!a}: the name cannot be published: it has characters that do not print")
        if names.setdefault(name, path) != path:
            raise Exit(ExitCode.USAGE, f"{path}: {names[name]} has the same name")
    return names


def _open(path: str, stop: Stop) -> tuple[File, os.stat_result]:
    file = open_source(path, stop)
    info = os.fstat(file.fd)
    if not stat.S_ISREG(info.st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file, so its size is not known", path)
    return file, info


def _read(file: File, size: int, view: memoryview, progress: Progress, done: int) -> str:
    """In a thread: read all of the file, and its SHA-256."""
    digest = hashlib.sha256()
    at = 0
    while at < size:
        with view[at : min(at + (1 << 20), size)] as part:
            length = file.read(part)
            if length == 0:
                raise OSError(errno.EIO, f"it was cut short to {counted(at, 'byte')} while it was read", file.path)
            with part[:length] as read:
                digest.update(read)
        at += length
        progress.update(done + at)
    return digest.hexdigest()


async def publish_files(args: argparse.Namespace) -> int:
    """
    Publish files until the process is told to end.

    Args:
        args: ``files``, ``listen``, ``user``, ``cert``, ``ca``, ``insecure``, ``json``, ``device``, ``library``.

    Returns:
        Never.

    Raises:
        Exit: With the code of what went wrong.
        OSError: If a file cannot be read, or the address cannot be had.
        AiodocadmaError: If the device cannot export.

    Cancellation: Revokes everything; waits for the engine.

    Source: aiodocadma.
    """
    from aiodocadma import peer  # here: most commands have no peer

    cancel_on_signals()
    names = _names(args.files)
    if args.user and args.listen.path is None:
        raise Exit(ExitCode.USAGE, "--user: TCP does not tell who connects: see --cert and --ca")
    context = tls(args, ssl.Purpose.CLIENT_AUTH)
    async with AsyncExitStack() as stack:
        stop = Stop()
        stack.callback(stop.close)
        opened = []
        for path in names.values():
            file, info = _open(path, stop)
            stack.callback(file.close)
            opened.append((file, info))
        check_memory(", ".join(names.values()), sum(info.st_size for _, info in opened), ExitCode.FAILED)
        try:
            dma = await stack.enter_async_context(aiodocadma.open_dma(args.device, library=args.library))
        except AiodocadmaError as error:
            raise Exit(ExitCode.NO_DEVICE) from error
        try:
            with naming(str(args.listen)):
                publisher = await stack.enter_async_context(
                    peer.listen(dma, args.listen, users=args.user, ssl_context=context, insecure=args.insecure)
                )
        except UsageError as error:
            raise Exit(ExitCode.USAGE, security_message(error)) from None
        published = await _load(dma, list(zip(names, opened, strict=True)), stop, stack)
        for name, memory, file_info in published:
            await publisher.publish(name, memory, attributes=file_info.attributes())
        _report(args, publisher, dma.device, [(name, info) for name, _, info in published])
        await asyncio.Event().wait()
    return ExitCode.DONE


async def _load(
    dma: aiodocadma.DMA, files: list[tuple[str, tuple[File, os.stat_result]]], stop: Stop, stack: AsyncExitStack
) -> list[tuple[str, aiodocadma.MemoryMap, FileInfo]]:
    """Read each file into a map of its own."""
    progress = open_progress(sum(info.st_size for _, (_, info) in files) or None)
    loaded = []
    done = 0
    try:
        for name, (file, info) in files:
            memory = await stack.enter_async_context(await dma.alloc(max(info.st_size, 1)))
            reader = Worker()
            with memoryview(memory) as view:
                try:
                    sha256 = await reader.run(_read, file, info.st_size, view, progress, done)
                finally:
                    stop.set()
                    await reader.aclose()
            stop.clear()
            file.close()
            done += info.st_size
            loaded.append((name, memory, FileInfo(info.st_size, info.st_mode & 0o777, sha256)))
    finally:
        progress.close()
    return loaded


def _report(
    args: argparse.Namespace,
    publisher: Publisher,
    device: aiodocadma.DeviceInfo,
    files: list[tuple[str, FileInfo]],
) -> None:
    if args.json:
        record: dict[str, Any] = {
            "address": str(publisher.address),
            "files": [{"name": name, "bytes": info.size, "sha256": info.sha256} for name, info in files],
            "device": device.pci_address,
            "library": device.library,
            "emulated": device.emulated,
        }
        print(json.dumps(record), flush=True)
        return
    total = format_bytes(sum(info.size for _, info in files))
    what = counted(len(files), "file")
    print(f"{publisher.address}: {what}, {total}, until Ctrl-C; pull with", file=sys.stderr)
    for name, _ in files:
        print(f"  aiodocadma pull {publisher.address} {name} .", file=sys.stderr)


def add_publish(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "publish",
        lambda args: asyncio.run(publish_files(args)),
        help="let another process pull files through its engine",
        description="Read each FILE into memory and let the other side of the card, the DPU or the host, pull it under "
        "its base name: aiodocadma pull. On the emulator that is any other process. Runs until it is interrupted.",
    )
    parser.add_argument("files", metavar="FILE", nargs="+", help="file to publish; it must fit into memory")
    parser.add_argument(
        "--listen",
        metavar="ADDRESS",
        type=address,
        required=True,
        help="unix:PATH, or tcp:HOST:PORT; port 0 for any that is free",
    )
    parser.add_argument(
        "--user",
        metavar="NAME",
        type=user,
        action="append",
        default=[],
        help="user who may pull, too, through a Unix socket (default: this user and root)",
    )
    add_security(parser)
    add_device(parser)
