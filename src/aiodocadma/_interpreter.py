"""Which interpreter of the process this is."""

from __future__ import annotations

import importlib

__all__ = ["is_main"]


def is_main() -> bool:
    """
    Whether this is the main interpreter. The types of the extension are one for the process, so it is the only one.

    Returns:
        False in a sub-interpreter, with or without a GIL of its own.

    Source: PEP 554, PEP 684; ``_interpreters`` (Python 3.13), ``_xxsubinterpreters`` (before).
    """
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            interpreters = importlib.import_module(name)
        except ImportError:
            continue
        return bool(interpreters.get_current() == interpreters.get_main())
    return True  # a Python without sub-interpreters
