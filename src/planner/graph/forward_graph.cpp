// SPDX-License-Identifier: Apache-2.0
#include "planner/graph/forward_graph.hpp"

#include <utility>

#include "stash/error.hpp"

namespace stash::planner {
namespace {

constexpr int max_code_taps = 15, max_index_taps = 256;

std::int64_t product(const std::vector<std::int64_t>& dims) {
  std::int64_t n = 1;
  for (const std::int64_t d : dims)
    n *= d;
  return n;
}

}  // namespace

forward_graph::forward_graph(const network& net, std::int64_t batch, const training_graph_options& options)
    : net_(net),
      options_(options),
      facts_(net),
      values_(net.nodes().size()),
      forward_op_(net.nodes().size()) {
  g_.name = net.name();
  g_.batch = batch;
  for (const node_id n : net.nodes().ids())
    forward(n);
}

storage_id forward_graph::new_storage(std::string name, storage_role role, dtype type,
                                      std::vector<std::int64_t> dims, bool per_sample) {
  storage s;
  s.name = std::move(name);
  while (!names_.insert(s.name).second)
    s.name += "'";
  s.role = role;
  s.type = type;
  s.shape = std::move(dims);
  const std::int64_t bytes = product(s.shape) * static_cast<std::int64_t>(size_of(type));
  (per_sample ? s.bytes_per_sample : s.fixed_bytes) = bytes;
  return g_.storages.push_back(std::move(s));
}

storage_id forward_graph::parameter(const std::string& name, storage_role role,
                                    std::vector<std::int64_t> dims) {
  return new_storage(name, role, dtype::f32, std::move(dims), false);
}

trainable forward_graph::make_trainable(const std::string& name, const std::vector<std::int64_t>& dims) {
  trainable t{parameter(name, storage_role::weight, dims),
              parameter(name + ".gradient", storage_role::weight_gradient, dims),
              parameter(name + ".momentum", storage_role::momentum, dims)};
  trainables_.push_back(t);
  return t;
}

tensor_ref forward_graph::value_of(node_id n) {
  tensor_ref& ref = values_[n];
  if (ref.storage.valid()) return ref;
  if (facts_.in_place_of(n).valid()) return ref = value_of(facts_.in_place_of(n));
  if (facts_.slice(n).concat.valid()) {
    const node_id root = facts_.slice(n).concat;
    const tensor_ref whole = value_of(root);
    return ref = {whole.storage, facts_.slice(n).begin, facts_.at(n).shape.back()};
  }
  if (facts_.at(n).kind == node_kind::input) {
    const storage_id s =
        new_storage(facts_.at(n).name, storage_role::image, dtype::u8, facts_.at(n).shape, true);
    return ref = {s, 0, 0};
  }
  const node_id last = facts_.last_in_place(n);
  const node_id described = facts_.relu_into_pool(last) ? facts_.input_of(last) : last;
  const storage_id s =
      new_storage(facts_.at(described).name, storage_role::feature_map, dtype::f32, facts_.at(n).shape, true);
  g_.storages[s].density = facts_.density_of(described, options_.relu_density);
  return ref = {s, 0, 0};
}

op& forward_graph::emit(std::string name, op_kind kind, op_stage stage, node_id n) {
  op o;
  o.name = std::move(name);
  while (!op_names_.insert(o.name).second)
    o.name += "'";
  o.kind = kind;
  o.stage = stage;
  if (n.valid()) o.attributes = facts_.at(n).attributes;
  g_.ops.push_back(std::move(o));
  return g_.ops.back();
}

op& forward_graph::emit_forward(node_id n, op_kind kind) {
  std::vector<tensor_ref> inputs;
  for (const node_id x : facts_.at(n).inputs)
    inputs.push_back(value_of(x));
  const tensor_ref out = value_of(n);
  op& o = emit(facts_.at(n).name, kind, op_stage::forward, n);
  o.inputs = std::move(inputs);
  o.outputs = {out};
  forward_op_[n] = g_.ops.last_id();
  return o;
}

void forward_graph::weighted(node_id n, op_kind kind, const std::vector<std::int64_t>& dims, bool bias) {
  const trainable w = make_trainable(facts_.at(n).name + "/weight", dims);
  std::vector<trainable> parts{w};
  if (bias) parts.push_back(make_trainable(facts_.at(n).name + "/bias", {dims[0]}));
  op& o = emit_forward(n, kind);
  for (const trainable& t : parts)
    o.parameters.push_back(t.weight);
  node_parameters_[n] = parts;
}

void forward_graph::forward(node_id n) {
  const node& v = facts_.at(n);
  switch (v.kind) {
    case node_kind::input:
    case node_kind::flatten:
      value_of(n);
      break;
    case node_kind::conv2d: {
      const std::int64_t in = facts_.at(v.inputs[0]).shape.back();
      weighted(
          n, op_kind::conv2d,
          {v.attributes.out_features, in / v.attributes.groups, v.attributes.kernel_h, v.attributes.kernel_w},
          v.attributes.bias);
      break;
    }
    case node_kind::dense:
      weighted(n, op_kind::dense, {v.attributes.out_features, product(facts_.at(v.inputs[0]).shape)}, true);
      break;
    case node_kind::relu:
      if (facts_.relu_into_norm(n) || facts_.relu_into_pool(n)) break;
      emit_forward(n, op_kind::relu);
      break;
    case node_kind::leaky_relu:
      emit_forward(n, op_kind::leaky_relu);
      break;
    case node_kind::relu6:
      emit_forward(n, op_kind::relu6);
      break;
    case node_kind::max_pool:
      forward_pool(n);
      break;
    case node_kind::avg_pool:
      emit_forward(n, op_kind::avg_pool);
      break;
    case node_kind::global_avg_pool:
      emit_forward(n, op_kind::global_avg_pool);
      break;
    case node_kind::batch_norm:
      forward_norm(n);
      break;
    case node_kind::add: {
      op& o = emit_forward(n, op_kind::add);
      // The operand that is overwritten comes first.
      if (o.inputs[1] == o.outputs[0]) std::swap(o.inputs[0], o.inputs[1]);
      break;
    }
    case node_kind::concat:
      forward_concat(n);
      break;
    case node_kind::dropout:
      forward_dropout(n);
      break;
    case node_kind::lrn:
      emit_forward(n, op_kind::lrn);
      break;
    case node_kind::softmax_cross_entropy:
      forward_loss(n);
      break;
  }
}

void forward_graph::forward_pool(node_id n) {
  const node& v = facts_.at(n);
  const bool joined = facts_.relu_into_pool(v.inputs[0]);
  const std::int32_t taps = v.attributes.kernel_h * v.attributes.kernel_w;
  std::vector<storage_id> extra;
  if (taps <= max_index_taps)
    extra.push_back(new_storage(v.name + ".index", storage_role::auxiliary, dtype::u8, v.shape, true));
  if (joined && taps <= max_code_taps) {
    extra.push_back(new_storage(v.name + ".code", storage_role::auxiliary, dtype::u8, v.shape, true));
  }
  for (const storage_id s : extra)
    g_.storages[s].window_taps = taps;
  emit_forward(n, joined ? op_kind::relu_max_pool : op_kind::max_pool).optional_outputs = extra;
}

void forward_graph::forward_norm(node_id n) {
  const node& v = facts_.at(n);
  const std::vector<std::int64_t> dims{v.shape.back()};
  if (const tensor_ref x = value_of(v.inputs[0]); x.whole() && g_.at(x.storage).shape.back() != dims[0]) {
    throw error(errc::invalid_argument, "make_training_graph: net: expected a map or the outputs of a " +
                                            std::string("dense layer before '") + v.name +
                                            "', got a flattened map");
  }
  const std::vector<trainable> parts{make_trainable(v.name + "/scale", dims),
                                     make_trainable(v.name + "/shift", dims)};
  const storage_id mean = parameter(v.name + "/running_mean", storage_role::statistic, dims);
  const storage_id variance = parameter(v.name + "/running_variance", storage_role::statistic, dims);
  const storage_id saved_mean = parameter(v.name + "/saved_mean", storage_role::saved_statistic, dims);
  const storage_id saved_inverse =
      parameter(v.name + "/saved_inverse_deviation", storage_role::saved_statistic, dims);
  op& o = emit_forward(n, op_kind::batch_norm);
  o.parameters = {parts[0].weight, parts[1].weight, mean, variance};
  o.parameters_written = {saved_mean, saved_inverse};
  node_parameters_[n] = parts;
  saved_[n] = {saved_mean, saved_inverse};
  const node_id reader = facts_.sole_consumer(n);
  if (reader.valid() && facts_.relu_into_norm(reader)) {
    o.attributes.fused_relu = true;
    if (o.inputs[0].whole() && o.outputs[0].whole()) {
      g_.recipes.push_back({o.outputs[0].storage, {o.inputs[0].storage}, {forward_op_[n]}});
    }
  }
}

void forward_graph::forward_concat(node_id n) {
  const tensor_ref whole = value_of(n);
  std::int64_t begin = whole.channel_begin;
  int copies = 0;
  for (const node_id x : facts_.at(n).inputs) {
    const std::int64_t channels = facts_.at(x).shape.back();
    const tensor_ref target{whole.storage, begin, channels};
    begin += channels;
    const tensor_ref source = value_of(x);
    if (source == target) continue;
    op& o =
        emit(facts_.at(n).name + "/copy" + std::to_string(copies++), op_kind::copy, op_stage::forward, no_id);
    o.inputs = {source};
    o.outputs = {target};
  }
}

void forward_graph::forward_dropout(node_id n) {
  const node& v = facts_.at(n);
  const storage_id mask = new_storage(v.name + ".mask", storage_role::auxiliary, dtype::u8, v.shape, true);
  emit_forward(n, op_kind::dropout).optional_outputs = {mask};
}

void forward_graph::forward_loss(node_id n) {
  g_.classes = product(facts_.at(n).shape);
  labels_ = new_storage("labels", storage_role::label, dtype::s32, {1}, true);
  emit_forward(n, op_kind::softmax_cross_entropy).inputs.push_back({labels_, 0, 0});
}

}  // namespace stash::planner
