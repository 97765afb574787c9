"""What can be copied: every kind of buffer, and what becomes of each (the table in docs/concepts/memory.md)."""

from __future__ import annotations

import array
import asyncio
import ctypes
import gc
import mmap
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import aiodocadma
from aiodocadma import emulator
from aiodocadma.exceptions import AccessError, BoundsError, DocaNotSupportedError
from tests.dma.conftest import until
from tests.dma.dlpack import CUDA, IS_COPIED, READ_ONLY, ROCM, SUBBYTE_PADDED, Producer

ODD = 4097
HUGE = 2**32 + 1
LARGE = 300_001  # registered in a worker


def pattern(length: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(length)


class Made(NamedTuple):
    """A buffer under test, where its memory is, and how to look at that."""

    obj: Any
    address: int
    raw: Callable[[], bytes]
    fill: Callable[[bytes], None]


class _Shared(shared_memory.SharedMemory):
    """Shared memory of which nothing but the mapping is left, so that it may be dropped while it is exported."""

    def __init__(self, size: int) -> None:
        super().__init__(create=True, size=size)
        self.unlink()
        os.close(self._fd)
        self._fd = -1

    def __del__(self) -> None:
        pass


def _address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).ctypes.data) if view.nbytes else 0


def _made(obj: Any, memory: Any) -> Made:
    """``memory`` is the writable memory that ``obj`` is a form of."""
    flat = memoryview(memory).cast("B") if memoryview(memory).nbytes else memoryview(bytearray())

    def fill(data: bytes) -> None:
        flat[:] = data

    return Made(obj, _address(flat), flat.tobytes, fill)


def make(kind: str, size: int, writable: bool) -> Made:
    """A contiguous buffer of ``size`` bytes; skips what there is not."""
    if kind == "bytes":
        data = pattern(size)
        return Made(data, _address(memoryview(data)), lambda: data, lambda _: None)
    if kind.startswith("dlpack"):
        version = None if kind == "dlpack unversioned" else (1, 0)
        odd = size % 2
        producer = Producer(
            size, version=version, flags=0 if writable else READ_ONLY, code=1 if odd else 4, bits=8 if odd else 16
        )
        flat = memoryview(producer.memory).cast("B")

        def fill(data: bytes) -> None:
            flat[:] = data

        return Made(producer, producer.address if size else 0, flat.tobytes, fill)
    memory: Any
    if kind == "memoryview":
        memory = bytearray(size)
        made = _made(memoryview(memory), memory)
    elif kind == "array":
        memory = array.array("B", bytes(size))
        made = _made(memory, memory)
    elif kind == "mmap":
        memory = mmap.mmap(-1, size)
        made = _made(memory, memory)
    elif kind == "SharedMemory.buf":
        memory = _Shared(size)
        made = _made(memory.buf, memory.buf)
    elif kind == "ctypes":
        memory = (ctypes.c_uint8 * size)()
        made = _made(memory, memory)
    elif kind == "numpy":
        memory = np.zeros(size, np.uint8)
        made = _made(memory, memory)
        if not writable:
            view = memory.view()
            view.flags.writeable = False
            return made._replace(obj=view)
    elif kind == "__buffer__":
        memory = bytearray(size)

        class Exporter:
            def __buffer__(self, flags: int) -> memoryview:
                return memoryview(memory) if writable else memoryview(memory).toreadonly()

        return _made(Exporter(), memory)
    else:
        memory = bytearray(size)
        made = _made(memory, memory)
    return made if writable else made._replace(obj=memoryview(made.obj).toreadonly())


KINDS = [
    "bytes",
    "bytearray",
    "memoryview",
    "array",
    "mmap",
    "SharedMemory.buf",
    "ctypes",
    "numpy",
    "dlpack",
    "dlpack unversioned",
    "__buffer__",
]
# A zero-length one there is not; a read-only one there is not.
IMPOSSIBLE = {("mmap", 0, True), ("mmap", 0, False), ("SharedMemory.buf", 0, True), ("SharedMemory.buf", 0, False)}


def table() -> Iterator[Any]:
    for kind in KINDS:
        for writable in (True, False):
            if (kind == "bytes" and writable) or (kind == "dlpack unversioned" and not writable):
                continue
            for size in (0, 1, ODD, LARGE):
                if (kind, size, writable) not in IMPOSSIBLE:
                    marks = (
                        [pytest.mark.skip("__buffer__ came with Python 3.12")]
                        if kind == "__buffer__" and sys.version_info < (3, 12)
                        else []
                    )
                    name = f"{kind}-{'writable' if writable else 'read-only'}-{size}"
                    yield pytest.param(kind, size, writable, id=name, marks=marks)


