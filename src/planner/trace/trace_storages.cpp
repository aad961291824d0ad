// SPDX-License-Identifier: Apache-2.0
#include "planner/trace/trace_storages.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace stash::planner::traces {
namespace {

/// Operators that write the whole of their first argument and do not look at it.
bool overwrites(std::string_view name) {
  for (const std::string_view known :
       {"aten::fill_", "aten::zero_", "aten::copy_", "aten::normal_", "aten::uniform_", "aten::bernoulli_",
        "aten::random_", "aten::exponential_"}) {
    if (name == known) return true;
  }
  return false;
}

class recorder {
 public:
  recorder(const trace& t, std::int32_t device) : t_(t), device_(device) {}

  recorded_iteration run(const trace_iteration& iteration) {
    for (const trace_event& e : events_of(t_, iteration, device_)) {
      const trace_node& n = t_.nodes[e.node];
      switch (e.kind) {
        case event_kind::allocation:
          allocate(n, e);
          break;
        case event_kind::view:
          view(n);
          break;
        case event_kind::work:
          work(n, e);
          break;
      }
    }
    return std::move(result_);
  }

 private:
  template <class Visit>
  void for_each(const std::vector<trace_value>& values, Visit visit) const {
    for (std::size_t i = 0; i < values.size(); ++i) {
      for (const trace_tensor& x : values[i].tensors) {
        if (counts(x, device_)) visit(x, i);
      }
    }
  }

  life& at(std::int32_t id) { return result_.lives[static_cast<std::size_t>(id)]; }

  std::int32_t begin_life(const trace_tensor& x, bool outside, std::int64_t node) {
    const auto id = static_cast<std::int32_t>(result_.lives.size());
    result_.lives.push_back({x.storage, x.extent(), x.element_bytes, x.type, outside, node});
    now_[x.storage] = id;
    return id;
  }

  /// The life that a tensor belongs to. What was there before the iteration is as large as what is seen of
  /// it.
  std::int32_t life_of(const trace_tensor& x) {
    const auto found = now_.find(x.storage);
    if (found == now_.end()) return begin_life(x, true, 0);
    life& l = at(found->second);
    if (l.outside && broadcasts_.find(x.id) == broadcasts_.end()) l.bytes = std::max(l.bytes, x.extent());
    return found->second;
  }

  /// A result that is no argument: the life begins here, unless an allocation inside the call began it.
  std::int32_t result_life(const trace_tensor& x, const trace_node& n, const trace_event& e) {
    const auto found = now_.find(x.storage);
    if (found != now_.end()) {
      life& l = at(found->second);
      const bool inside_call = !l.outside && l.created_in >= n.id && l.created_in <= e.moment;
      if (inside_call) {
        l.bytes = std::max(l.bytes, x.extent());
        return found->second;
      }
    }
    broadcasts_.erase(x.id);
    return begin_life(x, false, n.id);
  }

  std::unordered_set<std::int64_t> argument_storages(const trace_node& n) const {
    std::unordered_set<std::int64_t> storages;
    for_each(n.inputs, [&](const trace_tensor& x, std::size_t) { storages.insert(x.storage); });
    return storages;
  }

  void allocate(const trace_node& n, const trace_event& e) {
    const auto arguments = argument_storages(n);
    for_each(n.outputs, [&](const trace_tensor& x, std::size_t) {
      // resize_ within the memory that is there already
      if (arguments.contains(x.storage)) {
        life& l = at(life_of(x));
        l.bytes = std::max(l.bytes, x.extent());
      } else {
        result_life(x, n, e);
      }
    });
  }

  /// A view with more elements than what it was made from repeats some: its extent says nothing.
  void view(const trace_node& n) {
    for_each(n.outputs, [&](const trace_tensor& x, std::size_t) {
      bool known = false;
      bool repeats = false;
      std::int64_t most = 0;
      for_each(n.inputs, [&](const trace_tensor& y, std::size_t) {
        if (y.storage != x.storage) return;
        known = true;
        repeats = repeats || broadcasts_.contains(y.id);
        most = std::max(most, y.elements * y.element_bytes);
        life_of(y);
      });
      if (!known) return;
      if (repeats || x.elements * x.element_bytes > most) {
        broadcasts_.insert(x.id);
      } else {
        broadcasts_.erase(x.id);
      }
      life_of(x);
    });
  }

  void work(const trace_node& n, const trace_event& e) {
    recorded_op o;
    o.event = e;
    const std::vector<parameter> parameters = parameters_of(n.schema);
    const std::vector<std::size_t> mutated = mutated_inputs(n, parameters);
    const bool unsigned_kernel = n.backend == "triton" && parameters.empty();
    for_each(n.inputs, [&](const trace_tensor& x, std::size_t i) {
      life_access a;
      a.life = life_of(x);
      a.argument = static_cast<std::int32_t>(i);
      a.bytes = x.elements * x.element_bytes;
      a.write = std::find(mutated.begin(), mutated.end(), i) != mutated.end();
      const bool output = i < parameters.size() &&
                          (parameters[i].name.starts_with("out") || parameters[i].name == "grad_input");
      a.read = !a.write || !(output || (i == 0 && overwrites(n.name)));
      // Without a signature: memory that nobody has written is there to be written.
      if (unsigned_kernel && !at(a.life).outside && !written_.contains(a.life)) {
        a.write = true;
        a.read = false;
      }
      o.accesses.push_back(a);
    });
    const auto arguments = argument_storages(n);
    for_each(n.outputs, [&](const trace_tensor& x, std::size_t) {
      if (arguments.contains(x.storage)) return;
      o.accesses.push_back(
          {result_life(x, n, e), result_argument, x.elements * x.element_bytes, false, true});
    });
    for (const life_access& a : o.accesses) {
      if (a.write) written_.insert(a.life);
    }
    if (!o.accesses.empty()) result_.ops.push_back(std::move(o));
  }

