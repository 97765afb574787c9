"""The side that wants the memory."""

from __future__ import annotations

import base64
import binascii
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final, Literal, overload

import anyio
from anyio.abc import ByteStream

from aiodocadma._export import ExportDescriptor
from aiodocadma.exceptions import PeerError
from aiodocadma.peer._address import PeerAddress, connect_stream, secure
from aiodocadma.peer._wire import (
    MAX_PUBLICATIONS,
    Decoder,
    PeerInfo,
    Publication,
    encode,
    hello,
    info_of,
    one_line,
    shown_differences,
    take,
    take_hello,
    take_name,
    take_publication,
)

if TYPE_CHECKING:
    from aiodocadma._access import ReadOnly
    from aiodocadma._dma import DMA
    from aiodocadma._memory import MemoryMap

__all__ = ["Session", "connect"]

logger = logging.getLogger("aiodocadma.peer")

REPLY_TIMEOUT: Final = 30.0  # seconds a publisher has to answer
WAIT_STEP: Final = 1.0  # seconds one request waits for a name: so long a cancelled one holds up the next
FIRST_RETRY: Final = 0.02  # seconds until connecting is tried again; twice as long each time, up to
LAST_RETRY: Final = 0.5
_NOT_YET: Final = (ConnectionRefusedError, ConnectionResetError, FileNotFoundError)  # nobody listens


