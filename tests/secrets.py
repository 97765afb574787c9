"""Looks for a secret's bytes in a text, in every form in which they may have got there."""

from __future__ import annotations

import base64

from aiodocadma import ExportDescriptor


def forms(secret: bytes) -> list[str]:
    """How a part of the bytes would look; the whole is not needed to see that they are there."""
    part = secret[100:124]
    return [
        repr(part)[2:-1],
        part.hex(),
        part.hex(" "),
        part.hex().upper(),
        *(base64.b64encode(secret[at:])[200:232].decode() for at in range(3)),
        str(list(part))[1:-1],
        part.decode("latin-1"),
    ]


def assert_no_secret(text: str, descriptor: ExportDescriptor) -> None:
    """The descriptor, or DOCA's part of it, is in the text in no form."""
    for secret in (descriptor.blob, descriptor.scratch, bytes(descriptor)):
        for form in forms(secret) if secret else ():
            assert form not in text
