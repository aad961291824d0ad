#pragma once
/// \file
/// Which nodes of the backward pass need the same gradients.

#include <array>
#include <cstdint>
#include <vector>

#include "optimizer/graph_view.hpp"

namespace stash_tf {

/// For each node, those that carry a gradient on and run before it, among the last 256 of these in a given
/// order: where branches do not need each other's gradients, they take turns there, so that farther back
/// nothing else is found.
class recent_carriers {
 public:
  /// `order`: of all nodes. Takes time and memory in proportion to the graph's.
  recent_carriers(const graph_view& graph, const std::vector<int>& order,
                  const std::vector<bool>& carries_on);

  /// Whether `node`, which comes first in the order, needs no gradient that `other` could do without.
  bool needs_no_more(int node, int other) const;

 private:
  static constexpr int kept = 256;
  using bits = std::array<std::uint64_t, kept / 64>;

  // Those of `from` that are still kept where so many carriers have run.
  bits still_kept(int from, int count) const;

  std::vector<bits> before_;  // by node; the number of a carrier modulo `kept`
  std::vector<int> count_;    // by node: carriers up to it
};

}  // namespace stash_tf
