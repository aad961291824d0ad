// SPDX-License-Identifier: Apache-2.0
#include "planner/search/local_search.hpp"

#include <utility>
#include <vector>

#include "planner/search/mend.hpp"

namespace stash::planner {
namespace {

constexpr std::size_t most_changes = 3;
// So many options of an item are drawn, and the one that costs least is taken: most options are no good.
constexpr int draws = 4;
constexpr int most_mends = 6;
constexpr double mend_noise = 3.0;
// At first, a choice may be slower than the current one by this share.
constexpr double first_threshold = 0.004;
// Trials without a new best one, after which the search goes on from the best.
constexpr int patience = 500;

class nearby_search {
 public:
  nearby_search(const step_problem& p, simulator& sim, const option_costs& costs, dice& random,
                const local_search_limits& limits)
      : p_(p), sim_(sim), costs_(costs), random_(random), limits_(limits) {}

  local_search_result run(const option_choice& start, double start_ms) {
    best_ = {start, start_ms, 0};
    for (std::size_t i = 0; i < p_.items.size(); ++i) {
      if (p_.items[i].options.size() > 1) open_.push_back(i);
    }
    if (open_.empty()) return best_;
    option_choice current = start, trial;
    double current_ms = start_ms;
    int since_best = 0;
    for (int n = 0; best_.evaluations < limits_.evaluations && best_.ms > limits_.enough_ms; ++n) {
      if (n % 64 == 0 && limits_.stop && limits_.stop()) break;
      trial = current;
      const simulated s = try_changes(trial, current_ms * (1.0 + threshold()));
      ++since_best;
      if (s.feasible) {
        std::swap(current, trial);
        current_ms = s.ms;
        if (s.ms < best_.ms) {
          best_.choice = current;
          best_.ms = s.ms;
          since_best = 0;
        }
      }
      if (since_best <= patience) continue;
      current = best_.choice;
      current_ms = best_.ms;
      since_best = 0;
    }
    return best_;
  }

 private:
  double threshold() {
    const double left = 1.0 - static_cast<double>(best_.evaluations) / limits_.evaluations;
    return first_threshold * left * left * random_.share();
  }

  simulated evaluate(const option_choice& c, double give_up_ms) {
    ++best_.evaluations;
    return sim_.run(c, give_up_ms);
  }

  std::int32_t random_option(const std::vector<double>& costs) {
    std::size_t least = random_.below(costs.size());
    for (int n = 1; n < draws; ++n) {
      const std::size_t other = random_.below(costs.size());
      if (costs[other] < costs[least]) least = other;
    }
    return static_cast<std::int32_t>(least);
  }

  simulated try_changes(option_choice& trial, double give_up_ms) {
    for (std::size_t k = 1 + random_.below(most_changes); k > 0; --k) {
      const std::size_t i = open_[random_.below(open_.size())];
      trial[i] = random_option(costs_[i]);
    }
    simulated s = evaluate(trial, give_up_ms);
    // A run that was given up as too slow lacks no memory.
    for (int k = 0; k < most_mends && !s.feasible && s.missing > 0; ++k) {
      const auto change = cheapest_mend(p_, costs_, trial, s, {.noise = mend_noise, .random = &random_});
      if (!change) break;
      trial[change->item] = change->option;
      s = evaluate(trial, give_up_ms);
    }
    return s;
  }

  const step_problem& p_;
  simulator& sim_;
  const option_costs& costs_;
  dice& random_;
  const local_search_limits& limits_;
  std::vector<std::size_t> open_;  ///< items with a choice
  local_search_result best_;
};

}  // namespace

local_search_result search_nearby(const step_problem& p, simulator& sim, const option_costs& costs,
                                  const option_choice& start, double start_ms, dice& random,
                                  const local_search_limits& limits) {
  return nearby_search(p, sim, costs, random, limits).run(start, start_ms);
}

}  // namespace stash::planner
