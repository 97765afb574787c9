"""What ``doca_caps`` prints: versions and devices. Its layout is not frozen: what is not understood is nothing."""

from __future__ import annotations

import re
from typing import NamedTuple

from aiodocadma._versions import Anchor
from aiodocadma.doctor._system import System

__all__ = ["ListedDevice", "caps_anchors", "caps_devices"]


class ListedDevice(NamedTuple):
    """A block of ``doca_caps --list-devs``."""

    pci_address: str
    attributes: dict[str, str]


def caps_anchors(system: System) -> list[Anchor]:
    """
    What ``doca_caps --version`` says: the version it was compiled with and that of the library it runs on.

    One of two shapes: a bare version, which stands for both, or a line for each with a label.
    """
    path = system.find_tool("doca_caps")
    if path is None:
        return [Anchor("doca_caps", "doca_caps --version", None, "absent")]
    output = system.tool(path, "--version")
    where = f"{path} --version"
    if output.text is None or output.problem is not None:
        return [Anchor("doca_caps", where, None, "unreadable")]
    compiled = re.search(r"Compilation\W+([\d.]+)", output.text)
    runtime = re.search(r"\(Runtime\)\W+([\d.]+)", output.text)
    if compiled and runtime:
        return [
            Anchor.of("doca_caps, its library", where, runtime[1], None),
            Anchor.of("doca_caps, as compiled", where, compiled[1], None),
        ]
    return [Anchor.of("doca_caps", where, output.text.strip(), None)]


def caps_devices(system: System) -> tuple[tuple[ListedDevice, ...], str | None]:
    """
    What ``doca_caps --list-devs`` prints, a block for each device, of 2.6 to 3.0 as of 3.2 and later.

    Returns:
        The devices, and why there are none, or None. An empty list is an answer.
    """
    path = system.find_tool("doca_caps")
    if path is None:
        return (), "doca_caps is not installed"
    output = system.tool(path, "--list-devs")
    if output.text is None or output.problem is not None:
        return (), f"doca_caps {output.problem or 'printed nothing'}"
    found: list[ListedDevice] = []
    for line in output.text.splitlines():
        if match := re.match(r"\s*PCI:\s*((?:[0-9a-fA-F]{4}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])\s*$", line):
            address = match[1].lower()
            found.append(ListedDevice(address if len(address) > 8 else f"0000:{address}", {}))
        elif found and (match := re.match(r"\s+([\w\[\]]+)\s+(\S.*?)\s*$", line)):
            found[-1].attributes[match[1]] = match[2]
    return tuple(found), None if found else "doca_caps lists no device"
