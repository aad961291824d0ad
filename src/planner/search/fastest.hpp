// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The search for the fastest choice within a memory limit: relaxation, its prices, rounding and repair, then
/// a local search that asks the simulator. Deterministic: the same problem, limits and solver version give
/// the same choice.

#include <cstdint>
#include <functional>
#include <vector>

#include "planner/time/relaxation.hpp"
#include "planner/time/simulator.hpp"

namespace stash::planner {

struct fastest_limits {
  /// Simulations of the local search; proportionally fewer (at least 200) for problems of more steps than
  /// `full_steps`, so that the time of a search does not grow with the square of the network.
  std::int32_t evaluations = 20000;
  std::int32_t full_steps = 1000;
  std::uint64_t seed = 1;
  bool relax = true;  ///< use the relaxation if there is a solver
  /// Prices of a problem much like this one, instead of a relaxation; null: none.
  const dual_prices* prices = nullptr;
  /// Choices to start from in addition to the search's own, e.g. of a smaller budget.
  std::vector<option_choice> starts;
  /// Asked now and then; true: return the best choice so far.
  std::function<bool()> stop;
};

struct fastest_choice {
  bool found = false;  ///< a choice that fits the limit
  option_choice choice;
  double ms = 0.0;
  /// No choice takes less, as far as the prices prove. Without a solver the sum of durations.
  double bound_ms = 0.0;
  bool relaxed = false;     ///< prices are those of the relaxation
  bool impossible = false;  ///< the relaxation proves that no choice fits
  dual_prices prices;
  std::int64_t missing = 0;  ///< not found: bytes that the nearest choice lacks, and where
  std::int32_t missing_step = -1;
  std::int32_t evaluations = 0;
};

fastest_choice find_fastest(const step_problem& p, const fastest_limits& limits);

/// The simple rule to beat: largest items first to the option that holds least without the host, then,
/// largest first, to the one that holds least with it, until the limit is met.
option_choice greedy_largest_first(const step_problem& p, simulator& sim);

}  // namespace stash::planner
