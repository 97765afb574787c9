"""Export and import between two devices of one process: permissions, first copies, lifetimes, secrets."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import gc
import hashlib
import json
import logging
import random
import traceback
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import aiodocadma
from aiodocadma import DMA, ExportDescriptor, MemoryMap, _export, _remote, emulator
from aiodocadma.exceptions import (
    AccessError,
    AiodocadmaError,
    BufferInUseError,
    ClosedError,
    DescriptorError,
    DocaDriverError,
    DocaError,
    DocaInvalidValueError,
    DocaIoFailedError,
    DocaNotPermittedError,
    DocaNotSupportedError,
    FlushedError,
    OverlapError,
    PeerError,
)
from tests.secrets import assert_no_secret

from .conftest import turns, until

NBYTES = 100_000
DATA = random.Random(6).randbytes(NBYTES)


class Sides(NamedTuple):
    """Host and DPU: a device each, since an engine does not import what it exports itself."""

    host: DMA
    dpu: DMA


@pytest.fixture
def manual() -> None:
    """Copies are held until the test steps the engine."""
    emulator.configure(engine="manual")


@pytest.fixture
async def sides() -> AsyncIterator[Sides]:
    """Open two devices."""
    emulator.configure("device mlx5_0 pci=0000:03:00.0\ndevice mlx5_1 pci=0000:04:00.0")
    async with aiodocadma.open_dma("mlx5_0") as host, aiodocadma.open_dma("mlx5_1") as dpu:
        yield Sides(host, dpu)


# ---- descriptors


def a_descriptor() -> ExportDescriptor:
    return ExportDescriptor(
        random.Random(1).randbytes(280),
        nbytes=NBYTES,
        access="write",
        generation=3,
        exporter="0123456789abcdef",
        machine="host.example",
        library="3.0.0058",
        emulated=False,
        card="MT2143X00001",
        scratch=random.Random(2).randbytes(280),
    )


def test_bytes_and_back() -> None:
    descriptor = a_descriptor()
    assert ExportDescriptor.from_bytes(bytes(descriptor)) == descriptor
    bare = ExportDescriptor(b"\0\xff" * 9)
    assert ExportDescriptor.from_bytes(memoryview(bytes(bare))) == bare


def test_what_a_later_version_adds_is_left_out() -> None:
    fields = json.loads(bytes(a_descriptor())[16:]) | {"later": [1]}
    text = json.dumps(fields).encode()
    assert ExportDescriptor.from_bytes(_export._MAGIC + _export._checksum(text) + text) == a_descriptor()


def test_damage_is_seen_at_every_byte() -> None:
    data = bytes(a_descriptor())
    for at in range(len(data)):
        for damaged in (data[:at], data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], data[:at] + data[at + 1 :]):
            with pytest.raises(DescriptorError):
                ExportDescriptor.from_bytes(damaged)
    with pytest.raises(DescriptorError, match="are too many"):
        ExportDescriptor.from_bytes(data * 100)
    with pytest.raises(DescriptorError, match="damaged or cut short"):
        ExportDescriptor.from_bytes(data + b" ")


@pytest.mark.parametrize("value", [5, "text", None, [1], object()])
def test_what_is_no_descriptor_at_all(value: Any) -> None:
    with pytest.raises(TypeError, match=type(value).__name__):
        ExportDescriptor.from_bytes(value)


JUNK = [None, True, 0, -1, 1 << 64, 1e9, "", "x", "\n", "\ud800", "?" * 256, [], {}, [[]], "rdma", "read", "AAAA"]
WORDS = ["x", "rdma", "read", "AAAA"]


def test_fields_are_checked() -> None:
    """Each field with each kind of junk, with the checksum made right: a descriptor, or a typed error that names it."""
    fields = json.loads(bytes(a_descriptor())[16:])
    taken: dict[str, list[object]] = {name: [] for name in fields}
    for name in fields:
        for junk in JUNK:
            text = json.dumps(fields | {name: junk}).encode()
            data = _export._MAGIC + _export._checksum(text) + text
            with contextlib.suppress(DescriptorError):
                taken[name].append(getattr(ExportDescriptor.from_bytes(data), name))
                continue
            with pytest.raises(DescriptorError, match=f"descriptor's {name} is not valid"):
                ExportDescriptor.from_bytes(data)
    base64s = [base64.b64decode(word) for word in WORDS[1:]]
    assert taken == {
        "blob": base64s,
        "nbytes": [None],
        "access": [None, "read"],
        "generation": [None],
        "exporter": [None],
        "machine": [None, *WORDS],
        "library": [None, *WORDS],
        "emulated": [None, True],
        "card": [None, *WORDS],
        "scratch": [b"", *base64s],
        "kind": ["rdma"],
    }


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"1", b'"x"', b"null", b"{}", b"[" * 8000, b"\xff\xfe", b"1" * 9000]
)
def test_no_fields(text: bytes) -> None:
    with pytest.raises(DescriptorError):
        ExportDescriptor.from_bytes(_export._MAGIC + _export._checksum(text) + text)


@pytest.mark.parametrize(
    "vpd", [b"", b"\x82", b"\x82\x05\0card", b"\x90\xff\xff", b"\x90\x03\0SN\x40", b"\x78", b"\x90\0\0" * 99]
)
def test_vital_product_data_without_a_serial_number(vpd: bytes) -> None:
    assert _export._serial_number(vpd) is None


VPD = b"\x82\x04\0card\x90\x1a\0PN\x05MBF2HSN\x0cMT2143X00001RV\0\x78"


def test_vital_product_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = dataclasses.replace(aiodocadma.devices()[0], emulated=False)
    monkeypatch.setattr(_export, "_PCI_DEVICES", tmp_path)
    assert _export.card_of(device) is None
    (tmp_path / device.pci_address).mkdir()
    (tmp_path / device.pci_address / "vpd").write_bytes(VPD)
    assert _export.card_of(device) == "MT2143X00001"
    assert _export.card_of(dataclasses.replace(device, emulated=True)) is None


# ---- reading


async def test_a_peers_memory_is_read_where_it_lies(sides: Sides) -> None:
    memory = await sides.host.register(DATA)
    descriptor = await memory.export()
    assert (descriptor.nbytes, descriptor.access, descriptor.generation) == (NBYTES, "read", 1)
    assert (descriptor.library, descriptor.emulated) == (sides.host.device.version, True)
    async with await sides.dpu.import_memory(bytes(descriptor)) as remote:
        assert (remote.nbytes, remote.readonly, remote.imported, memory.imported) == (NBYTES, True, True, False)
        assert repr(remote) == "<MemoryMap 100000 bytes of a peer, engine read-only>"
        assert repr(memory) == "<MemoryMap 100000 bytes, engine read-only, peer read-only>"
        dst = bytearray(NBYTES)
        assert await sides.dpu.copy(remote, dst) == NBYTES
        assert dst == DATA
        assert emulator.last_copies(1)[0].src - remote.address < NBYTES
        assert remote.address == memory.address
        assert await sides.dpu.copy(remote[5:9], part := bytearray(4)) == 4
        assert part == DATA[5:9]
    memory.close(force=True)


async def test_lists_and_many_pairs(sides: Sides) -> None:
    async with (
        await sides.host.register(DATA) as memory,
        await sides.dpu.import_memory(await memory.export()) as remote,
        await sides.dpu.alloc(NBYTES) as dst,
    ):
        out = bytearray(300)
        await sides.dpu.copy([remote[:100], b"x" * 100, remote[200:300]], out)
        assert out == DATA[:100] + b"x" * 100 + DATA[200:300]
        await sides.dpu.copy_many(
            remote,
            dst,
            src_offsets=range(0, NBYTES, 1000),
            dst_offsets=range(NBYTES - 1000, -1, -1000),
            lengths=1000,
        )
        await sides.dpu.copy_many([(remote[:10], dst[:10]), (remote[10:20], dst[20:30])])
        with memoryview(dst) as view:
            assert view[-1000:] == DATA[:1000]
            assert view[:10] == DATA[:10]
            assert view[20:30] == DATA[10:20]


async def test_nobody_looks_into_a_peers_memory(sides: Sides) -> None:
    """Its addresses are no addresses here: a view would be a crash."""
    async with (
        await sides.host.register(DATA) as memory,
        await sides.dpu.import_memory(await memory.export()) as remote,
    ):
        for look in (memoryview, bytes, bytearray, hashlib.sha256):
            with pytest.raises(BufferError, match="a peer's"):
                look(remote)
        with pytest.raises(BufferError, match="a peer's"):
            await sides.dpu.register(remote)
        with pytest.raises(BufferError, match="a peer's"):
            memoryview(remote[:10])
        with pytest.raises(AccessError, match="only the process whose memory it is"):
            await remote.export()


async def test_copies_by_a_worker_keep_the_imported_map_open(sides: Sides) -> None:
    """While the other side is being registered, too."""
    async with await sides.host.alloc(1 << 20) as memory:
        remote = await sides.dpu.import_memory(await memory.export())
        future = sides.dpu.copy(remote, bytearray(1 << 20))
        with pytest.raises(BufferInUseError):
            remote.close()
        await remote.aclose()
        assert future.done()
        assert await future == 1 << 20


# ---- permissions


@pytest.mark.rule("X04", "R59")
@pytest.mark.parametrize("copy", ["copy", "list", "pairs"])
async def test_writing_needs_both_sides(sides: Sides, copy: str) -> None:
    async with await sides.host.alloc(4096) as memory, await sides.dpu.register(b"x" * 4096) as src:

        async def write(remote: MemoryMap) -> None:
            if copy == "copy":
                await sides.dpu.copy(src, remote)
            elif copy == "list":
                await sides.dpu.copy([b"x" * 96, src[:4000]], remote)
            else:
                await sides.dpu.copy_many([(src, remote)])

        reading, writing = await memory.export(), await memory.export(access="write")
        for descriptor in (reading, writing):
            async with await sides.dpu.import_memory(descriptor) as remote:
                with pytest.raises(AccessError, match="imported for reading") as caught:
                    await write(remote)
                assert "allow_remote_write=True" in str(caught.value)
                assert isinstance(caught.value, PermissionError)
        with pytest.raises(AccessError, match="exported for reading only"):
            await sides.dpu.import_memory(reading, allow_remote_write=True)
        # Whoever changes the descriptor has not changed what the exporter allows: the engine refuses.
        forged = dataclasses.replace(reading, access="write")
        async with await sides.dpu.import_memory(forged, allow_remote_write=True) as remote:
            with pytest.raises(AiodocadmaError):
                await write(remote)
        with memoryview(memory) as view:
            assert view == bytes(4096)
        async with await sides.dpu.import_memory(writing, allow_remote_write=True) as remote:
            assert not remote.readonly
            assert repr(remote) == "<MemoryMap 4096 bytes of a peer, engine read-write>"
            assert repr(memory) == "<MemoryMap 4096 bytes, engine read-write, peer read-write>"
            await write(remote)
        with memoryview(memory) as view:
            assert view == b"x" * 4096
    assert sides.dpu.state is aiodocadma.DMAState.RUNNING


async def test_read_only_memory_is_not_exported_for_writing(sides: Sides) -> None:
    async with await sides.host.register(DATA) as memory:
        with pytest.raises(AccessError, match="read-only"):
            await memory.export(access="write")
        with pytest.raises(ValueError, match="'read' or 'write'"):
            await memory.export(access="admin")  # type: ignore[arg-type]
        assert emulator.live_objects().exports == 0


async def test_overlap_is_a_matter_of_one_address_space(sides: Sides) -> None:
    """Refused where it can be known; equal addresses of two processes mean nothing."""
    async with await sides.host.alloc(8192) as memory:
        descriptor = await memory.export(access="write")
        local = await sides.dpu.register(memory)
        async with await sides.dpu.import_memory(descriptor) as remote:
            for copy in (
                lambda: sides.dpu.copy(remote[:4096], local[1000:]),
                lambda: sides.dpu.copy([remote[:4096], b"x"], local[1000:]),
                lambda: sides.dpu.copy_many([(remote[:4096], local[1000:])]),
                lambda: sides.dpu.copy_many(remote, local, src_offsets=0, dst_offsets=9, lengths=10),
            ):
                with pytest.raises(OverlapError):
                    copy()  # type: ignore[no-untyped-call]
        elsewhere = dataclasses.replace(descriptor, exporter="00000000000000aa")
        emulator.configure(strict="off")  # which knows that this process exported it
        async with (
            await sides.dpu.import_memory(elsewhere, allow_remote_write=True) as remote,
            await sides.dpu.import_memory(elsewhere) as again,
        ):
            await sides.dpu.copy(remote[:4096], local[1000:])
            await sides.dpu.copy([remote[:4096], b"x"], local[1000:])
            await sides.dpu.copy_many([(remote[:4096], local[1000:])])
            await sides.dpu.copy_many(remote, local, src_offsets=0, dst_offsets=9, lengths=10)
            with pytest.raises(OverlapError):
                sides.dpu.copy(again[:100], remote[50:])
            with pytest.raises(OverlapError):
                sides.dpu.copy([b"x", b"y" * 100], [remote[:60], remote[59:]])
            # What lies between them by its number lies elsewhere.
            with pytest.raises(OverlapError):
                sides.dpu.copy([b"x" * 205], [local[:100], remote[25:30], local[50:150]])
            with pytest.raises(OverlapError):  # as the channel's own check sees it
                sides.dpu._plan_lists([local[1000:1205]], [local[:100], remote[25:30], local[50:150]])
        await local.aclose()


# ---- first copies


@pytest.mark.rule("R58", "R63")
async def test_the_first_copy_is_small_and_goes_over_the_real_path(sides: Sides) -> None:
    async with await sides.host.register(DATA) as memory:
        descriptor = await memory.export()
        async with await sides.dpu.import_memory(descriptor, smoke=False):
            assert sides.dpu.statistics().copies_started == 0
        async with await sides.dpu.import_memory(descriptor):
            assert sides.dpu.statistics().bytes_completed == 4096
            assert emulator.counters().peer_reads >= 1


@pytest.mark.rule("R62")
async def test_writing_is_proven_on_a_page_made_for_it(sides: Sides) -> None:
    """The user's bytes are never written, and an exporter whose page does not give back what was written is found."""
    async with await sides.host.alloc(4096) as memory:
        with memoryview(memory) as view:
            view[:] = DATA[:4096]
        descriptor = await memory.export(access="write")
        async with await sides.dpu.import_memory(descriptor, allow_remote_write=True):
            assert emulator.counters().peer_writes >= 1
        with memoryview(memory) as view:
            assert view == DATA[:4096]
        emulator.configure("fault op=completion kind=corrupt skip=1")
        with pytest.raises(PeerError):
            await sides.dpu.import_memory(descriptor, allow_remote_write=True)
        async with await sides.dpu.import_memory(descriptor, allow_remote_write=True) as remote:
            assert await sides.dpu.copy(b"y" * 4096, remote) == 4096


