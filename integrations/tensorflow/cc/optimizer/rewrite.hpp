#pragma once
/// \file
/// Puts the planner's choices into the graph.

#include <utility>
#include <vector>

#include "optimizer/choices.hpp"
#include "optimizer/control_flow.hpp"
#include "optimizer/step.hpp"

namespace stash_tf {

/// Attribute of every node that was added or changed.
inline constexpr char mark[] = "_stash";

struct rewritten {
  tensorflow::GraphDef graph;
  int stashes = 0;  ///< tensors and poolings that are kept in another form
};

/// A copy of the graph with encoders, decoders and backward ops that take encoded bytes. Three kinds of
/// control edges make memory fall:
///   gate   a decoder waits for the gradient that its reader gets from above, or it would run right behind
///   the encoder; hurry  forward readers of a tensor wait for its encoder, or that would run late and hold
///   the dense tensor; line   what uses a gradient up runs before what carries it on (`pairs`, see
///   ordering.hpp).
rewritten rewrite(const tensorflow::GraphDef& original, const graph_view& graph, const step& of,
                  const choices& chosen, const control_flow& flow,
                  const std::vector<std::pair<int, int>>& pairs);

/// The graph as it is, but for an op that fails with this message before any variable is written.
rewritten refuse(const tensorflow::GraphDef& original, const graph_view& graph, const step& of,
                 const control_flow& flow, const std::string& message);

}  // namespace stash_tf
