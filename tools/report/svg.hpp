// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// A picture of memory over one training step, drawn from plans.

#include <string>
#include <vector>

#include "planner/plan.hpp"

namespace stash::tools {

struct memory_curve {
  std::string label;
  const planner::plan* plan = nullptr;
};

/// Bytes of the map region alive over the ops of the step, one curve per plan (all of one graph), with the
/// largest op's bytes (W) as a line. Self-contained SVG text.
std::string memory_svg(const std::vector<memory_curve>& curves);

}  // namespace stash::tools
