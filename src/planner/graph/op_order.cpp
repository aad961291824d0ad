// SPDX-License-Identifier: Apache-2.0
#include "planner/graph/op_order.hpp"

#include <algorithm>

#include "planner/graph/recipes.hpp"
#include "stash/error.hpp"

namespace stash::planner {
namespace {

// Channels of a storage that an op reads or writes.
struct access {
  op_id op;
  tensor_ref part;
  bool writes = false;
};

bool overlap(const tensor_ref& a, const tensor_ref& b) {
  if (a.whole() || b.whole()) return true;
  return a.channel_begin < b.channel_begin + b.channels && b.channel_begin < a.channel_begin + a.channels;
}

bool same_part(const tensor_ref& a, const tensor_ref& b) {
  return a.channel_begin == b.channel_begin && a.channels == b.channels;
}

class dependency_finder {
 public:
  explicit dependency_finder(const graph& g) : g_(g), open_(g.storages.size()) {
    found_.before.resize(g.ops.size());
    found_.after.resize(g.ops.size());
    find_again_computed();
  }

  op_dependencies run() {
    for (const op_id o : g_.ops.ids())
      visit(o);
    for (const op_id o : g_.ops.ids()) {
      std::vector<op_id>& list = found_.before[o];
      std::sort(list.begin(), list.end());
      list.erase(std::unique(list.begin(), list.end()), list.end());
      for (const op_id first : list)
        found_.after[first].push_back(o);
    }
    return std::move(found_);
  }

 private:
  // Whoever reads a map that may be computed again reads what its recipes read: sources and parameters.
  void find_again_computed() {
    again_.resize(g_.storages.size());
    for (const recipe& r : g_.recipes) {
      std::vector<storage_id>& list = again_[r.target];
      list.insert(list.end(), r.sources.begin(), r.sources.end());
      for (const op_id o : r.ops) {
        const std::vector<storage_id>& used = g_.op_at(o).parameters;
        list.insert(list.end(), used.begin(), used.end());
      }
    }
    for (std::vector<storage_id>& list : again_) {
      std::sort(list.begin(), list.end());
      list.erase(std::unique(list.begin(), list.end()), list.end());
    }
  }

  void visit(op_id id) {
    const op& o = g_.ops[id];
    for (const tensor_ref& t : o.inputs)
      add({id, t, false});
    for (const storage_id s : o.parameters)
      add({id, {s, 0, 0}, false});
    seen_.assign(g_.storages.size(), false);
    for (const stash_alternative& a : o.alternatives)
      for (const stash_read& r : a.reads)
        read_stash(id, r.slice);
    for (const tensor_ref& t : o.outputs)
      add({id, t, true});
    for (const auto* list : {&o.optional_outputs, &o.parameters_written})
      for (const storage_id s : *list)
        add({id, {s, 0, 0}, true});
  }

  void read_stash(op_id id, const tensor_ref& part) {
    add({id, part, false});
    std::vector<storage_id> queue = again_[part.storage];
    while (!queue.empty()) {
      const storage_id s = queue.back();
      queue.pop_back();
      if (seen_[s]) continue;
      seen_[s] = true;
      add({id, {s, 0, 0}, false});
      queue.insert(queue.end(), again_[s].begin(), again_[s].end());
    }
  }

  // open_: accesses that a later one may depend on directly.
  void add(const access& now) {
    std::vector<access>& open = open_[now.part.storage];
    for (const access& old : open)
      if (old.op != now.op && (old.writes || now.writes) && overlap(old.part, now.part))
        found_.before[now.op].push_back(old.op);
    if (now.writes) {
      // What came before waits for this write, and so does whoever waits for it.
      std::erase_if(open, [&](const access& old) {
        return old.op != now.op && (now.part.whole() || same_part(old.part, now.part));
      });
    }
    const bool known = std::any_of(open.begin(), open.end(), [&](const access& old) {
      return old.op == now.op && old.writes == now.writes && same_part(old.part, now.part);
    });
    if (!known) open.push_back(now);
  }

  const graph& g_;
  id_vector<storage_id, std::vector<access>> open_;
  id_vector<storage_id, std::vector<storage_id>> again_;
  id_vector<storage_id, bool> seen_;
  op_dependencies found_;
};

}  // namespace

op_dependencies dependencies_of(const graph& g) {
  return dependency_finder(g).run();
}

bool is_legal_order(const graph& g, const op_dependencies& dependencies,
                    const id_vector<op_id, op_id>& order) {
  if (order.size() != g.ops.size()) return false;
  id_vector<op_id, op_id> position(g.ops.size(), no_id);
  op_stage stage = op_stage::forward;
  for (const op_id i : order.ids()) {
    const op_id o = order[i];
    if (!g.ops.contains(o) || position[o].valid() || g.ops[o].stage < stage) return false;
    stage = g.ops[o].stage;
    position[o] = i;
    for (const op_id first : dependencies.before[o])
      if (!position[first].valid()) return false;
  }
  return true;
}

graph reordered(const graph& g, const id_vector<op_id, op_id>& order) {
  if (!is_legal_order(g, dependencies_of(g), order)) {
    throw error(
        errc::invalid_argument,
        "reordered: order: expected every op once, each after the ops that it depends on, got another "
        "order");
  }
  graph out = g;
  id_vector<op_id, op_id> new_id(g.ops.size(), no_id);
  for (const op_id i : order.ids())
    new_id[order[i]] = i;
  for (const op_id i : order.ids()) {
    out.ops[i] = g.ops[order[i]];
    if (out.ops[i].forward_op.valid()) out.ops[i].forward_op = new_id[out.ops[i].forward_op];
  }
  for (recipe& r : out.recipes) {
    for (op_id& o : r.ops)
      o = new_id[o];
    std::sort(r.ops.begin(), r.ops.end());
  }
  if (!out.recipes.empty()) {
    const recipe_facts facts(out);
    for (recipe& r : out.recipes)
      r.sources = facts.inputs_of(r.ops).sources;
  }
  return out;
}

}  // namespace stash::planner
