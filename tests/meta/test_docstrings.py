"""Every public object has a docstring with all sections that apply, in order."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from aiodocadma.exceptions import DocaError

from .public import objects

SECTIONS = ("Args", "Attributes", "Returns", "Yields", "Raises", "Cancellation", "Source")


def signature(value: Any) -> inspect.Signature | None:
    """The signature, or None where C code has none."""
    try:
        return inspect.signature(value)
    except (TypeError, ValueError):
        return None


def parameters(value: Any) -> list[str]:
    """The names that Args must explain."""
    found = signature(value)
    if found is None:
        return []
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [n for n, p in found.parameters.items() if n not in ("self", "cls") and p.kind not in variadic]


@pytest.mark.parametrize(("name", "value"), [pytest.param(*pair, id=pair[0]) for pair in objects()])
def test_sections(name: str, value: Any) -> None:
    own = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    assert own, f"{name} has no docstring"
    doc = inspect.cleandoc(own)
    present = re.findall(rf"^({'|'.join(SECTIONS)}):", doc, re.MULTILINE)
    assert present == sorted(present, key=SECTIONS.index), f"{name}: sections are out of order"
    if isinstance(value, property):
        return
    is_code = inspect.isclass(value) and issubclass(value, DocaError) and value is not DocaError
    if is_code:
        assert value.name in doc, f"{name} does not name its code"
        return
    assert "Source" in present, f"{name} does not say where its meaning comes from (Source:)"
    own_init = not inspect.isclass(value) or "__init__" in vars(value)
    if own_init and parameters(value):
        assert "Args" in present or "Attributes" in present, f"{name} does not explain its arguments"
        for parameter in parameters(value):
            assert re.search(rf"^ +{parameter}:", doc, re.MULTILINE), f"{name} does not explain {parameter}"
    if inspect.isclass(value):
        return
    found = signature(value)
    if found is not None and found.return_annotation not in (None, "None", inspect.Signature.empty):
        assert "Returns" in present or "Yields" in present, f"{name} does not say what it returns"
    if inspect.iscoroutinefunction(value):
        assert "Cancellation" in present, f"{name} does not say what cancellation does"
