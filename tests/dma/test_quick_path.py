"""What makes the quick path of ``copy()`` and ``await`` quick does not show: nothing shared is mixed up."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import aiodocadma


def _ended(iterator: Any) -> Any:
    with pytest.raises(StopIteration) as stop:
        iterator.send(None)
    return stop.value.value


def test_a_subclass_has_a_copy_of_its_own() -> None:
    """CPython's quick call needs it; one that a subclass defines stays."""

    class Plain(aiodocadma.DMA):
        pass

    class Own(aiodocadma.DMA):
        def copy(self, *args: Any, **kwargs: Any) -> Any:
            return args, kwargs

    class Below(Own):
        pass

    assert vars(aiodocadma.DMA)["copy"].__objclass__ is aiodocadma.DMA
    assert vars(Plain)["copy"].__objclass__ is Plain
    assert Plain.copy.__doc__ == aiodocadma.DMA.copy.__doc__
    assert vars(Own)["copy"].__qualname__.endswith("Own.copy")
    assert "copy" not in vars(Below)
    assert Below.copy is Own.copy


async def test_awaits_of_ended_copies_do_not_mix() -> None:
    """Iterators of several ended copies at once, some run, some dropped, some run twice."""
    async with aiodocadma.open_dma() as dma, await dma.alloc(4096) as src, await dma.alloc(4096) as dst:
        copies = [dma.copy(src[:length], dst) for length in (1, 22, 333)]
        await dma.drain()
        first, second, third = (iter(copy) for copy in copies)
        assert len({id(first), id(second), id(third)}) == 3
        assert _ended(second) == 22
        assert _ended(first) == 1
        assert _ended(third) == 333
        assert _ended(first) is None  # an await that has ended gives nothing more
        del first, second, third
        iter(copies[2])  # dropped without a step
        assert await copies[0] == 1
        assert await copies[1] == 22
        assert [copy.result() for copy in copies] == [1, 22, 333]


async def test_an_await_lets_go_of_its_copy() -> None:
    """The iterator that is kept for the next await does not keep the copy of the last."""
    async with aiodocadma.open_dma() as dma, await dma.alloc(4096) as src, await dma.alloc(4096) as dst:
        tag = object()
        before = sys.getrefcount(tag)
        for _ in range(3):
            copy = dma.copy(src, dst, tag=tag)
            await dma.drain()
            assert await copy == 4096
            del copy
        assert sys.getrefcount(tag) == before
