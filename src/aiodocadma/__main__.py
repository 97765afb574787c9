"""``python -m aiodocadma``: the command line."""

import sys

from aiodocadma.cli import main

if __name__ == "__main__":
    sys.exit(main())
