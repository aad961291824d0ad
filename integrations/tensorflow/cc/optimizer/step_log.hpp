// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What the log says of a step: made of what the stages have returned.

#include "optimizer/driver/log.hpp"
#include "optimizer/optimize_step.hpp"

namespace stash_tf {

/// But for what only the caller knows: the graph's name and nodes, seeds, the time.
logged_graph log_of(const optimized_step& s);

}  // namespace stash_tf
