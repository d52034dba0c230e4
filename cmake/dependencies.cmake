# SPDX-License-Identifier: BSD-3-Clause
# The libraries from Debian; doc/DEPENDENCIES.md has the reason for each.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(ibverbs REQUIRED IMPORTED_TARGET libibverbs)
pkg_check_modules(rdmacm REQUIRED IMPORTED_TARGET librdmacm)
pkg_check_modules(pmem2 REQUIRED IMPORTED_TARGET libpmem2)
pkg_check_modules(isal REQUIRED IMPORTED_TARGET libisal)
pkg_check_modules(ssl REQUIRED IMPORTED_TARGET libssl>=3.0 libcrypto>=3.0)
find_package(fmt REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(prometheus-cpp QUIET COMPONENTS pull)
if(NOT prometheus-cpp_FOUND)
    message(FATAL_ERROR "prometheus-cpp is missing, which rpma serve --metrics needs: install Debian's package "
                        "prometheus-cpp-dev (utils/install-dependencies.sh installs everything)")
endif()
# The manual needs these, and is left out without them.
find_program(RPMA_PANDOC pandoc)
find_package(Python3 COMPONENTS Interpreter)
if(RPMA_TESTS)
    pkg_check_modules(cmocka REQUIRED IMPORTED_TARGET cmocka)
endif()
