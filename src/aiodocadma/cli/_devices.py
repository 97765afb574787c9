"""``aiodocadma devices``."""

from __future__ import annotations

import argparse
import json
from typing import Any

import aiodocadma
from aiodocadma.cli._exit import ExitCode

CAPABILITIES = ("max_buf_size", "max_buf_list_len", "max_num_tasks", "export_pci", "create_from_export_pci")


def _record(info: aiodocadma.DeviceInfo, caps: bool) -> dict[str, Any]:
    record = {
        "pci_address": info.pci_address,
        "ibdev_name": info.ibdev_name,
        "iface_name": info.iface_name,
        "dma_supported": info.dma_supported,
        "reason": info.reason,
        "emulated": info.emulated,
        "library": info.library,
        "version": info.version,
    }
    if caps:
        record["capabilities"] = (
            None if info.capabilities is None else {name: getattr(info.capabilities, name) for name in CAPABILITIES}
        )
    return record


def _text(records: list[dict[str, Any]]) -> str:
    if not records:
        return "No devices."
    first = records[0]
    version = f", version {first['version']}" if first["version"] else ""
    emulated = " (a software emulator, not a card)" if first["emulated"] else ""
    lines = [f"library {first['library']}{version}{emulated}", ""]
    rows = [("PCI ADDRESS", "IBDEV", "IFACE", "DMA")]
    for record in records:
        can = "yes" if record["dma_supported"] else f"no: {record['reason']}"
        rows.append((record["pci_address"], record["ibdev_name"] or "-", record["iface_name"] or "-", can))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    for row, entry in zip(rows, [{}, *records], strict=True):
        lines.append("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]))
        for name, value in (entry.get("capabilities") or {}).items():
            lines.append(f"    {name:<24}{value}")
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
    records = [_record(info, args.caps) for info in aiodocadma.devices(args.library)]
    print(json.dumps(records, indent=2) if args.json else _text(records))
    return ExitCode.DONE if any(record["dma_supported"] for record in records) else ExitCode.NO_DEVICE
