"""The planted faults still apply, and the tests they are held against are there; ``tools/mutate`` runs them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SETS = {
    path.stem: tomllib.loads(path.read_text())["mutant"] for path in sorted((ROOT / "tools" / "mutants").glob("*.toml"))
}


def test_both_sets_are_found() -> None:
    assert set(SETS) == {"client", "emulator"}
    assert min(map(len, SETS.values())) >= 30


@pytest.mark.parametrize("mutants", SETS.values(), ids=SETS.keys())
def test_each_changes_one_place(mutants: list[dict[str, Any]]) -> None:
    times = {mutant["name"]: (ROOT / mutant["file"]).read_text().count(mutant["old"]) for mutant in mutants}
    assert len(times) == len(mutants)
    assert {name: count for name, count in times.items() if count != 1} == {}


def test_their_tests_exist() -> None:
    names = {test for mutant in SETS["client"] for test in mutant["tests"] if not test.startswith("ctest:")}
    missing = []
    for name in sorted(names):
        path, _, function = name.partition("::")
        text = (ROOT / path).read_text()
        if function and not re.search(rf"^(async )?def {function}\(", text, re.MULTILINE):
            missing.append(name)
    assert not missing
