#pragma once
/// \file
/// Static memory layout: offsets for blocks with known lifetimes so that blocks alive at one time do not
/// overlap and the height is small. Best of a portfolio of orders with first fit and best fit
/// (cf. Pisarchyk and Lee, 2020; MiniMalloc's static orders, ASPLOS'23), then a bounded search that moves
/// blocks that stand in the way of a lower height to an earlier place in the order.

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
  std::int64_t height = 0;            ///< highest end of a block, its size rounded up to the alignment
};

/// Largest sum of sizes alive at one time (sizes rounded up to the alignment): no layout is lower.
/// Throws like make_layout().
std::int64_t max_live(std::span<const layout_block> blocks, std::int64_t alignment);

/// Work of the search behind the portfolio, in millions of comparisons of two blocks (a few milliseconds
/// each).
inline constexpr std::int32_t default_layout_effort = 50;

/// Deterministic: depends on the arguments only, never on time. Stops early when the height equals max_live.
/// The portfolio takes O(n^2) comparisons per order; `effort` bounds the search behind it, 0 leaves it out.
/// More effort never gives a higher layout.
/// Throws error(invalid_argument) for a negative size or effort, end <= begin, an alignment that is not a
/// power of two, or sizes whose sum exceeds 2^62.
layout_result make_layout(std::span<const layout_block> blocks, std::int64_t alignment,
                          std::int32_t effort = default_layout_effort);

}  // namespace stash::planner
