# CMake toolchain of the wheels: zig's C compiler, which brings the symbols of every glibc, so that a wheel runs on old
# systems wherever it was built; for another machine as well. Needs python-zig of the package ziglang on the PATH.
#   AIODOCADMA_MACHINE   x86_64 or aarch64

set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES AIODOCADMA_MACHINE)
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${AIODOCADMA_MACHINE})
# 2.27 has memfd_create.
set(CMAKE_C_COMPILER ${CMAKE_CURRENT_LIST_DIR}/zig-cc -target ${AIODOCADMA_MACHINE}-linux-gnu.2.27)
set(CMAKE_AR ${CMAKE_CURRENT_LIST_DIR}/zig-ar)
set(CMAKE_RANLIB true)
