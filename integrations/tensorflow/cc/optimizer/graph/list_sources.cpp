// SPDX-License-Identifier: Apache-2.0
#include "optimizer/graph/list_sources.hpp"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "optimizer/graph/loops.hpp"

namespace stash_tf {

namespace {

// How many of the first inputs are lists that go on in the result.
std::size_t lists_handed_on(const std::string& op, std::size_t inputs) {
  if (is_merge(op)) return inputs;
  if (op == "TensorListConcatLists") return std::min<std::size_t>(inputs, 2);
  const bool one = op == "TensorListPushBack" || op == "TensorListSetItem" || op == "TensorListPopBack" ||
                   op == "TensorListResize" || op == "TensorListScatterIntoExistingList" ||
                   op == "Identity" || is_enter(op) || is_exit(op) || is_next_iteration(op) || is_switch(op);
  return one ? std::min<std::size_t>(inputs, 1) : 0;
}

}  // namespace

bool is_list_op(const std::string& op) {
  return absl::StartsWith(op, "TensorList") || op == "EmptyTensorList";
}

list_sources sources_of_list(const graph_view& graph, const source& list) {
  list_sources found;
  std::vector<source> queue = {list};
  std::set<source> seen = {list};
  while (!queue.empty()) {
    const source s = queue.back();
    queue.pop_back();
    const std::string& op = graph.op(s.node);
    const std::vector<source>& inputs = graph.inputs(s.node);
    if (op == "TensorListPushBack" && inputs.size() > 1) found.elements.push_back(inputs[1]);
    if (op == "TensorListSetItem" && inputs.size() > 2) found.elements.push_back(inputs[2]);
    if (op == "TensorListFromTensor" && !inputs.empty()) found.wholes.push_back(inputs[0]);
    for (std::size_t k = 0; k < lists_handed_on(op, inputs.size()); ++k)
      if (!inputs[k].is_control() && seen.insert(inputs[k]).second) queue.push_back(inputs[k]);
  }
  return found;
}

}  // namespace stash_tf
