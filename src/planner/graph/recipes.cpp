// SPDX-License-Identifier: Apache-2.0
#include "planner/graph/recipes.hpp"

#include <algorithm>
#include <deque>
#include <set>

namespace stash::planner {
namespace {

// Recipes of one target, from its last op backwards.
class chain_search {
 public:
  chain_search(const graph& g, const recipe_facts& facts, const id_vector<op_id, bool>& cheap,
               const id_vector<op_id, bool>& sums)
      : g_(g), facts_(facts), cheap_(cheap), sums_(sums) {}

  std::vector<recipe> recipes_for(storage_id target) const {
    constexpr std::size_t most_lists = 64;
    const op_id last = facts_.last_writer(target);
    std::vector<recipe> found;
    if (!usable(last, target)) return found;
    std::deque<std::vector<op_id>> waiting{{last}};
    std::set<std::vector<op_id>> seen{{last}};
    for (; !waiting.empty() && found.size() < most_recipes; waiting.pop_front()) {
      const std::vector<op_id>& ops = waiting.front();
      const recipe_facts::inputs in = facts_.inputs_of(ops);
      if (!in.overwritten.valid() && may_stay(ops, in.sources, target))
        found.push_back({target, in.sources, ops});
      if (ops.size() == most_recipe_ops) continue;
      for (const op_id before : makers_of_inputs(ops)) {
        if (!usable(before, target)) continue;
        std::vector<op_id> longer = ops;
        longer.insert(std::lower_bound(longer.begin(), longer.end(), before), before);
        if (seen.size() < most_lists && seen.insert(longer).second) waiting.push_back(std::move(longer));
      }
    }
    return found;
  }

 private:
  bool usable(op_id o, storage_id target) const {
    return o.valid() && cheap_[o] && facts_.can_run_again(o) && !facts_.is_computed_with_others(o, target);
  }

  // Whether the sources are kept anyway. A sum of two sources would tie the choices of all layers together
  // along the residual connections.
  bool may_stay(const std::vector<op_id>& ops, const std::vector<storage_id>& sources,
                storage_id target) const {
    const bool has_sum = std::any_of(ops.begin(), ops.end(), [this](op_id o) { return sums_[o]; });
    if (has_sum && sources.size() > 1) return false;
    return std::all_of(sources.begin(), sources.end(),
                       [&](storage_id s) { return s != target && facts_.is_read(s); });
  }

  // Of what the ops read and do not make.
  std::vector<op_id> makers_of_inputs(const std::vector<op_id>& ops) const {
    std::vector<op_id> makers;
    for (const op_id o : ops) {
      for (const tensor_ref& t : g_.op_at(o).inputs) {
        const op_id maker = facts_.writer_before(t.storage, o);
        if (!std::binary_search(ops.begin(), ops.end(), maker)) makers.push_back(maker);
      }
    }
    return makers;
  }

  const graph& g_;
  const recipe_facts& facts_;
  const id_vector<op_id, bool>&cheap_, &sums_;
};

}  // namespace

recipe_facts::recipe_facts(const graph& g)
    : g_(g),
      writers_(g.storages.size()),
      last_reader_(g.storages.size(), no_id),
      first_update_(g.storages.size(), no_id) {
  for (const op_id i : g.ops.ids()) {
    const op& o = g.ops[i];
    const op_id id = i;
    if (o.stage == op_stage::forward) {
      for (const tensor_ref& r : o.outputs)
        if (writers_[r.storage].empty() || writers_[r.storage].back() != id)
          writers_[r.storage].push_back(id);
      continue;
    }
    for (const stash_alternative& a : o.alternatives) {
      for (const stash_read& r : a.reads)
        last_reader_[r.storage] = id;
    }
    for (const storage_id s : o.parameters_written)
      if (!first_update_[s].valid()) first_update_[s] = id;
  }
}

recipe_facts::inputs recipe_facts::inputs_of(std::span<const op_id> ops) const {
  inputs found;
  for (std::size_t k = 0; k < ops.size(); ++k) {
    for (const tensor_ref& t : g_.op_at(ops[k]).inputs) {
      const op_id maker = writer_before(t.storage, ops[k]);
      if (std::binary_search(ops.begin(), ops.begin() + static_cast<std::ptrdiff_t>(k), maker)) continue;
      if (maker != last_writer(t.storage) && !found.overwritten.valid()) found.overwritten = t.storage;
      if (std::find(found.sources.begin(), found.sources.end(), t.storage) == found.sources.end())
        found.sources.push_back(t.storage);
    }
  }
  return found;
}

bool recipe_facts::can_run_again(op_id o) const {
  const op& x = g_.op_at(o);
  const auto whole_map = [this](const tensor_ref& t) {
    return t.whole() && g_.at(t.storage).role == storage_role::feature_map;
  };
  const bool kind_fits =
      x.kind == op_kind::generic || (x.kind == op_kind::batch_norm && x.attributes.fused_relu);
  return kind_fits && x.stage == op_stage::forward && !x.inputs.empty() && !x.outputs.empty() &&
         std::all_of(x.outputs.begin(), x.outputs.end(), whole_map) &&
         std::all_of(x.inputs.begin(), x.inputs.end(), whole_map);
}

op_id recipe_facts::last_writer(storage_id s) const {
  const std::vector<op_id>& all = writers_[s];
  return all.empty() ? op_id() : all.back();
}

op_id recipe_facts::writer_before(storage_id s, op_id reader) const {
  const std::vector<op_id>& all = writers_[s];
  const auto next = std::lower_bound(all.begin(), all.end(), reader);
  return next == all.begin() ? op_id() : next[-1];
}

bool recipe_facts::is_computed_with_others(op_id o, storage_id target) const {
  const std::vector<storage_id>& used = g_.op_at(o).parameters;
  return std::any_of(used.begin(), used.end(), [&](storage_id s) {
    return first_update_[s].valid() && first_update_[s] < last_reader_[target];
  });
}

void add_recipes(graph& g, std::span<const op_id> cheap, std::span<const op_id> sums) {
  id_vector<op_id, bool> is_cheap(g.ops.size(), false), is_sum(g.ops.size(), false);
  for (const op_id o : cheap)
    is_cheap[o] = true;
  for (const op_id o : sums)
    is_cheap[o] = is_sum[o] = true;
  const recipe_facts facts(g);
  const chain_search chains(g, facts, is_cheap, is_sum);
  for (const storage_id s : g.storages.ids()) {
    if (!facts.is_read(s)) continue;
    for (recipe& r : chains.recipes_for(s))
      g.recipes.push_back(std::move(r));
  }
}

}  // namespace stash::planner
