// SPDX-License-Identifier: Apache-2.0
#include "planner/memory/step_tasks.hpp"

#include <algorithm>

#include "planner/graph/op_order.hpp"

namespace stash::planner {
namespace {

struct buffer_use {
  step_number task = 0;
  bool writes = false;
};

void make_unique(std::vector<step_number>& list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

class task_maker {
 public:
  explicit task_maker(const plan& p) : p_(p), uses_(p.buffers.size()) {
    made_.before.resize(p.steps.size());
    made_.after.resize(p.steps.size());
    made_.touches.resize(p.steps.size());
    made_.stage.assign(p.steps.size(), op_stage::backward);
    for (const buffer& b : p.buffers)
      made_.bytes.push_back(b.bytes);
  }

  step_tasks run() {
    for (const step_number i : p_.steps.ids())
      visit(i);
    add_op_dependencies();
    for (const step_number i : p_.steps.ids()) {
      make_unique(made_.before[i]);
      for (const step_number first : made_.before[i])
        made_.after[first].push_back(i);
    }
    return std::move(made_);
  }

 private:
  bool runs(step_number i) const { return p_.steps[i].kind == step_kind::run; }

  void visit(step_number i) {
    const step& s = p_.steps[i];
    if (s.kind == step_kind::run) made_.stage[i] = p_.network.ops[s.op].stage;
    if (s.kind == step_kind::encode) made_.stage[i] = op_stage::forward;
    for (const auto* list : {&s.inputs, &s.stash})
      for (const buffer_id b : *list)
        use(b, {i, false});
    for (const auto* list : {&s.outputs, &s.optional_outputs})
      for (const buffer_id b : *list)
        use(b, {i, true});
    std::vector<buffer_id>& touched = made_.touches[i];
    std::sort(touched.begin(), touched.end());
    touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
  }

  void use(buffer_id b, const buffer_use& now) {
    if (!b.valid()) return;
    made_.touches[now.task].push_back(b);
    for (const buffer_use& old : uses_[b])
      if (old.task != now.task && (old.writes || now.writes) && !(runs(old.task) && runs(now.task)))
        made_.before[now.task].push_back(old.task);
    uses_[b].push_back(now);
  }

  void add_op_dependencies() {
    const op_dependencies ops = dependencies_of(p_.network);
    id_vector<op_id, step_number> step_of(p_.network.ops.size(), -1);  // updates are no steps
    for (const step_number i : p_.steps.ids())
      if (runs(i)) step_of[p_.steps[i].op] = i;
    for (const step_number i : p_.steps.ids()) {
      if (!runs(i)) continue;
      for (const op_id first : ops.before[p_.steps[i].op])
        if (step_of[first] >= 0) made_.before[i].push_back(step_of[first]);
    }
  }

  const plan& p_;
  id_vector<buffer_id, std::vector<buffer_use>> uses_;
  step_tasks made_;
};

}  // namespace

step_tasks tasks_of(const plan& p) {
  return task_maker(p).run();
}

void measure(const step_tasks& tasks, const task_list& order, live_profile& into) {
  into.first.assign(tasks.bytes.size(), -1);
  into.last.assign(tasks.bytes.size(), -1);
  into.live.assign(order.size() + 1, 0);
  for (std::size_t k = 0; k < order.size(); ++k) {
    const auto place = static_cast<std::int32_t>(k);
    for (const buffer_id b : tasks.touches[order[k]]) {
      if (into.first[b] < 0) into.first[b] = place;
      into.last[b] = place;
    }
  }
  for (const buffer_id b : tasks.bytes.ids()) {
    if (into.first[b] < 0) continue;
    into.live[static_cast<std::size_t>(into.first[b])] += tasks.bytes[b];
    into.live[static_cast<std::size_t>(into.last[b]) + 1] -= tasks.bytes[b];
  }
  for (std::size_t k = 1; k < into.live.size(); ++k)
    into.live[k] += into.live[k - 1];
  into.live.pop_back();
}

}  // namespace stash::planner
