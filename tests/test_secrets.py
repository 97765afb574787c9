"""The search for secrets finds them."""

from __future__ import annotations

import base64
import json
import random

import pytest

from aiodocadma import ExportDescriptor

from .secrets import assert_no_secret

SECRET = random.Random(0).randbytes(600)


@pytest.mark.parametrize(
    "text",
    [
        repr(SECRET),
        SECRET.hex(),
        SECRET.hex(" "),
        SECRET.hex().upper(),
        base64.b64encode(SECRET).decode(),
        base64.b64encode(b"x" + SECRET).decode(),
        base64.b64encode(b"xx" + SECRET).decode(),
        str(list(SECRET)),
        json.dumps(list(SECRET)),
        SECRET.decode("latin-1"),
        bytes(ExportDescriptor(SECRET)).decode("latin-1"),
        bytes(ExportDescriptor(SECRET)).hex(),
    ],
    ids=lambda text: ascii(text[:8]),
)
def test_a_secret_is_found(text: str) -> None:
    with pytest.raises(AssertionError):
        assert_no_secret(f"before {text} after", ExportDescriptor(SECRET))


def test_each_secret_of_a_descriptor_is_looked_for() -> None:
    with pytest.raises(AssertionError):
        assert_no_secret(SECRET.hex(), ExportDescriptor(b"other" * 100, scratch=SECRET))


def test_what_is_no_secret() -> None:
    assert_no_secret(repr(ExportDescriptor(SECRET, nbytes=5)), ExportDescriptor(SECRET))
