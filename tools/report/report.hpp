// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Plans as JSON fields and as text for people.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "planner/plan.hpp"

namespace stash::tools {

/// baseline_peak_bytes, planned_peak_bytes, wall_bytes, bound_bytes, footprint_ratio, their *_total
/// companions and the encodings, as `stash plan --json` and `stash train --json` give them.
nlohmann::ordered_json plan_report(const planner::plan& p);

/// A few lines with the same figures.
std::string plan_summary(const planner::plan& p);

}  // namespace stash::tools