@pytest.mark.parametrize(("kind", "size", "writable"), list(table()))
async def test_contiguous_buffers(kind: str, size: int, writable: bool) -> None:
    """As a source all are taken, as a destination those that are writable; the engine sees the caller's own address."""
    data = pattern(size, 2)
    async with aiodocadma.open_dma() as dma:
        made = make(kind, size, writable)
        made.fill(data)
        if kind == "bytes":
            data = made.raw()
        back = bytearray(size)
        assert await dma.copy(made.obj, back) == size
        assert back == data
        if size:
            assert emulator.last_copies(64)[-1].src == made.address
        fresh = pattern(size, 3)
        before = emulator.counters().submits
        if writable:
            assert await dma.copy(fresh, made.obj) == size
            assert made.raw() == fresh
            if size:
                assert emulator.last_copies(emulator.counters().submits - before)[-1].dst == made.address
        else:
            pinned = emulator.live_objects().pinned_bytes
            with pytest.raises(AccessError, match="dst is read-only"):
                dma.copy(fresh, made.obj)
            assert emulator.counters().submits == before
            assert emulator.live_objects().pinned_bytes == pinned
            assert made.raw() == data
    assert emulator.live_objects().pinned_bytes == 0
    if kind == "bytearray" and writable:
        obj = made.obj
        del made
        obj.append(1)  # unlocked


STRIDED: dict[str, Callable[[], Any]] = {
    "memoryview": lambda: memoryview(bytearray(100))[::2],
    "memoryview backwards": lambda: memoryview(bytearray(100))[::-1],
    "numpy columns": lambda: np.zeros((10, 10), np.uint8)[:, ::2],
    "numpy transposed": lambda: np.zeros((10, 5), np.uint64).T,
    "dlpack": lambda: Producer(200, shape=(10, 5), strides=(10, 2)),
    "dlpack transposed, read-only": lambda: Producer(200, shape=(10, 10), strides=(1, 10), flags=READ_ONLY),
}


@pytest.mark.parametrize("name", STRIDED)
async def test_strided_layouts_name_copy_many(name: str) -> None:
    """Neither a source nor a destination; nothing is pinned, and what can be done instead is said."""
    async with aiodocadma.open_dma() as dma:
        for call in (
            lambda: dma.copy(STRIDED[name](), bytearray(1000)),
            lambda: dma.copy(bytes(10), STRIDED[name]()),
        ):
            with pytest.raises(ValueError, match=r"(src|dst) must be C-contiguous.*copy_many"):
                call()
        with pytest.raises(ValueError, match="copy_many"):
            await dma.register(STRIDED[name]())
        assert emulator.live_objects().mmaps == 0


async def test_two_fortran_arrays_of_one_shape_are_copied_as_they_lie() -> None:
    async with aiodocadma.open_dma() as dma:
        src = np.arange(600, dtype=np.int32).reshape(20, 30, order="F")
        dst = np.zeros_like(src)
        assert dst.flags.f_contiguous
        await dma.copy(src, dst)
        assert (dst == src).all()
        tensor = Producer(24, shape=(3, 4), strides=(1, 3))
        await dma.copy(tensor, np.zeros((3, 4), np.int16, order="F"))


SPARSE: dict[str, Callable[[int], tuple[Any, Any]]] = {
    "bytes": lambda n: (bytes(n), None),
    "mmap": lambda n: (m := mmap.mmap(-1, n), m),
    "memoryview": lambda n: (memoryview(m := mmap.mmap(-1, n)), m),
    "ctypes": lambda n: ((ctypes.c_uint8 * n).from_buffer(m := mmap.mmap(-1, n)), m),
    "numpy": lambda n: (m := np.zeros(n, np.uint8), m),
    "SharedMemory.buf": lambda n: ((s := _Shared(n)).buf, s),
}


