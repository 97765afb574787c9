"""Which library is not loaded: one at a relative path, or one that somebody else may replace."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

import aiodocadma
from aiodocadma import _library, _private, emulator
from aiodocadma.exceptions import LibraryError

EMULATOR = _library.emulator_folder() / "lib" / "libdocaemu.so"
DROPINS = _library.emulator_folder() / "dropin"
NOBODY = 65534
other_users = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to have files of another user")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of this user's, with the emulator and both drop-in libraries."""
    shutil.copy(EMULATOR, tmp_path)
    for name in ("libdoca_common.so.2", "libdoca_dma.so.2"):
        shutil.copy(DROPINS / name, tmp_path)
    return tmp_path


CONTROL = "control"  # for an AIODOCADMA_EMULATOR that the control functions use, instead of the client


def refused(patch: pytest.MonkeyPatch, **variables: str) -> str:
    """Load what the variables say, which must be refused before anything is loaded; why."""
    with patch.context() as context:
        for name in ("AIODOCADMA_LIBRARY", "AIODOCADMA_EMULATOR", "LD_LIBRARY_PATH"):
            context.delenv(name, raising=False)
        for name, value in variables.items():
            context.setenv(name, value)
        context.setattr(_library, "Library", lambda *files: pytest.fail(f"loaded: {files}"))
        with pytest.raises(LibraryError) as caught:
            if variables.get("AIODOCADMA_LIBRARY") == CONTROL:
                emulator.counters()
            else:
                _library.open_library()
        return caught.value.args[0].partition(" is not loaded: ")[2]


