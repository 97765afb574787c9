"""DMAs on the workers of a real Dask cluster of processes, on either loop; one of its tests kills a worker."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster, Worker, get_worker

from aiodocadma import DMAState, emulator
from aiodocadma.exceptions import DocaError, DocaIoFailedError, UsageError, WrongLoopError
from aiodocadma.integrations.dask import RESOURCE, DMAPlugin, copy_batch, worker_dma

LIMIT = 30  # seconds for anything to happen


@pytest.fixture(scope="module", params=["asyncio", "uvloop"])
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Two workers, processes with four threads each and that loop, and on each a DMA."""
    options = {"n_workers": 2, "threads_per_worker": 4, "processes": True, "dashboard_address": ":0"}
    config = {"distributed.admin.event-loop": request.param, "distributed.worker.multiprocessing-method": "forkserver"}
    with (
        dask.config.set(config),  # spawned workers would take much longer to start
        LocalCluster(
            resources={RESOURCE: 2}, local_directory=str(tmp_path_factory.mktemp("dask")), **options
        ) as cluster,
        Client(cluster) as connected,
    ):
        assert set(connected.run(name_of_loop).values()) == {request.param}
        connected.register_plugin(DMAPlugin())
        yield connected


async def name_of_loop() -> str:
    """On a worker: whose loop it is."""
    return "uvloop" if "uvloop" in type(asyncio.get_running_loop()).__module__ else "asyncio"


def eventfds() -> int:
    """On a worker: how many of its fds are eventfds, as that of a progress engine."""
    links = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:  # that of the listing itself
            continue
    return links.count("anon_inode:[eventfd]")


