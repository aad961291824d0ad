# SPDX-License-Identifier: Apache-2.0
# The library that users link: the modules that implement include/stash, once static and once shared, from the same
# objects. The solver of linear programs brings LAPACK and a Fortran runtime along, which those who only encode need not
# load: the static library contains it, the shared one opens it as a module when it first plans for speed.

set(stash_modules stash_encoders stash_planner stash_runtime stash_c_api)
if(STASH_ENABLE_CUDA)
  add_library(stash_device_registry_with_cuda OBJECT ${PROJECT_SOURCE_DIR}/src/encoders/device/backend.cpp)
  target_include_directories(stash_device_registry_with_cuda PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_compile_definitions(stash_device_registry_with_cuda PRIVATE STASH_BUILT_IN_BACKEND)
  stash_configure_target(stash_device_registry_with_cuda)
  list(APPEND stash_modules stash_cuda stash_device_registry_with_cuda)
else()
  list(APPEND stash_modules stash_device_registry)
endif()
set(stash_objects)
foreach(module IN LISTS stash_modules)
  list(APPEND stash_objects $<TARGET_OBJECTS:${module}>)
endforeach()

function(stash_add_user_library kind type solver)
  add_library(stash_${kind} ${type} ${stash_objects} $<TARGET_OBJECTS:${solver}>)
  add_library(stash::${kind} ALIAS stash_${kind})
  target_include_directories(
    stash_${kind} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                            $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(stash_${kind} PRIVATE fmt::fmt hwy::hwy Threads::Threads $<TARGET_NAME_IF_EXISTS:CUDA::cudart_static>)
  stash_configure_target(stash_${kind})
  # Objects only: nothing tells CMake the linker's language.
  set_target_properties(stash_${kind} PROPERTIES OUTPUT_NAME stash EXPORT_NAME ${kind} LINKER_LANGUAGE CXX)
endfunction()

find_package(hwy REQUIRED)
stash_add_user_library(static STATIC stash_solver)
target_link_libraries(stash_static PRIVATE ${STASH_LP_LIBRARY})
# Where C++ is enabled CMake links with its compiler by itself.
foreach(library IN LISTS stash_cxx_runtime)
  target_link_libraries(stash_static PRIVATE $<$<NOT:$<LINK_LANGUAGE:CXX>>:${library}>)
endforeach()
if(STASH_USES_LP_SOLVER STREQUAL "none")
  stash_add_user_library(shared SHARED stash_solver)
else()
  stash_add_user_library(shared SHARED stash_solver_loader)
  target_link_libraries(stash_shared PRIVATE ${CMAKE_DL_LIBS})
  add_dependencies(stash_shared stash_solver_module)
endif()
# Before 1.0 every minor version may change the ABI of the C++ API.
set_target_properties(stash_shared PROPERTIES VERSION ${PROJECT_VERSION}
                                              SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
# Templates of other libraries have default visibility wherever they are instantiated.
set(stash_export_map ${PROJECT_SOURCE_DIR}/cmake/stash_exports.map)
target_link_options(stash_shared PRIVATE LINKER:--version-script=${stash_export_map})
set_target_properties(stash_shared PROPERTIES LINK_DEPENDS ${stash_export_map})

# The installed stash::stash is the shared library; in a project that adds this one, BUILD_SHARED_LIBS decides.
if(BUILD_SHARED_LIBS)
  add_library(stash::stash ALIAS stash_shared)
else()
  add_library(stash::stash ALIAS stash_static)
endif()
