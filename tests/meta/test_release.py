"""What is published: one version everywhere, a changelog that tells of it, Linux only."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest

from aiodocadma._version import __version__

ROOT = Path(__file__).parents[2]
UNAME = r"""
#define _GNU_SOURCE
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

int uname(struct utsname *name)
{
	int result = syscall(SYS_uname, name);

	strcpy(name->sysname, "Darwin");
	return result;
}
"""


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """``tools/release`` as a module, with an empty folder for a checkout, in which nothing is uncommitted."""
    loader = importlib.machinery.SourceFileLoader("release", str(ROOT / "tools" / "release"))
    spec = importlib.util.spec_from_loader("release", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "output", lambda *command, **options: "")
    return module


def checkout(folder: Path, version: str, changelog: str) -> None:
    """What ``tools/release`` reads a version from."""
    file = folder / "src" / "aiodocadma" / "_version.py"
    file.parent.mkdir(parents=True)
    file.write_text(f'"""Text."""\n\n__version__ = "{version}"\n')
    (folder / "CHANGELOG.md").write_text(f"# Changelog\n\n{changelog}")


def test_the_version_is_in_one_place() -> None:
    """What is installed and what the command says come from ``_version.py``; nothing tracked repeats it."""
    assert metadata.version("aiodocadma") == __version__
    said = subprocess.run(
        [sys.executable, "-m", "aiodocadma", "--version"], capture_output=True, text=True, timeout=50, check=True
    )
    assert said.stdout == f"aiodocadma {__version__}\n"
    pattern = re.compile(rf"(?<![\d.]){re.escape(__version__)}(?![\d.]*\d)")
    texts = [
        path
        for folder in ("src", "native", "docs", "tools", "examples")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix not in (".png", ".pyc", ".abi")
    ]
    repeating = [path for path in [*texts, ROOT / "README.md"] if pattern.search(path.read_text(errors="replace"))]
    assert repeating == [ROOT / "src" / "aiodocadma" / "_version.py"]


def test_the_changelog_fits_the_version() -> None:
    """An unreleased version has notes under Unreleased, a released one a dated section of its own."""
    titles = re.findall(r"^## \[(.+?)\](.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert titles[0] == ("Unreleased", "")
    assert all(re.fullmatch(r" - \d{4}-\d\d-\d\d", date) for _, date in titles[1:])
    assert ".dev" in __version__ or titles[1][0] == __version__


@pytest.mark.parametrize(
    ("version", "changelog"),
    [
        ("1.2.0.dev3", "## [Unreleased]\n\n- New.\n"),
        ("1.2.0", "## [Unreleased]\n\n## [1.2.0] - 2030-01-31\n\n- New.\n\n## [1.1.0] - 2029-01-31\n"),
    ],
)
def test_what_may_be_released(release: ModuleType, tmp_path: Path, version: str, changelog: str) -> None:
    checkout(tmp_path, version, changelog)
    assert release.version() == version


@pytest.mark.parametrize(
    ("version", "changelog", "message"),
    [
        ("1.2.0", "## [Unreleased]\n\n- New.\n", "YYYY-MM-DD"),
        ("1.2.0", "## [Unreleased]\n\n## [1.2.0]\n\n- New.\n", "YYYY-MM-DD"),
        ("1.2.0", "## [Unreleased]\n\n## [1.1.0] - 2030-01-31\n\n- New.\n", "YYYY-MM-DD"),
        ("1.2.0", "## [Unreleased]\n\n- New.\n\n## [1.2.0] - 2030-01-31\n", "must be empty"),
        ("1.2.0", "## [1.2.0] - 2030-01-31\n", "must be [Unreleased]"),
        ("1.2.0.dev3", "No section.\n", "must be [Unreleased]"),
    ],
)
def test_what_may_not(release: ModuleType, tmp_path: Path, version: str, changelog: str, message: str) -> None:
    checkout(tmp_path, version, changelog)
    with pytest.raises(release.Failure, match=re.escape(message)):
        release.version()


def test_changes_that_are_not_committed(release: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout(tmp_path, "1.2.0", "## [Unreleased]\n\n## [1.2.0] - 2030-01-31\n")
    monkeypatch.setattr(release, "output", lambda *command, **options: " M src/aiodocadma/_dma.py\n")
    with pytest.raises(release.Failure, match="not committed"):
        release.version()


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
def test_elsewhere_than_on_linux_building_stops_and_says_so(tmp_path: Path) -> None:
    """In one line, before a compiler is looked for: of an installation, and of the commands for a checkout."""
    (tmp_path / "uname.c").write_text(UNAME)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "uname.so", tmp_path / "uname.c"], check=True)
    environment = os.environ | {"LD_PRELOAD": str(tmp_path / "uname.so"), "AIODOCADMA_VENV": str(tmp_path / "venv")}
    for command, line in (
        (["cmake", "-S", "native", "-B", tmp_path / "build"], "aiodocadma runs on Linux only: DOCA DMA has no Darwin"),
        (["tools/check"], "check: aiodocadma runs on Linux only, this is Darwin."),
    ):
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=50)
        assert done.returncode != 0
        assert any(said.strip().startswith(line) for said in done.stderr.splitlines())
        assert "compiler" not in done.stdout
    assert not (tmp_path / "venv").exists()
