// SPDX-License-Identifier: Apache-2.0
// Derives the training graph from a network: which values share a storage, which ops are joined, and the
// backward pass with its needs.

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "planner/graph/graph.hpp"
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

std::size_t index(std::int32_t id) {
  return static_cast<std::size_t>(id);
}

class builder {
 public:
  builder(const network& net, std::int64_t batch, const training_graph_options& options)
      : net_(net), options_(options), count_(net.nodes().size()) {
    g_.name = net.name();
    g_.batch = batch;
  }

  graph run() {
    find_consumers();
    find_joined_ops();
    find_in_place();
    find_concat_views();
    for (std::size_t n = 0; n < count_; ++n)
      forward(static_cast<node_id>(n));
    for (std::size_t n = count_; n-- > 0;)
      backward(static_cast<node_id>(n));
    update();
    return std::move(g_);
  }

 private:
  // ---- structure of the network --------------------------------------------------------------------

  const node& at(node_id n) const { return net_.at(n); }
  node_id input_of(node_id n, std::size_t i = 0) const { return at(n).inputs.at(i); }

  void find_consumers() {
    consumers_.assign(count_, 0);
    sole_consumer_.assign(count_, -1);
    for (std::size_t n = 0; n < count_; ++n) {
      for (const node_id x : net_.nodes()[n].inputs) {
        ++consumers_[index(x)];
        sole_consumer_[index(x)] = static_cast<node_id>(n);
      }
    }
    for (std::size_t n = 0; n < count_; ++n) {
      if (consumers_[n] != 1) sole_consumer_[n] = -1;
    }
  }

  // A ReLU that only a max-pool reads is joined with the pool; one that alone reads a batch norm, with the
  // norm.
  void find_joined_ops() {
    relu_into_pool_.assign(count_, false);
    relu_into_norm_.assign(count_, false);
    for (std::size_t n = 0; n < count_; ++n) {
      if (net_.nodes()[n].kind != node_kind::relu) continue;
      const node_id reader = sole_consumer_[n];
      const node_id x = net_.nodes()[n].inputs[0];
      if (reader >= 0 && at(reader).kind == node_kind::max_pool) {
        relu_into_pool_[n] = true;
      } else if (at(x).kind == node_kind::batch_norm && sole_consumer_[index(x)] == static_cast<node_id>(n)) {
        relu_into_norm_[n] = true;
      }
    }
  }

  // Whether the backward op of the node that made this value reads the value itself.
  bool producer_reads_output(node_id n) const {
    switch (at(n).kind) {
      case node_kind::relu:
        return !relu_into_pool_[index(n)];
      case node_kind::leaky_relu:
      case node_kind::relu6:
        return true;
      case node_kind::max_pool:
        return relu_into_pool_[index(input_of(n))];
      case node_kind::flatten:
      case node_kind::concat:
        return std::any_of(at(n).inputs.begin(), at(n).inputs.end(),
                           [this](node_id x) { return producer_reads_output(x); });
      default:
        return false;
    }
  }

  // Only this reader looks at the value, through whatever views lie between. The inputs of a concatenation
  // may be views of it.
  bool used_only_by(node_id value, node_id reader) const {
    if (sole_consumer_[index(value)] != reader) return false;
    const bool view = at(value).kind == node_kind::flatten || at(value).kind == node_kind::concat;
    return !view || std::all_of(at(value).inputs.begin(), at(value).inputs.end(),
                                [&](node_id x) { return used_only_by(x, value); });
  }

  bool can_overwrite(node_id value, node_id reader) const {
    return used_only_by(value, reader) && !producer_reads_output(value) &&
           at(value).kind != node_kind::input && at(value).kind != node_kind::flatten;
  }

  void find_in_place() {
    in_place_of_.assign(count_, -1);
    for (std::size_t i = 0; i < count_; ++i) {
      const auto n = static_cast<node_id>(i);
      switch (at(n).kind) {
        case node_kind::relu:
          if (relu_into_norm_[i] || relu_into_pool_[i]) {
            in_place_of_[i] = input_of(n);  // no op of its own: the same storage by construction
            break;
          }
          [[fallthrough]];
        case node_kind::leaky_relu:
        case node_kind::relu6:
        case node_kind::dropout:
          if (can_overwrite(input_of(n), n)) in_place_of_[i] = input_of(n);
          break;
        case node_kind::add:
          for (const node_id x : at(n).inputs) {
            if (in_place_of_[i] < 0 && can_overwrite(x, n)) in_place_of_[i] = x;
          }
          break;
        case node_kind::flatten:
          in_place_of_[i] = input_of(n);
          break;
        default:
          break;
      }
    }
  }

