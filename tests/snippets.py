"""What README.md and docs/ show to be run. Nothing but the standard library: tools/snippets imports this, too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Snippet:
    """One block of a page."""

    path: Path
    line: int  # of its fence
    text: str
    extras: frozenset[str]  # that the page has named before

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.path.name}:{self.line}"

    @property
    def is_test(self) -> bool:
        """Whether pytest has to run it."""
        return re.search(r"^(?:async )?def test_|^@pytest", self.text, re.MULTILINE) is not None


def pages() -> list[Path]:
    """The pages."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def snippets(language: str) -> Iterator[Snippet]:
    """All blocks in a language, page by page."""
    for path in pages():
        text = path.read_text()
        for match in re.finditer(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            before = text[: match.start()]
            extras = ",".join(re.findall(r"aiodocadma\[([\w,]+)\]", before))
            yield Snippet(path, before.count("\n") + 1, match[1], frozenset(filter(None, extras.split(","))))
