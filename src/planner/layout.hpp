#pragma once
/// \file
/// Static memory layout: offsets for blocks with known lifetimes so that blocks alive at one time do not
/// overlap and the height is small. Best of a portfolio of orders with first fit and best fit
/// (cf. Pisarchyk and Lee, 2020; MiniMalloc's static orders, ASPLOS'23).

#include <cstdint>
#include <span>
#include <vector>

namespace stash::planner {

/// A block alive during [begin, end) (end > begin). Zero-size blocks are placed at 0.
struct layout_block {
  std::int32_t begin = 0;
  std::int32_t end = 0;
  std::int64_t size = 0;
};

struct layout_result {
  std::vector<std::int64_t> offsets;  ///< parallel to the blocks, multiples of the alignment
  std::int64_t height = 0;
};

/// Largest sum of sizes alive at one time (sizes rounded up to the alignment): no layout is lower.
std::int64_t max_live(std::span<const layout_block> blocks, std::int64_t alignment);

/// Deterministic. Stops early when the height equals max_live. Throws error(invalid_argument) for a negative
/// size, end <= begin, or an alignment that is not a power of two.
layout_result make_layout(std::span<const layout_block> blocks, std::int64_t alignment);

}  // namespace stash::planner
