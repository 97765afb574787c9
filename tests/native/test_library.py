"""Loading: what is missing, damaged or wrong is named; a service never runs on a fake card unawares."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import decoys

import aiodocadma
from aiodocadma import _library
from aiodocadma.exceptions import LibraryError

SYMBOLS = Path(__file__).parents[2] / "native" / "shim" / "symbols.h"


def symbols(kind: str) -> list[tuple[str, str]]:
    """The (library, name) rows of one list of the client's symbol table."""
    section = SYMBOLS.read_text().split(f"ADMA_{kind}_SYMBOLS(X)")[1].split("#define")[0]
    rows = [line.strip().removesuffix("\\").strip() for line in section.splitlines() if "X(" in line]
    return [tuple(row[2:-1].split(", ")) for row in rows]  # type: ignore[misc]


def fake(path: Path, names: list[str], *, version: str | None = None) -> None:
    """Compile a library in which each symbol exists and does nothing."""
    source = "".join(f"int {name}(void) {{ return 0; }}\n" for name in names)
    if version is not None:
        source += f'const char *doca_version_runtime(void) {{ return "{version}"; }}\n'
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(path)], input=source, text=True, check=True)


def fake_doca(folder: Path, *, without: str | None = None, version: str | None = None, dma: bool = True) -> None:
    names = {
        library: [name for at, name in symbols("REQUIRED") if at == library and name != without]
        for library in ("common", "dma")
    }
    fake(folder / "libdoca_common.so.2", names["common"], version=version)
    if dma:
        fake(folder / "libdoca_dma.so.2", names["dma"])


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if key != _library.ENVIRONMENT_VARIABLE} | environment
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)


def test_the_emulator_is_one_file_that_says_so() -> None:
    library = _library.open_library("emulator")
    assert library.path == os.path.realpath(_library.emulator_path())
    assert library.emulated
    assert "(emulated)" in repr(library)
    assert _library.open_library("emulator") is library
    assert all(device.emulated for device in aiodocadma.devices("emulator"))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LibraryError, match=r"libdoca_common\.so\.2") as caught:
        _library.open_library(tmp_path / "libdoca_common.so.2")
    assert caught.value.path == str(tmp_path / "libdoca_common.so.2")


def test_a_folder_without_doca(tmp_path: Path) -> None:
    with pytest.raises(LibraryError, match=str(tmp_path)):
        _library.open_library(tmp_path)


def test_garbage(tmp_path: Path) -> None:
    (tmp_path / "libdoca_common.so.2").write_bytes(b"not a library")
    with pytest.raises(LibraryError, match=r"file too short|invalid ELF header"):
        _library.open_library(tmp_path)


def test_neither_a_word_nor_a_path() -> None:
    with pytest.raises(LibraryError, match="'real'"):
        _library.open_library("real")


@pytest.mark.parametrize(
    ("library", "name"),
    # The first of the table, one in the middle, one of the other library: the loader treats all rows alike.
    [("common", "doca_error_get_name"), ("common", "doca_pe_progress"), ("dma", "doca_dma_create")],
)
def test_a_missing_symbol_is_named(tmp_path: Path, library: str, name: str) -> None:
    assert (library, name) in symbols("REQUIRED")
    fake_doca(tmp_path, without=name)
    with pytest.raises(LibraryError, match=name) as caught:
        _library.open_library(tmp_path)
    assert caught.value.symbol == name
    assert caught.value.path == str(tmp_path / f"libdoca_{library}.so.2")


@pytest.mark.usefixtures("embedded_emulator")
@pytest.mark.rule("R31")
def test_missing_optional_symbols_are_fine(tmp_path: Path) -> None:
    fake_doca(tmp_path)
    library = _library.open_library(tmp_path)
    assert library.version is None
    assert not library.emulated
    assert set(library.native.optional_symbols().values()) == {False}
    assert set(_library.open_library("emulator").native.optional_symbols().values()) == {True}


def test_a_release_with_the_old_api(tmp_path: Path) -> None:
    fake_doca(tmp_path, version="1.5.1007")
    with pytest.raises(LibraryError, match=r"DOCA 1\.5\.1007; aiodocadma needs at least 2\.5"):
        _library.open_library(tmp_path)


def test_a_partial_install(tmp_path: Path) -> None:
    """The common library without DMA's: broken, not absent, so `auto` does not fall back to the emulator."""
    fake_doca(tmp_path, dma=False)
    for choice in ("auto", "system"):
        done = run(
            f"import aiodocadma; aiodocadma.devices({choice!r})",
            LD_LIBRARY_PATH=str(tmp_path),
        )
        assert done.returncode == 1
        assert "LibraryError" in done.stderr
        assert "libdoca_dma.so.2" in done.stderr


@pytest.mark.parametrize(("choice", "works"), [("auto", True), ("system", False), ("emulator", True)])
def test_no_doca_installed(choice: str, works: bool) -> None:
    """`import` always works; only asking for the system's DOCA raises."""
    if Path("/opt/mellanox/doca").exists():
        pytest.skip("no BlueField-free machine: a DOCA is installed here")
    for done in (
        run(f"import aiodocadma; print(aiodocadma.devices({choice!r})[0].emulated)"),
        run("import aiodocadma; print(aiodocadma.devices()[0].emulated)", AIODOCADMA_LIBRARY=choice),
    ):
        if works:
            assert done.stdout == "True\n", done.stderr
        else:
            assert done.returncode == 1
            assert "LibraryError: no DOCA is installed" in done.stderr