def workers(client: Client) -> list[str]:
    """Their addresses."""
    return sorted(client.scheduler_info()["workers"])


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for something that a worker does."""
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, f"still waiting for {what}"
        time.sleep(0.01)


def test_copies(client: Client) -> None:
    """Data of the client, data of other workers, arrays, nothing; all right by bytes."""
    data = os.urandom(1_000_000)
    far = [client.scatter(bytes([i]) * 1000, workers=[worker]) for i, worker in enumerate(workers(client))]
    sources = [data, b"", *far, np.arange(1000).reshape(10, 100)]
    copies = copy_batch(client, sources).result(timeout=LIMIT)
    assert copies == [data, b"", bytes(1000), b"\1" * 1000, np.arange(1000).tobytes()]
    assert copy_batch(client, []).result(timeout=LIMIT) == []
    assert copy_batch(client, [b"abc"]).key != copy_batch(client, [b"abc"]).key  # two copies, not one for two


async def whereabouts(nbytes: int) -> tuple[bool, str, int]:
    """As a task: whether the DMA is of this very loop and running, where that is, what a copy brings."""
    dma = worker_dma()
    mine = dma._loop is asyncio.get_running_loop() and dma.state is DMAState.RUNNING
    return mine, get_worker().address, await dma.copy(bytes(nbytes), bytearray(nbytes))


def test_each_worker_has_one_on_its_loop(client: Client) -> None:
    for address in workers(client):
        task = client.submit(whereabouts, 1000, resources={RESOURCE: 1}, workers=[address], pure=False)
        assert task.result(timeout=LIMIT) == (True, address, 1000)


running = most = 0


async def count_running() -> int:
    """As a task: stay until two are there, and copy a while; the most that were there at once."""
    global running, most
    running += 1
    most = max(most, running)
    while most < 2:
        await asyncio.sleep(0.001)
    for _ in range(20):
        await worker_dma().copy(bytes(300_000), bytearray(300_000))
    running -= 1
    return most


def test_the_resource_limits_how_many_run(client: Client) -> None:
    """Two at a time, although there are four threads."""
    address = workers(client)[0]
    tasks = [
        client.submit(count_running, resources={RESOURCE: 1}, workers=[address], pure=False, key=f"count-{i}")
        for i in range(8)
    ]
    assert max(client.gather(tasks)) == 2


def copy_in_a_thread() -> None:
    """As a task: a plain function."""
    worker_dma().copy(b"abc", bytearray(3))


def test_a_task_in_a_thread_is_refused(client: Client) -> None:
    with pytest.raises(WrongLoopError):
        client.submit(copy_in_a_thread, resources={RESOURCE: 1}, pure=False).result(timeout=LIMIT)


def test_failures_arrive_as_they_are(client: Client) -> None:
    with pytest.raises(TypeError, match="str"):
        copy_batch(client, ["abc"]).result(timeout=LIMIT)
    address = workers(client)[0]
    client.run(lambda: emulator.inject(emulator.Fault("completion")), workers=[address])
    with pytest.raises(DocaIoFailedError) as caught:
        copy_batch(client, [bytes(1000)], workers=[address]).result(timeout=LIMIT)
    assert caught.value.cause
    client.run(lambda: emulator.inject(emulator.Fault("completion")), workers=[address])
    assert copy_batch(client, [b"abc"], workers=[address], retries=1).result(timeout=LIMIT) == [b"abc"]


@pytest.mark.parametrize("resources", [{RESOURCE: 1}, {}], ids=["with", "without"])
def test_workers_of_this_process_with_and_without_the_resource(resources: dict[str, float]) -> None:
    """Each has its own DMA, on the loop that they share; one without the resource has none."""
    before = emulator.live_objects().ctxs
    with (
        LocalCluster(n_workers=2, processes=False, dashboard_address=":0", resources=resources) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(DMAPlugin())
        assert emulator.live_objects().ctxs == before + 2 * len(resources)
        if resources:
            for address in workers(client):
                assert copy_batch(client, [b"abc"], workers=[address]).result(timeout=LIMIT) == [b"abc"]
        else:
            with pytest.raises(UsageError, match="this worker has no open DMA"):
                client.submit(whereabouts, 1).result(timeout=LIMIT)
    assert emulator.live_objects().ctxs == before


def test_a_worker_that_cannot_open_one_says_so() -> None:
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address=":0", resources={RESOURCE: 1}) as cluster,
        Client(cluster) as client,
    ):
        with pytest.raises(DocaError, match="nodev9"):
            client.register_plugin(DMAPlugin("nodev9"))
        with pytest.raises(UsageError, match="this worker has no open DMA"):
            copy_batch(client, [b"abc"]).result(timeout=LIMIT)


def test_outside_of_a_task() -> None:
    with pytest.raises(ValueError, match="No worker found"):
        worker_dma()
    with pytest.raises(ValueError, match="max_waiting must be at least 1, not 0"):
        DMAPlugin(max_waiting=0)


def pending(dask_worker: Worker) -> int:
    """On a worker: how many copies are under way."""
    dma = dask_worker.plugins[DMAPlugin.name]._dma
    return dma.statistics().pending if dma is not None else 0


def test_a_worker_killed_in_the_middle_of_copies(client: Client) -> None:
    """Its batches are done by another or by its successor; the survivor has nothing left over, and nobody hangs."""
    victim, survivor = workers(client)
    client.run(lambda: emulator.hold(True), workers=[victim])  # its engine does not finish what it is given
    batches = [[bytes([i, j]) * 50_000 for j in range(4)] for i in range(6)]
    futures = [copy_batch(client, batch, workers=[victim], allow_other_workers=True) for batch in batches]
    until(lambda: client.run(pending, workers=[victim])[victim] == 2, "copies of the victim")
    pid = client.run(os.getpid, workers=[victim])[victim]
    os.kill(pid, signal.SIGKILL)
    assert [future.result(timeout=LIMIT) for future in futures] == batches
    assert client.run(pending, workers=[survivor])[survivor] == 0
    assert client.run(lambda: emulator.live_objects().in_flight, workers=[survivor])[survivor] == 0
    # The nanny starts another in its place, with a DMA of its own.
    until(lambda: len(workers(client)) == 2 and victim not in workers(client), "the successor")
    [successor] = set(workers(client)) - {survivor}
    assert client.run(os.getpid, workers=[successor])[successor] != pid
    assert copy_batch(client, [b"abc"], workers=[successor]).result(timeout=LIMIT) == [b"abc"]


def test_all_workers_killed(client: Client) -> None:
    """Nobody is left to do the batches, but the successors have the resource and a DMA when they come."""
    victims = workers(client)
    client.run(lambda: emulator.hold(True))
    batches = [[bytes([i, j]) * 50_000 for j in range(4)] for i in range(8)]
    futures = [copy_batch(client, batch) for batch in batches]
    until(lambda: list(client.run(pending).values()) == [2, 2], "copies of both")
    for pid in client.run(os.getpid).values():
        os.kill(pid, signal.SIGKILL)
    assert [future.result(timeout=LIMIT) for future in futures] == batches
    until(lambda: len(set(workers(client)) - set(victims)) == 2, "the successors")


def test_taken_away(client: Client) -> None:
    """Without the plugin nothing is alive on the workers, no fd and no pinned byte."""
    for address in workers(client):
        copy_batch(client, [bytes(500_000)], workers=[address]).result(timeout=LIMIT)
    with_it = client.run(eventfds)
    assert set(client.run(lambda: emulator.live_objects().devs).values()) == {1}
    client.unregister_worker_plugin(DMAPlugin.name)
    live = client.run(emulator.live_objects)
    assert not any(any(objects) for objects in live.values()), live
    assert client.run(eventfds) == {address: number - 1 for address, number in with_it.items()}
    with pytest.raises(UsageError, match="this worker has no open DMA"):
        copy_batch(client, [b"abc"]).result(timeout=LIMIT)
