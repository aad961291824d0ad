// SPDX-License-Identifier: Apache-2.0
#include "optimizer/analyse/recent_gradients.hpp"

#include <cstddef>

namespace stash_tf {

recent_gradients::recent_gradients(const graph_view& graph, const std::vector<int>& order,
                                   const std::vector<bool>& is_gradient)
    : before_(at(graph.size()), bits{}), count_(at(graph.size()), 0) {
  int count = 0;
  for (const int i : order) {
    if (is_gradient[at(i)]) ++count;
    bits& all = before_[at(i)];
    for (const int first : graph.before(i)) {
      const bits more = still_kept(first, count);
      for (std::size_t k = 0; k < all.size(); ++k)
        all[k] |= more[k];
    }
    if (is_gradient[at(i)]) all[at(count % kept / 64)] |= std::uint64_t{1} << (count % 64);
    count_[at(i)] = count;
  }
}

recent_gradients::bits recent_gradients::still_kept(int node, int count) const {
  if (count - count_[at(node)] >= kept) return {};
  bits left = before_[at(node)];
  for (int k = count_[at(node)] + 1; k <= count; ++k)
    left[at(k % kept / 64)] &= ~(std::uint64_t{1} << (k % 64));
  return left;
}

bool recent_gradients::needs_no_more(int node, int other) const {
  const bits needed = still_kept(node, count_[at(other)]);
  for (std::size_t k = 0; k < needed.size(); ++k)
    if ((needed[k] & ~before_[at(other)][k]) != 0) return false;
  return true;
}

}  // namespace stash_tf