@pytest.mark.usefixtures("embedded_emulator")
@pytest.mark.rule("R76")
def test_the_drop_ins_are_found_as_the_systems_library() -> None:
    """What a program linked against the real library would run on, and the system choice of this client."""
    folder = Path(_library.emulator_path()).parents[1] / "dropin"
    done = run(
        "import aiodocadma; d = aiodocadma.devices('system')[0]; print(d.emulated, d.library)",
        LD_LIBRARY_PATH=str(folder),
    )
    assert done.stdout == f"True {os.path.realpath(_library.emulator_path())}\n", done.stderr


@pytest.mark.rule("R126")
def test_a_folder_of_libraries_may_be_chosen() -> None:
    """As that of DOCA's tracing flavour: both libraries come from it."""
    folder = Path(_library.emulator_path()).parents[1] / "dropin"
    done = run(f"import aiodocadma; print(aiodocadma.devices({str(folder)!r})[0].dma_supported)")
    assert done.stdout == "True\n", done.stderr


def test_the_emulators_file_may_be_chosen(tmp_path: Path) -> None:
    """By the client's choice `emulator` and by the control functions alike."""
    code = """
import aiodocadma
from aiodocadma import emulator
emulator.add_device("mlx5_7")
print([(device.ibdev_name, device.library) for device in aiodocadma.devices("emulator")])
"""
    other = str(_library.emulator_folder() / "lib" / "libdocaemu-2.6.so")
    done = run(code, AIODOCADMA_EMULATOR=other)
    assert done.stdout == f"{[('mlx5_7', os.path.realpath(other))]}\n", done.stderr
    done = run(code, AIODOCADMA_EMULATOR=str(tmp_path / "none.so"))
    assert done.returncode == 1
    assert "none.so" in done.stderr


@pytest.mark.usefixtures("embedded_emulator")
def test_two_libraries_of_the_same_names_do_not_meet(tmp_path: Path) -> None:
    """B67: decoys that are loaded globally and have every name are never called by the emulator or the client."""
    paths = [str(path) for path in decoys.build(tmp_path)]
    done = run(f"""
import asyncio, ctypes
real = [ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL) for path in {paths!r}]
import aiodocadma
from aiodocadma import emulator, _library
async def main():
    async with aiodocadma.open_dma(library="emulator") as dma:
        dst = bytearray(100000)
        assert await dma.copy(b"x" * 100000, dst) == 100000 and dst == b"x" * 100000
        for _ in range(3):
            emulator.inject(emulator.Fault("completion"))
            try:
                await dma.copy(b"x", bytearray(1))
            except aiodocadma.DocaError:
                pass
asyncio.run(main())
assert emulator.counters().submits >= 4
# The emulator's own calls of its public functions: argp sets the log level and reads the version.
docaemu = ctypes.CDLL(_library.emulator_path())
argv = (ctypes.c_char_p * 4)(b"test", b"-l", b"60", None)
level = ctypes.c_int()
assert docaemu.doca_argp_init(b"test", None) == 0
assert docaemu.doca_argp_start(3, argv) == 0
assert docaemu.doca_argp_get_log_level(ctypes.byref(level)) == 0 and level.value == 60
assert docaemu.doca_argp_destroy() == 0
print([ctypes.c_int.in_dll(library, {decoys.COUNTER!r}).value for library in real])
assert real[0].doca_pe_create() == 1
print([ctypes.c_int.in_dll(library, {decoys.COUNTER!r}).value for library in real])
""")
    assert done.stdout == "[0, 0, 0]\n[1, 0, 0]\n", done.stderr


def at_once(function: Callable[[], Any]) -> list[Any]:
    """What two threads get that call a function at the same time."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return [future.result() for future in [pool.submit(function) for _ in range(2)]]


class Meeting:
    """In place of a class: each construction gives another thread the time to come to its own."""

    def __init__(self, made: Callable[..., Any]) -> None:
        self._made = made
        self._barrier = threading.Barrier(2)

    def __call__(self, *args: Any) -> Any:
        with contextlib.suppress(threading.BrokenBarrierError):
            self._barrier.wait(0.2)
        return self._made(*args)


def test_threads_that_load_a_library_at_once_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """One object, so that there is one log of it: DOCA has no call to end that."""
    monkeypatch.setattr(_library, "Library", Meeting(_library.Library))
    _library._load.cache_clear()
    try:
        first, second = at_once(lambda: _library.open_library("emulator"))
        assert first is second
    finally:
        _library._load.cache_clear()


def test_threads_that_ask_for_its_log_at_once_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_library, "SdkLog", Meeting(lambda native: object()))
    path = _library.emulator_path()
    library = _library.Library(path, path)
    first, second = at_once(lambda: library.sdk_log)
    assert first is second