  // Inputs of a concatenation are written straight into their channel slice, once; a value that a second
  // concatenation wants too is copied there.
  void find_concat_views() {
    slice_.assign(count_, {});
    for (std::size_t i = count_; i-- > 0;) {
      if (const node_id x = in_place_of_[i];
          x >= 0 && slice_[i].concat >= 0 && at(static_cast<node_id>(i)).kind != node_kind::flatten) {
        slice_[index(x)] = slice_[i];
      }
      const auto n = static_cast<node_id>(i);
      if (at(n).kind != node_kind::concat) continue;
      std::int64_t begin = slice_[i].concat >= 0 ? slice_[i].begin : 0;
      const node_id root = slice_[i].concat >= 0 ? slice_[i].concat : n;
      for (const node_id x : at(n).inputs) {
        const bool viewable = slice_[index(x)].concat < 0 && at(x).kind != node_kind::input &&
                              at(x).kind != node_kind::flatten && last_in_place(x) == x;
        if (viewable) slice_[index(x)] = {root, begin};
        begin += at(x).shape.back();
      }
    }
  }

  // The node whose in-place op writes this storage last.
  node_id last_in_place(node_id n) const {
    const node_id reader = sole_consumer_[index(n)];
    if (reader >= 0 && in_place_of_[index(reader)] == n && at(reader).kind != node_kind::flatten) {
      return last_in_place(reader);
    }
    return n;
  }

  // ---- storages ------------------------------------------------------------------------------------

  storage_id new_storage(std::string name, storage_role role, dtype type, std::vector<std::int64_t> dims,
                         bool per_sample) {
    storage s;
    s.name = std::move(name);
    while (!names_.insert(s.name).second)
      s.name += "'";
    s.role = role;
    s.type = type;
    s.shape = std::move(dims);
    const std::int64_t bytes = product(s.shape) * static_cast<std::int64_t>(size_of(type));
    (per_sample ? s.bytes_per_sample : s.fixed_bytes) = bytes;
    g_.storages.push_back(std::move(s));
    return static_cast<storage_id>(g_.storages.size()) - 1;
  }

  storage_id parameter(const std::string& name, storage_role role, std::vector<std::int64_t> dims) {
    return new_storage(name, role, dtype::f32, std::move(dims), false);
  }

  struct trainable {
    storage_id weight, gradient, momentum;
  };

  trainable make_trainable(const std::string& name, const std::vector<std::int64_t>& dims) {
    trainable t{parameter(name, storage_role::weight, dims),
                parameter(name + ".gradient", storage_role::weight_gradient, dims),
                parameter(name + ".momentum", storage_role::momentum, dims)};
    trainables_.push_back(t);
    return t;
  }

  double density_of(node_id n) const {
    const node& v = at(n);
    const double d = options_.relu_density;
    switch (v.kind) {
      case node_kind::relu:
      case node_kind::relu6:
        return d;
      case node_kind::max_pool: {
        // A pooled value is zero only if its whole window is. Neighbours are correlated: count a window as
        // two independent taps.
        const double x = relu_into_pool_[index(input_of(n))] ? d : density_of(input_of(n));
        return 1.0 - (1.0 - x) * (1.0 - x);
      }
      case node_kind::lrn:
      case node_kind::flatten:
        return density_of(input_of(n));
      case node_kind::dropout:
        return density_of(input_of(n)) * (1.0 - static_cast<double>(v.attributes.drop_probability));
      case node_kind::concat: {
        double sum = 0, channels = 0;
        for (const node_id x : v.inputs) {
          const auto c = static_cast<double>(at(x).shape.back());
          sum += density_of(x) * c;
          channels += c;
        }
        return sum / channels;
      }
      default:
        return 1.0;
    }
  }

