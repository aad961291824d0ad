// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Small graphs and plans for the targets of the planner's readers.

#include "planner/graph/graph.hpp"

namespace stash::fuzz {

/// Smallest first: one dense layer, two, and a network with every kind of layer that shares, joins or drops
/// something.
std::vector<planner::graph> small_graphs();

}  // namespace stash::fuzz
