# The cffi half of the extension; typed by _native.py, the only module that imports it.

from typing import Any

ffi: Any
lib: Any
