"""Publisher and session: names, waits, lifetimes, versions, TLS, and what each side survives of the other."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import itertools
import logging
import os
import resource
import socket
import ssl
import traceback
from typing import Any

import anyio
import pytest
import trustme

from aiodocadma import peer
from aiodocadma.exceptions import (
    AccessError,
    ClosedError,
    DescriptorError,
    DocaError,
    DocaIoFailedError,
    PeerError,
    UsageError,
)
from aiodocadma.peer import Publication, Publisher, _publisher, _session, _wire
from aiodocadma.peer._address import connect_stream
from tests.secrets import assert_no_secret

from .conftest import Sides, patched, until

DATA = bytes(range(256)) * 40
NBYTES = len(DATA)


@pytest.mark.parametrize("address", ["unix", "tcp:127.0.0.1:0", "tcp:localhost:0", "tcp:[::1]:0"])
async def test_publish_list_import(sides: Sides, socket_path: str, address: str) -> None:
    async with await sides.host.register(DATA) as memory:
        async with peer.listen(sides.host, socket_path if address == "unix" else address) as publisher:
            await publisher.publish("b", memory, attributes={"dtype": "<f4", "rows": 40})
            await publisher.publish("a", memory)
            async with peer.connect(sides.dpu, publisher.address) as session:
                listed = await session.list()
                assert listed == publisher.publications
                assert listed == [
                    Publication("a", NBYTES, "read"),
                    Publication("b", NBYTES, "read", None, {"dtype": "<f4", "rows": 40}),
                ]
                remote = await session.import_memory("b")
            await sides.dpu.copy(remote, dst := bytearray(NBYTES))  # an import outlives the session
            assert dst == DATA
        with pytest.raises(DocaIoFailedError):  # but not the publisher
            await sides.dpu.copy(remote, dst)
        remote.close()


async def test_writing(sides: Sides, socket_path: str) -> None:
    async with await sides.host.alloc(NBYTES) as memory, peer.listen(sides.host, socket_path) as publisher:
        await publisher.publish("read", memory)
        await publisher.publish("write", memory, access="write")
        async with peer.connect(sides.dpu, socket_path) as session:
            with pytest.raises(AccessError):
                await session.import_memory("read", allow_remote_write=True)
            async with await session.import_memory("write") as remote:
                with pytest.raises(AccessError):
                    sides.dpu.copy(DATA, remote)
            async with await session.import_memory("write", allow_remote_write=True) as remote:
                await sides.dpu.copy(DATA, remote)
        with memoryview(memory) as view:
            assert view == DATA


@pytest.mark.rule("R80")
async def test_the_order_of_starting_does_not_matter(
    sides: Sides, socket_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Import first: it waits for the publisher, then for the name, which takes more than one request."""
    patched(monkeypatch, _session, WAIT_STEP=0.001)
    async with await sides.host.register(DATA) as memory:

        async def pull() -> bytes:
            async with (
                peer.connect(sides.dpu, socket_path) as session,
                await session.import_memory("late") as remote,
            ):
                dst = bytearray(NBYTES)
                await sides.dpu.copy(remote, dst)
                return bytes(dst)

        pulling = asyncio.ensure_future(pull())
        await asyncio.sleep(0)
        async with peer.listen(sides.host, socket_path) as publisher:
            handed_out = publisher._get
            asked = []

            def get(name: str, wait: float) -> Any:
                asked.append(wait)
                return handed_out(name, wait)

            monkeypatch.setattr(publisher, "_get", get)
            await until(lambda: len(asked) > 2, "three requests")
            await publisher.publish("late", memory)
            assert await pulling == DATA


