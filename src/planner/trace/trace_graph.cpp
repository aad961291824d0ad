// SPDX-License-Identifier: Apache-2.0
// One iteration of a trace as a training graph: roles decide where an operand goes, and what backward
// operators write gets a storage of its own where the forward stage wrote the same memory.

#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "planner/graph/needs.hpp"
#include "planner/graph/recipes.hpp"
#include "planner/trace/trace.hpp"
#include "planner/trace/trace_needs.hpp"
#include "planner/trace/trace_ops.hpp"
#include "planner/trace/trace_storages.hpp"
#include "stash/error.hpp"

namespace stash::planner {
namespace {

using namespace traces;

bool is_fixed(storage_role role) {
  return role != storage_role::feature_map && role != storage_role::gradient && role != storage_role::image &&
         role != storage_role::label && role != storage_role::auxiliary;
}

dtype dtype_of(const life& l) {
  dtype type = dtype::u8;
  if (l.type == trace_type::f32) type = dtype::f32;
  if (l.type == trace_type::f16) type = dtype::f16;
  if (l.type == trace_type::bf16) type = dtype::bf16;
  if (l.type == trace_type::integer && l.element_bytes == 4) type = dtype::s32;
  const auto size = static_cast<std::int64_t>(size_of(type));
  return size == l.element_bytes && l.bytes % size == 0 ? type : dtype::u8;
}

std::string short_name(const std::string& name) {
  const std::size_t colons = name.rfind("::");
  return colons == std::string::npos ? name : name.substr(colons + 2);
}

/// All accesses of one op to one life.
struct operand {
  std::int32_t life = 0;
  bool read = false;
  bool write = false;
  bool whole = false;                   ///< writes all of it
  std::vector<std::int32_t> arguments;  ///< that read
};

class builder {
 public:
  builder(const trace& t, const trace_options& options)
      : t_(t),
        options_(options),
        iteration_(iteration_of(t, options)),
        recorded_(record_of(t, iteration_, device_of(t, iteration_, options))),
        roles_(roles_of(t, recorded_)),
        forward_(recorded_.lives.size(), no_id),
        backward_(recorded_.lives.size(), no_id),
        last_writer_(recorded_.lives.size(), no_id) {}

  graph run() {
    g_.name = fmt::format("iteration {}", iteration_.number);
    g_.batch = 1;
    for (const op_stage stage : {op_stage::forward, op_stage::backward, op_stage::update}) {
      for (const recorded_op& o : recorded_.ops) {
        if (o.event.stage == stage) add(o);
      }
      if (stage == op_stage::backward && backward_ops_ == 0) {
        throw error(
            errc::bad_format,
            fmt::format("graph_of: iteration {}: expected a backward stage, got none", iteration_.number));
      }
    }
    set_densities();
    add_recipes(g_, cheap_, sums_);
    check_graph(g_);
    return std::move(g_);
  }

 private:
  const life& life_at(std::int32_t id) const { return recorded_.lives[static_cast<std::size_t>(id)]; }
  const life_role& role_at(std::int32_t id) const { return roles_[static_cast<std::size_t>(id)]; }

  std::vector<operand> operands_of(const recorded_op& o) const {
    std::vector<operand> list;
    for (const life_access& a : o.accesses) {
      if (!role_at(a.life).used) continue;
      const auto at = index_.find(a.life);
      std::size_t k = list.size();
      if (at != index_.end() && at->second < list.size() && list[at->second].life == a.life) {
        k = at->second;
      } else {
        list.push_back({a.life, false, false, false, {}});
        index_[a.life] = k;
      }
      operand& x = list[k];
      x.read = x.read || a.read;
      x.write = x.write || a.write;
      x.whole = x.whole || (a.write && a.bytes >= life_at(a.life).bytes);
      if (a.read) x.arguments.push_back(a.argument);
    }
    return list;
  }

