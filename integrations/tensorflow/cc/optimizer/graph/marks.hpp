// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// How nodes that this optimizer has made or changed are told from those of TensorFlow.

#include "optimizer/graph/graph_view.hpp"

namespace stash_tf {

/// Attribute of every node that was added or changed.
inline constexpr char mark[] = "_stash";

/// Whether the node was added or changed.
inline bool is_marked(const graph_view& graph, int node) {
  return graph.node(node).attr().count(mark) != 0;
}

}  // namespace stash_tf
