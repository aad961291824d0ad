// SPDX-License-Identifier: Apache-2.0
// Built without a solver for linear programs.

#include "planner/time/relaxation.hpp"
#include "planner/time/relaxation_program.hpp"

namespace stash::planner {

bool can_relax() noexcept {
  return false;
}

lp_solution solve(const linear_program&, const std::function<bool()>&) {
  return {};
}

}  // namespace stash::planner
