"""The block service under a real uvicorn, on asyncio and on uvloop: what clients get, byte for byte."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest
import uvicorn
from examples.service import block_service

from aiodocadma import emulator
from aiodocadma._dma import open_dmas
from aiodocadma.testing import Fault

FOLDER = Path(block_service.__file__).parent


@contextlib.asynccontextmanager
async def serving(**options: object) -> AsyncIterator[httpx.AsyncClient]:
    """Run the service on the test's loop, and give a client of it."""
    config = uvicorn.Config(block_service.create_app(**options), port=0, log_level="error", lifespan="on")
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve())
    try:
        await until(lambda: server.started or running.done(), "the server runs")
        url = "http://{}:{}".format(*server.servers[0].sockets[0].getsockname())
        async with httpx.AsyncClient(base_url=url, timeout=30) as client:
            yield client
    finally:
        emulator.hold(False)
        emulator.release()  # a test that failed before it could
        server.should_exit = True
        await running


async def until(condition: Callable[[], bool], what: str) -> None:
    """Let the loop turn until something holds."""
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)
    assert condition(), what


def states() -> list[str]:
    """How far the service's copies are."""
    (dma,) = open_dmas()
    return [copy.state for copy in dma.in_flight()]


async def metric(client: httpx.AsyncClient, line: str) -> float:
    """Read one number of the service's metrics."""
    for found in (await client.get("/metrics")).text.splitlines():
        name, _, value = found.rpartition(" ")
        if name.startswith(line.partition("{")[0]) and line.partition("{")[2] in name:
            return float(value)
    raise AssertionError(f"no metric {line}")


async def hang_up_when(client: httpx.AsyncClient, request: bytes, condition: Callable[[], bool], what: str) -> None:
    """Send a request, or a part of one, and close the connection at the given moment."""
    _, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
    writer.write(request)
    await writer.drain()
    await until(condition, what)
    writer.close()
    await writer.wait_closed()


async def test_a_load_of_blocks_comes_back_as_it_was() -> None:
    """More requests at once than there are buffers, of all lengths from none to the longest."""
    draw = random.Random(1)
    lengths = [draw.choice((0, 1, 4096, 70_000, block_service.BLOCK)) for _ in range(60)]
    blocks = {f"block-{i}": draw.randbytes(length) for i, length in enumerate(lengths)}
    async with serving(max_waiting=1000) as client:
        writes = await asyncio.gather(*(client.put(f"/blocks/{name}", content=data) for name, data in blocks.items()))
        assert {write.status_code for write in writes} == {201}
        reads = await asyncio.gather(*(client.get(f"/blocks/{name}") for name in blocks))
        assert [read.content for read in reads] == [*blocks.values()]
        assert (await client.get("/health")).text == "running"
        assert await metric(client, 'aiodocadma_copies_total{outcome="completed"') == 2 * sum(map(bool, lengths))
        assert await metric(client, "aiodocadma_copies_pending") == 0


async def test_what_cannot_be_stored_takes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_service, "NUM_SLOTS", 2)
    async with serving() as client:
        assert (await client.get("/blocks/a")).status_code == 404
        assert (await client.put("/blocks/a", content=bytes(block_service.BLOCK + 1))).status_code == 413
        assert (await client.put("/blocks/a", content=b"first")).status_code == 201
        for _ in range(3):
            assert (await client.put("/blocks/a", content=b"second")).status_code == 409
        assert (await client.put("/blocks/b", content=b"b")).status_code == 201
        assert (await client.put("/blocks/c", content=b"c")).status_code == 507
        assert (await client.get("/blocks/a")).content == b"first"