  // The tensor that a node writes; storages are named and described after the last op that writes them.
  tensor_ref value_of(node_id n) {
    if (values_.empty()) values_.assign(count_, tensor_ref{});
    tensor_ref& ref = values_[index(n)];
    if (ref.storage >= 0) return ref;
    if (in_place_of_[index(n)] >= 0) return ref = value_of(in_place_of_[index(n)]);
    if (slice_[index(n)].concat >= 0) {
      const node_id root = slice_[index(n)].concat;
      const tensor_ref whole = value_of(root);
      return ref = {whole.storage, slice_[index(n)].begin, at(n).shape.back()};
    }
    if (at(n).kind == node_kind::input) {
      const storage_id s = new_storage(at(n).name, storage_role::image, dtype::u8, at(n).shape, true);
      return ref = {s, 0, 0};
    }
    const node_id last = last_in_place(n);
    const node_id described = relu_into_pool_[index(last)] ? input_of(last) : last;
    const storage_id s =
        new_storage(at(described).name, storage_role::feature_map, dtype::f32, at(n).shape, true);
    g_.storages[index(s)].density = density_of(described);
    return ref = {s, 0, 0};
  }

  // ---- forward -------------------------------------------------------------------------------------

  op& emit(std::string name, op_kind kind, op_stage stage, node_id n) {
    op o;
    o.name = std::move(name);
    while (!op_names_.insert(o.name).second)
      o.name += "'";
    o.kind = kind;
    o.stage = stage;
    if (n >= 0) o.attributes = at(n).attributes;
    g_.ops.push_back(std::move(o));
    return g_.ops.back();
  }

  op& emit_forward(node_id n, op_kind kind) {
    if (forward_op_.empty()) forward_op_.assign(count_, -1);
    std::vector<tensor_ref> inputs;
    for (const node_id x : at(n).inputs)
      inputs.push_back(value_of(x));
    const tensor_ref out = value_of(n);
    op& o = emit(at(n).name, kind, op_stage::forward, n);
    o.inputs = std::move(inputs);
    o.outputs = {out};
    forward_op_[index(n)] = static_cast<op_id>(g_.ops.size()) - 1;
    return o;
  }

  void weighted(node_id n, op_kind kind, const std::vector<std::int64_t>& dims, bool bias) {
    const trainable w = make_trainable(at(n).name + "/weight", dims);
    std::vector<trainable> parts{w};
    if (bias) parts.push_back(make_trainable(at(n).name + "/bias", {dims[0]}));
    op& o = emit_forward(n, kind);
    for (const trainable& t : parts)
      o.parameters.push_back(t.weight);
    node_parameters_[n] = parts;
  }

  void forward(node_id n) {
    const node& v = at(n);
    switch (v.kind) {
      case node_kind::input:
      case node_kind::flatten:
        value_of(n);
        break;
      case node_kind::conv2d: {
        const std::int64_t in = at(v.inputs[0]).shape.back();
        weighted(n, op_kind::conv2d,
                 {v.attributes.out_features, in / v.attributes.groups, v.attributes.kernel_h,
                  v.attributes.kernel_w},
                 v.attributes.bias);
        break;
      }
      case node_kind::dense:
        weighted(n, op_kind::dense, {v.attributes.out_features, product(at(v.inputs[0]).shape)}, true);
        break;
      case node_kind::relu:
        if (relu_into_norm_[index(n)] || relu_into_pool_[index(n)]) break;
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
      case node_kind::dropout: {
        const storage_id mask =
            new_storage(v.name + ".mask", storage_role::auxiliary, dtype::u8, v.shape, true);
        emit_forward(n, op_kind::dropout).optional_outputs = {mask};
        break;
      }
      case node_kind::lrn:
        emit_forward(n, op_kind::lrn);
        break;
      case node_kind::softmax_cross_entropy: {
        g_.classes = product(v.shape);
        const storage_id labels = new_storage("labels", storage_role::label, dtype::s32, {1}, true);
        emit_forward(n, op_kind::softmax_cross_entropy).inputs.push_back({labels, 0, 0});
        labels_ = labels;
        break;
      }
    }
  }

  void forward_pool(node_id n) {
    const node& v = at(n);
    const bool joined = relu_into_pool_[index(v.inputs[0])];
    const std::int32_t taps = v.attributes.kernel_h * v.attributes.kernel_w;
    std::vector<storage_id> extra;
    if (taps <= max_index_taps)
      extra.push_back(new_storage(v.name + ".index", storage_role::auxiliary, dtype::u8, v.shape, true));
    if (joined && taps <= max_code_taps) {
      extra.push_back(new_storage(v.name + ".code", storage_role::auxiliary, dtype::u8, v.shape, true));
    }
    for (const storage_id s : extra)
      g_.storages[index(s)].window_taps = taps;
    emit_forward(n, joined ? op_kind::relu_max_pool : op_kind::max_pool).optional_outputs = extra;
  }

