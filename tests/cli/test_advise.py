"""``aiodocadma advise`` as a process."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from .conftest import Run


@pytest.fixture
def nothing(tmp_path: Path) -> dict[str, str]:
    """An environment in which no library can be loaded and nothing was measured."""
    return {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "AIODOCADMA_LIBRARY": "/nonexistent/libdoca_common.so"}


@pytest.mark.parametrize(
    ("arguments", "code", "route", "rule"),
    [
        ("local peer 4K", 0, "dma", "R17"),
        ("local local 4K", 3, "cpu", "R22"),
        ("local local 16M", 0, "dma", "R17"),
        ("local local 16M --registered", 0, "dma", "R19"),
        ("local local 64K --pattern once", 3, "cpu", "R22"),
        ("local peer 1M --peer network", 3, "rdma", "R18"),
        ("local peer 64 --pattern messages", 3, "comch", "R20"),
        ("local local 1M --chain sha --chain aes", 3, "chain", "R21"),
    ],
)
@pytest.mark.rule("R23", "R73")
def test_works_with_nothing_installed(
    arguments: str, code: int, route: str, rule: str, run: Run, nothing: dict[str, str]
) -> None:
    result = run("advise", *arguments.split(), "--json", env=nothing)
    assert (result.returncode, result.stderr) == (code, "")
    record = json.loads(result.stdout)
    assert (record["route"], record["rule"], record["use_dma"]) == (route, rule, code == 0)
    assert record["measured_at"] is None


@pytest.mark.rule("R90")
def test_a_network_is_refused_and_rdma_named(run: Run, nothing: dict[str, str]) -> None:
    result = run("advise", "local", "peer", "1M", "--peer", "network", env=nothing)
    assert result.returncode == 3
    assert result.stdout.startswith("Use RDMA (rule R18): the other side is across a network")


@pytest.mark.rule("R90")
def test_messages_are_refused_and_comch_named(run: Run, nothing: dict[str, str]) -> None:
    result = run("advise", "local", "peer", "64", "--pattern", "messages", env=nothing)
    assert result.returncode == 3
    assert result.stdout.startswith("Use Comch (rule R20): these are messages")


def test_what_does_not_fit_together_is_wrong_usage(run: Run, nothing: dict[str, str]) -> None:
    result = run("advise", "peer", "peer", "4K", env=nothing)
    assert result.returncode == 2
    assert "src and dst are both 'peer'" in result.stderr


def test_calibrating_without_a_library_fails_and_is_no_verdict(run: Run, nothing: dict[str, str]) -> None:
    result = run("advise", "local", "local", "4K", "--calibrate", env=nothing)
    assert (result.returncode, result.stdout) == (1, "")
    assert "cannot calibrate: /nonexistent/libdoca_common.so" in result.stderr


def test_calibrate_is_kept(run: Run, tmp_path: Path) -> None:
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    first = json.loads(run("advise", "local", "peer", "4K", "--calibrate", "--json", env=env).stdout)
    second = json.loads(run("advise", "local", "peer", "4K", "--json", env=env).stdout)
    assert first["measured_at"] == second["measured_at"] is not None
    assert first == second
