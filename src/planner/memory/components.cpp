// SPDX-License-Identifier: Apache-2.0
#include "planner/memory/components.hpp"

#include <algorithm>
#include <numeric>

namespace stash::planner {
namespace {

// Storages that must be decided together get one representative.
class groups {
 public:
  explicit groups(std::size_t n) : parent_(n) { std::iota(parent_.begin(), parent_.end(), storage_id(0)); }
  storage_id root(storage_id s) {
    while (parent_[s] != s)
      s = parent_[s] = parent_[parent_[s]];
    return s;
  }
  void join(storage_id a, storage_id b) {
    a = root(a);
    b = root(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }

 private:
  id_vector<storage_id, storage_id> parent_;
};

class grouper {
 public:
  explicit grouper(const graph& g) : g_(g), joined_(g.storages.size()), stashed_(g.storages.size(), false) {
    result_.set.fixed_readers.resize(g.storages.size());
    result_.recipes_of.resize(g.storages.size());
  }

  grouped_storages run() {
    for (const op_id i : g_.ops.ids())
      add_reads(i);
    for (const recipe_id i : g_.recipes.ids())
      add_recipe(i);
    make_components();
    return std::move(result_);
  }

 private:
  // Alternatives of one op are chosen between: what they read belongs together.
  void add_reads(op_id i) {
    const op& o = g_.ops[i];
    storage_id first = no_id;
    for (const stash_alternative& a : o.alternatives) {
      for (const stash_read& r : a.reads) {
        stashed_[r.storage] = true;
        if (o.alternatives.size() == 1) {
          result_.set.fixed_readers[r.storage].push_back({i, r.what, r.slice.whole()});
        } else if (!first.valid()) {
          first = r.storage;
        } else {
          joined_.join(first, r.storage);
        }
      }
    }
  }

  // What nobody reads is not kept for a recipe alone.
  void add_recipe(recipe_id i) {
    const recipe& r = g_.recipes[i];
    const bool kept =
        std::all_of(r.sources.begin(), r.sources.end(), [&](storage_id s) { return stashed_[s]; });
    if (!stashed_[r.target] || !kept) return;
    result_.recipes_of[r.target].push_back(i);
    for (const storage_id s : r.sources)
      joined_.join(r.target, s);
  }

  void make_components() {
    id_vector<component_number, component>& components = result_.set.components;
    id_vector<storage_id, component_number> component_of(g_.storages.size(), -1);  // of a root
    for (const storage_id s : g_.storages.ids()) {
      if (!stashed_[s]) continue;
      component_number& number = component_of[joined_.root(s)];
      if (number < 0) number = components.push_back({});
      components[number].storages.push_back(s);
    }
    for (const op_id i : g_.ops.ids()) {
      const alternative_list& alternatives = g_.ops[i].alternatives;
      if (alternatives.size() < 2) continue;
      const auto reading = std::find_if(alternatives.begin(), alternatives.end(),
                                        [](const stash_alternative& a) { return !a.reads.empty(); });
      if (reading == alternatives.end()) continue;
      components[component_of[joined_.root(reading->reads[0].storage)]].ops.push_back(i);
    }
  }

  const graph& g_;
  groups joined_;
  id_vector<storage_id, bool> stashed_;
  grouped_storages result_;
};

}  // namespace

grouped_storages group_storages(const graph& g) {
  return grouper(g).run();
}

}  // namespace stash::planner
