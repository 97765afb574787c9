"""The machine as the checks see it: files below a root, what read-only tools print, what the loader found."""

from __future__ import annotations

import dataclasses
import os
import platform
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from aiodocadma._devices import devices
from aiodocadma._library import ENVIRONMENT_VARIABLE, open_library
from aiodocadma._private import environment
from aiodocadma._root import Root
from aiodocadma._versions import PREFIX
from aiodocadma.exceptions import AiodocadmaError

__all__ = ["Loaded", "LoadedDevice", "Output", "System", "Tool"]

# All that is ever run: these only print.
_TOOLS: Final = frozenset({("doca_caps", "--version"), ("doca_caps", "--list-devs")})
_TOOL_TIMEOUT: Final = 0.7  # seconds, so that both together leave the doctor under two


@dataclasses.dataclass(frozen=True, slots=True)
class LoadedDevice:
    """
    A device as DOCA lists it.

    Args:
        pci_address: ``dddd:bb:dd.f``.
        name: Its ibdev name, or the address.
        dma: Whether it can do DMA.
        reason: Why not, or None.

    Source: ``doca_devinfo_create_list``.
    """

    pci_address: str
    name: str
    dma: bool
    reason: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Loaded:
    """
    What the client's loader came to.

    Args:
        path: The file the symbols came from, or None.
        version: ``doca_version_runtime``, or None.
        emulated: Whether it is the emulator.
        error: What the loader or the device list said, in one line, or None.
        devices: What is listed.
        missing: The optional symbols that the library does not have.

    Source: aiodocadma.
    """

    path: str | None = None
    version: str | None = None
    emulated: bool = False
    error: str | None = None
    devices: tuple[LoadedDevice, ...] = ()
    missing: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Output:
    """
    What a tool printed.

    Args:
        text: Its output, or None.
        problem: Why there is none, or None.

    Source: aiodocadma.
    """

    text: str | None
    problem: str | None = None


Tool = Callable[..., Output]
"""Runs ``(path, argument)`` of a read-only tool."""


@dataclasses.dataclass(frozen=True, slots=True)
class System:
    """
    Everything the doctor looks at; a test makes one from a folder.

    Args:
        root: Its files.
        environ: Environment variables of the program that has the trouble.
        machine: Architecture, as ``uname -m`` prints it.
        tool: Runs a read-only tool, given its path and one argument.
        loaded: What the loader found, or None where nothing was loaded.
        choice: The ``library=`` that was asked for.

    Source: aiodocadma.
    """

    root: Root
    environ: Mapping[str, str]
    machine: str
    tool: Tool
    loaded: Loaded | None
    choice: str = "auto"

    @classmethod
    def here(cls, library: str | None = None) -> System:
        """
        The machine this runs on. Loads the library and lists its devices.

        Args:
            library: As for ``open_dma()``.

        Returns:
            The live system.

        Source: aiodocadma.
        """
        return cls(
            Root(),
            dict(os.environ),
            platform.machine(),
            _run,
            _load(library),
            library or environment(ENVIRONMENT_VARIABLE) or "auto",
        )

    def find_tool(self, name: str) -> str | None:
        """
        Find a tool: on PATH, else beside DOCA, whose tools are not on PATH.

        Args:
            name: The file's name.

        Returns:
            Its name below the root, or None.

        Source: aiodocadma.
        """
        folders = [*self.environ.get("PATH", "").split(":"), f"{PREFIX}/tools"]
        found = (f"{folder}/{name}" for folder in folders if folder.startswith("/"))  # never from the current folder
        return next(filter(self.root.exists, found), None)


def _load(choice: str | None) -> Loaded:
    try:
        library = open_library(choice)
    except AiodocadmaError as error:
        return Loaded(error=". ".join(str(error).splitlines()))
    try:
        listed = tuple(
            LoadedDevice(info.pci_address, info.name, info.dma_supported, info.reason) for info in devices(choice)
        )
    except AiodocadmaError as error:
        message = ". ".join(str(error).splitlines())
        return Loaded(library.path, library.version, library.emulated, message)
    missing = tuple(name for name, there in library.native.optional_symbols().items() if not there)
    return Loaded(library.path, library.version, library.emulated, None, listed, missing)


def _run(path: str, argument: str) -> Output:
    if (Path(path).name, argument) not in _TOOLS:
        raise ValueError(f"{path} {argument} is not one of the tools that only read")
    try:
        result = subprocess.run(
            [path, argument],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_TOOL_TIMEOUT,
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Output(None, f"did not answer within {_TOOL_TIMEOUT} s")
    except OSError as error:
        return Output(None, error.strerror)
    text = re.sub(r"\x1b\[[0-9;]*m", "", result.stdout.decode(errors="replace"))
    return Output(text, None if result.returncode == 0 else f"ended with code {result.returncode}")
