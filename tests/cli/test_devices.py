"""``aiodocadma devices`` as a process."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import DEADLINE, Run

FIELDS = {"pci_address", "ibdev_name", "iface_name", "dma_supported", "reason", "emulated", "library", "version"}
QUERIES = {
    "doca_dma": {
        "task_memcpy_is_supported",
        "task_memcpy_get_max_buf_size",
        "task_memcpy_get_max_buf_list_len",
        "get_max_num_tasks",
    },
    "doca_mmap": {"is_export_pci_supported", "is_create_from_export_pci_supported"},
}


def test_json(run: Run) -> None:
    result = run("devices", "--json")
    assert result.returncode == 0, result.stderr
    records = json.loads(result.stdout)
    assert any(record["dma_supported"] for record in records)
    for record in records:
        assert record.keys() == FIELDS
        assert (record["reason"] is None) == record["dma_supported"]


@pytest.mark.rule("R72", "R109", "R110", "R111", "R130")
def test_json_with_caps(run: Run) -> None:
    """The capability-snapshot schema, with nothing of our own but what is under one key; no value is unknown."""
    snapshot = json.loads(run("devices", "--caps", "--json").stdout)
    assert snapshot.keys() == {"snapshot_at", "doca_version", "host_kind", "devices", "x_aiodocadma"}
    taken = datetime.datetime.fromisoformat(snapshot["snapshot_at"])
    assert abs(datetime.datetime.now(datetime.UTC) - taken) < datetime.timedelta(minutes=1)
    assert snapshot["host_kind"] in ("host", "dpu")
    assert snapshot["devices"]
    for device, own in zip(snapshot["devices"], snapshot["x_aiodocadma"]["devices"], strict=True):
        assert device.keys() == {"pcie_address", "library_capabilities"}
        assert device["pcie_address"] == own["pci_address"]
        assert own.keys() == FIELDS
        answers = device["library_capabilities"]
        assert answers["doca_dma"]["task_memcpy_is_supported"] == own["dma_supported"]
        if own["dma_supported"]:
            assert {library: values.keys() for library, values in answers.items()} == QUERIES
            assert all(value is not None for values in answers.values() for value in values.values())
            assert answers["doca_dma"]["get_max_num_tasks"] > 0


@pytest.mark.rule("R71")
def test_text_names_every_device(run: Run) -> None:
    records = json.loads(run("devices", "--json").stdout)
    text = run("devices", "--caps").stdout
    for record in records:
        assert record["pci_address"] in text
        assert f"version {record['version']}" in text or record["version"] is None
        assert record["dma_supported"] or f"no: {record['reason']}" in text
    assert "max_buf_size" in text
    assert "unknown" not in text
    assert ("emulator" in text) == any(record["emulated"] for record in records)


def test_no_library(run: Run) -> None:
    result = run("devices", "--library", "/nonexistent/libdoca.so")
    assert result.returncode == 3
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "/nonexistent/libdoca.so" in result.stderr


def test_reader_of_stdout_has_gone() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "aiodocadma", "devices"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, stderr = process.communicate(timeout=DEADLINE)
    assert (process.returncode, stderr) == (1, "")


def test_the_installed_script() -> None:
    script = Path(sys.executable).with_name("aiodocadma")
    result = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=DEADLINE, check=True)
    assert result.stdout.startswith("aiodocadma ")
