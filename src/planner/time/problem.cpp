// SPDX-License-Identifier: Apache-2.0
#include "planner/time/problem.hpp"

#include <algorithm>

namespace stash::planner {
namespace {

// Where steps begin, and before which ticks something may be waited for; one more entry than ticks.
struct cuts {
  explicit cuts(std::size_t ticks) : begins(ticks + 1, 0), waits(ticks + 1, 0) {
    begins[0] = begins[ticks] = 1;
  }
  void cut(tick_number t) {
    if (t >= 0 && position_of(t) < begins.size() - 1) begins[t] = 1;
  }

  id_vector<tick_number, char> begins, waits;
};

// Where an option begins or ends to hold, work or move.
void cut_by_option(const item_option& o, cuts& c) {
  for (const held_bytes& h : o.held) {
    c.cut(h.first);
    c.cut(h.last + 1);
  }
  for (const added_work& w : o.work) {
    c.cut(w.tick);
    c.cut(w.tick + 1);
  }
  for (const transfer& t : o.transfers) {
    for (const tick_number tick : {t.released + 1, t.needed}) {
      c.cut(tick);
      c.waits[tick] = 1;
    }
    c.cut(t.earliest);
  }
}

// A step whose largest need lies inside ends there, so that the bound sees it at the end of a step.
void cut_after_largest(const id_vector<tick_number, std::int64_t>& fixed, cuts& c) {
  for (std::size_t first = 0; first < fixed.size();) {
    std::size_t last = first;
    while (!c.begins[last + 1])
      ++last;
    const auto begin = fixed.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end = fixed.begin() + static_cast<std::ptrdiff_t>(last) + 1;
    const auto largest = std::max_element(begin, end);
    if (*largest > *begin && *largest > *(end - 1)) c.begins[fixed.id_of(largest) + 1] = 1;
    first = last + 1;
  }
}

// The steps without their items, and the step of every tick.
id_vector<tick_number, joined_step> join(const problem& p, const cuts& c, step_problem& s) {
  id_vector<tick_number, joined_step> step_of(p.tick_ms.size());
  for (const tick_number t : step_of.ids()) {
    if (c.waits[t]) {
      s.ms.push_back(0.0);
      for (auto* list : {&s.fixed, &s.fixed_first, &s.fixed_last})
        list->push_back(0);
      s.first_tick.push_back(t);
    }
    if (c.begins[t]) {
      s.ms.push_back(0.0);
      for (auto* list : {&s.fixed, &s.fixed_first, &s.fixed_last})
        list->push_back(p.fixed_bytes[t]);
      s.first_tick.push_back(t);
    }
    s.ms.back() += p.tick_ms[t];
    s.fixed.back() = std::max(s.fixed.back(), p.fixed_bytes[t]);
    s.fixed_last.back() = p.fixed_bytes[t];
    step_of[t] = s.ms.last_id();
  }
  s.first_tick.push_back(step_of.next_id());
  return step_of;
}

void tell_in_steps(item_option& o, const id_vector<tick_number, joined_step>& step_of) {
  for (held_bytes& h : o.held) {
    h.first = step_of[h.first];
    h.last = step_of[h.last];
  }
  for (added_work& w : o.work)
    w.tick = step_of[w.tick];
  for (transfer& t : o.transfers) {
    t.released = step_of[t.released];
    t.needed = step_of[t.needed];
    t.earliest = step_of[t.earliest];
  }
}

}  // namespace

step_problem compress(const problem& p) {
  cuts c(p.tick_ms.size());
  for (const item& i : p.items) {
    if (i.small) continue;
    for (const item_option& o : i.options)
      cut_by_option(o, c);
  }
  cut_after_largest(p.fixed_bytes, c);
  step_problem s;
  s.link = p.link;
  s.limit = p.limit;
  const id_vector<tick_number, joined_step> step_of = join(p, c, s);
  s.items = p.items;
  for (item& i : s.items) {
    for (item_option& o : i.options)
      tell_in_steps(o, step_of);
  }
  return s;
}

}  // namespace stash::planner