async def test_a_first_copy_that_fails(sides: Sides) -> None:
    async with await sides.host.register(DATA) as memory:
        descriptor = await memory.export()
        emulator.configure("fault op=completion status=IO_FAILED")
        with pytest.raises(DocaIoFailedError, match="first copy over the imported memory failed") as caught:
            await sides.dpu.import_memory(descriptor)
        assert caught.value.hint
        async with await sides.dpu.import_memory(descriptor) as remote:
            assert await sides.dpu.copy(remote, bytearray(NBYTES)) == NBYTES


async def test_the_own_export_on_the_own_device(sides: Sides) -> None:
    """DOCA may import it and then fails to copy; the first copy finds out and says why."""
    async with await sides.host.register(DATA) as memory:
        with pytest.raises(DocaIoFailedError, match="This very process exported it"):
            await sides.host.import_memory(await memory.export())


@pytest.mark.usefixtures("manual")
async def test_the_first_copy_waits_for_room(sides: Sides) -> None:
    """It is no reason for QueueFullError."""
    async with (
        aiodocadma.open_dma("mlx5_1", num_tasks=1, max_waiting=1) as dpu,
        await sides.host.register(DATA) as memory,
    ):
        copies = [dpu.copy(b"x", bytearray(1)) for _ in range(2)]
        task = asyncio.ensure_future(dpu.import_memory(await memory.export()))

        def step() -> bool:
            emulator.step(10)
            return task.done()

        await until(step, "the import")
        task.result().close()
        assert await asyncio.gather(*copies) == [1, 1]