async def test_a_name_that_does_not_come(sides: Sides, socket_path: str) -> None:
    async with (
        await sides.host.register(DATA) as memory,
        peer.listen(sides.host, socket_path) as publisher,
        peer.connect(sides.dpu, socket_path) as session,
    ):
        with pytest.raises(PeerError, match="'x' is not published") as caught:
            await session.import_memory("x", wait_timeout=0)
        assert caught.value.hint == "Published: nothing."
        await publisher.publish("y", memory)
        with pytest.raises(PeerError) as caught:
            await session.import_memory("x", wait_timeout=0.01)
        assert caught.value.hint == "Published: y."
        with pytest.raises(PeerError):
            await session.renew("x")
        with pytest.raises(PeerError, match="no valid 'name'"):
            await session.get("\n")
        assert len(await session.list()) == 1


async def test_many_names_come_in_pages(sides: Sides, socket_path: str) -> None:
    names = sorted(f"{n:03} " + "ü" * 240 for n in range(100))
    async with await sides.host.register(b"x") as memory, peer.listen(sides.host, socket_path) as publisher:
        for name in names:
            await publisher.publish(name, memory, attributes={"note": "n" * 1000})
        async with peer.connect(sides.dpu, socket_path) as session:
            assert [publication.name for publication in await session.list()] == names
            assert session._last_id > 3


