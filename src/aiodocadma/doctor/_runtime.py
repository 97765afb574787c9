"""Layer 5: which library does the client load, which devices does it list, and what does this process lack?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from aiodocadma._versions import library_files
from aiodocadma.doctor._check import Check, Layer, failed, passed, skipped
from aiodocadma.doctor._machine import container, group_names, host_kind, locked_memory_limit
from aiodocadma.doctor._system import System
from aiodocadma.doctor._tools import caps_devices

__all__ = ["checks", "mapped_libraries"]

_LAYER: Final = Layer.RUNTIME
_PLENTY: Final = 1 << 30  # bytes of locked memory below which a note is in place
_MIB: Final = 1 << 20


def mapped_libraries(system: System) -> list[str]:
    """The DOCA libraries that are really in this process, from ``/proc/self/maps``."""
    lines = (system.root.read("/proc/self/maps").text or "").splitlines()
    names = [line.split(maxsplit=5)[5].strip() for line in lines if len(line.split(maxsplit=5)) == 6]
    return list(dict.fromkeys(name for name in names if name.rpartition("/")[2].startswith("libdoca")))


def checks(system: System) -> Iterator[Check]:
    """The checks of this layer."""
    loaded = system.loaded
    if loaded is None:
        yield skipped(_LAYER, "library", "not loaded: these files are not this machine's")
    elif loaded.path is None:
        yield failed(
            _LAYER,
            "library",
            loaded.error or "not loaded",
            "See the layers below this one; 'aiodocadma devices --library emulator' shows whether aiodocadma itself "
            "works.",
        )
    else:
        emulated = "the emulator, no card: " if loaded.emulated else ""
        yield passed(
            _LAYER,
            "library",
            f"{emulated}{loaded.path}, DOCA {loaded.version or 'of unknown version'}",
            f"It lacks {', '.join(loaded.missing)}; aiodocadma does without." if loaded.missing else None,
        )
        yield _mapped(system, loaded.path)
    yield _devices(system)
    yield _locked_memory(system)
    groups = group_names(system.root)
    yield passed(_LAYER, "groups", ", ".join(groups)) if groups else skipped(_LAYER, "groups", "not readable")
    where = container(system)
    yield passed(
        _LAYER,
        "container",
        f"yes ({where})" if where else "no",
        "Fine to build and to learn; no device is inside unless it was passed in." if where else None,
    )
    yield passed(_LAYER, "side", "BlueField" if host_kind(system) == "dpu" else "host")


def _mapped(system: System, path: str) -> Check:
    mapped = mapped_libraries(system)
    if not mapped:
        return skipped(_LAYER, "library in memory", "/proc/self/maps names no libdoca")
    first = next(iter(library_files(system.root, system.environ, "doca_common")), path)
    if path not in mapped:
        return failed(
            _LAYER,
            "library in memory",
            f"{', '.join(mapped)} is in memory, {path} is not",
            "Something else loaded another DOCA into this process first. Start it without LD_PRELOAD.",
        )
    note = None
    if system.loaded is not None and not system.loaded.emulated and first != path:
        note = f"The linker's first choice would be {first}."
    return passed(_LAYER, "library in memory", ", ".join(mapped), note)


def _devices(system: System) -> Check:
    loaded = system.loaded
    if loaded is None or loaded.path is None:
        devices, problem = caps_devices(system)
        if not devices:
            return skipped(_LAYER, "devices", f"not listed: {problem}")
        return passed(_LAYER, "devices", f"doca_caps lists {', '.join(device.pci_address for device in devices)}")
    if loaded.error is not None:
        return failed(_LAYER, "devices", loaded.error, "See layer 7: the drivers and their log.")
    if not loaded.devices:
        if container(system):
            return skipped(
                _LAYER,
                "devices",
                "none, as expected in a container",
                "Use the emulator here (library='emulator'), or pass the device's nodes into the container.",
            )
        return failed(
            _LAYER,
            "devices",
            "the library lists no device",
            "See layer 7: is there a card, and are its drivers loaded?",
        )
    listed = "; ".join(
        f"{device.name} ({device.pci_address}) {'can do DMA' if device.dma else f'cannot: {device.reason}'}"
        for device in loaded.devices
    )
    if any(device.dma for device in loaded.devices):
        return passed(_LAYER, "devices", listed)
    return failed(
        _LAYER,
        "devices",
        listed,
        "No device can do DMA, and that answer is final. A BlueField in NIC mode offers none, nor a plain ConnectX.",
    )


def _locked_memory(system: System) -> Check:
    limit = locked_memory_limit(system.root)
    if limit is None:
        return skipped(_LAYER, "locked memory", "/proc/self/limits is not readable")
    if limit == "unlimited" or limit >= _PLENTY:
        return passed(_LAYER, "locked memory", limit if isinstance(limit, str) else f"up to {limit // _MIB} MiB")
    if limit < _MIB:
        return failed(
            _LAYER,
            "locked memory",
            f"up to {limit // 1024} KiB (RLIMIT_MEMLOCK): most registrations fail, as NOT_PERMITTED or NO_MEMORY",
            "Raise the limit of this program: 'ulimit -l', LimitMEMLOCK= of its service, --ulimit memlock= of its "
            "container.",
        )
    return passed(
        _LAYER,
        "locked memory",
        f"up to {limit // _MIB} MiB (RLIMIT_MEMLOCK)",
        "On a card, registering more fails as NOT_PERMITTED or NO_MEMORY. Raise it with 'ulimit -l', LimitMEMLOCK= of "
        "the service or --ulimit memlock= of the container.",
    )
