"""
The suite's own binding of the DOCA C ABI, by ``dlopen``: none of the client's code is between a test and the library.

The declarations are read from the headers installed beside the emulator, so they exist once.
"""

from __future__ import annotations

import functools
import glob
import importlib.resources
import os
import re
from pathlib import Path
from typing import Any, Final

import cffi

__all__ = ["ERRORS", "Abi", "LibraryMissingError", "declarations"]

_HEADERS: Final = ("types", "error", "version", "dev", "mmap", "buf", "buf_inventory", "pe", "ctx", "dma", "log")
_SUFFIXES: Final = (".so.2", ".so.3", ".so")
_FOLDERS: Final = ("/opt/mellanox/doca/lib/*-linux-gnu", "/opt/mellanox/doca/lib64")


class LibraryMissingError(Exception):
    """
    The library to be tested is not there.

    Source: ``dlopen(3)``.
    """


def _header(name: str) -> str:
    path = importlib.resources.files("aiodocadma") / "_emulator" / "include" / name
    text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
    text = re.sub(r"^#(?:.*\\\n)*.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^static inline[^{]*\{.*?^\}\n", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"__attribute__\(\(.*?\)\)\)?", "", text)
    return re.sub(r'^extern "C" \{$|^\}$|^DOCA_STABLE$|^DOCA_EXPERIMENTAL$|^DOCAEMU_API$', "", text, flags=re.MULTILINE)


def declarations(*, control: bool = False) -> str:
    """
    The C declarations of what the suite calls, as ``FFI.cdef`` takes them.

    ``union doca_data`` is passed by value, which cffi cannot do in this mode; an integer of its size is passed alike on
    the platforms DOCA has.
    """
    text = "\n".join(_header(f"doca_{name}.h") for name in _HEADERS) + (_header("docaemu.h") if control else "")
    text = re.sub(r"^typedef __be.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"union doca_data \{.*?\};", "", text, flags=re.DOTALL)
    return "typedef struct _IO_FILE FILE;\n" + re.sub(r"union doca_data\b", "uint64_t", text)


@functools.cache
def _ffi(control: bool) -> cffi.FFI:
    ffi = cffi.FFI()
    ffi.cdef(declarations(control=control))
    return ffi


def _errors() -> dict[int, str]:
    numbers = re.findall(r"DOCA_(SUCCESS|ERROR_\w+) = (\d+)", _header("doca_error.h"))
    return {int(number): name.removeprefix("ERROR_") for name, number in numbers}


ERRORS: Final = _errors()


class Abi:
    """
    A loaded library: attributes are its functions, ``ffi`` makes what they take.

    Args:
        choice: ``emulator``, ``system``, or the path of a library or of a folder with one.

    Source: ``dlopen(3)``.
    """

    def __init__(self, choice: str) -> None:
        common, dma = _files(choice)
        self.path = common
        self.ffi = _ffi(False)
        try:
            self._libraries = [self.ffi.dlopen(file, self.ffi.RTLD_NOW) for file in dict.fromkeys((common, dma))]
        except OSError as error:
            raise LibraryMissingError(str(error)) from None
        self.control_ffi = _ffi(True)
        self.control = self.control_ffi.dlopen(common)
        self.emulated = hasattr(self.control, "docaemu_configure")

    def __getattr__(self, name: str) -> Any:
        for library in self._libraries:
            if hasattr(library, name):
                return getattr(library, name)
        raise AttributeError(name)


def _files(choice: str) -> tuple[str, str]:
    if choice == "emulator":
        path = str(importlib.resources.files("aiodocadma") / "_emulator" / "lib" / "libdocaemu.so")
        return path, path
    if choice == "system":
        return _system_files()
    path = os.path.abspath(choice)
    if os.path.isdir(path):
        found = [file for suffix in _SUFFIXES if os.path.exists(file := f"{path}/libdoca_common{suffix}")]
        if not found:
            raise LibraryMissingError(f"{path} holds no libdoca_common.so")
        path = found[0]
    return path, str(Path(path).with_name(Path(path).name.replace("libdoca_common", "libdoca_dma")))


def _system_files() -> tuple[str, str]:
    folders = ["", *(f"{folder}/" for pattern in _FOLDERS for folder in glob.glob(pattern))]
    ffi = _ffi(False)
    for folder in folders:
        for suffix in _SUFFIXES:
            common = f"{folder}libdoca_common{suffix}"
            try:
                ffi.dlopen(common, ffi.RTLD_NOW)
            except OSError:
                continue
            return common, common.replace("libdoca_common", "libdoca_dma")
    raise LibraryMissingError("no system DOCA: libdoca_common is not installed")
