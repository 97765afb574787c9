"""``__all__`` is the truth about what is public."""

from __future__ import annotations

from types import ModuleType

import pytest

import aiodocadma

from .public import modules


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.__name__)
def test_all_names_exist_once_and_are_public(module: ModuleType) -> None:
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        assert hasattr(module, name), name
        assert not name.startswith("_") or name == "__version__"


def test_package_hides_what_it_does_not_export() -> None:
    exported = {*aiodocadma.__all__, *(module.__name__.rpartition(".")[2] for module in modules())}
    # pytest puts names with @ into modules whose asserts it rewrites, as those of a package with a plugin.
    stray = {name for name in vars(aiodocadma) if not name.startswith(("_", "@"))} - exported
    assert not stray


def test_version() -> None:
    from importlib.metadata import version

    assert version("aiodocadma") == aiodocadma.__version__
