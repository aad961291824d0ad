# `cmake --install`: headers, both libraries, the CMake package and the pkg-config file.

include(CMakePackageConfigHelpers)
set(stash_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/stash)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/stash DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS stash_static stash_shared EXPORT stash_targets)
install(EXPORT stash_targets NAMESPACE stash:: FILE stash-targets.cmake DESTINATION ${stash_package_dir})
if(TARGET stash_cli)
  install(TARGETS stash_cli)
endif()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/stash-config.cmake.in
                              ${PROJECT_BINARY_DIR}/stash-config.cmake INSTALL_DESTINATION ${stash_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/stash-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/stash-config.cmake ${PROJECT_BINARY_DIR}/stash-config-version.cmake
        DESTINATION ${stash_package_dir})

set(stash_private_libraries "-lstdc++ -lpthread")
set(stash_requires_solver)
if(NOT STASH_USES_LP_SOLVER STREQUAL "none")
  # The solver's pkg-config file has its name.
  set(stash_requires_solver " ${STASH_USES_LP_SOLVER}")
endif()
if(STASH_ENABLE_CUDA)
  # Where they lie, the toolkit's user knows.
  string(APPEND stash_private_libraries " -lcudart_static -ldl -lrt")
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/stash.pc.in ${PROJECT_BINARY_DIR}/stash.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/stash.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
