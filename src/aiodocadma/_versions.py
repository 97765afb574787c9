"""
Which version of DOCA a machine has, as each of the places that tell it says: do they agree?

Files only, no process: this runs when a DMA is opened, in the worker thread that opens it, and the answer is kept. The
doctor adds what ``doca_caps`` prints.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from aiodocadma._root import Root

if TYPE_CHECKING:
    from aiodocadma._library import Library

__all__ = [
    "PREFIX",
    "Anchor",
    "Package",
    "Version",
    "VersionVerdict",
    "anchors",
    "include_folder",
    "library_files",
    "library_folders",
    "packages",
    "verdict",
    "verdict_of",
]

PREFIX: Final = "/opt/mellanox/doca"

_PC_FOLDERS: Final = (
    f"{PREFIX}/lib/*/pkgconfig",
    f"{PREFIX}/lib64/pkgconfig",
    f"{PREFIX}/lib/pkgconfig",
    f"{PREFIX}/infrastructure/lib/*/pkgconfig",
    f"{PREFIX}/infrastructure/lib/pkgconfig",
    "/usr/local/lib/*/pkgconfig",
    "/usr/local/lib/pkgconfig",
    "/usr/lib/*-linux-gnu/pkgconfig",
    "/usr/lib64/pkgconfig",
    "/usr/lib/pkgconfig",
    "/usr/share/pkgconfig",
)
_LIBRARY_FOLDERS: Final = (
    f"{PREFIX}/lib/*-linux-gnu",
    f"{PREFIX}/lib64",
    f"{PREFIX}/lib",
    "/usr/local/lib",
    "/usr/lib/*-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
)
# Before DOCA 2.7 there was no module for each library.
_OLD_MODULES: Final = ("doca-libs", "doca")


class Version(NamedTuple):
    """
    A version of DOCA; ``build`` is None where only the release is told.

    In ``2.9.4005`` the third field is patch times 1000 plus build: 2.9.4 build 5. A field of fewer than four digits is
    the patch alone.

    Source: doca_version.h; versions of published packages.
    """

    major: int
    minor: int
    patch: int
    build: int | None

    @classmethod
    def parse(cls, text: str) -> Version | None:
        """Find the first version in a text, for example ``3.0.0058-1`` or ``bf-bundle-3.2.0-113_25.10``."""
        match = re.search(r"(?<![\d.])(\d+)\.(\d+)(?:\.(\d+))?(?![.\d])", text)
        if match is None:
            return None
        major, minor, third = match.groups()
        if third is not None and len(third) >= 4:
            return cls(int(major), int(minor), *divmod(int(third), 1000))
        return cls(int(major), int(minor), int(third or 0), None)

    def agrees(self, other: Version) -> bool:
        """Whether both may be the same; a build that is not told agrees with every build."""
        return self[:3] == other[:3] and (None in (self.build, other.build) or self.build == other.build)

    def __str__(self) -> str:
        build = "" if self.build is None else f" build {self.build}"
        return f"{self.major}.{self.minor}.{self.patch}{build}"


class Anchor(NamedTuple):
    """
    One place that tells the version.

    Args:
        name: What it is, for example ``pkg-config doca-dma``.
        where: The file or command.
        raw: What it says, or None.
        problem: Why it says nothing, or None. A place that is absent does not disagree.

    Source: aiodocadma.
    """

    name: str
    where: str
    raw: str | None
    problem: Literal["absent", "unreadable", "no version"] | None = None

    @property
    def version(self) -> Version | None:
        """What it says, normalised."""
        return None if self.raw is None else Version.parse(self.raw)

    @classmethod
    def of(cls, name: str, where: str, raw: str | None, problem: Literal["absent", "unreadable"] | None) -> Anchor:
        """Make one; a text without a version is a problem, too."""
        if raw is not None and Version.parse(raw) is None:
            return cls(name, where, raw or None, "no version")
        return cls(name, where, raw, problem)

    @property
    def said(self) -> str:
        """What it says, word for word, and what that means if it is not plain."""
        return f"{self.raw}" if str(self.version) == self.raw else f"{self.raw} ({self.version})"

    def __str__(self) -> str:
        return f"{self.name} says {self.said}, in {self.where}"


class VersionVerdict(NamedTuple):
    """
    Whether the places that tell DOCA's version agree.

    Args:
        anchors: All places, in the order in which they are asked.
        skew: Two that disagree, or None.

    Source: aiodocadma.
    """

    anchors: tuple[Anchor, ...]
    skew: tuple[Anchor, Anchor] | None

    @property
    def kind(self) -> Literal["match", "partial", "skew", "absent"]:
        """``partial``: what is there agrees, but some places are absent; ``absent``: none says anything."""
        if self.skew is not None:
            return "skew"
        told = sum(anchor.version is not None for anchor in self.anchors)
        return "match" if told == len(self.anchors) else "partial" if told else "absent"

    @property
    def consistent(self) -> bool | None:
        """Whether all that say something agree; None where fewer than two do."""
        told = sum(anchor.version is not None for anchor in self.anchors)
        return self.skew is None if told > 1 else None

    @property
    def missing(self) -> tuple[Anchor, ...]:
        """The places that say nothing."""
        return tuple(anchor for anchor in self.anchors if anchor.version is None)

    @property
    def sentence(self) -> str | None:
        """What an error must say first: who says what; None where nothing disagrees."""
        if self.skew is None:
            return None
        first, second = self.skew
        return f"{first}, but {second}"


def verdict_of(found: Iterable[Anchor]) -> VersionVerdict:
    """
    Judge what was found.

    Args:
        found: The anchors.

    Returns:
        The verdict; the first pair that disagrees is the skew.

    Source: aiodocadma.
    """
    found = tuple(found)
    told = [(anchor, anchor.version) for anchor in found if anchor.version is not None]
    for index, (first, version) in enumerate(told):
        for second, other in told[index + 1 :]:
            if not version.agrees(other):
                return VersionVerdict(found, (first, second))
    return VersionVerdict(found, None)


def verdict(library: Library) -> VersionVerdict:
    """
    Whether the installation that a library belongs to is of one version; formed once, then cached.

    Reads about ten files and starts no process. Call it in a worker thread, when a DMA is opened.

    Args:
        library: The loaded library.

    Returns:
        The verdict; without anchors for the emulator, which is of one piece.

    Source: aiodocadma.
    """
    if library.emulated:
        return VersionVerdict((), None)
    return _verdict(library.path, library.version)


@functools.cache
def _verdict(path: str, version: str | None) -> VersionVerdict:
    return verdict_of(anchors(Root(), os.environ, loaded=(path, version)))


# ---- where to look


class Package(NamedTuple):
    """A module of pkg-config: a ``.pc`` file."""

    name: str
    path: str
    fields: Mapping[str, str]
    variables: Mapping[str, str]

    @classmethod
    def parse(cls, name: str, path: str, text: str) -> Package:
        """Read fields (``Version: ...``) and variables (``prefix=...``), with ``${...}`` replaced."""
        variables = {"pcfiledir": os.path.dirname(path)}
        fields: dict[str, str] = {}

        def expanded(value: str) -> str:
            return re.sub(r"\$\{(\w+)\}", lambda match: variables.get(match[1], ""), value).strip()

        for line in text.splitlines():
            if match := re.match(r"\s*([\w.]+)\s*(=|:)(.*)", line):
                (variables if match[2] == "=" else fields)[match[1]] = expanded(match[3])
        return cls(name, path, fields, variables)

    @property
    def emulated(self) -> bool:
        """Whether it is the emulator's own, which has a variable that DOCA's do not have."""
        return "dropindir" in self.variables


def packages(root: Root, environ: Mapping[str, str], *, emulated: bool = False) -> dict[str, Package]:
    """The modules ``doca*`` that pkg-config finds, and those in DOCA's folders; of each name the first."""
    folders = [folder for folder in environ.get("PKG_CONFIG_PATH", "").split(":") if folder.startswith("/")]
    folders += [folder for pattern in _PC_FOLDERS for folder in root.glob(pattern)]
    found: dict[str, Package] = {}
    for folder in folders:
        for path in root.glob(f"{folder.rstrip('/')}/doca*.pc"):
            name = path.rpartition("/")[2].removesuffix(".pc")
            if name not in found and (text := root.read(path).text) is not None:
                package = Package.parse(name, path, text)
                if package.emulated == emulated:
                    found[name] = package
    return found


