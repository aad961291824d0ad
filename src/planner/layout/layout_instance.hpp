// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// A layout problem as the parts of the solver see it: checked, sizes rounded, times replaced by the numbers
/// of sections. A section stands for one maximal set of blocks that occupy memory together, so two blocks
/// conflict exactly if they share a section.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "planner/layout/layout.hpp"

namespace stash::planner::placing {

/// A part of a lifetime, in sections, with the part of the block that it occupies.
struct segment {
  std::int32_t first = 0;
  std::int32_t last = 0;  ///< exclusive
  std::int64_t low = 0;
  std::int64_t high = 0;
};

/// A block that occupies memory at some time.
struct item {
  std::int32_t first = 0;  ///< hull of the segments, in sections
  std::int32_t last = 0;
  std::int64_t begin = 0;  ///< in time
  std::int64_t end = 0;
  double lifetime = 0;  ///< in time, gaps included
  std::int64_t size = 0;
  std::int64_t alignment = 1;
  std::int64_t fixed = -1;  ///< offset, or -1
  std::size_t segment_begin = 0;
  std::size_t segment_end = 0;
  std::size_t block = 0;  ///< index among the caller's blocks
};

/// The lowest multiple of `alignment` that is not below `offset`.
inline std::int64_t aligned(std::int64_t offset, std::int64_t alignment) noexcept {
  const std::int64_t over = offset % alignment;
  return over == 0 ? offset : offset + (alignment - over);
}

class instance {
 public:
  /// Throws as solve_layout() does; messages name `function`.
  instance(std::span<const layout_block> blocks, std::int64_t alignment, const char* function);

  std::vector<item> items;  ///< sorted by first, then by last descending, then by block
  std::vector<segment> segments;
  std::vector<std::int64_t> live;        ///< bytes per section
  std::vector<std::int64_t> start_time;  ///< per section: a moment at which all of its blocks are alive
  std::int64_t bound = 0;                ///< no layout is lower
  std::int64_t grain = 1;                ///< divides sizes, alignments and fixed offsets
  std::int64_t idle_top = 0;             ///< highest end of the blocks that never occupy memory
  bool windows = false;                  ///< a segment occupies part of its block
  bool boxes = true;  ///< one segment each, none fixed, one alignment that divides all sizes

  std::span<const segment> segments_of(const item& it) const {
    return std::span(segments).subspan(it.segment_begin, it.segment_end - it.segment_begin);
  }
  /// Calls visit(p, q) for every segment p of a and q of b that share a section, until it returns false.
  template <class Visit>
  void each_meeting(const item& a, const item& b, Visit visit) const {
    std::size_t i = a.segment_begin, j = b.segment_begin;
    while (i < a.segment_end && j < b.segment_end) {
      const segment& p = segments[i];
      const segment& q = segments[j];
      if (p.first < q.last && q.first < p.last && !visit(p, q)) return;
      if (p.last < q.last) {
        ++i;
      } else {
        ++j;
      }
    }
  }
  /// Whether both occupy memory in some section.
  bool conflict(const item& a, const item& b) const noexcept;
  /// Whether a at `offset_a` and b at `offset_b` share a byte at some time.
  bool overlap(const item& a, std::int64_t offset_a, const item& b, std::int64_t offset_b) const noexcept;

 private:
  void number_sections(const std::vector<std::vector<layout_gap>>& parts);
  void measure(std::int64_t alignment);
  void check_fixed(const char* function) const;
};

}  // namespace stash::planner::placing
