"""
The conformance suite: one test per rule of the DOCA C ABI, against the emulator or against a card.

It calls the library through a binding of its own and nothing of the client, so what it shows is the library's. Each
test takes the codes it expects from its rule. Where sources of a rule disagree, the emulator is tested in every
setting; a card is asked, and its answers are written as a profile that the emulator loads::

    python -m aiodocadma.testing.conformance --library system --profile card.conf
    DOCAEMU_CONFIG_FILE=card.conf ./program
"""

from aiodocadma.testing.conformance._abi import Abi, LibraryMissingError
from aiodocadma.testing.conformance._runner import Case, Outcome, Variant, cases, run_case, run_isolated, variants
from aiodocadma.testing.conformance.rules import RULES, Rule

__all__ = [
    "RULES",
    "Abi",
    "Case",
    "LibraryMissingError",
    "Outcome",
    "Rule",
    "Variant",
    "cases",
    "run_case",
    "run_isolated",
    "variants",
]
