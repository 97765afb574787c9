"""Constants and prototypes of C headers, each with its line: enough to compare two releases of DOCA's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from aiodocadma._root import Root

__all__ = ["Declared", "Drift", "compare", "parse_headers"]


class Declared(NamedTuple):
    """A constant's value or a function's parameter types, and where that is written."""

    meaning: str
    file: str
    line: int


class Drift(NamedTuple):
    """A name whose meaning differs between the headers installed and those aiodocadma was built with."""

    name: str
    built: Declared
    installed: Declared | None

    def __str__(self) -> str:
        if self.installed is None:
            return f"{self.name} is not declared"
        where = f"{self.installed.file}:{self.installed.line}"
        return f"{where}: {self.name} is {self.installed.meaning}, aiodocadma was built with {self.built.meaning}"


def compare(built: dict[str, Declared], installed: dict[str, Declared], needed: frozenset[str]) -> list[Drift]:
    """
    What differs, of the names that matter.

    Args:
        built: What aiodocadma was built with.
        installed: What this machine's headers say.
        needed: Functions the client cannot do without; constants count where both sides have them.

    Returns:
        The differences by name.

    Source: aiodocadma.
    """
    drifts = []
    for name, declared in sorted(built.items()):
        there = installed.get(name)
        if there is None:
            if name in needed:
                drifts.append(Drift(name, declared, None))
        elif there.meaning != declared.meaning:
            drifts.append(Drift(name, declared, there))
    return drifts


def parse_headers(root: Root, folder: str) -> dict[str, Declared]:
    """
    All enumerators and functions that ``doca_*.h`` in a folder declare.

    Args:
        root: Where the folder is.
        folder: Its name.

    Returns:
        By name; empty if there are no headers.

    Source: aiodocadma.
    """
    found: dict[str, Declared] = {}
    for path in root.glob(f"{folder}/doca_*.h"):
        if (text := root.read(path).text) is not None:
            found.update(_parse(text, path))
    return found


def _parse(text: str, path: str) -> Iterator[tuple[str, Declared]]:
    code = _without_comments(text)
    for match in re.finditer(r"\benum\b[^{};]*\{([^{}]*)\}", code):
        yield from _enumerators(match[1], path, code.count("\n", 0, match.start(1)) + 1)
    outside = _without_bodies(code)  # where what looks like a declaration is no call
    for match in re.finditer(r"\b(doca_\w+)\s*\(([^(){};]*)\)\s*;", outside):
        types = ", ".join(_type_of(parameter) for parameter in match[2].split(","))
        yield match[1], Declared(f"({types})", path, outside.count("\n", 0, match.start()) + 1)


def _without_comments(text: str) -> str:
    """The code; every line keeps its number."""
    blank = re.sub(r"/\*.*?\*/|//[^\n]*", lambda match: "\n" * match[0].count("\n"), text, flags=re.DOTALL)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: "\n" * m[0].count("\n"), blank, flags=re.MULTILINE)


def _without_bodies(code: str) -> str:
    """The code outside all braces; every line keeps its number."""
    code = re.sub(r'extern\s+"C"\s*\{', "", code)
    while (shorter := re.sub(r"\{[^{}]*\}", lambda match: "\n" * match[0].count("\n"), code)) != code:
        code = shorter
    return code


def _enumerators(body: str, path: str, line: int) -> Iterator[tuple[str, Declared]]:
    value: int | None = -1
    for item in re.split(r"(,)", body):
        if match := re.match(r"\s*(\w+)\s*(?:=\s*([^\n].*))?", item, re.DOTALL):
            value = (None if value is None else value + 1) if match[2] is None else _number(match[2])
            if value is not None:
                at = line + item.count("\n", 0, match.start(1))
                yield match[1], Declared(str(value), path, at)
        line += item.count("\n")


def _number(text: str) -> int | None:
    """A C integer, or one shifted left; None for whatever else."""
    match = re.fullmatch(r"\(?\s*(0[xX][0-9a-fA-F]+|\d+)[uUlL]*\s*(?:<<\s*(\d+))?\s*\)?", text.strip())
    return None if match is None else int(match[1], 0) << int(match[2] or 0)


def _type_of(parameter: str) -> str:
    """A parameter's type: its name, if it has one, dropped and the spaces evened out."""
    parts = re.findall(r"\w+|\*|\[[^]]*\]", parameter)
    array = parts and parts[-1].startswith("[")
    parts = parts[:-1] if array else parts
    if len(parts) > 1 and parts[-1] != "*" and (parts[-2] == "*" or len(parts) > 2 or parts[0] not in _TWO_WORDS):
        parts = parts[:-1]
    return " ".join([*parts, "*"] if array else parts).replace("* *", "**")


_TWO_WORDS = frozenset({"struct", "enum", "union", "const", "unsigned", "long"})
