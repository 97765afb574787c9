"""Letting the library go while its threads run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from aiodocadma.emulator import emulator_path

# A program of its own: it opens the file, submits a copy, closes the file, and lives on until a worker has ended the
# copy, which makes the handle of the engine readable.
PROGRAM = """
import sys
from aiodocadma.testing.conformance._abi import Abi
from aiodocadma.testing.conformance._bed import Bed

abi = Abi(sys.argv[1])
bed = Bed(abi)
bed.configure("latency_real=10000")
bed.open()
bed.arm()
bed.copy(0, 0, 4096, 64)
for library in abi._libraries:
    abi.ffi.dlclose(library)
abi.control_ffi.dlclose(abi.control)
print("alive" if bed.readable(10) else "no worker is")
"""


@pytest.mark.parametrize("name", ["libdocaemu.so", "libdocaemu-2.6.so"])
def test_dlclose_with_a_context_running(name: str) -> None:
    path = Path(emulator_path()).with_name(name)
    done = subprocess.run([sys.executable, "-c", PROGRAM, path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
