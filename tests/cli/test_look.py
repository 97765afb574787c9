"""What all commands share: help, JSON, tables, colours on a terminal only, completion, the man page, DOCA's log."""

from __future__ import annotations

import argparse
import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.dma.conftest import OPTIONAL

from aiodocadma import cli
from aiodocadma.cli import _look, _top

ROOT = Path(__file__).parents[2]
COMMANDS = next(action.choices for action in cli._parser()._actions if isinstance(action, argparse._SubParsersAction))
RUN = [sys.executable, "-m", "aiodocadma"]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*RUN, *arguments], capture_output=True, text=True, timeout=50, env=os.environ | environment)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_takes_the_shared_options(command: str) -> None:
    options = {option for action in COMMANDS[command]._actions for option in action.option_strings}
    assert "--sdk-log-level" in options
    assert "--json" in options or command == "completion"  # a script is no result
    assert str(COMMANDS[command].epilog).startswith("exit codes: ")
    assert COMMANDS[command].description is not None


def test_json_of_config_and_explain() -> None:
    flags = json.loads(run("config", "--json", "--cflags", "--libdir").stdout)
    assert list(flags) == ["cflags", "libdir"]
    assert flags["cflags"] == run("config", "--cflags").stdout.strip()
    told = json.loads(run("explain", "--json", "17").stdout)
    assert (told["code"], told["name"]) == (17, "IO_FAILED")
    assert told["text"].strip() == run("explain", "17").stdout.strip()


def test_a_table() -> None:
    rows = [("a", "1", "x"), ("bbb", "200", "")]
    assert _look.table(("name", "n", "what"), rows, right=("n",)) == ["NAME    N  WHAT", "a       1  x", "bbb   200"]


@pytest.mark.parametrize(("width", "names"), [(80, "A B C D"), (17, "A B C D"), (16, "A C D"), (11, "C D"), (3, "C D")])
def test_a_table_leaves_out_what_does_not_fit(width: int, names: str) -> None:
    lines = _look.table("abcd", [["xxx", "xx", "xxx", "xxx"]], width=width, drop="ba")
    assert lines[0].split() == names.split()


@pytest.mark.parametrize("width", [40, 60, 80, 130])
def test_no_figure_of_top_is_cut_short(width: int) -> None:
    row = ("4711", "mlx5_0 #0 (emulated)", "running", "12.3 k", "48.1 MB", "0/256", "0", "7 us", "9 us", "0", "0", "0")
    lines = _look.table(_top.HEADER, [row], right=_top.NUMBERS, width=width, drop=_top.DROPPED)
    assert all(len(line) <= width for line in lines)
    assert "12.3 k" in lines[1]


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (999, "999"), (1000, "1.0 k"), (12_345, "12.3 k"), (4.5e6, "4.5 M"), (2e9, "2.0 G")]
)
def test_counts(number: float, text: str) -> None:
    assert _look.format_count(number) == text


@pytest.mark.parametrize(("seconds", "text"), [(None, "-"), (7e-6, "7 us"), (1.5e-3, "1.5 ms"), (2, "2.0 s")])
def test_times(seconds: float | None, text: str) -> None:
    assert _look.format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colours_on_a_terminal_only(environment: dict[str, str], coloured: bool) -> None:
    clean = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {"TERM": "xterm"} | environment
    ours, theirs = pty.openpty()
    subprocess.run([*RUN, "devices"], stdout=theirs, check=True, timeout=50, env=clean)
    os.close(theirs)
    shown = os.read(ours, 1 << 16)
    os.close(ours)
    assert (b"\x1b[1mPCI ADDRESS" in shown) is coloured
    assert (b"\x1b" in shown) is coloured
    assert "\x1b" not in run("devices").stdout


# ---- DOCA's log


def test_docas_log_on_stderr(tmp_path: Path) -> None:
    (tmp_path / "src").write_bytes(b"abc")
    copy = ("copy", "--library", "emulator", str(tmp_path / "src"), str(tmp_path / "dst"))
    config = {"DOCAEMU_CONFIG": "fault op=completion kind=fail status=IO_FAILED count=1"}
    # Where DOCA does not offer its log, that is what is said.
    words = "[DOCA]" if OPTIONAL["doca_log_backend_create_with_file_sdk"] else "this DOCA does not offer its log: "
    for options, environment, shown in (
        ((), {}, False),
        (("--sdk-log-level", "trace"), {}, True),
        ((), {"DOCA_LOG_LEVEL": "debug"}, True),
        ((), {"DOCA_LOG_LEVEL_SDK": "60"}, True),
        (("--sdk-log-level", "10"), {"DOCA_LOG_LEVEL": "debug"}, False),
    ):
        result = run(*copy, *options, **(config | environment))
        assert (words in result.stderr) is shown, (options, environment, result.stderr)
        assert words not in result.stdout
    result = run(*copy, "--sdk-log-level", "loud")
    assert result.returncode == 2
    assert "WARNING (40)" in result.stderr


# ---- completion and the man page


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="made with the argparse that came with Python 3.11")
def test_generated_files_are_up_to_date() -> None:
    result = subprocess.run(
        [sys.executable, ROOT / "tools" / "generate-cli", "--check"], capture_output=True, text=True
    )
    assert (result.returncode, result.stderr) == (0, "")


def complete(words: str) -> set[str]:
    """What bash offers after some words."""
    script = f"""
        source <({sys.executable} -m aiodocadma completion bash)
        COMP_LINE='{words}'; COMP_POINT=${{#COMP_LINE}}
        COMP_WORDS=({words}); [[ '{words}' == *' ' ]] && COMP_WORDS+=('')
        COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        spec=$(complete -p aiodocadma); function=${{spec#*-F }}; ${{function%% *}}
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=50)
    assert result.returncode == 0, result.stderr
    return set(result.stdout.split())


def test_bash_completes_commands_and_options() -> None:
    assert set(COMMANDS) <= complete("aiodocadma ")
    assert complete("aiodocadma dev") == {"devices"}
    assert {"--once", "--interval", "--json", "--sdk-log-level"} <= complete("aiodocadma top --")
    assert complete("aiodocadma completion f") == {"fish"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_takes_its_script(shell: str) -> None:
    script = run("completion", shell).stdout
    for command in COMMANDS:
        assert command in script
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    result = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, timeout=50)
    assert (result.returncode, result.stderr) == (0, "")


def test_the_man_page_is_installed_and_reads_well() -> None:
    page = Path(sys.prefix, "share", "man", "man1", "aiodocadma.1")
    assert page.read_text() == (ROOT / "docs" / "aiodocadma.1").read_text()
    if shutil.which("man") is None:
        pytest.skip("man is not installed")
    result = subprocess.run(
        ["man", "--warnings", "-l", page], capture_output=True, text=True, env=os.environ | {"MANWIDTH": "100"}
    )
    assert (result.returncode, result.stderr) == (0, "")
    for command in COMMANDS:
        assert f"aiodocadma {command}" in result.stdout
    assert "EXIT STATUS" in result.stdout
