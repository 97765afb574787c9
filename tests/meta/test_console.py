"""The commands in README.md and docs/ are commands, and those that end by themselves run."""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.snippets import ROOT, snippets

from aiodocadma import cli

PROMPT = "$ "
# They serve, watch, or need the other side or a card; other tests run them.
ELSEWHERE = ("publish", "pull", "top", "--library system")
SLOW = ("bench", "--full")


def blocks() -> list[tuple[str, list[tuple[str, str]]]]:
    """Each console block, by its place: its commands, each with the output shown."""
    found = []
    for snippet in snippets("console"):
        commands: list[tuple[str, str]] = []
        for line in snippet.text.splitlines(keepends=True):
            if line.startswith(PROMPT):
                commands.append((line.removeprefix(PROMPT).strip(), ""))
            elif commands:
                commands[-1] = (commands[-1][0], commands[-1][1] + line)
        found.append((snippet.name, commands))
    return found


def ours(command: str) -> bool:
    return re.match(r"aiodocadma |python -m aiodocadma", command) is not None


def runs(slow: bool) -> list[tuple[str, list[tuple[str, str]]]]:
    """The commands to run, block by block, each once in all."""
    seen: set[str] = set()
    found = []
    for name, commands in blocks():
        chosen = []
        for command, output in commands:
            plain = command.split("#")[0].strip()
            here = not any(word in plain for word in ELSEWHERE)
            if ours(plain) and here and slow == any(word in plain for word in SLOW) and plain not in seen:
                seen.add(plain)
                chosen.append((plain, output))
        if chosen:
            found.append((name, chosen))
    return found


def run(commands: list[tuple[str, str]], folder: Path) -> None:
    environment = os.environ | {"XDG_CACHE_HOME": str(folder), "COLUMNS": "80"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    (folder / "SRC").write_bytes(os.urandom(100_000))
    for command, shown in commands:
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=50
        )
        # advise answers by its status, and doctor names the layer that fails: without DOCA, the first.
        allowed = {"advise": (0, 3), "doctor": range(8)}.get(command.split()[1], (0,))
        assert done.returncode in allowed, f"{command}\n{done.stdout}{done.stderr}"
        if command.startswith("aiodocadma advise local peer") and shown:
            flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            assert doctest.OutputChecker().check_output(shown, done.stdout, flags), done.stdout


@pytest.mark.parametrize(("name", "commands"), [pytest.param(*run, id=run[0]) for run in runs(slow=False)])
def test_what_ends_runs(name: str, commands: list[tuple[str, str]], tmp_path: Path) -> None:
    run(commands, tmp_path)


@pytest.mark.deep
@pytest.mark.parametrize(("name", "commands"), [pytest.param(*run, id=run[0]) for run in runs(slow=True)])
def test_what_takes_long_runs(name: str, commands: list[tuple[str, str]], tmp_path: Path) -> None:
    run(commands, tmp_path)


def written() -> list[str]:
    """Every command of ours that a page shows, with its arguments."""
    lines = re.findall(r"^    (aiodocadma .*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    for snippet in snippets("console"):
        lines += re.findall(r"^\w*\$ (aiodocadma .*)$", snippet.text, re.MULTILINE)
    return lines


@pytest.mark.parametrize("command", sorted(set(written())))
def test_the_parser_takes_it(command: str) -> None:
    cli._parser().parse_args(shlex.split(re.split("[;>#]", command)[0])[1:])
