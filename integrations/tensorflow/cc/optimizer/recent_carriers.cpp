#include "optimizer/recent_carriers.hpp"

#include <cstddef>

namespace stash_tf {

recent_carriers::recent_carriers(const graph_view& graph, const std::vector<int>& order,
                                 const std::vector<bool>& carries_on)
    : before_(at(graph.size()), bits{}), count_(at(graph.size()), 0) {
  int count = 0;
  for (const int i : order) {
    if (carries_on[at(i)]) ++count;
    bits& all = before_[at(i)];
    for (const int first : graph.before(i)) {
      const bits more = still_kept(first, count);
      for (std::size_t k = 0; k < all.size(); ++k)
        all[k] |= more[k];
    }
    if (carries_on[at(i)]) all[at(count % kept / 64)] |= std::uint64_t{1} << (count % 64);
    count_[at(i)] = count;
  }
}

recent_carriers::bits recent_carriers::still_kept(int from, int count) const {
  if (count - count_[at(from)] >= kept) return {};
  bits left = before_[at(from)];
  for (int k = count_[at(from)] + 1; k <= count; ++k)
    left[at(k % kept / 64)] &= ~(std::uint64_t{1} << (k % 64));
  return left;
}

bool recent_carriers::needs_no_more(int node, int other) const {
  const bits needed = still_kept(node, count_[at(other)]);
  for (std::size_t k = 0; k < needed.size(); ++k)
    if ((needed[k] & ~before_[at(other)][k]) != 0) return false;
  return true;
}

}  // namespace stash_tf
