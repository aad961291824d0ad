// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The planner for callers that have their own graphs: text in, text out. Formats: docs/graph.md,
/// docs/plan.md. Results, and what is refused, depend neither on the rounding nor on the denormal mode of the
/// calling thread, which it keeps.

#include <cstdint>
#include <string>
#include <string_view>

#include "stash/visibility.h"

namespace stash {

/// What to plan. Texts are read during the call only.
struct planning_options {
  /// "none", "lossless", "fp16", "fp10", "fp8", "auto" or "gist"; with `swap` and a model that has a link
  /// also "swap-only", "lms" and "layrub", which only move maps (docs/policies.md) and are refused without.
  std::string_view policy = "lossless";
  /// Policy auto: the narrower formats that are allowed, as in "fp16,fp8"; empty: none. Policy gist: the
  /// first is its narrow format; empty: fp16.
  std::string_view values{};
  std::int64_t budget_bytes = 0;  ///< on everything of the step, parameters included; 0: smallest peak
  std::string_view force{};       ///< an encoding or "recompute": used wherever it is legal; empty: nothing
  double slot_margin = 0.04;      ///< share added to the expected payload of sparse slots; 0 to 1000
  double overflow_share = 0.01;   ///< overflow arena: share of the sum of all sparse payloads; 0 to 1000
  std::int32_t threads = 1;       ///< noted in the plan, whose workspaces may depend on it
  std::string_view machine{};     ///< noted in the plan
  /// A machine to plan for: a name or a JSON object of docs/machines.md. The plan is then the fastest found
  /// within the budget (0: the machine's memory) instead of the one with least codec work. Empty: none.
  std::string_view model{};
  bool swap = false;             ///< kept forms may move to the host; needs a model with a link
  std::int32_t evaluations = 0;  ///< simulations of the search for the fastest plan; 0: the planner's default
  /// False: buffers get no offsets, which takes less time, and the budget holds for the largest sum of live
  /// bytes: for callers that place buffers themselves (docs/plan.md, "Plans without a layout").
  bool lay_out = true;
  /// True: the ops may run in another order of the same stages and the same bits, where that needs less
  /// memory. The plan says which op of the graph each of its ops is (docs/plan.md, "planned_op").
  bool any_order = false;
};

/// Plans one training step of a graph and gives the plan as JSON.
/// Throws error(bad_format) with the path of the offending field for text that is no consistent graph,
/// error(infeasible_budget) that names the op, its tensors and the smallest budget that would do, and
/// error(invalid_argument) for wrong options, a model that is unknown or no machine among them.
STASH_API std::string plan_graph(std::string_view graph_json, const planning_options& options = {});

/// Checks a plan with code that shares nothing with the planner: what is wrong, one finding a line, or an
/// empty text. Throws error(bad_format) for text that is no plan.
STASH_API std::string verify_plan(std::string_view plan_json);

/// Says for every stashed tensor how it is kept and why. Throws error(bad_format) for text that is no valid
/// plan.
STASH_API std::string explain_plan(std::string_view plan_json);

}  // namespace stash
