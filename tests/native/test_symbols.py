"""The extension and its symbol table: only public DOCA calls, only memcpy tasks, no private door to the emulator."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.native.test_library import symbols

import aiodocadma
from aiodocadma import _library, _shim

PROJECT = Path(__file__).parents[2]
PACKAGE = Path(aiodocadma.__file__).parent


def nm(path: str, *options: str) -> str:
    return subprocess.run(["nm", *options, path], capture_output=True, text=True, check=True).stdout


@pytest.mark.usefixtures("embedded_emulator")
@pytest.mark.rule("R77", "R127")
def test_every_symbol_of_the_client_is_the_emulators_too() -> None:
    """And in the right version node: what is required is stable in DOCA, what is optional is experimental."""
    exported = dict(
        line.split()[-1].split("@@")
        for line in nm(_library.emulator_path(), "-D", "--defined-only").splitlines()
        if "@@" in line
    )
    assert {exported.get(name) for _, name in symbols("REQUIRED")} == {"DOCA_2"}
    # A stable call, for memory of another device: whoever has none of that can do without it.
    optional = {name for _, name in symbols("OPTIONAL")} - {"doca_mmap_set_dmabuf_memrange"}
    assert {exported.get(name) for name in optional} == {"EXPERIMENTAL"}


def test_every_symbol_is_called_and_what_may_be_missing_documented() -> None:
    shim = "".join(path.read_text() for path in (PROJECT / "native" / "shim").glob("*.c"))
    names = {name for _, name in symbols("REQUIRED") + symbols("OPTIONAL")}
    assert not [name for name in names if not re.search(rf"->{name}\b", shim)]
    page = (PROJECT / "docs" / "how-to" / "first-hour-on-a-card.md").read_text()
    rows = re.findall(r"^\| (`doca_.*?) \|", page, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(name for _, name in symbols("OPTIONAL"))


@pytest.mark.rule("R09")
def test_memcpy_is_the_only_task_type() -> None:
    tasks = [name for _, name in symbols("REQUIRED") + symbols("OPTIONAL") if "doca_dma_task_" in name]
    assert tasks
    assert all("doca_dma_task_memcpy_" in name for name in tasks)


@pytest.mark.rule("R77")
def test_the_extension_links_no_doca_and_knows_no_emulator() -> None:
    path = str(_shim.__file__)
    undefined = nm(path, "-D", "--undefined-only")
    assert "doca" not in undefined
    strings = subprocess.run(["strings", "-a", path], capture_output=True, text=True, check=True).stdout
    assert "docaemu" not in strings
    assert "doca_pe_progress" in strings


def test_the_extension_is_one_abi3_module_with_nothing_but_its_init_exported() -> None:
    path = str(_shim.__file__)
    assert path.endswith(".abi3.so")
    exported = [line.split()[-1] for line in nm(path, "-D", "--defined-only").splitlines()]
    assert [name for name in exported if not name.startswith("_cffi")] == ["PyInit__shim"]


def test_python_api_is_in_one_file_of_the_shim() -> None:
    users = [path.name for path in (PROJECT / "native" / "shim").glob("*.[ch]") if "Python.h" in path.read_text()]
    assert users == ["fast.c"]


@pytest.mark.rule("R06")
def test_no_size_is_written_into_the_client() -> None:
    """
    C6: limits come from the device.

    Any literal of 512 and more in the client is listed here with what it is; none decides how a copy is cut.
    """
    allowed = {
        ("_native.py", "1024"): "room for the dynamic linker's message",
        ("_native.py", "1e9"): "nanoseconds",
        ("_registrar.py", "256 * 1024"): "QUICK_PIN_BYTES: a policy of registration",
        ("_registrar.py", "1 << 63"): "the end of numbers",
        ("_open.py", "128 * 1024 * 1024"): "CACHE_BYTES: a policy of registration",
        ("_open.py", "2048"): "CACHE_MAPS: likewise",
        ("_memlock.py", "1024"): "KiB of the system's own accounts",
        ("_engine.py", "108 * 1024"): "FAIR_WINDOW_BYTES: a policy, cut short by the device's limit",
        ("_engine.py", "12 * 1024"): "FAIR_BYTES: likewise",
        ("_engine.py", "64 * 1024"): "STRIPE_BYTES: likewise",
        ("_root.py", "64 * 1024"): "how much of a file is read at once",
        ("_root.py", "64 << 20"): "how much of a file is read at all",
        ("_versions.py", "1000"): "the patch's weight in a version",
        ("_export.py", "16 * 1024"): "MAX_DESCRIPTOR_BYTES: what arrives from a peer is bounded",
        ("_export.py", "32 * 1024"): "_MAX_VPD_BYTES: the format's own bound",
        ("_export.py", "1 << 64"): "what a length of DOCA's holds",
        ("_remote.py", "4096"): "SMOKE_BYTES: how much a first copy reads",
        ("_causes.py", "1 << 64"): "the end of the address space",
        ("_evidence.py", "1024"): "/proc counts in KiB",
        ("_evidence.py", "64 * 1024"): "KERNEL_LOG_BYTES: room for a log",
        ("_sdk_log.py", "64 * 1024"): "PIPE_BYTES: room for a log",
        ("log.c", "4096"): "a line of a log",
        ("recorder.h", "512"): "events that are kept",
        ("_evidence.py", "1 << 14"): "CAP_IPC_LOCK, a bit",
        ("context.c", "5 * 1000000000LL"): "a timeout",
        ("context.c", "1000000"): "nanoseconds",
        ("channel_impl.h", "1000000000LL"): "nanoseconds",
        ("fast.c", "UINT64_C(8) << 20"): "INLINE_BYTES: fairness of the loop",
        ("fast.c", "1024"): "INLINE_COPIES: likewise",
    }
    literal = re.compile(
        r"UINT64_C\(\d+\) ?<< ?\d+|\b\d+(?: \* \d+)+[uUlL]*|\b0x[0-9a-f]{3,}|\b\d{4,}[uUlL]*|\b[5-9]\d\d\b"
        r"|\d+ ?<< ?\d+|\b\d+e\d+"
    )
    measured = PACKAGE / "_calibration.py"  # its lengths are those that are measured, at the user's wish
    files = [*(PROJECT / "native" / "shim").glob("*.[ch]"), *(set(PACKAGE.glob("_*.py")) - {measured})]
    found = set()
    for path in files:
        comments = r"#[^\n]*|" if path.suffix == ".py" else ""  # in C, # begins a #define
        text = re.sub(comments + r"/\*.*?\*/|\"\"\".*?\"\"\"|\"[^\"\n]*\"", "", path.read_text(), flags=re.DOTALL)
        found |= {(path.name, match) for match in literal.findall(text)}
    assert found <= set(allowed), found - set(allowed)
    assert {key for key in allowed if key not in found} == set()
