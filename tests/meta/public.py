"""What is public in the package: for the tests in this folder."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import aiodocadma


def modules() -> list[ModuleType]:
    """Every public module of the package that can be imported here."""
    names = [aiodocadma.__name__]
    for info in pkgutil.walk_packages(aiodocadma.__path__, f"{aiodocadma.__name__}."):
        if not any(part.startswith("_") for part in info.name.split(".")):
            names.append(info.name)
    return [importlib.import_module(name) for name in names]


def objects() -> Iterator[tuple[str, Any]]:
    """Every class, function and method that a public module exports, by its dotted name, once."""
    seen: set[int] = set()
    for module in modules():
        for name in module.__all__:
            value = getattr(module, name)
            if id(value) in seen or not (inspect.isclass(value) or inspect.isroutine(value)):
                continue
            seen.add(id(value))
            yield f"{module.__name__}.{name}", value
            if inspect.isclass(value):
                for key, member in vars(value).items():
                    member = getattr(member, "__func__", member)  # classmethod, staticmethod
                    shown = (
                        inspect.isroutine(member) or isinstance(member, property) or inspect.isgetsetdescriptor(member)
                    )
                    if not key.startswith("_") and shown:
                        yield f"{module.__name__}.{name}.{key}", member
