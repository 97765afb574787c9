"""The doctor on fake installations: what it finds, in which schema, and how fast."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest

import aiodocadma
from aiodocadma.cli._doctor import report_lines
from aiodocadma.doctor import Report, examine

from .trees import CASES, DOCA, GOLDEN, Case, healthy, record

SCHEMAS = Path(aiodocadma.__file__).with_name("doctor") / "schemas"
# What nobody may be told to do: it changes firmware, needs root, or restarts something.
FORBIDDEN = (
    "sudo apt dnf yum dpkg rpm modprobe insmod rmmod mlxconfig mlxfwmanager mlxfwreset flint mstflint bfb-install "
    "reboot shutdown systemctl chmod chown usermod rshim --privileged"
).split()


def validate(value: Any, schema: str) -> None:
    """Check a record against one of the schemas that the package ships."""
    jsonschema.Draft202012Validator(json.loads((SCHEMAS / f"{schema}.json").read_text())).validate(value)


class Examined(NamedTuple):
    """A tree, and what came of looking at it."""

    case: Case
    report: Report
    record: dict[str, Any]
    seconds: float
    folder: Path
    changed: bool

    @property
    def by_name(self) -> dict[str, dict[str, Any]]:
        """The checks by name."""
        return {check.name: check.record() for check in self.report.checks}


def examined(case: Case, folder: Path) -> Examined:
    """Look at a tree in a new folder, and whether that leaves a trace."""

    def files() -> dict[Path, tuple[int, int]]:
        return {path: (path.lstat().st_mtime_ns, path.lstat().st_size) for path in folder.rglob("*")}

    system = case.make().system(folder)
    before = files()
    start = time.perf_counter()
    report = examine(system)
    found = record(report)
    return Examined(case, report, found, time.perf_counter() - start, folder, files() != before)


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def tree(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Examined:
    return examined(request.param, tmp_path_factory.mktemp(request.param.name))


@pytest.fixture
def find(tmp_path: Path) -> Callable[[str], Examined]:
    """Look at the tree of a name."""

    def find(name: str) -> Examined:
        folder = tmp_path / name
        folder.mkdir()
        return examined(next(case for case in CASES if case.name == name), folder)

    return find


Find = Callable[[str], Examined]


def test_there_are_enough_trees_and_a_record_of_each() -> None:
    assert len(CASES) >= 20
    assert {case.name for case in CASES} == {path.stem for path in GOLDEN.iterdir()}


@pytest.mark.rule("R102")
def test_finds_what_is_wrong_from_the_bottom_up(tree: Examined) -> None:
    checks = tree.report.checks
    assert {check.name for check in checks if check.status == "fail"} == tree.case.failing
    assert tree.report.lowest_failing_layer == tree.case.layer
    layers = [check.layer for check in checks]
    assert layers == sorted(layers)
    assert set(layers) == {1, 2, 3, 4, 5, 6, 7}
    assert all(check.remediation for check in checks if check.status == "fail")
    names = [check.name for check in checks]
    assert len(names) == len(set(names)), "a name means one check"


@pytest.mark.rule("R109", "R110", "R111")
def test_in_the_schemas(tree: Examined) -> None:
    """After a change of what is found: ``python -m tests.doctor.trees``, and read the diff."""
    validate(tree.report.env(), "env")
    validate(tree.report.state(), "state")
    assert tree.record == json.loads((GOLDEN / f"{tree.case.name}.json").read_text())


@pytest.mark.rule("R108")
def test_only_reads_and_takes_less_than_two_seconds(tree: Examined) -> None:
    assert not tree.changed
    assert tree.seconds < 2
    assert tree.report.method.startswith("manual chain")


@pytest.mark.rule("R115")
def test_advises_nothing_that_changes_firmware_or_needs_root(tree: Examined) -> None:
    text = "\n".join(report_lines(tree.report)).lower()
    words = set(re.findall(r"[\w/.-]+", text))
    assert not words & set(FORBIDDEN)
    assert "as root" not in text


@pytest.mark.rule("R35", "X20")
def test_drift_names_file_and_line(find: Find) -> None:
    found = find("header_drift")
    details = found.by_name["interface"]["details"]
    for name, declaration in (("doca_error.h", "DOCA_ERROR_AGAIN = 6"), ("doca_dma.h", "doca_dma_create(")):
        lines = (found.folder / "opt/mellanox/doca/include" / name).read_text().splitlines()
        line = 1 + next(index for index, text in enumerate(lines) if text.strip().startswith(declaration))
        assert f"/opt/mellanox/doca/include/{name}:{line}: " in details
    assert "DOCA_ERROR_AGAIN is 6, aiodocadma was built with 5" in details


@pytest.mark.rule("R35", "R127")
@pytest.mark.parametrize(
    ("name", "symbol", "where"),
    [("headers_of_a_later_release", "doca_task_submit_ex", "remediation"), ("too_old", "doca_pe_create", "details")],
)
def test_what_headers_declare_and_the_library_lacks(name: str, symbol: str, where: str, find: Find) -> None:
    found = find(name)
    lines = (found.folder / "opt/mellanox/doca/include/doca_pe.h").read_text().splitlines()
    line = 1 + next(index for index, text in enumerate(lines) if text.startswith(f"{symbol}("))
    text = found.by_name["symbols of libdoca_common"][where]
    assert f"{symbol} (declared in /opt/mellanox/doca/include/doca_pe.h:{line})" in text


@pytest.mark.rule("R93")
def test_absent_is_not_disagreeing(find: Find) -> None:
    found = find("runtime_only")
    assert found.record["version"]["consistent"] is True
    assert found.record["x_aiodocadma"]["versions"]["verdict"] == "partial"
    assert found.record["x_aiodocadma"]["versions"]["missing"] == ["applications", "header", "doca_caps"]
    assert "doca-samples" in found.by_name["applications folder"]["remediation"]


@pytest.mark.rule("R34")
def test_a_stale_pc_is_named(find: Find) -> None:
    found = find("stale_pc")
    assert found.record["version"]["consistent"] is False
    assert found.record["x_aiodocadma"]["versions"]["skew"] == ["pkg-config doca-common", "pkg-config doca-dma"]
    check = found.by_name["versions agree"]
    assert "2.9.4005 (2.9.4 build 5)" in check["details"]
    assert "doca-dma.pc" in check["details"]
    assert "stale" in check["remediation"]


@pytest.mark.rule("R94", "R98")
def test_both_installs_are_listed(find: Find) -> None:
    found = find("two_installs")
    visible = found.record["x_aiodocadma"]["visible_libraries"]
    assert [name.rpartition("/")[0] for name in visible[:2]] == [
        "/home/user/doca/lib",
        "/opt/mellanox/doca/lib/x86_64-linux-gnu",
    ]
    assert "stale" not in found.by_name["versions agree"]["remediation"]


@pytest.mark.rule("R94")
def test_the_library_really_mapped_is_named(find: Find) -> None:
    check = find("other_library_in_memory").by_name["library in memory"]
    assert "/tmp/trace/libdoca_common.so.3.0.0058" in check["details"]


@pytest.mark.rule("R101")
def test_a_container_expects_no_device(find: Find) -> None:
    check = find("container_with_doca").by_name["devices"]
    assert check["status"] == "skip"
    assert "emulator" in check["remediation"]


@pytest.mark.rule("R92", "R114")
def test_the_side_of_the_card(find: Find) -> None:
    found = find("bluefield")
    assert (found.record["host_kind"], found.record["bf_mode"]) == ("dpu", "dpu")
    assert found.record["version"]["bfb"].startswith("bf-bundle-3.0.0")
    assert [device["kind"] for device in found.record["devices"]] == ["pf", "representor"]


@pytest.mark.parametrize(("name", "kind"), [("container_with_doca", "none"), ("full_3_3", "sysfs")])
def test_devices_come_from_sysfs(name: str, kind: str, find: Find) -> None:
    assert bool(find(name).record["devices"]) == (kind == "sysfs")


@pytest.mark.rule("R91", "R103")
def test_an_unreadable_log_is_not_a_clean_one(find: Find) -> None:
    check = find("full_3_0").by_name["kernel log"]
    assert (check["status"], check["details"]) == ("skip", "absent, which does not mean clean")


@pytest.mark.rule("R117")
def test_two_sides_can_be_diffed(find: Find) -> None:
    sides = [find(name).report.state() for name in ("full_3_0", "bluefield")]
    assert sides[0].keys() == sides[1].keys()
    assert [side["side"] for side in sides] == ["host", "dpu"]


@pytest.mark.rule("R96", "R113")
def test_the_hardware_layer_is_read(find: Find) -> None:
    found = find("full_3_0")
    assert found.by_name["card"]["details"] == "0000:3b:00.0"
    assert found.by_name["drivers"]["details"] == "mlx5_core, mlx5_ib"
    assert found.by_name["device nodes"]["details"] == "/dev/infiniband/uverbs0"
    assert found.by_name["firmware"]["details"] == "32.43.1014"
    assert found.report.state()["firmware_version"] == "32.43.1014"


@pytest.mark.rule("R54")
def test_places_are_found_out_and_not_listed(tmp_path: Path) -> None:
    """All of DOCA in folders that nobody has heard of: pkg-config and the linker's configuration lead there."""
    tree = healthy(libdir="/srv/nv/lib")
    tree.remove("/opt/mellanox")
    tree.files = {
        name: data.replace(f"prefix={DOCA}", "prefix=/srv/nv")
        if name.endswith(".pc") and isinstance(data, str)
        else data
        for name, data in tree.files.items()
    }
    tree.headers("/srv/nv/include")
    tree.environ["PKG_CONFIG_PATH"] = "/srv/nv/lib/pkgconfig"
    report = examine(tree.system(tmp_path))
    assert not [check for check in report.checks if check.status == "fail"]
    assert report.env()["x_aiodocadma"]["visible_libraries"][0] == "/srv/nv/lib/libdoca_common.so.3.0.0058"
    wheres = [anchor.where for anchor in report.verdict.anchors]
    assert "/srv/nv/include/doca_version.h" in wheres
    assert "/srv/nv/lib/pkgconfig/doca-dma.pc" in wheres
