# SPDX-License-Identifier: Apache-2.0
# Debian's cross compiler for 64-bit ARM and, where programs are run, qemu. STASH_ARM64_ROOT is a folder with the headers
# and libraries of ARM packages, as scripts/arm_check fills it.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES STASH_ARM64_ROOT)
set(CMAKE_FIND_ROOT_PATH ${STASH_ARM64_ROOT} /usr/aarch64-linux-gnu)
# Header-only packages of the machine itself serve as well.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu
    -E LD_LIBRARY_PATH=${STASH_ARM64_ROOT}/usr/lib/aarch64-linux-gnu)
