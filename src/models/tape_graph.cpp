// SPDX-License-Identifier: Apache-2.0
// From a tape to a training graph: which values share a storage, the forward ops, the backward pass.

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "models/tape.hpp"
#include "planner/graph/recipes.hpp"
#include "stash/error.hpp"

namespace stash::models {
namespace {

using planner::graph;
using planner::id_vector;
using planner::no_id;
using planner::op;
using planner::op_id;
using planner::op_kind;
using planner::op_stage;
using planner::stash_alternative;
using planner::storage;
using planner::storage_id;
using planner::storage_role;
using planner::tensor_ref;
using tape_record::backward_step;
using tape_record::node;
using tape_record::node_kind;
using tape_record::operand;

using tape_record::value_number;
using dims = std::vector<std::int64_t>;

bool overlap(const tensor_ref& a, const tensor_ref& b) {
  if (a.storage != b.storage) return false;
  if (a.whole() || b.whole()) return true;
  return a.channel_begin < b.channel_begin + b.channels && b.channel_begin < a.channel_begin + a.channels;
}

// Channels [begin, begin + channels) of what a reference names.
tensor_ref part_of(const tensor_ref& ref, std::int64_t begin, std::int64_t channels) {
  return {ref.storage, (ref.whole() ? 0 : ref.channel_begin) + begin, channels};
}

// One class: forward and backward ops share storages, so that each half asks what the other has made of a
// value.
class builder {
 public:
  builder(const std::string& name, const id_vector<tape_record::node_number, node>& nodes,
          const id_vector<value_number, tape_record::value>& values,
          const id_vector<tape_record::parameter_number, tape_record::parameter>& parameters,
          std::int64_t batch, const tape_options& options)
      : nodes_(nodes),
        values_(values),
        parameters_(parameters),
        options_(options),
        readers_(values.size(), 0),
        only_reader_(values.size(), -1),
        gradient_reads_(values.size(), false),
        written_over_(values.size(), -1),
        overwritten_by_(values.size(), -1),
        member_of_(values.size()),
        where_(values.size()),
        density_(values.size(), 1.0),
        trains_(values.size(), false),
        placed_(values.size(), false),
        gradient_(values.size()),
        forward_op_(nodes.size(), no_id),
        auxiliaries_(nodes.size()),
        saved_(nodes.size()),
        split_gradient_(nodes.size(), no_id) {
    g_.name = name;
    g_.batch = batch;
  }

  graph run() {
    find_readers();
    find_in_place();
    find_views();
    find_densities();
    make_parameters();
    for (std::size_t n = 0; n < nodes_.size(); ++n)
      forward(n);
    for (std::size_t n = nodes_.size(); n-- > 0;)
      backward(n);
    update();
    planner::add_recipes(g_, cheap_);
    return std::move(g_);
  }

 private:
  // ---- structure -----------------------------------------------------------------------------------------

  value_number base(value_number v) const { return values_[v].alias_of >= 0 ? values_[v].alias_of : v; }

  value_number input(const node& n, std::size_t i) const { return base(n.inputs[i]); }
  const node& maker(value_number v) const { return nodes_[values_[v].node]; }
  bool is_input(value_number v) const { return maker(v).kind == node_kind::input; }

  void find_readers() {
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      const node& o = nodes_[n];
      for (std::size_t i = 0; i < o.inputs.size(); ++i) {
        const value_number x = input(o, i);
        ++readers_[x];
        only_reader_[x] = readers_[x] == 1 ? static_cast<std::int32_t>(n) : -1;
      }
    }
    for (const node& o : nodes_) {
      if (o.kind != node_kind::split || readers_[input(o, 0)] == 1) continue;
      throw error(errc::invalid_argument,
                  fmt::format("tape {}: '{}': expected a value that nobody else reads", g_.name, o.name));
    }
    for (const node& o : nodes_) {
      bool trained = !o.parameters.empty();
      for (std::size_t i = 0; i < o.inputs.size(); ++i)
        trained = trained || trains_[input(o, i)];
      for (const value_number y : o.outputs)
        trains_[y] = trained && o.kind != node_kind::input;
      for (const backward_step& s : o.backward) {
        for (const tape_record::form& f : s.forms) {
          for (const tape_record::read& r : f.reads) {
            if (r.from == operand::input) gradient_reads_[input(o, r.which)] = true;
            if (r.from == operand::output) gradient_reads_[o.outputs[r.which]] = true;
          }
        }
      }
    }
  }

