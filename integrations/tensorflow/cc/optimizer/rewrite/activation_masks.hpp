// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What the forward pass alone decides of the backward pass, as which values a clipping kept.

#include <utility>
#include <vector>

#include "optimizer/analyse/step.hpp"
#include "optimizer/graph/control_flow.hpp"
#include "optimizer/graph/graph_view.hpp"

namespace stash_tf {

/// Comparisons of gradients (of a clipping, of the larger of two values, of a maximum over an axis) need
/// nothing but tensors of the forward pass, and none of its ops waits for them: the executor leaves them to
/// its queue, where they may wait until the backward pass comes to them, and hold tensors that could be gone.
/// These are the control edges (first, then) by which the next readers of such a tensor wait for what makes
/// at most half as many bytes of it. Together with the graph they make no cycle.
std::vector<std::pair<int, int>> masks_before_readers(const graph_view& graph, const step& analysis,
                                                      const tensor_sizes& sizes, const control_flow& flow);

}  // namespace stash_tf
