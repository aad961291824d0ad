# SPDX-License-Identifier: Apache-2.0
# The module that the shared library opens when it first needs a solver of linear programs, and what opens it. It lies in a
# folder `stash` beside the shared library, in the build tree and where it is installed. Its name holds the version: another
# version's structures are not this one's.

set(stash_solver_file stash_solver-${PROJECT_VERSION}.so)
stash_add_library(stash_solver_loader SOURCES ${PROJECT_SOURCE_DIR}/src/planner/time/relaxation_loaded.cpp)
target_compile_definitions(stash_solver_loader PRIVATE STASH_SOLVER_FILE="${stash_solver_file}")

add_library(stash_solver_module MODULE ${PROJECT_SOURCE_DIR}/src/planner/time/solver_module.cpp)
target_link_libraries(stash_solver_module PRIVATE stash_solver)
stash_configure_target(stash_solver_module)
set_target_properties(
  stash_solver_module
  PROPERTIES PREFIX "" SUFFIX "" OUTPUT_NAME ${stash_solver_file}
             LIBRARY_OUTPUT_DIRECTORY $<TARGET_FILE_DIR:stash_shared>/stash
             # The solver's own libraries are the system's.
             INSTALL_RPATH "")
