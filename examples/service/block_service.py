"""
An HTTP service that stores blocks and serves them, copied by the DMA engine. Works on asyncio and on uvloop.

    uvicorn --app-dir examples/service --loop uvloop --factory block_service:create_app
    curl -T FILE localhost:8000/blocks/NAME
    curl localhost:8000/blocks/NAME

The blocks live in memory that is allocated here; with a card it would be the other side's, by import_memory(). Each
request borrows a buffer that is registered already. When the engine cannot keep up, reads are refused (503, come again)
and writes wait, as their body has arrived already; no request takes longer than DEADLINE. When a client hangs up, its
copy is cancelled, and its buffer goes back only when the engine has let go of it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final, TypedDict

from prometheus_client import CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

import aiodocadma
from aiodocadma import DMA, Blocks, Buffer, CopyFuture, DMAState
from aiodocadma.metrics import Collector

BLOCK: Final = 1 << 20  # bytes of the largest block
NUM_SLOTS: Final = 128  # blocks that are kept
NUM_BUFFERS: Final = 32  # requests that are served at once
DEADLINE: Final = 10.0  # seconds for a request


class State(TypedDict):
    """What the requests share: made when the service starts, given back when it ends."""

    dma: DMA
    slots: Blocks
    buffers: Blocks
    blocks: dict[str, Buffer]


def create_app(**options: Any) -> Starlette:
    """Make the application; the options are open_dma()'s."""
    registry = CollectorRegistry()
    registry.register(Collector())

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[State]:
        async with (
            aiodocadma.open_dma(**{"max_waiting": 16, **options}) as dma,
            await dma.alloc(NUM_SLOTS * BLOCK) as slots,
            await dma.alloc(NUM_BUFFERS * BLOCK) as buffers,
        ):
            yield State(
                dma=dma,
                slots=slots.blocks(BLOCK),
                buffers=buffers.blocks(BLOCK),
                blocks={},
            )

    async def metrics(request: Request) -> Response:
        return Response(generate_latest(registry), media_type="text/plain; version=0.0.4")

    return Starlette(
        routes=[
            Route("/blocks/{name}", put, methods=["PUT"]),
            Route("/blocks/{name}", get),
            Route("/health", health),
            Route("/metrics", metrics),
        ],
        exception_handlers={
            aiodocadma.QueueFullError: busy,
            TimeoutError: busy,
            ClientDisconnect: gone,
        },
        lifespan=lifespan,
    )


async def put(request: Request) -> Response:
    """Store a block, once: blocks do not change, so a reader needs no lock."""
    name, state = request.path_params["name"], request.state
    async with asyncio.timeout(DEADLINE), state.buffers.acquire() as buffer:
        length = await receive(request, buffer)
        if not state.slots.free:
            raise HTTPException(507)
        slot = await state.slots.acquire()
        try:
            await unless_gone(request, await state.dma.submit(buffer[:length], slot))
            if name in state.blocks:
                raise HTTPException(409)
            state.blocks[name] = slot[:length]
        except BaseException:
            state.slots.release(slot)
            raise
    return Response(status_code=201)


async def get(request: Request) -> Response:
    """Serve a block."""
    name, state = request.path_params["name"], request.state
    if name not in state.blocks:
        raise HTTPException(404)
    block = state.blocks[name]
    async with asyncio.timeout(DEADLINE), state.buffers.acquire() as buffer:
        await unless_gone(request, state.dma.copy(block, buffer))
        return Response(bytes(buffer[: len(block)]), media_type="application/octet-stream")


async def health(request: Request) -> Response:
    """Say whether the engine works; it heals itself from RESTARTING, from LOST a new process helps."""
    state = request.state.dma.state
    return PlainTextResponse(state.value, 200 if state in (DMAState.RUNNING, DMAState.RESTARTING) else 503)


async def receive(request: Request, buffer: Buffer) -> int:
    """Read the request's body into a buffer."""
    length = 0
    async for chunk in request.stream():
        if length + len(chunk) > len(buffer):
            raise HTTPException(413)
        memoryview(buffer)[length : length + len(chunk)] = chunk
        length += len(chunk)
    return length


async def unless_gone(request: Request, copy: CopyFuture) -> None:
    """Await a copy, and cancel it when the client hangs up; it has ended in either case."""

    async def hang_up() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    watch = asyncio.create_task(hang_up())
    watch.add_done_callback(lambda _: copy.cancel())
    try:
        await copy
    except asyncio.CancelledError:
        if watch.done():
            raise ClientDisconnect from None
        raise
    finally:
        watch.cancel()


async def busy(request: Request, exc: Exception) -> Response:
    """Answer that the engine cannot keep up."""
    return PlainTextResponse("busy", 503, {"Retry-After": "1"})


async def gone(request: Request, exc: Exception) -> Response:
    """End a request that nobody waits for."""
    return Response(status_code=499)
