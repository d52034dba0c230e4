# SPDX-License-Identifier: BSD-3-Clause
# Instrumentation of every target: RPMA_SANITIZE and RPMA_FUZZ. The first error ends the program.
if(RPMA_SANITIZE)
    add_compile_options(-fsanitize=${RPMA_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    add_link_options(-fsanitize=${RPMA_SANITIZE})
endif()
if(RPMA_FUZZ)
    if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
        message(FATAL_ERROR "RPMA_FUZZ needs clang (cmake --preset fuzz); "
                            "other compilers replay the corpora of tests/fuzz without it")
    endif()
    # Coverage of the rooms under test, which libFuzzer steers by; its main() is linked by rpma_fuzzer.
    add_compile_options(-fsanitize=fuzzer-no-link)
    add_link_options(-fsanitize=fuzzer-no-link)
endif()
