// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The fastest plans of one graph on one machine under several budgets.

#include <memory>
#include <string>

#include "planner/plan.hpp"

namespace stash::planner {

/// What the choices of a plan add to a step.
struct plan_load {
  double added_ms = 0.0;             ///< work of encoders, decoders and what is computed again
  double out_ms = 0.0, in_ms = 0.0;  ///< time of the link in each direction
  std::int64_t moved_bytes = 0;      ///< to the host, and back
  std::string parameters;            ///< what the policy's rule found, for people
};

/// What is found for one budget serves the next ones too: asked for in rising order, plans never get slower.
class budget_planner {
 public:
  /// `options.model` must be set; budget_bytes is not read. Throws like make_plan().
  budget_planner(const graph& g, const plan_options& options);
  ~budget_planner();
  budget_planner(const budget_planner&) = delete;
  budget_planner& operator=(const budget_planner&) = delete;

  /// With a policy that has a rule (docs/policies.md), the plan of that rule. Otherwise
  /// the fastest plan found whose planned_peak_total is within the budget (0: the model's memory, or no
  /// limit). Throws error(infeasible_budget) naming the op, its tensors and the smallest budget that would
  /// do.
  plan make(std::int64_t budget_bytes);

  /// Of the last plan.
  const plan_load& load() const;

  /// What the greedy rule "largest first: encode, then move" takes within the budget, in ms; negative if it
  /// does not fit.
  double greedy_ms(std::int64_t budget_bytes);

  /// planned_peak_total of the graph with nothing encoded or moved.
  std::int64_t baseline_bytes() const;

  /// The part of it that no plan changes: parameters and workspace.
  std::int64_t static_bytes() const;

 private:
  class state;
  std::unique_ptr<state> state_;
};

}  // namespace stash::planner
