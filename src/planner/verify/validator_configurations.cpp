// SPDX-License-Identifier: Apache-2.0
// All ways to keep storages that depend on each other.

#include <algorithm>
#include <numeric>

#include "planner/verify/validator_bound.hpp"

namespace stash::planner::validation {
namespace {

std::size_t index(std::int32_t i) {
  return static_cast<std::size_t>(i);
}

// visit(number per list) for all combinations, as long as it returns true; none if a list is empty.
template <class List, class Visit>
void each_combination(const std::vector<List>& lists, Visit visit) {
  if (std::any_of(lists.begin(), lists.end(), [](const List& list) { return list.empty(); })) return;
  std::vector<std::size_t> number(lists.size(), 0);
  for (std::size_t i = 0; visit(number);) {
    for (i = 0; i < number.size() && ++number[i] == lists[i].size(); ++i)
      number[i] = 0;
    if (i == number.size()) return;
  }
}

template <class List>
double combinations(const std::vector<List>& lists) {
  double product = 1.0;
  for (const List& list : lists)
    product *= static_cast<double>(list.size());
  return product;
}

}  // namespace

source_forms sources_in(const configuration& x, const legal_form& f) {
  source_forms all;
  for (const std::int32_t from : f.sources)
    all.add(*x.form[index(from)]);
  return all;
}

group_choices::group_choices(const graph& g, const legal_set& legal, const choice_group& c, bool pinned_forms,
                             double margin) {
  const auto local = [&](storage_id s) {
    const auto found = std::lower_bound(c.storages.begin(), c.storages.end(), s);
    return found != c.storages.end() && *found == s ? static_cast<std::int32_t>(found - c.storages.begin())
                                                    : -1;
  };
  for (const storage_id s : c.storages) {
    forms.push_back(legal.forms(s, pinned_forms, margin));
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
    ops_.push_back(&at(g.ops, t));
    alternatives.push_back(legal.alternatives(t));
    std::vector<std::vector<local_read>>& lists = reads.emplace_back();
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
std::vector<std::vector<const legal_form*>> group_choices::possible(
    const std::vector<std::int32_t>& picked) const {
  std::vector<char> needed(forms.size(), 0);
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    for (const local_read& r : reads[i][index(picked[i])]) {
      needed[index(r.storage)] = 1;
      for (const std::int32_t from : sources[index(r.storage)])
        needed[index(from)] = 1;
    }
  }
  std::vector<std::vector<const legal_form*>> lists(forms.size());
  for (std::size_t k = 0; k < forms.size(); ++k) {
    for (std::size_t f = 0; f < (needed[k] != 0 ? forms[k].size() : 1); ++f)
      lists[k].push_back(&forms[k][f]);
  }
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    for (const local_read& r : reads[i][index(picked[i])]) {
      std::erase_if(lists[index(r.storage)], [&](const legal_form* f) { return !may_serve(i, *r.read, *f); });
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
    const std::vector<std::vector<const legal_form*>> lists = possible(picked);
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
  std::vector<storage_id> parent(g.storages.size());
  std::iota(parent.begin(), parent.end(), 0);
  const auto root = [&](storage_id s) {
    while (parent[index(s)] != s)
      s = parent[index(s)] = parent[index(parent[index(s)])];
    return s;
  };
  const auto join = [&](storage_id a, storage_id b) { parent[index(root(a))] = root(b); };
  for (const op& o : g.ops) {
    if (o.alternatives.size() < 2) continue;
    storage_id any = -1;
    for (const stash_alternative& a : o.alternatives) {
      for (const stash_read& r : a.reads) {
        if (any >= 0) join(any, r.storage);
        any = r.storage;
      }
    }
  }
  for (std::size_t s = 0; s < g.storages.size(); ++s) {
    const auto id = static_cast<storage_id>(s);
    if (!legal.stashed(id)) continue;
    for (const std::int32_t number : legal.recipes(id)) {
      for (const storage_id from : at(g.recipes, number).sources)
        join(id, from);
    }
  }
  std::vector<std::int32_t> number(g.storages.size(), -1);
  std::vector<choice_group> list;
  for (std::size_t s = 0; s < g.storages.size(); ++s) {
    const auto id = static_cast<storage_id>(s);
    if (!legal.stashed(id)) continue;
    std::int32_t& n = number[index(root(id))];
    if (n < 0) {
      n = static_cast<std::int32_t>(list.size());
      list.emplace_back();
    }
    list[index(n)].storages.push_back(id);
  }
  for (std::size_t i = 0; i < g.ops.size(); ++i) {
    const auto t = static_cast<op_id>(i);
    for (const stash_alternative& a : g.ops[i].alternatives) {
      for (const stash_read& r : a.reads) {
        std::vector<op_id>& ops = list[index(number[index(root(r.storage))])].ops;
        if (ops.empty() || ops.back() != t) ops.push_back(t);
      }
    }
  }
  return list;
}

}  // namespace stash::planner::validation
