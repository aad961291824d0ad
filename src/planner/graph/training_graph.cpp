// SPDX-License-Identifier: Apache-2.0
// The backward pass of a training graph, with its needs, and the update.

#include <algorithm>
#include <utility>

#include "planner/graph/forward_graph.hpp"
#include "planner/graph/graph.hpp"
#include "stash/error.hpp"

namespace stash::planner {
namespace {

constexpr node_id first_node(0);

// One walk over the nodes from the loss to the input. It stays one class: what each kind of node does to the
// gradients that others share is all that it is about.
class backward_graph {
 public:
  backward_graph(const network& net, forward_graph& f)
      : net_(net), f_(f), facts_(f.facts()), g_(f.made()), gradients_(net.nodes().size()) {}

  graph run() {
    for (node_id n = net_.nodes().next_id(); n-- > first_node;)
      backward(n);
    update();
    return std::move(g_);
  }

 private:
  static bool overlap(const tensor_ref& a, const tensor_ref& b) {
    if (a.storage != b.storage) return false;
    if (a.whole() || b.whole()) return true;
    return a.channel_begin < b.channel_begin + b.channels && b.channel_begin < a.channel_begin + a.channels;
  }

  // Whether a node that is still to be processed holds its gradient in the same bytes.
  bool gradient_is_shared(node_id owner) const {
    for (node_id m = first_node; m < current_; ++m) {
      if (m != owner && gradients_[m].storage.valid() && overlap(gradients_[m], gradients_[owner])) {
        return true;
      }
    }
    return false;
  }
  // dx of `x` in a fresh storage.
  tensor_ref new_gradient(node_id x) {
    while (facts_.at(x).kind == node_kind::flatten)
      x = facts_.input_of(x);
    const tensor_ref value = f_.value_of(x);
    const storage& s = g_.at(value.storage);
    const std::string name = (value.whole() ? s.name : facts_.at(x).name) + ".gradient";
    return {f_.new_storage(name, storage_role::gradient, dtype::f32, facts_.at(x).shape, true), 0, 0};
  }

  bool wants_gradient(node_id x) const {
    return facts_.at(x).kind != node_kind::input && !(facts_.at(x).kind == node_kind::flatten &&
                                                      facts_.at(facts_.input_of(x)).kind == node_kind::input);
  }

  // How a node hands its gradient down.
  enum class part_kind : std::uint8_t {
    fresh,          // in memory of its own
    borrowed,       // in the bytes of the current node's gradient, which is read again for other inputs
    last_borrowed,  // the same, and nobody reads them for this node again
  };

  // Adds `part` to the gradient of x.
  void contribute(node_id x, const tensor_ref& part, part_kind kind) {
    tensor_ref& sum = gradients_[x];
    if (!sum.storage.valid()) {
      sum = part;
      return;
    }
    // A sum that lies in the current gradient may grow there only by itself, and only at the end.
    const bool in_the_way = kind != part_kind::fresh && overlap(sum, gradients_[current_]) &&
                            !(kind == part_kind::last_borrowed && sum == part);
    if (in_the_way || (gradient_is_shared(x) && kind != part_kind::fresh)) {
      const tensor_ref own = new_gradient(x);
      op& c = f_.emit(facts_.at(x).name + "/copy_gradient", op_kind::copy, op_stage::backward, no_id);
      c.inputs = {sum};
      c.outputs = {own};
      sum = own;
    }
    const bool into_part = gradient_is_shared(x);
    op& o = f_.emit(facts_.at(x).name + "/accumulate", op_kind::accumulate, op_stage::backward, no_id);
    o.inputs = into_part ? std::vector<tensor_ref>{part, sum} : std::vector<tensor_ref>{sum, part};
    o.outputs = {o.inputs[0]};
    sum = o.outputs[0];
  }

