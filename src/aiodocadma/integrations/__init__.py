"""Pieces that fit aiodocadma to other packages. Each needs its extra, ``dask`` or ``fsspec``."""

__all__: list[str] = []