# ---- refusals


@pytest.mark.rule("R136", "R18")
async def test_rdma_is_another_protocol(sides: Sides) -> None:
    async with await sides.host.register(DATA) as memory:
        descriptor = dataclasses.replace(await memory.export(), kind="rdma")
        with pytest.raises(DescriptorError, match="RDMA"):
            await sides.dpu.import_memory(descriptor)
        assert emulator.live_objects().imports == 0


@pytest.mark.rule("R18")
@pytest.mark.parametrize(
    ("here", "there", "refused"), [("A", "B", True), ("A", "A", False), (None, "B", False), ("A", None, False)]
)
async def test_only_two_named_cards_that_differ_are_refused(
    sides: Sides, monkeypatch: pytest.MonkeyPatch, here: str | None, there: str | None, refused: bool
) -> None:
    async with await sides.host.register(DATA) as memory:
        descriptor = dataclasses.replace(await memory.export(), card=there)
        monkeypatch.setattr(_remote, "card_of", lambda device: here)
        if refused:
            with pytest.raises(DescriptorError, match=r"exported by card B, but mlx5_1 is of card A\n.*RDMA"):
                await sides.dpu.import_memory(descriptor)
            assert emulator.live_objects().imports == 0
        else:
            (await sides.dpu.import_memory(descriptor)).close()


