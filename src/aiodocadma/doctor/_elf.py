"""The dynamic symbols of an ELF file, read without loading it."""

from __future__ import annotations

import struct
from typing import NamedTuple

__all__ = ["Elf", "parse_elf"]

_SHT_DYNAMIC, _SHT_DYNSYM = 6, 11
_DT_SONAME = 14
_MACHINES = {62: "x86_64", 183: "aarch64"}


class Elf(NamedTuple):
    """What the doctor asks of a library file."""

    machine: str
    soname: str | None
    symbols: frozenset[str]  # those it defines


def parse_elf(data: bytes) -> Elf | None:
    """
    Read a 64-bit little-endian library.

    Args:
        data: The file.

    Returns:
        None if it is something else, or damaged.

    Source: ``elf(5)``.
    """
    if data[:6] != b"\x7fELF\x02\x01":
        return None
    try:
        return _parse(data)
    except (struct.error, IndexError, ValueError):
        return None


def _parse(data: bytes) -> Elf:
    (machine,) = struct.unpack_from("<H", data, 18)
    (offset,) = struct.unpack_from("<Q", data, 40)
    entry_size, count = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + index * entry_size) for index in range(count)]

    def text(section: int, at: int) -> str:
        start = sections[section][4] + at
        return data[start : data.index(b"\0", start)].decode()

    soname = None
    symbols: set[str] = set()
    for _, kind, _, _, start, size, link, *_ in sections:
        if kind == _SHT_DYNSYM:
            for at in range(start, start + size, 24):
                name, _, _, section = struct.unpack_from("<IBBH", data, at)
                if section != 0 and name != 0:
                    symbols.add(text(link, name))
        elif kind == _SHT_DYNAMIC:
            for at in range(start, start + size, 16):
                tag, value = struct.unpack_from("<qQ", data, at)
                if tag == _DT_SONAME:
                    soname = text(link, value)
    return Elf(_MACHINES.get(machine, str(machine)), soname, frozenset(symbols))
