#include "optimizer/shapes.hpp"

#include <map>
#include <memory>
#include <set>

#include "optimizer/list_shapes.hpp"
#include "optimizer/needs.hpp"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/grappler/costs/graph_properties.h"

namespace stash_tf {

namespace {

using tensorflow::grappler::GraphProperties;
using tensorflow::grappler::GrapplerItem;

// Grappler writes unknown dimensions as symbols below -1, and the batch of a step's input is the first it
// finds.
constexpr std::int64_t first_symbol = -2;
constexpr std::int64_t nominal_batch = 32;
constexpr std::int64_t most_elements = std::int64_t{1} << 46;
constexpr std::int64_t unknown = -1;
constexpr int most_rounds = 4;  // of inference: lists may hold what was computed from others
constexpr std::int64_t more_than_most = -2;

// Each input of a step has a symbol of its own for its samples until an op joins them. All are taken for the
// batch: where they are not, plans are of a wrong size, but no values are.
std::set<std::int64_t> batch_symbols(const GraphProperties& properties, const graph_view& graph) {
  std::set<std::int64_t> symbols = {first_symbol};
  for (int i = 0; i < graph.size(); ++i) {
    if (!is_given(graph.op(i)) || !properties.HasOutputProperties(graph.name(i))) continue;
    for (const auto& p : properties.GetOutputProperties(graph.name(i)))
      if (p.shape().dim_size() > 0 && p.shape().dim(0).size() <= first_symbol)
        symbols.insert(p.shape().dim(0).size());
  }
  return symbols;
}

tensor_size size_of(const tensorflow::OpInfo::TensorProperties& p, const std::set<std::int64_t>& symbols,
                    std::int64_t batch) {
  tensor_size s;
  s.type = p.dtype();
  s.elements = unknown;
  if (p.shape().unknown_rank()) return s;
  std::int64_t elements = 1;
  for (const auto& d : p.shape().dim()) {
    std::int64_t n = d.size();
    if (symbols.count(n) != 0) {
      n = batch;
      s.per_sample = true;
      ++s.batch_dims;
    }
    if (n < 0) return s;
    if (n > 0 && elements > most_elements / n) {
      s.elements = more_than_most;
      return s;
    }
    s.dims.push_back(n);
    elements *= n;
  }
  s.elements = elements;
  return s;
}

absl::Status infer_shapes(GraphProperties* properties) {
  return properties->InferStatically(/*assume_valid_feeds=*/false,
                                     /*aggressive_shape_inference=*/false,
                                     /*include_input_tensor_values=*/false,
                                     /*include_output_tensor_values=*/false);
}

}  // namespace

std::int64_t element_bytes(tensorflow::DataType type) {
  return tensorflow::DataTypeSize(type);
}

std::int64_t tensor_size::bytes() const {
  return elements * element_bytes(type);
}

std::int64_t tensor_size::growth(std::int64_t batch) const {
  if (elements == 0) return 1;
  std::int64_t product = 1;
  for (int k = 0; k < batch_dims; ++k)
    product *= batch;
  return product;
}

std::int64_t tensor_size::sample_elements(std::int64_t batch) const {
  return batch_dims == 1 ? elements / batch : 0;
}

absl::Status tensor_sizes::infer(const GrapplerItem& item, const graph_view& graph, std::int64_t batch,
                                 tensor_sizes* result) {
  result->batch_ = batch > 0 ? batch : nominal_batch;
  auto with_lists = std::make_unique<GrapplerItem>(item.WithGraph(tensorflow::GraphDef(item.graph)));
  auto properties = std::make_unique<GraphProperties>(*with_lists);
  if (absl::Status s = infer_shapes(properties.get()); !s.ok()) return s;
  std::set<std::int64_t> symbols = batch_symbols(*properties, graph);
  std::map<source, listed_shape> listed;
  for (int k = 0; k < most_rounds; ++k) {
    if (!add_shapes_out_of_lists(graph, *properties, symbols, &listed)) break;
    properties.reset();
    with_lists = std::make_unique<GrapplerItem>(item.WithGraph(with_stand_ins(item.graph, graph, listed)));
    properties = std::make_unique<GraphProperties>(*with_lists);
    if (absl::Status s = infer_shapes(properties.get()); !s.ok()) return s;
    symbols = batch_symbols(*properties, graph);
    add_symbols_of_stand_ins(*properties, listed, &symbols);
  }
  result->of_node_.assign(at(graph.size()), {});
  const auto add = [&](int node, const tensorflow::OpInfo::TensorProperties& p) {
    tensor_size s = size_of(p, symbols, result->batch_);
    result->too_large_ = result->too_large_ || (batch > 0 && s.per_sample && s.elements == more_than_most);
    result->batch_open_ = result->batch_open_ || s.per_sample;
    result->of_node_[at(node)].push_back(std::move(s));
  };
  for (int i = 0; i < graph.size(); ++i) {
    if (!properties->HasOutputProperties(graph.name(i))) continue;
    const auto& outputs = properties->GetOutputProperties(graph.name(i));
    for (std::size_t port = 0; port < outputs.size(); ++port) {
      const auto it = listed.find({i, static_cast<int>(port)});
      add(i, it == listed.end() ? outputs[port] : properties->GetOutputProperties(it->second.stand_in)[0]);
    }
  }
  result->batch_known_ = !result->batch_open_ || batch > 0;
  return absl::OkStatus();
}

const tensor_size* tensor_sizes::find(const source& tensor) const {
  if (at(tensor.node) >= of_node_.size()) return nullptr;
  const auto& outputs = of_node_[at(tensor.node)];
  if (tensor.port < 0 || at(tensor.port) >= outputs.size()) return nullptr;
  const tensor_size& s = outputs[at(tensor.port)];
  return s.elements < 0 ? nullptr : &s;
}

}  // namespace stash_tf
