"""A check and the layer it belongs to."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, Literal

__all__ = ["Check", "Layer", "Status", "failed", "passed", "skipped"]

Status = Literal["pass", "fail", "skip"]


class Layer(enum.IntEnum):
    """
    The seven layers, from the bottom: what is broken lower down explains what fails above.

    Attributes:
        INSTALL: The libraries and the packages that bring them.
        VERSION: Every place that tells a version.
        BUILD: The headers.
        LINK: The installations that the linker sees.
        RUNTIME: The library that is loaded, its devices, locked memory.
        PROGRAM: What a program does; errors name their own cause.
        DRIVER: The card, drivers, device nodes, firmware.

    Source: the debug ladder of NVIDIA's published rules for DOCA.
    """

    INSTALL = 1
    VERSION = 2
    BUILD = 3
    LINK = 4
    RUNTIME = 5
    PROGRAM = 6
    DRIVER = 7


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """
    One question and its answer.

    Args:
        layer: Which layer fails if it fails.
        name: What was asked.
        status: ``skip`` where it could not be asked, or makes no sense here.
        details: What was found.
        remediation: What to do, or what to know beside a pass; None if there is nothing to say. Never a command that
            changes firmware or needs root.

    Source: aiodocadma.
    """

    layer: Layer
    name: str
    status: Status
    details: str
    remediation: str | None = None

    def record(self) -> dict[str, Any]:
        """
        The check as JSON has it.

        Returns:
            The entry of ``checks`` in the validate schema, and the layer.

        Source: aiodocadma.
        """
        return {
            "layer": int(self.layer),
            "name": self.name,
            "status": self.status,
            "details": self.details,
            "remediation": self.remediation,
        }


def passed(layer: Layer, name: str, details: str, note: str | None = None) -> Check:
    """All is well; a note is worth reading all the same."""
    return Check(layer, name, "pass", details, note)


def failed(layer: Layer, name: str, details: str, remediation: str) -> Check:
    """Something is wrong, and this is what to do."""
    return Check(layer, name, "fail", details, remediation)


def skipped(layer: Layer, name: str, details: str, note: str | None = None) -> Check:
    """It could not be asked, or it makes no sense here."""
    return Check(layer, name, "skip", details, note)