  const trace& t_;
  std::int32_t device_;
  recorded_iteration result_;
  std::unordered_map<std::int64_t, std::int32_t> now_;  // storage id -> life
  std::unordered_set<std::int64_t> broadcasts_;         // tensor ids
  std::unordered_set<std::int32_t> written_;
};

/// How an iteration uses one life.
struct life_use {
  bool any = false;
  bool first_is_write = false;  // of all of what the argument names, without looking at it
  op_stage first_write = op_stage::update;
  bool written = false;
  bool read_in[3] = {};
  bool written_in[3] = {};
  bool weight = false;   // an argument that is called so
  bool running = false;  // the same
  bool loss = false;     // read inside the loss
  bool starts = false;   // read forward by an operator that reads no feature map
};

bool is_weight_name(std::string_view name) {
  return name == "weight" || name == "bias" || name == "gamma" || name == "beta" || name == "weights";
}

storage_role role_of_outside(const life_use& u) {
  const auto read = [&](op_stage s) { return u.read_in[static_cast<std::size_t>(s)]; };
  const auto written = [&](op_stage s) { return u.written_in[static_cast<std::size_t>(s)]; };
  const bool computes = read(op_stage::forward) || read(op_stage::backward);
  if (u.running) return storage_role::statistic;
  if (u.first_is_write && written(op_stage::forward)) return storage_role::feature_map;
  if (written(op_stage::backward))
    return read(op_stage::forward) ? storage_role::weight : storage_role::weight_gradient;
  if (written(op_stage::forward)) return storage_role::statistic;
  if (written(op_stage::update)) return computes ? storage_role::weight : storage_role::momentum;
  if (u.weight) return storage_role::weight;
  if (u.loss) return storage_role::label;
  if (u.starts) return storage_role::image;
  return computes ? storage_role::statistic : storage_role::momentum;
}

}  // namespace

recorded_iteration record_of(const trace& t, const trace_iteration& iteration, std::int32_t device) {
  return recorder(t, device).run(iteration);
}

std::vector<life_role> roles_of(const trace& t, const recorded_iteration& r) {
  std::vector<life_use> uses(r.lives.size());
  for (const recorded_op& o : r.ops) {
    const std::vector<parameter> parameters = parameters_of(t.nodes[o.event.node].schema);
    const auto stage = static_cast<std::size_t>(o.event.stage);
    const bool follows = std::any_of(o.accesses.begin(), o.accesses.end(), [&](const life_access& a) {
      return a.read && uses[static_cast<std::size_t>(a.life)].written;
    });
    for (const life_access& a : o.accesses) {
      life_use& u = uses[static_cast<std::size_t>(a.life)];
      if (!u.any) u.first_is_write = a.write && !a.read;
      u.any = true;
      if (a.read) u.read_in[stage] = true;
      if (a.argument >= 0 && static_cast<std::size_t>(a.argument) < parameters.size()) {
        const std::string_view name = parameters[static_cast<std::size_t>(a.argument)].name;
        u.weight = u.weight || is_weight_name(name);
        u.running = u.running || name.starts_with("running_");
      }
      u.loss = u.loss || (a.read && o.event.loss);
      u.starts = u.starts || (a.read && !follows && o.event.stage == op_stage::forward);
    }
    for (const life_access& a : o.accesses) {
      if (!a.write) continue;
      life_use& u = uses[static_cast<std::size_t>(a.life)];
      if (!u.written) u.first_write = o.event.stage;
      u.written = true;
      u.written_in[stage] = true;
    }
  }
  std::vector<life_role> roles(r.lives.size());
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const life_use& u = uses[i];
    if (!u.any) continue;
    life_role& role = roles[i];
    role.used = true;
    if (r.lives[i].outside) {
      role.role = role_of_outside(u);
    } else if (!u.written) {
      // Allocated and read: whoever reads it first is made its writer.
      role.used = u.read_in[0] || u.read_in[1];
      role.role = u.read_in[0] ? storage_role::feature_map : storage_role::gradient;
    } else if (u.first_write == op_stage::forward) {
      role.role = storage_role::feature_map;
    } else if (u.first_write == op_stage::backward) {
      role.role = u.read_in[2] || u.written_in[2] ? storage_role::weight_gradient : storage_role::gradient;
    } else {
      role.used = false;
    }
  }
  return roles;
}

}  // namespace stash::planner::traces
