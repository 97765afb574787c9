"""What a target is safe from: traps beside it, bits it should not keep, names that lead elsewhere."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiodocadma.cli._files import Stop, open_target

NOBODY = 65534
PART = ".part"


@pytest.fixture
def stop() -> Iterator[Stop]:
    """Ends no wait."""
    made = Stop()
    yield made
    made.close()


@pytest.fixture
def umask() -> Iterator[None]:
    """Nothing is taken from the modes that are asked for."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode_of(path: Path) -> int:
    """The permission bits, with those that give rights."""
    return stat.S_IMODE(path.stat().st_mode)


def modes(folder: Path) -> list[int]:
    """Those of all files in a folder."""
    return sorted(map(mode_of, folder.iterdir()))


def lay_link(path: Path) -> None:
    """A symbolic link to another file."""
    (path.parent / "victim").write_text("precious")
    path.symlink_to("victim")


def lay_second_name(path: Path) -> None:
    """A second name of another file."""
    (path.parent / "victim").write_text("precious")
    os.link(path.parent / "victim", path)


def lay_fifo(path: Path) -> None:
    """A FIFO, at whose other end anybody may be."""
    os.mkfifo(path)


def lay_file(path: Path) -> None:
    """A file of another user's, which everybody may write."""
    path.write_text("laid")
    path.chmod(0o666)
    os.chown(path, NOBODY, NOBODY)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to have files of another user")


@pytest.mark.parametrize(
    "lay", [lay_link, lay_second_name, lay_fifo, pytest.param(lay_file, marks=needs_root)], ids=lambda lay: lay.__name__
)
async def test_a_trap_where_a_part_is_kept(tmp_path: Path, stop: Stop, lay: object) -> None:
    """Its name can be known before: a link, a FIFO, somebody else's file. Nothing is written, nothing waited for."""
    assert callable(lay)
    lay(tmp_path / PART)
    with pytest.raises(OSError, match=r"not this user's alone|symbolic links") as caught:
        await open_target(str(tmp_path / "dst"), stop, name="x", mode=0o644, temporary=PART)
    assert caught.value.filename == str(tmp_path / "dst")
    assert not (tmp_path / "dst").exists()
    if (victim := tmp_path / "victim").exists():
        assert victim.read_text() == "precious"


async def test_a_part_of_ones_own_goes_on(tmp_path: Path, stop: Stop) -> None:
    (tmp_path / PART).write_text("abc")
    target = await open_target(str(tmp_path / "dst"), stop, name="x", mode=0o644, temporary=PART)
    assert target.resume(10, lambda data: None) == 3
    target.commit()
    assert (tmp_path / "dst").read_text() == "abc"


@pytest.mark.usefixtures("umask")
async def test_what_is_not_whole_is_its_writers(tmp_path: Path, stop: Stop) -> None:
    """The bits of a new file are those asked for, never ones that give rights; over an old one nobody else reads."""
    target = await open_target(str(tmp_path / "new"), stop, name="x", mode=0o6640)
    assert modes(tmp_path) == [0o640]
    target.commit()
    assert mode_of(tmp_path / "new") == 0o640
    target = await open_target(str(tmp_path / "new"), stop, name="x", mode=0o666)
    assert modes(tmp_path) == [0o600, 0o640]
    target.commit()
    assert mode_of(tmp_path / "new") == 0o640


@pytest.mark.parametrize(("mode", "kept"), [(0o4755, 0o755), (0o2775, 0o775), (0o640, 0o640)])
async def test_an_old_file_gives_no_rights(tmp_path: Path, stop: Stop, mode: int, kept: int) -> None:
    """What was written into a set-user-ID program does not run as its owner, as with write(2)."""
    (tmp_path / "dst").write_text("old")
    (tmp_path / "dst").chmod(mode)
    (await open_target(str(tmp_path / "dst"), stop, name="x", mode=0o600)).commit()
    assert mode_of(tmp_path / "dst") == kept


@pytest.mark.parametrize(("mode", "kept"), [(0o640, 0o600), (0o664, 0o644), (0o666, 0o666), (0o751, 0o711)])
async def test_another_group_gets_what_everybody_has(
    tmp_path: Path, stop: Stop, mode: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where owner and group cannot be kept, the bits of the old group are not the new one's."""

    def refuse(*args: object) -> None:
        raise PermissionError

    (tmp_path / "dst").write_text("old")
    (tmp_path / "dst").chmod(mode)
    monkeypatch.setattr(os, "fchown", refuse)
    (await open_target(str(tmp_path / "dst"), stop, name="x", mode=0o600)).commit()
    assert mode_of(tmp_path / "dst") == kept


@pytest.mark.parametrize("call", ["fsync", "fchmod", "close", "rename"])
async def test_every_error_names_the_target(
    tmp_path: Path, stop: Stop, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of calls that know no path, or another one: some file systems report a full disk there only."""
    path = tmp_path / "dst"
    path.write_text("old")
    target = await open_target(str(path), stop, name="x", mode=0o600)

    real = getattr(os, call)

    def refuse(*args: object) -> None:
        if call == "close":
            real(*args)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left") as caught:
        patch.setattr(os, call, refuse)
        target.read_back(lambda data: None)
        target.commit()
    assert caught.value.filename == str(path)
    target.close()
    assert (path.read_text(), os.listdir(tmp_path)) == ("old", ["dst"])
