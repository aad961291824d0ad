// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// When the turn of a reader comes: the nodes that decoders wait for.

#include <limits>
#include <map>
#include <vector>

#include "optimizer/graph/control_flow.hpp"
#include "optimizer/graph/edge_order.hpp"
#include "optimizer/graph/graph_view.hpp"

namespace stash_tf {

class reader_gates {
 public:
  /// Refers to all of them; `order` is topological, `backward` and `late` are of backward_nodes() and
  /// after_a_gradient().
  reader_gates(const graph_view& graph, const std::vector<int>& order, const std::vector<bool>& backward,
               const std::vector<bool>& late, const control_flow& flow);

  /// The last of the reader's inputs that the backward pass computes; a decoder that waits for it runs right
  /// before the reader. Of a derivative that is computed from the forward pass alone, a gradient that it
  /// meets; which one depends on those that were asked for before. -1: nothing says when the reader runs.
  int gate_of(int node, int input);

 private:
  int lent_gate(int node);
  template <class Allowed>
  int earliest(int node, const std::vector<int>& met, const Allowed& allowed) const;
  std::vector<int> met_after(int node, bool all);

  const graph_view& graph_;
  const std::vector<bool>&backward_, &late_;
  const control_flow& flow_;
  const std::vector<int> rank_;                         ///< by node
  std::map<int, int> lent_;                             ///< gates, by reader
  std::map<int, std::vector<int>> lent_to_;             ///< the same by gate
  int earliest_met_ = std::numeric_limits<int>::max();  ///< rank of the first gradient met by any of these
  edge_order edges_;                                    ///< with those gates
  bool is_simple_ = false;                              ///< no loops, and no cycle
  std::vector<bool> follows_;                           ///< met_after()
  std::vector<int> found_;
};

}  // namespace stash_tf
