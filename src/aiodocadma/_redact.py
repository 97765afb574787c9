"""What may not leave a machine in a bundle: addresses, and whatever may be a descriptor."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["Redactor"]

# In this order: what matches first is gone. PCI addresses (0000:03:00.0) and versions stay, they are what it is about.
_PATTERNS: Final = (
    ("descriptor", r"\b[0-9a-fA-F]{32,}\b"),
    ("descriptor", r"(?<![\w/+=.-])[A-Za-z0-9+/_-]{64,}={0,2}(?![\w/+=])"),
    ("address", r"\b0x[0-9a-fA-F]{9,16}\b"),
    ("address", r"\b[0-9a-f]{8,16}-[0-9a-f]{8,16}\b"),
    ("gid", r"(?<![0-9a-fA-F:.])(?:[0-9a-fA-F]{4}:){7}[0-9a-fA-F]{4}(?![0-9a-fA-F:])"),
    ("guid", r"(?<![0-9a-fA-F:.])(?:[0-9a-fA-F]{4}:){3}[0-9a-fA-F]{4}(?![0-9a-fA-F:])"),
    ("mac", r"(?<![0-9a-fA-F:.])(?:[0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}(?![0-9a-fA-F:])"),
    ("ip", r"(?<![0-9a-fA-F:.])(?:[0-9a-fA-F]{1,4}:){1,7}:(?:[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{1,4})*)?"),
    ("ip", r"(?<![0-9a-fA-F:.])::[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{1,4})*"),
    ("ip", r"(?<![0-9a-fA-F:.])(?:[0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}(?![0-9a-fA-F:])"),
    ("ip", r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])"),
    ("user", r"(?<=/home/)[^/\s\"']+"),
)


_PATH_STEP: Final = 20  # base64 has a slash every 64 characters, a path has more


class Redactor:
    """
    Replaces secrets and addresses by tags; the same text gets the same tag, so that what was equal stays equal.

    Source: aiodocadma.
    """

    def __init__(self) -> None:
        self._tags: dict[tuple[str, str], str] = {}

    def __call__(self, text: str) -> str:
        """The text without them."""
        for kind, pattern in _PATTERNS:
            text = re.sub(pattern, lambda match, kind=kind: self._tag(kind, match[0]), text)  # type: ignore[misc]
        return text

    def _tag(self, kind: str, secret: str) -> str:
        if kind == "descriptor" and secret.count("/") * _PATH_STEP > len(secret):
            return secret  # a long path
        key = (kind, secret.lower())
        if key not in self._tags:
            number = 1 + sum(known == kind for known, _ in self._tags)
            self._tags[key] = f"<{kind} {number}>"
        return self._tags[key]
