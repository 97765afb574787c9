"""The Python in README.md and docs/ runs as it stands, on both loops."""

from __future__ import annotations

import ast
import asyncio
import inspect

import pytest
from tests.snippets import Snippet, pages, snippets

import aiodocadma


@pytest.mark.usefixtures("embedded_emulator")
@pytest.mark.parametrize("snippet", [pytest.param(snippet, id=snippet.name) for snippet in snippets("python")])
async def test_runs(snippet: Snippet) -> None:
    code = compile("\n" * snippet.line + snippet.text, snippet.path, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, {"aiodocadma": aiodocadma, "asyncio": asyncio})
    if inspect.iscoroutine(result):
        await result


def test_each_how_to_shows_something() -> None:
    shown = {snippet.path for language in ("python", "console") for snippet in snippets(language)}
    assert not [page.name for page in pages() if page.parent.name in ("how-to", "concepts") and page not in shown]


def test_snippets_fit_the_width_of_a_page() -> None:
    wide = [(s.name, line) for s in snippets("python") for line in s.text.splitlines() if len(line) > 92]
    assert not wide


def test_nothing_is_shown_that_nobody_runs() -> None:
    """A doctest in a page or docstring would need a runner of its own."""
    assert not [page.name for page in pages() if ">>> " in page.read_text()]
