// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// For tests that count blocks of memory: where reports arrive is pinned once and kept.

#include <cstring>

#include "stash/stashed_tensor.hpp"

namespace stash_test {

/// Makes sure that there is a slot for a report, so that the next one takes no memory.
inline void pin_report_slots() {
  constexpr stash::execution_context device{stash::memory_space::device};
  void* const zero = stash::device_memory().allocate(sizeof(float), 16);
  std::memset(zero, 0, sizeof(float));
  const stash::tensor_view x{zero, stash::dtype::f32, stash::memory_space::device, {1}, 0};
  stash::stashed_tensor(stash::parse_encoding("csr"), x, {}, device).size(device).wait();
  stash::device_memory().deallocate(zero, sizeof(float), 16);
}

}  // namespace stash_test