  // A value may be written over by its only reader, if no gradient reads it.
  void find_in_place() {
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      const node& o = nodes_[n];
      for (const tape_record::overwrite& w : o.overwrites) {
        const value_number x = input(o, w.input), y = o.outputs[w.output];
        const bool made_by_op = maker(x).kind == node_kind::op || maker(x).kind == node_kind::sum;
        if (!made_by_op || gradient_reads_[x] || written_over_[y] >= 0) continue;
        if (only_reader_[x] != static_cast<std::int32_t>(n)) continue;
        written_over_[y] = x;
        overwritten_by_[x] = y;
      }
    }
  }

  struct membership {
    value_number whole = -1;  // of which it is a slice
    std::int64_t begin = 0;
  };

  // Inputs of a concatenation are written straight into their channels, with all that they are written over.
  void find_views() {
    for (const node& o : nodes_) {
      if (o.kind != node_kind::concat) continue;
      std::int64_t begin = 0;
      for (const value_number in : o.inputs) {
        value_number x = base(in);
        const std::int64_t channels = values_[in].shape.back();
        const bool viewable = x == in && member_of_[x].whole < 0 &&
                              (maker(x).kind == node_kind::op || maker(x).kind == node_kind::sum);
        for (; viewable && x >= 0; x = written_over_[x])
          member_of_[x] = {o.outputs[0], begin};
        begin += channels;
      }
    }
    for (std::size_t v = 0; v < values_.size(); ++v) {
      if (values_[v].alias_of >= 0 || maker(static_cast<value_number>(v)).kind != node_kind::split) continue;
      const node& o = maker(static_cast<value_number>(v));
      std::int64_t begin = 0;
      for (std::int32_t i = 0; i < values_[v].position; ++i)
        begin += values_[o.outputs[i]].shape.back();
      member_of_[v] = {input(o, 0), begin};
    }
  }

  void find_densities() {
    for (const node& o : nodes_) {
      double d = 1;
      if (o.zeroes) {
        d = options_.relu_density;
      } else if (o.pools) {
        // Neighbours are correlated: count a window as two independent taps.
        const double x = density_[input(o, 0)];
        d = 1 - (1 - x) * (1 - x);
      } else if (o.label == "dropout") {
        d = density_[input(o, 0)] * o.density_factor;
      } else if (o.kind == node_kind::concat) {
        d = 0;
        for (std::size_t i = 0; i < o.inputs.size(); ++i)
          d += density_[input(o, i)] * static_cast<double>(values_[o.inputs[i]].shape.back());
        d /= static_cast<double>(values_[o.outputs[0]].shape.back());
      }
      for (const value_number y : o.outputs)
        density_[y] = d;
    }
  }

  // ---- storages ------------------------------------------------------------------------------------------

  template <class Names>
  static std::string unique(std::string name, Names& names) {
    if (names.insert(name).second) return name;
    for (int i = 2;; ++i) {
      std::string other = fmt::format("{}#{}", name, i);
      if (names.insert(other).second) return other;
    }
  }

