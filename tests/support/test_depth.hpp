// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// How many of their cases tests try that go over many of one kind: seeds, budgets, orders of events.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace stash_test {

/// Whether STASH_TEST_DEPTH is "part", as scripts/test sets it where nothing is asked of it.
inline bool only_part() {
  const char* const depth = std::getenv("STASH_TEST_DEPTH");
  return depth != nullptr && std::strcmp(depth, "part") == 0;
}

/// All of them, or a tenth, at least one: for the number of cases, and for what a test expects to have seen
/// among them.
inline std::uint64_t cases(std::uint64_t all) {
  return only_part() ? std::max<std::uint64_t>(1, all / 10) : all;
}

}  // namespace stash_test
