"""The doctor's parts: versions, a root, tools' output, headers, ELF, the bundle."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
import subprocess
from pathlib import Path

import pytest

from aiodocadma import _native, _versions
from aiodocadma._library import emulator_folder, open_library
from aiodocadma._redact import Redactor
from aiodocadma._root import Root
from aiodocadma._versions import Anchor, Version, verdict_of
from aiodocadma.cli._doctor import report_lines
from aiodocadma.doctor import Loaded, Output, System, examine, write_bundle
from aiodocadma.doctor._bundle import summary
from aiodocadma.doctor._elf import parse_elf
from aiodocadma.doctor._headers import parse_headers
from aiodocadma.doctor._system import _run
from aiodocadma.doctor._tools import caps_anchors, caps_devices

from .test_trees import validate
from .trees import CAPS, EMULATOR, NEW_LIST, OLD_LIST, Tree, bare, elf, healthy, labelled

# ---- versions


@pytest.mark.parametrize(
    ("text", "version", "shown"),
    [
        ("2.9.4005", (2, 9, 4, 5), "2.9.4 build 5"),
        ("3.0.0058", (3, 0, 0, 58), "3.0.0 build 58"),
        ("2.10.0087", (2, 10, 0, 87), "2.10.0 build 87"),
        ("3.2.1025-1", (3, 2, 1, 25), "3.2.1 build 25"),
        ("3.3.0", (3, 3, 0, None), "3.3.0"),
        ("2.9.4", (2, 9, 4, None), "2.9.4"),
        ("DOCA_2.9.0_BSP_4.9.0_Ubuntu_22.04-5.24-10.prod", (2, 9, 0, None), "2.9.0"),
        ("DOCA_v2.2.0_BSP_4.2.0_Ubuntu_22.04", (2, 2, 0, None), "2.2.0"),
        ("bf-bundle-3.2.0-113_25.10_ubuntu-22.04_prod", (3, 2, 0, None), "3.2.0"),
    ],
)
@pytest.mark.rule("R33", "R32")
def test_padded_versions(text: str, version: tuple[int, int, int, int | None], shown: str) -> None:
    parsed = Version.parse(text)
    assert parsed == version
    assert str(parsed) == shown


@pytest.mark.parametrize("text", ["", "none", "10", "1.2.3.4"])
def test_no_version(text: str) -> None:
    assert Version.parse(text) is None


def anchor(name: str, raw: str | None) -> Anchor:
    return Anchor.of(name, name, raw, None if raw is not None else "absent")


@pytest.mark.parametrize(
    ("raws", "kind", "consistent"),
    [
        (["3.0.0058", "3.0.0058"], "match", True),
        (["3.0.0058", "3.0.0"], "match", True),  # a build that is not told agrees with all
        (["3.0.0058", "3.0.0059"], "skew", False),
        (["3.0.0", "3.0.0058", "3.0.0060"], "skew", False),
        (["3.0.0058", None], "partial", None),
        (["3.0.0058", None, "3.0.0058"], "partial", True),
        (["2.9.4005", None, "2.9.3005"], "skew", False),
        (["2.9.4005", "2.9.4"], "match", True),
        ([None, None], "absent", None),
        (["3.0.0058", "what"], "partial", None),
    ],
)
@pytest.mark.rule("R33", "R93")
def test_the_verdict(raws: list[str | None], kind: str, consistent: bool | None) -> None:
    verdict = verdict_of(anchor(f"a{index}", raw) for index, raw in enumerate(raws))
    assert (verdict.kind, verdict.consistent) == (kind, consistent)
    assert (verdict.sentence is not None) == (kind == "skew")
    assert len(verdict.missing) == sum(raw is None or raw == "what" for raw in raws)


@pytest.mark.rule("R30")
def test_the_verdict_of_a_loaded_library_is_formed_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tree = healthy()
    tree.module("doca-dma", "2.9.4005")
    system = tree.system(tmp_path)
    monkeypatch.setattr(_versions, "Root", lambda: system.root)
    monkeypatch.setattr(subprocess, "Popen", None)  # no process may be started
    _versions._verdict.cache_clear()
    path = f"{tree.libdir}/libdoca_common.so.3.0.0058"
    try:
        verdict = _versions._verdict(path, "3.0.0058")
        (tmp_path / f"{tree.libdir}/pkgconfig/doca-dma.pc".lstrip("/")).unlink()
        assert _versions._verdict(path, "3.0.0058") is verdict
    finally:
        _versions._verdict.cache_clear()
    assert verdict.consistent is False
    assert verdict.sentence is not None
    assert verdict.sentence.startswith("pkg-config doca-common says 3.0.0058")
    assert "doca-dma.pc" in verdict.sentence


def test_the_emulator_is_of_one_piece() -> None:
    verdict = _versions.verdict(open_library("emulator"))
    assert (verdict.anchors, verdict.consistent, verdict.sentence) == ((), None, None)


def test_the_emulators_modules_are_known_by_themselves() -> None:
    environ = {"PKG_CONFIG_PATH": str(emulator_folder() / "sdk" / "lib" / "pkgconfig")}
    ours = _versions.packages(Root(), environ, emulated=True)
    assert {"doca-common", "doca-dma", "doca-argp"} <= set(ours)
    assert _versions.include_folder(Root(), ours) == str(emulator_folder() / "include")
    others = _versions.packages(Root(), environ).values()
    assert not {package.path for package in ours.values()} & {package.path for package in others}


# ---- files below a root


def test_links_do_not_lead_out(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (root / "etc" / "up").symlink_to("../../../secret")
    (root / "etc" / "absolute").symlink_to(tmp_path / "secret")
    (root / "etc" / "loop").symlink_to("loop")
    (root / "etc" / "ok").symlink_to("/etc/target")
    (root / "etc" / "target").write_text("ok")
    view = Root(root)
    assert view.read("/etc/up").problem == "absent"
    assert view.read("/etc/absolute").problem == "absent"
    assert view.read("/etc/ok").text == "ok"
    assert view.read("/etc/loop").text is None
    assert view.resolve("/etc/ok") == "/etc/target"


def test_the_kernels_own_files() -> None:
    live = Root()
    assert live.line("/proc/sys/kernel/osrelease") == os.uname().release
    assert live.read("/proc/self/maps").text
    assert live.read("/proc/self/status").text


def test_a_folder_and_a_fifo_are_unreadable(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    view = Root(tmp_path)
    assert view.read("/folder").problem == "unreadable"
    assert view.read("/fifo").text == ""  # and it did not wait


# ---- tools


def system_with(tmp_path: Path, **caps: str) -> System:
    tree = Tree(files={CAPS: ""}, caps={f"--{name.replace('_', '-')}": text for name, text in caps.items()})
    return tree.system(tmp_path)


@pytest.mark.parametrize("text", [OLD_LIST, NEW_LIST], ids=["2.6 to 3.0", "3.2"])
@pytest.mark.rule("R129", "R130", "X23")
def test_both_lists_of_devices(text: str, tmp_path: Path) -> None:
    devices, problem = caps_devices(system_with(tmp_path, list_devs=text))
    assert problem is None
    assert [device.pci_address for device in devices] == ["0000:3b:00.0"]
    assert devices[0].attributes["ibdev_name"] == "mlx5_0"
    assert devices[0].attributes["mac_addr"] == "b8:3f:d2:00:11:22"
    assert ("GID[0]" in devices[0].attributes) == (text is OLD_LIST)


@pytest.mark.parametrize("text", ["", "no devices\n", "Segmentation fault\n"])
@pytest.mark.rule("R129")
def test_an_empty_list_is_an_answer(text: str, tmp_path: Path) -> None:
    assert caps_devices(system_with(tmp_path, list_devs=text)) == ((), "doca_caps lists no device")


@pytest.mark.rule("R92")
def test_both_outputs_of_the_version(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one = caps_anchors(system_with(tmp_path / "a", version=bare("3.0.0058")))
    assert [anchor.raw for anchor in one] == ["3.0.0058"]
    two = caps_anchors(system_with(tmp_path / "b", version=labelled("2.9.0065", "3.0.0058")))
    assert [anchor.raw for anchor in two] == ["3.0.0058", "2.9.0065"]


@pytest.mark.rule("R97", "R100")
def test_only_what_reads_is_run_and_found_off_path(tmp_path: Path) -> None:
    system = system_with(tmp_path)
    assert system.find_tool("doca_caps") == CAPS
    relative = CAPS.rpartition("/")[0].lstrip("/")
    for path in (relative, f"./{relative}", ":"):  # of the current folder
        assert dataclasses.replace(system, environ={"PATH": path}).find_tool("doca_caps") == CAPS
    for command in (("/usr/bin/mlxconfig", "query"), ("/usr/bin/doca_caps", "--help"), ("/bin/sh", "--version")):
        with pytest.raises(ValueError, match="only read"):
            _run(*command)


def test_a_tool_that_hangs_or_fails(tmp_path: Path) -> None:
    tool = tmp_path / "doca_caps"
    tool.write_text("#!/bin/sh\necho 3.0.0058\n")
    tool.chmod(0o755)
    assert _run(str(tool), "--version") == Output("3.0.0058\n")
    tool.write_text("#!/bin/sh\nexit 3\n")
    assert _run(str(tool), "--version").problem == "ended with code 3"
    tool.write_text("#!/bin/sh\nexec sleep 60\n")
    assert _run(str(tool), "--version").problem == "did not answer within 0.7 s"


# ---- headers and libraries


def test_our_headers_are_understood() -> None:
    declared = parse_headers(Root(emulator_folder()), "/include")
    missing = [name for name in (*_native.required_symbols(), *_native.optional_symbols()) if name not in declared]
    assert not missing
    assert declared["DOCA_ERROR_AGAIN"].meaning == "5"
    assert declared["DOCA_ACCESS_FLAG_PCI_READ_WRITE"].meaning == "32"
    assert declared["doca_ctx_start"].meaning == "(struct doca_ctx *)"


def test_a_header_of_another_style(tmp_path: Path) -> None:
    (tmp_path / "doca_x.h").write_text(
        "/* enum { NOT_ME = 1 }; */\n#define MACRO(a) \\\n\tdoca_not_me(a);\n"
        'extern "C" {\nenum doca_x {\n\tDOCA_X_A,\n\tDOCA_X_B = 1u << 3, /* eight */\n\n\tDOCA_X_C\n};\n'
        "DOCA_STABLE doca_error_t doca_x_do(\n\tconst struct doca_x*,\n\tuint32_t  count, // how many\n"
        "\tenum doca_x);\n"
        "static inline int f(void) { return doca_x_do(a, b, c); }\n}\n"
    )
    declared = parse_headers(Root(tmp_path), "/")
    assert {name: (found.meaning, found.line) for name, found in declared.items()} == {
        "DOCA_X_A": ("0", 6),
        "DOCA_X_B": ("8", 7),
        "DOCA_X_C": ("9", 9),
        "doca_x_do": ("(const struct doca_x *, uint32_t, enum doca_x)", 11),
    }


def test_a_real_library_is_understood() -> None:
    parsed = parse_elf((emulator_folder() / "dropin" / "libdoca_dma.so.2").read_bytes())
    assert parsed is not None
    assert parsed.soname == "libdoca_dma.so.2"
    dma = {name for name in _native.required_symbols() if name.startswith("doca_dma_")}
    assert dma <= parsed.symbols
    assert parsed.machine == os.uname().machine


def test_damaged_libraries_are_none(tmp_path: Path) -> None:
    whole = elf("x86_64", "libdoca_dma.so.2", ["doca_dma_create"])
    assert parse_elf(whole) is not None
    for length in range(0, len(whole), 7):
        cut = parse_elf(whole[:length])
        assert cut is None or cut.symbols <= {"doca_dma_create"}
    assert parse_elf(b"#!/bin/sh\n") is None


# ---- the bundle

SECRETS = {
    "mac": "b8:3f:d2:00:11:22",
    "gid": "fe80:0000:0000:0000:ba3f:d2ff:fe00:1122",
    "guid": "b83f:d203:0000:1122",
    "ip": "192.0.2.7",
    "ipv6": "2001:db8::17",
    "descriptor": "00ff" * 20,
    "base64": "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWZnaGlqa2xtbm9wcXJzdHV2d3h5eg==",
    "pointer": "0x7f12deadbeef",
    "kernel pointer": "0xffff888123456000",
    "base64 with slashes": "/UJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWZnaGlqa2xtbm9wcXJzdHV2d3h5/w==",
    "user": "/home/alice/x",
}


@pytest.mark.rule("R106")
def test_secrets_are_replaced_and_the_rest_stays() -> None:
    redact = Redactor()
    for name, secret in SECRETS.items():
        hidden = "alice" if name == "user" else secret
        assert hidden not in redact(f"a {secret} b"), name
    kept = (
        "0000:3b:00.0 mlx5_0 3.0.0058 (3.0.0 build 58) 32.43.1014 5.15.0-122-generic 12:03:11 [    0.000100] "
        "bf-bundle-3.0.0-135_25.04_ubuntu-22.04_prod "
        "/opt/mellanox/doca/lib/x86_64-linux-gnu/pkgconfig/doca-common.pc "
        "/opt/somewhere/else/where/names/are/long/and/have/no/dots/in/them/at/all/lib 2026-11-30T10:51:09+00:00"
    )
    assert redact(kept) == kept
    again = redact(f"{SECRETS['mac']} {SECRETS['mac'].upper()} 00:00:00:00:00:01")
    first, second, other = (tag + ">" for tag in again.split(">")[:3])
    assert first.strip() == second.strip() != other.strip()


@pytest.mark.rule("R103", "R107")
def test_the_bundle(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    tree = healthy()
    tree.files["/dev/kmsg"] = "\n".join(f"6,1,1,-;mlx5_core {name} {secret}" for name, secret in SECRETS.items())
    report = examine(tree.system(tmp_path / "root"))
    folder = tmp_path / "bundle"
    before = os.umask(0)
    try:
        assert write_bundle(report, folder, {"output.txt": f"failed for {SECRETS['ip']}"}) == str(folder)
    finally:
        os.umask(before)
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*")}
    assert set(found) == {
        "program",
        "program/output.txt",
        "kernel",
        "kernel/kernel.log",
        "devices",
        "devices/env.json",
        "devices/state.json",
        "devices/doca_caps.txt",
        "absent.txt",
        "summary.txt",
    }
    for path in [folder, *found.values()]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path
    everything = "".join(path.read_text() for path in found.values() if path.is_file())
    for name, secret in SECRETS.items():
        assert secret not in everything, name
    validate(json.loads(found["devices/env.json"].read_text()), "env")
    validate(json.loads(found["devices/state.json"].read_text()), "state")
    assert "lowest failing layer: none" in found["summary.txt"].read_text()


@pytest.mark.parametrize(
    ("tree", "loaded", "shown"),
    [
        (Tree(), None, "DOCA none"),
        (Tree(), Loaded(error="no DOCA is installed"), "DOCA none"),
        (Tree(), EMULATOR, "DOCA 3.0.0058 (the emulator's)"),
        (Tree(), dataclasses.replace(EMULATOR, version=None), "DOCA of unknown version (the emulator's)"),
        (healthy("3.2.1025"), dataclasses.replace(EMULATOR, version=None), "DOCA of unknown version (the emulator's)"),
        (Tree(), Loaded("/srv/libdoca_common.so.2"), "DOCA of unknown version"),
        (healthy("3.2.1025"), Loaded("/srv/libdoca_common.so.2"), "DOCA 3.2.1025"),
    ],
)
def test_the_version_for_people(tmp_path: Path, tree: Tree, loaded: Loaded | None, shown: str) -> None:
    """No DOCA is not the same as one that does not tell, as that of 2.6."""
    report = examine(dataclasses.replace(tree.system(tmp_path), loaded=loaded))
    assert report.doca == shown
    assert next(report_lines(report)).split(", ")[1].partition(";")[0] == shown
    assert summary(report).split(", ")[1] == shown


@pytest.mark.rule("R103")
def test_what_is_absent_is_said(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    write_bundle(examine(Tree().system(tmp_path / "root")), tmp_path / "bundle")
    absent = (tmp_path / "bundle" / "absent.txt").read_text()
    for what in ("kernel.log", "doca_caps is not installed", "program", "doca-common.pc is absent"):
        assert what in absent


def test_the_bundle_overwrites_and_follows_nothing(tmp_path: Path) -> None:
    report = examine(Tree().system(tmp_path))
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to("target")
    (tmp_path / "dangling").symlink_to("elsewhere")
    for name in ("target", "link", "dangling"):
        with pytest.raises(FileExistsError):
            write_bundle(report, tmp_path / name)
    assert not list((tmp_path / "target").iterdir())
    assert not (tmp_path / "elsewhere").exists()
