"""``CopyFuture``, what ``DMA.copy()`` returns; made in C, this module is its name."""

from aiodocadma._native import CopyFuture

__all__ = ["CopyFuture"]
