// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Sizes in bytes: what those of buffers are multiples of, and the largest that a graph or a plan may name.

#include <cstdint>

namespace stash::planner {

inline constexpr std::int64_t buffer_alignment = 64;

/// `bytes`, at least 0, rounded up to buffer_alignment.
constexpr std::int64_t aligned(std::int64_t bytes) noexcept {
  return (bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment;
}

/// Most bytes that one field may name: a JSON number says them exactly.
inline constexpr std::int64_t largest_bytes = std::int64_t{1} << 53;
/// Most bytes in total: sums of checked sizes cannot overflow.
inline constexpr std::int64_t largest_total_bytes = std::int64_t{1} << 60;

}  // namespace stash::planner
