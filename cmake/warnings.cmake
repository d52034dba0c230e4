# SPDX-License-Identifier: BSD-3-Clause
# Warnings of every target, in both languages.
add_compile_options(-Wall -Wextra -Wconversion -Wshadow)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    # The locks that src/base/thread_safety.hpp names.
    add_compile_options(-Wthread-safety)
endif()
if(RPMA_WERROR)
    add_compile_options(-Werror)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES GNU AND RPMA_SANITIZE)
    # GCC's flow warnings also analyse its own instrumentation, and give false warnings there.
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
    # TSan does not support fences. src/registry has them for readers in other processes, which TSan does not see
    # either.
    add_compile_options(-Wno-tsan)
endif()
