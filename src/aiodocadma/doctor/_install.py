"""Layer 1: is DOCA there, and which part of it is missing?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from aiodocadma._versions import PREFIX, library_files, packages
from aiodocadma.doctor._check import Check, Layer, failed, passed, skipped
from aiodocadma.doctor._system import System

__all__ = ["checks", "doca_is_there", "missing_package"]

_LAYER: Final = Layer.INSTALL
_ADMINISTRATOR: Final = "Ask the administrator of this machine for"


def doca_is_there(system: System) -> bool:
    """Whether there is any trace of an installation."""
    return (
        system.root.is_dir(PREFIX)
        or bool(library_files(system.root, system.environ, "doca_common"))
        or bool(packages(system.root, system.environ))
    )


def missing_package(system: System, part: str) -> str:
    """The package that brings a part: runtime libraries by name, or headers, samples and tools."""
    old = "doca-common" not in (found := packages(system.root, system.environ)) and bool(found)
    if part in ("common", "dma"):
        return "libdoca-libs (DOCA 2.6)" if old else f"doca-sdk-{part}"
    if part == "headers":
        return "libdoca-libs-dev (DOCA 2.6)" if old else "libdoca-sdk-common-dev and libdoca-sdk-dma-dev"
    return {"applications": "doca-samples", "tools": "doca-caps"}[part]


def checks(system: System) -> Iterator[Check]:
    """The checks of this layer."""
    if not doca_is_there(system):
        if system.choice == "emulator":
            yield skipped(_LAYER, "DOCA", "none is installed, and the emulator was asked for: no card does the copies")
            return
        note = "aiodocadma works on its emulator: the CPU copies, no card does." if _emulated(system) else ""
        yield failed(
            _LAYER,
            "DOCA",
            f"no DOCA is installed: neither {PREFIX} nor libdoca_common is there",
            f"{_ADMINISTRATOR} DOCA, release 2.5 or later. {note}".strip(),
        )
        return
    place = "in" if system.root.is_dir(PREFIX) else "outside"
    yield passed(_LAYER, "DOCA", f"installed {place} {PREFIX}")
    for name in ("common", "dma"):
        files = library_files(system.root, system.environ, f"doca_{name}")
        if files:
            yield passed(_LAYER, f"libdoca_{name}", files[0])
        else:
            yield failed(
                _LAYER,
                f"libdoca_{name}",
                f"libdoca_{name}.so is in no library folder: the installation is partial",
                f"{_ADMINISTRATOR} the package {missing_package(system, name)}, of the release of the other packages.",
            )
    yield from _parts(system)
    yield _packages(system)


def _emulated(system: System) -> bool:
    return system.loaded is not None and system.loaded.emulated


def _parts(system: System) -> Iterator[Check]:
    """Parts that the client can do without: absent is not broken."""
    for part, folder in (("applications", f"{PREFIX}/applications"), ("tools", f"{PREFIX}/tools")):
        if system.root.is_dir(folder):
            yield passed(_LAYER, f"{part} folder", folder)
        else:
            yield skipped(
                _LAYER,
                f"{part} folder",
                f"{folder} is absent, which is no error",
                f"To be had with {missing_package(system, part)}: one more place that tells the version.",
            )


def _packages(system: System) -> Check:
    """Debian's list of packages: one that is half installed, or several releases at once."""
    text, problem = system.root.read("/var/lib/dpkg/status")
    if text is None:
        return skipped(_LAYER, "packages", f"/var/lib/dpkg/status is {problem}: not a Debian, or not readable")
    installed: dict[str, str] = {}
    broken = []
    for paragraph in text.split("\n\n"):
        fields = dict(re.findall(r"^([\w-]+): *(.*)$", paragraph, re.MULTILINE))
        name = fields.get("Package", "")
        if not re.match(r"(lib)?doca-", name):
            continue
        state = fields.get("Status", "").split()[-1:]
        if state == ["installed"]:
            installed[name] = fields.get("Version", "")
        elif state not in (["config-files"], ["not-installed"]):
            broken.append(f"{name} is {' '.join(state)}")
    if broken:
        return failed(
            _LAYER, "packages", "; ".join(broken), "Ask the administrator of this machine to finish their installation."
        )
    if not installed:
        return skipped(_LAYER, "packages", "no package named doca-* or libdoca-* is installed")
    listed = [f"{name} {version}" for name, version in sorted(installed.items())]
    return passed(_LAYER, "packages", ", ".join(listed))
