// SPDX-License-Identifier: Apache-2.0
// Linear programs solved by COIN-OR CLP.

#include <ClpEventHandler.hpp>
#include <ClpSimplex.hpp>
#include <ClpSolve.hpp>
#include <CoinPackedMatrix.hpp>
#include <memory>

#include "planner/time/relaxation.hpp"
#include "planner/time/relaxation_program.hpp"

namespace stash::planner {
namespace {

/// Ends the solver once the planner is told to stop. CLP makes copies of it.
class stopper : public ClpEventHandler {
 public:
  stopper(const std::function<bool()>& stop, bool& stopped) : stop_(&stop), stopped_(&stopped) {}

  ClpEventHandler* clone() const override { return new stopper(*this); }

  int event(Event) override {
    constexpr int goes_on = -1, ends = 0;
    // Every iteration has some events, and the question may be a system call.
    constexpr unsigned events_per_question = 16;
    if (!*stopped_ && ++events_ % events_per_question == 0) *stopped_ = (*stop_)();
    return *stopped_ ? ends : goes_on;
  }

 private:
  const std::function<bool()>* stop_;
  bool* stopped_;
  unsigned events_ = 0;
};

struct clp_objects {
  ClpSimplex model;
  CoinPackedMatrix rows, columns;
};

/// Only `objects` may be broken once this has thrown: CLP must not make a matrix of its own of one that is
/// ordered by rows, which it would destroy.
lp_solution run(clp_objects& objects, const linear_program& program, const std::function<bool()>& stop) {
  const auto rows = static_cast<int>(program.row_lower.size()),
             columns = static_cast<int>(program.column_lower.size());
  objects.rows = CoinPackedMatrix(false, program.row_of.data(), program.column_of.data(),
                                  program.value.data(), static_cast<CoinBigIndex>(program.value.size()));
  objects.rows.setDimensions(rows, columns);
  objects.columns.setExtraGap(0);
  objects.columns.setExtraMajor(0);
  objects.columns.reverseOrderedCopyOf(objects.rows);
  ClpSimplex& model = objects.model;
  model.setLogLevel(0);
  model.loadProblem(objects.columns, program.column_lower.data(), program.column_upper.data(),
                    program.objective.data(), program.row_lower.data(), program.row_upper.data());
  ClpSolve how;
  how.setSolveType(ClpSolve::usePrimal);
  how.setPresolveType(ClpSolve::presolveOff);
  // Else CLP replaces the program's handler for SIGINT by its own.
  constexpr int interrupt_handling = 2, off = 1;
  how.setSpecialOption(interrupt_handling, off);
  bool stopped = false;
  if (stop) {
    const stopper handler(stop, stopped);
    model.passInEventHandler(&handler);
  }
  model.initialSolve(how);
  if (stopped) return {};
  lp_solution s;
  s.infeasible = model.isProvenPrimalInfeasible();
  s.optimal = model.isProvenOptimal();
  if (!s.optimal) return s;
  s.objective = model.getObjValue();
  s.columns.assign(model.getColSolution(), model.getColSolution() + columns);
  s.row_prices.assign(model.getRowPrice(), model.getRowPrice() + rows);
  return s;
}

}  // namespace

bool can_relax() noexcept {
  return true;
}

lp_solution solve(const linear_program& program, const std::function<bool()>& stop) {
  if (stop && stop()) return {};
  auto objects = std::make_unique<clp_objects>();
  try {
    return run(*objects, program, stop);
  } catch (...) {
    // Where memory ran out, members of these point to what was freed before. Better lost than freed twice.
    static_cast<void>(objects.release());
    throw;
  }
}

}  // namespace stash::planner
