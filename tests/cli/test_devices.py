"""``aiodocadma devices`` as a process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from .conftest import DEADLINE, Run

FIELDS = {"pci_address", "ibdev_name", "iface_name", "dma_supported", "reason", "emulated", "library", "version"}
CAPABILITIES = {"max_buf_size", "max_buf_list_len", "max_num_tasks", "export_pci", "create_from_export_pci"}


def test_json(run: Run) -> None:
    result = run("devices", "--json")
    assert result.returncode == 0, result.stderr
    records = json.loads(result.stdout)
    assert any(record["dma_supported"] for record in records)
    for record in records:
        assert record.keys() == FIELDS
        assert (record["reason"] is None) == record["dma_supported"]


def test_json_with_caps(run: Run) -> None:
    records = json.loads(run("devices", "--caps", "--json").stdout)
    for record in records:
        assert record.keys() == FIELDS | {"capabilities"}
        if record["dma_supported"]:
            assert record["capabilities"].keys() == CAPABILITIES
            assert record["capabilities"]["max_buf_size"] > 0


def test_text_names_every_device(run: Run) -> None:
    records = json.loads(run("devices", "--json").stdout)
    text = run("devices", "--caps").stdout
    for record in records:
        assert record["pci_address"] in text
        assert record["dma_supported"] or f"no: {record['reason']}" in text
    assert "max_buf_size" in text
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