  void forward_norm(node_id n) {
    const node& v = at(n);
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
    const node_id reader = sole_consumer_[index(n)];
    if (reader >= 0 && relu_into_norm_[index(reader)]) {
      o.attributes.fused_relu = true;
      if (o.inputs[0].whole() && o.outputs[0].whole()) {
        g_.recipes.push_back({o.outputs[0].storage, {o.inputs[0].storage}, {forward_op_[index(n)]}});
      }
    }
  }

  void forward_concat(node_id n) {
    const tensor_ref whole = value_of(n);
    std::int64_t begin = whole.channel_begin;
    int copies = 0;
    for (const node_id x : at(n).inputs) {
      const std::int64_t channels = at(x).shape.back();
      const tensor_ref target{whole.storage, begin, channels};
      begin += channels;
      const tensor_ref source = value_of(x);
      if (source == target) continue;
      op& o = emit(at(n).name + "/copy" + std::to_string(copies++), op_kind::copy, op_stage::forward, -1);
      o.inputs = {source};
      o.outputs = {target};
    }
  }

  // ---- backward ------------------------------------------------------------------------------------

  static bool overlap(const tensor_ref& a, const tensor_ref& b) {
    if (a.storage != b.storage) return false;
    if (a.whole() || b.whole()) return true;
    return a.channel_begin < b.channel_begin + b.channels && b.channel_begin < a.channel_begin + a.channels;
  }

  // Whether a node that is still to be processed holds its gradient in the same bytes.
  bool gradient_is_shared(node_id owner) const {
    for (node_id m = 0; m < current_; ++m) {
      if (m != owner && gradients_[index(m)].storage >= 0 &&
          overlap(gradients_[index(m)], gradients_[index(owner)])) {
        return true;
      }
    }
    return false;
  }
  // Joined ReLUs and views pass the gradient on.
  bool has_no_op(node_id n) const {
    return at(n).kind == node_kind::flatten || relu_into_norm_[index(n)] || relu_into_pool_[index(n)];
  }

  // dx of `x` in a fresh storage.
  tensor_ref new_gradient(node_id x) {
    while (at(x).kind == node_kind::flatten)
      x = input_of(x);
    const tensor_ref value = value_of(x);
    const storage& s = g_.at(value.storage);
    const std::string name = (value.whole() ? s.name : at(x).name) + ".gradient";
    return {new_storage(name, storage_role::gradient, dtype::f32, at(x).shape, true), 0, 0};
  }

  bool wants_gradient(node_id x) const {
    return at(x).kind != node_kind::input &&
           !(at(x).kind == node_kind::flatten && at(input_of(x)).kind == node_kind::input);
  }

  // How a node hands its gradient down.
  enum class part_kind : std::uint8_t {
    fresh,          // in memory of its own
    borrowed,       // in the bytes of the current node's gradient, which is read again for other inputs
    last_borrowed,  // the same, and nobody reads them for this node again
  };

  // Adds `part` to the gradient of x.
  void contribute(node_id x, const tensor_ref& part, part_kind kind) {
    tensor_ref& sum = gradients_[index(x)];
    if (sum.storage < 0) {
      sum = part;
      return;
    }
    // A sum that lies in the current gradient may grow there only by itself, and only at the end.
    const bool in_the_way = kind != part_kind::fresh && overlap(sum, gradients_[index(current_)]) &&
                            !(kind == part_kind::last_borrowed && sum == part);
    if (in_the_way || (gradient_is_shared(x) && kind != part_kind::fresh)) {
      const tensor_ref own = new_gradient(x);
      op& c = emit(at(x).name + "/copy_gradient", op_kind::copy, op_stage::backward, -1);
      c.inputs = {sum};
      c.outputs = {own};
      sum = own;
    }
    const bool into_part = gradient_is_shared(x);
    op& o = emit(at(x).name + "/accumulate", op_kind::accumulate, op_stage::backward, -1);
    o.inputs = into_part ? std::vector<tensor_ref>{part, sum} : std::vector<tensor_ref>{sum, part};
    o.outputs = {o.inputs[0]};
    sum = o.outputs[0];
  }

