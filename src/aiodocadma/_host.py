"""What kind of machine this is: the host, or the DPU."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Literal, TypeAlias

__all__ = ["HostKind", "host_kind"]

HostKind: TypeAlias = Literal["host", "dpu"]


def host_kind(root: Path = Path("/")) -> HostKind:
    """
    Tell by the files that a BlueField's own system has.

    Args:
        root: Where the system's files are.

    Returns:
        ``dpu`` on a BlueField, else ``host``.

    Source: ``/etc/nvidia/bf-release``, ``/etc/mlnx-release``, the product's name in DMI or the device tree.
    """
    if (root / "etc/nvidia/bf-release").exists() or (root / "etc/mlnx-release").exists():
        return "dpu"
    for name in ("sys/class/dmi/id/product_name", "sys/firmware/devicetree/base/model"):
        with contextlib.suppress(OSError):
            if "bluefield" in (root / name).read_text(errors="replace").lower():
                return "dpu"
    return "host"
