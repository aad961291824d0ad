#pragma once
/// \file
/// A plan's memory as a snapshot for PyTorch's viewer (docs/reports.md).

#include <string>

#include "planner/plan.hpp"

namespace stash::tools {

/// JSON for https://pytorch.org/memory_viz: every buffer's alloc and free in the order of the plan. Device 0
/// is the arena, device 1 the host arena, if the plan has one.
std::string memory_viz(const planner::plan& p);

}  // namespace stash::tools
