"""``import aiodocadma`` brings along what an awaited copy needs, and no more."""

from __future__ import annotations

import operator
import subprocess
import sys

import pytest

import aiodocadma

HEAVY = """
    argparse bisect bz2 cffi ctypes glob hashlib importlib.metadata importlib.resources ipaddress json
    lzma multiprocessing numpy pathlib platform random secrets shutil statistics subprocess tempfile torch
    typing_extensions urllib.parse uvloop zipfile
    aiodocadma._calibration aiodocadma._export aiodocadma._remote aiodocadma.advice aiodocadma.cli
    aiodocadma.doctor aiodocadma.emulator
    aiodocadma.integrations aiodocadma.peer aiodocadma.selftest aiodocadma.sync aiodocadma.testing
""".split()


def imported_by(statement: str) -> set[str]:
    """What a new interpreter has imported after it."""
    program = f"{statement}\nimport sys\nprint(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(result.stdout.split())


def test_no_heavy_module_that_asyncio_does_not_import_either() -> None:
    extra = imported_by("import aiodocadma") - imported_by("import asyncio")
    assert "aiodocadma._dma" in extra
    assert not extra.intersection(HEAVY)


@pytest.mark.parametrize("name", ["Advice", "ExportDescriptor", "advise", "calibrate"])
def test_names_that_come_later_are_there_at_once(name: str) -> None:
    program = f"import aiodocadma; assert {name!r} in dir(aiodocadma); print(aiodocadma.{name}.__name__)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == f"{name}\n"
    assert name in aiodocadma.__all__


def test_other_names_are_missed_as_in_any_module() -> None:
    with pytest.raises(AttributeError, match="'aiodocadma' has no attribute 'advice_'"):
        operator.attrgetter("advice_")(aiodocadma)
