# SPDX-License-Identifier: BSD-3-Clause
# The folders of installed files, below the prefix.
if(CMAKE_LIBRARY_ARCHITECTURE AND NOT DEFINED CMAKE_INSTALL_LIBDIR)
    # Debian's folder for libraries, below /usr and /usr/local alike; ld.so, pkg-config and CMake look there.
    set(CMAKE_INSTALL_LIBDIR lib/${CMAKE_LIBRARY_ARCHITECTURE} CACHE PATH "Where libraries go")
endif()
include(GNUInstallDirs)
