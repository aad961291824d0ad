// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Small graphs on a machine whose link and memory matter at their size, as problems for the search.

#include "planner/graph/random_network.hpp"
#include "planner/memory/schedule.hpp"
#include "planner/search/fastest.hpp"
#include "planner/time/items.hpp"

namespace stash::planner::testing {

/// Tensors of a few KB take as long here as tensors of many MB on a real machine.
inline machine small_machine(std::uint64_t seed = 0) {
  machine m;
  m.name = "small";
  m.flops_per_second = 2e9;
  m.memory_bytes_per_second = 1e9;
  m.op_latency_seconds = 1e-6;
  m.out_bytes_per_second = 1e8 + 1e7 * static_cast<double>(seed % 7);
  m.in_bytes_per_second = 1.2e8;
  m.link_latency_seconds = seed % 3 == 0 ? 0.0 : 2e-6;
  m.contention = seed % 2 == 0 ? 1.0 : 0.75;
  return m;
}

inline graph random_graph(std::uint64_t seed, std::int64_t batch = 4) {
  return make_training_graph(random_network(seed).make(), batch);
}

struct small_problem {
  graph g;
  option_set set;
  problem ticks;
  step_problem steps;
};

inline small_problem make_small_problem(graph g, policy chosen, bool swap, const machine& m) {
  small_problem s;
  s.g = std::move(g);
  plan_options o;
  o.chosen_policy = chosen;
  s.set = make_options(s.g, o, 0.0);
  item_rules rules;
  rules.swap = swap;
  rules.smallest_swap = 64;
  rules.overflow_share = 0.0;
  s.ticks = make_problem(s.g, s.set, m, rules, std::int64_t{1} << 50);
  s.steps = compress(s.ticks);
  return s;
}

/// Choices, alternatives and no copies, as the schedule wants them.
inline selection selection_of(const small_problem& s, const option_choice& choice) {
  selection x;
  x.choices.resize(s.g.storages.size());
  x.alternative.assign(s.g.ops.size(), -1);
  for (const op_id i : s.g.ops.ids()) {
    if (s.g.ops[i].alternatives.size() == 1) x.alternative[i] = 0;
  }
  for (std::size_t i = 0; i < choice.size(); ++i) {
    const component& c = s.set.components[i];
    const item_option& o = s.steps.items[i].options[static_cast<std::size_t>(choice[i])];
    const configuration& f = c.configurations[static_cast<std::size_t>(o.configuration)];
    for (std::size_t k = 0; k < c.storages.size(); ++k)
      x.choices[c.storages[k]] = f.choices[k];
    for (std::size_t k = 0; k < c.ops.size(); ++k)
      x.alternative[c.ops[k]] = f.alternatives[k];
  }
  return x;
}

}  // namespace stash::planner::testing
