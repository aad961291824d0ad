#pragma once
/// \file
/// In which order the backward pass should run where the graph leaves it open.

#include <utility>
#include <vector>

#include "optimizer/graph_view.hpp"
#include "optimizer/step.hpp"

namespace stash_tf {

/// Pairs (first, then) of nodes: what a layer's gradient is only *used up* by (gradients of weights and
/// biases) runs before what carries it on to the layer below, so that the gradient, and the decoded input of
/// the layer, die early.
///
/// Never from a bias gradient to a weight gradient of one layer: oneDNN makes one op of the two later.
std::vector<std::pair<int, int>> weight_gradients_first(const graph_view& graph, const step& of);

/// All nodes: the forward pass, then the backward pass with these pairs in order, each as the executor would
/// take them (who is ready first goes first).
std::vector<int> execution_order(const graph_view& graph, const step& of,
                                 const std::vector<std::pair<int, int>>& pairs);

}  // namespace stash_tf