async def test_an_emulator_and_a_card(sides: Sides) -> None:
    """Do not understand each other's descriptors, and are told why."""
    async with await sides.host.register(DATA) as memory:
        descriptor = await memory.export()
        cards = dataclasses.replace(descriptor, emulated=False, blob=b"of a card")
        with pytest.raises(DocaInvalidValueError, match="exported by a card, and this device is the emulator"):
            await sides.dpu.import_memory(cards)


async def test_bad_descriptors(sides: Sides) -> None:
    async with await sides.host.register(DATA) as memory:
        descriptor = await memory.export()
        with pytest.raises(DocaInvalidValueError):
            await sides.dpu.import_memory(ExportDescriptor(descriptor.blob[:-1]))
        with pytest.raises(DescriptorError, match="says 5 bytes") as caught:
            await sides.dpu.import_memory(dataclasses.replace(descriptor, nbytes=5))
        assert emulator.live_objects().imports == 0
        assert caught.value.__traceback__  # whoever keeps the exception does not keep the map open
        # DOCA's own bytes, as of a program in C, are enough.
        async with await sides.dpu.import_memory(ExportDescriptor(descriptor.blob)) as remote:
            assert await sides.dpu.copy(remote, dst := bytearray(NBYTES)) == NBYTES
            assert dst == DATA


