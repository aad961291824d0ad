// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The fastest choice within a limit, with a layout that fits it.

#include <cstdint>
#include <vector>

#include "planner/budget_problem.hpp"

namespace stash::planner {

/// What was found for a capacity. With `certified`, the relaxation's prices and bound.
struct searched {
  timed_choice fitted;
  bool fits = false;         ///< its layout does
  std::int64_t missing = 0;  ///< no choice was found: bytes that the nearest one lacks
  bool certified = false;
  double bound_ms = 0.0;
  dual_prices prices;
};

/// `known`: plans of this problem; those within the capacity are where the search starts.
searched search_within(budget_problem& b, std::int64_t capacity, const std::vector<timed_choice>& known);

/// If the maps fit as they are, no plan needs to be slower than the unplanned step. The search may miss that:
/// where steps are joined it counts more bytes than a layout takes. Those that fit and take less than `ms`,
/// each less than the one before it.
std::vector<timed_choice> unplanned_within(budget_problem& b, std::int64_t capacity, double ms);

}  // namespace stash::planner
