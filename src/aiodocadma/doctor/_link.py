"""Layer 4: which library files does the linker see, and do they define what the client calls?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from aiodocadma import _native
from aiodocadma._counted import counted
from aiodocadma._versions import include_folder, library_files, packages
from aiodocadma.doctor._check import Check, Layer, failed, passed, skipped
from aiodocadma.doctor._elf import parse_elf
from aiodocadma.doctor._headers import Declared, parse_headers
from aiodocadma.doctor._install import missing_package
from aiodocadma.doctor._system import System

__all__ = ["checks", "visible_libraries"]

_LAYER: Final = Layer.LINK
_MAX_SHOWN: Final = 5


def visible_libraries(system: System) -> list[str]:
    """All ``libdoca_common`` and ``libdoca_dma`` that a linker could take, in its order."""
    return [path for name in ("doca_common", "doca_dma") for path in library_files(system.root, system.environ, name)]


def checks(system: System) -> Iterator[Check]:
    """The checks of this layer."""
    declared = parse_headers(system.root, include_folder(system.root, packages(system.root, system.environ)))
    for name in ("common", "dma"):
        files = library_files(system.root, system.environ, f"doca_{name}")
        if not files:
            yield skipped(_LAYER, f"one libdoca_{name}", "there is none")
            continue
        yield _one_install(name, files)
        yield _symbols(system, name, files[0], declared)


def _one_install(name: str, files: list[str]) -> Check:
    folders = list(dict.fromkeys(path.rpartition("/")[0] for path in files))
    if len(files) == 1:
        return passed(_LAYER, f"one libdoca_{name}", files[0])
    what = f"{counted(len(files), 'file')} in {counted(len(folders), 'folder')}"
    return failed(
        _LAYER,
        f"one libdoca_{name}",
        f"{what}, the first is taken: {', '.join(files)}",
        "Two installations are visible. Leave one in LD_LIBRARY_PATH, or name the one to use with library=PATH.",
    )


def _symbols(system: System, name: str, path: str, declared: Mapping[str, Declared]) -> Check:
    title = f"symbols of libdoca_{name}"
    data, problem = system.root.read_bytes(path)
    if data is None:
        return failed(_LAYER, title, f"{path} is {problem}", "Ask the administrator to make it readable.")
    elf = parse_elf(data)
    if elf is None:
        return failed(
            _LAYER,
            title,
            f"{path} is no 64-bit library, or damaged",
            f"Ask the administrator to reinstall {missing_package(system, name)}.",
        )
    if elf.machine != system.machine:
        return failed(
            _LAYER,
            title,
            f"{path} is for {elf.machine}, this is {system.machine}",
            f"Ask the administrator for {missing_package(system, name)} of this architecture.",
        )
    required = [symbol for symbol in _native.required_symbols() if symbol.startswith("doca_dma_") == (name == "dma")]
    missing = [symbol for symbol in required if symbol not in elf.symbols]
    if missing:
        return failed(
            _LAYER,
            title,
            f"{path} lacks {_listed(missing, declared)}",
            "It is not a DOCA of release 2.5 or later, or it is damaged.",
        )
    optional = [symbol for symbol in _native.optional_symbols() if symbol.startswith("doca_dma_") == (name == "dma")]
    absent = [symbol for symbol in optional if symbol not in elf.symbols]
    lacking = f", without the optional {', '.join(absent)}" if absent else ""
    soname = elf.soname or "without a SONAME"
    promised = [symbol for symbol in absent if symbol in declared]
    note = f"The headers are of a later release: they declare {_listed(promised, declared)}." if promised else None
    return passed(_LAYER, title, f"{path} ({soname}) has all that aiodocadma calls{lacking}", note)


def _listed(symbols: list[str], declared: Mapping[str, Declared]) -> str:
    """Some of them, and where the installed headers promise them."""
    shown = [
        f"{symbol} (declared in {declared[symbol].file}:{declared[symbol].line})" if symbol in declared else symbol
        for symbol in symbols[:_MAX_SHOWN]
    ]
    more = f" and {len(symbols) - _MAX_SHOWN} more" if len(symbols) > _MAX_SHOWN else ""
    return ", ".join(shown) + more
