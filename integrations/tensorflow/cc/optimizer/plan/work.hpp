// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// How long a node takes, as far as the planner's models of machines ask for more than its bytes.

#include "optimizer/graph/graph_view.hpp"
#include "optimizer/graph/shapes.hpp"

namespace stash_tf {

/// Floating-point operations of convolutions and matrix products, their gradients included; 0 for other ops,
/// and where a size is not known.
double flops_of(const graph_view& graph, int node, const tensor_sizes& sizes);

}  // namespace stash_tf
