// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Which nodes belong to the backward pass. Names lie (common subexpressions are merged, and constants keep
/// the name of whoever came last), so this goes by what ops are; names only add where no such op stands.

#include <vector>

#include "optimizer/graph/graph_view.hpp"

namespace stash_tf {

/// Input that carries the gradient of an op that occurs in backward passes only, e.g. 0 for ReluGrad; -1 for
/// others.
int gradient_input(const std::string& op);

/// Ops of the forward pass whose second output is the gradient of the first.
bool is_cross_entropy(const std::string& op);

/// Ops that layers of a forward pass are made of: convolutions, products, poolings, activations, norms,
/// losses.
bool is_layer(const std::string& op);

/// True for what the backward pass computes and for all that follows from it in the same iteration: closed
/// over data and control edges, not over NextIteration.
///
/// Seeds: ops with a gradient_input(); readers of the second output of the cross-entropies, which is a
/// gradient; and nodes with a component "gradient_tape" or "gradients" in their name from which no op of a
/// forward pass follows.
std::vector<bool> backward_nodes(const graph_view& graph);

/// Those nodes of the backward pass that run after a gradient. The others, among them the derivatives of
/// activations, are computed from the forward pass alone and meet a gradient later; TensorFlow runs them as
/// soon as it can.
std::vector<bool> after_a_gradient(const graph_view& graph, const std::vector<int>& order,
                                   const std::vector<bool>& backward);

/// True where a node's values depend on the step's inputs or on random numbers; weights and constants, and
/// what is computed from them alone, do not.
std::vector<bool> depends_on_data(const graph_view& graph, const std::vector<int>& order);

/// True where a node's values are the step's inputs, or computed from them without weights, layers and random
/// numbers: cast, scaled, padded.
std::vector<bool> made_of_inputs(const graph_view& graph, const std::vector<int>& order);

}  // namespace stash_tf