@pytest.mark.parametrize("kind", SPARSE)
async def test_4_gib_and_1(kind: str) -> None:
    """No length is cut to 32 bits: registered, cut over the 4 GiB border, refused where it does not fit."""
    obj, memory = SPARSE[kind](HUGE)
    async with aiodocadma.open_dma() as dma:
        with pytest.raises(BoundsError, match=f"src has {HUGE}"):
            dma.copy(obj, bytearray(10))
        assert emulator.live_objects().mmaps == 0
        async with await dma.register(obj) as registered:
            assert len(registered) == registered.nbytes == HUGE
            assert emulator.live_objects().pinned_bytes == HUGE
            part = registered[2**32 - 1000 :]
            assert part.offset == 2**32 - 1000
            back = bytearray(b"x" * 1001)
            if not registered.readonly:
                data = pattern(1001)
                await dma.copy(data, part)
                await dma.copy(part, back)
                assert back == data
                assert memoryview(obj).cast("B")[2**32] == data[-1]
            else:
                await dma.copy(part, back)
                assert back == bytes(1001)
    assert emulator.live_objects().pinned_bytes == 0
    del obj, memory, registered, part


@pytest.mark.deep
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["bytearray", "mmap", "numpy"])
async def test_4_gib_and_1_copied_whole(kind: str) -> None:
    """Every byte arrives: a copy longer than 32 bits can count."""
    dst: Any = {"bytearray": bytearray, "mmap": lambda n: mmap.mmap(-1, n), "numpy": lambda n: np.zeros(n, np.uint8)}[
        kind
    ](HUGE)
    src = np.zeros(HUGE, np.uint8)
    marks = [0, 2**31, 2**32 - 1, 2**32, *random.Random(4).sample(range(HUGE), 1000)]
    src[marks] = np.arange(1, len(marks) + 1) % 255 + 1
    async with aiodocadma.open_dma() as dma:
        assert await dma.copy(src, dst) == HUGE
    assert (np.frombuffer(dst, np.uint8) == src).all()


async def test_dtypes_that_the_buffer_protocol_does_not_know() -> None:
    """datetime64 in NumPy."""
    src = np.arange(1000).astype("M8[s]")
    dst = np.zeros(1000, "M8[s]")
    async with aiodocadma.open_dma() as dma:
        assert await dma.copy(src, dst) == 8000
        assert emulator.last_copies(1)[0].dst == dst.ctypes.data
    assert (src == dst).all()


@pytest.mark.parametrize(
    "obj",
    [
        np.array([1, "a", None], object),
        (ctypes.py_object * 3)(1, 2, 3),
        np.zeros(3, [("Offset", np.int32), ("ref", object)]),
    ],
    ids=["numpy", "ctypes", "numpy record"],
)
async def test_references_to_python_objects_are_no_bytes(obj: Any) -> None:
    """Copying them would count no reference: refused on both sides. A field's name with an O is no such thing."""
    async with aiodocadma.open_dma() as dma:
        with pytest.raises(TypeError, match="src holds references"):
            dma.copy(obj, bytearray(100))
        with pytest.raises(TypeError, match="dst holds references"):
            dma.copy(bytes(8), obj)
        assert await dma.copy(np.zeros(3, [("Offset", np.int32)]), bytearray(12)) == 12


# ---- DLPack


@pytest.mark.parametrize("size", [10, LARGE + 1])
@pytest.mark.parametrize("version", [(1, 0), (1, 7), None])
async def test_a_tensor_is_taken_over_once_and_given_back_once(version: Any, size: int) -> None:
    """The deleter is called once, when the copy has ended and not before; also for a tensor that is refused."""
    emulator.configure(engine="manual")
    async with aiodocadma.open_dma() as dma:
        tensor = Producer(size, version=version)
        future = dma.copy(tensor, bytearray(size))
        assert tensor.deleted == 0
        await until(lambda: emulator.step(100), "the registration")
        await future
        del future
        gc.collect()
        assert tensor.deleted == 1
        with pytest.raises(BoundsError):
            dma.copy(tensor, bytearray(1))
        gc.collect()
        assert tensor.deleted == 2
        async with await dma.register(tensor):
            assert tensor.deleted == 2
        assert tensor.deleted == 3