async def test_devices_that_cannot(sides: Sides) -> None:
    emulator.configure("device mlx5_2 pci=0000:05:00.0 export_pci=0 import_pci=0")
    async with (
        aiodocadma.open_dma("mlx5_2") as dma,
        await dma.register(DATA) as memory,
        await sides.host.register(DATA) as other,
    ):
        with pytest.raises(DocaNotSupportedError):
            await memory.export()
        with pytest.raises(DocaNotSupportedError, match="cannot import"):
            await dma.import_memory(await other.export())


# ---- what ends when


async def test_an_exported_map_is_not_closed_by_mistake(sides: Sides) -> None:
    memory = await sides.host.register(DATA)
    await memory.export()
    with pytest.raises(BufferInUseError, match="exported") as caught:
        memory.close()
    assert "force=True" in str(caught.value)
    with pytest.raises(BufferInUseError, match="exported"):
        await memory.aclose()
    with memoryview(memory), pytest.raises(BufferInUseError):
        memory.close(force=True)
    assert emulator.live_objects().exports == 1  # a close that is refused revokes nothing
    await memory.aclose(force=True)
    assert emulator.live_objects().exports == 0


async def test_revoking_one_leaves_the_others(sides: Sides) -> None:
    async with await sides.host.register(DATA) as memory:
        first, second = await memory.export(), await memory.export()
        assert (first.generation, second.generation) == (1, 2)
        a, b = await sides.dpu.import_memory(first), await sides.dpu.import_memory(second)
        memory.revoke(first)
        with pytest.raises(DocaIoFailedError):
            await sides.dpu.copy(a, bytearray(NBYTES))
        assert await sides.dpu.copy(b, bytearray(NBYTES)) == NBYTES
        with pytest.raises(DocaNotPermittedError, match="is not exported to this device and user"):
            await sides.dpu.import_memory(first)
        memory.revoke()
        assert repr(memory) == "<MemoryMap 100000 bytes, engine read-only, peer no access>"
        with pytest.raises(DocaError):
            await sides.dpu.copy(b, bytearray(NBYTES))
        memory.close()
        assert repr(memory) == "<MemoryMap 100000 bytes, closed>"
        a.close()
        b.close()
    assert await sides.dpu.copy(b"x", bytearray(1)) == 1


