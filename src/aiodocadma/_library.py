"""Which DOCA is loaded: the system's, the embedded emulator, or a given one."""

from __future__ import annotations

import functools
import logging
import os
import re
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from aiodocadma import _native
from aiodocadma._causes import Evidence, tell
from aiodocadma._private import environment, replaceable
from aiodocadma._sdk_log import SdkLog
from aiodocadma.exceptions import DocaError, LibraryError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["EMULATOR_VARIABLE", "ENVIRONMENT_VARIABLE", "Library", "emulator_folder", "emulator_path", "open_library"]

logger = logging.getLogger("aiodocadma")

ENVIRONMENT_VARIABLE: Final = "AIODOCADMA_LIBRARY"
EMULATOR_VARIABLE: Final = "AIODOCADMA_EMULATOR"

_SUFFIXES: Final = (".so.2", ".so.3", ".so")
_PREFIX: Final = "/opt/mellanox/doca"
_OLDEST_VERSION: Final = (2, 5)  # the first release with progress engines, contexts and tasks

_lock = threading.RLock()  # one object for each library, and one log of each, whichever thread comes first


def _renew_lock() -> None:
    """In a forked child: the thread that held it is not here."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


class Library:
    """
    A loaded DOCA library.

    Args:
        common: File or SONAME of ``libdoca_common``.
        dma: File or SONAME of ``libdoca_dma``; the emulator is one file for both.

    Source: ``dlopen(3)``; aiodocadma.
    """

    def __init__(self, common: str, dma: str) -> None:
        try:
            self.native = _native.NativeLibrary(common, dma)
        except _native.LoadError as error:
            raise _load_error(error, common, dma) from None
        self.path = os.path.realpath(self.native.path)
        self.version = self.native.version
        self._sdk_log: SdkLog | None = None
        self.skew: str | None = None  # what is wrong with the versions around it, as somebody has found
        self.emulated = os.path.basename(self.path).startswith("libdocaemu")
        numbers = re.match(r"(\d+)\.(\d+)", self.version or "")
        if numbers and (int(numbers[1]), int(numbers[2])) < _OLDEST_VERSION:
            raise LibraryError(
                f"{self.path} is DOCA {self.version}; aiodocadma needs at least {'.'.join(map(str, _OLDEST_VERSION))}",
                hint="Older releases have another API. Install a newer DOCA.",
                path=self.path,
            )

    def error(self, evidence: Evidence, *, device: str | None = None, tag: object = None) -> DocaError:
        """
        Make the exception for a failure, with the cause as far as the evidence shows it; blocks nobody.

        Args:
            evidence: What is known.
            device: The device's name.
            tag: The copy's.

        Returns:
            The subclass for its code.

        Source: ``doca_error_get_name``, ``doca_error_get_descr``.
        """
        error = DocaError.from_code(
            evidence.code,
            name=self.native.error_name(evidence.code) if evidence.code in DocaError._by_code else None,
            descr=self.native.error_descr(evidence.code),
            call=evidence.call,
            phase=evidence.phase,
            device=device,
            tag=tag,
        )
        tell(error, evidence)
        return error

    @property
    def sdk_log(self) -> SdkLog:
        """DOCA's own log, from the first time that somebody asks for it."""
        if self._sdk_log is None:
            with _lock:
                if self._sdk_log is None:
                    self._sdk_log = SdkLog(self.native)
        return self._sdk_log

    def __repr__(self) -> str:
        return f"<Library {self.path} {self.version or 'of unknown version'}{' (emulated)' if self.emulated else ''}>"


def emulator_path() -> str:
    """
    The emulator's file: that of the environment variable ``AIODOCADMA_EMULATOR``, or the embedded one.

    Returns:
        An absolute path.

    Raises:
        LibraryError: If there is none, or the variable's is not to be trusted.

    Source: aiodocadma.
    """
    if chosen := environment(EMULATOR_VARIABLE):
        _check_trust(chosen, EMULATOR_VARIABLE)
        return chosen
    return str(emulator_folder() / "lib" / "libdocaemu.so")


def emulator_folder() -> Path:
    """
    The folder of the embedded emulator: ``lib``, ``include``, ``dropin``, ``sdk``.

    Returns:
        An absolute path.

    Raises:
        LibraryError: If this installation has none.

    Source: aiodocadma.
    """
    import importlib.resources  # here, for it brings along twenty modules that importing aiodocadma needs not wait for
    from pathlib import Path

    folder = Path(str(importlib.resources.files("aiodocadma") / "_emulator"))
    if not (folder / "lib" / "libdocaemu.so").is_file():
        raise LibraryError("the embedded emulator is missing from this installation", path=str(folder))
    return folder


def open_library(choice: str | os.PathLike[str] | None = None) -> Library:
    """
    Load a DOCA library; the same choice gives the same object.

    Args:
        choice: ``auto`` (the system's DOCA, or the emulator where none is installed), ``system``, ``emulator``, or the
            absolute path of a library file or of a folder with one. None: the environment variable
            ``AIODOCADMA_LIBRARY``, or ``auto``.

    Returns:
        The loaded library.

    Raises:
        LibraryError: If it is not there, damaged, incomplete, too old, or somebody else may replace it.

    Source: aiodocadma.
    """
    name = os.fspath(choice) if choice is not None else environment(ENVIRONMENT_VARIABLE) or "auto"
    with _lock:
        return _chosen(name)


