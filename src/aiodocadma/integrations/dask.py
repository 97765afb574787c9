"""
One DMA for each worker of a Dask cluster, and copies as its tasks. Needs the extra ``dask``::

    cluster = LocalCluster(resources={RESOURCE: 2})  # or: dask worker --resources dma=2
    client = Client(cluster)
    client.register_plugin(DMAPlugin())
    copies = copy_batch(client, blocks).result()

This is how copies go beyond one machine: an engine per node, and above it the scheduler that is there already. Data
between nodes stays Dask's. The resource is given to workers when they start, as Dask does, and not by the plugin: the
scheduler looks again at tasks that wait for a worker when one starts, and not when one gets a resource.

The DMA is opened on the worker's own event loop, and a task that uses it is a coroutine, which Dask runs on that loop.
No thread waits for the loop and the loop waits for no thread, so neither can wait for the other. A task that is a plain
function runs in a thread, where any use of the DMA raises ``WrongLoopError`` at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Unpack, cast

from distributed import Client, Future, Worker, WorkerPlugin, get_worker

import aiodocadma
from aiodocadma import DMA
from aiodocadma._options import Options
from aiodocadma.exceptions import UsageError

__all__ = ["RESOURCE", "DMAPlugin", "copy_batch", "worker_dma"]

RESOURCE: Final = "dma"
"""What workers with a DMA have and tasks that use it ask for."""


class DMAPlugin(WorkerPlugin):
    """
    Opens a DMA on each worker that has the resource ``dma``, and closes it with the worker.

    Also on workers that come later or are started anew, before they get their first task. How much of the resource a
    worker has is how many tasks that ask for it run there at a time; each may have any number of copies. (Dask runs no
    more tasks than the worker has threads anyway, coroutines included.) A worker without the resource gets no DMA, as
    it has no card.

    Args:
        device: As for ``aiodocadma.open_dma()``.
        options: All others of ``aiodocadma.open_dma()``.

    Raises:
        ValueError: If a number is out of range.

    Source: ``distributed.WorkerPlugin``.
    """

    name = "aiodocadma"

    def __init__(self, device: str | None = None, **options: Unpack[Options]) -> None:
        aiodocadma.open_dma(device, **options)  # what is wrong with them is told here and not by each worker
        self._device = device
        self._options = options
        self._dma: DMA | None = None

    async def setup(self, worker: Worker) -> None:
        """
        Open the DMA on the worker's loop; Dask calls it.

        Args:
            worker: The worker.

        Raises:
            AiodocadmaError: As ``aiodocadma.open_dma()``.

        Cancellation: Waits for the opening under way, undoes it, then raises.
        Source: ``distributed.WorkerPlugin.setup``.
        """
        if RESOURCE in worker.state.total_resources:
            self._dma = await aiodocadma.open_dma(self._device, **self._options).__aenter__()

    async def teardown(self, worker: Worker) -> None:
        """
        Close the DMA; Dask calls it when the worker ends or the plugin is taken away.

        Args:
            worker: The worker.

        Raises:
            DrainTimeoutError: If the engine does not let go.

        Cancellation: Waits for the end, then raises.
        Source: ``distributed.WorkerPlugin.teardown``.
        """
        dma, self._dma = self._dma, None
        if dma is not None:
            await dma.aclose()


def worker_dma() -> DMA:
    """
    Find the DMA of the worker that runs this task.

    For tasks that are coroutines and ask for the resource: ``client.submit(task, ..., resources={RESOURCE: 1})``.

    Returns:
        The open DMA.

    Raises:
        UsageError: If the worker has none.
        ValueError: If called outside of a task.

    Source: ``distributed.get_worker``.
    """
    plugin = get_worker().plugins.get(DMAPlugin.name)
    if not isinstance(plugin, DMAPlugin) or plugin._dma is None:
        raise UsageError(
            "this worker has no open DMA",
            hint=f"client.register_plugin(DMAPlugin()) opens it where the resource {RESOURCE} is; the log tells.",
        )
    return plugin._dma


def copy_batch(client: Client, sources: Iterable[Any], **options: Any) -> Future[list[bytearray]]:
    """
    Submit copies as one task, which some worker's engine carries out together.

    A worker that dies on the way takes nothing along: Dask has another one do the batch from its start.

    Args:
        client: Of a cluster with a ``DMAPlugin``.
        sources: Objects with the buffer protocol (bytes, numpy arrays, ...) of any length, or Dask's futures of them.
        options: For ``client.submit()``: ``retries`` for exceptions, ``workers``, ``priority``.

    Returns:
        Dask's future of the copies, in their order, in memory of the worker.

    Raises:
        AiodocadmaError: From the future, as ``aiodocadma.DMA.copy()``; if one copy fails, the batch fails.

    Source: ``distributed.Client.submit``.
    """
    task = cast("Callable[..., list[bytearray]]", _copy_batch)  # which Dask awaits
    return client.submit(task, list(sources), resources={RESOURCE: 1}, pure=False, **options)


async def _copy_batch(sources: list[Any]) -> list[bytearray]:
    copies = [bytearray(memoryview(source).nbytes) for source in sources]
    await worker_dma().copy(sources, copies)
    return copies
