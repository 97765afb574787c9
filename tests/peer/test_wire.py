"""The protocol without streams: frames however they are cut, and messages however they are wrong."""

from __future__ import annotations

import dataclasses
import json
import random
from dataclasses import asdict
from typing import Any

import pytest

from aiodocadma.exceptions import PeerError
from aiodocadma.peer import PeerInfo, Publication
from aiodocadma.peer._wire import (
    MAX_MESSAGE_BYTES,
    Decoder,
    are_attributes,
    encode,
    hello,
    is_name,
    one_line,
    shown_differences,
    take,
    take_hello,
    take_publication,
)

INFO = PeerInfo("1.0", "3.0.0058", True, "host")


def frame(text: bytes) -> bytes:
    """A frame of any text."""
    return len(text).to_bytes(4, "big") + text


def test_messages_arrive_however_they_are_cut() -> None:
    rng = random.Random(1)
    messages = [{"n": n, "text": "ä" * rng.randrange(300)} for n in range(50)]
    data = b"".join(map(encode, messages))
    for size in (1, 2, 3, 7, 1000, len(data)):
        decoder, found = Decoder(), []
        for at in range(0, len(data), size):
            decoder.feed(data[at : at + size])
            while (message := decoder.next()) is not None:
                found.append(message)
        assert found == messages


def test_messages_have_a_bound() -> None:
    room = MAX_MESSAGE_BYTES - len('{"x":""}')
    decoder = Decoder()
    decoder.feed(encode({"x": "a" * room}))
    assert decoder.next() == {"x": "a" * room}
    with pytest.raises(PeerError, match="longer than"):
        encode({"x": "a" * (room + 1)})
    decoder.feed((MAX_MESSAGE_BYTES + 1).to_bytes(4, "big"))
    with pytest.raises(PeerError, match="announces 65537 bytes"):
        decoder.next()  # before any of it is there


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_what_json_cannot_say_is_not_sent(number: float) -> None:
    """The other side would end the connection."""
    with pytest.raises(ValueError, match="JSON"):
        encode({"wait": number})


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"x", b"[]", b"1", b"null", b'"x"', b"{", b'{"a":}', b"\xff", b"[" * 60_000, b"1" * 60_000, b"{}x"),
        *(b'{"wait": NaN}', b'{"wait": Infinity}', b'{"wait": -Infinity}'),
    ],
    ids=lambda text: repr(text[:14]),
)
def test_what_is_no_object(text: bytes) -> None:
    decoder = Decoder()
    decoder.feed(frame(text))
    with pytest.raises(PeerError) as caught:
        decoder.next()
    assert caught.value.__context__ is None  # the parser's error would keep the text


@pytest.mark.parametrize(
    ("value", "kind", "taken"),
    [
        (1, int, True),
        (True, int, False),
        (1.0, int, False),
        (1, float, True),
        (1 << 60, float, False),
        (True, float, False),
        ("1", int, False),
        (None, str, False),
        ([], list, True),
    ],
)
def test_types_are_exact(value: Any, kind: type, taken: bool) -> None:
    if taken:
        assert take({"x": value}, "x", kind) == value
    else:
        with pytest.raises(PeerError, match="no valid 'x'"):
            take({"x": value}, "x", kind)


@pytest.mark.parametrize("name", ["", "\n", "a\0", "x" * 256, "\ud800", "\x1b[2J", "\u202e"])
def test_names_that_cannot_be_shown(name: str) -> None:
    assert not is_name(name)
    assert one_line(name).isprintable()
    assert len(one_line(name * 1000)) < 5000


def test_hello() -> None:
    assert take_hello(json.loads(json.dumps(hello(INFO)))) == INFO
    with pytest.raises(PeerError, match="speaks version 2"):
        take_hello(hello(INFO) | {"hello": 2})
    silent = dataclasses.replace(INFO, doca=None, machine=None)
    assert take_hello(json.loads(json.dumps(hello(silent)))) == silent
    for key in hello(INFO):
        with pytest.raises(PeerError):
            take_hello(hello(INFO) | {key: []})
    for key in ("hello", "aiodocadma", "emulated"):
        with pytest.raises(PeerError):
            take_hello(hello(INFO) | {key: None})


def test_differences() -> None:
    other = PeerInfo("1.1", "3.0.0058", False, "dpu")
    assert INFO.differences(other) == {"aiodocadma": ("1.0", "1.1"), "emulated": (True, False)}
    assert INFO.differences(INFO) == {}
    silent = dataclasses.replace(INFO, doca=None)
    assert silent.differences(other)["doca"] == (None, "3.0.0058")
    assert shown_differences(silent.differences(INFO)) == "doca is unknown here, 3.0.0058 there"
    shown = shown_differences(INFO.differences(other))
    assert shown == "aiodocadma is 1.0 here, 1.1 there, emulated is True here, False there"


PUBLICATION = Publication("x", 5, "write", 60.0, {"a": 1, "b": None, "c": "d", "e": True})


def test_publications() -> None:
    assert take_publication(json.loads(json.dumps(asdict(PUBLICATION)))) == PUBLICATION
    for wrong in (
        None,
        [],
        {},
        asdict(PUBLICATION) | {"nbytes": 0},
        asdict(PUBLICATION) | {"nbytes": 1 << 63},
        asdict(PUBLICATION) | {"access": "all"},
        asdict(PUBLICATION) | {"attributes": {"a": []}},
        asdict(PUBLICATION) | {"attributes": {"a": "x" * 5000}},
        asdict(PUBLICATION) | {"lifetime": "1"},
        asdict(PUBLICATION) | {"name": "\n"},
    ):
        with pytest.raises(PeerError):
            take_publication(wrong)


@pytest.mark.parametrize("attributes", [{1: 2}, {"a": float("nan")}, {"a": object()}, {"a": {}}])
def test_attributes_that_cannot_be_sent(attributes: Any) -> None:
    assert not are_attributes(attributes)
