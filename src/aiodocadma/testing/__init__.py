"""
For the tests of programs that use aiodocadma: no card, faults at will, and a verdict on what the program did.

The pytest plugin's fixtures are made of this; without pytest, begin with ``checked_dma()``. In the subpackage
``conformance`` is the suite that a DOCA library, real or emulated, is held against.
"""

from aiodocadma.emulator import Fault
from aiodocadma.testing._checks import InvariantError, assert_no_leaks, assert_quiescent
from aiodocadma.testing._dma import checked_dma
from aiodocadma.testing._timing import Chaos, Schedule, VirtualClock

__all__ = [
    "Chaos",
    "Fault",
    "InvariantError",
    "Schedule",
    "VirtualClock",
    "assert_no_leaks",
    "assert_quiescent",
    "checked_dma",
]
