// SPDX-License-Identifier: Apache-2.0
#include "optimizer/analyse/forward_readers.hpp"

#include <algorithm>

#include "optimizer/graph/needs.hpp"

namespace stash_tf {

namespace {

void collect(const graph_view& graph, const step& analysis, int from, int depth, std::vector<int>* found) {
  constexpr int deepest = 4;
  for (const reader& r : graph.readers(from)) {
    if (r.port < 0 || analysis.backward[at(r.node)] || is_control_flow(graph.op(r.node))) continue;
    if (graph.node(r.node).device() != graph.node(from).device()) continue;
    if (is_alias(graph.op(r.node)) || is_fused_later(graph, r.node)) {
      if (depth < deepest) collect(graph, analysis, r.node, depth + 1, found);
    } else {
      found->push_back(r.node);
    }
  }
}

bool is_swish(const graph_view& graph, int product) {
  if (graph.op(product) != "Mul") return false;
  const std::vector<source>& inputs = graph.inputs(product);
  const auto is_sigmoid_of = [&](const source& s, const source& x) {
    return graph.op(s.node) == "Sigmoid" && graph.inputs(s.node)[0] == x;
  };
  return is_sigmoid_of(inputs[0], inputs[1]) || is_sigmoid_of(inputs[1], inputs[0]);
}

}  // namespace

bool is_fused_later(const graph_view& graph, int node) {
  return graph.op(node) == "Pad" || is_part_of_swish(graph, node);
}

bool is_part_of_swish(const graph_view& graph, int node) {
  if (graph.op(node) != "Sigmoid") return is_swish(graph, node);
  const std::vector<reader>& readers = graph.readers(node);
  return std::any_of(readers.begin(), readers.end(),
                     [&](const reader& r) { return is_swish(graph, r.node); });
}

std::vector<int> forward_readers(const graph_view& graph, const step& analysis, int node) {
  std::vector<int> found;
  collect(graph, analysis, node, 0, &found);
  return found;
}

}  // namespace stash_tf
