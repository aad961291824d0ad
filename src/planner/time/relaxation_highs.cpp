// SPDX-License-Identifier: Apache-2.0
// Linear programs solved by HiGHS, through its C API.

#include <interfaces/highs_c_api.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "planner/time/relaxation.hpp"
#include "planner/time/relaxation_program.hpp"

namespace stash::planner {
namespace {

/// Row by row, entries of one position added up: HiGHS refuses a matrix that names a position twice.
struct packed_rows {
  std::vector<HighsInt> start, column;
  std::vector<double> value;

  explicit packed_rows(const linear_program& program) {
    const std::size_t rows = program.row_lower.size(), entries = program.value.size();
    std::vector<std::size_t> order(entries);
    for (std::size_t e = 0; e < entries; ++e)
      order[e] = e;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return std::pair(program.row_of[a], program.column_of[a]) <
             std::pair(program.row_of[b], program.column_of[b]);
    });
    start.reserve(rows + 1);
    std::size_t next = 0;
    for (std::size_t r = 0; r < rows; ++r) {
      start.push_back(static_cast<HighsInt>(value.size()));
      for (; next < entries && program.row_of[order[next]] == static_cast<int>(r); ++next) {
        const std::size_t e = order[next];
        const bool again = static_cast<std::size_t>(start.back()) < column.size() &&
                           column.back() == static_cast<HighsInt>(program.column_of[e]);
        if (again) {
          value.back() += program.value[e];
        } else {
          column.push_back(static_cast<HighsInt>(program.column_of[e]));
          value.push_back(program.value[e]);
        }
      }
    }
    start.push_back(static_cast<HighsInt>(value.size()));
  }
};

using stop_function = std::function<bool()>;

// HiGHS asks in every iteration.
void end_if_stopped(int, const char*, const HighsCallbackDataOut*, HighsCallbackDataIn* answer, void* stop) {
  if ((*static_cast<const stop_function*>(stop))()) answer->user_interrupt = 1;
}

struct destroyer {
  void operator()(void* highs) const noexcept { Highs_destroy(highs); }
};

}  // namespace

bool can_relax() noexcept {
  return true;
}

lp_solution solve(const linear_program& program, const std::function<bool()>& stop) {
  if (stop && stop()) return {};
  const std::unique_ptr<void, destroyer> highs(Highs_create());
  if (!highs) return {};
  const packed_rows matrix(program);
  const auto rows = static_cast<HighsInt>(program.row_lower.size()),
             columns = static_cast<HighsInt>(program.column_lower.size());
  // One thread and no limit in seconds: the same plan on every machine.
  Highs_setBoolOptionValue(highs.get(), "output_flag", 0);
  Highs_setStringOptionValue(highs.get(), "solver", "simplex");
  Highs_setStringOptionValue(highs.get(), "parallel", "off");
  if (Highs_passLp(highs.get(), columns, rows, static_cast<HighsInt>(matrix.value.size()),
                   kHighsMatrixFormatRowwise, kHighsObjSenseMinimize, 0.0, program.objective.data(),
                   program.column_lower.data(), program.column_upper.data(), program.row_lower.data(),
                   program.row_upper.data(), matrix.start.data(), matrix.column.data(),
                   matrix.value.data()) == kHighsStatusError) {
    return {};
  }
  // What was stopped is neither optimal nor infeasible.
  stop_function asked = stop;
  if (stop && (Highs_setCallback(highs.get(), end_if_stopped, &asked) == kHighsStatusError ||
               Highs_startCallback(highs.get(), kHighsCallbackSimplexInterrupt) == kHighsStatusError)) {
    return {};
  }
  if (Highs_run(highs.get()) == kHighsStatusError) return {};
  lp_solution s;
  const HighsInt status = Highs_getModelStatus(highs.get());
  s.infeasible = status == kHighsModelStatusInfeasible;
  s.optimal = status == kHighsModelStatusOptimal;
  if (!s.optimal) return s;
  s.objective = Highs_getObjectiveValue(highs.get());
  std::vector<double> reduced_costs(program.column_lower.size()), sums(program.row_lower.size());
  s.columns.resize(program.column_lower.size());
  s.row_prices.resize(program.row_lower.size());
  if (Highs_getSolution(highs.get(), s.columns.data(), reduced_costs.data(), sums.data(),
                        s.row_prices.data()) == kHighsStatusError) {
    return {};
  }
  return s;
}

}  // namespace stash::planner
