// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Checks a layout from the definitions alone; shares no code with the solver.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "planner/layout/layout.hpp"

namespace stash::planner {

/// What is wrong with the offsets as a layout of the problem, in words; empty if nothing is. Looks at: one
/// offset per block, none negative or past 2^62; alignment of the problem and of the block; fixed offsets;
/// the capacity (for the size rounded up to the problem's alignment); no byte used by two blocks at one
/// moment. Stops after `most` findings. The problem must be one that solve_layout() accepts.
std::vector<std::string> check_layout(const layout_problem& problem, std::span<const std::int64_t> offsets,
                                      std::size_t most = 10);

}  // namespace stash::planner
