// SPDX-License-Identifier: Apache-2.0
// All ways to keep storages that depend on each other.

#include <algorithm>
#include <numeric>

#include "planner/verify/validator_bound.hpp"

namespace stash::planner::validation {
namespace {

// visit(number per list) for all combinations, as long as it returns true; none if a list is empty.
template <class List, class Visit>
void each_combination(const id_vector<std::int32_t, List>& lists, Visit visit) {
  if (std::any_of(lists.begin(), lists.end(), [](const List& list) { return list.empty(); })) return;
  std::vector<std::size_t> number(lists.size(), 0);
  for (std::size_t i = 0; visit(number);) {
    for (i = 0; i < number.size() && ++number[i] == lists[i].size(); ++i)
      number[i] = 0;
    if (i == number.size()) return;
  }
}

template <class List>
double combinations(const id_vector<std::int32_t, List>& lists) {
  double product = 1.0;
  for (const List& list : lists)
    product *= static_cast<double>(list.size());
  return product;
}

}  // namespace

source_forms sources_in(const configuration& x, const legal_form& f) {
  source_forms all;
  for (const std::int32_t from : f.sources)
    all.add(*x.form[from]);
  return all;
}

group_choices::group_choices(const graph& g, const legal_set& legal, const choice_group& c, bool casts_only,
                             double margin) {
  const auto local = [&](storage_id s) {
    const auto found = std::lower_bound(c.storages.begin(), c.storages.end(), s);
    return found != c.storages.end() && *found == s ? static_cast<local_storage>(found - c.storages.begin())
                                                    : -1;
  };
  for (const storage_id s : c.storages) {
    forms.push_back(legal.forms(s, casts_only, margin));
    std::vector<std::int32_t>& all = sources.emplace_back();
    for (legal_form& f : forms.back()) {
      if (f.again == nullptr) continue;
      for (const storage_id from : f.again->sources)
        f.sources.push_back(local(from));
      all.insert(all.end(), f.sources.begin(), f.sources.end());
    }
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
  }
  for (const op_id t : c.ops) {
    ops_.push_back(&g.ops[t]);
    alternatives.push_back(legal.alternatives(t));
    id_vector<std::int32_t, std::vector<local_read>>& lists = reads.emplace_back();
    for (const stash_alternative& a : ops_.back()->alternatives) {
      std::vector<local_read>& list = lists.emplace_back();
      for (const stash_read& r : a.reads) {
        if (const std::int32_t k = local(r.storage); k >= 0) list.push_back({k, &r});
      }
    }
  }
}

bool group_choices::may_serve(std::size_t i, const stash_read& r, const legal_form& f) const {
  return legal_set::read(*ops_[i], r, f, {}) != access::illegal;
}

// Forms that serve all reads, if what they are computed from is there. What nobody reads is not kept.
id_vector<std::int32_t, std::vector<const legal_form*>> group_choices::possible(
    const std::vector<std::int32_t>& picked) const {
  id_vector<std::int32_t, char> needed(forms.size(), 0);
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    for (const local_read& r : reads[i][picked[i]]) {
      needed[r.storage] = 1;
      for (const std::int32_t from : sources[r.storage])
        needed[from] = 1;
    }
  }
  id_vector<std::int32_t, std::vector<const legal_form*>> lists(forms.size());
  for (std::size_t k = 0; k < forms.size(); ++k) {
    for (std::size_t f = 0; f < (needed[k] != 0 ? forms[k].size() : 1); ++f)
      lists[k].push_back(&forms[k][f]);
  }
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    for (const local_read& r : reads[i][picked[i]]) {
      std::erase_if(lists[r.storage], [&](const legal_form* f) { return !may_serve(i, *r.read, *f); });
    }
  }
  return lists;
}

template <class Visit>
void group_choices::each_pick(Visit visit) const {
  std::vector<std::int32_t> picked(alternatives.size());
  each_combination(alternatives, [&](const std::vector<std::size_t>& number) {
    for (std::size_t i = 0; i < picked.size(); ++i)
      picked[i] = alternatives[i][number[i]];
    return visit(picked);
  });
}

double group_choices::configurations(double most) const {
  const double picks = combinations(alternatives);
  if (picks > most) return picks;
  double sum = 0.0;
  each_pick([&](const std::vector<std::int32_t>& picked) {
    sum += combinations(possible(picked));
    return sum <= most;
  });
  return sum;
}

void group_choices::each(const std::function<void(const configuration&)>& visit) const {
  configuration x;
  each_pick([&](const std::vector<std::int32_t>& picked) {
    x.picked = picked;
    x.form.resize(forms.size());
    const id_vector<std::int32_t, std::vector<const legal_form*>> lists = possible(picked);
    each_combination(lists, [&](const std::vector<std::size_t>& number) {
      for (std::size_t k = 0; k < number.size(); ++k)
        x.form[k] = lists[k][number[k]];
      visit(x);
      return true;
    });
    return true;
  });
}

std::vector<choice_group> groups_of(const graph& g, const legal_set& legal) {
  id_vector<storage_id, storage_id> parent(g.storages.size());
  std::iota(parent.begin(), parent.end(), storage_id(0));
  const auto root = [&](storage_id s) {
    while (parent[s] != s)
      s = parent[s] = parent[parent[s]];
    return s;
  };
  const auto join = [&](storage_id a, storage_id b) { parent[root(a)] = root(b); };
  for (const op& o : g.ops) {
    if (o.alternatives.size() < 2) continue;
    storage_id any = no_id;
    for (const stash_alternative& a : o.alternatives) {
      for (const stash_read& r : a.reads) {
        if (any.valid()) join(any, r.storage);
        any = r.storage;
      }
    }
  }
  for (const storage_id s : g.storages.ids()) {
    const storage_id id = s;
    if (!legal.stashed(id)) continue;
    for (const recipe_id number : legal.recipes(id)) {
      for (const storage_id from : g.recipes[number].sources)
        join(id, from);
    }
  }
  id_vector<storage_id, std::int32_t> number(g.storages.size(), -1);
  std::vector<choice_group> list;
  for (const storage_id s : g.storages.ids()) {
    const storage_id id = s;
    if (!legal.stashed(id)) continue;
    std::int32_t& n = number[root(id)];
    if (n < 0) {
      n = static_cast<std::int32_t>(list.size());
      list.emplace_back();
    }
    list[position_of(n)].storages.push_back(id);
  }
  for (const op_id i : g.ops.ids()) {
    const op_id t = i;
    for (const stash_alternative& a : g.ops[i].alternatives) {
      for (const stash_read& r : a.reads) {
        std::vector<op_id>& ops = list[position_of(number[root(r.storage)])].ops;
        if (ops.empty() || ops.back() != t) ops.push_back(t);
      }
    }
  }
  return list;
}

}  // namespace stash::planner::validation
