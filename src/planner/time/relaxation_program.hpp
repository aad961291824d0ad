// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The relaxation (planner/time/relaxation.hpp) as rows and columns, and the interface to whatever solves
/// them. One of relaxation_clp.cpp, relaxation_highs.cpp and relaxation_none.cpp is compiled in.

#include <functional>
#include <limits>
#include <vector>

namespace stash::planner {

/// No bound, for CLP and HiGHS alike.
inline constexpr double lp_infinity = std::numeric_limits<double>::max();

/// Minimise objective * x with x between the columns' bounds and the rows' sums between the rows' bounds. The
/// entries are in any order; several of one row and column add up.
struct linear_program {
  std::vector<double> column_lower, column_upper, objective;
  std::vector<double> row_lower, row_upper;
  std::vector<int> row_of, column_of;  ///< per entry
  std::vector<double> value;
};

struct lp_solution {
  bool optimal = false;
  bool infeasible = false;  ///< proven
  double objective = 0.0;
  std::vector<double> columns;
  /// Per row what a unit of its bound is worth: objective - prices * matrix are the reduced costs.
  std::vector<double> row_prices;
};

/// By the simplex method, without a limit in time. Deterministic for one version of the solver. If it gives
/// up, if there is no solver, or once `stop` (which may be empty) has said true: neither optimal nor
/// infeasible. Signal handlers stay those of the program.
lp_solution solve(const linear_program& program, const std::function<bool()>& stop);

}  // namespace stash::planner
