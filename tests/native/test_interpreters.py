"""Where the extension loads: in a process's main interpreter with a GIL. Elsewhere it is refused, in one clear line."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Which order, which kind of sub-interpreter, how many; whatever was tried before, the main interpreter copies.
TRY = """
import asyncio, sys, threading
order, kind, rounds, in_thread = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "thread"
if sys.version_info >= (3, 13):
    import _interpreters as interpreters
    make = lambda: interpreters.create(kind)
else:
    import _xxsubinterpreters as interpreters
    make = lambda: interpreters.create(isolated=kind == "isolated")
CODE = f'''
import sys
sys.path[:] = {sys.path!r}
try:
    import aiodocadma
except ImportError as error:
    print(type(error).__name__, str(error).splitlines()[0], flush=True)
else:
    print("loaded", flush=True)
'''
if order == "main first":
    import aiodocadma
def sub():
    for _ in range(rounds):
        interpreter = make()
        interpreters.run_string(interpreter, CODE)
        interpreters.destroy(interpreter)
if in_thread:
    thread = threading.Thread(target=sub)
    thread.start()
    thread.join()
else:
    sub()
import aiodocadma
async def main():
    async with aiodocadma.open_dma(library="emulator") as dma:
        dst = bytearray(3)
        print(await dma.copy(b"abc", dst), dst)
asyncio.run(main())
"""
OURS = "ImportError aiodocadma works in the main interpreter only; this is a sub-interpreter"


@pytest.mark.parametrize(
    ("order", "kind", "thread"),
    [
        ("main first", "legacy", "main"),
        ("main first", "isolated", "thread"),
        ("sub first", "legacy", "thread"),
        ("sub first", "isolated", "main"),
    ],
)
def test_a_sub_interpreter_is_refused(order: str, kind: str, thread: str) -> None:
    """With a GIL of its own (``isolated``, from Python 3.12 on) as with the main one's; nothing is left broken."""
    done = subprocess.run(
        [sys.executable, "-c", TRY, order, kind, "2", thread], capture_output=True, text=True, timeout=30, check=False
    )
    *refused, copied = done.stdout.splitlines() or [""]
    assert copied == "3 bytearray(b'abc')", done.stderr
    assert refused == [OURS] * 2
    assert (done.returncode, done.stderr) == (0, "")


def test_the_free_threaded_build_is_refused(tmp_path: Path) -> None:
    """By the build, in one line; tried with an interpreter that says that it is one."""
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("needs cmake")
    for answer, stops in [("1", True), ("0", False)]:
        python = tmp_path / "python"
        python.write_text(f"#!/bin/sh\necho {answer}\n")
        python.chmod(0o755)
        done = subprocess.run(
            [cmake, f"-DPython_EXECUTABLE={python}", "-P", ROOT / "native" / "shim" / "gil.cmake"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode != 0) is stops
        assert ("aiodocadma needs a Python with a GIL" in done.stderr) is stops
    assert "include(gil.cmake)" in (ROOT / "native" / "shim" / "CMakeLists.txt").read_text()