  void add(const recorded_op& recorded) {
    const trace_node& n = t_.nodes[recorded.event.node];
    op o;
    o.name = fmt::format("{}.{}", short_name(n.name), n.id);
    o.kind = op_kind::generic;
    o.stage = recorded.event.stage;
    o.label = n.name;
    o.flops = flops_of(n);
    o.seconds = n.seconds;
    stash_alternative stashes{"as_recorded", {}, 0.0};
    for (const operand& x : operands_of(recorded)) {
      if (is_fixed(role_at(x.life).role)) {
        add_parameter(o, x, n);
      } else if (o.stage == op_stage::forward) {
        add_forward(o, x, n);
      } else if (o.stage == op_stage::backward) {
        add_backward(o, x, n, stashes.reads);
      }
    }
    if (o.inputs.empty() && o.outputs.empty() && o.parameters.empty() && o.parameters_written.empty() &&
        stashes.reads.empty()) {
      return;
    }
    const auto id = op_id(g_.ops.size());
    for (const tensor_ref& r : o.outputs)
      writer_of_[r.storage] = recorded.event.node;
    if (o.stage == op_stage::forward && recorded.event.sequence >= 0)
      forward_op_[recorded.event.sequence] = id;
    if (o.stage == op_stage::backward) {
      ++backward_ops_;
      const auto forward = forward_op_.find(recorded.event.sequence);
      if (recorded.event.sequence >= 0 && forward != forward_op_.end()) o.forward_op = forward->second;
    }
    if (o.stage == op_stage::forward && runs_again(n)) cheap_.push_back(id);
    if (o.stage == op_stage::forward && sums_up(n)) sums_.push_back(id);
    if (!stashes.reads.empty()) o.alternatives.push_back(std::move(stashes));
    g_.ops.push_back(std::move(o));
    add_window(n, id);
  }

  void add_parameter(op& o, const operand& x, const trace_node& n) {
    storage_id& s = forward_[static_cast<std::size_t>(x.life)];
    const storage_role role = role_at(x.life).role;
    if (!s.valid()) s = add_storage(x.life, role, n);
    // Gradients of an earlier iteration are no part of this one.
    const bool there = role != storage_role::weight_gradient || written_.contains(s);
    if (x.read && there) o.parameters.push_back(s);
    if (x.write) {
      o.parameters_written.push_back(s);
      written_.insert(s);
    }
  }

  void add_forward(op& o, const operand& x, const trace_node& n) {
    const storage_role role = role_at(x.life).role;
    if (role == storage_role::gradient) return;  // looked at before the backward stage writes it
    storage_id& s = forward_[static_cast<std::size_t>(x.life)];
    if (!s.valid()) s = add_storage(x.life, role, n);
    if (role != storage_role::feature_map) {
      o.inputs.push_back({s});
      return;
    }
    const bool there = written_.contains(s);
    if (there && (x.read || !x.whole)) o.inputs.push_back({s});
    if (x.write || !there) {
      o.outputs.push_back({s});
      written_.insert(s);
      last_writer_[static_cast<std::size_t>(x.life)] = op_id(g_.ops.size());
    }
  }

  void add_backward(op& o, const operand& x, const trace_node& n, std::vector<stash_read>& stashes) {
    const storage_role role = role_at(x.life).role;
    const storage_id kept = role == storage_role::gradient ? storage_id() : forward_storage(x.life, role, n);
    storage_id& s = backward_[static_cast<std::size_t>(x.life)];
    if (!s.valid() && kept.valid()) {
      // What the forward stage left: whoever writes it anew reads it first, unless all of it is replaced.
      const bool there = role != storage_role::feature_map || written_.contains(kept);
      if (there && (x.read || (x.write && !x.whole))) add_reads(stashes, kept, x, n);
      if (!x.write) return;
    }
    if (!s.valid()) s = add_storage(x.life, storage_role::gradient, n);
    const bool there = written_.contains(s);
    if (there && (x.read || !x.whole)) o.inputs.push_back({s});
    if (x.write || !there) {
      o.outputs.push_back({s});
      written_.insert(s);
    }
  }

  storage_id forward_storage(std::int32_t id, storage_role role, const trace_node& n) {
    storage_id& s = forward_[static_cast<std::size_t>(id)];
    if (!s.valid() && role != storage_role::feature_map) s = add_storage(id, role, n);
    return s;
  }

  void add_reads(std::vector<stash_read>& stashes, storage_id s, const operand& x,
                 const trace_node& n) const {
    const life& l = life_at(x.life);
    const auto add = [&](need what) {
      const bool known = std::any_of(stashes.begin(), stashes.end(),
                                     [&](const stash_read& r) { return r.storage == s && r.what == what; });
      if (!known) stashes.push_back({s, what, {s}});
    };
    const bool small = l.bytes < options_.least_feature_map;
    if (x.write) add(need::exact_value);
    for (const std::int32_t argument : x.arguments) {
      const auto what = need_of(n, static_cast<std::size_t>(argument), l.type);
      if (what) add(small && wants_values(*what) ? need::exact_value : *what);
    }
  }

