# SPDX-License-Identifier: Apache-2.0
# Finds what solves the planner's linear programs. Sets STASH_USES_LP_SOLVER to clp, highs or none, and STASH_LP_LIBRARY
# to its target. Both are found without being asked for: COIN-OR CLP (EPL, linked dynamically), which the recorded
# figures come from, and HiGHS (MIT) where CLP is not there.

if(NOT STASH_LP_SOLVER MATCHES "^(auto|clp|highs|none)$")
  message(FATAL_ERROR "STASH_LP_SOLVER: expected auto, clp, highs or none, got ${STASH_LP_SOLVER}")
endif()
set(STASH_USES_LP_SOLVER none)
set(STASH_LP_LIBRARY)
if(STASH_LP_SOLVER MATCHES "^(auto|clp)$")
  find_package(PkgConfig)
  if(PkgConfig_FOUND)
    pkg_check_modules(CLP IMPORTED_TARGET GLOBAL clp)
  endif()
  if(CLP_FOUND)
    set(STASH_USES_LP_SOLVER clp)
    set(STASH_LP_LIBRARY PkgConfig::CLP)
  endif()
endif()
if(STASH_USES_LP_SOLVER STREQUAL "none" AND STASH_LP_SOLVER MATCHES "^(auto|highs)$")
  # Older ones do not ask whether to go on.
  find_package(highs 1.6 CONFIG QUIET GLOBAL)
  if(TARGET highs::highs)
    set(STASH_USES_LP_SOLVER highs)
    set(STASH_LP_LIBRARY highs::highs)
  endif()
endif()
if(STASH_USES_LP_SOLVER STREQUAL "none")
  if(STASH_LP_SOLVER MATCHES "^(clp|highs)$")
    message(FATAL_ERROR "STASH_LP_SOLVER: ${STASH_LP_SOLVER} was not found")
  endif()
  message(STATUS "No solver for linear programs: plans made for speed will have weak bounds")
endif()
