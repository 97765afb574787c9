"""``aiodocadma selftest`` as a process."""

from __future__ import annotations

import json
import os
from pathlib import Path
from resource import RLIMIT_FSIZE, setrlimit
from typing import Any

import pytest

from ..doctor.test_trees import validate
from .conftest import Run

BROKEN = "fault op=completion kind=corrupt skip=1"


@pytest.fixture
def broken() -> dict[str, str]:
    """An environment whose engine corrupts the second copy and says that all is well."""
    return {**os.environ, "DOCAEMU_CONFIG": BROKEN}


def saved(path: Path, text: str) -> dict[str, Any]:
    path.write_text(text)
    record: dict[str, Any] = json.loads(text)
    validate(record, "validate")
    return record


@pytest.mark.rule("R83")
def test_text(run: Run) -> None:
    result = run("selftest")
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[:7]] == ["pass"] * 7
    assert lines[-1].startswith("On 20")
    assert "7 passed, 0 failed, 0 skipped" in lines[-1]
    assert "emulated" in lines[-1]


@pytest.mark.rule("R109")
def test_json(run: Run, tmp_path: Path) -> None:
    result = run("selftest", "--json")
    record = saved(tmp_path / "new.json", result.stdout)
    assert (result.returncode, record["result"], record["library"]) == (0, "pass", "doca-dma")


@pytest.mark.rule("R119")
def test_a_corrupt_copy_fails_it(run: Run, broken: dict[str, str]) -> None:
    result = run("selftest", env=broken)
    assert result.returncode == 1
    assert "fail  small copy: destination: byte 0 of 4096" in result.stdout


def test_nothing_to_open(run: Run) -> None:
    result = run("selftest", "--library", "/nonexistent/libdoca_common.so")
    assert result.returncode == 3
    assert "fail  open: /nonexistent/libdoca_common.so" in result.stdout


@pytest.mark.rule("R85", "R104")
def test_the_same_failure_twice_is_below_dma(run: Run, broken: dict[str, str], tmp_path: Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    result = run("selftest", "--json", env=broken, cwd=tmp_path)
    assert not saved(first, result.stdout)["x_aiodocadma"]["below_dma"]
    assert os.listdir(tmp_path) == ["first.json"]

    result = run("selftest", "--json", "--compare", first, env=broken, cwd=tmp_path)
    own = saved(second, result.stdout)["x_aiodocadma"]
    assert (result.returncode, own["outcome"], own["below_dma"]) == (1, "unchanged", True)
    assert "below DMA: the same failure twice" in result.stderr
    bundle = Path(own["bundle"])
    assert bundle.parent == tmp_path
    assert json.loads((bundle / "program" / "selftest.json").read_text())["result"] == "fail"
    validate(json.loads((bundle / "devices" / "env.json").read_text()), "env")

    result = run("selftest", "--compare", second, env=broken, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    assert "change something" in result.stderr


@pytest.mark.rule("R104")
def test_resolved(run: Run, broken: dict[str, str], tmp_path: Path) -> None:
    saved(tmp_path / "old.json", run("selftest", "--json", env=broken).stdout)
    result = run("selftest", "--compare", tmp_path / "old.json")
    assert result.returncode == 0
    assert "old.json: resolved." in result.stdout


def test_another_environment_is_not_the_same_twice(run: Run, broken: dict[str, str], tmp_path: Path) -> None:
    saved(tmp_path / "old.json", run("selftest", "--json", env=broken).stdout)
    other = {**broken, "DOCAEMU_CONFIG": f"{BROKEN}\ndevice mlx5_7"}
    result = run("selftest", "--json", "--compare", tmp_path / "old.json", env=other, cwd=tmp_path)
    own = json.loads(result.stdout)["x_aiodocadma"]
    assert (own["outcome"], own["below_dma"]) == ("unchanged", False)
    assert os.listdir(tmp_path) == ["old.json"]


def test_the_bundle_goes_where_it_is_told(run: Run, broken: dict[str, str], tmp_path: Path) -> None:
    result = run("selftest", "--bundle", tmp_path / "evidence", env=broken)
    assert result.returncode == 1
    assert (tmp_path / "evidence" / "program" / "selftest.json").exists()
    assert str(tmp_path / "evidence") in result.stderr


def test_the_result_counts_more_than_the_bundle(run: Run, broken: dict[str, str], tmp_path: Path) -> None:
    def full() -> None:
        setrlimit(RLIMIT_FSIZE, (100, 100))

    evidence = tmp_path / "evidence"
    for folder, options, why in ((tmp_path, {}, "File exists"), (evidence, {"preexec_fn": full}, "File too large")):
        result = run("selftest", "--json", "--bundle", folder, env=broken, **options)
        assert result.returncode == 1
        assert json.loads(result.stdout)["result"] == "fail"
        assert result.stderr == f"aiodocadma: no evidence was written: {folder}: {why}\n"
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("text", [b"", b"{}", b"[1]", b"[" * 100_000, b"\xca\x00"], ids=lambda text: repr(text)[:9])
def test_an_old_record_that_is_none(text: bytes, run: Run, tmp_path: Path) -> None:
    (tmp_path / "old.json").write_bytes(text)
    result = run("selftest", "--compare", tmp_path / "old.json")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"aiodocadma: {tmp_path / 'old.json'}: not a record of aiodocadma selftest --json\n"
