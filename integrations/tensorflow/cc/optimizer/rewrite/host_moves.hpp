// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// When tensors go to the host and come back, in terms of the graph's nodes.

#include <vector>

#include "optimizer/graph/control_flow.hpp"
#include "optimizer/plan/choices.hpp"
#include "optimizer/rewrite/ordering.hpp"

namespace stash_tf {

/// The nodes at which a move is tied to the step.
struct host_move {
  int out_by = -1;    ///< waits for the end of the copy to the host; -1: nobody does
  int in_after = -1;  ///< the copy back waits for it; -1: nobody can say when that should begin
};

class host_moves {
 public:
  /// `op_nodes`: planner_graph::node_of_op. Everything must outlive this.
  host_moves(const graph_view& graph, const control_flow& flow, const ordering& ordered,
             const std::vector<int>& op_nodes);

  /// For what node `from` makes, or an encoder after it, and `readers` read. Both edges lead forward in the
  /// order of the step, so they make no cycle; what comes back runs whenever a reader does.
  host_move schedule(int from, const std::vector<int>& readers, const host_stay& stay) const;

 private:
  const control_flow& flow_;
  const std::vector<int>& op_nodes_;
  std::vector<int> line_;  // position of a node in the order of the step
};

}  // namespace stash_tf