async def test_layouts_and_items_of_tensors() -> None:
    """Offsets, no dimension, packed and padded items of less than a byte, vectors, any stride of one item."""
    cases = [
        (Producer(16, byte_offset=6), 16),
        (Producer(2, shape=()), 2),
        (Producer(5, code=1, bits=4, shape=(10,)), 5),
        (Producer(5, code=1, bits=4, shape=(3, 3)), 5),
        (Producer(9, code=1, bits=4, shape=(3, 3), flags=SUBBYTE_PADDED), 9),
        (Producer(64, code=2, bits=32, lanes=4, shape=(4,)), 64),
        (Producer(20, shape=(1, 10), strides=(777, 1)), 20),
        (Producer(0, shape=(0, 10), strides=(3, 5)), 0),
    ]
    async with aiodocadma.open_dma() as dma:
        for tensor, nbytes in cases:
            back = bytearray(nbytes)
            memoryview(tensor.memory).cast("B")[:] = pattern(len(tensor.memory))
            assert await dma.copy(tensor, back) == nbytes
            assert back == pattern(len(tensor.memory))[len(tensor.memory) - len(back) :][:nbytes]
            if nbytes:
                assert emulator.last_copies(1)[0].src == tensor.address


@pytest.mark.parametrize(
    ("flags", "version", "error"),
    [(READ_ONLY, (1, 0), AccessError), (IS_COPIED, (1, 0), AccessError), (0, (2, 0), BufferError)],
)
async def test_tensors_that_cannot_be_written(flags: int, version: Any, error: type[Exception]) -> None:
    """Read-only ones, copies that the producer made, and what a future DLPack may mean."""
    tensor = Producer(10, flags=flags, version=version)
    async with aiodocadma.open_dma() as dma:
        with pytest.raises(error):
            dma.copy(bytes(10), tensor)
    gc.collect()
    assert tensor.deleted == 1


async def test_a_producer_that_refuses() -> None:
    class Refuses(Producer):
        def __dlpack__(self, **_: Any) -> object:
            raise BufferError("not today")

    async with aiodocadma.open_dma() as dma:
        with pytest.raises(ValueError, match="src gives no access to its memory: not today"):
            dma.copy(Refuses(10), bytearray(10))


async def test_offsets_as_tensors() -> None:
    """copy_many() takes int64 tensors for its offsets, and refuses others."""
    async with aiodocadma.open_dma() as dma, await dma.alloc(1000) as src, await dma.alloc(1000) as dst:
        memoryview(src)[:] = data = pattern(1000)
        offsets = Producer(80, code=0, bits=64)
        memoryview(offsets.memory).cast("B").cast("q")[:] = array.array("q", range(0, 1000, 100))
        assert (
            await dma.copy_many(src, dst, src_offsets=offsets, dst_offsets=range(0, 1000, 10)[:10], lengths=10) == 100
        )
        assert bytes(dst)[:100] == b"".join(data[i : i + 10] for i in range(0, 1000, 100))
        gc.collect()
        assert offsets.deleted == 1
        with pytest.raises(TypeError, match="src_offsets"):
            dma.copy_many(src, dst, src_offsets=Producer(80, code=2, bits=64), lengths=1)


# ---- memory of another device


class CudaArray:
    """An array that claims to be CUDA memory."""

    def __init__(self, strides: tuple[int, ...] | None = None) -> None:
        self.memory = (ctypes.c_uint8 * 8192)()
        self.address = ctypes.addressof(self.memory)
        self.__cuda_array_interface__ = {
            "shape": (32, 32),
            "typestr": "<f4",
            "data": (self.address, False),
            "version": 3,
            "strides": strides,
        }


DEVICE: dict[str, Callable[[], Any]] = {
    "cuda array": CudaArray,
    "cuda tensor": lambda: Producer(4096, device=CUDA),
    "large cuda tensor": lambda: Producer(2**20, device=CUDA),
}


@pytest.mark.parametrize("name", DEVICE)
async def test_device_memory_without_its_driver(name: str) -> None:
    """An error that says what is missing; nothing is pinned."""
    async with aiodocadma.open_dma() as dma:
        with pytest.raises(AccessError, match=r"(src|dst) is in CUDA memory.*libcuda"):
            await dma.copy(DEVICE[name](), bytearray(2**20))
        with pytest.raises(AccessError, match=r"CUDA memory"):
            await dma.register(DEVICE[name]())
        assert emulator.live_objects().mmaps == 0
        assert await dma.copy(b"abc", bytearray(3)) == 3


async def test_device_memory_that_gives_no_dmabuf() -> None:
    async with aiodocadma.open_dma() as dma:
        with pytest.raises(AccessError, match="DLPack device 10"):
            dma.copy(Producer(10, device=ROCM), bytearray(10))
        with pytest.raises(ValueError, match="copy_many"):
            dma.copy(CudaArray(strides=(4, 128)), bytearray(4096))
        with pytest.raises(ValueError, match="copy_many"):
            dma.copy(Producer(200, shape=(10, 5), strides=(10, 2), device=CUDA), bytearray(4096))


