// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// A plan's memory as a snapshot for PyTorch's viewer (docs/reports.md).

#include <nlohmann/json_fwd.hpp>

#include "planner/plan.hpp"

namespace stash::tools {

/// Every buffer's alloc and free in the order of the plan. Device 0 is the arena, device 1 the host arena, if
/// the plan has one.
nlohmann::ordered_json memory_viz(const planner::plan& p);

}  // namespace stash::tools
