# SPDX-License-Identifier: Apache-2.0
# Stop where Python has no GIL: the extension is for the stable ABI, which such a build does not have before 3.15, and the
# GIL is the lock of its types.
execute_process(
  COMMAND ${Python_EXECUTABLE} -c "import sysconfig; print(sysconfig.get_config_var('Py_GIL_DISABLED') or 0)"
  OUTPUT_VARIABLE no_gil OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
if(no_gil)
  message(FATAL_ERROR "aiodocadma needs a Python with a GIL, and ${Python_EXECUTABLE} is a free-threaded build.")
endif()
