// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Policies that have a rule (docs/policies.md), with a layout: placed, and given less until it fits.

#include <cstdint>

#include "planner/baselines/policies.hpp"
#include "planner/budget_problem.hpp"

namespace stash::planner {

/// What a rule makes of a limit on maps, with its layout.
struct placed_rule {
  ruled decision;
  timed_choice placed;
};

/// The plan of the policy's rule within a budget of so many bytes in all. Makes b.steps anew. Throws
/// error(infeasible_budget) if the rule has none.
placed_rule follow_rule(budget_problem& b, std::int64_t budget);

}  // namespace stash::planner
