// SPDX-License-Identifier: Apache-2.0
#include "optimizer/graph/seeds.hpp"

#include <algorithm>

namespace stash_tf {

namespace {

template <class Nodes>
bool has_seeds(const Nodes& nodes) {
  return std::any_of(nodes.begin(), nodes.end(), [](const tensorflow::NodeDef& n) {
    const auto first = n.attr().find("seed");
    const auto second = n.attr().find("seed2");
    const auto end = n.attr().end();
    return first != end && second != end && (first->second.i() != 0 || second->second.i() != 0);
  });
}

}  // namespace

bool draws_with_seeds(const tensorflow::GraphDef& graph) {
  const auto& functions = graph.library().function();
  return has_seeds(graph.node()) || std::any_of(functions.begin(), functions.end(),
                                                [](const auto& f) { return has_seeds(f.node_def()); });
}

}  // namespace stash_tf
