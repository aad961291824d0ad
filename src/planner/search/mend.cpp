// SPDX-License-Identifier: Apache-2.0
#include "planner/search/mend.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace stash::planner {
namespace {

// Changes that cost nothing differ in what they gain.
constexpr double least_cost_ms = 1e-6;

}  // namespace

std::optional<option_change> cheapest_mend(const step_problem& p, const option_costs& costs,
                                           const option_choice& choice, const simulated& s,
                                           const mend_rule& rule) {
  const auto taken_by = s.host_is_full ? held_or_moved_at : held_at;
  double best = std::numeric_limits<double>::infinity();
  std::optional<option_change> found;
  for (std::size_t i = 0; i < p.items.size(); ++i) {
    const id_vector<std::int32_t, item_option>& options = p.items[i].options;
    const item_option& chosen = options[choice[i]];
    const std::int64_t now = taken_by(chosen, s.missing_step);
    if (now == 0) continue;
    const std::int64_t in_all = rule.spare_host ? held_or_moved_at(chosen, s.missing_step) : 0;
    for (std::size_t o = 0; o < options.size(); ++o) {
      const std::int64_t gain = now - taken_by(options[o], s.missing_step);
      if (gain <= 0) continue;
      if (rule.spare_host && held_or_moved_at(options[o], s.missing_step) > in_all) continue;
      const double loss = std::max(0.0, costs[i][o] - costs[i][position_of(choice[i])]);
      double rate = (loss + least_cost_ms) / static_cast<double>(std::min(gain, s.missing));
      if (rule.noise != 0.0) rate *= std::exp(rule.noise * (rule.random->share() - 0.5));
      if (rate >= best) continue;
      best = rate;
      found = {i, static_cast<std::int32_t>(o)};
    }
  }
  return found;
}

}  // namespace stash::planner
