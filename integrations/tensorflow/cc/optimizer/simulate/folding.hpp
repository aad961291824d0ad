// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What TensorFlow computes once, before the first step.

#include <vector>

#include "optimizer/graph/graph_view.hpp"
#include "optimizer/simulate/output_sizes.hpp"

namespace stash_tf {

/// By node: constants, and what is computed of constants alone, by stateless ops with results of up to 10
/// MiB. TensorFlow folds these on the CPU, after all optimizers (common_runtime/constant_folding.cc), so
/// they take nothing while a step runs. `order` is topological (graph_view).
std::vector<bool> folded_nodes(const graph_view& graph, const std::vector<int>& order,
                               const output_sizes& outputs, bool on_device);

}  // namespace stash_tf
