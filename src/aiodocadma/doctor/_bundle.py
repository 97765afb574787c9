"""A folder of evidence for somebody who cannot log in here: redacted, readable by its owner only."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

from aiodocadma._redact import Redactor
from aiodocadma.doctor._kernel import kernel_log
from aiodocadma.doctor._report import Report
from aiodocadma.doctor._tools import caps_devices

__all__ = ["write_bundle"]


def write_bundle(report: Report, folder: str | os.PathLike[str], program: Mapping[str, str] | None = None) -> str:
    """
    Write what is known into a new folder: ``program``, ``kernel``, ``devices``, what is absent, and a summary to paste.

    IP, MAC and memory addresses, GIDs, descriptors and user names are replaced by tags. Folders get mode 0700 and files
    0600; nothing that exists is overwritten or followed. The folder appears whole or not at all.

    Args:
        report: The doctor's.
        folder: The new folder; its parent must exist.
        program: What the program that has the trouble printed, by file name.

    Returns:
        The folder's absolute path.

    Raises:
        OSError: If the folder exists or cannot be written; ``filename`` is the folder, whichever file it was.

    Source: NVIDIA's published rules for evidence; aiodocadma.
    """
    absent: list[str] = []
    log = kernel_log(report.system.root)
    if log.text is None:
        absent.append(f"kernel/kernel.log: the kernel's log is {log.problem} as this user, which does not mean clean")
    listed, problem = caps_devices(report.system)
    if problem is not None:
        absent.append(f"devices/doca_caps.txt: {problem}")
    if not program:
        absent.append("program: the program's own output was not given; run it with DOCA's log level at trace")
    absent += [f"version, {anchor.name}: {anchor.where} is {anchor.problem}" for anchor in report.verdict.missing]
    files: dict[str, dict[str, str]] = {
        "program": dict(program or {}),
        "kernel": {} if log.text is None else {"kernel.log": log.text + "\n"},
        "devices": {"env.json": _json(report.env()), "state.json": _json(report.state())},
        "": {"absent.txt": "".join(f"{line}\n" for line in absent), "summary.txt": summary(report)},
    }
    if listed:
        files["devices"]["doca_caps.txt"] = "".join(
            f"PCI: {device.pci_address}\n" + "".join(f"    {key} {value}\n" for key, value in device.attributes.items())
            for device in listed
        )
    redact = Redactor()
    with _whole(folder) as top:
        for name, contents in files.items():
            if name:
                os.mkdir(name, 0o700, dir_fd=top)
            for file, text in contents.items():
                _write(top, os.path.join(name, os.path.basename(file)), redact(text))
    return os.path.abspath(folder)


def summary(report: Report) -> str:
    """A few lines fit for a public forum."""
    failing = [check for check in report.checks if check.status == "fail"]
    layer = report.lowest_failing_layer
    state = report.state()
    lines = [
        f"aiodocadma {report.env()['x_aiodocadma']['aiodocadma_version']}, {report.doca}, "
        f"{state['side']}, {report.system.machine}, kernel {state['kernel_version'] or 'unknown'}",
        f"versions: {report.verdict.kind}; method: {report.method}",
        f"lowest failing layer: {f'{int(layer)} {layer.name.lower()}' if layer is not None else 'none'}",
        *(f"  {int(check.layer)} {check.name}: {check.details}" for check in failing),
    ]
    return "\n".join(lines) + "\n"


@contextlib.contextmanager
def _whole(folder: str | os.PathLike[str]) -> Iterator[int]:
    """A new folder, open; it gets its name when all is in it, and is removed otherwise, also when interrupted."""
    path = os.fspath(folder)
    temporary = os.path.join(os.path.dirname(path.rstrip("/")), f".aiodocadma-{secrets.token_hex(8)}")
    try:
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        os.mkdir(temporary, 0o700)
        try:
            top = os.open(temporary, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                yield top
            finally:
                os.close(top)
            os.rename(temporary, path)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    except OSError as error:
        error.filename, error.filename2 = path, None
        raise


def _json(record: dict[str, Any]) -> str:
    return json.dumps(record, indent=2) + "\n"


def _write(top: int, name: str, text: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(name, flags, 0o600, dir_fd=top), "w") as file:
        file.write(text)
