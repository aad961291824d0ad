// SPDX-License-Identifier: Apache-2.0
#include "optimizer/analyse/pooling_pairs.hpp"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "optimizer/analyse/block_rules.hpp"
#include "optimizer/analyse/layer_names.hpp"
#include "optimizer/graph/needs.hpp"

namespace stash_tf {

namespace {

using tensorflow::AttrValue;
using tensorflow::DataType;

const AttrValue* attribute(const graph_view& graph, int node, const char* name) {
  const auto it = graph.node(node).attr().find(name);
  return it == graph.node(node).attr().end() ? nullptr : &it->second;
}

bool same_attribute(const graph_view& graph, int a, int b, const char* name) {
  const AttrValue* x = attribute(graph, a, name);
  const AttrValue* y = attribute(graph, b, name);
  if (x == nullptr || y == nullptr) return x == y;
  return x->SerializeAsString() == y->SerializeAsString();
}

// Whether both have the same windows over the same kind of values.
bool match(const graph_view& graph, int forward, int backward) {
  for (const char* name : {"ksize", "strides", "padding", "explicit_paddings", "data_format", "T"})
    if (!same_attribute(graph, forward, backward, name)) return false;
  return true;
}

int taps_of(const AttrValue& ksize) {
  int taps = 1;
  for (const std::int64_t n : ksize.list().i())
    taps *= static_cast<int>(std::min<std::int64_t>(n, 1 << 10));
  return taps;
}

bool overlap(const AttrValue& ksize, const AttrValue& strides) {
  for (int k = 0; k < ksize.list().i_size() && k < strides.list().i_size(); ++k)
    if (strides.list().i(k) < ksize.list().i(k)) return true;
  return false;
}

// Whether one byte can say which value of a window it is: windows of a few values, within a sample and a
// channel.
bool fits_a_byte(const graph_view& graph, int backward, const AttrValue& ksize) {
  const auto& sides = ksize.list().i();
  const AttrValue* format = attribute(graph, backward, "data_format");
  const bool nchw = format != nullptr && absl::StartsWith(format->s(), "NC");
  const int channel = nchw ? 1 : sides.size() - 1;
  return sides.size() >= 4 && sides[0] == 1 && sides[channel] == 1 && taps_of(ksize) <= 256;
}

// Why argmax would not give the gradient of TensorFlow's kernel bit by bit; empty: they do.
std::string not_exact(const graph_view& graph, int backward, const AttrValue& ksize, DataType type) {
  if (is_on_gpu(graph, backward)) return "";
  if (graph.op(backward) == "MaxPool3DGrad") {
    return "TensorFlow's kernel gives the gradient to all of several equal maxima, which argmax "
           "cannot reproduce";
  }
  const AttrValue* strides = attribute(graph, backward, "strides");
  const bool narrow = type == tensorflow::DT_HALF || type == tensorflow::DT_BFLOAT16;
  if (narrow && (strides == nullptr || overlap(ksize, *strides))) {
    return "TensorFlow's kernel rounds to 16 bits after every window that it adds where windows overlap, "
           "argmax only once";
  }
  return "";
}

// The gradient of the ReLU whose output is read by this pooling and by nobody else, forward or backward.
int joint_relu(const graph_view& graph, int forward, int backward) {
  const source x = graph.inputs(forward)[0];
  // The pooling would take other tensors for the output of a ReLU: nothing negative would pass it.
  if (!is_relu(graph, x.node) || graph.readers(backward).size() != 1) return -1;
  const reader follower = graph.readers(backward)[0];
  if (graph.op(follower.node) != "ReluGrad" || follower.input != 0) return -1;
  if (!(graph.inputs(follower.node)[1] == x)) return -1;
  for (const reader& r : graph.readers(x.node)) {
    if (r.port != x.port && r.port >= 0) continue;
    const bool pool_reads = r.node == forward || r.node == backward || r.node == follower.node;
    if (r.port >= 0 && !pool_reads) return -1;
  }
  return follower.node;
}

// The pooling of the forward pass that this op is the gradient of; -1: none.
int pooling_of(const graph_view& graph, const std::vector<bool>& backward, int node) {
  const std::string& op = graph.op(node);
  if (op != "MaxPoolGrad" && op != "MaxPool3DGrad") return -1;
  const int forward = graph.inputs(node)[1].node;
  if (graph.op(forward) != (op == "MaxPoolGrad" ? "MaxPool" : "MaxPool3D") || backward[at(forward)])
    return -1;
  return graph.inputs(forward)[0] == graph.inputs(node)[0] ? forward : -1;
}

}  // namespace

pooling_pairs find_poolings(const graph_view& graph, const std::vector<int>& order,
                            const std::vector<bool>& backward, const settings& request) {
  pooling_pairs found;
  for (const int node : order) {
    const int forward = pooling_of(graph, backward, node);
    if (forward < 0) continue;
    const AttrValue* ksize = attribute(graph, node, "ksize");
    const AttrValue* type = attribute(graph, node, "T");
    if (!match(graph, forward, node) || ksize == nullptr || type == nullptr || !is_storable(type->type()))
      continue;
    if (graph.node(node).device() != graph.node(forward).device()) continue;
    if (!fits_a_byte(graph, node, *ksize) || belongs_to_any(graph.name(forward), request.keep)) continue;
    const std::string why = is_lossy(request) ? "" : not_exact(graph, node, *ksize, type->type());
    if (!why.empty()) {
      found.left.push_back({graph.name(node), graph.op(node), why});
      continue;
    }
    // Loss scaling, which half needs, looks for infinite gradients. Where one passes nowhere, TensorFlow's
    // ReLU makes NaN of it; the joint form does not look at it.
    const bool looked_at = type->type() == tensorflow::DT_HALF && !is_lossy(request);
    pooling p;
    p.forward = forward;
    p.backward = node;
    p.relu_backward = taps_of(*ksize) <= 15 && !looked_at ? joint_relu(graph, forward, node) : -1;
    found.poolings.push_back(p);
  }
  return found;
}

}  // namespace stash_tf