async def test_a_map_used_by_copies_here_is_revoked_as_fast(sides: Sides) -> None:
    """A context that has used a map keeps it registered; its exports end all the same."""
    memory = await sides.host.alloc(NBYTES)
    remote = await sides.dpu.import_memory(await memory.export())
    await sides.host.copy(DATA, memory)
    memory.close(force=True)
    assert emulator.live_objects().exports == 0
    with pytest.raises(DocaIoFailedError):
        await sides.dpu.copy(remote, bytearray(NBYTES))
    remote.close()


async def test_dropping_the_map_ends_its_exports(sides: Sides) -> None:
    memory = await sides.host.alloc(NBYTES)
    await memory.export()
    await memory.export(access="write")
    gc.collect()
    gc.disable()
    try:
        del memory  # by its count of references alone: an export does not keep its map
        assert emulator.live_objects().exports == 0
    finally:
        gc.enable()


async def test_closing_the_dma_ends_its_exports(sides: Sides) -> None:
    async with aiodocadma.open_dma("mlx5_0") as host:
        memory = await host.alloc(NBYTES)
        remote = await sides.dpu.import_memory(await memory.export())
    with pytest.raises(DocaError):
        await sides.dpu.copy(remote, bytearray(NBYTES))
    with pytest.raises(ClosedError):
        await memory.export()
    memory.close(force=True)
    remote.close()
    with pytest.raises(ClosedError):
        sides.dpu.copy(remote, bytearray(NBYTES))


@pytest.mark.parametrize("what", ["export", "import"])
@pytest.mark.parametrize("after", range(6))
async def test_cancelled_at_any_turn_nothing_stays(sides: Sides, what: str, after: int) -> None:
    async with await sides.host.alloc(1 << 20) as memory:
        descriptor = await memory.export(access="write")
        before = emulator.live_objects()
        if what == "export":
            task: asyncio.Task[Any] = asyncio.ensure_future(memory.export(access="write"))
        else:
            task = asyncio.ensure_future(sides.dpu.import_memory(descriptor, allow_remote_write=True))
        await turns(after)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            pass
        else:  # it was faster
            task.result().close() if what == "import" else memory.revoke(task.result())
        assert not memory._views
        live = emulator.live_objects()
        assert (live.exports, live.in_flight) == (before.exports, 0)
        assert not sides.dpu._pending


@pytest.mark.parametrize(
    "fault",
    [
        "op=mmap_export_pci status=DRIVER",
        "op=mmap_export_pci status=NO_MEMORY skip=1",
        "op=mmap_start status=NOT_PERMITTED skip=1",
        "op=mmap_create status=NO_MEMORY",
    ],
)
async def test_an_export_that_fails_leaves_nothing(sides: Sides, fault: str) -> None:
    async with await sides.host.alloc(NBYTES) as memory:
        before = emulator.live_objects()
        emulator.configure(f"fault {fault}")
        with pytest.raises(DocaError):
            await memory.export(access="write")
        assert emulator.live_objects() == before
        memory.close()


