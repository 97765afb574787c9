"""All checks of a machine, from the bottom layer up, and what becomes of them: records, an exit status."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Final

from aiodocadma._version import __version__
from aiodocadma._versions import PREFIX, VersionVerdict, packages
from aiodocadma.doctor import _build, _driver, _install, _link, _runtime, _version
from aiodocadma.doctor._check import Check, Layer, skipped
from aiodocadma.doctor._machine import (
    bluefield_mode,
    container,
    device_records,
    firmware_versions,
    group_names,
    host_kind,
    hugepages,
    loaded_modules,
    locked_memory_limit,
)
from aiodocadma.doctor._system import System

__all__ = ["Report", "examine"]

# Helpers of NVIDIA's published contract that ship nowhere yet; what they would print is not known.
_HELPERS: Final = ("doca-env", "doca-capability-snapshot", "doca-validate")


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """
    What the doctor found.

    Args:
        system: What was looked at.
        checks: All checks, by layer.
        verdict: Whether the versions agree.

    Source: aiodocadma.
    """

    system: System
    checks: tuple[Check, ...]
    verdict: VersionVerdict

    @property
    def lowest_failing_layer(self) -> Layer | None:
        """
        Where to start.

        Returns:
            The lowest layer with a failed check, or None.

        Source: aiodocadma.
        """
        return min((check.layer for check in self.checks if check.status == "fail"), default=None)

    @property
    def doca_version(self) -> str | None:
        """
        The version of DOCA in use.

        Returns:
            As the loaded library tells it (the emulator's, where that is loaded), else the first place that does. None
            if nothing tells, as with an emulator of 2.6.

        Source: ``doca_version_runtime``.
        """
        loaded = self.system.loaded
        if loaded is not None and (loaded.version or loaded.emulated):
            return loaded.version
        told = [anchor for anchor in self.verdict.anchors if anchor.version is not None]
        return next((anchor.raw for anchor in reversed(told) if anchor.name == "library file"), None) or (
            told[0].raw if told else None
        )

    @property
    def doca(self) -> str:
        """
        The DOCA in use, for people.

        Returns:
            ``DOCA`` and its version, or that there is none, or none that tells.

        Source: aiodocadma.
        """
        loaded = self.system.loaded
        is_there = loaded is not None and loaded.path is not None
        emulated = " (the emulator's)" if loaded is not None and loaded.emulated else ""
        return f"DOCA {self.doca_version or ('of unknown version' if is_there else 'none')}{emulated}"

    @property
    def method(self) -> str:
        """
        How this was found out, in the words of NVIDIA's contract (always by hand).

        Returns:
            One line.

        Source: NVIDIA's published contract for structured helpers.
        """
        helper = next((path for name in _HELPERS if (path := self.system.find_tool(name))), None)
        return "manual chain" + (f"; {helper} is there, but what it prints is not known yet" if helper else "")

    def env(self) -> dict[str, Any]:
        """
        The report as JSON.

        Returns:
            A record of the ``env`` schema; what is ours is under ``x_aiodocadma``.

        Source: NVIDIA's published contract for structured helpers; ``schemas/env.json``.
        """
        system, root = self.system, self.system.root
        found = packages(root, system.environ)
        modules = loaded_modules(root)
        names = sorted({"doca-common", "doca-dma", *found})
        loaded = system.loaded
        return {
            "version": {
                "pkg_config": self._said("pkg-config"),
                "applications_version": self._said("applications"),
                "doca_caps": self._said("doca_caps"),
                "bfb": self._said("BlueField image"),
                "consistent": self.verdict.consistent,
            },
            "devices": device_records(system),
            "libraries": [
                {
                    "pkg_config_name": name,
                    "installed": name in found,
                    "pc_path": found[name].path if name in found else None,
                }
                for name in names
            ],
            "sample_paths": [
                {"library": path.rpartition("/")[2].replace("_", "-"), "path": path}
                for path in root.glob(f"{PREFIX}/samples/doca_*")
            ],
            "drivers": {
                "mlx5_core_loaded": None if modules is None else "mlx5_core" in modules,
                "mlx5_ib_loaded": None if modules is None else "mlx5_ib" in modules,
                "kernel_version": root.line("/proc/sys/kernel/osrelease"),
            },
            "hugepages": hugepages(root),
            "host_kind": host_kind(system),
            "bf_mode": bluefield_mode(system),
            "x_aiodocadma": {
                "aiodocadma_version": __version__,
                "method": self.method,
                "lowest_failing_layer": self.lowest_failing_layer,
                "checks": [check.record() for check in self.checks],
                "versions": {
                    "verdict": self.verdict.kind,
                    "skew": None if self.verdict.skew is None else [anchor.name for anchor in self.verdict.skew],
                    "missing": [anchor.name for anchor in self.verdict.missing],
                    "anchors": [
                        {
                            "name": anchor.name,
                            "where": anchor.where,
                            "raw": anchor.raw,
                            "version": None if anchor.version is None else str(anchor.version),
                            "problem": anchor.problem,
                        }
                        for anchor in self.verdict.anchors
                    ],
                },
                "library": None
                if loaded is None
                else {
                    "path": loaded.path,
                    "version": loaded.version,
                    "emulated": loaded.emulated,
                    "error": loaded.error,
                },
                "dma_devices": []
                if loaded is None
                else [
                    {
                        "pcie_address": device.pci_address,
                        "name": device.name,
                        "dma": device.dma,
                        "reason": device.reason,
                    }
                    for device in loaded.devices
                ],
                "visible_libraries": _link.visible_libraries(system),
                "mapped_libraries": _runtime.mapped_libraries(system),
                "container": container(system),
                "machine": system.machine,
                "locked_memory_limit": locked_memory_limit(root),
                "groups": group_names(root),
            },
        }

    def state(self) -> dict[str, Any]:
        """
        The side's state, in one shape for host and DPU, so that two of them can be diffed.

        Returns:
            A record of the ``state`` schema.

        Source: NVIDIA's published contract for structured helpers; ``schemas/state.json``.
        """
        root = self.system.root
        return {
            "side": host_kind(self.system),
            "doca_version": self.doca_version,
            "firmware_version": ", ".join(firmware_versions(root)) or None,
            "kernel_version": root.line("/proc/sys/kernel/osrelease"),
            "mlx5_modules": list(loaded_modules(root) or ()),
            "bf_mode": bluefield_mode(self.system),
            "devices": device_records(self.system),
        }

    def _said(self, name: str) -> str | None:
        """What the first place of that kind says, word for word."""
        found = (anchor for anchor in self.verdict.anchors if re.match(rf"{name}\b", anchor.name))
        return next((anchor.raw for anchor in found if anchor.version is not None), None)


def examine(system: System) -> Report:
    """
    Look at a machine, from the bottom layer up. Only reads; takes no privilege and changes nothing.

    Args:
        system: ``System.here()``, or one made from a folder.

    Returns:
        The report.

    Source: aiodocadma.
    """
    verdict = _version.system_verdict(system)
    checks = [
        *_install.checks(system),
        *_version.checks(system, verdict),
        *_build.checks(system),
        *_link.checks(system),
        *_runtime.checks(system),
        skipped(
            Layer.PROGRAM,
            "program",
            "not looked at here",
            "'aiodocadma selftest' copies and compares bytes; errors name their own cause.",
        ),
        *_driver.checks(system),
    ]
    return Report(system, tuple(checks), verdict)
