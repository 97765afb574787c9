"""Addresses, and who may talk to whom without showing who it is."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import stat
from pathlib import Path

import pytest

from aiodocadma import peer
from aiodocadma.exceptions import PeerError, UsageError
from aiodocadma.peer import PeerAddress

from .conftest import Sides


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("unix:/run/x", PeerAddress(path="/run/x")),
        ("unix:x:y", PeerAddress(path="x:y")),
        ("tcp:localhost:80", PeerAddress("localhost", 80)),
        ("tcp::0", PeerAddress("", 0)),
        ("tcp:[::1]:65535", PeerAddress("::1", 65535)),
    ],
)
def test_addresses(text: str, address: PeerAddress) -> None:
    assert PeerAddress.parse(text) == address
    assert str(address) == text
    assert PeerAddress.parse(address) is address


@pytest.mark.parametrize(
    "text",
    [
        *("", "unix:", "unix:a\0b", "unix:" + "x" * 108, "/run/x", "http:h:80"),
        *("tcp:", "tcp:80", "tcp:h:", "tcp:h:65536", "tcp:h:-1", "tcp:h:x", "tcp:h:\u0663", "tcp:::1:80"),
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match=r"address is unix:PATH|at most 107 bytes"):
        PeerAddress.parse(text)


@pytest.mark.parametrize("address", ["tcp:0.0.0.0:0", "tcp::0", "tcp:[::]:0", "tcp:192.0.2.1:5"])
async def test_the_network_needs_certificates(sides: Sides, address: str) -> None:
    """Both sides refuse before a byte is sent, with TLS too if it does not tell who is there; insecure=True is told."""
    no_certificates = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for context in (None, no_certificates):
        with pytest.raises(UsageError, match="nothing tells who is at the other end"):
            async with peer.listen(sides.host, address, ssl_context=context):
                pass
    unchecked = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unchecked.check_hostname = False
    unchecked.verify_mode = ssl.CERT_NONE
    for context in (None, unchecked):
        with pytest.raises(UsageError, match="nothing tells who is at the other end"):
            async with peer.connect(sides.dpu, address, ssl_context=context):
                pass


async def test_the_network_without_certificates_if_told(sides: Sides) -> None:
    async with (
        peer.listen(sides.host, "tcp:0.0.0.0:0", insecure=True) as publisher,
        peer.connect(sides.dpu, f"tcp:localhost:{publisher.address.port}") as session,
    ):
        assert await session.list() == []


async def test_a_unix_socket_is_its_users(sides: Sides, tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with peer.listen(sides.host, f"unix:{path}"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()
    async with peer.listen(sides.host, f"unix:{path}", users=[65534]):
        assert stat.S_IMODE(path.stat().st_mode) == 0o666
    with pytest.raises(UsageError, match="TCP does not tell who connects"):
        async with peer.listen(sides.host, "tcp:localhost:0", users=[65534]):
            pass
    with pytest.raises(UsageError, match="needs no TLS"):
        async with peer.listen(sides.host, f"unix:{path}", ssl_context=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)):
            pass


async def test_nothing_of_others_is_replaced(sides: Sides, tmp_path: Path) -> None:
    """A socket in use and a file stay; a socket that was left behind goes."""
    path = tmp_path / "s"
    async with peer.listen(sides.host, f"unix:{path}"):
        with pytest.raises(OSError, match="Address already in use"):
            async with peer.listen(sides.dpu, f"unix:{path}"):
                pass
        async with peer.connect(sides.dpu, f"unix:{path}") as session:
            assert await session.list() == []
        path.unlink()
        path.write_text("mine now")
    assert path.read_text() == "mine now"
    with pytest.raises(FileExistsError):
        async with peer.listen(sides.host, f"unix:{path}"):
            pass
    path.unlink()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    async with peer.listen(sides.host, f"unix:{path}"), peer.connect(sides.dpu, f"unix:{path}") as session:
        assert await session.list() == []


async def test_nobody_listens(sides: Sides, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        for address in (f"unix:{tmp_path / 's'}", f"tcp:127.0.0.1:{port}"):
            with pytest.raises(PeerError, match=r"nobody listens after 0\.05 s"):
                async with peer.connect(sides.dpu, address, wait_timeout=0.05):
                    pass
    with pytest.raises(PeerError, match="Not a directory"):  # waiting would not help
        async with peer.connect(sides.dpu, f"unix:{os.devnull}/x"):
            pass


async def test_a_listener_that_never_answers(sides: Sides, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiodocadma.peer._session.REPLY_TIMEOUT", 0.05)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "s"))
        silent.listen()
        with pytest.raises(PeerError, match="does not answer"):
            async with peer.connect(sides.dpu, f"unix:{tmp_path / 's'}", wait_timeout=0.05):
                pass


async def test_cancelled_while_waiting(sides: Sides, tmp_path: Path) -> None:
    async def wait() -> None:
        async with peer.connect(sides.dpu, f"unix:{tmp_path / 's'}"):
            pass

    task = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
