// SPDX-License-Identifier: Apache-2.0
#include "optimizer/analyse/backward.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "optimizer/graph/needs.hpp"

namespace stash_tf {

namespace {

// Of the step: what the caller or an iterator gives, but weights.
bool is_input(const graph_view& graph, int node) {
  const std::string& op = graph.op(node);
  if (op != "_Arg" && op != "Placeholder")
    return absl::StartsWith(op, "Iterator") || absl::StartsWith(op, "Optional");
  const auto& attr = graph.node(node).attr();
  const auto type = attr.find(op == "_Arg" ? "T" : "dtype");
  return type != attr.end() && type->second.type() != tensorflow::DT_RESOURCE;
}

bool has_gradient_name(const std::string& name) {
  if (!absl::StrContains(name, "gradient")) return false;
  for (const std::string_view part : absl::StrSplit(name, '/'))
    if (part == "gradient_tape" || part == "gradients") return true;
  return false;
}

// Ops that tell nothing about where they stand: merged, folded, or evaluated early. A comparison of tensors
// of the forward pass, as the gradients of maximum and clip make them, runs as soon as these are there.
bool is_metadata(const std::string& op) {
  static const std::set<std::string> ops = {"Const",          "Shape",        "ShapeN",
                                            "Size",           "Rank",         "NoOp",
                                            "_Arg",           "VarHandleOp",  "Placeholder",
                                            "ReadVariableOp", "Equal",        "NotEqual",
                                            "Less",           "LessEqual",    "Greater",
                                            "LogicalAnd",     "LogicalOr",    "LogicalNot",
                                            "Sign",           "GreaterEqual", "BroadcastGradientArgs"};
  return ops.count(op) != 0 || is_control_flow(op);
}

void close_downstream(const graph_view& graph, std::vector<int> queue, std::vector<bool>* member) {
  while (!queue.empty()) {
    const int i = queue.back();
    queue.pop_back();
    if (is_next_iteration(graph.op(i))) continue;
    for (const reader& r : graph.readers(i)) {
      if ((*member)[at(r.node)]) continue;
      (*member)[at(r.node)] = true;
      queue.push_back(r.node);
    }
  }
}

// Nodes from which an op of the forward pass is computed. Control edges do not count: the gradients of some
// activations are computed from forward ops that wait for the gradient, and so are layers that run again.
std::vector<bool> above_forward(const graph_view& graph) {
  std::vector<bool> above(at(graph.size()), false);
  std::vector<int> queue;
  for (int i = 0; i < graph.size(); ++i) {
    if (!is_layer(graph.op(i)) || has_gradient_name(graph.name(i))) continue;
    above[at(i)] = true;
    queue.push_back(i);
  }
  while (!queue.empty()) {
    const int i = queue.back();
    queue.pop_back();
    for (const source& s : graph.inputs(i)) {
      if (s.is_control() || above[at(s.node)] || is_next_iteration(graph.op(s.node))) continue;
      above[at(s.node)] = true;
      queue.push_back(s.node);
    }
  }
  return above;
}

}  // namespace

bool is_layer(const std::string& op) {
  static const std::set<std::string> ops = {"Conv2D",
                                            "_FusedConv2D",
                                            "DepthwiseConv2dNative",
                                            "_FusedDepthwiseConv2dNative",
                                            "Conv3D",
                                            "MatMul",
                                            "_FusedMatMul",
                                            "BatchMatMulV2",
                                            "BatchMatMulV3",
                                            "Einsum",
                                            "MaxPool",
                                            "MaxPool3D",
                                            "AvgPool",
                                            "AvgPool3D",
                                            "Relu",
                                            "Relu6",
                                            "LeakyRelu",
                                            "Elu",
                                            "Selu",
                                            "Sigmoid",
                                            "Tanh",
                                            "Softmax",
                                            "LogSoftmax",
                                            "BiasAdd",
                                            "FusedBatchNormV3",
                                            "_FusedBatchNormEx",
                                            "SparseSoftmaxCrossEntropyWithLogits",
                                            "SoftmaxCrossEntropyWithLogits"};
  return ops.count(op) != 0;
}

int gradient_input(const std::string& op) {
  static const std::map<std::string, int> inputs = {{"ReluGrad", 0},
                                                    {"Relu6Grad", 0},
                                                    {"LeakyReluGrad", 0},
                                                    {"EluGrad", 0},
                                                    {"SeluGrad", 0},
                                                    {"SoftplusGrad", 0},
                                                    {"SoftsignGrad", 0},
                                                    {"SigmoidGrad", 1},
                                                    {"TanhGrad", 1},
                                                    {"RsqrtGrad", 1},
                                                    {"SqrtGrad", 1},
                                                    {"ReciprocalGrad", 1},
                                                    {"MaxPoolGrad", 2},
                                                    {"MaxPool3DGrad", 2},
                                                    {"AvgPoolGrad", 1},
                                                    {"AvgPool3DGrad", 1},
                                                    {"Conv2DBackpropFilter", 2},
                                                    {"Conv3DBackpropFilterV2", 2},
                                                    {"DepthwiseConv2dNativeBackpropFilter", 2},
                                                    {"BiasAddGrad", 0},
                                                    {"FusedBatchNormGradV3", 0},
                                                    {"LRNGrad", 0},
                                                    {"ResizeBilinearGrad", 0},
                                                    {"ResizeNearestNeighborGrad", 0}};
  const auto it = inputs.find(op);
  return it == inputs.end() ? -1 : it->second;
}

bool is_cross_entropy(const std::string& op) {
  return op == "SparseSoftmaxCrossEntropyWithLogits" || op == "SoftmaxCrossEntropyWithLogits";
}

std::vector<bool> backward_nodes(const graph_view& graph) {
  std::vector<bool> backward(at(graph.size()), false);
  std::vector<int> seeds;
  const auto seed = [&](int i) {
    if (backward[at(i)]) return;
    backward[at(i)] = true;
    seeds.push_back(i);
  };
  const std::vector<bool> above = above_forward(graph);
  for (int i = 0; i < graph.size(); ++i) {
    if (gradient_input(graph.op(i)) >= 0) seed(i);
    if (is_cross_entropy(graph.op(i))) {
      for (const reader& r : graph.readers(i))
        if (r.port == 1) seed(r.node);
    }
    if (has_gradient_name(graph.name(i)) && !is_metadata(graph.op(i)) && !above[at(i)] &&
        !graph.inputs(i).empty())
      seed(i);
  }
  close_downstream(graph, std::move(seeds), &backward);
  return backward;
}

std::vector<bool> after_a_gradient(const graph_view& graph, const std::vector<int>& order,
                                   const std::vector<bool>& backward) {
  std::vector<bool> late(at(graph.size()), false);
  const auto close = [&](std::vector<int> seeds) {
    for (const int i : seeds)
      late[at(i)] = true;
    close_downstream(graph, std::move(seeds), &late);
  };
  std::vector<int> seeds, roots;
  std::vector<int> depth(at(graph.size()), 0);
  for (const int i : order) {
    bool first = backward[at(i)];
    for (const source& s : graph.inputs(i)) {
      depth[at(i)] = std::max(depth[at(i)], depth[at(s.node)] + 1);
      first = first && !backward[at(s.node)];
    }
    if (backward[at(i)] && gradient_input(graph.op(i)) >= 0) seeds.push_back(i);
    if (first) roots.push_back(i);
  }
  close(std::move(seeds));
  // A gradient begins at the end of the forward pass, derivatives of activations in its middle. Seen from
  // the end, what meets a gradient everywhere is such a derivative, and the rest are gradients.
  std::stable_sort(roots.begin(), roots.end(), [&](int a, int b) { return depth[at(a)] > depth[at(b)]; });
  for (const int root : roots) {
    if (late[at(root)]) continue;
    bool meets = true;
    bool ends = true;
    std::set<int> seen = {root};
    std::vector<int> queue = {root};
    while (!queue.empty() && meets) {
      const int i = queue.back();
      queue.pop_back();
      for (const reader& r : graph.readers(i)) {
        if (r.port < 0) continue;
        if (!late[at(r.node)]) {
          if (seen.insert(r.node).second) queue.push_back(r.node);
          continue;
        }
        ends = false;
        bool other = false;
        for (const source& s : graph.inputs(r.node))
          other = other || (!s.is_control() && late[at(s.node)]);
        meets = meets && other;
      }
    }
    if (!meets || ends) close({root});
  }
  return late;
}

std::vector<bool> depends_on_data(const graph_view& graph, const std::vector<int>& order) {
  std::vector<bool> depends(at(graph.size()), false);
  for (const int i : order) {
    const std::string& op = graph.op(i);
    bool own = is_input(graph, i) || absl::StrContains(op, "Random");
    for (const source& s : graph.inputs(i))
      own = own || (!s.is_control() && depends[at(s.node)] && op != "ReadVariableOp");
    depends[at(i)] = own;
  }
  return depends;
}

std::vector<bool> made_of_inputs(const graph_view& graph, const std::vector<int>& order) {
  std::vector<bool> made(at(graph.size()), false);
  std::vector<bool> constant(at(graph.size()), false);
  for (const int i : order) {
    const std::string& op = graph.op(i);
    bool any = false, all = !is_layer(op) && !absl::StrContains(op, "Random") && !is_held_elsewhere(op);
    for (const source& s : graph.inputs(i)) {
      if (s.is_control()) continue;
      any = any || made[at(s.node)];
      all = all && (made[at(s.node)] || constant[at(s.node)]);
    }
    constant[at(i)] = op == "Const" || (all && !any);
    made[at(i)] = is_input(graph, i) || (all && any);
  }
  return made;
}

}  // namespace stash_tf
