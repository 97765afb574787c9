"""Layer 3: can programs be built, and do the installed headers say what aiodocadma was built with?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from aiodocadma import _native
from aiodocadma._library import emulator_folder
from aiodocadma._root import Root
from aiodocadma._versions import PREFIX, include_folder, packages
from aiodocadma.doctor._check import Check, Layer, failed, passed, skipped
from aiodocadma.doctor._headers import compare, parse_headers
from aiodocadma.doctor._install import doca_is_there, missing_package
from aiodocadma.doctor._system import System
from aiodocadma.exceptions import LibraryError

__all__ = ["checks"]

_LAYER: Final = Layer.BUILD
_MAX_SHOWN: Final = 5
# Constants that aiodocadma gives to DOCA or gets from it; others have been renumbered between releases.
_CONSTANTS: Final = (
    "DOCA_ERROR_",
    "DOCA_SUCCESS",
    "DOCA_ACCESS_",
    "DOCA_CTX_STATE_",
    "DOCA_PE_EVENT_MODE_",
    "DOCA_TASK_SUBMIT_",
)


def checks(system: System) -> Iterator[Check]:
    """The checks of this layer."""
    if emulated := packages(system.root, system.environ, emulated=True):
        folder = next(iter(emulated.values())).path.rpartition("/")[0]
        yield passed(
            _LAYER, "emulator", f"PKG_CONFIG_PATH leads to {folder}", "C programs built so run on the emulator."
        )
    if not doca_is_there(system):
        yield skipped(_LAYER, "headers", "no DOCA is installed")
        return
    found = packages(system.root, system.environ)
    if found:
        modules = [module for module in ("doca-common", "doca-dma", "doca-libs", "doca") if module in found]
        yield passed(_LAYER, "pkg-config", ", ".join(found[module].path for module in modules), _unreachable(system))
    else:
        yield skipped(_LAYER, "pkg-config", "no doca*.pc in pkg-config's folders, nor in DOCA's")
    folder = include_folder(system.root, found)
    installed = parse_headers(system.root, folder)
    if not installed:
        yield skipped(
            _LAYER,
            "headers",
            f"{folder} has no doca_*.h: C programs cannot be built here; aiodocadma needs no headers to run",
            f"To be had with {missing_package(system, 'headers')}.",
        )
        return
    yield passed(_LAYER, "headers", folder)
    try:
        built = parse_headers(Root(emulator_folder()), "/include")
    except LibraryError:
        built = {}
    if not built:
        yield skipped(_LAYER, "interface", "this installation of aiodocadma has no headers to compare with")
        return
    drifts = compare(built, installed, frozenset(_native.required_symbols()))
    used = {*_native.required_symbols(), *_native.optional_symbols()}
    used_here = [drift for drift in drifts if drift.name in used or drift.name.startswith(_CONSTANTS)]
    if used_here:
        shown = "; ".join(map(str, used_here[:_MAX_SHOWN]))
        more = f"; and {len(used_here) - _MAX_SHOWN} more" if len(used_here) > _MAX_SHOWN else ""
        yield failed(
            _LAYER,
            "interface",
            shown + more,
            "The installed headers count. Update aiodocadma, or use a release of DOCA that it knows; until then use "
            "nothing that these names stand for.",
        )
        return
    others = ", ".join(drift.name for drift in drifts[:_MAX_SHOWN])
    note = (
        f"Names that it does not use differ: {others}{', ...' if len(drifts) > _MAX_SHOWN else ''}." if drifts else None
    )
    yield passed(_LAYER, "interface", "what aiodocadma uses is declared as it was built with", note)


def _unreachable(system: System) -> str | None:
    """DOCA's own folder is not one that pkg-config searches by itself."""
    if system.environ.get("PKG_CONFIG_PATH") or not any(
        package.path.startswith(PREFIX) for package in packages(system.root, system.environ).values()
    ):
        return None
    folder = next(iter(packages(system.root, system.environ).values())).path.rpartition("/")[0]
    return f"pkg-config finds them with PKG_CONFIG_PATH={folder} only."
