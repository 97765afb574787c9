"""The peers: C programs on the DOCA library that the client uses, and a naive binding of it in cffi's ABI mode."""

from __future__ import annotations

import asyncio
import ctypes
import functools
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cffi

import aiodocadma

DEPTH = 256


def first_device() -> aiodocadma.DeviceInfo:
    """The device that open_dma() takes."""
    return next(device for device in aiodocadma.devices() if device.dma_supported)


@functools.cache
def build() -> Path:
    """Compile peers.c against the library in use; returns the shared object."""
    folder = Path(tempfile.mkdtemp(prefix="aiodocadma-benchmarks-"))
    device = first_device()
    if device.emulated:
        library = Path(device.library)
        include = subprocess.run(["aiodocadma", "config", "--cflags"], env=_path(), capture_output=True, text=True)
        flags = [*include.stdout.split(), "-DDOCA_ALLOW_EXPERIMENTAL_API", str(library), f"-Wl,-rpath,{library.parent}"]
    else:
        package = subprocess.run(["pkg-config", "--cflags", "--libs", "doca-dma"], capture_output=True, text=True)
        flags = [*package.stdout.split(), "-DDOCA_ALLOW_EXPERIMENTAL_API"]
    out = folder / "peers.so"
    source = Path(__file__).with_name("peers.c")
    command = [os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", str(source), "-o", str(out), *flags]
    subprocess.run(command, check=True)
    return out


def _path() -> dict[str, str]:
    """An environment that finds the command of this very installation."""
    import sys

    return os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def load(path: Path) -> ctypes.CDLL:
    """Load it; calls release the GIL."""
    library = ctypes.CDLL(str(path))
    library.peer_open.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_uint64, ctypes.c_uint32] + [ctypes.c_void_p] * 2
    for name in ("peer_poll", "peer_events"):
        getattr(library, name).argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p]
    library.peer_close.argtypes = [ctypes.c_void_p]
    return library


def address_of(view: memoryview) -> int:
    """The address of a writable view's first byte."""
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


def _checked(code: int, what: str) -> None:
    if code:
        raise RuntimeError(f"{what} gave {code}")


class CProgram:
    """
    The C programs, over memory that is the client's, too.

    Args:
        path: From ``build()``.
        src: Memory to read.
        dst: Memory to write, as long.
    """

    def __init__(self, path: Path, src: memoryview, dst: memoryview) -> None:
        self._library = load(path)
        self._peer = ctypes.create_string_buffer(4096)  # more than a struct peer
        self._address = ctypes.addressof(self._peer)
        nbytes = src.nbytes
        code = self._library.peer_open(self._address, address_of(src), address_of(dst), nbytes, DEPTH, None, None)
        _checked(code, "peer_open")

    def poll(self, count: int, length: int, offsets: int) -> None:
        """Copy by polling, the queue kept full; offsets is the address of `count` int64."""
        _checked(self._library.peer_poll(self._address, count, length, offsets), "peer_poll")

    def events(self, count: int, length: int, offsets: int) -> None:
        """Copy one after another, waiting for the notification."""
        _checked(self._library.peer_events(self._address, count, length, offsets), "peer_events")

    def close(self) -> None:
        """Destroy all of it."""
        _checked(self._library.peer_close(self._address), "peer_close")


class Naive:
    """
    A binding as one writes it in an afternoon: ABI mode, a Python callback per completion, a task that polls.

    Args:
        path: From ``build()``.
        src: Memory to read.
        dst: Memory to write, as long.
    """

    def __init__(self, path: Path, src: memoryview, dst: memoryview) -> None:
        self._ffi = ffi = cffi.FFI()
        ffi.cdef(
            """
            struct peer { void *dev, *src_map, *dst_map, *inventory, *pe, *dma, *ctx; ...; };
            """.replace("...;", "char rest[4000];")
        )
        ffi.cdef("""
            typedef uint64_t data;  // in fact a union of it and a pointer, which ABI mode cannot pass
            int peer_open(struct peer *, char *, char *, uint64_t, uint32_t, void *, void *);
            int peer_close(struct peer *);
            int doca_buf_inventory_buf_get_by_args(void *, void *, void *, size_t, void *, size_t, void **);
            int doca_buf_dec_refcount(void *, uint16_t *);
            int doca_dma_task_memcpy_alloc_init(void *, void *, void *, data, void **);
            void *doca_dma_task_memcpy_as_task(void *);
            const void *doca_dma_task_memcpy_get_src(void *);
            void *doca_dma_task_memcpy_get_dst(void *);
            int doca_task_submit(void *);
            void doca_task_free(void *);
            uint8_t doca_pe_progress(void *);
        """)
        self._lib: Any = ffi.dlopen(str(path))
        self._peer = ffi.new("struct peer *")
        self._completed = ffi.callback("void(void *, uint64_t, uint64_t)", self._on_completed)
        self._src, self._dst = ffi.cast("char *", address_of(src)), ffi.cast("char *", address_of(dst))
        callback = ffi.cast("void *", self._completed)
        code = self._lib.peer_open(self._peer, self._src, self._dst, src.nbytes, DEPTH, callback, callback)
        _checked(code, "peer_open")
        self._room = asyncio.Semaphore(DEPTH)
        self._futures: dict[int, asyncio.Future[None]] = {}
        self._next = 0
        self._poller = asyncio.ensure_future(self._poll())

    def _on_completed(self, task: Any, task_data: int, ctx_data: int) -> None:
        lib, null = self._lib, self._ffi.NULL
        lib.doca_buf_dec_refcount(self._ffi.cast("void *", lib.doca_dma_task_memcpy_get_src(task)), null)
        lib.doca_buf_dec_refcount(lib.doca_dma_task_memcpy_get_dst(task), null)
        lib.doca_task_free(lib.doca_dma_task_memcpy_as_task(task))
        future = self._futures.pop(task_data)
        if not future.done():
            future.set_result(None)

    async def _poll(self) -> None:
        while True:
            while self._lib.doca_pe_progress(self._peer.pe):
                pass
            await asyncio.sleep(0)

    async def copy(self, offset: int, length: int) -> None:
        """Copy so many bytes at the same offset of both sides."""
        ffi, lib, peer = self._ffi, self._lib, self._peer
        async with self._room:
            src, dst, task = ffi.new("void **"), ffi.new("void **"), ffi.new("void **")
            get = lib.doca_buf_inventory_buf_get_by_args
            at = self._src + offset
            _checked(get(peer.inventory, peer.src_map, at, length, at, length, src), "get_by_args")
            at = self._dst + offset
            _checked(get(peer.inventory, peer.dst_map, at, length, at, 0, dst), "get_by_args")
            self._next += 1
            _checked(lib.doca_dma_task_memcpy_alloc_init(peer.dma, src[0], dst[0], self._next, task), "alloc_init")
            future = self._futures[self._next] = asyncio.get_running_loop().create_future()
            _checked(lib.doca_task_submit(lib.doca_dma_task_memcpy_as_task(task[0])), "submit")
            await future

    async def aclose(self) -> None:
        """Stop polling and destroy all of it."""
        self._poller.cancel()
        await asyncio.wait([self._poller])
        _checked(self._lib.peer_close(self._peer), "peer_close")


@contextmanager
def c_program(src: memoryview, dst: memoryview) -> Iterator[CProgram]:
    """A CProgram, closed at the end."""
    program = CProgram(build(), src, dst)
    try:
        yield program
    finally:
        program.close()
