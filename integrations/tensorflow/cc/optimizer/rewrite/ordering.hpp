// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// In which order the backward pass should run where the graph leaves it open.

#include <functional>
#include <utility>
#include <vector>

#include "optimizer/analyse/step.hpp"
#include "optimizer/graph/control_flow.hpp"
#include "optimizer/graph/graph_view.hpp"
#include "optimizer/rewrite/late_sources.hpp"

namespace stash_tf {

struct ordering {
  /// (first, then): control edges to add. All go forward in `order`, so they make no cycle.
  std::vector<std::pair<int, int>> pairs;
  /// Likewise, of masks_before_readers(); all in the forward pass.
  std::vector<std::pair<int, int>> masks;
  /// Of the forward pass, too.
  std::vector<late_source> late;
  /// All nodes: the forward pass, then the backward pass.
  std::vector<int> order;
  /// Loops of the backward pass whose next iteration waits for what one adds up.
  int loops_held_back = 0;
};

/// - What a layer's gradient is only *used up* by (gradients of weights and biases) runs before what carries
///   it on to the layer below: the gradient, and the decoded input of the layer, die early.
/// - Variables are updated when their old values have been read, and before the backward pass has gone on for
///   a layer, or the gradients of all weights would wait for the end of the step. Where updates need all
///   gradients (a norm over all of them) that is impossible, and left alone.
/// - What a loop of the backward pass adds up over its iterations, as gradients of weights, is added before
///   the next iteration begins, or the terms of all iterations that TensorFlow has under way at a time would
///   lie there. A loop that updates variables waits in the same way for all else that an iteration hands on,
///   such as its loss, or what that is computed from would.
/// - The zeros with which such a loop begins its sums are made when it begins.
///
/// There is never a path from a bias gradient to the weight gradient of the same layer: oneDNN makes one op
/// of the two later.
ordering order_backward_pass(const graph_view& graph, const step& analysis, const tensor_sizes& sizes,
                             const control_flow& flow);

/// The same, but those gradients of filters that take much besides their tensors need not run before the
/// gradient of the input: they may take more than what they let die. Where oneDNN joins gradients of filters
/// and biases they stay.
ordering without_weights_first(const graph_view& graph, const step& analysis, ordering ordered,
                               const std::function<bool(int)>& takes_much);

}  // namespace stash_tf