  op& emit_backward(node_id n, const char* suffix, op_kind kind) {
    op& o = f_.emit(facts_.at(n).name + suffix, kind, op_stage::backward, n);
    o.forward_op = f_.op_of(n);
    if (o.forward_op.valid()) o.attributes = g_.op_at(o.forward_op).attributes;
    o.inputs = {gradients_[n]};
    return o;
  }

  static stash_read read(const tensor_ref& ref, need what) { return {ref.storage, what, ref}; }

  // A backward op that turns dy into dx; in place where it may and dy dies with it.
  void elementwise(node_id n, op_kind kind, alternative_list alternatives,
                   const std::vector<storage_id>& parameters = {},
                   const std::vector<storage_id>& written = {}) {
    const node_id x = facts_.input_of(n);
    const bool needed = wants_gradient(x);
    const tensor_ref dy = gradients_[n];
    const bool in_place = needed && !gradient_is_shared(n);
    const tensor_ref dx = !needed ? tensor_ref{} : in_place ? dy : new_gradient(x);
    op& o = emit_backward(n, "/backward", kind);
    if (needed) o.outputs = {dx};
    o.alternatives = std::move(alternatives);
    o.parameters = parameters;
    o.parameters_written = written;
    if (needed) contribute(x, dx, part_kind::fresh);
  }

  void weighted_backward(node_id n, op_kind weights, op_kind data) {
    const node_id x = facts_.input_of(n);
    const std::vector<trainable>& parts = f_.parameters_of(n);
    op& w = emit_backward(n, "/backward_weights", weights);
    w.alternatives = {{"from_x", {read(f_.value_of(x), need::value)}}};
    for (const trainable& t : parts)
      w.parameters_written.push_back(t.gradient);
    if (!wants_gradient(x)) return fused_update(n);
    const tensor_ref dx = new_gradient(x);
    op& d = emit_backward(n, "/backward_data", data);
    d.outputs = {dx};
    d.parameters = {parts[0].weight};
    fused_update(n);
    contribute(x, dx, part_kind::fresh);
  }

  void pool_backward(node_id n, op_kind kind, alternative_list alternatives) {
    const node_id x = facts_.input_of(n);
    if (!wants_gradient(x)) return;
    const tensor_ref dx = new_gradient(x);
    op& o = emit_backward(n, "/backward", kind);
    o.outputs = {dx};
    o.alternatives = std::move(alternatives);
    contribute(x, dx, part_kind::fresh);
  }

  void max_pool_backward(node_id n) {
    const op& f = g_.op_at(f_.op_of(n));
    const bool joined = f.kind == op_kind::relu_max_pool;
    const tensor_ref x = f.inputs[0];
    const tensor_ref y = f.outputs[0];
    const std::vector<storage_id> extra = f.optional_outputs;
    alternative_list alternatives;
    if (extra.size() > 1) alternatives.push_back({"from_code", {read({extra[1], 0, 0}, need::sign_window)}});
    if (!extra.empty() && joined) {
      alternatives.push_back(
          {"from_index_and_y", {read({extra[0], 0, 0}, need::window), read(y, need::sign)}});
    } else if (!extra.empty()) {
      alternatives.push_back({"from_index", {read({extra[0], 0, 0}, need::window)}});
    }
    alternatives.push_back({"from_x", {read(x, need::exact_value)}});
    pool_backward(n, joined ? op_kind::relu_max_pool_backward : op_kind::max_pool_backward,
                  std::move(alternatives));
  }

  void norm_backward(node_id n) {
    const op& f = g_.op_at(f_.op_of(n));
    const tensor_ref x = f.inputs[0];
    const tensor_ref y = f.outputs[0];
    alternative_list alternatives;
    if (f.attributes.fused_relu) {
      alternatives.push_back({"from_x", {read(x, need::exact_value)}});
      alternatives.push_back({"from_x_and_y", {read(x, need::value), read(y, need::sign)}});
    } else {
      alternatives.push_back({"from_x", {read(x, need::value)}});
    }
    const std::vector<trainable>& parts = f_.parameters_of(n);
    elementwise(n, op_kind::batch_norm_backward, std::move(alternatives),
                {parts[0].weight, parts[1].weight, f_.saved_by(n).first, f_.saved_by(n).second},
                {parts[0].gradient, parts[1].gradient});
    fused_update(n);
  }

