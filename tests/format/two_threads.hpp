// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Threads for an execution context.

#include <cstdint>
#include <thread>

#include "stash/execution.hpp"

namespace stash::test {

/// Two, with ranges cut at odd positions.
inline void two_threads(void*, std::int64_t count, std::int64_t, range_function body, void* state) {
  const std::int64_t cut = count / 3;
  std::thread other([&] {
    if (cut > 0) body(state, 0, cut);
  });
  body(state, cut, count);
  other.join();
}

}  // namespace stash::test