async def test_a_list_has_a_bound(sides: Sides, socket_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither does a publisher publish more, nor does a session go on listening to one that never ends."""
    patched(monkeypatch, _publisher, MAX_PUBLICATIONS=3)
    patched(monkeypatch, _session, MAX_PUBLICATIONS=3)
    numbers = itertools.count()

    def endless(publisher: Publisher, after: str) -> dict[str, Any]:
        names = [f"{next(numbers):08}" for _ in range(2)]
        return {"publications": [dataclasses.asdict(Publication(name, 1, "read")) for name in names], "more": True}

    async with await sides.host.register(b"x") as memory, peer.listen(sides.host, socket_path) as publisher:
        for name in "abc":
            await publisher.publish(name, memory)
        with pytest.raises(UsageError, match="3 names are published"):
            await publisher.publish("d", memory)
        async with peer.connect(sides.dpu, socket_path) as session:
            assert [publication.name for publication in await session.list()] == ["a", "b", "c"]
            monkeypatch.setattr(Publisher, "_list", endless)
            with anyio.fail_after(5), pytest.raises(PeerError, match="lists more than 3 names"):
                await session.list()
            assert next(numbers) == 4


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"name": ""}, "1 to 255 characters"),
        ({"name": "\n"}, "1 to 255 characters"),
        ({"lifetime": 0}, "lifetime must be positive"),
        ({"lifetime": float("nan")}, "lifetime must be positive"),
        ({"attributes": {"a": [1]}}, "attributes must be"),
        ({"attributes": {"a": "x" * 5000}}, "attributes must be"),
        ({"access": "all"}, "'read' or 'write'"),
        ({"access": "write"}, "read-only"),
        ({"name": "taken"}, "published already"),
    ],
)
async def test_what_cannot_be_published(sides: Sides, socket_path: str, arguments: dict[str, Any], error: str) -> None:
    async with await sides.host.register(DATA) as memory, peer.listen(sides.host, socket_path) as publisher:
        await publisher.publish("taken", memory)
        with pytest.raises((ValueError, UsageError), match=error):
            await publisher.publish(**{"name": "x", "memory": memory} | arguments)
        assert [publication.name for publication in publisher.publications] == ["taken"]
        assert len(memory._exports) == 1


async def test_two_publish_one_name_at_once(sides: Sides, socket_path: str) -> None:
    async with await sides.host.register(DATA) as memory, peer.listen(sides.host, socket_path) as publisher:
        results = await asyncio.gather(
            publisher.publish("x", memory), publisher.publish("x", memory), return_exceptions=True
        )
        assert sorted(type(result) for result in results if result) == [UsageError]
        assert len(memory._exports) == 1


# ---- ends


@pytest.mark.rule("X22")
async def test_revoke(sides: Sides, socket_path: str) -> None:
    async with await sides.host.register(DATA) as memory, peer.listen(sides.host, socket_path) as publisher:
        await publisher.publish("x", memory)
        async with peer.connect(sides.dpu, socket_path) as session:
            remote = await session.import_memory("x")
            publisher.revoke("x")
            with pytest.raises(DocaIoFailedError):
                await sides.dpu.copy(remote, bytearray(NBYTES))
            with pytest.raises(PeerError, match="not published"):
                await session.get("x", wait_timeout=0)
            with pytest.raises(UsageError, match="not published"):
                publisher.revoke("x")
            memory.close()  # is exported no more


async def test_a_lifetime_ends(sides: Sides, socket_path: str) -> None:
    """It begins when the descriptor is handed out; afterwards a fresh import works again."""
    async with await sides.host.register(DATA) as memory, peer.listen(sides.host, socket_path) as publisher:
        await publisher.publish("x", memory, lifetime=0.05)
        async with peer.connect(sides.dpu, socket_path) as session:
            assert (await session.list())[0].lifetime == 0.05
            for _ in range(2):
                remote = await session.import_memory("x")
                await until(lambda: not memory._exports, "the end of the lifetime")
                with pytest.raises(DocaIoFailedError):
                    await sides.dpu.copy(remote, bytearray(NBYTES))
                with pytest.raises(PeerError, match="'x' has expired"):
                    await session.renew("x")
                remote.close()


async def test_renewal(sides: Sides, socket_path: str) -> None:
    async with await sides.host.register(DATA) as memory, peer.listen(sides.host, socket_path) as publisher:
        await publisher.publish("x", memory, lifetime=60)
        await publisher.publish("for ever", memory)
        published = publisher._published["x"]
        assert published._timer is None  # nobody has it
        async with peer.connect(sides.dpu, socket_path) as session:
            first = await session.get("x")
            assert published._timer is not None
            ends = published._timer.when()
            await until(lambda: asyncio.get_running_loop().time() > ends - 60, "the clock")
            old = published._timer
            assert await session.renew("x") == 60
            assert published._timer.when() > ends
            assert old.cancelled()
            assert await session.get("x") == first
            assert await session.renew("for ever") is None
        timer = published._timer
        publisher.revoke("x")
        assert timer.cancelled()


async def test_a_map_that_was_closed(sides: Sides, socket_path: str) -> None:
    """The publisher's own map, closed by force: importers are told."""
    memory = await sides.host.register(DATA)
    async with peer.listen(sides.host, socket_path) as publisher:
        await publisher.publish("x", memory, lifetime=60)
        async with peer.connect(sides.dpu, socket_path) as session:
            memory.close(force=True)
            publisher._published["x"]._expire()
            with pytest.raises(PeerError, match="'x' cannot be exported: the map is closed"):
                await session.get("x")
            assert len(await session.list()) == 1  # the session goes on


async def test_leaving_ends_everything(sides: Sides, socket_path: str) -> None:
    """Exports, connections, the socket; also when the body fails, whose error comes out as it is."""
    async with await sides.host.register(DATA) as memory:
        with pytest.raises(ZeroDivisionError):
            async with peer.listen(sides.host, socket_path) as publisher:
                await publisher.publish("x", memory)
                session = await (connecting := peer.connect(sides.dpu, socket_path)).__aenter__()
                raise ZeroDivisionError
        assert not memory._exports
        with pytest.raises(PeerError, match="has gone"):
            await session.list()
        with pytest.raises(PeerError, match="has gone\nConnect again"):
            await session.list()
        await connecting.__aexit__(None, None, None)
        with pytest.raises(PeerError, match="nobody listens"):
            async with peer.connect(sides.dpu, socket_path, wait_timeout=0.01):
                pass


async def test_publishing_after_the_end(sides: Sides, socket_path: str) -> None:
    """Refused, also when the end comes while the export is under way."""
    async with await sides.host.register(DATA) as memory:
        async with peer.listen(sides.host, socket_path) as publisher:
            late = asyncio.ensure_future(publisher.publish("x", memory))
            await asyncio.sleep(0)
        for publishing in (late, publisher.publish("y", memory)):
            with pytest.raises(ClosedError, match="the publisher has ended"):
                await publishing
        assert not memory._exports


@pytest.mark.parametrize("cancels", [1, 2, 3])
async def test_leaving_under_cancellation(sides: Sides, socket_path: str, cancels: int) -> None:
    async with await sides.host.register(DATA) as memory:
        inside = asyncio.Event()

        async def serve() -> None:
            async with peer.listen(sides.host, socket_path) as publisher:
                await publisher.publish("x", memory)
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.ensure_future(serve())
        await inside.wait()
        for _ in range(cancels):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not memory._exports


async def test_a_cancelled_request_leaves_the_session_usable(sides: Sides, socket_path: str) -> None:
    """Its answer comes later, and is nobody's."""
    async with (
        await sides.host.register(DATA) as memory,
        peer.listen(sides.host, socket_path) as publisher,
        peer.connect(sides.dpu, socket_path) as session,
    ):
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await session.get("x")
        assert await session.list() == []
        await publisher.publish("x", memory)
        assert (await session.get("x")).nbytes == NBYTES
        assert session._last_id == 5


async def test_requests_of_many_tasks(sides: Sides, socket_path: str) -> None:
    async with await sides.host.register(DATA) as memory, peer.listen(sides.host, socket_path) as publisher:
        for n in range(20):
            await publisher.publish(f"{n}", memory, attributes={"n": n})
        async with peer.connect(sides.dpu, socket_path) as session:
            got = await asyncio.gather(*[session.get(f"{n}") for n in range(20)], session.list())
            assert [d.generation for d in got[:20]] == list(range(1, 21))


async def test_anyio_scopes(sides: Sides, socket_path: str) -> None:
    async with (
        await sides.host.register(DATA) as memory,
        peer.listen(sides.host, socket_path) as publisher,
        peer.connect(sides.dpu, socket_path) as session,
    ):
        with anyio.move_on_after(0.01) as scope:
            await session.import_memory("x")
        assert scope.cancelled_caught
        await publisher.publish("x", memory)
        (await session.import_memory("x")).close()


# ---- who is there


@pytest.mark.rule("R99")
async def test_differences_of_versions_are_shown(
    sides: Sides, socket_path: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with peer.listen(sides.host, socket_path) as publisher:
        async with peer.connect(sides.dpu, socket_path) as session:
            assert session.differences == {}
            assert session.peer == publisher._info
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
        patched(monkeypatch, publisher, _info=dataclasses.replace(publisher._info, doca="2.9.1", emulated=False))
        async with peer.connect(sides.dpu, socket_path) as session:
            here = sides.dpu.device.version
            assert session.differences == {"doca": (here, "2.9.1"), "emulated": (True, False)}
        assert f"doca is {here or 'unknown'} here, 2.9.1 there" in caplog.text
        patched(monkeypatch, _wire, PROTOCOL=2)
        greeting = _wire.hello(publisher._info)
        patched(monkeypatch, _wire, PROTOCOL=1)
        monkeypatch.setattr(_session, "hello", lambda info: greeting)
        with pytest.raises(PeerError, match="refuses: the peer speaks version 2 of the protocol, and this side 1"):
            async with peer.connect(sides.dpu, socket_path):
                pass


async def test_other_users_are_refused(sides: Sides, socket_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_publisher, "peer_uid", lambda stream: 12345)
    async with peer.listen(sides.host, socket_path):
        with pytest.raises(PeerError, match="refuses: user 12345 may not connect"):
            async with peer.connect(sides.dpu, socket_path):
                pass
    async with peer.listen(sides.host, socket_path, users=[12345]), peer.connect(sides.dpu, socket_path) as session:
        assert await session.list() == []


async def test_connections_are_bounded(sides: Sides, socket_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patched(monkeypatch, _publisher, MAX_CONNECTIONS=2)
    async with peer.listen(sides.host, socket_path) as publisher:
        async with peer.connect(sides.dpu, socket_path), peer.connect(sides.dpu, socket_path) as session:
            with pytest.raises(PeerError, match="2 are connected already"):
                async with peer.connect(sides.dpu, socket_path):
                    pass
            assert await session.list() == []
        await until(lambda: not publisher._connections, "the end of the connections")
        async with peer.connect(sides.dpu, socket_path):
            pass


@pytest.mark.parametrize("address", ["unix", "tcp:127.0.0.1:0"])
async def test_a_flood_of_connections_is_cut_off(
    sides: Sides, socket_path: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those who wait for their refusal have a bound, too; the others are closed at once, without an answer."""
    patched(monkeypatch, _publisher, MAX_CONNECTIONS=2, MAX_REFUSALS=3)
    async with (
        peer.listen(sides.host, socket_path if address == "unix" else address) as publisher,
        peer.connect(sides.dpu, publisher.address) as session,
        contextlib.AsyncExitStack() as stack,
    ):
        silent = [await stack.enter_async_context(await connect_stream(publisher.address, None)) for _ in range(40)]
        for stream in silent[4:]:
            with anyio.fail_after(5), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                await stream.receive()
        assert publisher._connections == 5
        assert await session.list() == []


@pytest.mark.parametrize("address", ["unix", "tcp:127.0.0.1:0"])
async def test_a_process_without_file_descriptors_goes_on_listening(
    sides: Sides, socket_path: str, address: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    patched(monkeypatch, _publisher, ACCEPT_PAUSE=0.01)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with (
        peer.listen(sides.host, socket_path if address == "unix" else address) as publisher,
        peer.connect(sides.dpu, publisher.address) as session,
    ):
        where = publisher.address
        taken: list[int] = []
        family = socket.AF_UNIX if where.path is not None else socket.AF_INET
        with socket.socket(family) as late:
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
            try:
                with pytest.raises(OSError, match="Too many open files"):
                    while True:
                        taken.append(os.open(os.devnull, os.O_RDONLY))
                late.connect(where.path if where.path is not None else (where.host, where.port))
                await until(lambda: "nobody can connect for now" in caplog.text, "the publisher's warning")
                assert await session.list() == []
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
                for fd in taken:
                    os.close(fd)
        async with peer.connect(sides.dpu, where) as another:
            assert await another.list() == []


async def test_who_says_nothing_is_let_go(sides: Sides, socket_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patched(monkeypatch, _publisher, GREETING_TIMEOUT=0.02)
    async with peer.listen(sides.host, socket_path) as publisher:
        async with await anyio.connect_unix(socket_path.removeprefix("unix:")) as stream:
            with pytest.raises(anyio.EndOfStream):
                await stream.receive()
        await until(lambda: not publisher._connections, "the end of the connection")


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """Whose certificates are trusted."""
    return trustme.CA()


def context(authority: trustme.CA, purpose: ssl.Purpose, certificate: trustme.LeafCert | None) -> ssl.SSLContext:
    """A side's TLS."""
    made = ssl.create_default_context(purpose)
    made.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(made)
    if certificate is not None:
        certificate.configure_cert(made)
    return made


async def test_tls_authenticates_both_sides(sides: Sides, authority: trustme.CA) -> None:
    server = context(authority, ssl.Purpose.CLIENT_AUTH, authority.issue_cert("localhost"))
    client = context(authority, ssl.Purpose.SERVER_AUTH, authority.issue_cert("dpu"))
    stranger = context(authority, ssl.Purpose.SERVER_AUTH, trustme.CA().issue_cert("dpu"))
    nobody = context(authority, ssl.Purpose.SERVER_AUTH, None)
    async with (
        await sides.host.register(DATA) as memory,
        peer.listen(sides.host, "tcp:0.0.0.0:0", ssl_context=server) as publisher,
    ):
        await publisher.publish("x", memory)
        address = f"tcp:localhost:{publisher.address.port}"
        async with (
            peer.connect(sides.dpu, address, ssl_context=client) as session,
            await session.import_memory("x") as remote,
        ):
            await sides.dpu.copy(remote, dst := bytearray(NBYTES))
            assert dst == DATA
        for wrong in (stranger, nobody, None):
            with pytest.raises(PeerError):
                async with peer.connect(sides.dpu, address, ssl_context=wrong, wait_timeout=5) as session:
                    await session.list()
        other = context(trustme.CA(), ssl.Purpose.SERVER_AUTH, authority.issue_cert("dpu"))
        with pytest.raises(PeerError, match="do not accept each other"):
            async with peer.connect(sides.dpu, address, ssl_context=other):
                pass
        await until(lambda: not publisher._connections, "the end of the connections")


async def test_a_publisher_that_stops_answering(
    sides: Sides, socket_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(self: Publisher, request: object) -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    patched(monkeypatch, _session, REPLY_TIMEOUT=0.05, WAIT_STEP=0.0)
    monkeypatch.setattr(Publisher, "_answer", never)
    async with peer.listen(sides.host, socket_path), peer.connect(sides.dpu, socket_path) as session:
        with pytest.raises(PeerError, match="the publisher does not answer"):
            await session.list()
        assert repr(session) == f"<Session {socket_path} the publisher does not answer>"


async def test_a_bug_of_ours_ends_one_connection_only(
    sides: Sides, socket_path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with peer.listen(sides.host, socket_path), peer.connect(sides.dpu, socket_path) as good:
        with monkeypatch.context() as patch:
            patch.setattr(Publisher, "_list", lambda self, after: 1 / 0)
            async with peer.connect(sides.dpu, socket_path) as session:
                with pytest.raises(PeerError, match="has gone"):
                    await session.list()
        assert "ZeroDivisionError" in caplog.text
        assert await good.list() == []


async def test_an_import_that_fails_is_the_importers_error(sides: Sides, socket_path: str) -> None:
    async with await sides.host.register(DATA) as memory, peer.listen(sides.host, socket_path) as publisher:
        await publisher.publish("x", memory)
        async with peer.connect(sides.host, socket_path) as session:  # the device that exports it
            with pytest.raises(DocaError, match="first copy"):
                await session.import_memory("x")
            assert len(await session.list()) == 1


# ---- secrets


@pytest.mark.rule("R125")
async def test_descriptors_are_shown_nowhere(
    sides: Sides, socket_path: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the logs of everybody, in repr, and in the errors of exchanges that fail with one in hand."""
    caplog.set_level(logging.DEBUG, "aiodocadma")
    caplog.set_level(logging.DEBUG)
    shown = []
    async with await sides.host.alloc(NBYTES) as memory, peer.listen(sides.host, socket_path) as publisher:
        await publisher.publish("x", memory, access="write", lifetime=60)
        descriptor = publisher._published["x"].descriptor
        assert descriptor is not None
        async with peer.connect(sides.dpu, socket_path) as session:
            assert await session.get("x") == descriptor
            remote = await session.import_memory("x", allow_remote_write=True)
            shown += [repr(await session.list()), repr(session), repr(publisher), repr(remote), repr(memory)]
            remote.close()
        encode = base64.b64encode
        for change in (
            lambda data: encode(data)[:-5],  # cut short
            lambda data: encode(data[:-1]),
            lambda data: encode(b"A" + data),
            lambda data: encode(data) + b"?",
            lambda data: encode(data) + b"\n" * 70_000,  # too long for a message
        ):
            with monkeypatch.context() as patch:
                patch.setattr(_publisher.base64, "b64encode", change)
                async with peer.connect(sides.dpu, socket_path) as session:
                    with pytest.raises((PeerError, DescriptorError)) as caught:
                        await session.import_memory("x")
                    error: BaseException | None = caught.value
                    shown += traceback.format_exception(caught.value)
                    while error is not None:  # whatever hangs on it
                        shown += [repr(error), repr(vars(error)), repr(error.args)]
                        error = error.__context__
    shown.append(caplog.text)
    assert "is handed out" in caplog.text
    assert_no_secret("\n".join(shown), descriptor)
