"""The DOCA library that the other tests run on keeps DOCA's rules."""

import pytest

from aiodocadma.testing.conformance import Abi, Variant, run_case, variants

EMULATOR = Abi("emulator")


@pytest.mark.parametrize("variant", [*variants(EMULATOR, ("default",))], ids=lambda variant: variant.name)
def test_rule(variant: Variant) -> None:
    outcome = run_case(EMULATOR, variant)
    if outcome.outcome == "skip":
        pytest.skip(outcome.detail)
    assert outcome.outcome == "pass", outcome.detail
