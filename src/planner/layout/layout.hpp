// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Static memory layout: offsets for blocks with known lifetimes so that blocks that occupy memory at the
/// same time do not overlap and the height is small. Method, guarantees and figures: docs/layout.md.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace stash::planner {

/// A hole in a block's lifetime: during [begin, end) the block occupies only [low, high) of itself, nothing
/// if the two are equal.
struct layout_gap {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t low = 0;
  std::int64_t high = 0;

  bool operator==(const layout_gap&) const = default;
};

/// A block alive during [begin, end). A block of no bytes is placed at 0 (or where it is fixed) and is in
/// nobody's way.
struct layout_block {
  std::int64_t begin = 0;
  std::int64_t end = 0;  ///< > begin
  std::int64_t size = 0;
  std::int64_t alignment = 1;              ///< of the offset; any positive number
  std::optional<std::int64_t> fixed = {};  ///< the offset, if it is not for the layout to choose
  std::vector<layout_gap> gaps = {};       ///< disjoint, inside the lifetime, in any order

  bool operator==(const layout_block&) const = default;
};

/// What the layout of a problem much like this one says about this one.
struct layout_hint {
  std::vector<std::int64_t> offsets;  ///< parallel to the blocks; -1: there was no such block
  std::int32_t way = 0;               ///< layout_solution::way
};

struct layout_problem {
  std::vector<layout_block> blocks;
  /// Of all offsets and sizes (sizes are rounded up): a power of two.
  std::int64_t alignment = 1;
  /// What the height must not exceed; without it the height is minimised.
  std::optional<std::int64_t> capacity = {};
  /// If it has offsets, and there is a capacity: these are mended (few blocks), or the blocks are placed in
  /// that way, and in the most promising of the other orders (many), and nothing else is tried. Much quicker,
  /// and mostly what stands out of the capacity is near to what stood out before.
  layout_hint hint = {};
};

/// Work that solve_layout() may spend after its portfolio. Both limits hold.
struct layout_limits {
  /// In elementary steps (a comparison of two blocks, a block looked at in a search node; about a nanosecond
  /// each): the same everywhere, so that a result depends on the arguments only.
  std::int64_t work = 1'000'000'000;
  /// Asked now and then, also within the portfolio once there is a layout; true ends the search with the
  /// best layout so far. For clocks and Ctrl-C.
  std::function<bool()> stop = {};
};

enum class layout_status : std::uint8_t {
  fits,        ///< within the capacity, or there is none
  not_found,   ///< the limits ended the search; the offsets are of the lowest layout seen
  impossible,  ///< no layout has this capacity; the offsets are of the lowest layout seen
};

struct layout_solution {
  layout_status status = layout_status::fits;
  std::vector<std::int64_t> offsets;  ///< parallel to the blocks
  std::int64_t height = 0;            ///< highest end of a block
  std::int64_t bound = 0;             ///< proven: no layout is lower
  bool proven_optimal = false;        ///< height == bound
  std::int32_t way = 0;               ///< of placing one after the other, what ended lowest at first
  std::int64_t nodes = 0;             ///< of the exact search
  std::int64_t work = 0;              ///< elementary steps, see layout_limits
};

/// Portfolio of orders, exact search, promotion, ejection, hill climb. Without `limits.stop` deterministic.
/// Offsets pass check_layout() (layout_checker.hpp). Throws error(invalid_argument) for a malformed block
/// (end <= begin, size < 0, alignment < 1, fixed < 0 or not aligned, a gap outside the lifetime or the block
/// or overlapping another), fixed blocks that overlap, an alignment that is not a power of two, a capacity or
/// limit below 0, or if sizes, alignments and fixed offsets together pass 2^62.
layout_solution solve_layout(const layout_problem& problem, const layout_limits& limits = {});

/// The moment at which most bytes are alive, the earliest of several.
struct layout_peak {
  std::int64_t bytes = 0;
  std::int64_t time = 0;
  std::vector<std::size_t> blocks;  ///< occupying memory then, ascending
};

/// No layout is lower than the peak's bytes (sizes rounded up to the alignment). Throws like solve_layout().
layout_peak peak_of(const layout_problem& problem);

struct layout_result {
  std::vector<std::int64_t> offsets;  ///< parallel to the blocks, multiples of the alignment
  std::int64_t height = 0;            ///< highest end of a block, its size rounded up to the alignment
};

/// Bytes of peak_of().
std::int64_t max_live(std::span<const layout_block> blocks, std::int64_t alignment);

/// Work of the search after the portfolio, in millions of the steps of layout_limits.
inline constexpr std::int32_t default_layout_effort = 50;

/// solve_layout() without a capacity. Depends on the arguments only, never on time. More effort never gives
/// a higher layout; 0 leaves the search after the portfolio out. Throws like solve_layout(), and for a
/// negative effort.
layout_result make_layout(std::span<const layout_block> blocks, std::int64_t alignment,
                          std::int32_t effort = default_layout_effort);

}  // namespace stash::planner
