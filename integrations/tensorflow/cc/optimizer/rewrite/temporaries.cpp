// SPDX-License-Identifier: Apache-2.0
#include "optimizer/rewrite/temporaries.hpp"

namespace stash_tf {

std::vector<std::pair<int, int>> first_terms(const graph_view& graph, const std::vector<int>& order,
                                             const control_flow& flow) {
  const std::vector<int> position = graph.positions(order);
  std::vector<std::pair<int, int>> pairs;
  for (int variable = 0; variable < graph.size(); ++variable) {
    if (graph.op(variable) != "TemporaryVariable") continue;
    int first = -1;
    // The variable is set to zero, and the terms are added to what that gives.
    std::vector<int> named = {variable};
    for (const reader& r : graph.readers(variable))
      if (r.port >= 0 && graph.op(r.node) == "Assign") named.push_back(r.node);
    for (const int name : named) {
      for (const reader& r : graph.readers(name)) {
        if (r.port < 0 || graph.op(r.node) != "AssignAdd" || graph.inputs(r.node).size() < 2) continue;
        const int term = graph.inputs(r.node)[1].node;
        if (first < 0 || position[at(term)] < position[at(first)]) first = term;
      }
    }
    if (first >= 0 && flow.may_wait(variable, first)) pairs.emplace_back(first, variable);
  }
  return pairs;
}

}  // namespace stash_tf
