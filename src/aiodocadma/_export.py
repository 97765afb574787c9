"""Export descriptors: what one process hands to another so that its engine can reach the memory."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import functools
import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

from aiodocadma._counted import counted
from aiodocadma._devices import DeviceInfo
from aiodocadma.exceptions import DescriptorError

__all__ = ["Access", "ExportDescriptor", "card_of", "exporter_id"]

Access: TypeAlias = Literal["read", "write"]

MAX_DESCRIPTOR_BYTES: Final = 16 * 1024  # a few hundred are usual

_MAGIC: Final = b"ADMAEXP1"
_CHECKSUM_BYTES: Final = 8
_PCI_DEVICES: Final = "/sys/bus/pci/devices"
_MAX_VPD_BYTES: Final = 32 * 1024


@dataclasses.dataclass(frozen=True, slots=True)
class ExportDescriptor:
    """
    What the peer's engine needs to reach exported memory: a secret, and what may be known about it.

    Made by ``MemoryMap.export()``. Whoever has it can read the memory (with ``access="write"``, write it, too), so it
    is shown by no ``repr``, log line or exception of this library. ``bytes(descriptor)`` is the form to send over a
    channel of your own; ``aiodocadma.peer`` sends it by itself.

    Args:
        blob: DOCA's opaque bytes; of a program in C, ``ExportDescriptor(blob)`` is enough.
        nbytes: Bytes of the memory, or None where it is not known; then DOCA tells at the import.
        access: What the exporter lets the peer do, or None where it is not known.
        generation: How many exports of its map were made before, plus 1; or None.
        exporter: The exporting process, a random number in hex; or None.
        machine: The exporter's host name, or None.
        library: Version of the exporter's DOCA, or None.
        emulated: Whether the exporter's device is the emulator; None where it is not known.
        card: Serial number of the exporter's card, or None where it does not tell.
        scratch: Of a writable export: DOCA's bytes for a page that anything may be written to; else empty.
        kind: ``pci``, for DMA between a host and its DPU, or ``rdma``, for another protocol.

    Source: ``doca_mmap_export_pci``.
    """

    blob: bytes = dataclasses.field(repr=False)
    nbytes: int | None = None
    access: Access | None = None
    generation: int | None = None
    exporter: str | None = None
    machine: str | None = None
    library: str | None = None
    emulated: bool | None = None
    card: str | None = None
    scratch: bytes = dataclasses.field(default=b"", repr=False)
    kind: Literal["pci", "rdma"] = "pci"

    def __bytes__(self) -> bytes:
        fields = {name: getattr(self, name) for name in _CHECKS}
        for secret in _SECRETS:
            fields[secret] = base64.b64encode(fields[secret]).decode()
        text = json.dumps(fields, separators=(",", ":")).encode()
        return _MAGIC + _checksum(text) + text

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> ExportDescriptor:
        """
        Read what ``bytes(descriptor)`` wrote, wherever it comes from.

        Args:
            data: The bytes.

        Returns:
            The descriptor.

        Raises:
            DescriptorError: If they are damaged, cut short, or no descriptor at all.

        Source: aiodocadma.
        """
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"descriptor must be an ExportDescriptor or its bytes, not {type(data).__name__}")
        data = bytes(data)
        if not data:
            raise DescriptorError("the export descriptor is empty")
        if len(data) > MAX_DESCRIPTOR_BYTES:
            raise DescriptorError(f"{len(data)} bytes are too many for an export descriptor")
        if not data.startswith(_MAGIC):
            raise DescriptorError(
                f"these {len(data)} bytes are no export descriptor of aiodocadma",
                hint="DOCA's own bytes, from a program in C, go into ExportDescriptor(blob).",
            )
        text = data[len(_MAGIC) + _CHECKSUM_BYTES :]
        if data[len(_MAGIC) :][:_CHECKSUM_BYTES] != _checksum(text):
            raise DescriptorError(
                f"the export descriptor is damaged or cut short: {counted(len(data), 'byte')} arrived"
            )
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            raise DescriptorError("the export descriptor holds no fields")
        for name, is_valid in _CHECKS.items():
            if not is_valid(fields.get(name)):
                raise DescriptorError(f"the export descriptor's {name} is not valid")
        # What a later version adds is left out: a reader of this one knows nothing of it.
        known = {name: fields[name] for name in _CHECKS if name in fields}
        return cls(**known | {secret: base64.b64decode(known[secret]) for secret in _SECRETS})


def _checksum(text: bytes) -> bytes:
    """Against damage, not against forgery: the exporter knows what it has exported."""
    return hashlib.sha256(text).digest()[:_CHECKSUM_BYTES]


def _is_base64(value: Any) -> bool:
    try:
        return isinstance(value, str) and base64.b64decode(value, validate=True) is not None
    except (ValueError, binascii.Error):
        return False


def _is_count(value: Any) -> bool:
    return value is None or (type(value) is int and 0 < value < 1 << 64)


def _is_word(value: Any) -> bool:
    return value is None or (isinstance(value, str) and 0 < len(value) <= 255 and value.isprintable())


def _word(value: str) -> str | None:
    return value if value and _is_word(value) else None


_SECRETS: Final = ("blob", "scratch")
_CHECKS: Final[dict[str, Callable[[Any], bool]]] = {
    "blob": lambda value: _is_base64(value) and value != "",
    "nbytes": _is_count,
    "access": lambda value: value in (None, "read", "write"),
    "generation": _is_count,
    "exporter": lambda value: value is None or (isinstance(value, str) and bool(re.fullmatch("[0-9a-f]{16}", value))),
    "machine": _is_word,
    "library": _is_word,
    "emulated": lambda value: value in (None, True, False) and type(value) is not int,
    "card": _is_word,
    "scratch": _is_base64,
    "kind": lambda value: value in ("pci", "rdma"),
}


@functools.cache
def _exporter_id(pid: int) -> str:
    return secrets.token_hex(8)


def exporter_id() -> str:
    """
    Name this process, as its descriptors do.

    Returns:
        A random number in hex; another one in a forked child.

    Source: aiodocadma.
    """
    return _exporter_id(os.getpid())


def machine() -> str | None:
    """
    Name this machine, as its descriptors do.

    Returns:
        The host name, or None.

    Source: ``uname(2)``.
    """
    return _word(os.uname().nodename[:255])


def card_of(device: DeviceInfo) -> str | None:
    """
    Name the card that a device is a function of; host and DPU see the same.

    Args:
        device: An opened device.

    Returns:
        The serial number in its vital product data, or None for the emulator and where it cannot be read (as it is
        root's).

    Source: PCI Local Bus Specification 3.0, appendix I; ``/sys/bus/pci/devices/*/vpd``.
    """
    if device.emulated:
        return None
    try:
        with open(f"{_PCI_DEVICES}/{device.pci_address}/vpd", "rb") as file:
            return _serial_number(file.read(_MAX_VPD_BYTES))
    except OSError:
        return None


def _serial_number(vpd: bytes) -> str | None:
    """The SN keyword of the read-only resource."""
    at = 0
    while at + 3 <= len(vpd) and vpd[at] & 0x80:  # large resources; the end tag is a small one
        tag, length = vpd[at], int.from_bytes(vpd[at + 1 : at + 3], "little")
        body = vpd[at + 3 : at + 3 + length]
        if tag == 0x90:
            while len(body) >= 3:
                keyword, value = body[:2], body[3 : 3 + body[2]]
                if keyword == b"SN":
                    return _word(value.decode("ascii", "replace").strip("\0 "))
                body = body[3 + body[2] :]
        at += 3 + length
    return None
