"""Reading a machine's files below a folder that stands for ``/``: the live one, an unpacked image, a test's tree."""

from __future__ import annotations

import os
from typing import Final, Literal, NamedTuple

__all__ = ["Problem", "Reading", "Root"]

Problem = Literal["absent", "unreadable"]

_MAX_BYTES: Final = 64 << 20  # nothing that is read here is longer, except by mistake
_CHUNK: Final = 64 * 1024  # the kernel refuses large reads of some of its files
_MAX_LINKS: Final = 40  # as the kernel


class Reading(NamedTuple):
    """
    What reading a file gave: its text, or why there is none. A file that may not be read is not an absent one.

    Source: aiodocadma.
    """

    text: str | None
    problem: Problem | None


class Root:
    """
    Files by their absolute names, all looked up below one folder; only ever read.

    Symbolic links are followed as ``chroot(2)`` would: an absolute one leads to a name below the folder, too.

    Args:
        folder: What stands for ``/``.

    Source: ``path_resolution(7)``; aiodocadma.
    """

    def __init__(self, folder: str | os.PathLike[str] = "/") -> None:
        self._folder = os.path.realpath(folder)

    def resolve(self, name: str) -> str:
        """The name with all symbolic links followed, whether or not something is there."""
        todo = [part for part in name.split("/") if part]
        done: list[str] = []
        links = 0
        while todo:
            part = todo.pop(0)
            if part == "..":
                del done[-1:]
            elif part != ".":
                try:
                    target = os.readlink(self._outside([*done, part]))
                except OSError:
                    done.append(part)
                    continue
                links += 1
                if links > _MAX_LINKS:
                    return name
                if target.startswith("/"):
                    done.clear()
                todo = [step for step in target.split("/") if step] + todo
        return "/" + "/".join(done)

    def _outside(self, parts: list[str]) -> str:
        return os.path.join(self._folder, *parts)

    def locate(self, name: str) -> str:
        """The name to open it by, outside the root."""
        return self._outside(self.resolve(name).split("/")[1:])

    def read(self, name: str) -> Reading:
        """The text of a file; bytes that are not UTF-8 are replaced."""
        data, problem = self.read_bytes(name)
        return Reading(None if data is None else data.decode(errors="replace"), problem)

    def read_bytes(self, name: str) -> tuple[bytes | None, Problem | None]:
        """The first 64 MiB of a file; what is neither a file nor one of the kernel's counts as unreadable."""
        try:
            fd = os.open(self.locate(name), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            return None, "absent"
        except OSError:
            return None, "unreadable"
        data = bytearray()
        try:
            while len(data) < _MAX_BYTES and (chunk := os.read(fd, _CHUNK)):
                data += chunk
        except OSError:
            return None, "unreadable"
        finally:
            os.close(fd)
        return bytes(data), None

    def line(self, name: str) -> str | None:
        """The first line of a file, stripped, or None."""
        text = self.read(name).text
        return text.strip().partition("\n")[0].strip() if text is not None else None

    def exists(self, name: str) -> bool:
        """Whether something is there, after links."""
        return os.path.lexists(self.locate(name))

    def is_dir(self, name: str) -> bool:
        """Whether it is a folder."""
        return os.path.isdir(self.locate(name))

    def accessible(self, name: str) -> bool:
        """Whether this process may read and write it."""
        return os.access(self.locate(name), os.R_OK | os.W_OK)

    def link(self, name: str) -> str | None:
        """Where a symbolic link points, or None if it is none."""
        try:
            folder, _, last = name.rpartition("/")
            return os.readlink(os.path.join(self.locate(folder or "/"), last))
        except OSError:
            return None

    def glob(self, pattern: str) -> list[str]:
        """Names that match a pattern, sorted; the folders before the first wildcard may be links."""
        fixed, wild = [], pattern.split("/")[1:]
        while wild and not any(char in wild[0] for char in "*?["):
            fixed.append(wild.pop(0))
        base = "/" + "/".join(fixed)
        if not wild:
            return [base] if self.exists(base) else []
        import glob

        found = glob.glob("/".join(wild), root_dir=self.locate(base))
        return sorted(f"{base.rstrip('/')}/{name}" for name in found)
