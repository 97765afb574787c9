"""Where a publisher listens, who may connect, and the streams."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import ipaddress
import os
import socket
import ssl
import stat
import struct
from collections.abc import AsyncIterator
from typing import Final, TypeAlias

import anyio
from anyio.abc import ByteStream, Listener, SocketAttribute, SocketStream
from anyio.streams.tls import TLSStream

from aiodocadma._private import replaceable
from aiodocadma.exceptions import PeerError, UsageError

__all__ = ["PeerAddress", "connect_stream", "listener_at", "peer_uid", "secure"]

_MAX_UNIX_PATH: Final = 107  # sun_path without the final NUL

AnyListener: TypeAlias = Listener[SocketStream]


@dataclasses.dataclass(frozen=True, slots=True)
class PeerAddress:
    """
    Where a publisher listens.

    Args:
        host: Name or IP address of a TCP address; empty for all of the machine's.
        port: Its port; 0 to listen at any that is free.
        path: Of a Unix socket; None for TCP.

    Source: aiodocadma.
    """

    host: str = ""
    port: int = 0
    path: str | None = None

    @classmethod
    def parse(cls, text: str | PeerAddress) -> PeerAddress:
        """
        Read an address.

        Args:
            text: ``unix:PATH``, ``tcp:HOST:PORT`` or ``tcp:[IPV6]:PORT``.

        Returns:
            The address.

        Raises:
            ValueError: If it is none.

        Source: aiodocadma.
        """
        if isinstance(text, PeerAddress):
            return text
        kind, _, rest = text.partition(":")
        if kind == "unix" and rest and "\0" not in rest:
            if len(os.fsencode(rest)) > _MAX_UNIX_PATH:
                raise ValueError(f"the path of a Unix socket has at most {_MAX_UNIX_PATH} bytes: {rest!r}")
            return cls(path=rest)
        host, colon, port = rest.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            colon = ""
        if kind == "tcp" and colon and port.isascii() and port.isdigit() and int(port) < 1 << 16:
            return cls(host, int(port))
        raise ValueError(f"an address is unix:PATH or tcp:HOST:PORT, not {text!r}")

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        return f"tcp:[{self.host}]:{self.port}" if ":" in self.host else f"tcp:{self.host}:{self.port}"


async def secure(address: PeerAddress, ssl_context: ssl.SSLContext | None, insecure: bool) -> None:
    """
    Refuse to talk to the network without knowing to whom.

    Args:
        address: Where to.
        ssl_context: TLS, or None.
        insecure: Whether the caller wants it all the same.

    Raises:
        UsageError: If the address is not of this machine alone, and TLS does not authenticate the other side.
        OSError: If a name cannot be resolved.

    Cancellation: Raises at once.
    Source: aiodocadma.
    """
    if address.path is not None:
        if ssl_context is not None:
            raise UsageError("ssl_context: a Unix socket needs no TLS, the kernel tells who connects")
        return
    if insecure or (ssl_context is not None and ssl_context.verify_mode == ssl.CERT_REQUIRED):
        return
    if not address.host or not await _is_loopback(address):
        raise UsageError(
            f"{address} can be reached from other machines, and nothing tells who is at the other end",
            hint="Give both sides certificates (a TLS context with verify_mode CERT_REQUIRED), stay on loopback or a "
            "Unix socket, or say insecure=True.",
        )


async def _is_loopback(address: PeerAddress) -> bool:
    found = await anyio.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    return all(ipaddress.ip_address(sockaddr[0].partition("%")[0]).is_loopback for *_, sockaddr in found)


@contextlib.asynccontextmanager
async def listener_at(address: PeerAddress, public: bool) -> AsyncIterator[tuple[AnyListener, PeerAddress]]:
    """
    Listen.

    Args:
        address: Where; a Unix socket that nobody listens at is replaced.
        public: Whether other users may try to connect to a Unix socket.

    Yields:
        The listener, and the address with the port it got.

    Raises:
        OSError: If that cannot be, or anybody may replace a Unix socket there.

    Source: ``unix(7)``, ``tcp(7)``.
    """
    if address.path is None:
        tcp = await anyio.create_tcp_listener(local_host=address.host or None, local_port=address.port)
        async with tcp:
            yield tcp, dataclasses.replace(address, port=tcp.extra(SocketAttribute.local_port))
        return
    _check_free(address.path)
    if reason := replaceable(address.path):
        raise PermissionError(errno.EPERM, reason, address.path)
    unix = await anyio.create_unix_listener(address.path, mode=0o666 if public else 0o600)
    mine = os.stat(address.path)
    async with unix:
        try:
            yield unix, address
        finally:
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(address.path), mine):
                    os.unlink(address.path)


def _check_free(path: str) -> None:
    """Leave alone what is no socket, and a socket that somebody listens at."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise FileExistsError(errno.EEXIST, "there is a file that is no socket", path)
        with socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                return
            except BlockingIOError:  # its backlog is full
                pass
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE), path)


def peer_uid(stream: SocketStream) -> int | None:
    """
    Tell who is at the other end.

    Args:
        stream: A connection, before TLS.

    Returns:
        The user id, or None for TCP.

    Source: ``SO_PEERCRED``, ``unix(7)``.
    """
    if stream.extra(SocketAttribute.family) != socket.AF_UNIX:
        return None
    raw = stream.extra(SocketAttribute.raw_socket)
    credentials = raw.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[1])


async def connect_stream(
    address: PeerAddress, ssl_context: ssl.SSLContext | None, insecure: bool = False
) -> ByteStream:
    """
    Connect once.

    Args:
        address: Where to.
        ssl_context: TLS, or None.
        insecure: Whether anybody may listen at a Unix socket in a folder that anybody may write.

    Returns:
        The stream.

    Raises:
        OSError: If nobody listens, or it is not allowed.
        PeerError: If another user listens where anybody could.
        ssl.SSLError: If the two sides do not accept each other.

    Cancellation: Raises at once.
    Source: ``connect(2)``.
    """
    if address.path is not None:
        unix = await anyio.connect_unix(address.path)
        uid = peer_uid(unix)
        if not insecure and uid not in (0, os.geteuid()) and (reason := replaceable(address.path)):
            await anyio.aclose_forcefully(unix)
            raise PeerError(
                f"{address}: user {uid} listens, and {reason}",
                hint="Have the publisher listen in a folder where only it may write, or say insecure=True.",
            )
        return unix
    stream = await anyio.connect_tcp(address.host or "localhost", address.port)
    if ssl_context is None:
        return stream
    try:
        return await TLSStream.wrap(
            stream, server_side=False, hostname=address.host, ssl_context=ssl_context, standard_compatible=False
        )
    except BaseException:
        await anyio.aclose_forcefully(stream)
        raise
