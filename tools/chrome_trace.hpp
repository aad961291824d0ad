#pragma once
/// \file
/// A plan's timeline as a Chrome trace (docs/reports.md).

#include <string>

#include "planner/plan.hpp"

namespace stash::tools {

/// JSON for Perfetto and chrome://tracing. Throws error(invalid_argument) for a plan without a timeline.
std::string chrome_trace(const planner::plan& p);

}  // namespace stash::tools