def _chosen(name: str) -> Library:
    if name in ("auto", "system"):
        return _system(name)
    if name == "emulator":
        return _load(emulator_path(), emulator_path())
    if os.sep not in name:
        raise LibraryError(
            f"library {name!r} is neither auto, system, emulator nor a path", hint="A path begins with '/'."
        )
    return _given(name)


@functools.cache
def _load(common: str, dma: str) -> Library:
    return Library(common, dma)


def _system(name: str) -> Library:
    """The installed DOCA. What is installed but broken raises: a service must not run on a fake card unawares."""
    for common, dma in _system_candidates():
        for file in (common, dma):
            for path in (file,) if os.sep in file else _in_search_path(file):
                _check_trust(path, "LD_LIBRARY_PATH")
        try:
            return _load(common, dma)
        except LibraryError as error:
            if not _is_absent(error, common):
                raise
    if os.path.isdir(_PREFIX):
        raise LibraryError(
            f"{_PREFIX} exists, but holds no libdoca_common",
            hint="The installation of DOCA is incomplete; the package doca-sdk-common has the library.",
            name="libdoca_common",
        )
    if name == "auto":
        return _load(emulator_path(), emulator_path())
    raise LibraryError(
        "no DOCA is installed: libdoca_common was not found",
        hint="Install DOCA, or use the emulator: library='emulator'.",
        name="libdoca_common",
    )


def _system_candidates() -> list[tuple[str, str]]:
    names = [(f"libdoca_common{suffix}", f"libdoca_dma{suffix}") for suffix in _SUFFIXES]
    import glob

    patterns = ("lib/*-linux-gnu", "lib64", "lib")
    folders = [path for pattern in patterns for path in sorted(glob.glob(f"{_PREFIX}/{pattern}"))]
    return names + [(f"{folder}/{common}", f"{folder}/{dma}") for folder in folders for common, dma in names]


def _is_absent(error: LibraryError, common: str) -> bool:
    return error.symbol is None and str(error.args[0]).startswith(f"{common}: cannot open shared object file: No such")


def _in_search_path(name: str) -> Iterator[str]:
    """What the dynamic linker may find under a name in ``LD_LIBRARY_PATH``; the system's own folders are root's."""
    import glob

    folders = environment("LD_LIBRARY_PATH")
    for folder in re.split("[:;]", folders) if folders else ():  # an empty one stands for the current folder
        for path in (os.path.join(folder, name), *glob.glob(f"{glob.escape(folder)}/glibc-hwcaps/*/{name}")):
            if os.path.lexists(path):
                yield path


def _check_trust(path: str, where: str) -> None:
    """
    Refuse a library that is another one in another folder, or that somebody else may replace: its code runs as ours.

    One that another user owns is only told of: an administrator's account may have installed it, and root may have
    another number in a container.
    """
    try:
        if not os.path.isabs(path):
            problem: str | None = "the path is relative: what it leads to depends on the current folder"
        else:
            folders = (os.path.dirname(path), os.path.dirname(os.path.realpath(path)))  # its own libraries lie there
            problem = next(filter(None, map(replaceable, (path, *folders))), None)
            owner = os.stat(path).st_uid
            if problem is None and owner not in (0, os.geteuid()):
                _tell_owner(path, owner)
    except OSError:  # absent, or not to be looked at: the dynamic linker says so
        return
    if problem is not None:
        raise LibraryError(
            f"{path} is not loaded: {problem}",
            hint=f"Take the library from an absolute path where only root or this user may write (see {where}).",
            name=os.path.basename(path),
            path=path,
        )


@functools.cache  # once
def _tell_owner(path: str, owner: int) -> None:
    logger.warning("%s belongs to user %d, who decides what this process runs", path, owner)


def _given(path: str) -> Library:
    _check_trust(path, ENVIRONMENT_VARIABLE)
    if os.path.isdir(path):
        for suffix in _SUFFIXES:
            common = f"{path}/libdoca_common{suffix}"
            if os.path.exists(common):
                return _load(common, f"{path}/libdoca_dma{suffix}")
        raise LibraryError(f"{path} holds no libdoca_common.so", name="libdoca_common", path=path)
    folder, name = os.path.split(path)
    return _load(path, os.path.join(folder, name.replace("libdoca_common", "libdoca_dma")))


def _load_error(error: _native.LoadError, common: str, dma: str) -> LibraryError:
    if error.symbol:
        culprit = dma if "_dma_" in error.text else common
        return LibraryError(
            f"{culprit} has no symbol {error.text}",
            hint="This is not a DOCA of release 2.5 or later, or it is damaged.",
            name=os.path.basename(culprit),
            path=culprit,
            symbol=error.text,
        )
    file = error.text.partition(":")[0]
    return LibraryError(error.text, name=os.path.basename(file), path=file)
