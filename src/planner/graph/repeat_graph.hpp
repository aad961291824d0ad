// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Larger graphs made of a given one, to see how planning scales.

#include "planner/graph/graph.hpp"

namespace stash::planner {

/// The forward stage of `g` `times` times in a row, then its backward stage as often, the last copy first,
/// then the update once. Each copy has feature maps, gradients and statistics of its batch of its own;
/// images, labels, parameters and their gradients are shared. Names of the copies after the first end in
/// "#2", "#3"... Throws error(invalid_argument) for times < 1, and as check_graph for a `g` that is not
/// consistent or a result that is too large.
graph repeat_graph(const graph& g, int times);

}  // namespace stash::planner
