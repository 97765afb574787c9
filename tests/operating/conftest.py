"""As for the DMA: on a clean emulator, with nothing left behind."""

from tests.dma.conftest import clean_emulator, held_dma

__all__ = ["clean_emulator", "held_dma"]
