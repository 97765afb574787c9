"""What this library makes is its user's alone, also where the umask takes nothing away."""

from __future__ import annotations

import asyncio
import datetime
import itertools
import os
import resource
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import aiodocadma
from aiodocadma import _calibration, _evidence, _flight, live, peer
from aiodocadma._private import make_folder


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """Nothing is taken from the modes that are asked for."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two folders down; neither is there."""
    return tmp_path / "a" / "b"


def assert_own(tmp_path: Path, files: int) -> None:
    """All folders are 0700 and all of so many files, sockets among them, 0600."""
    found = list(tmp_path.rglob("*"))
    assert {path: stat.S_IMODE(path.lstat().st_mode) for path in found} == {
        path: 0o700 if path.is_dir() else 0o600 for path in found
    }
    assert sum(not path.is_dir() for path in found) == files


def test_folders(tmp_path: Path, folder: Path) -> None:
    make_folder(folder)
    make_folder(folder)
    assert_own(tmp_path, 0)
    (folder / "file").write_text("")
    for path in (folder / "file", folder / "file" / "below"):
        with pytest.raises(OSError, match=r"File exists|Not a directory"):
            make_folder(path)


class Fixed(datetime.datetime):
    """A time that stands still."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Fixed:
        """Always the same."""
        return cls(2026, 1, 1, tzinfo=tz)


def test_evidence(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of its own, which no link laid in its place leads elsewhere."""
    monkeypatch.setattr(datetime, "datetime", Fixed)
    monkeypatch.setattr(_evidence, "_files", itertools.repeat(7))
    path = _evidence.write_bundle(folder, {"a": 1})
    assert_own(tmp_path, 1)
    victim = tmp_path / "victim"
    path.unlink()
    path.symlink_to(victim)
    with pytest.raises(FileExistsError):
        _evidence.write_bundle(folder, {"a": 1})
    assert not victim.exists()


def test_no_evidence_in_part(tmp_path: Path) -> None:
    """As on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            _evidence.write_bundle(tmp_path, {"a": "b" * 20})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not os.listdir(tmp_path)


async def test_flight_records(tmp_path: Path, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with aiodocadma.open_dma(library="emulator") as dma:
        _flight.dump(dma, asyncio.get_running_loop(), folder, "a test")
        async with asyncio.timeout(5):
            while "the flight record is in" not in caplog.text:
                await asyncio.sleep(0.001)
    assert_own(tmp_path, 1)


async def test_the_live_socket(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has its bits from the first moment on: nothing changes those of what may lie at its path by then."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setattr(os, "chmod", lambda *args: pytest.fail(f"chmod{args}"))
    async with live.serve() as path:
        assert path.is_socket()
        assert_own(tmp_path, 1)


async def test_the_calibration(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    _calibration._store(_calibration.assumed())
    assert_own(tmp_path, 1)


async def test_the_rendezvous(tmp_path: Path) -> None:
    async with aiodocadma.open_dma(library="emulator") as dma, peer.listen(dma, f"unix:{tmp_path}/s"):
        assert_own(tmp_path, 1)