async def test_overload_refuses_reads_and_loses_nothing() -> None:
    """One task fits into the engine, and two copies may wait: of eight reads five are told to come again."""
    blocks = {f"block-{i}": os.urandom(1000 + i) for i in range(8)}
    async with serving(window=1, max_waiting=2) as client:
        for name, data in blocks.items():
            assert (await client.put(f"/blocks/{name}", content=data)).status_code == 201
        emulator.hold()
        reads = {name: asyncio.create_task(client.get(f"/blocks/{name}")) for name in blocks}
        await until(lambda: sum(read.done() for read in reads.values()) == 5, "five reads are answered")
        refused = {name for name, read in reads.items() if read.done()}
        for name in refused:
            answer = reads[name].result()
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        write = asyncio.create_task(client.put("/blocks/late", content=b"waited"))
        assert await metric(client, "aiodocadma_copies_waiting") == 2
        assert not write.done()

        emulator.hold(False)
        emulator.release()
        assert (await write).status_code == 201
        for name in blocks.keys() - refused:
            assert (await reads[name]).content == blocks[name]
        for name in refused:
            assert (await client.get(f"/blocks/{name}")).content == blocks[name]
        assert (await client.get("/blocks/late")).content == b"waited"


async def test_a_read_whose_client_hangs_up_keeps_its_buffer_until_the_engine_lets_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(block_service, "DEADLINE", 60)  # not what cancels here
    monkeypatch.setattr(block_service, "NUM_BUFFERS", 1)
    async with serving() as client:
        for name in ("a", "b"):
            await client.put(f"/blocks/{name}", content=name.encode() * 5000)
        emulator.hold()
        request = b"GET /blocks/a HTTP/1.1\r\nHost: test\r\n\r\n"
        await hang_up_when(client, request, lambda: emulator.live_objects().held == 1, "the engine has the copy")
        await until(lambda: states() == ["cancelling"], "the copy is cancelled")
        other = asyncio.create_task(client.get("/blocks/b"))
        for _ in range(20):  # so many requests later the engine has not been given another copy
            assert (await client.get("/health")).status_code == 200
        assert emulator.live_objects().in_flight == 1
        assert not other.done()

        emulator.hold(False)
        emulator.release()
        assert (await other).content == b"b" * 5000
        assert await metric(client, 'aiodocadma_copies_total{outcome="cancelled"') == 1


async def test_a_write_whose_client_hangs_up_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_service, "DEADLINE", 60)  # not what cancels here
    monkeypatch.setattr(block_service, "NUM_BUFFERS", 1)
    monkeypatch.setattr(block_service, "NUM_SLOTS", 1)
    head = b"PUT /blocks/a HTTP/1.1\r\nHost: test\r\nContent-Length: 5000\r\n\r\n"
    async with serving() as client:
        await hang_up_when(client, head + bytes(2000), lambda: True, "half of the body is sent")
        emulator.hold()
        whole = head + bytes(5000)
        await hang_up_when(client, whole, lambda: emulator.live_objects().held == 1, "the engine has the copy")
        await until(lambda: states() == ["cancelling"], "the copy is cancelled")
        emulator.hold(False)
        emulator.release()
        assert (await client.get("/blocks/a")).status_code == 404
        assert (await client.put("/blocks/a", content=b"a")).status_code == 201
        assert (await client.get("/blocks/a")).content == b"a"


async def test_a_deadline_ends_what_waits_at_once_and_the_rest_when_the_engine_lets_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(window=1) as client:
        await client.put("/blocks/a", content=b"a")
        emulator.hold()
        monkeypatch.setattr(block_service, "DEADLINE", 0.05)
        held = asyncio.create_task(client.get("/blocks/a"))
        await until(lambda: states() == ["cancelling"], "the deadline of the copy that the engine has is over")
        answer = await client.get("/blocks/a")
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        assert not held.done()
        emulator.hold(False)
        emulator.release()
        assert (await held).status_code == 503
        monkeypatch.undo()
        assert (await client.get("/blocks/a")).content == b"a"


async def test_a_failure_of_the_engine_costs_its_own_request() -> None:
    async with serving() as client:
        await client.put("/blocks/a", content=b"a" * 1000)
        emulator.hold()
        emulator.inject(Fault("completion", skip=1))
        reads = [asyncio.create_task(client.get("/blocks/a")) for _ in range(3)]
        await until(lambda: emulator.live_objects().held == 3, "the engine has the copies")
        emulator.hold(False)
        emulator.release()
        answers = await asyncio.gather(*reads)
        assert sorted(answer.status_code for answer in answers) == [200, 200, 500]
        assert [answer.content for answer in answers if answer.status_code == 200] == [b"a" * 1000] * 2
        assert (await client.get("/health")).status_code == 200
        assert emulator.faults_pending() == 0


