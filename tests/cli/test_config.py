"""``aiodocadma config`` as a process."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from aiodocadma import _library

from .conftest import Run


@pytest.fixture(scope="session")
def root() -> Path:
    """Where the emulator is installed."""
    return _library.emulator_folder()


def test_flags(run: Run, root: Path) -> None:
    result = run("config", "--cflags", "--libs")
    assert (result.returncode, result.stderr) == (0, "")
    cflags, libs = map(shlex.split, result.stdout.splitlines())
    assert cflags == [f"-I{root / 'include'}"]
    assert (root / "include" / "doca_dma.h").is_file()
    assert [flag for flag in libs if flag.startswith("-l")] == ["-ldoca_dma", "-ldoca_argp", "-ldoca_common"]
    for flag in libs:
        if flag.startswith("-l"):
            assert (root / "sdk" / "lib" / f"lib{flag[2:]}.so").is_file()


@pytest.mark.parametrize(
    ("option", "file"),
    [
        ("--pkgconfigdir", "doca-dma.pc"),
        ("--libdir", "libdoca_dma.so"),
        ("--dropindir", "libdoca_dma.so.2"),
    ],
)
def test_folders(run: Run, option: str, file: str) -> None:
    result = run("config", option)
    assert result.returncode == 0, result.stderr
    folder = Path(result.stdout.removesuffix("\n"))
    assert folder.is_absolute()
    assert (folder / file).is_file()


def test_the_order_is_that_of_the_command_line(run: Run) -> None:
    one = run("config", "--libdir", "--dropindir").stdout.splitlines()
    two = run("config", "--dropindir", "--libdir").stdout.splitlines()
    assert one == two[::-1]


def test_nothing_asked_for(run: Run) -> None:
    result = run("config")
    assert result.returncode == 2
    assert result.stdout == ""
    assert "aiodocadma config: error: say what to print" in result.stderr