  storage_id new_storage(std::string name, storage_role role, dtype type, dims shape, bool per_sample) {
    storage s;
    s.name = unique(std::move(name), names_);
    s.role = role;
    s.type = type;
    s.shape = std::move(shape);
    const std::int64_t bytes = tape_record::elements(s.shape) * static_cast<std::int64_t>(size_of(type));
    (per_sample ? s.bytes_per_sample : s.fixed_bytes) = bytes;
    const std::int64_t free = tape_record::most_bytes - total_bytes_, times = per_sample ? g_.batch : 1;
    if (bytes > free / times) refuse_size(s.name);
    total_bytes_ += bytes * times;
    g_.storages.push_back(std::move(s));
    return storage_id(g_.storages.size()) - 1;
  }

  [[noreturn]] void refuse_size(const std::string& name) const {
    throw error(
        errc::invalid_argument,
        fmt::format("tape {}: '{}': expected a side, a number of steps and a batch whose step takes at "
                    "most {} bytes, got more at batch {}",
                    g_.name, name, tape_record::most_bytes, g_.batch));
  }

  /// Of the batch.
  std::int64_t workspace(const std::string& name, std::int64_t per_sample) const {
    if (per_sample > tape_record::most_bytes / g_.batch) refuse_size(name);
    return per_sample * g_.batch;
  }

  struct trainable {
    storage_id weight = no_id, gradient = no_id, momentum = no_id;
    bool trained = false;
  };

  void make_parameters() {
    for (const tape_record::parameter& p : parameters_) {
      const auto make = [&](const char* suffix, storage_role role) {
        return new_storage(p.name + suffix, role, dtype::f32, p.shape, false);
      };
      trainables_.push_back({make("", storage_role::weight), make(".gradient", storage_role::weight_gradient),
                             make(".momentum", storage_role::momentum)});
    }
  }

  std::string name_of(value_number v) const {
    const node& o = maker(v);
    return values_[v].position == 0 ? o.name : fmt::format("{}.{}", o.name, values_[v].position);
  }

  tensor_ref where(value_number v) {
    v = base(v);
    tensor_ref& ref = where_[v];
    if (ref.storage.valid()) return ref;
    if (written_over_[v] >= 0) return ref = where(written_over_[v]);
    if (const membership& m = member_of_[v]; m.whole >= 0) {
      const tensor_ref whole = where(m.whole);
      return where_[v] = part_of(whole, m.begin, values_[v].shape.back());
    }
    value_number last = v;
    while (overwritten_by_[last] >= 0)
      last = overwritten_by_[last];
    const node& o = maker(v);
    const storage_role role = o.kind == node_kind::input ? o.role : storage_role::feature_map;
    const storage_id s = new_storage(name_of(last), role, o.kind == node_kind::input ? o.type : dtype::f32,
                                     values_[v].shape, true);
    if (role == storage_role::feature_map) g_.storages[s].density = density_[last];
    return where_[v] = {s, 0, 0};
  }

  tensor_ref input_ref(const node& o, std::size_t i) {
    const tensor_ref whole = where(o.inputs[i]);
    if (i >= o.input_slices.size() || o.input_slices[i].count == 0) return whole;
    if (o.input_slices[i].count == values_[input(o, i)].shape.back()) return whole;
    return part_of(whole, o.input_slices[i].first, o.input_slices[i].count);
  }

  // ---- forward -------------------------------------------------------------------------------------------

  op& emit(std::string name, op_kind kind, op_stage stage) {
    op o;
    o.name = unique(std::move(name), op_names_);
    o.kind = kind;
    o.stage = stage;
    g_.ops.push_back(std::move(o));
    return g_.ops.back();
  }

  void forward(std::size_t number) {
    const node& n = nodes_[number];
    switch (n.kind) {
      case node_kind::input:
        where(n.outputs[0]);
        return;
      case node_kind::split:
        return;
      case node_kind::concat:
        copy_into_concat(n);
        return;
      case node_kind::op:
      case node_kind::sum:
        forward_op(number);
        return;
    }
  }

