"""Every case of the conformance suite on the emulator, and on the system's DOCA where there is one."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from aiodocadma.testing.conformance import (
    RULES,
    Abi,
    LibraryMissingError,
    Variant,
    cases,
    run_case,
    run_isolated,
    variants,
)

EMULATOR = Abi("emulator")
NOT_TESTED = {rule.row for rule in RULES if rule.untested or rule.same_as}


@pytest.mark.parametrize("variant", [pytest.param(variant, id=variant.name) for variant in variants(EMULATOR)])
def test_emulator(variant: Variant) -> None:
    result = run_case(EMULATOR, variant)
    if result.outcome == "skip":
        pytest.skip(result.detail)
    assert result.outcome == "pass", result.detail


def test_system() -> None:
    try:
        abi = Abi("system")
    except LibraryMissingError as error:
        pytest.skip(str(error))
    failed = [result for variant in variants(abi) if (result := run_isolated("system", variant)).outcome == "fail"]
    assert not failed


def test_a_release_without_experimental_calls() -> None:
    old = Abi(str(Path(EMULATOR.path).with_name("libdocaemu-2.6.so")))
    results = [run_case(old, variant) for variant in variants(old, ("default",))]
    assert [result for result in results if result.outcome == "fail"] == []
    missing = {result.detail for result in results if result.detail.startswith("this library has no")}
    assert "this library has no doca_pe_set_event_mode" in missing
    assert len(missing) == 6


class Lacking(Abi):
    """A library without one of the experimental calls, which each came with a release of its own."""

    def __init__(self, call: str) -> None:
        super().__init__("emulator")
        self.call = call

    def __getattr__(self, name: str) -> Any:
        if name == f"doca_{self.call}":
            raise AttributeError(name)
        return super().__getattr__(name)


def experimental() -> list[str]:
    symbols = (Path(__file__).parents[2] / "native" / "emulator" / "doca_symbols.h").read_text()
    return re.findall(r"DOCAEMU_SYMBOL\(\w+, doca_(\w+), EXPERIMENTAL\)", symbols)


def test_a_release_without_one_experimental_call() -> None:
    tried = 0
    sources = {variant: inspect.getsource(variant.case.run) for variant in variants(EMULATOR, ("default",))}
    for call in experimental():
        using = [variant for variant, text in sources.items() if re.search(rf"(?:\b|doca_){call}\b", text)]
        results = [run_case(Lacking(call), variant) for variant in using]
        assert [result for result in results if result.outcome == "fail"] == [], call
        tried += len(results)
    assert tried > 10


def test_each_rule_has_one_case() -> None:
    assert sorted(case.row for case in cases()) == sorted(rule.row for rule in RULES if rule.row not in NOT_TESTED)
    rows = {rule.row for rule in RULES}
    assert all(rule.same_as in rows for rule in RULES if rule.same_as)
    settings = {rule.row: rule.setting for rule in RULES}
    assert all(settings[case.row] == case.setting for case in cases() if case.setting)


def test_no_case_uses_the_client() -> None:
    package = Path(__file__).parents[2] / "src" / "aiodocadma" / "testing" / "conformance"
    for path in package.rglob("*.py"):
        used = re.findall(r"^\s*(?:from|import) (aiodocadma[\w.]*)", path.read_text(), re.MULTILINE)
        assert all(name.startswith("aiodocadma.testing.conformance") for name in used), path
