"""The other process of the rows about exports: exports memory, says where, and waits to be killed."""

from __future__ import annotations

import sys

from aiodocadma.testing.conformance._abi import Abi
from aiodocadma.testing.conformance._bed import Bed, SkipError
from aiodocadma.testing.conformance._rows.maps import export


def main() -> None:
    """Print descriptor, address and length, or why not."""
    path, permission = sys.argv[1:]
    bed = Bed(Abi(path))
    memory = bed.memory(1 << 16)
    try:
        descriptor = export(bed, bed.map(memory, int(permission)))
    except SkipError as error:
        print("the exporter says:", error, flush=True)
        return
    print(descriptor.hex(), int(bed.ffi.cast("uintptr_t", memory)), len(memory), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
