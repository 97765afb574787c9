"""For testing: the conformance suite that a DOCA library, real or emulated, is held against."""

__all__: list[str] = []
