# SPDX-License-Identifier: Apache-2.0
# Helpers that give every target of the project the same language level, warnings and sanitizers.

# What results and errors rest on. A target's options stand after the flags that a project which adds this one has for all
# of its targets, and win. NaN, infinities and signs of zero are values; a*b+c is not contracted differently from call to
# call; errors are exceptions. One string, because of options that come twice CMake drops the second.
set(stash_language_options "SHELL:-fno-fast-math -ffp-contract=off -fexceptions -frtti -fsigned-char -fthreadsafe-statics")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  string(APPEND stash_language_options " -fno-single-precision-constant -fno-allow-store-data-races")
else()
  # clang warns of -fno-fast-math where products were contracted before it, and contracts them again after it.
  string(REPLACE "SHELL:" "SHELL:-ffp-contract=off " stash_language_options "${stash_language_options}")
endif()
# With -ffast-math gcc and clang link what makes programs take denormals for zeros, gcc 12 into shared libraries, too. Only
# another level takes back -Ofast.
set(stash_linker_options "SHELL:-O3 -fno-fast-math -fno-unsafe-math-optimizations")

# What the linker of another language than C++ lacks for code that was compiled as C++.
set(stash_cxx_runtime ${CMAKE_CXX_IMPLICIT_LINK_LIBRARIES})
list(FILTER stash_cxx_runtime INCLUDE REGEX "^(stdc\\+\\+|c\\+\\+|c\\+\\+abi|m)$")
list(REMOVE_DUPLICATES stash_cxx_runtime)
if(NOT stash_cxx_runtime)
  set(stash_cxx_runtime stdc++ m)
endif()

function(stash_configure_target target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON
                                             CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
                                             UNITY_BUILD OFF)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow
                                           -Wno-missing-field-initializers)
  target_compile_options(${target} PRIVATE ${stash_language_options})
  target_link_options(${target} PRIVATE ${stash_linker_options})
  if(STASH_WARNINGS_AS_ERRORS)
    target_compile_options(${target} PRIVATE -Werror)
  elseif(NOT stash_IS_TOP_LEVEL)
    # Which warnings are errors another project decides for its own sources.
    target_compile_options(${target} PRIVATE -Wno-error)
    set_target_properties(${target} PROPERTIES COMPILE_WARNING_AS_ERROR OFF)
  endif()
  if(STASH_NATIVE)
    target_compile_options(${target} PRIVATE -march=native)
  endif()
  if(STASH_SANITIZE)
    target_compile_options(${target} PUBLIC -fsanitize=${STASH_SANITIZE} -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=${STASH_SANITIZE})
    if(STASH_SANITIZE MATCHES "undefined")
      # What is left out takes a third of the time of a build, and the address sanitizer sees most of it as well.
      target_compile_options(${target} PUBLIC -fno-sanitize-recover=undefined -fno-sanitize=null,vptr,object-size)
    endif()
  endif()
endfunction()

# For command lines: most of their code is that of option parsers and JSON, which take a third less time to compile so,
# and what computes lies in libraries.
function(stash_compile_fast)
  foreach(target ${ARGV})
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endforeach()
endfunction()

# stash_add_library(name SOURCES ... LINK ...): a module of src/ as a static library.
function(stash_add_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK;PRIVATE_LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${name} PUBLIC ${ARG_LINK} PRIVATE ${ARG_PRIVATE_LINK})
  stash_configure_target(${name})
endfunction()

# Each test reads GoogleTest and the standard library, which takes about a second. So they are compiled once for each way
# in which tests are. Sources still name what they use: the clang preset compiles without.
function(stash_test_headers)
  foreach(kind plain optimised)
    # A program, as the tests are: code for libraries is compiled otherwise.
    add_executable(stash_test_headers_${kind} EXCLUDE_FROM_ALL ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/test_headers.cpp)
    target_link_libraries(stash_test_headers_${kind} PRIVATE GTest::gtest)
    stash_configure_target(stash_test_headers_${kind})
    stash_configure_test(stash_test_headers_${kind} ${kind})
    target_precompile_headers(
      stash_test_headers_${kind} PRIVATE
      <gtest/gtest.h> <algorithm> <array> <cmath> <cstdint> <cstring> <functional> <limits> <map> <memory> <numeric>
      <optional> <random> <set> <span> <sstream> <string> <string_view> <thread> <tuple> <utility> <vector>)
  endforeach()
endfunction()

# Tests are not optimised and not checked for undefined behaviour themselves, which halves the time to build them; kind
# `optimised` is for those that compute much on their own.
function(stash_configure_test target kind)
  if(kind STREQUAL plain)
    target_compile_options(${target} PRIVATE -O0)
    if(STASH_SANITIZE MATCHES "undefined")
      target_compile_options(${target} PRIVATE -fno-sanitize=undefined)
    endif()
  endif()
endfunction()

# stash_add_test(name SOURCES ... LINK ... [LABELS ...] [TIMEOUT s] [OPTIMISED]): one GoogleTest program, one CTest test.
function(stash_add_test name)
  cmake_parse_arguments(ARG "OPTIMISED" "TIMEOUT" "SOURCES;LINK;LABELS" ${ARGN})
  set(kind plain)
  if(ARG_OPTIMISED)
    set(kind optimised)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gtest_main)
  stash_configure_target(${name})
  stash_configure_test(${name} ${kind})
  target_precompile_headers(${name} REUSE_FROM stash_test_headers_${kind})
  # What is not a test's own source is compiled as it is elsewhere.
  list(FILTER ARG_SOURCES INCLUDE REGEX "^${PROJECT_SOURCE_DIR}/")
  list(FILTER ARG_SOURCES EXCLUDE REGEX "^${PROJECT_SOURCE_DIR}/(tests|emulator)/")
  set_source_files_properties(${ARG_SOURCES} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  add_test(NAME ${name} COMMAND ${name})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()