  op& emit_backward(node_id n, const char* suffix, op_kind kind) {
    op& o = emit(at(n).name + suffix, kind, op_stage::backward, n);
    o.forward_op = forward_op_[index(n)];
    if (o.forward_op >= 0) o.attributes = g_.op_at(o.forward_op).attributes;
    o.inputs = {gradients_[index(n)]};
    return o;
  }

  static stash_read read(const tensor_ref& ref, need what) { return {ref.storage, what, ref}; }

  // A backward op that turns dy into dx; in place where it may and dy dies with it.
  void elementwise(node_id n, op_kind kind, std::vector<stash_alternative> alternatives,
                   const std::vector<storage_id>& parameters = {},
                   const std::vector<storage_id>& written = {}) {
    const node_id x = input_of(n);
    const bool needed = wants_gradient(x);
    const tensor_ref dy = gradients_[index(n)];
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
    const node_id x = input_of(n);
    const std::vector<trainable>& parts = node_parameters_.at(n);
    op& w = emit_backward(n, "/backward_weights", weights);
    w.alternatives = {{"from_x", {read(value_of(x), need::value)}}};
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

  void pool_backward(node_id n, op_kind kind, std::vector<stash_alternative> alternatives) {
    const node_id x = input_of(n);
    if (!wants_gradient(x)) return;
    const tensor_ref dx = new_gradient(x);
    op& o = emit_backward(n, "/backward", kind);
    o.outputs = {dx};
    o.alternatives = std::move(alternatives);
    contribute(x, dx, part_kind::fresh);
  }

  void max_pool_backward(node_id n) {
    const op& f = g_.op_at(forward_op_[index(n)]);
    const bool joined = f.kind == op_kind::relu_max_pool;
    const tensor_ref x = f.inputs[0];
    const tensor_ref y = f.outputs[0];
    const std::vector<storage_id> extra = f.optional_outputs;
    std::vector<stash_alternative> alternatives;
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
    const op& f = g_.op_at(forward_op_[index(n)]);
    const tensor_ref x = f.inputs[0];
    const tensor_ref y = f.outputs[0];
    std::vector<stash_alternative> alternatives;
    if (f.attributes.fused_relu) {
      alternatives.push_back({"from_x", {read(x, need::exact_value)}});
      alternatives.push_back({"from_x_and_y", {read(x, need::value), read(y, need::sign)}});
    } else {
      alternatives.push_back({"from_x", {read(x, need::value)}});
    }
    const std::vector<trainable>& parts = node_parameters_.at(n);
    elementwise(n, op_kind::batch_norm_backward, std::move(alternatives),
                {parts[0].weight, parts[1].weight, saved_.at(n).first, saved_.at(n).second},
                {parts[0].gradient, parts[1].gradient});
    fused_update(n);
  }

  void backward(node_id n) {
    current_ = n;
    if (gradients_.empty()) gradients_.assign(count_, tensor_ref{});
    const node& v = at(n);
    if (v.kind == node_kind::softmax_cross_entropy) {
      const node_id x = v.inputs[0];
      const tensor_ref dx = new_gradient(x);
      op& o = emit_backward(n, "/backward", op_kind::softmax_cross_entropy_backward);
      o.inputs = {{labels_, 0, 0}};
      o.outputs = {dx};
      o.alternatives = {{"from_probabilities", {read(value_of(n), need::exact_value)}}};
      contribute(x, dx, part_kind::fresh);
      return;
    }
    const tensor_ref dy = gradients_[index(n)];
    if (dy.storage < 0) return;  // nothing after this node leads to the loss
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
        if (has_no_op(n)) {
          pass_on(input_of(n), dy, part_kind::last_borrowed);
        } else {
          elementwise(n, op_kind::relu_backward, {{"from_y", {read(value_of(n), need::sign)}}});
        }
        break;
      case node_kind::leaky_relu:
        elementwise(n, op_kind::leaky_relu_backward, {{"from_y", {read(value_of(n), need::sign)}}});
        break;
      case node_kind::relu6:
        elementwise(n, op_kind::relu6_backward, {{"from_y", {read(value_of(n), need::range)}}});
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
      case node_kind::concat: {
        std::int64_t begin = dy.whole() ? 0 : dy.channel_begin;
        for (std::size_t i = 0; i < v.inputs.size(); ++i) {
          const std::int64_t channels = at(v.inputs[i]).shape.back();
          pass_on(v.inputs[i], {dy.storage, begin, channels},
                  i + 1 < v.inputs.size() ? part_kind::borrowed : part_kind::last_borrowed);
          begin += channels;
        }
        break;
      }
      case node_kind::dropout: {
        const storage_id mask = g_.op_at(forward_op_[index(n)]).optional_outputs[0];
        elementwise(n, op_kind::dropout_backward,
                    {{"from_seed", {}}, {"from_mask", {read({mask, 0, 0}, need::mask)}}});
        break;
      }
      case node_kind::lrn:
        elementwise(n, op_kind::lrn_backward, {{"from_x", {read(value_of(input_of(n)), need::value)}}});
        break;
      case node_kind::flatten:
        flatten_backward(n, dy);
        break;
    }
  }

