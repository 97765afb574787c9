"""Cases: how they are declared, found and run."""

from __future__ import annotations

import functools
import importlib
import json
import os
import re
import select
import signal
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from aiodocadma.testing.conformance import _rows
from aiodocadma.testing.conformance._abi import Abi
from aiodocadma.testing.conformance._bed import Bed, FailureError, SkipError
from aiodocadma.testing.conformance.rules import RULES

__all__ = ["Case", "Outcome", "Variant", "case", "cases", "row_of", "run_case", "run_isolated", "variants"]

ENGINES: Final = ("default", "worker", "manual")
_TIMEOUT: Final = 60.0


class Outcome(NamedTuple):
    """
    How a case ended.

    Attributes:
        name: The case's, with its variant in brackets.
        row: The rule it tests.
        outcome: ``pass``, ``fail`` or ``skip``.
        detail: Why, unless it passed.
        findings: Settings of the emulator that make it behave as this library.
        notes: Answers that no setting gives.

    Source: aiodocadma.
    """

    name: str
    row: str
    outcome: Literal["pass", "fail", "skip"]
    detail: str = ""
    findings: Mapping[str, str] = MappingProxyType({})
    notes: Mapping[str, str] = MappingProxyType({})


class Case(NamedTuple):
    """
    The test of one row.

    Attributes:
        name: It begins with ``test_`` and the row.
        row: The rule it tests.
        run: The test.
        engines: The emulator's engines it runs on.
        setting: Which setting chooses among the readings of the row, if it has several.
        readings: Their values.
        needs: Calls that older releases do not have, without ``doca_``.

    Source: aiodocadma.
    """

    name: str
    row: str
    run: Callable[[Bed], None]
    engines: tuple[str, ...]
    setting: str
    readings: tuple[str, ...]
    needs: tuple[str, ...] = ()


class Variant(NamedTuple):
    """
    A case under one engine and one reading; on a card there is one variant, and no choice.

    Attributes:
        case: Which case.
        engine: The emulator's engine.
        reading: The value of the case's setting, or None.

    Source: aiodocadma.
    """

    case: Case
    engine: str
    reading: str | None

    @property
    def name(self) -> str:
        """
        The case's name with what varies.

        Returns:
            Unique among all variants.

        Source: aiodocadma.
        """
        varies = [*([self.engine] if len(self.case.engines) > 1 else []), *([self.reading] if self.reading else [])]
        return f"{self.case.name}[{'-'.join(varies)}]" if varies else self.case.name


_cases: dict[str, Case] = {}


def row_of(name: str) -> str:
    """
    The row in the name of a test.

    Args:
        name: For example ``test_4_3_13_pool`` or ``test_4_1_mmap_start``.

    Returns:
        For example ``4.3.13`` or ``4.1.mmap_start``.

    Source: aiodocadma.
    """
    match = re.fullmatch(r"test_4_(\d+)_(?:(\d+a?)_\w+|([a-z]\w*))", name)
    if not match:
        raise ValueError(f"{name} has no row")
    return f"4.{match[1]}.{match[2] or match[3]}"


def case(
    *,
    engines: tuple[str, ...] = ("default",),
    setting: str = "",
    readings: tuple[str, ...] = (),
    needs: tuple[str, ...] = (),
) -> Callable[[Callable[[Bed], None]], Callable[[Bed], None]]:
    """
    Declare the test of a row.

    Args:
        engines: The emulator's engines it runs on.
        setting: Which setting chooses among the readings of the row, if it has several.
        readings: Their values.
        needs: Calls that older releases do not have, without ``doca_``.

    Returns:
        A decorator.

    Source: aiodocadma.
    """

    def declare(function: Callable[[Bed], None]) -> Callable[[Bed], None]:
        name = function.__name__
        _cases[name] = Case(name, row_of(name), function, engines, setting, readings, needs)
        return function

    return declare


@functools.cache
def cases() -> tuple[Case, ...]:
    """
    All cases.

    Returns:
        In the order of the rows.

    Source: aiodocadma.
    """
    for module in _rows.MODULES:
        importlib.import_module(f"{_rows.__name__}.{module}")
    order = {rule.row: i for i, rule in enumerate(RULES)}
    return tuple(sorted(_cases.values(), key=lambda case: (order.get(case.row, len(order)), case.name)))


def variants(abi: Abi, engines: tuple[str, ...] = ENGINES) -> Iterator[Variant]:
    """
    What there is to run.

    Args:
        abi: The library; only the emulator has engines and readings.
        engines: The emulator's engines wanted.

    Yields:
        In the order of the rows.

    Source: aiodocadma.
    """
    for one in cases():
        if not abi.emulated:
            yield Variant(one, one.engines[0], None)
            continue
        wanted = [engine for engine in one.engines if engine in engines] or [one.engines[0]]
        for engine in wanted:
            for reading in one.readings or (None,):
                yield Variant(one, engine, reading)


def run_case(abi: Abi, variant: Variant) -> Outcome:
    """
    Run a case in this process.

    Args:
        abi: The library.
        variant: What to run.

    Returns:
        How it ended; a case that fails may leave objects behind.

    Source: aiodocadma.
    """
    bed = Bed(abi, variant.engine, variant.reading)
    outcome: Literal["pass", "fail", "skip"] = "pass"
    detail = ""
    try:
        if abi.emulated:
            if abi.control.docaemu_reset():
                raise FailureError(f"an earlier case left {', '.join(bed.remains())}")
            setting = f" {variant.case.setting}={variant.reading}" if variant.reading else ""
            bed.configure(f"engine={variant.engine}{setting}")
        try:
            for call in variant.case.needs:
                if not bed.has(call):
                    raise SkipError(f"this library has no doca_{call}")
            variant.case.run(bed)
        finally:
            bed.close()
        if abi.emulated and bed.remains():
            raise FailureError(f"it leaves {', '.join(bed.remains())}")
    except SkipError as error:
        outcome, detail = "skip", str(error)
    except FailureError as error:
        outcome, detail = "fail", str(error)
    except Exception as error:
        outcome, detail = "fail", f"{type(error).__name__}: {error}"
    return Outcome(variant.name, variant.case.row, outcome, detail, bed.findings, bed.notes)


def run_isolated(choice: str, variant: Variant) -> Outcome:
    """
    Run a case in a process of its own: what crashes or hangs takes nothing else with it.

    Args:
        choice: Which library; it is loaded in that process only.
        variant: What to run.

    Returns:
        How it ended.

    Source: aiodocadma.
    """
    reader, writer = os.pipe()
    # An interrupt that comes in a hook of os.fork() is shown and lost.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            text = json.dumps(run_case(Abi(choice), variant))
            os.write(writer, text.encode())
        finally:
            os._exit(0)
    text = ""
    try:
        os.close(writer)
        with open(reader, encoding="utf-8") as pipe:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            if select.select([pipe], [], [], _TIMEOUT)[0]:
                text = pipe.read()
    finally:
        if not text:  # it hangs, or crashed, or nobody waits for it any more
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if text:
        return Outcome(*json.loads(text))
    killed = "ended without a result"
    if os.WIFSIGNALED(status):
        killed = f"was killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return Outcome(variant.name, variant.case.row, "fail", f"the process {killed}", {}, {})