async def test_a_lost_engine_is_not_healthy() -> None:
    async with serving(drain_timeout=0.2) as client:
        await client.put("/blocks/a", content=b"a")
        emulator.inject(Fault("ctx_start", count=0), Fault("completion"))
        assert (await client.get("/blocks/a")).status_code == 500
        while (health := await client.get("/health")).text == "restarting":
            assert health.status_code == 200
        assert (health.status_code, health.text) == (503, "lost")
        emulator.configure("faults=none")


# What a process that serves has left when uvicorn has returned; uvicorn raises the signal again that ended it.
SERVE = """
import json, os, signal, sys, threading
import uvicorn
from aiodocadma import emulator

def files():  # as in conftest.py
    paths = ("/proc/self/fd/" + fd for fd in os.listdir("/proc/self/fd"))
    return {name for name in (os.readlink(path) for path in paths if os.path.lexists(path)) if name[:5] != "pipe:"}

signal.signal(signal.SIGTERM, lambda *_: None)
before = files()
uvicorn.run("block_service:create_app", factory=True, app_dir=sys.argv[1], uds=sys.argv[2], loop=sys.argv[3],
            timeout_graceful_shutdown=1, log_level="critical")
left = {"files": sorted(files() - before), "threads": threading.active_count() - 1}
print(json.dumps({**left, **emulator.live_objects()._asdict(), "violations": emulator.violations()}))
"""


async def test_sigterm_in_the_middle() -> None:
    """Requests under way are answered, an upload that stands still is cut off, and nothing is left."""
    loop = type(asyncio.get_running_loop()).__module__.partition(".")[0]
    blocks = {f"block-{i}": os.urandom(10_000) for i in range(8)}
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/socket"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", SERVE, FOLDER, path, loop),
            env={**os.environ, "DOCAEMU_CONFIG": "latency_real=300000"},  # each copy takes 0.3 s
            stdout=asyncio.subprocess.PIPE,
        )
        await until(lambda: Path(path).exists() or process.returncode is not None, "the server listens")
        transport = httpx.AsyncHTTPTransport(uds=path)
        async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=30) as client:
            await asyncio.gather(*(client.put(f"/blocks/{name}", content=data) for name, data in blocks.items()))
            _, upload = await asyncio.open_unix_connection(path)
            upload.write(b"PUT /blocks/a HTTP/1.1\r\nHost: test\r\nContent-Length: 5000\r\n\r\n" + bytes(2000))
            reads = [asyncio.create_task(client.get(f"/blocks/{name}")) for name in blocks]
            while await metric(client, "aiodocadma_copies_started_total") < 2 * len(blocks):
                pass
            process.send_signal(signal.SIGTERM)
            assert [answer.content for answer in await asyncio.gather(*reads)] == list(blocks.values())
        output, _ = await process.communicate()
        upload.close()
    assert process.returncode == 0
    left = json.loads(output)
    assert not any(left.values()), left


@pytest.mark.deep
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_each_worker_has_a_dma_of_its_own(loop: str) -> None:
    """As the command line starts them; the process that watches over them opens nothing."""
    command = [sys.executable, "-m", "uvicorn", "--factory", "block_service:create_app", "--app-dir", str(FOLDER)]
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/socket"
        server = subprocess.Popen([*command, "--workers=2", f"--loop={loop}", f"--uds={path}"], stderr=subprocess.PIPE)
        try:
            started = b""
            while started.count(b"Application startup complete") < 2:
                line = server.stderr.readline()
                assert line, started
                started += line
            children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
            workers = [pid for pid in children if "libdocaemu" in Path(f"/proc/{pid}/maps").read_text()]
            assert len(workers) == 2
            assert "libdocaemu" not in Path(f"/proc/{server.pid}/maps").read_text()
            with httpx.Client(transport=httpx.HTTPTransport(uds=path), base_url="http://test") as client:
                assert client.get("/health").text == "running"
        finally:
            server.terminate()
            output = server.communicate(timeout=20)[1]
    assert output.count(b"Application shutdown complete") == 2
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]
