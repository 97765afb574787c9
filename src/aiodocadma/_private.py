"""
What other users must not decide: which file a path leads to, whom the environment sends us to, and who sees our files.

A folder that anybody may write, as ``/tmp``, has a sticky bit: only the owner of what lies in it may replace it. So a
path through it leads where its owner wants, and that is fine as long as the owner is this user or root.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

from aiodocadma import _native

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["environment", "make_folder", "replaceable"]

_MAX_LINKS: Final = 40  # as the kernel


def environment(name: str) -> str | None:
    """
    Read an environment variable that sends us to a file.

    Args:
        name: The variable.

    Returns:
        Its value; None if it is not set, is empty, or this process has privileges (of a set-user-ID program or of file
        capabilities) that whoever set it has not.

    Source: ``secure_getenv(3)``, ``AT_SECURE`` in ``getauxval(3)``.
    """
    return None if _native.is_privileged() else os.environ.get(name) or None


def replaceable(path: str) -> str | None:
    """
    Tell whether somebody else than this user and root decides what a path leads to.

    Every folder on the way counts, and every symbolic link. Whom an administrator gave a group's access is trusted.

    Args:
        path: The path. What is not there is nobody's yet: only the way to it counts.

    Returns:
        Who, in words; None if nobody does.

    Raises:
        OSError: If a part of the way cannot be looked at.

    Source: ``path_resolution(7)``, ``fs.protected_symlinks`` in ``proc(5)``.
    """
    folder, todo, links = "/", [part for part in os.path.join(os.getcwd(), path).split("/") if part], 0
    while todo:
        part = todo.pop(0)
        if part in (".", ".."):
            folder = os.path.dirname(folder) if part == ".." else folder
            continue
        here = os.path.join(folder, part)
        holder = os.lstat(folder)
        if holder.st_mode & stat.S_IWOTH and not holder.st_mode & stat.S_ISVTX:
            return f"anybody may write in {folder}"
        try:
            found = os.lstat(here)
        except FileNotFoundError:
            return None
        if holder.st_mode & stat.S_IWOTH and found.st_uid not in (0, os.geteuid()):
            return f"anybody may write in {folder}, and {here} is user {found.st_uid}'s"
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > _MAX_LINKS:
                return f"{path} has too many symbolic links"
            target = os.readlink(here)
            todo = [*(part for part in target.split("/") if part), *todo]
            folder = "/" if target.startswith("/") else folder
        else:
            folder = here
    last = os.lstat(folder)
    if not last.st_mode & stat.S_IWOTH or stat.S_ISSOCK(last.st_mode):
        return None
    return f"anybody may write {'in ' if stat.S_ISDIR(last.st_mode) else ''}{folder}"


def make_folder(path: Path) -> None:
    """
    Make a folder, and those above it that are not there, which only this user may enter, whatever the umask is.

    Args:
        path: The folder; one that is there stays as it is.

    Raises:
        OSError: If it cannot be made, or is no folder.

    Source: ``mkdir(2)``; XDG Base Directory Specification.
    """
    if not path.parent.exists():
        make_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
