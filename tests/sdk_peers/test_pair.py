"""The C examples of host and DPU are built against the installed headers and talk to each other."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from aiodocadma._library import emulator_path

EXAMPLES = Path(__file__).parents[2] / "examples" / "c"


def expected(program: str) -> list[str]:
    """The lines that a program's header comment says it prints."""
    header = (EXAMPLES / f"{program}.c").read_text().split("*/")[1]
    _, _, lines = header.rpartition("rints:\n")
    return [line.removeprefix(" *").strip() for line in lines.splitlines() if line.strip(" *")]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile both programs with every warning an error."""
    folder = tmp_path_factory.mktemp("pair")
    library = Path(emulator_path())
    for program in ("host_export", "dpu_import"):
        command = ["gcc", "-std=c11", "-D_DEFAULT_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror"]
        command += [f"-I{library.parents[1] / 'include'}", str(EXAMPLES / f"{program}.c"), "-o", str(folder / program)]
        command += [f"-L{library.parent}", "-ldocaemu", f"-Wl,-rpath,{library.parent}"]
        subprocess.run(command, check=True)
    return folder


def start_host(build: Path, descriptor: Path) -> subprocess.Popen[str]:
    host = subprocess.Popen([build / "host_export", descriptor], stdin=-1, stdout=-1, stderr=-1, text=True)
    assert host.stdout is not None
    assert host.stdout.readline().strip() == expected("host_export")[0]
    return host


def run_dpu(build: Path, descriptor: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([build / "dpu_import", descriptor], capture_output=True, text=True, timeout=30)


def test_host_and_dpu(build: Path, tmp_path: Path) -> None:
    with start_host(build, tmp_path / "descriptor") as host:
        dpu = run_dpu(build, tmp_path / "descriptor")
        stdout, stderr = host.communicate("\n", timeout=30)
    assert dpu.stderr == stderr == ""
    assert dpu.stdout.splitlines() == expected("dpu_import")
    assert stdout.splitlines() == expected("host_export")[1:]
    assert (dpu.returncode, host.returncode) == (0, 0)
    assert len((tmp_path / "descriptor").read_bytes()) <= 512
    assert (tmp_path / "descriptor").stat().st_mode & 0o077 == 0


def test_the_host_is_gone(build: Path, tmp_path: Path) -> None:
    with start_host(build, tmp_path / "descriptor") as host:
        host.kill()
    started = time.monotonic()
    dpu = run_dpu(build, tmp_path / "descriptor")
    assert dpu.returncode == 1
    assert "doca_mmap_create_from_export" in dpu.stderr
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("size", [0, 1, 100, 223, 225, 1000])
def test_a_damaged_descriptor(build: Path, tmp_path: Path, size: int) -> None:
    descriptor = tmp_path / "descriptor"
    with start_host(build, descriptor) as host:
        descriptor.write_bytes((descriptor.read_bytes() * 5)[:size])
        dpu = run_dpu(build, descriptor)
        host.communicate("\n", timeout=30)
    assert dpu.returncode == 1
    assert "Invalid" in dpu.stderr or "invalid" in dpu.stderr
