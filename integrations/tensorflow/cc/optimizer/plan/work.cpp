// SPDX-License-Identifier: Apache-2.0
#include "optimizer/plan/work.hpp"

#include "absl/strings/match.h"

namespace stash_tf {

namespace {

const tensor_size* input_size(const graph_view& graph, int node, int input, const tensor_sizes& sizes) {
  const auto& inputs = graph.inputs(node);
  return input < static_cast<int>(inputs.size()) ? sizes.find(inputs[at(input)]) : nullptr;
}

// Every element of the layer's output (or of its gradient) meets the weights of one output channel, of which
// depthwise convolutions have one for each of the last two dimensions.
double of_convolution(const tensor_size* outer, const tensor_size* weights, bool depthwise) {
  if (outer == nullptr || weights == nullptr || weights->dims.size() < 2 || weights->elements == 0) return 0;
  const std::size_t last = weights->dims.size() - 1;
  const std::int64_t channels = weights->dims[last] * (depthwise ? weights->dims[last - 1] : 1);
  return 2.0 * static_cast<double>(outer->elements) * static_cast<double>(weights->elements / channels);
}

// Elements of y times the inner length, which a, of as many rows as y (or columns, if transposed), says.
double of_product(const tensor_size* a, const tensor_size* y) {
  if (a == nullptr || y == nullptr || y->dims.size() < 2 || a->dims.size() < 2) return 0;
  const auto matrix = [](const tensor_size& t) {
    return t.dims[t.dims.size() - 1] * t.dims[t.dims.size() - 2];
  };
  const std::int64_t rows = y->dims[y->dims.size() - 2];
  return rows == 0 ? 0 : 2.0 * static_cast<double>(y->elements) * static_cast<double>(matrix(*a) / rows);
}

}  // namespace

double flops_of(const graph_view& graph, int node, const tensor_sizes& sizes) {
  const std::string& op = graph.op(node);
  const tensor_size* y = sizes.find({node, 0});
  const auto input = [&](int k) { return input_size(graph, node, k, sizes); };
  if (absl::StrContains(op, "Conv")) {
    const bool depthwise = absl::StrContains(op, "Depthwise");
    if (absl::StrContains(op, "BackpropFilter")) return of_convolution(input(2), y, depthwise);
    if (absl::StrContains(op, "BackpropInput")) return of_convolution(input(2), input(1), depthwise);
    return of_convolution(y, input(1), depthwise);
  }
  return absl::StrContains(op, "MatMul") ? of_product(input(0), y) : 0;
}

}  // namespace stash_tf
