// SPDX-License-Identifier: Apache-2.0
#include "optimizer/graph/shapes.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "absl/strings/match.h"
#include "optimizer/graph/list_shapes.hpp"
#include "optimizer/graph/list_sources.hpp"
#include "optimizer/graph/loops.hpp"
#include "optimizer/graph/needs.hpp"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/grappler/costs/graph_properties.h"

namespace stash_tf {

namespace {

using tensorflow::grappler::GraphProperties;
using tensorflow::grappler::GrapplerItem;

// Grappler writes unknown dimensions as symbols below -1; the first that it finds is mostly the batch of an
// input.
constexpr std::int64_t first_symbol = -2;
constexpr std::int64_t nominal_batch = 32;
constexpr std::int64_t most_elements = std::int64_t{1} << 46;
constexpr std::int64_t unknown = -1;
constexpr int most_rounds = 4;  // of inference: lists may hold what was computed from others
constexpr std::int64_t more_than_most = -2;

// Of how many values these ops put out, only the data tell.
bool counts_values(const std::string& op) {
  for (const char* beginning :
       {"Where", "Unique", "DynamicPartition", "ListDiff", "NonMaxSuppression", "Ragged"})
    if (absl::StartsWith(op, beginning)) return true;
  return false;
}

bool is_known(const tensorflow::TensorShapeProto& shape) {
  return !shape.unknown_rank() &&
         std::none_of(shape.dim().begin(), shape.dim().end(), [](const auto& d) { return d.size() < 0; });
}

// Each input of a step has a symbol of its own for its samples until an op joins them. All are taken for the
// batch: where they are not, plans are of a wrong size, but no values are. So is the first symbol, unless it
// stands for how many values a mask leaves, or all inputs are known.
std::set<std::int64_t> batch_symbols(const GraphProperties& properties, const graph_view& graph) {
  std::set<std::int64_t> symbols;
  bool first_is_batch = true;
  bool inputs_known = true;
  for (int i = 0; i < graph.size(); ++i) {
    const bool is_input = is_held_elsewhere(graph.op(i)) && graph.op(i) != "ReadVariableOp";
    if (!(is_input || counts_values(graph.op(i))) || !properties.HasOutputProperties(graph.name(i))) continue;
    for (const auto& p : properties.GetOutputProperties(graph.name(i))) {
      if (p.dtype() == tensorflow::DT_RESOURCE) continue;
      inputs_known = inputs_known && (!is_input || is_known(p.shape()));
      if (p.shape().dim_size() == 0) continue;
      const std::int64_t n = p.shape().dim(0).size();
      if (is_input && n <= first_symbol) symbols.insert(n);
      first_is_batch = first_is_batch && (is_input || n != first_symbol);
    }
  }
  if (first_is_batch && !inputs_known) symbols.insert(first_symbol);
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
      if (s.batch_dims++ == 0) s.batch_dim = static_cast<int>(s.dims.size());
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

// What an argument says of the variable that it is. Nothing: it does not.
const tensorflow::TensorShapeProto* shape_of_variable(const graph_view& graph, source variable) {
  while ((is_alias(graph.op(variable.node)) || is_enter(graph.op(variable.node))) &&
         !graph.inputs(variable.node).empty())
    variable = graph.inputs(variable.node)[0];
  const auto& attr = graph.node(variable.node).attr();
  if (const auto shape = attr.find("shape"); shape != attr.end() && graph.op(variable.node) == "VarHandleOp")
    return &shape->second.shape();
  const auto shapes = attr.find("_handle_shapes");
  return shapes == attr.end() || shapes->second.list().shape().empty() ? nullptr
                                                                       : &shapes->second.list().shape(0);
}

// Adds those reads of variables whose shape the inference has lost, as it does where loops read them and
// split what they read. False if there are no more.
bool add_shapes_of_variables(const graph_view& graph, const GraphProperties& known,
                             std::map<source, listed_shape>* shapes) {
  bool added = false;
  for (int i = 0; i < graph.size(); ++i) {
    if (graph.op(i) != "ReadVariableOp" || shapes->count({i, 0}) != 0) continue;
    if (!known.HasOutputProperties(graph.name(i))) continue;
    const auto& found = known.GetOutputProperties(graph.name(i));
    const tensorflow::TensorShapeProto* shape = shape_of_variable(graph, graph.inputs(i)[0]);
    if (found.empty() || is_known(found[0].shape()) || shape == nullptr || !is_known(*shape)) continue;
    listed_shape& read = (*shapes)[{i, 0}];
    read.stand_in = stand_in_name(graph, {i, 0});
    read.type = graph.node(i).attr().at("dtype").type();
    for (const auto& d : shape->dim())
      read.dims.push_back(d.size());
    added = true;
  }
  return added;
}

// Shapes of the graph, of what comes out of lists, too.
class inference {
 public:
  // `item` has to outlive this. `known`: shapes of tensors that replace those inferred. With
  // `values`, what is computed from them is followed as well, as a shape that a tensor is made in.
  absl::Status run(const GrapplerItem& item, const graph_view& graph, std::map<source, listed_shape> known,
                   bool values) {
    listed_ = std::move(known);
    for (int k = 0; k < most_rounds; ++k) {
      properties_.reset();
      // Most graphs have no lists, and need no copy.
      if (!listed_.empty())
        item_ = std::make_unique<GrapplerItem>(item.WithGraph(with_stand_ins(item.graph, graph, listed_)));
      properties_ = std::make_unique<GraphProperties>(listed_.empty() ? item : *item_);
      absl::Status status = properties_->InferStatically(/*assume_valid_feeds=*/false,
                                                         /*aggressive_shape_inference=*/values,
                                                         /*include_input_tensor_values=*/false,
                                                         /*include_output_tensor_values=*/false);
      if (!status.ok()) return status;
      symbols_ = batch_symbols(*properties_, graph);
      add_symbols_of_stand_ins(*properties_, listed_, &symbols_);
      const bool more = add_shapes_out_of_lists(graph, *properties_, symbols_, &listed_);
      if (!add_shapes_of_variables(graph, *properties_, &listed_) && !more) break;
    }
    return absl::OkStatus();
  }

  // By port.
  std::vector<tensor_size> sizes_of(const graph_view& graph, int node, std::int64_t batch) const {
    std::vector<tensor_size> sizes;
    if (!properties_->HasOutputProperties(graph.name(node))) return sizes;
    for (const auto& p : properties_->GetOutputProperties(graph.name(node))) {
      const auto it = listed_.find({node, static_cast<int>(sizes.size())});
      const bool known = it != listed_.end() && properties_->HasOutputProperties(it->second.stand_in);
      sizes.push_back(
          size_of(known ? properties_->GetOutputProperties(it->second.stand_in)[0] : p, symbols_, batch));
    }
    return sizes;
  }

 private:
  std::map<source, listed_shape> listed_;
  std::unique_ptr<GrapplerItem> item_;
  std::unique_ptr<GraphProperties> properties_;
  std::set<std::int64_t> symbols_;
};

// The step's inputs with a number for the batch. Shapes that are computed from that of an input, as of the
// state that a recurrent layer begins with or of noise that is drawn for each sample, are known then.
std::map<source, listed_shape> inputs_with_batch(const graph_view& graph, const inference& with_symbols,
                                                 std::int64_t batch) {
  std::map<source, listed_shape> inputs;
  for (int i = 0; i < graph.size(); ++i) {
    if (!is_held_elsewhere(graph.op(i))) continue;
    const std::vector<tensor_size> sizes = with_symbols.sizes_of(graph, i, batch);
    for (std::size_t port = 0; port < sizes.size(); ++port) {
      const tensor_size& s = sizes[port];
      if (s.elements < 0 || !s.per_sample) continue;
      const source tensor{i, static_cast<int>(port)};
      inputs[tensor] = {stand_in_name(graph, tensor), s.dims, s.type};
    }
  }
  return inputs;
}

bool has_lists_and_loops(const graph_view& graph) {
  bool lists = false;
  bool loops = false;
  for (int i = 0; i < graph.size(); ++i) {
    lists = lists || is_list_op(graph.op(i));
    loops = loops || graph.op(i) == "LoopCond";
  }
  return lists && loops;
}

bool is_unknown(const tensor_size& s) {
  return s.elements == unknown && tensorflow::DataTypeIsFloating(s.type);
}

// Of a size that was found with one number of samples, what is the batch: whatever is twice as large with
// twice as many. `one`: with a single sample. What is neither the batch nor the same with all of them is odd,
// as the smaller one of the batch and a number.
void find_batch(const std::vector<std::int64_t>& twice, const std::vector<std::int64_t>& one,
                std::int64_t batch, tensor_size* s) {
  s->is_odd = one.size() != s->dims.size();
  for (std::size_t k = 0; k < std::min(twice.size(), s->dims.size()); ++k) {
    const std::int64_t n = s->dims[k];
    const bool grows = n > 0 && twice[k] == 2 * n;
    if (grows && s->batch_dims++ == 0) s->batch_dim = static_cast<int>(k);
    if (!s->is_odd) s->is_odd = grows ? one[k] * batch != n : twice[k] != n || one[k] != n;
  }
  s->per_sample = s->batch_dims > 0;
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
  result->batch_is_set_ = batch > 0;
  inference with_symbols;
  if (absl::Status s = with_symbols.run(item, graph, {}, false); !s.ok()) return s;
  for (int i = 0; i < graph.size(); ++i) {
    result->of_node_.push_back(with_symbols.sizes_of(graph, i, result->batch_));
    for (const tensor_size& s : result->of_node_.back()) {
      result->too_large_ = result->too_large_ || (batch > 0 && s.per_sample && s.elements == more_than_most);
      result->batch_open_ = result->batch_open_ || s.per_sample;
    }
  }
  const bool lists = has_lists_and_loops(graph);
  if (!result->batch_open_ || !(lists || result->has_unknown())) return absl::OkStatus();
  const auto run = [&](inference* found, std::int64_t samples) {
    return found->run(item, graph, inputs_with_batch(graph, with_symbols, samples), true).ok();
  };
  inference with_batch, with_two, with_one;
  if (!run(&with_batch, result->batch_) || !run(&with_two, 2 * result->batch_)) return absl::OkStatus();
  // Only elements of lists have to be known so well. Without this, all are odd.
  const bool has_one = lists && run(&with_one, 1);
  for (int i = 0; i < graph.size(); ++i) {
    const std::vector<tensor_size> sizes = with_batch.sizes_of(graph, i, result->batch_);
    const std::vector<tensor_size> twice = with_two.sizes_of(graph, i, result->batch_);
    std::vector<tensor_size> one;
    if (has_one) one = with_one.sizes_of(graph, i, result->batch_);
    std::vector<tensor_size>& known = result->of_node_[at(i)];
    for (std::size_t port = 0; port < std::min({sizes.size(), twice.size(), known.size()}); ++port) {
      // What is open still is not the batch.
      if (known[port].elements != unknown || sizes[port].per_sample) continue;
      known[port] = sizes[port];
      find_batch(twice[port].dims, port < one.size() ? one[port].dims : std::vector<std::int64_t>{},
                 result->batch_, &known[port]);
    }
  }
  return absl::OkStatus();
}

tensor_sizes::named tensor_sizes::by_name(const graph_view& graph) const {
  named found;
  for (int i = 0; i < graph.size(); ++i)
    if (at(i) < of_node_.size()) found[graph.name(i)] = of_node_[at(i)];
  return found;
}

void tensor_sizes::fill_in(const graph_view& graph, const named& earlier) {
  for (int i = 0; i < graph.size() && at(i) < of_node_.size(); ++i) {
    const auto it = earlier.find(graph.name(i));
    if (it == earlier.end()) continue;
    std::vector<tensor_size>& known = of_node_[at(i)];
    for (std::size_t port = 0; port < std::min(known.size(), it->second.size()); ++port) {
      const tensor_size& before = it->second[port];
      if (known[port].elements != unknown || before.elements < 0 || before.type != known[port].type) continue;
      known[port] = before;
      batch_open_ = batch_open_ || before.per_sample;
    }
  }
}

void tensor_sizes::set(const source& tensor, tensor_size s) {
  std::vector<tensor_size>& outputs = of_node_.at(at(tensor.node));
  if (outputs.size() <= at(tensor.port)) {
    tensor_size open;
    open.elements = unknown;
    outputs.resize(at(tensor.port) + 1, open);
  }
  outputs[at(tensor.port)] = std::move(s);
}

bool tensor_sizes::has_unknown() const {
  return std::any_of(of_node_.begin(), of_node_.end(), [](const std::vector<tensor_size>& outputs) {
    return std::any_of(outputs.begin(), outputs.end(), is_unknown);
  });
}

bool tensor_sizes::is_unknown_number(const source& tensor) const {
  return at(tensor.node) < of_node_.size() && at(tensor.port) < of_node_[at(tensor.node)].size() &&
         is_unknown(of_node_[at(tensor.node)][at(tensor.port)]);
}

const tensor_size* tensor_sizes::find(const source& tensor) const {
  if (at(tensor.node) >= of_node_.size()) return nullptr;
  const auto& outputs = of_node_[at(tensor.node)];
  if (tensor.port < 0 || at(tensor.port) >= outputs.size()) return nullptr;
  const tensor_size& s = outputs[at(tensor.port)];
  return s.elements < 0 ? nullptr : &s;
}

}  // namespace stash_tf
