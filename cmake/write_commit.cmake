# SPDX-License-Identifier: Apache-2.0
# cmake -D SOURCE_DIR=... -D OUTPUT=... -P write_commit.cmake: writes a source file that holds the commit of SOURCE_DIR,
# and touches it only when the commit has changed.
set(git git -c safe.directory=${SOURCE_DIR} -C ${SOURCE_DIR})
execute_process(COMMAND ${git} rev-parse --short=12 HEAD RESULT_VARIABLE failed OUTPUT_VARIABLE commit
                ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
if(failed)
  set(commit "unknown")
else()
  execute_process(COMMAND ${git} diff --quiet HEAD -- CMakeLists.txt bench/cases bench/gpu cmake include kernels src tests/gpu tools
                  RESULT_VARIABLE changed ERROR_QUIET)
  if(changed)
    string(APPEND commit " and changes")
  endif()
endif()

set(text "namespace stash::bench {\nconst char* source_commit() noexcept { return \"${commit}\"; }\n}\n")
set(before "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT text STREQUAL before)
  file(WRITE ${OUTPUT} "${text}")
endif()