  // The ops of a map want its gradient in the map's shape; what came before looked at elements only, unless
  // it was a norm.
  void flatten_backward(node_id n, const tensor_ref& dy) {
    node_id map = input_of(n);
    while (at(map).kind == node_kind::flatten)
      map = input_of(map);
    storage& s = g_.storages[index(dy.storage)];
    const bool has_shape = dy.whole() ? s.shape == at(map).shape : at(map).shape.size() == 1;
    if (has_shape || !wants_gradient(map)) return pass_on(input_of(n), dy, part_kind::last_borrowed);
    const bool by_channel = std::any_of(g_.ops.begin(), g_.ops.end(), [&](const op& o) {
      return o.kind == op_kind::batch_norm_backward && o.inputs[0].storage == dy.storage;
    });
    if (dy.whole() && !by_channel && !gradient_is_shared(n)) {
      s.shape = at(map).shape;
      return pass_on(input_of(n), dy, part_kind::last_borrowed);
    }
    const tensor_ref own = new_gradient(map);
    op& c = emit(at(n).name + "/copy_gradient", op_kind::copy, op_stage::backward, -1);
    c.inputs = {dy};
    c.outputs = {own};
    contribute(input_of(n), own, part_kind::fresh);
  }

  // The gradient of x is that of n, in the same bytes.
  void pass_on(node_id x, const tensor_ref& dy, part_kind kind) {
    if (wants_gradient(x)) contribute(x, dy, kind);
  }

  void fused_update(node_id n) {
    if (options_.fused_update)
      emit_update(at(n).name + "/update", op_stage::backward, node_parameters_.at(n));
  }

  void update() {
    if (!options_.fused_update) emit_update("sgd_update", op_stage::update, trainables_);
  }

  void emit_update(std::string name, op_stage stage, const std::vector<trainable>& updated) {
    op& o = emit(std::move(name), op_kind::sgd_update, stage, -1);
    for (const trainable& t : updated) {
      o.parameters.insert(o.parameters.end(), {t.weight, t.gradient, t.momentum});
      o.parameters_written.insert(o.parameters_written.end(), {t.weight, t.momentum});
    }
  }

  struct concat_slice {
    node_id concat = -1;
    std::int64_t begin = 0;
  };

  const network& net_;
  training_graph_options options_;
  std::size_t count_;
  graph g_;
  std::vector<int> consumers_;
  std::vector<node_id> sole_consumer_;
  std::vector<bool> relu_into_pool_, relu_into_norm_;
  std::vector<node_id> in_place_of_;
  std::vector<concat_slice> slice_;
  std::vector<tensor_ref> values_, gradients_;
  std::vector<op_id> forward_op_;
  std::vector<trainable> trainables_;
  std::map<node_id, std::vector<trainable>> node_parameters_;
  std::map<node_id, std::pair<storage_id, storage_id>> saved_;
  std::set<std::string> names_, op_names_;
  storage_id labels_ = -1;
  node_id current_ = 0;
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
  std::vector<bool> read(net.nodes().size(), false);
  for (const node& n : net.nodes()) {
    for (const node_id x : n.inputs)
      read[index(x)] = true;
  }
  for (std::size_t n = 0; n + 1 < read.size(); ++n) {
    if (read[n]) continue;
    throw error(errc::invalid_argument,
                "make_training_graph: net: expected nodes that lead to the loss, got '" +
                    net.nodes()[n].name + "', which nobody reads");
  }
  if (!(options.relu_density >= 0.0 && options.relu_density <= 1.0)) {
    throw error(errc::invalid_argument, "make_training_graph: options.relu_density: expected 0..1, got " +
                                            std::to_string(options.relu_density));
  }
  return builder(net, batch, options).run();
}

}  // namespace stash::planner