  void loss_backward(node_id n) {
    const node_id x = facts_.input_of(n);
    const tensor_ref dx = new_gradient(x);
    op& o = emit_backward(n, "/backward", op_kind::softmax_cross_entropy_backward);
    o.inputs = {{f_.labels(), 0, 0}};
    o.outputs = {dx};
    o.alternatives = {{"from_probabilities", {read(f_.value_of(n), need::exact_value)}}};
    contribute(x, dx, part_kind::fresh);
  }

  void concat_backward(const node& v, const tensor_ref& dy) {
    std::int64_t begin = dy.whole() ? 0 : dy.channel_begin;
    for (std::size_t i = 0; i < v.inputs.size(); ++i) {
      const std::int64_t channels = facts_.at(v.inputs[i]).shape.back();
      pass_on(v.inputs[i], {dy.storage, begin, channels},
              i + 1 < v.inputs.size() ? part_kind::borrowed : part_kind::last_borrowed);
      begin += channels;
    }
  }

  void dropout_backward(node_id n) {
    const storage_id mask = g_.op_at(f_.op_of(n)).optional_outputs[0];
    elementwise(n, op_kind::dropout_backward,
                {{"from_seed", {}}, {"from_mask", {read({mask, 0, 0}, need::mask)}}});
  }

  void backward(node_id n) {
    current_ = n;
    const node& v = facts_.at(n);
    if (v.kind == node_kind::softmax_cross_entropy) return loss_backward(n);
    const tensor_ref dy = gradients_[n];
    if (!dy.storage.valid()) return;  // nothing after this node leads to the loss
    switch (v.kind) {
      case node_kind::input:
      case node_kind::softmax_cross_entropy:
        break;
      case node_kind::conv2d:
        weighted_backward(n, op_kind::conv2d_backward_weights, op_kind::conv2d_backward_data);
        break;
      case node_kind::dense:
        weighted_backward(n, op_kind::dense_backward_weights, op_kind::dense_backward_data);
        break;
      case node_kind::relu:
        if (facts_.has_no_op(n)) {
          pass_on(facts_.input_of(n), dy, part_kind::last_borrowed);
        } else {
          elementwise(n, op_kind::relu_backward, {{"from_y", {read(f_.value_of(n), need::sign)}}});
        }
        break;
      case node_kind::leaky_relu:
        elementwise(n, op_kind::leaky_relu_backward, {{"from_y", {read(f_.value_of(n), need::sign)}}});
        break;
      case node_kind::relu6:
        elementwise(n, op_kind::relu6_backward, {{"from_y", {read(f_.value_of(n), need::range)}}});
        break;
      case node_kind::max_pool:
        max_pool_backward(n);
        break;
      case node_kind::avg_pool:
        pool_backward(n, op_kind::avg_pool_backward, {});
        break;
      case node_kind::global_avg_pool:
        pool_backward(n, op_kind::global_avg_pool_backward, {});
        break;
      case node_kind::batch_norm:
        norm_backward(n);
        break;
      case node_kind::add:
        pass_on(v.inputs[0], dy, part_kind::borrowed);
        pass_on(v.inputs[1], dy, part_kind::last_borrowed);
        break;
      case node_kind::concat:
        concat_backward(v, dy);
        break;
      case node_kind::dropout:
        dropout_backward(n);
        break;
      case node_kind::lrn:
        elementwise(n, op_kind::lrn_backward,
                    {{"from_x", {read(f_.value_of(facts_.input_of(n)), need::value)}}});
        break;
      case node_kind::flatten:
        flatten_backward(n, dy);
        break;
    }
  }