  void forward_op(std::size_t number) {
    const node& n = nodes_[number];
    op o;
    for (std::size_t i = 0; i < n.inputs.size(); ++i)
      o.inputs.push_back(input_ref(n, i));
    for (const value_number y : n.outputs)
      o.outputs.push_back(where(y));
    for (const std::int32_t p : n.parameters)
      o.parameters.push_back(trainables_[p].weight);
    int count = 0;
    for (const dims& s : n.statistics) {
      const std::string name = fmt::format("{}/running{}", n.name, ++count);
      o.parameters.push_back(new_storage(name, storage_role::statistic, dtype::f32, s, false));
    }
    for (const dims& s : n.saved_statistics) {
      const std::string name = fmt::format("{}/saved{}", n.name, ++count);
      o.parameters_written.push_back(new_storage(name, storage_role::saved_statistic, dtype::f32, s, false));
      saved_[number].push_back(o.parameters_written.back());
    }
    for (const tape_record::auxiliary& a : n.auxiliaries) {
      const storage_id s = new_storage(n.name + a.suffix, storage_role::auxiliary, a.type, a.shape, true);
      g_.storages[s].window_taps = a.window_taps;
      o.optional_outputs.push_back(s);
    }
    auxiliaries_[number] = o.optional_outputs;
    g_.classes = std::max(g_.classes, n.classes);
    op& made = emit(n.name, op_kind::generic, op_stage::forward);
    o.name = made.name;
    o.kind = op_kind::generic;
    o.label = n.label;
    o.flops = n.flops * static_cast<double>(g_.batch);
    o.workspace_bytes = workspace(n.name, n.workspace);
    made = std::move(o);
    forward_op_[number] = op_id(g_.ops.size()) - 1;
    if (n.recomputable) cheap_.push_back(forward_op_[number]);
  }

  void copy_into_concat(const node& n) {
    const tensor_ref whole = where(n.outputs[0]);
    std::int64_t begin = 0;
    for (const value_number in : n.inputs) {
      const std::int64_t channels = values_[in].shape.back();
      const tensor_ref target = part_of(whole, begin, channels), source = where(in);
      begin += channels;
      if (source == target) continue;
      op& o = emit(n.name + "/copy", op_kind::copy, op_stage::forward);
      o.inputs = {source};
      o.outputs = {target};
    }
  }

  // ---- backward ------------------------------------------------------------------------------------------

  // Another value, whose node is still to come, has its gradient in the same bytes.
  bool shared(const tensor_ref& ref, value_number self) const {
    const auto found = holders_.find(ref.storage);
    return found != holders_.end() &&
           std::any_of(found->second.begin(), found->second.end(),
                       [&](value_number v) { return v != self && overlap(gradient_[v], ref); });
  }

  void hold(value_number v, const tensor_ref& ref) {
    gradient_[v] = ref;
    holders_[ref.storage].push_back(v);
  }

  void release(value_number v) {
    if (!gradient_[v].storage.valid()) return;
    std::erase(holders_[gradient_[v].storage], v);
  }

  // Memory for a gradient of v. The first of a part of a split lies where the whole wants it.
  tensor_ref fresh_gradient(value_number v) {
    if (maker(v).kind != node_kind::split || placed_[v]) return {gradient_storage(v), 0, 0};
    placed_[v] = true;
    return slice_of_whole(v);
  }

  tensor_ref slice_of_whole(value_number v) {
    storage_id& root = split_gradient_[values_[v].node];
    if (!root.valid()) root = gradient_storage(input(maker(v), 0));
    return part_of({root, 0, 0}, member_of_[v].begin, values_[v].shape.back());
  }

  storage_id gradient_storage(value_number v) {
    return new_storage(name_of(v) + ".gradient", storage_role::gradient, dtype::f32, values_[v].shape, true);
  }

