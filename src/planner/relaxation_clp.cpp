// Linear programs solved by COIN-OR CLP.

#include <ClpSimplex.hpp>
#include <ClpSolve.hpp>
#include <CoinPackedMatrix.hpp>

#include "planner/relaxation.hpp"
#include "planner/relaxation_program.hpp"

namespace stash::planner {

bool can_relax() noexcept {
  return true;
}

lp_solution solve(const linear_program& program) {
  ClpSimplex model;
  model.setLogLevel(0);
  const CoinPackedMatrix matrix(false, program.row_of.data(), program.column_of.data(), program.value.data(),
                                static_cast<CoinBigIndex>(program.value.size()));
  const auto rows = static_cast<int>(program.row_lower.size()),
             columns = static_cast<int>(program.column_lower.size());
  CoinPackedMatrix sized(matrix);
  sized.setDimensions(rows, columns);
  model.loadProblem(sized, program.column_lower.data(), program.column_upper.data(), program.objective.data(),
                    program.row_lower.data(), program.row_upper.data());
  ClpSolve how;
  how.setSolveType(ClpSolve::usePrimal);
  how.setPresolveType(ClpSolve::presolveOff);
  model.initialSolve(how);
  lp_solution s;
  s.infeasible = model.isProvenPrimalInfeasible();
  s.optimal = model.isProvenOptimal();
  if (!s.optimal) return s;
  s.objective = model.getObjValue();
  s.columns.assign(model.getColSolution(), model.getColSolution() + columns);
  s.row_prices.assign(model.getRowPrice(), model.getRowPrice() + rows);
  return s;
}

}  // namespace stash::planner
