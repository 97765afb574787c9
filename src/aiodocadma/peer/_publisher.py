"""The side that has the memory."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import errno
import logging
import os
import ssl
from collections.abc import AsyncIterator, Collection, Iterator
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio.abc import ByteStream, SocketStream
from anyio.streams.tls import TLSStream

from aiodocadma import _worker
from aiodocadma._export import Access, ExportDescriptor
from aiodocadma.exceptions import AiodocadmaError, ClosedError, PeerError, UsageError
from aiodocadma.peer._address import AnyListener, PeerAddress, listener_at, peer_uid, secure
from aiodocadma.peer._wire import (
    MAX_MESSAGE_BYTES,
    MAX_NAME_LENGTH,
    MAX_PUBLICATIONS,
    Attributes,
    Decoder,
    Publication,
    are_attributes,
    encode,
    hello,
    info_of,
    is_name,
    one_line,
    take,
    take_hello,
    take_name,
)

if TYPE_CHECKING:
    from aiodocadma._dma import DMA
    from aiodocadma._memory import MemoryMap

__all__ = ["Publisher", "listen"]

logger = logging.getLogger("aiodocadma.peer")

MAX_CONNECTIONS: Final = 64
MAX_REFUSALS: Final = 64  # connections that wait to be told why they are refused; more are closed at once
GREETING_TIMEOUT: Final = 10.0  # seconds a connection has to say who it is
ACCEPT_PAUSE: Final = 1.0  # seconds until the next try when the process has no file descriptor left for a connection
MAX_WAIT: Final = 60.0  # seconds a request may wait for a name


class _Published:
    """A name, its map, and the export that importers have now."""

    def __init__(self, publication: Publication, memory: MemoryMap) -> None:
        self.publication = publication
        self.memory = memory
        self.descriptor: ExportDescriptor | None = None
        self.exporting = anyio.Lock()
        self._timer: asyncio.TimerHandle | None = None

    async def export(self) -> ExportDescriptor:
        """The export that is on, or a fresh one."""
        async with self.exporting:
            if self.descriptor is None:
                self.descriptor = await self.memory.export(access=self.publication.access)
            return self.descriptor

    def renew(self) -> None:
        """Begin the descriptor's lifetime anew."""
        if self._timer is not None:
            self._timer.cancel()
        if self.publication.lifetime is not None:
            self._timer = asyncio.get_running_loop().call_later(self.publication.lifetime, self._expire)

    def _expire(self) -> None:
        logger.info("%r expired", self.publication.name)
        self.revoke()

    def revoke(self) -> None:
        """End the export; the next importer gets a fresh one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        descriptor, self.descriptor = self.descriptor, None
        if descriptor is not None:
            self.memory.revoke(descriptor)


class Publisher:
    """
    Publishes memory maps under names; made by ``listen()``.

    Args:
        dma: Whose maps it publishes.
        address: Where it listens, with the port it got.
        users: Who may connect to a Unix socket, besides this user and root.
        ssl_context: TLS, or None.

    Source: aiodocadma.
    """

    def __init__(
        self, dma: DMA, address: PeerAddress, users: frozenset[int], ssl_context: ssl.SSLContext | None
    ) -> None:
        self.address: Final = address
        self._info = info_of(dma)
        self._users = users | {os.geteuid(), 0}
        self._ssl_context = ssl_context
        self._published: dict[str, _Published] = {}
        self._changed = anyio.Event()
        self._connections = 0
        self._closed = False

    def __repr__(self) -> str:
        return f"<Publisher {self.address} {len(self._published)} published, {self._connections} connected>"

    @property
    def publications(self) -> list[Publication]:
        """
        What is published now.

        Returns:
            One entry per name, by name.

        Source: aiodocadma.
        """
        return [self._published[name].publication for name in sorted(self._published)]

    async def publish(
        self,
        name: str,
        memory: MemoryMap,
        *,
        access: Access = "read",
        lifetime: float | None = None,
        attributes: Attributes | None = None,
    ) -> None:
        """
        Export a map and let whoever may connect import it.

        Args:
            name: Its name: 1 to 255 characters that can be printed.
            memory: A map of the DMA's own memory; it must stay open until it is revoked.
            access: ``read``, or ``write`` to let importers write it, too, if they ask for it.
            lifetime: Seconds after which a descriptor that was handed out ends, unless ``Session.renew()`` is called;
                then an importer has to import again. None: it lasts until ``revoke()``.
            attributes: A few numbers and texts to go with it, at most 4 KiB of JSON.

        Raises:
            UsageError: If the name is taken, there are 10,000 names, the map cannot be exported so, or the publisher
                has ended.
            ValueError: If an argument is out of range.
            DocaError: If DOCA refuses to export.

        Cancellation: Waits for the export under way, undoes it, then raises.
        Source: ``doca_mmap_export_pci``.
        """
        if not is_name(name):
            raise ValueError(f"name must have 1 to {MAX_NAME_LENGTH} characters that can be printed, not {name!r}")
        if lifetime is not None and not 0 < lifetime < 1 << 31:
            raise ValueError(f"lifetime must be positive, not {lifetime}")
        if not are_attributes(attributes or {}):
            raise ValueError("attributes must be numbers and texts by name, and few")
        self._check_free(name)
        published = _Published(Publication(name, memory.nbytes, access, lifetime, dict(attributes or {})), memory)
        await published.export()
        try:
            self._check_free(name)  # again: others may have been faster
        except UsageError:
            published.revoke()
            raise
        self._published[name] = published
        self._changed.set()
        self._changed = anyio.Event()

    def _check_free(self, name: str) -> None:
        if self._closed:
            raise ClosedError("the publisher has ended")
        if name in self._published:
            raise UsageError(f"{name!r} is published already", hint="revoke() it first.")
        if len(self._published) >= MAX_PUBLICATIONS:
            raise UsageError(f"{MAX_PUBLICATIONS} names are published, more are not listed", hint="revoke() some.")

    def revoke(self, name: str) -> None:
        """
        Withdraw a name and end its export at once: what was imported is of no more use.

        Args:
            name: Of a publication.

        Raises:
            UsageError: If there is none of this name.

        Source: aiodocadma.
        """
        published = self._published.pop(name, None)
        if published is None:
            raise UsageError(f"{name!r} is not published")
        published.revoke()

    # ---- connections

    def _end(self) -> None:
        self._closed = True
        for name in list(self._published):
            self.revoke(name)

    async def _accept(self, listener: AnyListener) -> None:
        """Serve whoever connects, until cancelled; without file descriptors for a while, those who are connected."""
        async with anyio.create_task_group() as connections:
            while True:
                try:
                    await listener.serve(self._serve, connections)
                except* (OSError, anyio.BrokenResourceError) as group:
                    if not all(_is_shortage(error) for error in _leaves(group)):
                        raise
                    logger.warning("%s: nobody can connect for now: %s", self.address, next(_leaves(group)))
                await anyio.sleep(ACCEPT_PAUSE)

    async def _serve(self, stream: SocketStream) -> None:
        """One connection, from its first byte to its last; nothing that arrives gets out of here."""
        if self._connections >= MAX_CONNECTIONS + MAX_REFUSALS:
            await anyio.aclose_forcefully(stream)
            return
        self._connections += 1
        try:
            await self._talk(stream)
        except (
            OSError,
            ssl.SSLError,
            anyio.BrokenResourceError,
            anyio.ClosedResourceError,
            anyio.EndOfStream,
        ) as error:
            logger.debug("%s: a connection ended: %s", self.address, type(error).__name__)
        except PeerError as error:
            logger.info("%s: a connection was refused: %s", self.address, error)
        except TimeoutError:
            logger.info("%s: a connection was refused: it did not say who it is", self.address)
        except Exception:  # a bug of ours, which must not end the other connections
            logger.exception("%s: a connection failed", self.address)
        finally:
            self._connections -= 1
            await anyio.aclose_forcefully(stream)

    async def _talk(self, raw: SocketStream) -> None:
        stream: ByteStream = raw
        decoder = Decoder()
        try:
            with anyio.fail_after(GREETING_TIMEOUT):
                if self._ssl_context is not None:
                    stream = await TLSStream.wrap(
                        raw, server_side=True, ssl_context=self._ssl_context, standard_compatible=False
                    )
                if (refusal := self._refusal(raw)) is not None:
                    await stream.receive()  # closed with its greeting unread, a client would see no answer
                    raise PeerError(refusal)
                there = take_hello(await _receive(stream, decoder))
                await stream.send(encode(hello(self._info)))
            logger.info("%s: connected: %s", self.address, there)
            while True:
                request = await _receive(stream, decoder)
                await stream.send(encode({"id": take(request, "id", int), **await self._answer(request)}))
        except PeerError as error:
            with anyio.move_on_after(1):
                await stream.send(encode({"id": 0, "error": one_line(str(error))}))
            raise

    def _refusal(self, stream: SocketStream) -> str | None:
        """Why who is at the other end may not connect, if so."""
        uid = peer_uid(stream)
        if uid is not None and uid not in self._users:
            return f"user {uid} may not connect"
        return f"{MAX_CONNECTIONS} are connected already" if self._connections > MAX_CONNECTIONS else None

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        match take(request, "op", str, "request"):
            case "list":
                return self._list(take(request, "after", str, "request"))
            case "get":
                return await self._get(take_name(request), take(request, "wait", float, "request"))
            case "renew":
                return self._renew(take_name(request))
        raise PeerError("the peer asks for what nobody knows")

    def _list(self, after: str) -> dict[str, Any]:
        """As many as fit, by name; the rest for the next request."""
        page: list[dict[str, Any]] = []
        room = MAX_MESSAGE_BYTES // 2
        for publication in self.publications:
            if publication.name > after:
                message = dataclasses.asdict(publication)
                room -= len(encode(message))
                if room < 0 and page:
                    return {"publications": page, "more": True}
                page.append(message)
        return {"publications": page, "more": False}

    async def _get(self, name: str, wait: float) -> dict[str, Any]:
        with anyio.move_on_after(min(max(wait, 0.0), MAX_WAIT)):
            while name not in self._published:
                await self._changed.wait()
        published = self._published.get(name)
        if published is None:
            return {"missing": name}
        try:
            descriptor = await published.export()
        except AiodocadmaError as error:
            return {"error": one_line(f"{name!r} cannot be exported: {error}")}
        if self._published.get(name) is not published:  # meanwhile
            published.revoke()
            return {"missing": name}
        published.renew()
        logger.info("%s: %r is handed out", self.address, name)
        return {"descriptor": base64.b64encode(bytes(descriptor)).decode()}

    def _renew(self, name: str) -> dict[str, Any]:
        published = self._published.get(name)
        if published is None:
            return {"missing": name}
        if published.descriptor is None:
            return {"error": f"{name!r} has expired: import it again"}
        published.renew()
        return {"lifetime": published.publication.lifetime}


def _leaves(group: BaseExceptionGroup) -> Iterator[BaseException]:
    """The exceptions in a group, and in the groups in it."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def _is_shortage(error: BaseException) -> bool:
    """Whether a connection was not accepted because this process or the system lacks something; anyio may wrap it."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


async def _receive(stream: ByteStream, decoder: Decoder) -> dict[str, Any]:
    """The next message; nothing is lost if this is cancelled."""
    while (message := decoder.next()) is None:
        decoder.feed(await stream.receive())
    return message


@contextlib.asynccontextmanager
async def listen(
    dma: DMA,
    address: str | PeerAddress,
    *,
    users: Collection[int] = (),
    ssl_context: ssl.SSLContext | None = None,
    insecure: bool = False,
) -> AsyncIterator[Publisher]:
    """
    Let other processes import maps of a DMA, as an async context manager; leaving it revokes all that it published.

    Args:
        dma: Whose maps are published; used in its loop.
        address: ``unix:PATH`` or ``tcp:HOST:PORT``. A Unix socket is this user's (mode 0600). On loopback every user of
            the machine may connect.
        users: User ids that may connect to a Unix socket, too, besides this user and root.
        ssl_context: TLS for TCP. With ``verify_mode`` CERT_REQUIRED only those who show a certificate may connect.
        insecure: Listen where other machines can connect although nothing tells who they are.

    Yields:
        The publisher.

    Raises:
        ValueError: If the address is none.
        UsageError: If other machines could connect and ``ssl_context`` does not authenticate them, or ``users`` are
            given for TCP.
        OSError: If the address cannot be had, or anybody may replace what is in the Unix socket's folder.

    Cancellation: Ends the connections, then raises.
    Source: aiodocadma.
    """
    where = PeerAddress.parse(address)
    if users and where.path is None:
        raise UsageError("users: TCP does not tell who connects", hint="Use a Unix socket, or certificates.")
    await secure(where, ssl_context, insecure)
    async with listener_at(where, bool(users)) as (listener, bound):
        publisher = Publisher(dma, bound, frozenset(users), ssl_context)
        serving = asyncio.ensure_future(publisher._accept(listener))
        try:
            yield publisher
        finally:
            publisher._end()
            serving.cancel()
            stop = await _worker.wait_out(serving)
            if stop is not None:
                raise stop
        if not serving.cancelled():
            serving.result()
