# SPDX-License-Identifier: BSD-3-Clause
# Instrumentation of every target: RPMA_SANITIZE and RPMA_FUZZ. The first error ends the program.
if(RPMA_SANITIZE)
    add_compile_options(-fsanitize=${RPMA_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    add_link_options(-fsanitize=${RPMA_SANITIZE})
    if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
        # A library with a unique symbol, which a unity build of a sanitizer has, is never unloaded.
        add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-gnu-unique>)
    endif()
endif()
if(RPMA_FUZZ)
    if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
        message(FATAL_ERROR "RPMA_FUZZ needs clang (cmake --preset fuzz); "
                            "other compilers replay the corpora of tests/fuzz without it")
    endif()
    # libFuzzer needs the coverage of the rooms under test; rpma_fuzzer links its main().
    add_compile_options(-fsanitize=fuzzer-no-link)
    add_link_options(-fsanitize=fuzzer-no-link)
endif()
if((RPMA_SANITIZE OR RPMA_FUZZ) AND CMAKE_CXX_COMPILER_ID MATCHES Clang)
    # clang links a sanitizer's run time only into programs, so shared libraries have undefined symbols until they are
    # loaded. At the end of the link line this option overrides the libraries' own -z defs.
    string(APPEND CMAKE_C_STANDARD_LIBRARIES " -Wl,-z,undefs")
    string(APPEND CMAKE_CXX_STANDARD_LIBRARIES " -Wl,-z,undefs")
    # clang's vptr check needs the C++ run time in C programs too; g++'s build has that check. Its enum check is
    # stricter than both compilers' code (no -fstrict-enums): callers in C may pass any value, and get an error.
    add_compile_options(-fno-sanitize=vptr,enum)
    # The names by which g++ tells which sanitizer is on.
    if(RPMA_SANITIZE MATCHES address)
        add_compile_definitions(__SANITIZE_ADDRESS__=1)
    elseif(RPMA_SANITIZE STREQUAL thread)
        add_compile_definitions(__SANITIZE_THREAD__=1)
    endif()
endif()
