# SPDX-License-Identifier: BSD-3-Clause
# Functions that declare tests. The root includes this file only when RPMA_TESTS is on.

# This time-out only ends a test that hangs: instrumented builds run several times slower.
set(RPMA_TEST_SLOWNESS 1)
if(RPMA_SANITIZE OR RPMA_FUZZ)
    set(RPMA_TEST_SLOWNESS 5)
endif()
# Runs a program as it is, or under memcheck when RPMA_VALGRIND=1 is in the environment.
set(RPMA_TEST_LAUNCHER ${PROJECT_SOURCE_DIR}/tests/launch.sh)

# rpma_test_properties(test LABELS label... [TIMEOUT seconds] [RUN_SERIAL] [ENVIRONMENT name=value...]) Sets the
# properties of every test, also of those that rpma_test does not make: exit code 77 is a skip. The label memcheck is
# that of a test whose programs run under memcheck when RPMA_VALGRIND=1.
function(rpma_test_properties test)
    cmake_parse_arguments(test "RUN_SERIAL" "TIMEOUT" "LABELS;ENVIRONMENT" ${ARGN})
    if(NOT test_TIMEOUT)
        set(test_TIMEOUT 120)
    endif()
    if("memcheck" IN_LIST test_LABELS)
        math(EXPR test_TIMEOUT "${test_TIMEOUT} * 5")
    endif()
    math(EXPR test_TIMEOUT "${test_TIMEOUT} * ${RPMA_TEST_SLOWNESS}")
    set_tests_properties(${test} PROPERTIES LABELS "${test_LABELS}" SKIP_RETURN_CODE 77 TIMEOUT ${test_TIMEOUT})
    if("${test_ENVIRONMENT}" MATCHES "RPMA_TLS=" AND NOT "${test_ENVIRONMENT}" MATCHES "SOFTRDMA_SHM=")
        # Two processes of one host use TLS for the start-up alone, unless they stay on TCP.
        list(APPEND test_ENVIRONMENT SOFTRDMA_SHM=off)
    endif()
    if(test_ENVIRONMENT)
        set_tests_properties(${test} PROPERTIES ENVIRONMENT "${test_ENVIRONMENT}")
    endif()
    if(test_RUN_SERIAL)
        set_tests_properties(${test} PROPERTIES RUN_SERIAL TRUE)
    endif()
endfunction()

# Keys for TLS, which tests use for both ends of a connection: RPMA_TLS=psk:${RPMA_TEST_KEYS}.
set(RPMA_TEST_KEYS ${CMAKE_BINARY_DIR}/tests/keys)
file(WRITE ${RPMA_TEST_KEYS} "# The tests' own.\ntest:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n")
file(CHMOD ${RPMA_TEST_KEYS} PERMISSIONS OWNER_READ OWNER_WRITE)

# Certificates for the same: RPMA_TLS=x509:${RPMA_TEST_CERTIFICATES}. The test `certificates` makes them, and tests that
# use them have FIXTURES_REQUIRED certificates.
set(RPMA_TEST_CERTIFICATES ${CMAKE_BINARY_DIR}/tests/certificates/test)

# rpma_test(NAME name LABEL label... SOURCES file... [LINK target...] [ARGUMENTS argument...] [TIMEOUT seconds]
#           [RUN_SERIAL] [ENVIRONMENT name=value...])
# One cmocka program: target test_NAME, in build/tests, registered with ctest as NAME. LINK names what is under test:
# rooms (room_base ...) for unit tests, rpma or softrdma for tests of an API. The program runs in its own folder
# below build/tests, so relative file names of two tests do not meet.
function(rpma_test)
    cmake_parse_arguments(test "RUN_SERIAL" "NAME;TIMEOUT" "LABEL;SOURCES;LINK;ARGUMENTS;ENVIRONMENT" ${ARGN})
    if(NOT test_NAME OR NOT test_LABEL OR NOT test_SOURCES OR test_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "rpma_test needs NAME, LABEL and SOURCES; not understood: ${test_UNPARSED_ARGUMENTS}")
    endif()
    add_executable(test_${test_NAME} ${test_SOURCES})
    set_target_properties(test_${test_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    target_include_directories(test_${test_NAME} PRIVATE ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(test_${test_NAME} PRIVATE ${test_LINK} PkgConfig::cmocka Threads::Threads)

    set(folder ${CMAKE_BINARY_DIR}/tests/${test_NAME}.run)
    file(MAKE_DIRECTORY ${folder})
    set(launcher "")
    if("api" IN_LIST test_LABEL)
        set(launcher ${RPMA_TEST_LAUNCHER})
        list(APPEND test_LABEL memcheck)
    endif()
    add_test(NAME ${test_NAME} COMMAND ${launcher} $<TARGET_FILE:test_${test_NAME}> ${test_ARGUMENTS}
             WORKING_DIRECTORY ${folder})
    set(serial "")
    if(test_RUN_SERIAL)
        set(serial RUN_SERIAL)
    endif()
    rpma_test_properties(${test_NAME} LABELS ${test_LABEL} TIMEOUT "${test_TIMEOUT}" ${serial}
                         ENVIRONMENT ${test_ENVIRONMENT})
endfunction()

# rpma_fuzzer(name SOURCES file... [LINK target...]): one fuzz target with LLVMFuzzerTestOneInput, and its corpus in
# tests/fuzz/corpus/NAME/. With RPMA_FUZZ it is libFuzzer's program, otherwise a replayer with replay_main.cpp;
# either way ctest (label fuzz) feeds it the whole corpus.
function(rpma_fuzzer name)
    cmake_parse_arguments(fuzz "" "" "SOURCES;LINK" ${ARGN})
    set(corpus ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name})
    file(GLOB inputs ${corpus}/*)
    if(NOT inputs)
        message(FATAL_ERROR "rpma_fuzzer(${name}): no corpus in tests/fuzz/corpus/${name}, one input is the least")
    endif()
    add_executable(fuzz_${name} ${fuzz_SOURCES})
    set_target_properties(fuzz_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
    target_link_libraries(fuzz_${name} PRIVATE ${fuzz_LINK})
    if(RPMA_FUZZ)
        target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
        add_test(NAME fuzz_${name} COMMAND fuzz_${name} -runs=0 ${corpus})
    else()
        target_link_libraries(fuzz_${name} PRIVATE fuzz_replay)
        add_test(NAME fuzz_${name} COMMAND fuzz_${name} ${corpus})
    endif()
    rpma_test_properties(fuzz_${name} LABELS fuzz)
endfunction()

# rpma_test_folders(folder...): add_subdirectory for each folder that has tests.
function(rpma_test_folders)
    foreach(folder IN LISTS ARGN)
        if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/CMakeLists.txt)
            add_subdirectory(${folder})
        endif()
    endforeach()
endfunction()
