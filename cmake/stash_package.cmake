# SPDX-License-Identifier: Apache-2.0
# `cpack`: everything that `cmake --install` installs as one package for Debian. scripts/deb builds it.

if(NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  message(FATAL_ERROR "STASH_PACKAGE: expected CMAKE_INSTALL_PREFIX=/usr, got ${CMAKE_INSTALL_PREFIX}")
endif()
find_program(STASH_GZIP gzip REQUIRED)
set(STASH_PACKAGE_CONTACT "The authors of Stash <authors@stash.invalid>" CACHE STRING "Maintainer that the package names")

# string(TIMESTAMP) takes SOURCE_DATE_EPOCH, which makes the package the same whenever it is built.
string(TIMESTAMP stash_package_date "%a, %d %b %Y %H:%M:%S +0000" UTC)
set(stash_package_release 1)
configure_file(${PROJECT_SOURCE_DIR}/cmake/deb/changelog.in ${PROJECT_BINARY_DIR}/deb/changelog.Debian @ONLY)
configure_file(${PROJECT_SOURCE_DIR}/CHANGELOG.md ${PROJECT_BINARY_DIR}/deb/changelog COPYONLY)
foreach(log changelog changelog.Debian)
  execute_process(COMMAND ${STASH_GZIP} -9 --no-name --stdout ${PROJECT_BINARY_DIR}/deb/${log}
                  OUTPUT_FILE ${PROJECT_BINARY_DIR}/deb/${log}.gz COMMAND_ERROR_IS_FATAL ANY)
endforeach()
configure_file(${PROJECT_SOURCE_DIR}/cmake/deb/copyright ${PROJECT_BINARY_DIR}/deb/copyright COPYONLY)
foreach(headers libcli11-dev libfmt-dev libhwy-dev nlohmann-json3-dev)
  file(READ /usr/share/doc/${headers}/copyright stash_notice)
  file(APPEND ${PROJECT_BINARY_DIR}/deb/copyright "\n---- ${headers}\n\n${stash_notice}")
endforeach()
install(FILES ${PROJECT_BINARY_DIR}/deb/copyright ${PROJECT_BINARY_DIR}/deb/changelog.gz
              ${PROJECT_BINARY_DIR}/deb/changelog.Debian.gz
        DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME stash)
set(CPACK_PACKAGE_CONTACT ${STASH_PACKAGE_CONTACT})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "memory planner and small encodings for training deep networks")
set(CPACK_PACKAGE_DESCRIPTION
    "Training a deep network reads most feature maps twice, far apart in time.
Stash keeps only what the backward pass needs, plans every byte of a
training step under a budget of memory, and proves how good the plan is.

This package holds the command stash, the shared and the static library,
the headers for C and C++, the CMake package and the file for pkg-config.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${stash_package_release})
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
# What the programs and the shared library are linked with, and their versions: dpkg-shlibdeps reads them.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# Which package others depend on that are linked with the library, and that the linker has to know it.
set(stash_package_version ${PROJECT_VERSION}-${stash_package_release})
file(WRITE ${PROJECT_BINARY_DIR}/deb/shlibs
     "libstash ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} stash (>= ${stash_package_version})\n")
file(WRITE ${PROJECT_BINARY_DIR}/deb/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/deb/shlibs ${PROJECT_BINARY_DIR}/deb/triggers)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_POST_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/deb/leave_ldconfig_to_trigger.cmake)
# The static library is linked with these; the shared one needs none of them.
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "coinor-libclp-dev, libfmt-dev, libhwy-dev, pkg-config")
include(CPack)
