"""The examples run and print what their header says."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_there_are_examples() -> None:
    assert EXAMPLES


def header(path: Path) -> str:
    """The docstring of an example."""
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    assert docstring is not None
    return docstring


# No copy is done when copy() returns, as on a card: a missing await shows.
ENVIRONMENT = {"DOCAEMU_CONFIG": "latency_real=500"}
RUN = "import runpy, sys; runpy.run_path(sys.argv.pop(), run_name='__main__')"
ON = {
    "asyncio": RUN,
    "uvloop": f"import asyncio, uvloop; asyncio.set_event_loop_policy(uvloop.EventLoopPolicy()); {RUN}",
}


RUNS = [
    pytest.param(path, loop, id=f"{path.stem}-{loop}")
    for path in EXAMPLES
    for loop in ON
    if loop == "asyncio" or path.stem != "crossover"  # which has a loop only where it measures
]


@pytest.fixture(scope="session")
def fonts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where matplotlib keeps its list of fonts: on a busy machine it says on stderr that making it takes a moment."""
    folder = tmp_path_factory.mktemp("matplotlib")
    subprocess.run(
        [sys.executable, "-c", "import matplotlib.font_manager"],
        env={**os.environ, "MPLCONFIGDIR": str(folder)},
        capture_output=True,
        check=True,
        timeout=50,
    )
    return folder


@pytest.mark.parametrize(("path", "loop"), RUNS)
def test_prints_what_it_says(path: Path, loop: str, fonts: Path, tmp_path: Path) -> None:
    _, _, expected = header(path).partition("\nPrints:\n")
    assert expected, "the header has no 'Prints:'"
    result = subprocess.run(
        [sys.executable, "-c", ON[loop], path],
        cwd=tmp_path,
        env={**os.environ, **ENVIRONMENT, "XDG_CACHE_HOME": str(tmp_path), "MPLCONFIGDIR": str(fonts)},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert result.stderr == ""
    assert result.stdout.strip() == textwrap.dedent(expected).strip()
    assert result.returncode == 0


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_is_short_and_has_a_main(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") - header(path).count("\n") < 60  # the header says as much as there is to say
    assert "main()" in text or "main)" in text
