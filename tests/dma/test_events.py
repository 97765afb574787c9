"""The flight recorder, who follows it, and the stalls that the watchdog names."""

from __future__ import annotations

import asyncio
import time

import pytest

import aiodocadma
from aiodocadma import DMA, Event, EventKind, StallCause, _events, emulator
from aiodocadma.exceptions import DocaError, DocaIoFailedError
from tests.dma.conftest import SUBMIT, turns, until


def told(events: tuple[Event, ...] | list[Event]) -> list[str]:
    return [event.text for event in events]


async def fail_one(dma: DMA) -> None:
    """Have one copy fail, and wait until the context runs again."""
    emulator.inject(emulator.Fault("completion"))
    with pytest.raises(DocaIoFailedError):
        await dma.copy(b"abcde", bytearray(5))
    await until(lambda: dma.state is aiodocadma.DMAState.RUNNING, "the restart")


RESTART = [
    "a task of 5 bytes failed: IO_FAILED (complete)",
    "channel RUNNING to FAILING",
    "context RUNNING to STOPPING",
    "context STOPPING to IDLE",
    "channel FAILING to PARKED",
    "context IDLE to RUNNING",
    "a fresh context was made after a fault",
    "channel PARKED to RUNNING",
]


async def test_a_fault_and_its_restart_in_order() -> None:
    async with aiodocadma.open_dma() as dma:
        before = time.monotonic()
        await fail_one(dma)
        events = dma.recorded()
        assert sorted(told(events)) == sorted(["context IDLE to RUNNING", *RESTART])
        assert told(events)[-5:] == RESTART[-5:]
        assert [event.number for event in events] == list(range(len(events)))
        assert all(before <= event.time <= time.monotonic() for event in events[1:])
        failed = next(event for event in events if event.kind is EventKind.FAILED)
        assert (failed.code, failed.nbytes, failed.cause) == ("IO_FAILED", 5, None)


async def test_what_goes_well_leaves_no_event() -> None:
    async with aiodocadma.open_dma() as dma:
        for _ in range(100):
            await dma.copy(b"abc", bytearray(3))
        assert told(dma.recorded()) == ["context IDLE to RUNNING"]


async def test_the_flushed_are_counted_in_one_event() -> None:
    emulator.configure(engine="manual")
    emulator.inject(emulator.Fault("completion"))
    async with aiodocadma.open_dma() as dma:
        futures = [dma.copy(b"abc", bytearray(3)) for _ in range(8)]
        await until(lambda: (emulator.step(8), all(future.done() for future in futures))[1], "the copies")
        await asyncio.gather(*futures, return_exceptions=True)
        assert [event.text for event in dma.recorded() if event.kind is EventKind.FLUSHED] == ["7 tasks flushed"]


async def test_several_readers_and_the_end() -> None:
    async with aiodocadma.open_dma() as dma:
        first, second = dma.events(), dma.events()

        async def read(events: aiodocadma.Events) -> list[str]:
            return [event.text async for event in events]

        tasks = [asyncio.ensure_future(read(events)) for events in (first, second)]
        await turns()
        await fail_one(dma)
        late = dma.events()
    got = [*await asyncio.gather(*tasks), await read(late)]
    assert sorted(got[0][:8]) == sorted(RESTART)
    assert got[0] == got[1]
    assert (
        got[2]
        == got[0][8:]
        == [
            "channel RUNNING to DRAINING",
            "channel DRAINING to PARKED",
            "channel PARKED to CLOSED",
            "context RUNNING to STOPPING",
            "context STOPPING to IDLE",
        ]
    )
    assert (first.dropped, second.dropped, late.dropped) == (0, 0, 0)
    assert told(dma.recorded())[-5:] == got[2]  # readable after the end


async def test_a_reader_is_woken_by_each_event() -> None:
    async with aiodocadma.open_dma() as dma:
        events = dma.events()
        waiting = asyncio.ensure_future(anext(events))
        await turns()
        assert not waiting.done()
        dma._recorder.stalled(StallCause.NOT_ARMED)
        assert (await waiting).cause is StallCause.NOT_ARMED
        waiting = asyncio.ensure_future(anext(events))
        await turns()
        waiting.cancel()
        await asyncio.wait([waiting])
        dma._recorder.stalled(StallCause.REFUSED)
        assert (await anext(events)).cause is StallCause.REFUSED  # a cancelled read loses nothing


