// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Sums that TensorFlow's memory optimizer keeps in temporary variables. TensorFlow makes such a variable
/// when the step begins, and one that a step has not taken back when it ends early stays: every later step
/// fails at its name.

#include <utility>
#include <vector>

#include "optimizer/graph/control_flow.hpp"
#include "optimizer/graph/graph_view.hpp"

namespace stash_tf {

/// Pairs (node, temporary variable): the variable has to wait for the node, which makes the first term of its
/// sum. `order` is topological. Variables in loops and branches, which may not wait, are left out.
std::vector<std::pair<int, int>> first_terms(const graph_view& graph, const std::vector<int>& order,
                                             const control_flow& flow);

}  // namespace stash_tf
