"""The Python in README.md and docs/ runs as it stands, on both loops."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from pathlib import Path

import pytest

import aiodocadma

ROOT = Path(__file__).parents[2]
SNIPPETS = [
    pytest.param(
        match[1], path, text[: match.start(1)].count("\n"), id=f"{path.name}:{text[: match.start()].count(chr(10)) + 1}"
    )
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for text in [path.read_text()]
    for match in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
]


@pytest.mark.parametrize(("code", "path", "line"), SNIPPETS)
async def test_runs(code: str, path: Path, line: int) -> None:
    compiled = compile("\n" * line + code, path, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(compiled, {"aiodocadma": aiodocadma, "asyncio": asyncio})
    if inspect.iscoroutine(result):
        await result
