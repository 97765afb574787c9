"""Layer 2: do all places that tell DOCA's version agree?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from aiodocadma._versions import Anchor, Version, VersionVerdict, anchors, packages, verdict_of
from aiodocadma.doctor._check import Check, Layer, failed, passed, skipped
from aiodocadma.doctor._system import System
from aiodocadma.doctor._tools import caps_anchors

__all__ = ["checks", "system_verdict"]

_LAYER: Final = Layer.VERSION
_OLDEST: Final = (2, 5)
_STALE: Final = (
    "The .pc file is stale: it was left behind by an upgrade, or another installation's goes before it in "
    "PKG_CONFIG_PATH. Remove that entry, or ask the administrator of this machine to reinstall the package it belongs "
    "to. Until then judge no DMA error."
)
_MIXED: Final = (
    "Use one release: unset LD_LIBRARY_PATH and PKG_CONFIG_PATH, and if that does not help ask the administrator of "
    "this machine to install all packages of DOCA from one release. Until then judge no DMA error."
)


def system_verdict(system: System) -> VersionVerdict:
    """The verdict of all places, ``doca_caps`` included."""
    loaded = system.loaded
    real = loaded is not None and loaded.path is not None and not loaded.emulated
    runtime = (loaded.path, loaded.version) if real and loaded is not None and loaded.path is not None else None
    return verdict_of([*anchors(system.root, system.environ, loaded=runtime), *caps_anchors(system)])


def checks(system: System, verdict: VersionVerdict) -> Iterator[Check]:
    """The checks of this layer."""
    if verdict.kind == "absent":
        yield skipped(_LAYER, "versions", "nothing here tells a version of DOCA")
        return
    for anchor in verdict.anchors:
        yield _anchor(anchor)
    told = [anchor.version for anchor in verdict.anchors if anchor.version is not None]
    if verdict.skew is not None:
        first, second = verdict.skew
        yield failed(_LAYER, "versions agree", f"{first}, but {second}", _STALE if _only_pc(verdict) else _MIXED)
    elif verdict.consistent is None:
        yield skipped(_LAYER, "versions agree", "only one place tells the version: there is nothing to compare")
    else:
        yield passed(_LAYER, "versions agree", f"{len(told)} places say {_fullest(told)}")
    oldest = min(told, key=lambda version: version[:3])
    if oldest[:2] < _OLDEST:
        yield failed(
            _LAYER,
            "release",
            f"DOCA {oldest} has another API, without progress engines",
            f"Ask the administrator of this machine for DOCA {_OLDEST[0]}.{_OLDEST[1]} or later.",
        )
    yield from _modules(system)


def _fullest(told: list[Version]) -> str:
    """The version, with its build if any place tells it."""
    return str(max(told, key=lambda version: -1 if version.build is None else version.build))


def _only_pc(verdict: VersionVerdict) -> bool:
    """Whether the odd ones out are .pc files: all else agrees without them."""
    others = [anchor for anchor in verdict.anchors if not anchor.where.endswith(".pc")]
    return verdict_of(others).skew is None and any(anchor.version is not None for anchor in others)


def _anchor(anchor: Anchor) -> Check:
    if anchor.version is None:
        said = f", but {anchor.raw!r}" if anchor.problem == "no version" and anchor.raw else ""
        words = "tells no version" if anchor.problem == "no version" else f"is {anchor.problem}"
        return skipped(_LAYER, anchor.name, f"{anchor.where} {words}{said}")
    return passed(_LAYER, anchor.name, f"{anchor.said}, in {anchor.where}")


def _modules(system: System) -> Iterator[Check]:
    """All modules of pkg-config, also those that have no part in the verdict: aiodocadma does not use them."""
    versions: dict[str, list[str]] = {}
    for package in packages(system.root, system.environ).values():
        versions.setdefault(package.fields.get("Version", "?"), []).append(package.name)
    if versions:
        listed = "; ".join(f"{version}: {', '.join(sorted(names))}" for version, names in sorted(versions.items()))
        note = "They are of several releases; of one installation they should be of one." if len(versions) > 1 else None
        yield passed(_LAYER, "pkg-config modules", listed, note)
