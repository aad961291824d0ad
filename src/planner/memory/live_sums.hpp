// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// A row of sums to whose ranges numbers are added, and which knows the first of its largest.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace stash::planner {

class live_sums {
 public:
  /// All 0.
  explicit live_sums(std::size_t count);

  /// To all from `first` to before `end`; does nothing where these are none.
  void add(std::size_t first, std::size_t end, std::int64_t bytes) { add(1, 0, leaves_, first, end, bytes); }
  std::int64_t largest() const { return most_[1]; }
  /// Where the first of the largest lies.
  std::size_t first_of_largest() const;

 private:
  void add(std::size_t node, std::size_t from, std::size_t to, std::size_t first, std::size_t end,
           std::int64_t bytes);

  std::size_t leaves_ = 1;           // a power of two
  std::vector<std::int64_t> most_;   // of a subtree, without what was added above it
  std::vector<std::int64_t> added_;  // to all of a subtree
};

}  // namespace stash::planner
