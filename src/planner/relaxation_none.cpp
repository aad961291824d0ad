// Built without a solver for linear programs.

#include "planner/relaxation.hpp"

namespace stash::planner {

bool can_relax() noexcept {
  return false;
}

relaxed relax(const step_problem&) {
  return {};
}

}  // namespace stash::planner