def include_folder(root: Root, found: Mapping[str, Package]) -> str:
    """Where the headers are: as ``pkg-config --variable=includedir doca-common`` says, else DOCA's own folder."""
    for name in ("doca-common", *_OLD_MODULES):
        if name in found and (folder := found[name].variables.get("includedir")):
            return root.resolve(folder)
    return f"{PREFIX}/include"


def library_folders(root: Root, environ: Mapping[str, str]) -> list[str]:
    """Where the dynamic linker looks, in its order, then DOCA's own folders, which need not be among them."""
    folders = [folder for folder in environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    folders += _linker_configuration(root, "/etc/ld.so.conf", set())
    folders += [folder for pattern in _LIBRARY_FOLDERS for folder in root.glob(pattern)]
    return list(dict.fromkeys(root.resolve(folder) for folder in folders if root.is_dir(folder)))


def _linker_configuration(root: Root, path: str, seen: set[str]) -> Iterator[str]:
    """Folders that ``ld.so.conf`` and what it includes name."""
    if path in seen:
        return
    seen.add(path)
    for line in (root.read(path).text or "").splitlines():
        line = line.partition("#")[0].strip()
        if line.startswith("include "):
            for pattern in line.split()[1:]:
                pattern = pattern if pattern.startswith("/") else f"{os.path.dirname(path)}/{pattern}"
                for included in root.glob(pattern):
                    yield from _linker_configuration(root, included, seen)
        elif line.startswith("/"):
            yield line


def library_files(root: Root, environ: Mapping[str, str], name: str) -> list[str]:
    """The real files of ``libdoca_NAME.so`` in all library folders, in the linker's order, each once."""
    found = []
    for folder in library_folders(root, environ):
        links = [f"{folder}/lib{name}.so.2", f"{folder}/lib{name}.so", *root.glob(f"{folder}/lib{name}.so.*")]
        found += [root.resolve(link) for link in links if root.exists(link)]
    return list(dict.fromkeys(found))


def anchors(
    root: Root, environ: Mapping[str, str], *, loaded: tuple[str, str | None] | None = None
) -> Iterator[Anchor]:
    """
    Ask all files that tell a version.

    Args:
        root: Where to look.
        environ: Its environment variables.
        loaded: The library's file and what ``doca_version_runtime`` says; None: the first file the linker finds.

    Yields:
        The anchors, in a fixed order.

    Source: aiodocadma; the layout of installations of DOCA 2.6 to 3.3.
    """
    found = packages(root, environ)
    old = "doca-common" not in found and any(name in found for name in _OLD_MODULES)
    for name in next((n,) for n in _OLD_MODULES if n in found) if old else ("doca-common", "doca-dma"):
        package = found.get(name)
        where = package.path if package else f"{name}.pc"
        yield Anchor.of(
            f"pkg-config {name}", where, package and package.fields.get("Version", ""), None if package else "absent"
        )
    path = f"{PREFIX}/applications/VERSION"
    text, problem = root.read(path)
    yield Anchor.of("applications", path, text and text.strip(), problem)
    path = f"{include_folder(root, found)}/doca_version.h"
    text, problem = root.read(path)
    yield Anchor.of("header", path, None if text is None else _header_version(text), problem)
    if loaded is None:
        files = library_files(root, environ, "doca_common")
        loaded = (files[0], None) if files else ("libdoca_common.so", "")
    file, runtime = loaded
    named = re.search(r"\.so\.(\d+\.\d+\.\d+)$", file)
    if named or not runtime:
        raw = named[1] if named else None
        yield Anchor.of("library file", file, raw, None if raw else "absent")
    if runtime:
        yield Anchor.of("doca_version_runtime", file, runtime, None)
    if _is_bluefield(root):
        path = "/etc/mlnx-release"
        text, problem = root.read(path)
        yield Anchor.of("BlueField image", path, text and text.strip(), problem)


def _header_version(text: str) -> str:
    if match := re.search(r'#\s*define\s+DOCA_VERSION_STRING\s+"([^"]*)"', text):
        return match[1]
    parts = [re.search(rf"#\s*define\s+DOCA_VERSION_{part}\s+(\d+)", text) for part in ("MAJOR", "MINOR", "PATCH")]
    return ".".join(part[1] for part in parts if part) if all(parts) else ""


def _is_bluefield(root: Root) -> bool:
    return root.exists("/etc/mlnx-release") or root.exists("/etc/nvidia/bf-release")
