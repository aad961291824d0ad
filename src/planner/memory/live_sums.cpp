// SPDX-License-Identifier: Apache-2.0
#include "planner/memory/live_sums.hpp"

#include <algorithm>
#include <limits>

namespace stash::planner {

live_sums::live_sums(std::size_t count) {
  while (leaves_ < count)
    leaves_ *= 2;
  most_.assign(2 * leaves_, 0);
  added_.assign(2 * leaves_, 0);
  // Nothing lies past the end; halved, so that sums stay numbers.
  add(count, leaves_, std::numeric_limits<std::int64_t>::min() / 2);
}

void live_sums::add(std::size_t node, std::size_t from, std::size_t to, std::size_t first, std::size_t end,
                    std::int64_t bytes) {
  if (end <= from || to <= first || first >= end) return;
  if (first <= from && to <= end) {
    most_[node] += bytes;
    added_[node] += bytes;
    return;
  }
  const std::size_t middle = from + (to - from) / 2;
  add(2 * node, from, middle, first, end, bytes);
  add(2 * node + 1, middle, to, first, end, bytes);
  most_[node] = std::max(most_[2 * node], most_[2 * node + 1]) + added_[node];
}

std::size_t live_sums::first_of_largest() const {
  std::size_t node = 1;
  while (node < leaves_)
    node = most_[2 * node] >= most_[2 * node + 1] ? 2 * node : 2 * node + 1;
  return node - leaves_;
}

}  // namespace stash::planner