async def test_a_slow_reader_drops_the_oldest_and_knows_how_many() -> None:
    async with aiodocadma.open_dma() as dma:
        events = dma.events()
        for _ in range(1000):
            dma._recorder.stalled(StallCause.ENGINE_SILENT)
        assert len(dma.recorded()) == 512
        first = await anext(events)
        assert events.dropped == 1000 - 512
        assert first.number == 1 + events.dropped
        for _ in range(511):
            last = await anext(events)
        assert last.number == 1000
        dma._recorder.stalled(StallCause.ENGINE_SILENT)
        assert (await anext(events)).number == 1001
        assert events.dropped == 1000 - 512


async def test_changed_capabilities() -> None:
    async with aiodocadma.open_dma() as dma:
        emulator.configure(max_buf_size=4096)
        await fail_one(dma)
        assert [event.kind for event in dma.recorded()].count(EventKind.CAPABILITIES) == 1


async def test_a_recycle_for_closed_maps_is_no_restart() -> None:
    async with aiodocadma.open_dma() as dma:
        for _ in range(1100):  # more than the graveyard holds
            await dma.copy(b"abc", bytearray(3))
        await until(lambda: dma.statistics().recycles, "the fresh context")
        kinds = [event.kind for event in dma.recorded()]
        assert EventKind.RECYCLED in kinds
        assert EventKind.RESTARTED not in kinds


async def test_refused_and_uncleared() -> None:
    emulator.configure(engine="manual")
    emulator.inject(
        emulator.Fault(SUBMIT, "again", count=3),
        emulator.Fault("pe_clear_notification", status="OPERATING_SYSTEM"),
    )
    async with aiodocadma.open_dma() as dma:
        future = dma.copy(b"abc", bytearray(3))
        await until(lambda: dma.statistics().in_flight, "the submit")
        await turns()
        emulator.step()
        await future
        assert told(dma.recorded()) == [
            "context IDLE to RUNNING",
            "DOCA takes no task although it holds none: AGAIN",
            "doca_pe_clear_notification failed: OPERATING_SYSTEM",
        ]


async def test_lost() -> None:
    async with aiodocadma.open_dma() as dma:
        emulator.inject(emulator.Fault("ctx_start", status="DRIVER"), emulator.Fault("completion"))
        with pytest.raises(DocaError):
            await dma.copy(b"abc", bytearray(3))
        await until(lambda: dma.state is aiodocadma.DMAState.LOST, "the loss")
        assert told(dma.recorded())[-2:] == ["channel PARKED to LOST", "the engine is lost: DRIVER"]


async def test_a_peer_that_takes_its_memory_back() -> None:
    emulator.configure("device mlx5_0 pci=0000:03:00.0\ndevice mlx5_1 pci=0000:04:00.0")
    async with (
        aiodocadma.open_dma("mlx5_0") as host,
        aiodocadma.open_dma("mlx5_1") as dpu,
        await host.register(b"payload") as memory,
        await dpu.import_memory(await memory.export()) as remote,
    ):
        assert await dpu.copy(remote, bytearray(7)) == 7
        emulator.revoke_exports()
        with pytest.raises(DocaIoFailedError):
            await dpu.copy(remote, bytearray(7))
        await until(lambda: dpu.state is aiodocadma.DMAState.RUNNING, "the restart")
        kinds = [event.kind for event in dpu.recorded()]
        assert kinds.count(EventKind.PEER_LOST) == 1
        assert kinds.index(EventKind.FAILED) < kinds.index(EventKind.PEER_LOST)
        await fail_one(dpu)  # with our own memory: nobody's loss
        assert [event.kind for event in dpu.recorded()].count(EventKind.PEER_LOST) == 1


# ---- stalls: each cause, produced


async def stalled(dma: DMA) -> Event:
    """The next stall that is named."""
    events = dma.events()
    async for event in events:
        if event.kind is EventKind.STALLED:
            return event
    pytest.fail("the DMA ended without a stall")


@pytest.mark.parametrize(
    ("num_tasks", "cause"), [(2, StallCause.ENGINE_SILENT), (1, StallCause.WINDOW_FULL)], ids=["silent", "full"]
)
async def test_a_silent_engine(num_tasks: int, cause: StallCause) -> None:
    emulator.configure(engine="manual")
    async with aiodocadma.open_dma(num_tasks=num_tasks, stall_timeout=0.01) as dma:
        future = dma.copy(b"abc", bytearray(3))
        event = await stalled(dma)
        assert event.cause is cause
        assert cause.text in event.text
        emulator.step()
        await future