class Session:
    """
    A connection to a publisher; made by ``connect()``.

    Args:
        dma: What imports.
        address: The publisher's.
        stream: Connected to it.

    Source: aiodocadma.
    """

    def __init__(self, dma: DMA, address: PeerAddress, stream: ByteStream) -> None:
        self.address: Final = address
        self._dma = dma
        self._stream = stream
        self._decoder = Decoder()
        self._lock = anyio.Lock()
        self._last_id = 0
        self._broken: str | None = None  # why nothing can be asked any more
        self._here = info_of(dma)
        self._there: PeerInfo | None = None

    def __repr__(self) -> str:
        return f"<Session {self.address} {self._broken or 'connected'}>"

    @property
    def peer(self) -> PeerInfo:
        """
        The publisher's versions.

        Returns:
            What it says of itself.

        Source: aiodocadma.
        """
        assert self._there is not None
        return self._there

    @property
    def differences(self) -> dict[str, tuple[object, object]]:
        """
        Where the publisher's versions are not this side's.

        Returns:
            ``{what: (here, there)}``; empty if there are no differences.

        Source: aiodocadma.
        """
        return self._here.differences(self.peer)

    async def list(self) -> list[Publication]:
        """
        Ask what is published.

        Returns:
            One entry per name, by name.

        Raises:
            PeerError: If the publisher does not answer, or not as it should.

        Cancellation: Raises at once.
        Source: aiodocadma.
        """
        found: list[Publication] = []
        more = True
        while more:
            after = found[-1].name if found else ""
            reply = await self._ask({"op": "list", "after": after})
            page = [take_publication(entry) for entry in take(reply, "publications", list, "answer")]
            more = take(reply, "more", bool, "answer")
            names = [after, *(publication.name for publication in page)]
            if names != sorted(set(names)) or (more and not page):
                raise PeerError("the peer's list is out of order")
            found += page
            if len(found) > MAX_PUBLICATIONS:
                raise PeerError(f"the peer lists more than {MAX_PUBLICATIONS} names, the most a publisher has")
        return found

    async def get(self, name: str, *, wait_timeout: float = 30.0) -> ExportDescriptor:
        """
        Get a descriptor, for example to hand it to a program in C.

        Args:
            name: Of a publication.
            wait_timeout: Seconds to wait until it is published.

        Returns:
            The descriptor, a secret.

        Raises:
            PeerError: If it is not published in time, or the publisher refuses or does not answer.
            DescriptorError: If what arrives is no descriptor.

        Cancellation: Raises at once.
        Source: aiodocadma.
        """
        deadline = anyio.current_time() + wait_timeout
        while True:
            left = deadline - anyio.current_time()
            reply = await self._ask({"op": "get", "name": name, "wait": max(0.0, min(left, WAIT_STEP))})
            if "missing" not in reply:
                break
            if left <= WAIT_STEP:
                names = ", ".join(publication.name for publication in (await self.list())[:20])
                raise PeerError(
                    f"{name!r} is not published at {self.address}", hint=f"Published: {names or 'nothing'}."
                )
        try:
            data = base64.b64decode(take(reply, "descriptor", str, "answer"), validate=True)
        except (ValueError, binascii.Error):
            data = b""
        return ExportDescriptor.from_bytes(data)

    @overload
    async def import_memory(
        self,
        name: str,
        *,
        wait_timeout: float = 30.0,
        smoke: bool = True,
        allow_remote_write: Literal[False] = False,
    ) -> MemoryMap[ReadOnly]: ...
    @overload
    async def import_memory(
        self, name: str, *, wait_timeout: float = 30.0, smoke: bool = True, allow_remote_write: Literal[True]
    ) -> MemoryMap: ...
    @overload
    async def import_memory(
        self, name: str, *, wait_timeout: float = 30.0, smoke: bool = True, allow_remote_write: bool
    ) -> MemoryMap[Any]: ...
    async def import_memory(
        self, name: str, *, wait_timeout: float = 30.0, smoke: bool = True, allow_remote_write: bool = False
    ) -> MemoryMap[Any]:
        """
        Import what is published under a name.

        Args:
            name: Of a publication.
            wait_timeout: Seconds to wait until it is published.
            smoke: As for ``DMA.import_memory()``.
            allow_remote_write: As for ``DMA.import_memory()``.

        Returns:
            The map; it outlives this session, as long as the publisher lets it.

        Raises:
            PeerError: If it is not published in time, or the publisher refuses or does not answer.
            UsageError: As for ``DMA.import_memory()``.
            DocaError: As for ``DMA.import_memory()``.

        Cancellation: Waits for the engine to let go, undoes the import, then raises.
        Source: ``doca_mmap_create_from_export``.
        """
        descriptor = await self.get(name, wait_timeout=wait_timeout)
        return await self._dma.import_memory(descriptor, smoke=smoke, allow_remote_write=allow_remote_write)

    async def renew(self, name: str) -> float | None:
        """
        Begin the lifetime of what was imported anew.

        Args:
            name: Of a publication that was imported.

        Returns:
            Seconds until it ends; None without end.

        Raises:
            PeerError: If it has expired or was revoked.

        Cancellation: Raises at once.
        Source: aiodocadma.
        """
        reply = await self._ask({"op": "renew", "name": name})
        if "missing" in reply:
            raise PeerError(f"{name!r} is not published at {self.address}")
        return None if reply.get("lifetime") is None else take(reply, "lifetime", float, "answer")

    # ---- messages

    async def _greet(self) -> None:
        await self._send(hello(self._here))
        reply = await self._receive()
        if "error" in reply:
            raise PeerError(f"{self.address} refuses: {one_line(take(reply, 'error', str, 'answer'))}")
        self._there = take_hello(reply)

    async def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        take_name({"name": request.get("name", "-")})
        async with self._lock:
            if self._broken is not None:
                raise PeerError(f"{self.address}: {self._broken}", hint="Connect again.")
            self._last_id += 1
            wanted = self._last_id
            try:
                with anyio.fail_after(REPLY_TIMEOUT + WAIT_STEP):
                    await self._send(request | {"id": wanted})
                    while True:
                        reply = await self._receive()
                        got = take(reply, "id", int, "answer")
                        if got in (wanted, 0):  # 0: the connection's end; less: the answer to a cancelled request
                            break
                        if got > wanted:
                            raise PeerError("the peer answers what nobody asked")
            except TimeoutError:
                self._broken = "the publisher does not answer"
                raise PeerError(f"{self.address}: {self._broken}") from None
            except PeerError as error:
                self._broken = str(error)
                raise
        if "error" in reply:
            raise PeerError(f"{self.address}: {one_line(take(reply, 'error', str, 'answer'))}")
        return reply

    async def _send(self, message: dict[str, Any]) -> None:
        sent = False
        try:
            await self._stream.send(encode(message))
            sent = True
        except (OSError, ssl.SSLError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise PeerError(f"{self.address}: the publisher has gone") from None
        finally:
            if not sent and self._broken is None:
                self._broken = "a request was cut short"

    async def _receive(self) -> dict[str, Any]:
        while (message := self._decoder.next()) is None:
            try:
                self._decoder.feed(await self._stream.receive())
            except (OSError, ssl.SSLError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
                raise PeerError(f"{self.address}: the publisher has gone") from None
        return message


@contextlib.asynccontextmanager
async def connect(
    dma: DMA,
    address: str | PeerAddress,
    *,
    wait_timeout: float = 30.0,
    ssl_context: ssl.SSLContext | None = None,
    insecure: bool = False,
) -> AsyncIterator[Session]:
    """
    Connect to a publisher, as an async context manager.

    Args:
        dma: What imports; used in its loop.
        address: ``unix:PATH`` or ``tcp:HOST:PORT``.
        wait_timeout: Seconds to wait for a publisher that does not listen yet.
        ssl_context: TLS for TCP, for example with a certificate of this side's.
        insecure: Connect to another machine although nothing tells who it is, or to a Unix socket of another user's,
            root excepted, although anybody may write in its folder.

    Yields:
        The session.

    Raises:
        ValueError: If the address is none.
        UsageError: If it is another machine's and ``ssl_context`` does not authenticate it.
        PeerError: If nobody listens in time, another user does where anybody could, or the publisher refuses.
        OSError: If its name cannot be resolved.

    Cancellation: Raises at once.
    Source: aiodocadma.
    """
    where = PeerAddress.parse(address)
    await secure(where, ssl_context, insecure)
    stream = None
    try:
        try:
            with anyio.fail_after(wait_timeout + REPLY_TIMEOUT):
                stream = await _connect(where, ssl_context, insecure, wait_timeout)
                session = Session(dma, where, stream)
                await session._greet()
        except TimeoutError:
            raise PeerError(f"{where}: the publisher does not answer") from None
        if session.differences:
            logger.warning("%s: the two sides differ: %s", where, shown_differences(session.differences))
        yield session
    finally:
        if stream is not None:
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(stream)


async def _connect(
    address: PeerAddress, ssl_context: ssl.SSLContext | None, insecure: bool, wait_timeout: float
) -> ByteStream:
    """Try until somebody listens; at least once."""
    deadline = anyio.current_time() + wait_timeout
    delay = FIRST_RETRY
    while True:
        try:
            return await connect_stream(address, ssl_context, insecure)
        except ssl.SSLError as error:
            raise PeerError(f"{address}: the two sides do not accept each other: {error.reason}") from None
        except OSError as error:
            if not _is_early(error):
                raise PeerError(f"{address}: {error.strerror or error}") from None
        left = deadline - anyio.current_time()
        if left <= 0:
            raise PeerError(
                f"{address}: nobody listens after {wait_timeout:g} s", hint="Start the publisher, then try again."
            )
        await anyio.sleep(min(delay, left))
        delay = min(2 * delay, LAST_RETRY)


def _is_early(error: OSError) -> bool:
    """Whether the publisher may still come; TCP's error tells of its attempts as its cause."""
    if isinstance(error, _NOT_YET):
        return True
    cause = error.__cause__
    attempts = cause.exceptions if isinstance(cause, BaseExceptionGroup) else (cause,)
    return all(isinstance(attempt, _NOT_YET) for attempt in attempts)