  /// The window index as PyTorch keeps it takes eight bytes per value; a code of the tap in the window does
  /// too.
  void add_window(const trace_node& n, op_id id) {
    const op& o = g_.op_at(id);
    if (o.stage == op_stage::forward) {
      const std::int32_t taps = window_taps_of(n);
      if (taps >= 2 && o.outputs.size() == 2) windows_[o.outputs[1].storage] = {id, taps, no_id};
      return;
    }
    if (n.name != "aten::max_pool2d_with_indices_backward" || o.alternatives.size() != 1) return;
    for (const stash_read& r : o.alternatives[0].reads) {
      const auto at = windows_.find(r.storage);
      if (at == windows_.end()) continue;
      window& w = at->second;
      const op& pool = g_.op_at(w.pool);
      if (!w.index.valid()) {
        storage s;
        s.name = own_name(pool.name + "/window");
        s.role = storage_role::auxiliary;
        s.type = dtype::u8;
        s.shape = {g_.at(pool.outputs[0].storage).elements(1)};
        s.bytes_per_sample = s.shape[0];
        s.window_taps = w.taps;
        w.index = storage_id(g_.storages.size());
        g_.storages.push_back(std::move(s));
        g_.ops[w.pool].optional_outputs.push_back(w.index);
      }
      stash_alternative from_window{"from_window", {}, 0.0};
      for (const stash_read& other : o.alternatives[0].reads)
        from_window.reads.push_back(other.storage == r.storage ? stash_read{w.index, need::window, {w.index}}
                                                               : other);
      g_.ops[id].alternatives.push_back(std::move(from_window));
      return;
    }
  }

  std::string own_name(const std::string& base) {
    std::string name = base;
    for (int k = 2; !names_.insert(name).second; ++k)
      name = fmt::format("{}:{}", base, k);
    return name;
  }

  storage_id add_storage(std::int32_t id, storage_role role, const trace_node& n) {
    const life& l = life_at(id);
    storage s;
    s.role = role;
    s.name = own_name(l.outside ? fmt::format("{}.{}", to_string(role), l.storage)
                                : fmt::format("{}.{}", short_name(n.name), n.id));
    s.type = dtype_of(l);
    s.shape = {l.bytes / static_cast<std::int64_t>(size_of(s.type))};
    (is_fixed(role) ? s.fixed_bytes : s.bytes_per_sample) = l.bytes;
    g_.storages.push_back(std::move(s));
    return storage_id(g_.storages.size() - 1);
  }

  /// A map is as dense as what its last writer leaves.
  void set_densities() {
    for (std::size_t i = 0; i < forward_.size(); ++i) {
      if (!forward_[i].valid() || !last_writer_[i].valid()) continue;
      storage& s = g_.storages[forward_[i]];
      const op& writer = g_.op_at(last_writer_[i]);
      if (writer.outputs.empty() || writer.outputs[0].storage != forward_[i]) continue;
      const auto node = writer_of_.find(forward_[i]);
      if (node == writer_of_.end()) continue;
      s.density = density_of(t_.nodes[node->second], options_.relu_density).value_or(1.0);
    }
  }

  struct window {
    op_id pool;
    std::int32_t taps;
    storage_id index;
  };

  const trace& t_;
  const trace_options& options_;
  const trace_iteration& iteration_;
  recorded_iteration recorded_;
  std::vector<life_role> roles_;
  graph g_;
  std::vector<storage_id> forward_;   // per life: as the forward stage and the update see it
  std::vector<storage_id> backward_;  // per life: as the backward stage writes it
  std::vector<op_id> last_writer_;    // per life, in the forward stage
  std::unordered_set<storage_id> written_;
  std::unordered_set<std::string> names_;
  std::unordered_map<storage_id, std::size_t> writer_of_;  // last node that writes it
  std::unordered_map<std::int64_t, op_id> forward_op_;     // by sequence number
  std::unordered_map<storage_id, window> windows_;
  std::vector<op_id> cheap_, sums_;  // may run again
  std::size_t backward_ops_ = 0;
  mutable std::unordered_map<std::int32_t, std::size_t> index_;
};

}  // namespace

graph graph_of(const trace& t, const trace_options& options) {
  return builder(t, options).run();
}

}  // namespace stash::planner
