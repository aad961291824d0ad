// SPDX-License-Identifier: Apache-2.0
#include "optimizer/analyse/reader_needs.hpp"

#include <algorithm>
#include <set>

#include "optimizer/analyse/backward.hpp"
#include "optimizer/graph/list_sources.hpp"
#include "optimizer/graph/needs.hpp"
#include "optimizer/graph/views.hpp"

namespace stash_tf {

reader_needs::reader_needs(const graph_view& graph, const tensor_sizes& sizes, const std::vector<int>& order,
                           const std::vector<bool>& backward, const std::vector<bool>& late)
    : graph_(graph),
      sizes_(sizes),
      inputs_(made_of_inputs(graph, order)),
      propagation_(graph, order, backward, late) {}

std::vector<std::string> reader_needs::of(const tensor_size& size, const source& root, int node,
                                          int input) const {
  if (size.type == tensorflow::DT_BOOL) return {"mask"};
  std::vector<std::string> needs = propagation_.needs(node, input);
  // Pictures have 8 bits, of which narrow formats leave four, and the first layer sees how they differ.
  if (is_made_of_inputs(root) || needs_fine_values(graph_, root.node, node, input))
    std::replace(needs.begin(), needs.end(), std::string("value"), std::string("fine_value"));
  if (is_spread(size, node))
    std::replace(needs.begin(), needs.end(), std::string("value"), std::string("exact_value"));
  return needs;
}

// Also in a slice of an input over which a loop goes.
bool reader_needs::is_made_of_inputs(const source& root) const {
  if (inputs_[at(root.node)]) return true;
  if (graph_.op(root.node) != "TensorListGetItem") return false;
  const std::vector<source> wholes = sources_of_list(graph_, graph_.inputs(root.node)[0]).wholes;
  return std::any_of(wholes.begin(), wholes.end(),
                     [&](const source& whole) { return inputs_[at(root_of(graph_, whole).node)]; });
}

// What is spread over something much larger, as norms have a mean and a factor for each channel or row:
// what it is rounded by, all of that is off by, and so is every gradient in front of it. Little is saved by
// it.
bool reader_needs::is_spread(const tensor_size& operand, int node) const {
  static const std::set<std::string> ops = {"Mul",   "MulNoNan", "RealDiv",          "Div", "DivNoNan", "Add",
                                            "AddV2", "Sub",      "SquaredDifference"};
  const tensor_size* result = sizes_.find({node, 0});
  return ops.count(graph_.op(node)) != 0 && result != nullptr && result->elements >= 8 * operand.elements;
}

}  // namespace stash_tf
