"""``aiodocadma devices``."""

from __future__ import annotations

import argparse
import datetime
import json
from typing import Any

import aiodocadma
from aiodocadma._host import host_kind
from aiodocadma.cli._exit import ExitCode
from aiodocadma.cli._look import table
from aiodocadma.cli._options import Commands, add_command

# The queries by library, as DOCA calls them.
QUERIES = {
    "doca_dma": {
        "task_memcpy_get_max_buf_size": "max_buf_size",
        "task_memcpy_get_max_buf_list_len": "max_buf_list_len",
        "get_max_num_tasks": "max_num_tasks",
    },
    "doca_mmap": {
        "is_export_pci_supported": "export_pci",
        "is_create_from_export_pci_supported": "create_from_export_pci",
    },
}
CAPABILITIES = [field for queries in QUERIES.values() for field in queries.values()]


def _record(info: aiodocadma.DeviceInfo) -> dict[str, Any]:
    return {
        "pci_address": info.pci_address,
        "ibdev_name": info.ibdev_name,
        "iface_name": info.iface_name,
        "dma_supported": info.dma_supported,
        "reason": info.reason,
        "emulated": info.emulated,
        "library": info.library,
        "version": info.version,
    }


def _snapshot(devices: list[aiodocadma.DeviceInfo]) -> dict[str, Any]:
    """The devices in the capability-snapshot schema of DOCA's tools; what is our own is under one key."""

    def capabilities(info: aiodocadma.DeviceInfo) -> dict[str, dict[str, object]]:
        answers: dict[str, dict[str, object]] = {"doca_dma": {"task_memcpy_is_supported": info.dma_supported}}
        if info.capabilities is not None:
            for library, queries in QUERIES.items():
                values = {query: getattr(info.capabilities, field) for query, field in queries.items()}
                answers[library] = answers.get(library, {}) | values
        return answers

    times = [info.capabilities.queried_at for info in devices if info.capabilities is not None]
    return {
        "snapshot_at": max(times, default=datetime.datetime.now(datetime.UTC)).isoformat(),
        "doca_version": devices[0].version if devices else None,
        "host_kind": host_kind(),
        "devices": [{"pcie_address": info.pci_address, "library_capabilities": capabilities(info)} for info in devices],
        "x_aiodocadma": {"version": aiodocadma.__version__, "devices": [_record(info) for info in devices]},
    }


def _details(capabilities: aiodocadma.Capabilities | None) -> list[str]:
    if capabilities is None:
        return []
    values = {name: getattr(capabilities, name) for name in CAPABILITIES}
    return [f"    {name:<24}{'unknown' if value is None else value}" for name, value in values.items()]


def _text(devices: list[aiodocadma.DeviceInfo], caps: bool) -> str:
    if not devices:
        return "No devices."
    first = devices[0]
    version = f", version {first.version}" if first.version else ""
    emulated = " (a software emulator, not a card)" if first.emulated else ""
    lines = [f"library {first.library}{version}{emulated}", ""]
    rows = []
    for info in devices:
        can = "yes" if info.dma_supported else f"no: {info.reason}"
        rows.append((info.pci_address, info.ibdev_name or "-", info.iface_name or "-", can))
    details: list[list[str]] = [[], *(_details(info.capabilities) if caps else [] for info in devices)]
    for line, detail in zip(table(("pci address", "ibdev", "iface", "dma"), rows), details, strict=True):
        lines += [line, *detail]
    return "\n".join(lines)


def list_devices(args: argparse.Namespace) -> int:
    """
    Print the devices of the library.

    Args:
        args: ``library``, ``caps``, ``json``.

    Returns:
        The exit code: 3 if no device can do DMA.

    Raises:
        LibraryError: If there is no usable library.

    Source: ``doca_devinfo_create_list``.
    """
    devices = aiodocadma.devices(args.library)
    if args.json:
        print(json.dumps(_snapshot(devices) if args.caps else [_record(info) for info in devices], indent=2))
    else:
        print(_text(devices, args.caps))
    return ExitCode.DONE if any(info.dma_supported for info in devices) else ExitCode.NO_DEVICE


def add_devices(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "devices",
        list_devices,
        help="list the devices",
        description="List all devices, also those that cannot do DMA, with the reason.",
    )
    parser.add_argument(
        "--caps",
        action="store_true",
        help="ask each device what it can do, and show it; with --json as a capability snapshot",
    )
