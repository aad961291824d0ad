// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "planner/verify/validator_internal.hpp"

namespace stash::planner::validation {
namespace {

struct use {
  op_id planned;  // number in the graph that was planned
  op_id now;
  tensor_ref part;
  bool writes = false;
};

bool meet(const tensor_ref& a, const tensor_ref& b) {
  return a.whole() || b.whole() ||
         (a.channel_begin < b.channel_begin + b.channels && b.channel_begin < a.channel_begin + a.channels);
}

// Everything that any plan may have an op touch, by storage.
class uses_by_storage {
 public:
  explicit uses_by_storage(const plan& p) : p_(p), uses_(p.network.storages.size()) {
    for (const op_id i : p.network.ops.ids())
      visit(i);
  }
  const id_vector<storage_id, std::vector<use>>& get() const { return uses_; }

 private:
  void add(op_id i, const tensor_ref& part, bool writes) {
    uses_[part.storage].push_back({p_.planned_op[i], i, part, writes});
  }

  void visit(op_id i) {
    const op& o = p_.network.ops[i];
    for (const tensor_ref& t : o.inputs)
      add(i, t, false);
    for (const tensor_ref& t : o.outputs)
      add(i, t, true);
    for (const storage_id s : o.parameters)
      add(i, {s, 0, 0}, false);
    for (const auto* list : {&o.optional_outputs, &o.parameters_written})
      for (const storage_id s : *list)
        add(i, {s, 0, 0}, true);
    std::set<storage_id> again;
    for (const stash_alternative& a : o.alternatives) {
      for (const stash_read& r : a.reads) {
        add(i, r.slice, false);
        read_again(r.storage, again);
      }
    }
    for (const storage_id s : again)
      add(i, {s, 0, 0}, false);
  }

  // What is read to compute `target` again.
  void read_again(storage_id target, std::set<storage_id>& again) const {
    for (const recipe& r : p_.network.recipes) {
      if (r.target != target) continue;
      for (const op_id o : r.ops)
        for (const storage_id s : p_.network.ops[o].parameters)
          again.insert(s);
      for (const storage_id s : r.sources)
        if (again.insert(s).second) read_again(s, again);
    }
  }

  const plan& p_;
  id_vector<storage_id, std::vector<use>> uses_;
};

}  // namespace

void check_planned_order(const plan& p, finding_list& found) {
  if (p.planned_op.empty()) return;
  std::vector<op_id> all = p.planned_op.list();
  std::sort(all.begin(), all.end());
  bool each_once = all.size() == p.network.ops.size();
  for (std::size_t k = 0; each_once && k < all.size(); ++k)
    each_once = all[k] == op_id(k);
  if (!each_once) {
    found.add(plan_fault::bad_order, "planned_op: expected each of {} ops once", p.network.ops.size());
    return;
  }
  const uses_by_storage touched(p);
  for (const storage_id s : p.network.storages.ids()) {
    std::vector<use> list = touched.get()[s];  // in the order of the plan
    const bool written = std::any_of(list.begin(), list.end(), [](const use& u) { return u.writes; });
    for (std::size_t k = 1; written && k < list.size(); ++k) {
      for (std::size_t j = 0; j < k; ++j) {
        const use &first = list[j], &then = list[k];
        if (first.planned <= then.planned || !(first.writes || then.writes) || !meet(first.part, then.part))
          continue;
        found.add(plan_fault::bad_order,
                  "op '{}' runs before '{}', which comes first in the planned graph and shares '{}'",
                  p.network.ops[first.now].name, p.network.ops[then.now].name, p.network.storages[s].name);
      }
    }
  }
}

}  // namespace stash::planner::validation
