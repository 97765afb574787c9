"""Garbage from either side: typed errors only, and the other connections go on."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from pathlib import Path
from typing import Any

import anyio
import pytest

from aiodocadma import peer
from aiodocadma.exceptions import AiodocadmaError, PeerError
from aiodocadma.peer import Session, _wire

from .conftest import Sides

VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 1 << 64, 1.5, 1e300, "", "x", "list", "get", "\n", "\ud800", "\0" * 300),
    *([], {}, [[]], {"a": 1}, "A" * 400, 10**400),
]


def mangled(rng: random.Random, message: dict[str, Any]) -> bytes:
    """A frame of something like the message: other values, other fields, other bytes, another length."""
    message = dict(message)
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        message[rng.choice([*message, "error", "id", "op"])] = rng.choice(VALUES)
    if rng.random() < 0.2:
        message.pop(rng.choice(list(message)))
    text = bytearray(json.dumps(message).encode())
    if rng.random() < 0.3:
        for _ in range(rng.choice((1, 1, 3))):
            at = rng.randrange(len(text))
            match rng.randrange(3):
                case 0:
                    text[at] ^= 1 << rng.randrange(8)
                case 1:
                    del text[at : at + rng.choice((1, 10))]
                case _:
                    text[at:at] = rng.choice((b"[" * 5000, b"\xff", b'"', rng.randbytes(9)))
    length = len(text) if rng.random() < 0.9 else rng.choice((0, len(text) - 1, len(text) + 1, 1 << 16, 0xFFFFFFFF))
    return (length % (1 << 32)).to_bytes(4, "big") + text


REQUESTS: list[dict[str, Any]] = [
    {"id": 1, "op": "list", "after": ""},
    {"id": 2, "op": "get", "name": "x", "wait": 0},
    {"id": 3, "op": "renew", "name": "x"},
]


async def fuzz_publisher(sides: Sides, address: str, count: int) -> None:
    """Send mangled greetings and requests; whatever comes back is a message, and a good session goes on."""
    rng = random.Random(7)
    answers = refusals = 0
    async with await sides.host.register(b"x" * 100) as memory, peer.listen(sides.host, address) as publisher:
        await publisher.publish("x", memory)
        greeting = _wire.hello(_wire.info_of(sides.dpu))
        async with peer.connect(sides.dpu, address) as good:
            sent = 0
            while sent < count:
                async with await anyio.connect_unix(address.removeprefix("unix:")) as stream:
                    decoder = _wire.Decoder()
                    try:
                        first = mangled(rng, greeting) if rng.random() < 0.2 else _wire.encode(greeting)
                        for frame in (first, *(mangled(rng, rng.choice(REQUESTS)) for _ in range(rng.randrange(8)))):
                            sent += 1
                            await stream.send(frame)
                        await stream.send_eof()
                        while True:
                            decoder.feed(await stream.receive())
                            while (message := decoder.next()) is not None:
                                assert "descriptor" in message or len(str(message)) < 1500
                                answers += "error" not in message
                                refusals += "error" in message
                    except (anyio.EndOfStream, anyio.BrokenResourceError):
                        pass
            assert len(await good.list()) == 1
            assert (await good.get("x")).nbytes == 100
    assert answers > sent / 10
    assert refusals > sent / 50


async def fuzz_session(sides: Sides, path: Path, count: int) -> None:
    """Answer a session with mangled messages: a good answer, or a typed error."""
    rng = random.Random(8)
    async with await sides.host.register(b"x" * 100) as memory:
        descriptor = base64.b64encode(bytes(await memory.export())).decode()
    publication = {"name": "x", "nbytes": 100, "access": "read", "lifetime": None, "attributes": {}}
    replies: dict[str, dict[str, Any]] = {
        "list": {"publications": [publication], "more": False},
        "get": {"descriptor": descriptor},
        "renew": {"lifetime": 5},
        "twice": {"publications": [publication, publication], "more": False},
        "empty": {"publications": [], "more": True},
        "missing": {"missing": "x"},
        "error": {"error": "no"},
    }
    greeting = _wire.hello(_wire.info_of(sides.dpu))
    requests = 0

    async def answer(stream: anyio.abc.SocketStream) -> None:
        nonlocal requests
        async with stream:
            decoder = _wire.Decoder()
            try:
                await stream.send(mangled(rng, greeting) if rng.random() < 0.1 else _wire.encode(greeting))
                decoder.feed(await stream.receive())
                decoder.next()
                while True:
                    while (request := decoder.next()) is None:
                        decoder.feed(await stream.receive())
                    requests += 1
                    kind = request["op"] if rng.random() < 0.8 else rng.choice(list(replies))
                    reply = replies[kind] | {"id": request["id"]}
                    if rng.random() < 0.1:
                        reply = mangled_publications(rng, publication) | {"id": request["id"]}
                    await stream.send(mangled(rng, reply))
                    if rng.random() < 0.05:
                        return
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                pass

    outcomes = {True: 0, False: 0}
    listener = await anyio.create_unix_listener(path)
    serving = asyncio.ensure_future(listener.serve(answer))
    try:
        while requests < count:
            try:
                async with peer.connect(sides.dpu, f"unix:{path}", wait_timeout=0.2) as session:
                    while not session._broken:
                        try:
                            await ask(rng, session)
                            outcomes[True] += 1
                        except AiodocadmaError:
                            outcomes[False] += 1
            except PeerError:  # of the greeting
                outcomes[False] += 1
    finally:
        serving.cancel()
        await asyncio.wait([serving])
        await listener.aclose()
    assert min(outcomes.values()) > count / 10


def mangled_publications(rng: random.Random, publication: dict[str, Any]) -> dict[str, Any]:
    changed = publication | {rng.choice(list(publication)): rng.choice(VALUES)}
    return {"publications": rng.choice(([changed], [publication, changed], changed, [[]])), "more": False}


async def ask(rng: random.Random, session: Session) -> None:
    match rng.randrange(4):
        case 0:
            await session.list()
        case 1:
            await session.get("x", wait_timeout=0)
        case 2:
            await session.import_memory("x", wait_timeout=0)
        case _:
            await session.renew("x")


async def test_a_publisher_survives(sides: Sides, socket_path: str) -> None:
    await fuzz_publisher(sides, socket_path, 3000)


async def test_a_session_survives(sides: Sides, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiodocadma.peer._session.REPLY_TIMEOUT", 0.05)
    monkeypatch.setattr("aiodocadma.peer._session.WAIT_STEP", 0.0)
    await fuzz_session(sides, tmp_path / "s", 500)


def resident() -> int:
    """Bytes of memory this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.deep
@pytest.mark.timeout(1800)
async def test_100_000_messages(
    sides: Sides, socket_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To either side, and no growth from the first ten thousand on."""
    monkeypatch.setattr("aiodocadma.peer._session.REPLY_TIMEOUT", 0.05)
    monkeypatch.setattr("aiodocadma.peer._session.WAIT_STEP", 0.0)
    before = 0
    for turn in range(10):
        await fuzz_publisher(sides, socket_path, 10_000)
        await fuzz_session(sides, tmp_path / f"session{turn}", 1000)
        before = before or resident()
    assert resident() - before < 8 << 20
