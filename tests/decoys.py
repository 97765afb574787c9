"""Libraries with the names, SONAMEs and version nodes of a real DOCA, in which every call only counts."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

LIBRARIES = ("common", "dma", "argp")
COUNTER = "decoy_calls"

_TABLE = Path(__file__).parents[1] / "native" / "emulator" / "doca_symbols.h"
_NODES = {"STABLE": "DOCA_2", "STABLE_LATER": "DOCA_2", "EXPERIMENTAL": "EXPERIMENTAL"}


def symbols(library: str) -> dict[str, str]:
    """The version node of each symbol of a DOCA library."""
    rows = re.findall(r"^DOCAEMU_SYMBOL\((\w+), (\w+), (\w+)\)$", _TABLE.read_text(), re.MULTILINE)
    return {name: _NODES[stability] for at, name, stability in rows if at == library}


def build(folder: Path) -> list[Path]:
    """Compile one decoy for each library into a folder, under the link name too; each call answers with an error."""
    paths = []
    for library in LIBRARIES:
        nodes: dict[str, list[str]] = {"DOCA_2": [COUNTER], "EXPERIMENTAL": []}
        source = f"int {COUNTER};\n"
        for name, node in symbols(library).items():
            nodes[node].append(name)
            source += f"int {name}(void) {{ {COUNTER}++; return 1; }}\n"
        script = folder / f"{library}.map"
        script.write_text(
            "".join(
                f"{node} {{\n" + "global:\n" * bool(names) + "".join(f"{name};\n" for name in names) + "};\n"
                for node, names in nodes.items()
            )
        )
        path = folder / f"libdoca_{library}.so.2"
        link = f"-Wl,-soname,{path.name},--version-script,{script}"
        subprocess.run(
            ["gcc", "-shared", "-fPIC", link, "-x", "c", "-", "-o", path],
            input=source,
            text=True,
            check=True,
        )
        path.with_suffix("").symlink_to(path.name)
        paths.append(path)
    return paths
