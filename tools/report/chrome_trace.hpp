// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// A plan's timeline as a Chrome trace (docs/reports.md).

#include <string>
#include <vector>

#include "planner/plan.hpp"

namespace stash::tools {

/// JSON for Perfetto and chrome://tracing. Throws error(invalid_argument) for a plan without a timeline.
std::string chrome_trace(const planner::plan& p);

/// When the steps of a plan really ran.
struct measured_step {
  std::vector<planner::step_time> timeline;  ///< per step of the plan; the end of one that did not run is 0
  double end_ms = 0, update_ms = 0;          ///< of the training step; of that the update after its last step
};

/// What was measured and, if the plan has a timeline, what was predicted.
std::string chrome_trace(const planner::plan& p, const measured_step& measured);

}  // namespace stash::tools