def test_relative_paths(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the variables, and as an argument; what lies in the current folder is never meant."""
    monkeypatch.chdir(folder)
    for variables in [
        {"AIODOCADMA_LIBRARY": "./libdocaemu.so"},
        {"AIODOCADMA_LIBRARY": "../" + folder.name},
        {"AIODOCADMA_LIBRARY": "emulator", "AIODOCADMA_EMULATOR": "libdocaemu.so"},
        {"AIODOCADMA_LIBRARY": CONTROL, "AIODOCADMA_EMULATOR": "./libdocaemu.so"},
    ]:
        assert refused(monkeypatch, **variables).startswith("the path is relative"), variables
    with pytest.raises(LibraryError, match="is not loaded: the path is relative"):
        aiodocadma.devices("./libdocaemu.so")


@pytest.mark.parametrize("search", [".", "/usr/lib:", ":/usr/lib", "/usr/lib;."])
def test_the_current_folder_in_the_search_path(folder: Path, search: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty part of LD_LIBRARY_PATH is the current folder for the dynamic linker."""
    monkeypatch.chdir(folder)
    for choice in ("system", "auto"):
        assert refused(monkeypatch, LD_LIBRARY_PATH=search, AIODOCADMA_LIBRARY=choice).startswith(
            "the path is relative"
        )


def test_a_folder_that_anybody_may_write(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However it is named: by a variable, as a folder, in the search path, through a link, with a sticky bit."""
    link = folder.with_name(f"{folder.name}-link")
    link.symlink_to(folder)
    for mode in (0o777, 0o1777):
        folder.chmod(mode)
        for variables in [
            {"AIODOCADMA_LIBRARY": f"{folder}/libdocaemu.so"},
            {"AIODOCADMA_LIBRARY": str(folder)},
            {"AIODOCADMA_LIBRARY": str(link)},
            {"AIODOCADMA_LIBRARY": "emulator", "AIODOCADMA_EMULATOR": f"{link}/libdocaemu.so"},
            {"AIODOCADMA_LIBRARY": CONTROL, "AIODOCADMA_EMULATOR": f"{folder}/libdocaemu.so"},
            {"AIODOCADMA_LIBRARY": "system", "LD_LIBRARY_PATH": str(folder)},
            {"AIODOCADMA_LIBRARY": "auto", "LD_LIBRARY_PATH": f"/nowhere:{folder}"},
        ]:
            assert refused(monkeypatch, **variables) == f"anybody may write in {folder}", variables
    folder.chmod(0o755)
    code = "import aiodocadma; print(aiodocadma.devices('system')[0].library)"
    env = os.environ | {"LD_LIBRARY_PATH": str(folder)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.stdout == f"{folder}/libdocaemu.so\n", done.stderr


def test_a_variant_for_the_processor_counts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dynamic linker prefers it to the one beside it."""
    variants = folder / "glibc-hwcaps" / "x86-64-v2"
    variants.mkdir(parents=True)
    shutil.move(folder / "libdoca_common.so.2", variants)
    variants.chmod(0o777)
    why = refused(monkeypatch, AIODOCADMA_LIBRARY="system", LD_LIBRARY_PATH=str(folder))
    assert why == f"anybody may write in {variants}"


def test_the_way_to_a_library(folder: Path) -> None:
    """Every folder and link on it; refused with a typed error that names what is wrong, before anything is loaded."""
    deep = folder / "a" / "b"
    deep.mkdir(parents=True)
    library = deep / "libdocaemu.so"
    shutil.copy(EMULATOR, library)
    assert aiodocadma.devices(library)[0].library == str(library)
    (folder / "a").chmod(0o777)
    with pytest.raises(LibraryError, match=f"{library} is not loaded: anybody may write in {folder}/a") as caught:
        aiodocadma.devices(library)
    assert caught.value.path == str(library)
    assert caught.value.hint is not None
    (folder / "a").chmod(0o1777)  # what lies in it is this user's, and stays
    assert aiodocadma.devices(library)
    (folder / "a").chmod(0o755)
    library.chmod(0o777)
    with pytest.raises(LibraryError, match=f"anybody may write {library}"):
        aiodocadma.devices(library)
    library.chmod(0o755)
    (folder / "open").mkdir()
    (folder / "open").chmod(0o777)
    (folder / "open" / "there").symlink_to(deep)
    (folder / "here").symlink_to("open/there/../b")
    with pytest.raises(LibraryError, match=f"anybody may write in {folder}/open"):
        aiodocadma.devices(folder / "here" / "libdocaemu.so")


@other_users
def test_another_users_file_where_anybody_may_write(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As in /tmp: it may be a trap; elsewhere somebody has put it there who may, which is only told."""
    sticky = folder / "tmp"
    (sticky / "x").mkdir(parents=True)
    library = sticky / "x" / "libdocaemu.so"
    shutil.copy(EMULATOR, library)
    os.chown(sticky / "x", NOBODY, NOBODY)
    with caplog.at_level(logging.WARNING, "aiodocadma"):
        assert aiodocadma.devices(library)
    assert not caplog.messages
    os.chown(library, NOBODY, NOBODY)
    for _ in range(2):
        assert aiodocadma.devices(library)
    assert caplog.messages == [f"{library} belongs to user {NOBODY}, who decides what this process runs"]
    sticky.chmod(0o1777)
    with pytest.raises(LibraryError, match=f"anybody may write in {sticky}, and {sticky}/x is user {NOBODY}'s"):
        aiodocadma.devices(library)


def test_links_without_end(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert _private.replaceable(f"{tmp_path}/loop/x") == f"{tmp_path}/loop/x has too many symbolic links"


# ---- privileges that whoever set the environment has not

# As a copy of the interpreter with a set-group-ID bit has. -I keeps Python itself from looking at its variables.
PRIVILEGED = """
import site, sys
site.addsitedir(sys.argv[1])
import aiodocadma
from aiodocadma import _private, emulator, live
print(_private.environment("HOME"), aiodocadma.devices("emulator")[0].name, live.default_folder())
"""


@pytest.fixture
def privileged(tmp_path: Path) -> Iterator[Path]:
    """An interpreter with a set-group-ID bit, which does not outlive the test."""
    copy = tmp_path / "python"
    shutil.copy(os.path.realpath(sys.executable), copy)
    os.chown(copy, -1, NOBODY)
    copy.chmod(0o2755)
    yield copy
    copy.unlink()


@other_users
def test_a_privileged_program_believes_no_variable(privileged: Path, tmp_path: Path) -> None:
    """Of the client, or of the emulator."""
    variables = {
        "AIODOCADMA_LIBRARY": "/nowhere/lib.so",
        "AIODOCADMA_EMULATOR": "/nowhere/emulator.so",
        "DOCAEMU_CONFIG": "device mlx5_9",
        "XDG_RUNTIME_DIR": str(tmp_path),
        "HOME": "/root",
    }
    results = []
    for python in (Path(sys.executable), privileged):
        done = subprocess.run(
            [python, "-I", "-c", PRIVILEGED, sysconfig.get_path("platlib")],
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        results.append(done.stdout or done.stderr)
    assert "/nowhere/emulator.so" in results[0]  # as for everybody else
    assert results[1].startswith("None mlx5_0 "), results[1]
    assert str(tmp_path) not in results[1]
