// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// One training step on symbols instead of numbers: every element is a 64-bit hash of how it came about.
/// reference_step() follows the network, where every value and gradient has its own memory; graph_step() runs
/// the ops of a training graph over its storages. They agree only if in-place ops, views, joined ops and
/// accumulation overwrite nothing that is still needed and leave nothing out. Gradients add up as integers,
/// so that the order of a sum does not matter.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "planner/graph/graph.hpp"

namespace stash::planner::testing {

using symbol = std::uint64_t;
using symbols = std::vector<symbol>;

struct step_trace {
  std::map<std::string, symbol> gradients;  ///< of parameters, by the weight's name
  std::vector<std::string> complaints;
};

inline symbol mix(symbol a, symbol b) {
  symbol x = a * 0x9E3779B97F4A7C15ULL + b + 0x632BE59BD9B4E019ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

inline symbol digest(const symbols& values) {
  symbol h = values.size();
  for (const symbol v : values)
    h = mix(h, v);
  return h;
}

inline symbol tag(std::string_view text) {
  symbol h = 7;
  for (const char c : text)
    h = mix(h, static_cast<symbol>(static_cast<unsigned char>(c)));
  return h;
}

inline symbols elementwise(std::string_view what, const symbols& a, const symbols& b = {}) {
  symbols out(a.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    out[i] = mix(mix(tag(what), a[i]), b.empty() ? 0 : b[i]);
  return out;
}

/// An op that mixes all elements of its operands.
inline symbols global(std::string_view what, std::string_view name, const symbols& a, const symbols& b,
                      std::size_t count) {
  const symbol h = mix(mix(mix(tag(what), tag(name)), digest(a)), digest(b));
  symbols out(count);
  for (std::size_t i = 0; i < count; ++i)
    out[i] = mix(h, i);
  return out;
}

inline std::size_t element_count(const std::vector<std::int64_t>& shape) {
  std::int64_t n = 1;
  for (const std::int64_t d : shape)
    n *= d;
  return static_cast<std::size_t>(n);
}

inline symbols image_symbols(std::size_t count) {
  symbols out(count);
  for (std::size_t i = 0; i < count; ++i)
    out[i] = mix(1, i);
  return out;
}

/// Elements of channels [begin, begin + count) of a value whose last dimension is `channels`.
inline std::vector<std::size_t> channel_elements(std::size_t elements, std::int64_t channels,
                                                 std::int64_t begin, std::int64_t count) {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < elements; ++i) {
    const auto c = static_cast<std::int64_t>(i) % channels;
    if (c >= begin && c < begin + count) out.push_back(i);
  }
  return out;
}

// What the two sides must agree on: the meaning of each kind of op. -------------------------------------

inline symbols forward_symbols(op_kind kind, std::string_view name, const symbols& x, std::size_t count,
                               bool fused_relu) {
  switch (kind) {
    case op_kind::relu:
    case op_kind::leaky_relu:
    case op_kind::relu6:
      return elementwise(to_string(kind), x);
    case op_kind::dropout:
      return elementwise(name, x);
    case op_kind::relu_max_pool:
      return global("max_pool", name, elementwise("relu", x), {}, count);
    case op_kind::batch_norm: {
      const symbols y = global("batch_norm", name, x, {}, count);
      return fused_relu ? elementwise("relu", y) : y;
    }
    default:
      return global(to_string(kind), name, x, {}, count);
  }
}

inline symbols relu_gradient(const symbols& dy, const symbols& y) {
  return elementwise("relu_backward", dy, y);
}

/// dx from dy and the op's own input and output values.
inline symbols backward_symbols(op_kind forward, std::string_view name, const symbols& dy, const symbols& x,
                                const symbols& y, bool fused_relu) {
  switch (forward) {
    case op_kind::relu:
      return relu_gradient(dy, y);
    case op_kind::leaky_relu:
    case op_kind::relu6:
      return elementwise(to_string(forward), dy, y);
    case op_kind::dropout:
      return elementwise(name, dy);
    case op_kind::relu_max_pool: {
      const symbols rectified = elementwise("relu", x);
      return relu_gradient(global("max_pool_backward", name, dy, rectified, x.size()), rectified);
    }
    case op_kind::max_pool:
      return global("max_pool_backward", name, dy, x, x.size());
    case op_kind::batch_norm:
      return global("batch_norm_backward", name, fused_relu ? relu_gradient(dy, y) : dy, x, x.size());
    case op_kind::lrn:
      return global("lrn_backward", name, dy, x, x.size());
    default:  // linear: the input does not matter
      return global(to_string(forward), std::string(name) + "/backward", dy, {}, x.size());
  }
}

inline op_kind op_of(node_kind kind) {
  switch (kind) {
    case node_kind::conv2d:
      return op_kind::conv2d;
    case node_kind::dense:
      return op_kind::dense;
    case node_kind::relu:
      return op_kind::relu;
    case node_kind::leaky_relu:
      return op_kind::leaky_relu;
    case node_kind::relu6:
      return op_kind::relu6;
    case node_kind::max_pool:
      return op_kind::max_pool;
    case node_kind::avg_pool:
      return op_kind::avg_pool;
    case node_kind::global_avg_pool:
      return op_kind::global_avg_pool;
    case node_kind::batch_norm:
      return op_kind::batch_norm;
    case node_kind::dropout:
      return op_kind::dropout;
    case node_kind::lrn:
      return op_kind::lrn;
    case node_kind::softmax_cross_entropy:
      return op_kind::softmax_cross_entropy;
    default:
      return op_kind::copy;
  }
}

inline symbol parameter_gradient(std::string_view weight, const symbols& dy, const symbols& x) {
  return mix(mix(tag(weight), digest(dy)), digest(x));
}

/// Names of the trainable parameters of a node.
inline std::vector<std::string> parameters_of(const node& n) {
  if (n.kind == node_kind::batch_norm) return {n.name + "/scale", n.name + "/shift"};
  if (n.kind == node_kind::dense) return {n.name + "/weight", n.name + "/bias"};
  if (n.kind != node_kind::conv2d) return {};
  if (n.attributes.bias) return {n.name + "/weight", n.name + "/bias"};
  return {n.name + "/weight"};
}

inline step_trace reference_step(const network& net) {
  const std::size_t count = net.nodes().size();
  std::vector<symbols> value(count), gradient(count);
  const auto at = [](node_id id) { return position_of(id); };
  for (std::size_t i = 0; i < count; ++i) {
    const node& n = net.nodes()[node_id(i)];
    const std::size_t elements = element_count(n.shape);
    switch (n.kind) {
      case node_kind::input:
        value[i] = image_symbols(elements);
        break;
      case node_kind::flatten:
        value[i] = value[at(n.inputs[0])];
        break;
      case node_kind::add:
        for (std::size_t k = 0; k < elements; ++k)
          value[i].push_back(value[at(n.inputs[0])][k] + value[at(n.inputs[1])][k]);
        break;
      case node_kind::concat: {
        value[i].resize(elements);
        std::int64_t begin = 0;
        for (const node_id x : n.inputs) {
          const auto to = channel_elements(elements, n.shape.back(), begin, net.at(x).shape.back());
          for (std::size_t k = 0; k < to.size(); ++k)
            value[i][to[k]] = value[at(x)][k];
          begin += net.at(x).shape.back();
        }
        break;
      }
      default:
        value[i] = forward_symbols(op_of(n.kind), n.name, value[at(n.inputs[0])], elements, false);
    }
  }
  step_trace trace;
  const auto contribute = [&](node_id x, const symbols& part) {
    symbols& sum = gradient[at(x)];
    sum.resize(part.size(), 0);
    for (std::size_t k = 0; k < part.size(); ++k)
      sum[k] += part[k];
  };
  for (std::size_t i = count; i-- > 0;) {
    const node& n = net.nodes()[node_id(i)];
    symbols& dy = gradient[i];
    if (n.kind == node_kind::softmax_cross_entropy) {
      contribute(n.inputs[0], elementwise("loss", value[i]));
      continue;
    }
    if (dy.empty()) continue;
    for (const std::string& weight : parameters_of(n))
      trace.gradients[weight] = parameter_gradient(weight, dy, value[at(n.inputs[0])]);
    if (n.kind == node_kind::input) continue;
    if (n.kind == node_kind::flatten) {
      contribute(n.inputs[0], dy);
    } else if (n.kind == node_kind::add) {
      for (const node_id x : n.inputs)
        contribute(x, dy);
    } else if (n.kind == node_kind::concat) {
      std::int64_t begin = 0;
      for (const node_id x : n.inputs) {
        symbols part;
        for (const std::size_t k : channel_elements(dy.size(), n.shape.back(), begin, net.at(x).shape.back()))
          part.push_back(dy[k]);
        contribute(x, part);
        begin += net.at(x).shape.back();
      }
    } else {
      contribute(n.inputs[0],
                 backward_symbols(op_of(n.kind), n.name, dy, value[at(n.inputs[0])], value[i], false));
    }
  }
  return trace;
}

/// Runs the ops of a training graph one by one over its storages.
class graph_step {
 public:
  explicit graph_step(const graph& g) : g_(g), memory_(g.storages.size()), seen_(g.ops.size()) {
    for (const storage_id s : g.storages.ids()) {
      const std::size_t count = element_count(g.storages[s].shape);
      memory_[s] = g.storages[s].role == storage_role::image ? image_symbols(count) : symbols(count, 0xBAD);
    }
  }

  step_trace run() {
    for (const op_id i : g_.ops.ids()) {
      const op& o = g_.ops[i];
      if (o.stage == op_stage::forward) forward(i);
      if (o.stage == op_stage::backward) backward(o);
      if (o.stage == op_stage::update) update(o);
    }
    return trace_;
  }

 private:
  struct operands {
    symbols x, y;
  };

  std::vector<std::size_t> elements(const tensor_ref& r) const {
    const storage& s = g_.at(r.storage);
    const std::int64_t channels = s.shape.back();
    return channel_elements(element_count(s.shape), channels, r.whole() ? 0 : r.channel_begin,
                            r.whole() ? channels : r.channels);
  }
  symbols load(const tensor_ref& r) const {
    symbols out;
    for (const std::size_t i : elements(r))
      out.push_back(memory_[r.storage][i]);
    return out;
  }
  void store(const tensor_ref& r, const symbols& values) {
    const auto to = elements(r);
    for (std::size_t i = 0; i < to.size(); ++i)
      memory_[r.storage][to[i]] = values.at(i);
  }
  static symbols sum(symbols a, const symbols& b) {
    for (std::size_t i = 0; i < a.size(); ++i)
      a[i] += b.at(i);
    return a;
  }

  void forward(op_id i) {
    const op& o = g_.ops[i];
    const symbols x = load(o.inputs[0]);
    symbols y;
    if (o.kind == op_kind::add) {
      y = sum(x, load(o.inputs[1]));
    } else if (o.kind == op_kind::copy) {
      y = x;
    } else {
      y = forward_symbols(o.kind, o.name, x, elements(o.outputs[0]).size(), o.attributes.fused_relu);
    }
    store(o.outputs[0], y);
    seen_[i] = {x, y};
  }

  // Every alternative must show the values that the forward op saw.
  void check_reads(const op& o, const operands& seen) {
    for (const stash_alternative& a : o.alternatives) {
      for (const stash_read& r : a.reads) {
        if (g_.at(r.storage).role == storage_role::auxiliary) continue;
        const symbols shown = load(r.slice);
        if (shown != seen.x && shown != seen.y) {
          trace_.complaints.push_back(o.name + " reads " + g_.at(r.storage).name + " after it was changed");
        }
      }
    }
  }

  void backward(const op& o) {
    if (o.kind == op_kind::copy) return store(o.outputs[0], load(o.inputs[0]));
    if (o.kind == op_kind::accumulate || o.kind == op_kind::add)
      return store(o.outputs[0], sum(load(o.inputs[0]), load(o.inputs[1])));
    const op& f = g_.op_at(o.forward_op);
    const operands& seen = seen_[o.forward_op];
    check_reads(o, seen);
    if (o.kind == op_kind::softmax_cross_entropy_backward)
      return store(o.outputs[0], elementwise("loss", seen.y));
    const symbols dy = load(o.inputs[0]);
    const symbols reduced =
        f.kind == op_kind::batch_norm && f.attributes.fused_relu ? relu_gradient(dy, seen.y) : dy;
    for (std::size_t i = 0; i < o.parameters_written.size(); ++i) {
      const std::string& weight = g_.at(f.parameters[i]).name;
      written_[o.parameters_written[i]] = parameter_gradient(weight, reduced, seen.x);
    }
    if (!o.outputs.empty()) {
      store(o.outputs[0], backward_symbols(f.kind, f.name, dy, seen.x, seen.y, f.attributes.fused_relu));
    }
  }

  void update(const op& o) {
    for (std::size_t i = 0; i + 2 < o.parameters.size(); i += 3) {
      const std::string& weight = g_.at(o.parameters[i]).name;
      const auto gradient = written_.find(o.parameters[i + 1]);
      if (gradient == written_.end()) {
        trace_.complaints.push_back(weight + " is updated with a gradient that nobody wrote");
      } else {
        trace_.gradients[weight] = gradient->second;
      }
    }
  }

  const graph& g_;
  id_vector<storage_id, symbols> memory_;
  id_vector<op_id, operands> seen_;  ///< by forward op
  std::map<storage_id, symbol> written_;
  step_trace trace_;
};

}  // namespace stash::planner::testing