FAKE_CUDA = """
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

int cuMemGetHandleForAddressRange(void *handle, uint64_t address, size_t size, int type, uint64_t flags)
{
	if (address % 4096 || size % 4096 || type != 1 || flags)
		return 1;
	if (size > 1 << 20)
		return 801;
	*(int *)handle = memfd_create("dmabuf", 0);
	return 0;
}
"""


@pytest.fixture
def cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CUDA driver that gives out dmabufs which are none."""
    source, library = tmp_path / "cuda.c", tmp_path / "libcuda.so.1"
    source.write_text("#define _GNU_SOURCE\n" + FAKE_CUDA)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    monkeypatch.setattr("aiodocadma._dmabuf._CUDA_LIBRARY", str(library))


@pytest.mark.usefixtures("cuda")
async def test_device_memory_goes_to_doca_as_a_dmabuf() -> None:
    """The emulator takes none, which is what the error says; the fd is closed, nothing stays registered."""
    fds = len(os.listdir("/proc/self/fd"))
    async with aiodocadma.open_dma() as dma:
        opened = len(os.listdir("/proc/self/fd"))
        with pytest.raises(DocaNotSupportedError, match="registering 4096 bytes of src, CUDA memory") as caught:
            await dma.copy(CudaArray(), bytearray(4096))
        assert caught.value.call == "doca_mmap_set_dmabuf_memrange"
        with pytest.raises(AccessError, match="failed with 801"):
            await dma.copy(Producer(2**20 + 2, device=CUDA), bytearray(2**21))
        del caught
        assert len(os.listdir("/proc/self/fd")) == opened
        assert emulator.live_objects().mmaps == 0
    await asyncio.sleep(0)
    assert len(os.listdir("/proc/self/fd")) <= fds


# ---- mappings of files


def disk_file(folder: Path, size: int) -> Path:
    """A file whose pages are written back; skips if there is no such file system."""
    path = folder / "data"
    path.write_bytes(bytes(size))
    kind = subprocess.run(["stat", "-f", "-c", "%T", str(path)], capture_output=True, text=True, check=True).stdout
    if kind.strip() in ("tmpfs", "ramfs", "hugetlbfs"):
        pytest.skip(f"{folder} is on {kind.strip()}; TMPDIR on a disk is needed")
    return path


MAPPED: dict[str, Callable[[mmap.mmap], Any]] = {
    "mmap": lambda m: m,
    "memoryview": lambda m: memoryview(m)[1:],
    "numpy": lambda m: np.frombuffer(m, np.uint8)[10:20],
    "list": lambda m: [bytearray(1), m],
}


@pytest.mark.parametrize("name", MAPPED)
async def test_a_writable_mapping_of_a_file_is_no_destination(tmp_path: Path, name: str) -> None:
    """The kernel refuses to pin it for writing. As a source, private, or read-only it is memory like any other."""
    path = disk_file(tmp_path, 8192)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 8192) as shared:
        async with aiodocadma.open_dma() as dma:
            for _ in range(2):
                with pytest.raises(AccessError, match=rf"dst.* is a shared mapping of {path} \(.*refuses to pin"):
                    dma.copy(bytes(10), MAPPED[name](shared))
            assert emulator.live_objects().mmaps == 0
            if name != "list":
                with pytest.raises(AccessError, match="obj is a shared mapping"):
                    await dma.register(MAPPED[name](shared))
            assert await dma.copy(MAPPED[name](shared), bytearray(9000))
            with mmap.mmap(file.fileno(), 8192, access=mmap.ACCESS_COPY) as private:
                assert await dma.copy(b"abc", private) == 3
                assert private[:3] == b"abc"
        gc.collect()


async def test_memory_in_tmpfs_is_a_destination() -> None:
    """Shared memory, memfd and anonymous shared mappings: files whose pages are never written back."""
    fd = os.memfd_create("x")
    os.ftruncate(fd, 4096)
    shared = _Shared(4096)
    async with aiodocadma.open_dma() as dma:
        with mmap.mmap(fd, 4096) as memory, mmap.mmap(-1, 4096) as anonymous:
            for dst in (memory, anonymous, shared.buf):
                assert await dma.copy(b"abc", dst) == 3
                assert bytes(dst[:3]) == b"abc"
    os.close(fd)
