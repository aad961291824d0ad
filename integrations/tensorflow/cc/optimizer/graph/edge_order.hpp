// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Which node runs after which in a graph without cycles to which edges are added one by one.

#include <cstdint>
#include <vector>

#include "optimizer/graph/graph_view.hpp"

namespace stash_tf {

class edge_order {
 public:
  /// `order`: of all nodes of the graph, which has to outlive this.
  edge_order(const graph_view& graph, const std::vector<int>& order);

  /// Whether `second` is `first`, or runs after it by the graph or the edges added. Looks only at nodes that
  /// come before `second` in an order of all, so that it is cheap for nodes that lie near each other there.
  bool leads_to(int first, int second) const;
  /// `second` must not lead to `first`.
  void add(int first, int second);

 private:
  const graph_view& graph_;
  std::vector<std::int64_t> rank_;  ///< by node: larger than that of all before it
  std::vector<std::vector<int>> added_;
  mutable std::vector<int> seen_;  ///< by node: in which search
  mutable int search_ = 0;
};

}  // namespace stash_tf
