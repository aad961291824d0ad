// SPDX-License-Identifier: Apache-2.0
#include "planner/time/solver_module.hpp"

extern "C" __attribute__((visibility("default"))) stash_solve_linear_program_t stash_solve_linear_program;

void stash_solve_linear_program(const stash::planner::linear_program& program,
                                const std::function<bool()>& stop, stash::planner::lp_solution& solution) {
  solution = stash::planner::solve(program, stop);
}
