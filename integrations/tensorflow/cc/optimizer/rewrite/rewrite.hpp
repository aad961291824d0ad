// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Puts the planner's choices into the graph.

#include <set>
#include <string>

#include "optimizer/analyse/step.hpp"
#include "optimizer/graph/control_flow.hpp"
#include "optimizer/plan/choices.hpp"
#include "optimizer/rewrite/node_edits.hpp"
#include "optimizer/rewrite/ordering.hpp"

namespace stash_tf {

/// Follows the tensor's name in that of its bits, which are kept in addition to its values.
inline constexpr char bits_suffix[] = ":bits";

struct rewritten {
  tensorflow::GraphDef graph;
  int stashes = 0;              ///< tensors and poolings that are kept in another form or memory
  std::set<std::string> moved;  ///< names of what goes to the host and comes back, as in the counters
};

/// A copy of the graph with encoders, decoders, backward ops that take encoded bytes, and moves to the host
/// and back. `op_nodes`: planner_graph::node_of_op. Control edges make memory fall:
///   gate   a decoder waits for the gradient that its reader gets from above, or it would run right after
///   the encoder; hurry  forward readers of a tensor wait for its encoder, or that would run late and hold
///   the dense tensor; line   what uses a gradient up runs before what carries it on (ordering::pairs);
///   out    the op by which a copy to the host has ended waits for it, or the forward pass would go on while
///   all copies are under way; in     a copy back waits for the op at whose end it is to begin.
rewritten rewrite(const tensorflow::GraphDef& original, const graph_view& graph, const step& analysis,
                  const choices& chosen, const control_flow& flow, const ordering& ordered,
                  const std::vector<int>& op_nodes);

}  // namespace stash_tf
