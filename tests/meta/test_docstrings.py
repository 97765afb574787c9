"""Every public object has a docstring with all sections that apply, in order."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
from types import ModuleType
from typing import Any

import pytest

import aiodocadma
from aiodocadma.exceptions import DocaError

from .public import modules, objects

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


def fields(value: Any) -> list[str]:
    """The names of a record or an enumeration that Args or Attributes must explain."""
    if not inspect.isclass(value):
        return []
    if issubclass(value, enum.Enum):
        return [member.name for member in value]
    found = [field.name for field in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else []
    return [name for name in [*found, *getattr(value, "_fields", ())] if not name.startswith("_")]


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.__name__)
def test_each_module_says_what_it_is_for(module: ModuleType) -> None:
    assert module.__doc__


@pytest.mark.parametrize(("name", "value"), [pytest.param(*pair, id=pair[0]) for pair in objects()])
def test_sections(name: str, value: Any) -> None:
    own = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    assert own, f"{name} has no docstring"
    doc = inspect.cleandoc(own)
    present = re.findall(rf"^({'|'.join(SECTIONS)}):", doc, re.MULTILINE)
    assert present == sorted(present, key=SECTIONS.index), f"{name}: sections are out of order"
    shown = re.findall(r"^(?:Returns|Yields):\n +(.*)$", doc, re.MULTILINE)
    if isinstance(value, property) or inspect.isgetsetdescriptor(value):
        shown.append(doc.partition("\n")[0])
    # Sphinx takes what is before a colon there for a type.
    assert not [line for line in shown if ": " in re.sub("``.*?``", "", line)], f"{name}: a colon"
    if isinstance(value, property):
        assert "Returns" in present, f"{name} does not say what it is"
    is_code = inspect.isclass(value) and issubclass(value, DocaError) and value is not DocaError
    if is_code:
        assert value.name in doc, f"{name} does not name its code"
        return
    assert "Source" in present, f"{name} does not say where its meaning comes from (Source:)"
    if isinstance(value, property) or inspect.isgetsetdescriptor(value):
        return
    for field in fields(value):
        assert re.search(rf"^ +{field}:", doc, re.MULTILINE), f"{name} does not explain {field}"
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
    if inspect.iscoroutinefunction(value) or inspect.isasyncgenfunction(value):
        assert "Cancellation" in present, f"{name} does not say what cancellation does"


def test_the_guide_of_dma_names_everything_it_can() -> None:
    """``pydoc aiodocadma.DMA`` is a manual: what to use for what, before the list of methods."""
    guide = inspect.cleandoc(aiodocadma.DMA.__doc__ or "").partition("\nArgs:")[0]
    public = [name for name in vars(aiodocadma.DMA) if not name.startswith("_")]
    assert not [name for name in public if not re.search(rf"`(await )?{name}\b", guide)]
