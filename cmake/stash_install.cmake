# SPDX-License-Identifier: Apache-2.0
# `cmake --install`: the component stash_library is headers, both libraries, the CMake package, the pkg-config file and the
# module for Python, for which nothing but the libraries has to be built; the command comes with everything.

include(CMakePackageConfigHelpers)
set(stash_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/stash)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/stash DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT stash_library)
# It looks for the library two folders above.
install(FILES ${PROJECT_SOURCE_DIR}/integrations/python/stash.py DESTINATION ${CMAKE_INSTALL_LIBDIR}/stash/python
        COMPONENT stash_library)
# Apart, because only the static library needs what it was linked with.
foreach(kind shared static)
  install(TARGETS stash_${kind} EXPORT stash_${kind}_targets COMPONENT stash_library)
  install(EXPORT stash_${kind}_targets NAMESPACE stash:: FILE stash-${kind}-targets.cmake DESTINATION ${stash_package_dir}
          COMPONENT stash_library)
endforeach()
if(TARGET stash_solver_module)
  install(TARGETS stash_solver_module LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/stash COMPONENT stash_library)
endif()
if(TARGET stash_cli)
  install(TARGETS stash_cli)
endif()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/stash-config.cmake.in
                              ${PROJECT_BINARY_DIR}/stash-config.cmake INSTALL_DESTINATION ${stash_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/stash-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/stash-config.cmake ${PROJECT_BINARY_DIR}/stash-config-version.cmake
        DESTINATION ${stash_package_dir} COMPONENT stash_library)

# Flags, not Requires.private: pkg-config wants the files of those packages even where nobody links statically.
list(TRANSFORM stash_cxx_runtime PREPEND -l OUTPUT_VARIABLE stash_private_libraries)
list(JOIN stash_private_libraries " " stash_private_libraries)
string(PREPEND stash_private_libraries "-lfmt -lhwy -lpthread ")
if(STASH_USES_LP_SOLVER STREQUAL "clp")
  list(JOIN CLP_LDFLAGS " " stash_solver_flags)
  string(PREPEND stash_private_libraries "${stash_solver_flags} ")
elseif(STASH_USES_LP_SOLVER STREQUAL "highs")
  string(PREPEND stash_private_libraries "-lhighs ")
endif()
if(STASH_ENABLE_CUDA)
  # Where they lie, the toolkit's user knows.
  string(APPEND stash_private_libraries " -lcudart_static -ldl -lrt")
endif()
# Where the file lies says where the rest is, so that an installed tree can be moved. An absolute folder for libraries that
# is not below the prefix stays where it is, and the prefix with it is the one of configuring, as it is for CMake's own package.
set(stash_pc_libdir "\${pcfiledir}/..")
cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_LIBDIR BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX} NORMALIZE OUTPUT_VARIABLE stash_pc_up)
cmake_path(IS_PREFIX CMAKE_INSTALL_PREFIX "${stash_pc_up}" NORMALIZE stash_pc_follows)
if(stash_pc_follows)
  cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${stash_pc_up}/pkgconfig OUTPUT_VARIABLE stash_pc_up)
  set(stash_pc_prefix "\${pcfiledir}/${stash_pc_up}")
else()
  set(stash_pc_prefix ${CMAKE_INSTALL_PREFIX})
endif()
set(stash_pc_includedir ${CMAKE_INSTALL_INCLUDEDIR})
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" AND stash_pc_follows)
  # Headers below the same prefix follow as well.
  cmake_path(IS_PREFIX CMAKE_INSTALL_PREFIX "${stash_pc_includedir}" NORMALIZE stash_pc_follows)
  if(stash_pc_follows)
    cmake_path(RELATIVE_PATH stash_pc_includedir BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX})
  endif()
endif()
if(NOT IS_ABSOLUTE "${stash_pc_includedir}")
  string(PREPEND stash_pc_includedir "\${prefix}/")
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/stash.pc.in ${PROJECT_BINARY_DIR}/stash.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/stash.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT stash_library)
