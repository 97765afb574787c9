"""What the package's own text must not hold."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import aiodocadma
from aiodocadma import _sdk_log

ROOT = Path(__file__).parents[2]
PACKAGE = Path(aiodocadma.__file__).parent
PYTHON = sorted(PACKAGE.rglob("*.py"))
SHIM = sorted((ROOT / "native" / "shim").glob("*.[ch]"))

# What writes firmware or flips its settings, burns an image, resets a device, rescans a bus, or reboots.
CHANGES = (
    r"mlxconfig\b[^\n]*\b(set|reset|s)\b",
    r"\bmstconfig\b",
    r"\b(flint|mstflint)\b[^\n]*\b(burn|b|sg|smg|set_key|hw)\b",
    r"\bmlxfwreset\b|\bmstfwreset\b",
    r"\bmlxfwmanager\b|\bmlxburn\b|\bmlxprivhost\b",
    r"\bbfb-install\b|\bbfcfg\b|\bbfreset\b",
    r"\bdevlink\b[^\n]*\b(reload|flash|set|param)\b",
    r"\b(reboot|shutdown|poweroff|halt|kexec|init 6|ipmitool)\b",
    r"\bmodprobe\b|\brmmod\b|\binsmod\b",
    r"/sys/bus/pci[^\n\"']*/(rescan|remove|reset)|/sys/class/infiniband[^\n\"']*reset",
    r"\bgrub|\bsysctl -w\b",
    r"\bsudo\b|\bpkexec\b",
)
# Words for other things.
SAID_OF_OTHERS = re.compile(r"DOCA_ERROR_SHUTDOWN|\bSHUTDOWN\b|shut down|shutdown\(")


def texts() -> list[tuple[Path, str]]:
    """Every text that is installed, by file."""
    return [(path, path.read_text()) for path in PYTHON] + [(path, path.read_text()) for path in SHIM]


@pytest.mark.rule("R116", "R118")
@pytest.mark.parametrize("pattern", CHANGES)
def test_nothing_changes_the_machine(pattern: str) -> None:
    """No command in the package writes firmware, burns, flips a mode, resets, rescans or reboots."""
    found = [
        f"{path.name}: {match[0]}"
        for path, text in texts()
        for match in re.finditer(pattern, SAID_OF_OTHERS.sub("", text), re.IGNORECASE)
    ]
    assert not found


def test_such_commands_would_be_found() -> None:
    commands = [
        "mlxconfig -d 03:00.0 set X=1",
        "mstconfig q",
        "flint -d 03:00.0 -i fw.bin burn",
        "mlxfwreset -d 03:00.0 reset",
        "mlxfwmanager -u",
        "bfb-install --bfb x --rshim rshim0",
        "devlink dev reload pci/0000:03:00.0",
        "systemctl reboot",
        "modprobe -r mlx5_core",
        "echo 1 > /sys/bus/pci/rescan",
        "grub-mkconfig",
        "sudo true",
    ]
    for command, pattern in zip(commands, CHANGES, strict=True):
        assert re.search(pattern, command, re.IGNORECASE), command


@pytest.mark.rule("R08")
def test_no_model_of_a_card_decides() -> None:
    """Model names are in the emulator's profiles and in advice, where they are data; the client itself has none."""
    model = re.compile(r"\bbf-?[123]\b|\bbluefield-?[123]\b|\bconnectx\b", re.IGNORECASE)
    client = [path for path in PYTHON if path.parent == PACKAGE and path.name.startswith("_")]
    assert not [path.name for path in [*client, *SHIM] if model.search(path.read_text())]


@pytest.mark.rule("R27", "X15")
def test_reports_are_not_coalesced() -> None:
    assert not [path.name for path in SHIM if "OPTIMIZE_REPORTS" in path.read_text()]


@pytest.mark.rule("R137")
def test_no_address_of_documentation_is_in_the_code() -> None:
    assert not [path.name for path, text in texts() if re.search(r"https?://", text)]


@pytest.mark.rule("X18", "R53")
def test_log_levels_are_the_header_s() -> None:
    header = (ROOT / "native" / "include" / "doca_log.h").read_text()
    for name, number in _sdk_log.LEVELS.items():
        assert f"DOCA_LOG_LEVEL_{name} = {number}," in header


@pytest.mark.rule("X19", "X20")
def test_calls_that_are_no_symbols_are_not_asked_for() -> None:
    """Some are inline in the headers, one is named in prose only."""
    symbols = (ROOT / "native" / "shim" / "symbols.h").read_text()
    assert "doca_dma_destroy" in symbols
    assert "doca_buf_inventory_buf_get_by_args" in symbols
    assert "doca_version_runtime" in symbols
    for name in ("doca_ctx_destroy", "doca_buf_inventory_buf_get_by_addr", "buf_get_by_data", "doca_version)"):
        assert name not in symbols


def test_data_is_never_run() -> None:
    """Nothing that comes from a file, a peer or the environment becomes code or a shell's command."""
    banned = {
        *("pickle", "marshal", "shelve", "dill", "cloudpickle", "yaml"),
        *("eval", "exec", "compile", "system", "popen", "mktemp", "shell"),
    }
    found = set()
    for path in PYTHON:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names = {(node.module or "").partition(".")[0]}
            elif isinstance(node, ast.Call):
                function = node.func
                names = {function.id} if isinstance(function, ast.Name) else set()
                if isinstance(function, ast.Attribute) and function.attr != "compile":  # which is re's
                    names = {function.attr}
                names |= {keyword.arg or "" for keyword in node.keywords} & {"shell"}
            else:
                continue
            found |= {(path.name, name) for name in names & banned}
    assert not found
