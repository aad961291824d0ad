// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// TensorFlow's backward ops in terms of the needs table (docs/needs.md).

#include <string>
#include <vector>

#include "optimizer/graph/graph_view.hpp"

namespace stash_tf {

/// What an op needs of one of its inputs: names of docs/needs.md ("sign", "range", "value", ...). Several
/// where one read asks for more than one, as a value whose sign must be right. What is not known is
/// "exact_value". Says nothing of what becomes of its result: need_propagation.hpp does.
std::vector<std::string> needs_of_input(const graph_view& graph, int node, int input);

/// What a node computes, one op after the other: itself, or those that TensorFlow has composed of functions
/// of one value (_UnaryOpsComposition).
std::vector<std::string> ops_of(const graph_view& graph, int node);

/// Whether values of fewer bits than fp16 has would not do for a reader that needs a value: derivatives such
/// as 1 - y * y vanish where y is nearly one, and shares of one among thousands are below what eight bits
/// can say. `root`: the node that computed the values.
bool needs_fine_values(const graph_view& graph, int root, int node, int input);

/// The op that takes one bit for each value in place of the values that this one reads; null: there is none.
const char* op_on_bits(const std::string& op);

/// Ops whose results somebody else holds anyway: the caller, an iterator, the weights.
bool is_held_elsewhere(const std::string& op);
/// Gradients of weights and biases.
bool is_for_weights(const std::string& op);
/// Updates of variables, by assignment or by an optimizer's op.
bool writes_variable(const std::string& op);

/// Ops whose output is their first input under another name or shape.
bool is_alias(const std::string& op);

/// Ops that may write their output over an input that nobody else reads any more.
bool may_write_in_place(const std::string& op);

/// A ReLU, or a fused op that ends in one.
bool is_relu(const graph_view& graph, int node);

/// Ops whose output is zero where its input was not positive: ReLU and ReLU6.
bool makes_zeros(const graph_view& graph, int node);

}  // namespace stash_tf
