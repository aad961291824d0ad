// SPDX-License-Identifier: Apache-2.0
#include "planner/time/problem.hpp"

#include <algorithm>

namespace stash::planner {

step_problem compress(const problem& p) {
  const std::size_t ticks = p.tick_ms.size();
  // Whether a step begins at a tick.
  std::vector<char> begins(ticks + 1, 0);
  begins[0] = begins[ticks] = 1;
  std::vector<char> waits(ticks + 1, 0);
  const auto cut = [&](std::int32_t tick) {
    if (tick >= 0 && static_cast<std::size_t>(tick) < ticks) begins[static_cast<std::size_t>(tick)] = 1;
  };
  for (const item& i : p.items) {
    if (i.small) continue;
    for (const item_option& o : i.options) {
      for (const held_bytes& h : o.held) {
        cut(h.first);
        cut(h.last + 1);
      }
      for (const added_work& w : o.work) {
        cut(w.tick);
        cut(w.tick + 1);
      }
      for (const transfer& t : o.transfers) {
        for (const std::int32_t tick : {t.released + 1, t.needed}) {
          cut(tick);
          waits[static_cast<std::size_t>(tick)] = 1;
        }
        cut(t.earliest);
      }
    }
  }
  // A step whose largest need lies inside ends there, so that the bound sees it at the end of a step.
  for (std::size_t first = 0; first < ticks;) {
    std::size_t last = first;
    while (!begins[last + 1])
      ++last;
    const auto begin = p.fixed_bytes.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end = p.fixed_bytes.begin() + static_cast<std::ptrdiff_t>(last) + 1;
    const auto largest = std::max_element(begin, end);
    const std::size_t next = last + 1;
    if (*largest > *begin && *largest > *(end - 1))
      begins[static_cast<std::size_t>(largest - p.fixed_bytes.begin()) + 1] = 1;
    first = next;
  }
  step_problem s;
  s.link = p.link;
  s.limit = p.limit;
  std::vector<std::int32_t> step_of(ticks);
  for (std::size_t t = 0; t < ticks; ++t) {
    if (waits[t]) {
      s.ms.push_back(0.0);
      for (auto* list : {&s.fixed, &s.fixed_first, &s.fixed_last})
        list->push_back(0);
      s.first_tick.push_back(static_cast<std::int32_t>(t));
    }
    if (begins[t]) {
      s.ms.push_back(0.0);
      s.fixed.push_back(p.fixed_bytes[t]);
      s.fixed_first.push_back(p.fixed_bytes[t]);
      s.fixed_last.push_back(p.fixed_bytes[t]);
      s.first_tick.push_back(static_cast<std::int32_t>(t));
    }
    s.ms.back() += p.tick_ms[t];
    s.fixed.back() = std::max(s.fixed.back(), p.fixed_bytes[t]);
    s.fixed_last.back() = p.fixed_bytes[t];
    step_of[t] = static_cast<std::int32_t>(s.ms.size()) - 1;
  }
  s.first_tick.push_back(static_cast<std::int32_t>(ticks));
  const auto step = [&](std::int32_t tick) { return step_of[static_cast<std::size_t>(tick)]; };
  s.items = p.items;
  for (item& i : s.items) {
    for (item_option& o : i.options) {
      for (held_bytes& h : o.held) {
        h.first = step(h.first);
        h.last = step(h.last);
      }
      for (added_work& w : o.work)
        w.tick = step(w.tick);
      for (transfer& t : o.transfers) {
        t.released = step(t.released);
        t.needed = step(t.needed);
        t.earliest = step(t.earliest);
      }
    }
  }
  return s;
}

}  // namespace stash::planner
