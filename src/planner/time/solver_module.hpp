// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The solver of linear programs as a module that the shared library opens when it first plans for speed.

#include <functional>

#include "planner/time/relaxation_program.hpp"

extern "C" {
/// planner::solve() into `solution`. May throw what that throws: module and library are of one build.
using stash_solve_linear_program_t = void(const stash::planner::linear_program& program,
                                          const std::function<bool()>& stop,
                                          stash::planner::lp_solution& solution);
}

namespace stash::planner {

inline constexpr char solver_function[] = "stash_solve_linear_program";

}  // namespace stash::planner
