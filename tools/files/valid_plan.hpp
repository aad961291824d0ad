// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What the planner gives is checked before anybody gets it.

#include <string>

#include "planner/plan.hpp"

namespace stash::tools {

/// Throws failed_while_running with the validator's first finding: "the plan is not valid: ...".
void check_valid(const planner::plan& p, const std::string& what = "the plan");

}  // namespace stash::tools
