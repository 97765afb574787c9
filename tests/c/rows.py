"""
Which C test shows which rule.

A C test has the rows it shows in its name: ``test_4_3_1_2_one_step`` shows 4.3.1 and 4.3.2,
``test_4_1_pe_create__pe_destroy`` those of two calls. Run as a program, it lists the rules that need a C test and have
none.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from aiodocadma.testing.conformance import RULES

FOLDER = Path(__file__).parent


def rows_in(name: str) -> list[str]:
    """The rows in the name of a C test."""
    match = re.match(r"test_4_(\d+)_(?=[0-9])((?:\d+a?_)+)", name)
    if match:
        return [f"4.{match[1]}.{number}" for number in match[2].strip("_").split("_")]
    match = re.fullmatch(r"test_4_(\d+)_([a-z]\w*)", name)
    return [f"4.{match[1]}.{word}" for word in match[2].split("__")] if match else []


def c_tests() -> dict[str, list[str]]:
    """The C tests of each row, as file and name."""
    found: dict[str, list[str]] = {}
    for path in sorted(FOLDER.glob("test_*.c")):
        for name in re.findall(r"^(test_4\w+)\(\s*void\)$", path.read_text(), re.MULTILINE):
            for row in rows_in(name):
                found.setdefault(row, []).append(name)
    return found


def missing() -> list[str]:
    """Rules without a C test, of those that can have one."""
    tests = c_tests()
    return [rule.row for rule in RULES if not (rule.same_as or rule.untested or rule.peer) and rule.row not in tests]


def unknown() -> list[str]:
    """Rows in names of C tests that are no rules."""
    rows = {rule.row for rule in RULES}
    return [row for row in c_tests() if row not in rows]


if __name__ == "__main__":
    print("\n".join(missing() + [f"no rule: {row}" for row in unknown()]))
    sys.exit(bool(missing() or unknown()))
