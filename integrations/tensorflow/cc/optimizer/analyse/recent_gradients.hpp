// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Which nodes of the backward pass need the same gradients.

#include <array>
#include <cstdint>
#include <vector>

#include "optimizer/graph/graph_view.hpp"

namespace stash_tf {

/// For each node, the gradients that it waits for, among the last 512 in a given order: where branches do not
/// need each other's gradients, they take turns there, so that farther back nothing else is found.
class recent_gradients {
 public:
  /// `order`: of all nodes; `is_gradient`, by node: of the backward pass, and more of it follows. Takes
  /// time and memory in proportion to the graph's.
  recent_gradients(const graph_view& graph, const std::vector<int>& order,
                   const std::vector<bool>& is_gradient);

  /// Whether `node`, which comes first in the order, needs no gradient that `other` could do without.
  bool needs_no_more(int node, int other) const;

 private:
  static constexpr int kept = 512;
  using bits = std::array<std::uint64_t, kept / 64>;

  // Those of `node` that are still kept where there have been so many.
  bits still_kept(int node, int count) const;

  std::vector<bits> before_;  // by node; the number of a gradient modulo `kept`
  std::vector<int> count_;    // by node: gradients up to it
};

}  // namespace stash_tf
