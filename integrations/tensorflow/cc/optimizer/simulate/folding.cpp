// SPDX-License-Identifier: Apache-2.0
#include "optimizer/simulate/folding.hpp"

#include <algorithm>
#include <cstdint>
#include <string>

#include "optimizer/graph/needs.hpp"
#include "tensorflow/core/framework/op.h"

namespace stash_tf {

namespace {

constexpr std::int64_t most = std::int64_t{10} << 20;

bool is_stateless(const std::string& op) {
  const tensorflow::OpRegistrationData* known = nullptr;
  return tensorflow::OpRegistry::Global()->LookUp(op, &known).ok() && !known->op_def.is_stateful();
}

bool is_data(const source& s) {
  return !s.is_control();
}

}  // namespace

std::vector<bool> folded_nodes(const graph_view& graph, const std::vector<int>& order,
                               const output_sizes& outputs, bool on_device) {
  std::vector<bool> folded(at(graph.size()), false);
  for (const int i : order) {
    const std::string& op = graph.op(i);
    if (op == "Const") {
      folded[at(i)] = true;
      continue;
    }
    const std::vector<source>& inputs = graph.inputs(i);
    const bool of_constants = std::any_of(inputs.begin(), inputs.end(), is_data) &&
                              std::all_of(inputs.begin(), inputs.end(),
                                          [&](const source& s) { return !is_data(s) || folded[at(s.node)]; });
    folded[at(i)] = of_constants && !on_device && outputs.bytes({i, 0}) <= most && !is_control_flow(op) &&
                    is_stateless(op);
  }
  return folded;
}

}  // namespace stash_tf
