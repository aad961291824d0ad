// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Sums of many gradients of one tensor, as of weights that a step reads many times. TensorFlow adds them up
/// in one op, AddN, and holds all of them until the last is there.

#include <cstdint>

#include "optimizer/analyse/step.hpp"
#include "optimizer/graph/graph_view.hpp"
#include "optimizer/graph/shapes.hpp"

namespace stash_tf {

/// A copy of the graph in which gradients are added up as they come, by AddN of two inputs each; the order of
/// additions, and so every bit of the sum, is that of AddN's kernel. Nodes of the graph keep their names and
/// numbers; new ones stand after them, and their sizes are added to `sizes`. A StashSum in front of each
/// last addition counts.
///
/// Left as they are: sums of fewer than three terms or that cannot save `smallest` bytes, terms with other
/// readers (which of them TensorFlow adds first depends on threads then), and what TensorFlow's optimizers
/// would make something else of.
///
/// Returns how many sums were split; `result` is written if there are any.
int split_add_ns(const tensorflow::GraphDef& original, const graph_view& graph, const step& analysis,
                 std::int64_t smallest, tensor_sizes* sizes, tensorflow::GraphDef* result);

}  // namespace stash_tf
