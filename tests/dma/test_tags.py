"""A tag is the caller's object: whatever it does, and however long it is, errors and records are made."""

from __future__ import annotations

import pytest

import aiodocadma
from aiodocadma import emulator
from aiodocadma.exceptions import BufferInUseError, DocaIoFailedError
from tests.dma.conftest import turns


class Wordless:
    """Neither ``str()`` nor ``repr()`` of it can be had."""

    def __str__(self) -> str:
        raise ValueError("no words")

    __repr__ = __str__


TAGS = pytest.mark.parametrize(
    ("tag", "shown"),
    [
        ("block 7", "'block 7'"),
        (Wordless(), "<Wordless, repr() of which raises ValueError>"),
        (bytes(1 << 20), repr(bytes(1 << 20))[:80]),
    ],
    ids=["a word", "no words", "many words"],
)


@TAGS
async def test_an_error(tag: object, shown: str) -> None:
    emulator.inject(emulator.Fault("completion", status="IO_FAILED"))
    async with aiodocadma.open_dma() as dma:
        with pytest.raises(DocaIoFailedError) as caught:
            await dma.copy(b"abc", bytearray(3), tag=tag)
        assert caught.value.tag is tag
        assert f", tag {shown}" in str(caught.value)
        assert len(str(caught.value)) < 1000
        del caught


@TAGS
async def test_a_map_in_use(tag: object, shown: str) -> None:
    emulator.configure(engine="manual")
    async with aiodocadma.open_dma() as dma, await dma.alloc(3) as dst:
        copy = dma.copy(b"abc", dst, tag=tag)
        await turns()
        with pytest.raises(BufferInUseError) as caught:
            dst.close()
        assert f"(tagged {shown})" in str(caught.value)
        del caught
        emulator.step()
        await copy


@TAGS
async def test_a_future(tag: object, shown: str) -> None:
    """``repr()`` of it is what logs and debuggers show."""
    async with aiodocadma.open_dma() as dma:
        copy = dma.copy(b"abc", bytearray(3), tag=tag)
        await copy
        assert repr(copy) == f"<CopyFuture finished 3 bytes, tag={shown}>"


async def test_a_future_whose_tag_is_interrupted() -> None:
    """A Ctrl-C in the caller's own code is not swallowed."""

    class Interrupted:
        def __repr__(self) -> str:
            raise KeyboardInterrupt

    async with aiodocadma.open_dma() as dma:
        copy = dma.copy(b"abc", bytearray(3), tag=Interrupted())
        await copy
        with pytest.raises(KeyboardInterrupt):
            repr(copy)