@pytest.mark.parametrize("call", ["mmap_create_from_export", "mmap_get_memrange"])
async def test_an_import_that_fails_leaves_nothing(sides: Sides, call: str) -> None:
    async with await sides.host.alloc(NBYTES) as memory:
        descriptor = await memory.export()
        before = emulator.live_objects()
        emulator.configure(f"fault op={call} status=DRIVER")
        with pytest.raises(DocaDriverError):
            await sides.dpu.import_memory(descriptor)
        assert emulator.live_objects() == before


async def test_exports_and_copies_at_once(sides: Sides) -> None:
    """Each export has its number, and closing waits for one under way."""
    memory = await sides.host.alloc(NBYTES)
    descriptors = await asyncio.gather(*[memory.export() for _ in range(5)])
    assert sorted(d.generation or 0 for d in descriptors) == [1, 2, 3, 4, 5]
    late = asyncio.ensure_future(memory.export())
    await turns(1)
    await memory.aclose(force=True)
    assert (await late).generation == 6
    assert memory.closed
    assert emulator.live_objects().exports == 0


# ---- replay


@pytest.mark.usefixtures("manual")
async def test_flushed_copies_into_a_peers_memory_are_not_replayed(sides: Sides) -> None:
    """Those out of it are: what was read may be read again."""
    async with await sides.host.alloc(64) as memory:
        remote = await _step(sides.dpu.import_memory(await memory.export(access="write"), allow_remote_write=True))
        bad = sides.dpu.copy(b"bad", bad_dst := bytearray(3))
        into = sides.dpu.copy(b"into", remote)
        out_of = sides.dpu.copy(remote[32:], bytearray(32))
        await turns()
        bad_copy = next(copy for copy in emulator.last_copies(3) if copy.length == 3)
        assert emulator.complete(bad_copy.dst, code=17, fatal=True)
        with pytest.raises(DocaIoFailedError):
            await _step(bad)
        with pytest.raises(FlushedError) as caught:
            await _step(into)
        assert caught.value.culprit is not None
        assert await _step(out_of) == 32
        assert bad_dst == bytes(3)
        with memoryview(memory) as view:
            assert view == bytes(64)
        assert await _step(sides.dpu.copy(b"into", remote)) == 4
        with memoryview(memory) as view:
            assert view[:4] == b"into"
        remote.close()


async def _step(awaitable: Any) -> Any:
    task = asyncio.ensure_future(awaitable)

    def done() -> bool:
        emulator.step(100)
        return task.done()

    await until(done, "the engine")
    return task.result()


# ---- secrets