async def test_a_lost_notification_is_a_silent_engine() -> None:
    emulator.configure(engine="manual")
    emulator.inject(emulator.Fault("notification", "suppress"))
    async with aiodocadma.open_dma(stall_timeout=0.01) as dma:
        future = dma.copy(b"abc", bytearray(3))
        await turns()
        emulator.step()
        assert (await stalled(dma)).cause is StallCause.ENGINE_SILENT
        emulator.spurious_notification()
        await future


async def test_a_loop_without_the_reader() -> None:
    emulator.configure(engine="manual")
    async with aiodocadma.open_dma(stall_timeout=0.01) as dma:
        future = dma.copy(b"abc", bytearray(3))
        await turns()
        loop = asyncio.get_running_loop()
        loop.remove_reader(dma._native.fd)
        emulator.step()
        assert (await stalled(dma)).cause is StallCause.READER_MISSING
        assert not future.done()  # the watchdog rescues nothing
        loop.add_reader(dma._native.fd, dma._readable)
        await future


async def test_a_context_that_does_not_become_idle() -> None:
    emulator.configure(engine="manual")
    async with aiodocadma.open_dma(stall_timeout=0.01) as dma:
        failing = dma.copy(b"abc", bytearray(3))
        emulator.hold()
        held = dma.copy(b"abc", bytearray(3))
        await turns()
        bad = emulator.last_copies(2)[1].dst
        assert emulator.complete(bad, code=17)
        with pytest.raises(DocaIoFailedError):
            await failing
        assert (await stalled(dma)).cause is StallCause.RESTARTING
        emulator.hold(False)
        emulator.release()
        await until(lambda: (emulator.step(), held.done())[1], "the replay")


async def test_a_fresh_context_that_takes_long() -> None:
    emulator.configure(engine="manual")
    async with aiodocadma.open_dma(stall_timeout=0.01) as dma, await dma.alloc(2) as src, await dma.alloc(2) as dst:
        first = dma.copy(src[:1], dst[:1])
        await turns()
        with dma._engine._lock:  # as a registration holds it that hangs in the driver
            dma._native.park()
            second = dma.copy(src[1:], dst[1:])
            emulator.step()
            await first
            assert (await stalled(dma)).cause is StallCause.RECYCLING
        await until(lambda: (emulator.step(), second.done())[1], "the copy")


async def test_a_notification_that_cannot_be_armed() -> None:
    emulator.configure(engine="manual")
    emulator.inject(emulator.Fault("pe_request_notification", status="DRIVER", skip=1, count=0))
    async with aiodocadma.open_dma(stall_timeout=0.01) as dma:
        futures = [dma.copy(b"abc", bytearray(3)) for _ in range(2)]
        await turns()
        emulator.step()
        await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        assert (await stalled(dma)).cause is StallCause.NOT_ARMED
        emulator.step()
        await asyncio.gather(*futures)
    emulator.configure(faults="none")


async def test_an_engine_that_refuses() -> None:
    emulator.configure(engine="manual")
    emulator.inject(emulator.Fault(SUBMIT, "again", skip=1, count=0))
    async with aiodocadma.open_dma(stall_timeout=0.01) as dma:
        futures = [dma.copy(b"abc", bytearray(3)) for _ in range(500)]
        await turns()
        emulator.step()
        await futures[0]
        assert (await stalled(dma)).cause is StallCause.REFUSED
        emulator.configure(faults="none")
        await until(lambda: (emulator.step(500), all(future.done() for future in futures))[1], "the copies")
        await asyncio.gather(*futures, return_exceptions=True)


async def test_a_stall_that_lasts_is_told_of_once() -> None:
    """Whatever led to it must stay in the recorder; the watchdog goes on counting."""
    emulator.configure(engine="manual")
    async with aiodocadma.open_dma(stall_timeout=0.01) as dma:
        events = dma.events()
        future = dma.copy(b"abc", bytearray(3))
        await until(lambda: dma.statistics().watchdog_hits >= 3, "three looks of the watchdog")
        emulator.step()
        await future
        await dma.aclose()
        assert [event.kind async for event in events].count(EventKind.STALLED) == 1


def test_each_cause_has_words() -> None:
    assert set(_events._CAUSES) == set(StallCause)
    assert len({cause.text for cause in StallCause}) == len(StallCause)
