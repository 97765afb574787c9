"""What kind of machine this is."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiodocadma._host import host_kind


@pytest.mark.rule("R114")
@pytest.mark.parametrize(
    ("file", "text", "kind"),
    [
        (None, "", "host"),
        ("etc/nvidia/bf-release", "BUNDLE=x", "dpu"),
        ("etc/mlnx-release", "DOCA_2.9.0_BSP_4.9.0_Ubuntu", "dpu"),
        ("sys/firmware/devicetree/base/model", "NVIDIA BlueField-2\0", "dpu"),
        ("sys/class/dmi/id/product_name", "BlueField-3 SmartNIC Main Card\n", "dpu"),
        ("sys/class/dmi/id/product_name", "PowerEdge R750\n", "host"),
    ],
)
def test_host_kind(tmp_path: Path, file: str | None, text: str, kind: str) -> None:
    if file is not None:
        path = tmp_path / file
        path.parent.mkdir(parents=True)
        path.write_text(text)
    assert host_kind(tmp_path) == kind
