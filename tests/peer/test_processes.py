"""Host and DPU as two processes, perhaps of two users: all bytes arrive, and an exporter that ends is an error."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import aiodocadma
from aiodocadma import DMA, MemoryMap, emulator, peer
from aiodocadma.exceptions import DocaError, DocaIoFailedError, PeerError

from .conftest import BECOME, Sides, StartExporter, until

MIB = 1 << 20
NOBODY = 65534
other_users = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to start a process of another user")


async def pull(dma: DMA, remote: MemoryMap, chunk: int, digest: Any, start: int = 0) -> int:
    """Copy chunk by chunk, two under way, and digest what arrives; how many bytes."""
    async with await dma.alloc(2 * chunk) as ring:
        views = [memoryview(ring)[:chunk], memoryview(ring)[chunk:]]
        try:
            copies: list[Any] = []
            offsets = range(start, remote.nbytes, chunk)
            for n, offset in enumerate(offsets):
                length = min(chunk, remote.nbytes - offset)
                at = n % 2 * chunk
                copies.append(dma.copy(remote[offset : offset + length], ring[at : at + length]))
                if n:
                    digest.update(views[(n - 1) % 2][: await copies.pop(0)])
            if copies:
                digest.update(views[(len(offsets) - 1) % 2][: await copies.pop(0)])
        finally:
            await dma.drain()
            for view in views:
                view.release()
    return remote.nbytes - start


async def pull_all(address: str, size: int, chunk: int) -> None:
    async with aiodocadma.open_dma() as dma, peer.connect(dma, address) as session:
        (publication,) = await session.list()
        assert publication.nbytes == size
        digest = hashlib.sha256()
        async with await session.import_memory("data") as remote:
            assert await pull(dma, remote, chunk, digest) == size
        assert digest.hexdigest() == publication.attributes["sha256"]


async def test_64_mib(exporter: StartExporter, socket_path: str) -> None:
    exporter(socket_path, 64 * MIB + 4321)
    await pull_all(socket_path, 64 * MIB + 4321, 3 * MIB)


async def test_over_tcp(exporter: StartExporter) -> None:
    started = exporter("tcp:localhost:0", 5 * MIB + 1)
    await pull_all(started.address, 5 * MIB + 1, MIB)


@pytest.mark.deep
@pytest.mark.timeout(300)
@pytest.mark.parametrize("size", [1 << 30, 10 << 30], ids=["1 GiB", "10 GiB"])
async def test_much(exporter: StartExporter, socket_path: str, size: int) -> None:
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if free < size + (1 << 30):
        pytest.skip("not enough free memory")
    exporter(socket_path, size)
    await pull_all(socket_path, size, 32 * MIB)


# ---- two users: the emulator's sides, like the rendezvous', let the same user and root in, and whom they are told to


@other_users
async def test_root_pulls_what_a_user_publishes(exporter: StartExporter) -> None:
    emulator.configure(peer_users="any")
    started = exporter("tcp:localhost:0", MIB, user=NOBODY)
    await pull_all(started.address, MIB, MIB)


PULLER = (
    BECOME
    + """
async def main():
    async with aiodocadma.open_dma(library="emulator") as dma:
        become(int(sys.argv[2]))
        async with peer.connect(dma, sys.argv[1], wait_timeout=5) as session:
            async with await session.import_memory("data") as remote:
                dst = bytearray(remote.nbytes)
                await dma.copy(remote, dst)
                assert hashlib.sha256(dst).hexdigest() == (await session.list())[0].attributes["sha256"]
                print("equal")

try:
    asyncio.run(main())
except AiodocadmaError as error:
    print(str(error).splitlines()[0])
"""
)


async def run_as(user: int, address: str, config: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PULLER,
        address,
        str(user),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"DOCAEMU_CONFIG": config},
    )
    out, _ = await process.communicate()
    return out.decode().strip()


@pytest.fixture
def shared_path() -> Iterator[str]:
    """An address in a folder that every user may enter; the next pytest that starts closes those of pytest."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield f"unix:{folder}/s"


@other_users
async def test_another_user_pulls_if_it_may(exporter: StartExporter, shared_path: str) -> None:
    exporter(shared_path, MIB, users=(NOBODY,), config="peer_users=any")
    assert await run_as(NOBODY, shared_path, "peer_users=any") == "equal"
    assert await run_as(NOBODY - 1, shared_path, "") == f"{shared_path} refuses: user {NOBODY - 1} may not connect"


