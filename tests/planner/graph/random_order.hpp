// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Orders of ops that a graph allows, drawn at random.

#include <cstdint>
#include <random>
#include <vector>

#include "planner/graph/op_order.hpp"

namespace stash::planner::testing {

inline id_vector<op_id, op_id> random_order(const graph& g, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const op_dependencies found = dependencies_of(g);
  id_vector<op_id, std::size_t> waiting;
  for (const op_id o : g.ops.ids())
    waiting.push_back(found.before[o].size());
  id_vector<op_id, op_id> order;
  for (const op_stage stage : {op_stage::forward, op_stage::backward, op_stage::update}) {
    std::vector<op_id> ready;
    for (const op_id o : g.ops.ids())
      if (g.ops[o].stage == stage && waiting[o] == 0) ready.push_back(o);
    while (!ready.empty()) {
      std::swap(ready[random() % ready.size()], ready.back());
      const op_id o = ready.back();
      ready.pop_back();
      order.push_back(o);
      for (const op_id next : found.after[o])
        if (--waiting[next] == 0 && g.ops[next].stage == stage) ready.push_back(next);
    }
  }
  return order;
}

}  // namespace stash::planner::testing
