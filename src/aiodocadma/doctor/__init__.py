"""
What is wrong with this machine's DOCA, layer by layer: files, versions, headers, libraries, devices, drivers.

``aiodocadma doctor`` prints it. Every check only reads, needs no privilege, and is a function of a ``System``: the live
one, or one made from a folder.
"""

from aiodocadma.doctor._bundle import write_bundle
from aiodocadma.doctor._check import Check, Layer
from aiodocadma.doctor._report import Report, examine
from aiodocadma.doctor._system import Loaded, LoadedDevice, Output, System

__all__ = ["Check", "Layer", "Loaded", "LoadedDevice", "Output", "Report", "System", "examine", "write_bundle"]
