// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Who reads a tensor in the forward pass.

#include <vector>

#include "optimizer/analyse/step.hpp"
#include "optimizer/graph/graph_view.hpp"

namespace stash_tf {

/// Whether oneDNN will make one op of this one and what it feeds or is fed by: a control edge to either keeps
/// it from that.
bool is_fused_later(const graph_view& graph, int node);

/// Of these, whether it is the product or the sigmoid of x * sigmoid(x).
bool is_part_of_swish(const graph_view& graph, int node);

/// Ops of the forward pass on the same device that read what `node` computes, and may wait for something.
/// Views hold the same memory: their readers replace them, and those of what is_fused_later() replace it.
std::vector<int> forward_readers(const graph_view& graph, const step& analysis, int node);

}  // namespace stash_tf
