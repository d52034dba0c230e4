# SPDX-License-Identifier: BSD-3-Clause
# Debian packages: `cpack -G DEB` in the build folder. librpma0 and librpma-dev have the names of Debian's own packages,
# and are newer versions of these. So packages that depend on those still work, apt upgrades, and no file has two
# owners.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME rpma)
# A form that Debian's tools accept; .invalid is nobody's (RFC 2606). Who hands packages to others sets their own.
set(RPMA_PACKAGE_CONTACT "The rpma maintainers <maintainers@rpma.invalid>" CACHE STRING "Maintainer of the packages: NAME <ADDRESS>")
set(CPACK_PACKAGE_CONTACT ${RPMA_PACKAGE_CONTACT})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # each package has its own
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_SET_DESTDIR ON)  # so that the scripts of the installation see the prefix that the package has
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL librpma0 libsoftrdma0 librsocket1 librpma-dev rpma)
if(RPMA_LIBFABRIC)
    list(APPEND CPACK_COMPONENTS_ALL librstream-fi)
endif()
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY} ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/softrdma)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

# Each package has both changelogs, as Debian wants them.
find_program(RPMA_GZIP gzip)
set(changelogs "")
foreach(from_to CHANGELOG.md:changelog.gz cmake/debian/changelog:changelog.Debian.gz)
    string(REPLACE ":" ";" from_to ${from_to})
    list(GET from_to 0 from)
    list(GET from_to 1 to)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${from})
    if(RPMA_GZIP)
        execute_process(COMMAND ${RPMA_GZIP} -9nc ${PROJECT_SOURCE_DIR}/${from} OUTPUT_FILE ${CMAKE_BINARY_DIR}/${to} COMMAND_ERROR_IS_FATAL ANY)
        list(APPEND changelogs ${CMAKE_BINARY_DIR}/${to})
    endif()
endforeach()

# rpma_package(component section text [package...]): text is a summary and a paragraph; the packages are dependencies
# that dpkg-shlibdeps does not find.
set(own_version "${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}")
function(rpma_package component section summary)
    string(TOUPPER ${component} name)
    set(CPACK_DEBIAN_${name}_PACKAGE_NAME ${component} PARENT_SCOPE)
    set(CPACK_DEBIAN_${name}_PACKAGE_SECTION ${section} PARENT_SCOPE)
    set(CPACK_DEBIAN_${name}_DESCRIPTION "${summary}" PARENT_SCOPE)
    list(JOIN ARGN ", " depends)
    set(CPACK_DEBIAN_${name}_PACKAGE_DEPENDS "${depends}" PARENT_SCOPE)
    install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/${component}
            RENAME copyright COMPONENT ${component} EXCLUDE_FROM_ALL)
    install(FILES ${changelogs} DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/${component} COMPONENT ${component} EXCLUDE_FROM_ALL)
endfunction()
rpma_package(libsoftrdma0 libs "RDMA device in user space (runtime)
An iWARP device over TCP as a library: no kernel module, no hardware, no
privilege."
    "libssl3 (>= 3.0.0)")
rpma_package(librpma0 libs "remote persistent memory over RDMA (runtime)
Reads and writes the memory of another machine and makes it durable, over
RDMA devices of the kernel, or over a device in user space where there is
none. Has the interface of librpma 1.0 to 1.3."
    "libsoftrdma0 (= ${own_version})")
rpma_package(librsocket1 libs "sockets whose bytes travel by RDMA (runtime)
The functions of librdmacm's rsockets, and its protocol, on librpma: with
and without RDMA hardware. Programs that use sockets run on them unmodified
(rpma run --sockets)."
    "librpma0 (= ${own_version})" "libsoftrdma0 (= ${own_version})")
if(RPMA_LIBFABRIC)
    rpma_package(librstream-fi libs "streams by RDMA as endpoints of libfabric
A provider of libfabric for endpoints of the type FI_EP_SOCK_STREAM, on
librpma: with and without RDMA hardware."
        "librpma0 (= ${own_version})" "libsoftrdma0 (= ${own_version})")
endif()
rpma_package(librpma-dev libdevel "remote persistent memory over RDMA (development files)
Headers, manual and examples of librpma, libsoftrdma and librsocket."
    "librpma0 (= ${own_version})" "libsoftrdma0 (= ${own_version})" "librsocket1 (= ${own_version})" libibverbs-dev librdmacm-dev)
rpma_package(rpma net "replicates files into remote memory over RDMA
One machine serves a store, others push files into it, durably, and pull
them. Works with and without RDMA hardware."
    "librpma0 (= ${own_version})" "libsoftrdma0 (= ${own_version})" "librsocket1 (= ${own_version})")

# The scripts of the unit; and ldconfig, which CPack calls by scripts of its own and not by the trigger.
set(control ${PROJECT_SOURCE_DIR}/cmake/debian)
set(CPACK_DEBIAN_RPMA_PACKAGE_CONTROL_EXTRA ${control}/postinst ${control}/prerm ${control}/postrm)
foreach(name LIBRPMA0 LIBSOFTRDMA0 LIBRSOCKET1)
    set(CPACK_DEBIAN_${name}_PACKAGE_CONTROL_EXTRA ${control}/triggers)
endforeach()

# Debian's librpma-dev has librpma(7).
set(CPACK_DEBIAN_LIBRPMA0_PACKAGE_BREAKS "librpma-dev (<< ${PROJECT_VERSION})")
set(CPACK_DEBIAN_LIBRPMA0_PACKAGE_REPLACES "librpma-dev (<< ${PROJECT_VERSION})")
# As Debian's are; CMake heeds it from 3.31 on.
foreach(name LIBRPMA0 LIBSOFTRDMA0 LIBRSOCKET1 LIBRPMA-DEV)
    set(CPACK_DEBIAN_${name}_PACKAGE_MULTIARCH same)
endforeach()
include(CPack)
