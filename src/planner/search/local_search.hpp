// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// From a choice that fits to a faster one nearby: a few items change at random, what then lacks memory is
/// mended by the cheapest changes, and the simulator judges. (Large neighbourhood search by ruin and
/// recreate: Schrimpf et al., J. Comput. Phys. 159, 2000; accepted below a threshold: Dueck and Scheuer,
/// ibid. 90, 1990.)

#include <cstdint>
#include <functional>

#include "planner/search/dice.hpp"
#include "planner/search/option_facts.hpp"
#include "planner/time/simulator.hpp"

namespace stash::planner {

struct local_search_limits {
  std::int32_t evaluations = 0;  ///< simulations
  double enough_ms = 0.0;        ///< a choice that takes no more ends the search
  std::function<bool()> stop;    ///< asked now and then; true: it ends
};

struct local_search_result {
  option_choice choice;
  double ms = 0.0;
  std::int32_t evaluations = 0;
};

/// `start` is feasible and takes `start_ms`; `costs` belong to `p`. Never slower than the start.
/// Deterministic for the same dice.
local_search_result search_nearby(const step_problem& p, simulator& sim, const option_costs& costs,
                                  const option_choice& start, double start_ms, dice& random,
                                  const local_search_limits& limits);

}  // namespace stash::planner
