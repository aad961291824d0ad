// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// One graph on one machine as a problem of time and memory: what all budgets have in common.

#include <cstdint>
#include <optional>

#include "planner/memory/placement.hpp"
#include "planner/memory/search.hpp"
#include "planner/plan.hpp"
#include "planner/search/fastest.hpp"
#include "planner/search/layout_fit.hpp"
#include "planner/time/timeline_of_choice.hpp"

namespace stash::planner {

/// A choice that encodes and moves nothing, or as little as is allowed.
struct unplanned_choice {
  option_choice choice;
  double ms = 0.0;            ///< at least
  std::int64_t max_live = 0;  ///< at least
};

/// Searches set limit and host bytes of `steps` before they use it; the rest does not change between them,
/// except that policies with a rule make `steps` anew.
struct budget_problem {
  /// `options.model` is set. Throws like make_plan().
  budget_problem(const graph& network, const plan_options& wanted);
  budget_problem(const budget_problem&) = delete;
  budget_problem& operator=(const budget_problem&) = delete;

  /// More than any step takes.
  std::int64_t no_limit() const;
  /// What the host arena takes above what the machine has for it.
  std::int64_t beyond_host(const placement& where) const;
  /// A simulated choice with its layout.
  timed_choice place_choice(const option_choice& choice, const simulated& s, const timeline_record& record,
                            std::optional<std::int64_t> capacity = {},
                            std::int64_t work = default_layout_work) const;

  graph g;
  plan_options options;
  scheduler facts{g};
  std::int64_t static_bytes = 0;  ///< parameters and workspace
  option_set set;
  problem ticks;
  step_problem steps;
  timeline_of_choice view{g, set, ticks, steps};
  layout_fitter fitter{steps, view, facts, options};
  double unplanned_ms = 0.0;
  placement baseline;  ///< nothing encoded or moved
  std::vector<unplanned_choice> unplanned;
};

}  // namespace stash::planner
