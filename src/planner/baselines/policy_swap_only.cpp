// SPDX-License-Identifier: Apache-2.0
// Meng et al. (2017), and vDNN (2016): dense maps move, the longest unused ones first, until memory suffices.

#include <algorithm>
#include <tuple>

#include "planner/baselines/policies.hpp"
#include "planner/time/simulator.hpp"

namespace stash::planner {

ruled swap_only_rule(const rule_input& in, problem& ticks) {
  struct candidate {
    std::size_t item;
    std::uint32_t bit;
    std::int32_t distance, released;
  };
  std::vector<candidate> candidates;
  for (std::size_t i = 0; i < ticks.items.size(); ++i) {
    const item& x = ticks.items[i];
    const item_option& all = x.options[static_cast<std::size_t>(option_that_moves(x, movable(x)))];
    for (const transfer& t : all.transfers)
      candidates.push_back({i, 1U << t.form, t.needed - t.released, t.released});
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const candidate& a, const candidate& b) {
    return std::tuple(-a.distance, -a.released) < std::tuple(-b.distance, -b.released);
  });
  const auto first = [&](std::size_t n) {
    std::vector<std::uint32_t> to_move(ticks.items.size(), 0);
    for (std::size_t k = 0; k < n; ++k)
      to_move[candidates[k].item] |= candidates[k].bit;
    option_choice c;
    for (std::size_t i = 0; i < ticks.items.size(); ++i)
      c.push_back(option_that_moves(ticks.items[i], to_move[i]));
    return c;
  };
  std::size_t number = candidates.size();
  if (!in.swap_all) {
    step_problem steps = compress(ticks);
    steps.limit = in.limit;
    simulator sim(steps);
    // Every map that leaves lowers what is held: the smallest number is found by bisection. Where transfers
    // get into each other's way, a few more. Those for which the host lacks capacity are too many.
    std::size_t low = 0, high = number;
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      const simulated s = sim.run(first(middle));
      if (s.feasible || s.host_is_full) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    number = high;
  }
  return {first(number), true, {}};
}

}  // namespace stash::planner
