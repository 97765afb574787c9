"""Pieces that fit aiodocadma to other packages; each needs its extra."""

__all__: list[str] = []
