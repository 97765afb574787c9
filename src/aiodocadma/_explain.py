"""What an error code of DOCA means, which causes it can have, what to do: the classifier's tables, for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from aiodocadma._causes import Cause, candidates, meaning, next_step
from aiodocadma.exceptions import DocaError

__all__ = ["codes", "explain", "number_of", "paragraphs"]

_PREFIX = "DOCA_ERROR_"
_WIDTH = 88


def codes() -> list[int]:
    """Every error code that has a class."""
    return sorted(DocaError._by_code)


def number_of(text: str) -> int:
    """
    Read a code.

    Args:
        text: Its name, with or without ``DOCA_ERROR_``, in any case, or its number.

    Returns:
        The number.

    Raises:
        ValueError: If there is no such code.

    Source: ``doca_error_t``.
    """
    names = {DocaError._by_code[code].name: code for code in codes()}
    name = text.strip().upper().removeprefix(_PREFIX)
    code = int(name) if name.isascii() and name.isdigit() else names.get(_PREFIX + name)
    if code not in DocaError._by_code:
        raise ValueError(f"no error of DOCA: {text!r}; there are {', '.join(n.removeprefix(_PREFIX) for n in names)}")
    return code


def paragraphs(code: int) -> Iterator[tuple[str, Cause | None]]:
    """
    What is to be said of a code, the words of its exceptions.

    Args:
        code: A known one.

    Yields:
        A paragraph; and the cause that it belongs to, if it is one's.

    Source: aiodocadma.
    """
    yield meaning(code), None
    if code == 5:
        yield "It is the one code after which the same call may succeed with nothing changed.", None
    for cause in candidates(code):
        yield cause.text, cause
    yield next_step(code), None


def explain(code: int) -> str:
    """
    Explain a code, as ``aiodocadma explain`` prints it.

    Args:
        code: A known one.

    Returns:
        Lines of text.

    Source: aiodocadma.
    """
    kind = DocaError._by_code[code]
    *head, (last, _) = paragraphs(code)
    lines = [f"{kind.name} ({code}), aiodocadma.exceptions.{kind.__name__}", ""]
    causes = [(text, cause) for text, cause in head if cause is not None]
    lines += [text for text, cause in head if cause is None]
    if causes:
        lines += ["", "Causes, in the order in which they are looked for:"]
    for text, cause in causes:
        where = "any phase" if len(cause.phases) == 6 else ", ".join(cause.phases)
        rule = f", rule {cause.rule}" if cause.rule else ""
        lines += ["", f"  {cause.name}  ({where}; layer {cause.layer}{rule})"]
        lines += textwrap.wrap(text, _WIDTH, initial_indent="    ", subsequent_indent="    ")
        lines += textwrap.wrap(cause.next_step, _WIDTH, initial_indent="    -> ", subsequent_indent="       ")
    lines += ["", "Where no cause is found:" if causes else "What to do:"]
    lines += textwrap.wrap(last, _WIDTH, initial_indent="    -> ", subsequent_indent="       ")
    return "\n".join(lines)
