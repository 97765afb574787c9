"""``aiodocadma config``: how C programs are built and run on the embedded emulator."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Final

from aiodocadma._library import emulator_folder
from aiodocadma.cli._exit import ExitCode
from aiodocadma.cli._options import Commands, add_command

_LIBRARIES: Final = ("doca_dma", "doca_argp", "doca_common")


def _cflags(root: Path) -> str:
    return shlex.join([f"-I{root / 'include'}"])


def _libs(root: Path) -> str:
    return shlex.join(
        [
            f"-L{root / 'sdk' / 'lib'}",
            "-Wl,--enable-new-dtags",
            f"-Wl,-rpath,{root / 'dropin'}",
            *(f"-l{library}" for library in _LIBRARIES),
        ]
    )


ITEMS: Final[dict[str, tuple[str, Callable[[Path], str]]]] = {
    "cflags": ("flags for the compiler", _cflags),
    "libs": ("flags for the linker; the program then finds the emulator by itself", _libs),
    "pkgconfigdir": (
        "folder with doca-common.pc, doca-dma.pc and doca-argp.pc, for PKG_CONFIG_PATH",
        lambda root: str(root / "sdk" / "lib" / "pkgconfig"),
    ),
    "libdir": ("folder to link with, for -L; not to run with", lambda root: str(root / "sdk" / "lib")),
    "dropindir": (
        "folder to run a program with that was linked with a real DOCA, for LD_LIBRARY_PATH",
        lambda root: str(root / "dropin"),
    ),
}


def print_config(args: argparse.Namespace) -> int:
    """
    Print what was asked for, one item a line.

    Args:
        args: ``json``; ``items``, keys of ``ITEMS``, at least one.

    Returns:
        The exit code.

    Raises:
        LibraryError: If this installation has no emulator.

    Source: aiodocadma.
    """
    if not args.items:
        args.usage_error("say what to print, see aiodocadma config --help")
    root = emulator_folder()
    values = {item: ITEMS[item][1](root) for item in args.items}
    print(json.dumps(values, indent=2) if args.json else "\n".join(values.values()))
    return ExitCode.DONE


def add_config(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "config",
        print_config,
        help="show how to build C programs on the emulator",
        description="Print what a C or C++ program is built and run with on the embedded emulator, one line for each "
        "option, for example: cc -o prog prog.c $(aiodocadma config --cflags --libs)",
        library=False,
    )
    for item, (what, _) in ITEMS.items():
        parser.add_argument(f"--{item}", dest="items", action="append_const", const=item, help=what)
    parser.set_defaults(items=[], usage_error=parser.error)