@other_users
async def test_a_socket_where_anybody_could_listen(exporter: StartExporter, sides: Sides, shared_path: str) -> None:
    """As in /tmp: this user's and root's are fine there, another one's only if told; without a sticky bit, none."""
    folder = shared_path.removeprefix("unix:").rpartition("/")[0]
    os.chmod(folder, 0o1777)
    exporter(shared_path, MIB, user=NOBODY, users=(0,))
    with pytest.raises(PeerError, match=f"user {NOBODY} listens, and anybody may write in {folder}, and {folder}/s is"):
        async with peer.connect(sides.dpu, shared_path):
            pass
    async with peer.connect(sides.dpu, shared_path, insecure=True) as session:
        assert [publication.name for publication in await session.list()] == ["data"]
    async with peer.listen(sides.host, f"unix:{folder}/t"), peer.connect(sides.dpu, f"unix:{folder}/t") as session:
        assert await session.list() == []
    os.chmod(folder, 0o755)
    async with peer.connect(sides.dpu, shared_path):  # its folder says who may listen there
        pass
    os.chmod(folder, 0o777)
    with pytest.raises(PeerError, match=f"user {NOBODY} listens, and anybody may write in {folder}"):
        async with peer.connect(sides.dpu, shared_path):
            pass
    with pytest.raises(PermissionError, match=f"anybody may write in {folder}"):
        async with peer.listen(sides.host, f"unix:{folder}/t"):
            pass


@other_users
async def test_another_user_does_not_pull_otherwise(exporter: StartExporter, shared_path: str) -> None:
    exporter(shared_path, MIB)
    assert await run_as(NOBODY, shared_path, "") == f"{shared_path}: Permission denied"


@other_users
async def test_the_engine_decides_by_itself(exporter: StartExporter, shared_path: str) -> None:
    """The rendezvous lets the user in, the exporter's engine does not."""
    exporter(shared_path, MIB, users=(NOBODY,))
    assert "not exported to this device and user" in await run_as(NOBODY, shared_path, "peer_users=any")


# ---- exporters that end


async def test_an_exporter_killed_in_the_middle(exporter: StartExporter, socket_path: str) -> None:
    """An error within a second, another good copy at once, and the rest from a new exporter."""
    size, chunk = 32 * MIB, MIB
    first = exporter(socket_path, size)
    digest = hashlib.sha256()
    async with aiodocadma.open_dma() as dma:
        async with peer.connect(dma, socket_path) as session:
            remote = await session.import_memory("data")
            wanted = (await session.list())[0].attributes["sha256"]
            done = await pull(dma, remote[: 11 * chunk], chunk, digest)  # type: ignore[arg-type]
            assert done == 11 * chunk
            copies = [dma.copy(remote[done + n * chunk :][:chunk], bytearray(chunk)) for n in range(4)]
            first.kill()
            start = time.monotonic()
            ends = await asyncio.gather(*copies, return_exceptions=True)
            with pytest.raises(DocaError):
                await dma.copy(remote[done:], bytearray(size - done))
            assert time.monotonic() - start < 1
            assert all(end == chunk or isinstance(end, DocaError) for end in ends)
            with pytest.raises(PeerError, match="has gone"):
                await session.list()
            assert await dma.copy(b"abc", dst := bytearray(3)) == 3
            assert dst == b"abc"
            remote.close()
        os.unlink(socket_path.removeprefix("unix:"))
        exporter(socket_path, size)
        async with peer.connect(dma, socket_path) as session, await session.import_memory("data") as again:
            assert await pull(dma, again, chunk, digest, start=done) == size - done
        assert digest.hexdigest() == wanted


async def test_an_exporter_killed_before_the_first_copy(exporter: StartExporter, socket_path: str) -> None:
    started = exporter(socket_path, MIB)
    async with aiodocadma.open_dma() as dma:
        async with peer.connect(dma, socket_path) as session:
            descriptor = await session.get("data")
        started.kill()
        start = time.monotonic()
        with pytest.raises(
            DocaError, match=r"is not exported to this device and user|the exporter of the memory does not answer"
        ):
            await dma.import_memory(descriptor)
        assert time.monotonic() - start < 1
        assert await dma.copy(b"abc", bytearray(3)) == 3


async def test_an_exporter_that_is_stopped(exporter: StartExporter, socket_path: str) -> None:
    """As by a debugger: the emulator's engine gives up after its time, and the client stays usable."""
    emulator.configure(peer_timeout=200)
    started = exporter(socket_path, MIB)
    async with aiodocadma.open_dma() as dma:
        async with peer.connect(dma, socket_path) as session:
            remote = await session.import_memory("data")
        os.kill(started.process.pid, signal.SIGSTOP)
        stat = Path(f"/proc/{started.process.pid}/stat")
        await until(lambda: ") T " in stat.read_text(), "the exporter to stop")
        try:
            with pytest.raises(DocaIoFailedError):
                await dma.copy(remote[:100], bytearray(100))
            assert await dma.copy(b"abc", bytearray(3)) == 3
        finally:
            os.kill(started.process.pid, signal.SIGCONT)
        assert await dma.copy(remote[:100], bytearray(100)) == 100
        remote.close()


async def test_an_importer_killed_in_the_middle(exporter: StartExporter, socket_path: str) -> None:
    """The exporter does not mind: the next one pulls everything."""
    exporter(socket_path, 8 * MIB)
    script = """
import asyncio, os, signal, sys
import aiodocadma
from aiodocadma import peer

async def main():
    async with aiodocadma.open_dma(library="emulator") as dma, peer.connect(dma, sys.argv[1]) as session:
        remote = await session.import_memory("data")
        copy = dma.copy(remote, bytearray(remote.nbytes))
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, socket_path)
    assert await process.wait() == -signal.SIGKILL
    await pull_all(socket_path, 8 * MIB, MIB)