  // Adds `part` to the gradient of v; a fresh part belongs to nobody else.
  void contribute(value_number v, const tensor_ref& part, bool fresh) {
    const tensor_ref sum = gradient_[v];
    if (!sum.storage.valid()) return hold(v, part);
    const std::string name = name_of(v) + "/accumulate";
    if (!shared(sum, v)) {
      op& o = emit(name, op_kind::accumulate, op_stage::backward);
      o.inputs = {sum, part};
      o.outputs = {sum};
      return;
    }
    release(v);
    const tensor_ref target = fresh ? part : fresh_gradient(v);
    op& o = emit(name, fresh ? op_kind::accumulate : op_kind::add, op_stage::backward);
    o.inputs = {part, sum};
    o.outputs = {target};
    hold(v, target);
  }

  void backward(std::size_t number) {
    const node& n = nodes_[number];
    const bool reached = std::any_of(n.outputs.begin(), n.outputs.end(),
                                     [&](value_number y) { return gradient_[y].storage.valid(); });
    if (n.kind == node_kind::input || (!reached && !n.loss)) return;
    if (n.kind == node_kind::split) return join_parts(number);
    for (std::size_t s = 0; s < n.backward.size(); ++s) {
      run_step(number, n.backward[s], s + 1 == n.backward.size() && n.kind == node_kind::op);
    }
    if (n.kind == node_kind::op) return;
    const tensor_ref dy = gradient_[n.outputs[0]];
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < n.inputs.size(); ++i) {
      const value_number x = input(n, i);
      const std::int64_t channels = values_[n.inputs[i]].shape.back();
      if (trains_[x]) contribute(x, n.kind == node_kind::sum ? dy : part_of(dy, begin, channels), false);
      begin += channels;
    }
    release(n.outputs[0]);
  }

  void run_step(std::size_t number, const backward_step& s, bool last) {
    const node& n = nodes_[number];
    op o;
    for (const value_number y : n.outputs) {
      if (gradient_[y].storage.valid()) o.inputs.push_back(gradient_[y]);
    }
    for (const std::size_t i : s.id_inputs)
      o.inputs.push_back(input_ref(n, i));
    if (last) {
      for (const value_number y : n.outputs)
        release(y);
    }
    std::vector<std::pair<value_number, tensor_ref>> parts;
    for (const std::size_t t : s.targets) {
      const value_number x = input(n, t);
      if (!trains_[x]) continue;
      parts.emplace_back(x, target_of(n, s, t, x, last));
      o.outputs.push_back(parts.back().second);
    }
    if (o.outputs.empty() && s.trained.empty()) return;
    for (const std::size_t p : s.parameters)
      o.parameters.push_back(trainables_[n.parameters[p]].weight);
    o.parameters.insert(o.parameters.end(), saved_[number].begin(), saved_[number].end());
    for (const std::size_t p : s.trained) {
      trainable& t = trainables_[n.parameters[p]];
      t.trained = true;
      o.parameters_written.push_back(t.gradient);
    }
    for (const tape_record::form& f : s.forms)
      o.alternatives.push_back(alternative(number, f));
    o.forward_op = forward_op_[number];
    o.workspace_bytes = workspace(n.name, s.workspace);
    o.flops = s.flops * static_cast<double>(g_.batch);
    op& made =
        emit(n.name + (s.suffix.empty() ? "/backward" : s.suffix), op_kind::generic, op_stage::backward);
    o.name = made.name;
    o.kind = op_kind::generic;
    o.stage = op_stage::backward;
    o.label = s.label;
    made = std::move(o);
    for (const auto& [x, ref] : parts)
      contribute(x, ref, true);
  }

  tensor_ref target_of(const node& n, const backward_step& s, std::size_t target, value_number x, bool last) {
    if (last && static_cast<std::int32_t>(target) == s.in_place_target) {
      const value_number y = n.outputs[s.in_place_output];
      const tensor_ref dy = gradient_[y];
      const bool same_shape = values_[x].shape == values_[y].shape;
      if (dy.storage.valid() && same_shape && maker(x).kind != node_kind::split && !shared(dy, y)) return dy;
    }
    return fresh_gradient(x);
  }

  stash_alternative alternative(std::size_t number, const tape_record::form& f) {
    const node& n = nodes_[number];
    stash_alternative a;
    a.form = f.name;
    a.flops = f.flops * static_cast<double>(g_.batch);
    for (const tape_record::read& r : f.reads) {
      const tensor_ref ref = r.from == operand::input    ? where(n.inputs[r.which])
                             : r.from == operand::output ? where(n.outputs[r.which])
                                                         : tensor_ref{auxiliaries_[number][r.which], 0, 0};
      a.reads.push_back({ref.storage, r.what, ref});
    }
    return a;
  }

  // The gradients of the parts are the gradient of the whole, once each lies in its channels.
  void join_parts(std::size_t number) {
    const node& n = nodes_[number];
    const value_number x = input(n, 0);
    for (const value_number y : n.outputs) {
      const tensor_ref have = gradient_[y];
      if (!have.storage.valid()) {
        throw error(errc::invalid_argument,
                    fmt::format("tape {}: '{}': expected parts that all have a reader with a gradient",
                                g_.name, n.name));
      }
      const tensor_ref target = slice_of_whole(y);
      if (!(have == target)) {
        op& o = emit(n.name + "/copy_gradient", op_kind::copy, op_stage::backward);
        o.inputs = {have};
        o.outputs = {target};
      }
      release(y);
    }
    if (trains_[x]) contribute(x, {split_gradient_[number], 0, 0}, true);
  }

  void update() {
    op& o = emit("sgd_update", op_kind::sgd_update, op_stage::update);
    for (std::size_t p = 0; p < trainables_.size(); ++p) {
      const trainable& t = trainables_[p];
      if (!t.trained) {
        throw error(errc::invalid_argument,
                    fmt::format("tape {}: '{}': expected a weight that leads to a loss", g_.name,
                                parameters_[p].name));
      }
      o.parameters.insert(o.parameters.end(), {t.weight, t.gradient, t.momentum});
      o.parameters_written.insert(o.parameters_written.end(), {t.weight, t.momentum});
    }
  }

  const id_vector<tape_record::node_number, node>& nodes_;
  const id_vector<value_number, tape_record::value>& values_;
  const id_vector<tape_record::parameter_number, tape_record::parameter>& parameters_;
  tape_options options_;
  graph g_;
  std::int64_t total_bytes_ = 0;
  id_vector<std::int32_t, int> readers_;
  id_vector<std::int32_t, std::int32_t> only_reader_;
  id_vector<std::int32_t, bool> gradient_reads_;  // some alternative of a backward op reads it
  id_vector<std::int32_t, value_number> written_over_,
      overwritten_by_;  // in place: the value before, the value after
  id_vector<std::int32_t, membership> member_of_;
  id_vector<std::int32_t, tensor_ref> where_;
  id_vector<std::int32_t, double> density_;
  id_vector<std::int32_t, bool> trains_;  // a gradient is needed
  id_vector<std::int32_t, bool>
      placed_;  // a part of a split: its slice of the gradient of the whole is taken
  id_vector<std::int32_t, tensor_ref> gradient_;
  std::vector<op_id> forward_op_, cheap_;  ///< cheap_: those that may run again
  std::vector<std::vector<storage_id>> auxiliaries_, saved_;
  id_vector<std::int32_t, storage_id> split_gradient_;
  id_vector<std::int32_t, trainable> trainables_;
  std::unordered_map<storage_id, std::vector<value_number>> holders_;
  std::unordered_set<std::string> names_, op_names_;
};

}  // namespace

planner::graph tape::finish(std::int64_t batch, const tape_options& options) const {
  expect(batch >= 1, "batch", fmt::format("at least 1, got {}", batch));
  expect(options.relu_density >= 0.0 && options.relu_density <= 1.0, "relu_density", "0 to 1");
  expect(std::any_of(nodes_.begin(), nodes_.end(), [](const node& n) { return n.loss; }), "finish", "a loss");
  return builder(name_, nodes_, values_, parameters_, batch, options).run();
}

}  // namespace stash::models