@pytest.mark.rule("R106")
async def test_a_descriptor_is_shown_nowhere(
    sides: Sides, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In repr, str, logs and the errors of every way in which an import can fail."""
    caplog.set_level(logging.DEBUG)
    memory = await sides.host.alloc(NBYTES)
    descriptor = await memory.export(access="write")
    shown = [repr(descriptor), str(descriptor), f"{descriptor}", f"{descriptor!r}", repr(memory)]
    logging.getLogger("aiodocadma").info("%s %r", descriptor, descriptor)

    async def failing(change: Callable[[], object], given: Any, **options: Any) -> None:
        change()
        with pytest.raises(AiodocadmaError) as caught:
            await sides.dpu.import_memory(given, **options)
        shown.append("".join(traceback.format_exception(caught.value)) + repr(caught.value) + repr(vars(caught.value)))

    data = bytes(descriptor)
    await failing(lambda: None, data[:-1])
    await failing(lambda: None, data + b"x")
    await failing(lambda: None, descriptor.blob)
    await failing(lambda: None, ExportDescriptor(descriptor.blob[:-1]))
    await failing(lambda: None, dataclasses.replace(descriptor, kind="rdma"))
    await failing(lambda: None, dataclasses.replace(descriptor, nbytes=1))
    await failing(lambda: None, dataclasses.replace(descriptor, access="read"), allow_remote_write=True)
    await failing(lambda: emulator.configure("fault op=mmap_create_from_export status=DRIVER"), descriptor)
    await failing(lambda: emulator.configure("fault op=mmap_get_memrange status=UNEXPECTED"), descriptor)
    await failing(lambda: emulator.configure("fault op=completion status=IO_FAILED"), descriptor)
    await failing(
        lambda: emulator.configure("fault op=completion kind=corrupt skip=1"), descriptor, allow_remote_write=True
    )
    monkeypatch.setattr(_remote, "card_of", lambda device: "here")
    await failing(lambda: None, dataclasses.replace(descriptor, card="there"))
    memory.close(force=True)
    await failing(lambda: None, descriptor)
    text = "\n".join([*shown, caplog.text])
    assert_no_secret(text, descriptor)


# ---- fuzzing


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Something like data: bits flipped, cut, doubled, or with other numbers in it."""
    out = bytearray(data)
    for _ in range(rng.choice((0, 1, 1, 2, 8))):
        if out:
            at = rng.randrange(len(out))
            match rng.randrange(4):
                case 0:
                    out[at] ^= 1 << rng.randrange(8)
                case 1:
                    del out[at : at + rng.choice((1, 4, 100))]
                case 2:
                    out[at:at] = rng.randbytes(rng.choice((1, 8, 64)))
                case _:
                    out[at : at + 8] = rng.choice((bytes(8), b"\xff" * 8, rng.randbytes(8)))
    return bytes(out)


async def fuzz(sides: Sides, count: int) -> None:
    rng = random.Random(58)
    async with await sides.host.alloc(4096) as memory:
        good = await memory.export(access="write")
        text = bytes(good)[16:]
        taken = 0
        for _ in range(count):
            match rng.randrange(4):
                case 0:
                    given: ExportDescriptor | bytes = mutated(rng, bytes(good))
                case 1:  # with the checksum right
                    changed = mutated(rng, text)
                    given = _export._MAGIC + _export._checksum(changed) + changed
                case 2:  # DOCA's part
                    given = ExportDescriptor(mutated(rng, good.blob))
                case _:
                    given = rng.randbytes(rng.choice((0, 1, 15, 16, 17, 300)))
            try:
                remote = await sides.dpu.import_memory(given, smoke=False)
            except AiodocadmaError:
                continue
            taken += 1
            remote.close()
        assert 0 < taken < count / 2
        async with await sides.dpu.import_memory(good) as remote:
            assert await sides.dpu.copy(remote, bytearray(4096)) == 4096


async def test_fuzzed_descriptors(sides: Sides) -> None:
    await fuzz(sides, 1500)


def resident() -> int:
    """Bytes of memory this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.deep
@pytest.mark.timeout(900)
async def test_100_000_fuzzed_descriptors(sides: Sides) -> None:
    """And no growth from the first ten thousand on."""
    await fuzz(sides, 10_000)
    before = resident()
    for _ in range(9):
        await fuzz(sides, 10_000)
    assert resident() - before < 8 << 20


# ---- what an error says


@pytest.mark.rule("R58", "R62", "R63", "R64", "X22")
async def test_the_cause_names_the_peer_and_what_was_proven(sides: Sides) -> None:
    """The exporter revokes what was proven to be readable: it is the peer's side, and no permission of ours."""
    async with await sides.host.register(DATA) as memory:
        descriptor = await memory.export()
        async with await sides.dpu.import_memory(descriptor) as remote, await sides.dpu.alloc(NBYTES) as dst:
            assert await sides.dpu.copy(remote, dst) == NBYTES
            emulator.inject(emulator.Fault("completion", status="NOT_PERMITTED"))
            with pytest.raises(DocaNotPermittedError) as refused:
                await sides.dpu.copy(remote[:10], dst)
            assert refused.value.cause_name == "src_not_exported"
            assert "permissions of reading the peer's memory proven at" in str(refused.value)
            emulator.revoke_exports()
            with pytest.raises(DocaIoFailedError) as gone:
                await sides.dpu.copy(remote[:10], dst)
            assert (gone.value.cause_name, gone.value.layer) == ("peer_gone", "runtime")
            del refused, gone
