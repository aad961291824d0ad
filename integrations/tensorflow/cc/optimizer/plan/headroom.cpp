// SPDX-License-Identifier: Apache-2.0
#include "optimizer/plan/headroom.hpp"

#include <cstddef>
#include <utility>

#include "optimizer/graph/graph_view.hpp"

namespace stash_tf {

headroom::headroom(const std::vector<int>& order, std::vector<std::int64_t> free_bytes)
    : free_(std::move(free_bytes)) {
  for (std::size_t k = 0; k < order.size(); ++k) {
    const std::size_t node = at(order[k]);
    if (node >= position_.size()) position_.resize(node + 1, -1);
    position_[node] = static_cast<int>(k);
  }
}

bool headroom::take(int first, int last, std::int64_t bytes) {
  if (!knows(first) || !knows(last)) return false;
  const int begin = position(first) + 1;
  const int end = position(last);
  for (int k = begin; k < end; ++k)
    if (free_[at(k)] < bytes) return false;
  for (int k = begin; k < end; ++k)
    free_[at(k)] -= bytes;
  return true;
}

int headroom::position(int node) const {
  return node >= 0 && at(node) < position_.size() ? position_[at(node)] : -1;
}

}  // namespace stash_tf