  // The ops of a map want its gradient in the map's shape; what came before looked at elements only, unless
  // it was a norm.
  void flatten_backward(node_id n, const tensor_ref& dy) {
    node_id map = facts_.input_of(n);
    while (facts_.at(map).kind == node_kind::flatten)
      map = facts_.input_of(map);
    storage& s = g_.storages[dy.storage];
    const bool has_shape = dy.whole() ? s.shape == facts_.at(map).shape : facts_.at(map).shape.size() == 1;
    if (has_shape || !wants_gradient(map)) return pass_on(facts_.input_of(n), dy, part_kind::last_borrowed);
    const bool by_channel = std::any_of(g_.ops.begin(), g_.ops.end(), [&](const op& o) {
      return o.kind == op_kind::batch_norm_backward && o.inputs[0].storage == dy.storage;
    });
    if (dy.whole() && !by_channel && !gradient_is_shared(n)) {
      s.shape = facts_.at(map).shape;
      return pass_on(facts_.input_of(n), dy, part_kind::last_borrowed);
    }
    const tensor_ref own = new_gradient(map);
    op& c = f_.emit(facts_.at(n).name + "/copy_gradient", op_kind::copy, op_stage::backward, no_id);
    c.inputs = {dy};
    c.outputs = {own};
    contribute(facts_.input_of(n), own, part_kind::fresh);
  }

  // The gradient of x is that of n, in the same bytes.
  void pass_on(node_id x, const tensor_ref& dy, part_kind kind) {
    if (wants_gradient(x)) contribute(x, dy, kind);
  }

  void fused_update(node_id n) {
    if (f_.options().fused_update)
      emit_update(facts_.at(n).name + "/update", op_stage::backward, f_.parameters_of(n));
  }

  void update() {
    if (!f_.options().fused_update) emit_update("sgd_update", op_stage::update, f_.parameters());
  }

  void emit_update(std::string name, op_stage stage, const std::vector<trainable>& updated) {
    op& o = f_.emit(std::move(name), op_kind::sgd_update, stage, no_id);
    for (const trainable& t : updated) {
      o.parameters.insert(o.parameters.end(), {t.weight, t.gradient, t.momentum});
      o.parameters_written.insert(o.parameters_written.end(), {t.weight, t.momentum});
    }
  }

  const network& net_;
  forward_graph& f_;
  const network_facts& facts_;
  graph& g_;
  id_vector<node_id, tensor_ref> gradients_;
  node_id current_ = first_node;
};

}  // namespace

graph make_training_graph(const network& net, std::int64_t batch, const training_graph_options& options) {
  if (batch < 1) {
    throw error(errc::invalid_argument,
                "make_training_graph: batch: expected at least 1, got " + std::to_string(batch));
  }
  if (net.nodes().empty() || net.nodes().back().kind != node_kind::softmax_cross_entropy) {
    throw error(errc::invalid_argument,
                "make_training_graph: net: expected a network that ends in softmax_cross_entropy, got " +
                    (net.nodes().empty() ? std::string("an empty one") : net.nodes().back().name));
  }
  id_vector<node_id, bool> read(net.nodes().size(), false);
  for (const node& n : net.nodes()) {
    for (const node_id x : n.inputs)
      read[x] = true;
  }
  for (const node_id n : net.nodes().ids()) {
    if (read[n] || n == net.nodes().last_id()) continue;
    throw error(errc::invalid_argument,
                "make_training_graph: net: expected nodes that lead to the loss, got '" +
                    net.nodes()[n].name + "', which nobody reads");
  }
  if (!(options.relu_density >= 0.0 && options.relu_density <= 1.0)) {
    throw error(errc::invalid_argument, "make_training_graph: options.relu_density: expected 0..1, got " +
                                            std::to_string(options.relu_density));
  }
  forward_graph forward(net, batch, options);
  return backward_graph(net, forward).run();
}

}  // namespace stash::planner
