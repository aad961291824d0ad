// SPDX-License-Identifier: Apache-2.0
#include "optimizer/graph/constants.hpp"

#include "tensorflow/core/framework/tensor.h"

namespace stash_tf {

namespace {

template <class T>
std::vector<std::int64_t> numbers_of(const tensorflow::Tensor& t) {
  const auto values = t.flat<T>();
  return {values.data(), values.data() + values.size()};
}

}  // namespace

std::optional<std::vector<std::int64_t>> constant_integers(const graph_view& graph, int node) {
  const auto& attr = graph.node(node).attr();
  const auto value = attr.find("value");
  tensorflow::Tensor t;
  if (graph.op(node) != "Const" || value == attr.end() || !t.FromProto(value->second.tensor()))
    return std::nullopt;
  if (t.dtype() == tensorflow::DT_INT32) return numbers_of<std::int32_t>(t);
  if (t.dtype() == tensorflow::DT_INT64) return numbers_of<std::int64_t>(t);
  return std::nullopt;
}

std::optional<std::int64_t> constant_integer(const graph_view& graph, int node) {
  const auto numbers = constant_integers(graph, node);
  if (!numbers || numbers->size() != 1) return std::nullopt;
  return numbers->front();
}

}  // namespace stash_tf
