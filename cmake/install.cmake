# SPDX-License-Identifier: BSD-3-Clause
# The files of `cmake --install` and their folders. A component is a Debian package (cmake/package.cmake).
include(CMakePackageConfigHelpers)
set(RPMA_INSTALL_DOC ${CMAKE_INSTALL_DATAROOTDIR}/doc/librpma-dev)

install(TARGETS rpma EXPORT rpma
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT librpma0 NAMELINK_COMPONENT librpma-dev
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS softrdma EXPORT rpma
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT libsoftrdma0 NAMELINK_COMPONENT librpma-dev
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS rsocket EXPORT rpma
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT librsocket1 NAMELINK_COMPONENT librpma-dev
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS softrdma_verbs softrdma_verbs_opened LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/softrdma COMPONENT libsoftrdma0)
install(TARGETS carry_preload carry_device LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/softrdma COMPONENT librsocket1)
if(RPMA_LIBFABRIC)
    install(TARGETS rstream_fi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/libfabric COMPONENT librstream-fi)
endif()
install(TARGETS rpma_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT rpma)
configure_file(cmake/install-unit.cmake.in ${CMAKE_BINARY_DIR}/install-unit.cmake @ONLY)
install(SCRIPT ${CMAKE_BINARY_DIR}/install-unit.cmake COMPONENT rpma)
# Pacemaker's agents have no ending.
install(PROGRAMS src/cli/serve/rpma-serve.ocf DESTINATION lib/ocf/resource.d/rpma RENAME serve COMPONENT rpma)
install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT librpma-dev)

# find_package(rpma): rpma::rpma, rpma::softrdma and rpma::rsocket.
set(folder ${CMAKE_INSTALL_LIBDIR}/cmake/rpma)
install(EXPORT rpma NAMESPACE rpma:: FILE rpmaTargets.cmake DESTINATION ${folder} COMPONENT librpma-dev)
configure_package_config_file(cmake/rpmaConfig.cmake.in ${CMAKE_BINARY_DIR}/rpmaConfig.cmake
                              INSTALL_DESTINATION ${folder} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/rpmaConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_BINARY_DIR}/rpmaConfig.cmake ${CMAKE_BINARY_DIR}/rpmaConfigVersion.cmake
        DESTINATION ${folder} COMPONENT librpma-dev)

# pkg-config's files take the prefix from their own place, so that a tree may be moved.
file(RELATIVE_PATH RPMA_PC_TO_PREFIX /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
string(REGEX REPLACE "/$" "" RPMA_PC_TO_PREFIX ${RPMA_PC_TO_PREFIX})
foreach(library librpma softrdma rsocket)
    configure_file(cmake/${library}.pc.in ${CMAKE_BINARY_DIR}/${library}.pc @ONLY)
    install(FILES ${CMAKE_BINARY_DIR}/${library}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT librpma-dev)
endforeach()

# The documents.
if(RPMA_MANUAL)
    # man7 has the environment variables of the libraries, so it goes with them.
    install(DIRECTORY ${RPMA_MANUAL}/install/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT rpma)
    install(FILES ${RPMA_MANUAL}/install/man7/librpma.7.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man7 COMPONENT librpma0)
    install(FILES ${RPMA_MANUAL}/install/man7/softrdma.7.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man7 COMPONENT libsoftrdma0)
    install(FILES ${RPMA_MANUAL}/install/man7/librsocket.7.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man7 COMPONENT librsocket1)
    if(RPMA_LIBFABRIC)
        # Debian's libfabric-dev has fi_rstream.7, of another provider.
        install(FILES ${RPMA_MANUAL}/install/man7/fi_rstream.7.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man7 RENAME fi_rstream.7rpma.gz COMPONENT librstream-fi)
    endif()
    install(DIRECTORY ${RPMA_MANUAL}/install/man3 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT librpma-dev)
    install(DIRECTORY ${RPMA_MANUAL}/html DESTINATION ${RPMA_INSTALL_DOC} COMPONENT librpma-dev)
endif()
install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${RPMA_INSTALL_DOC} COMPONENT librpma-dev)
install(DIRECTORY doc/ DESTINATION ${RPMA_INSTALL_DOC}/doc COMPONENT librpma-dev FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN valgrind.supp
        PATTERN man EXCLUDE)
install(DIRECTORY examples DESTINATION ${RPMA_INSTALL_DOC} COMPONENT librpma-dev PATTERN CMakeLists.txt EXCLUDE
        PATTERN run-all EXCLUDE)

# ld.so looks below /usr, and below /usr/local once ldconfig has run, where our library comes before Debian's. Below
# another prefix a program would find the system's librpma.so.0, if there is one, so this prints the settings for its
# build. It prints nothing when the installation is staged.
configure_file(cmake/how-to-link.cmake.in ${CMAKE_BINARY_DIR}/how-to-link.cmake @ONLY)
install(SCRIPT ${CMAKE_BINARY_DIR}/how-to-link.cmake)
