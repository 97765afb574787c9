"""Layer 7: the card, its drivers, and what the kernel has to say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from aiodocadma._counted import counted
from aiodocadma.doctor._check import Check, Layer, failed, passed, skipped
from aiodocadma.doctor._kernel import kernel_log
from aiodocadma.doctor._machine import (
    bluefield_mode,
    container,
    firmware_versions,
    host_kind,
    hugepages,
    loaded_modules,
    pci_functions,
)
from aiodocadma.doctor._system import System

__all__ = ["checks"]

_LAYER: Final = Layer.DRIVER
_NEEDED: Final = ("mlx5_core", "mlx5_ib")


def checks(system: System) -> Iterator[Check]:
    """The checks of this layer."""
    functions = pci_functions(system.root)
    if not functions:
        where = "; in a container that is no surprise" if container(system) else ""
        yield skipped(_LAYER, "card", f"no PCI function of an NVIDIA network card{where}")
    else:
        yield passed(_LAYER, "card", ", ".join(functions))
        yield from _drivers(system)
        yield _nodes(system)
        yield _firmware(system)
    yield _mode(system)
    yield _pages(system)
    log = kernel_log(system.root)
    if log.text is None:
        why = "not readable as this user" if log.problem == "unreadable" else "absent"
        yield skipped(_LAYER, "kernel log", f"{why}, which does not mean clean")
    else:
        lines = [line for line in log.text.splitlines() if "mlx5" in line]
        latest = lines[-1].strip() if lines else None
        yield passed(_LAYER, "kernel log", f"{counted(len(lines), 'line')} with mlx5", latest)


def _drivers(system: System) -> Iterator[Check]:
    modules = loaded_modules(system.root)
    if modules is None:
        yield skipped(_LAYER, "drivers", "/proc/modules is not readable")
        return
    missing = [module for module in _NEEDED if module not in modules]
    if missing:
        yield failed(
            _LAYER,
            "drivers",
            f"not loaded: {', '.join(missing)}",
            "Ask the administrator of this machine to load them, or to find out why they are not.",
        )
    else:
        yield passed(_LAYER, "drivers", ", ".join(modules))


def _nodes(system: System) -> Check:
    nodes = system.root.glob("/dev/infiniband/uverbs*")
    if not nodes:
        return failed(
            _LAYER,
            "device nodes",
            "/dev/infiniband/uverbs* is absent",
            "In a container pass /dev/infiniband in; elsewhere the drivers make it.",
        )
    closed = [node for node in nodes if not system.root.accessible(node)]
    if closed:
        return failed(
            _LAYER,
            "device nodes",
            f"no access to {', '.join(closed)}",
            "Ask the administrator of this machine for the group that they belong to. Do not run as another user.",
        )
    return passed(_LAYER, "device nodes", ", ".join(nodes))


def _firmware(system: System) -> Check:
    versions = firmware_versions(system.root)
    if not versions:
        return skipped(_LAYER, "firmware", "the drivers tell no version; firmware tools need privilege and are not run")
    return passed(_LAYER, "firmware", ", ".join(versions))


def _mode(system: System) -> Check:
    mode = bluefield_mode(system)
    if mode is None:
        side = "only firmware tools would tell, which need privilege and are not run"
        return skipped(_LAYER, "mode", side if host_kind(system) == "dpu" or pci_functions(system.root) else "no card")
    return passed(_LAYER, "mode", f"{mode}: the host's function has a representor here")


def _pages(system: System) -> Check:
    pages = hugepages(system.root)
    if pages["available_2m"] is None and pages["available_1g"] is None:
        return skipped(_LAYER, "huge pages", "not readable")
    mounted = pages["mount_point"] or "not mounted"
    free = [f"{pages[key] or 0} of {size}" for key, size in (("available_2m", "2 MiB"), ("available_1g", "1 GiB"))]
    return passed(_LAYER, "huge pages", f"{', '.join(free)} free, hugetlbfs {mounted}; DMA needs none")
