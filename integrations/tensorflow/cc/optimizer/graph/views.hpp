// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Which results of TensorFlow's kernels are views: they lie in the buffer of an input, which lives as long
/// as they do.

#include "optimizer/graph/graph_view.hpp"
#include "optimizer/graph/shapes.hpp"

namespace stash_tf {

/// The input of `tensor.node` in whose buffer this output lies; -1: it has a buffer of its own, or nobody
/// knows. Rows of a tensor (x[k], tf.split and tf.unstack along the first axis) are views only where each row
/// takes a multiple of EIGEN_MAX_ALIGN_BYTES. What an op writes over an input that dies is no view:
/// may_write_in_place() tells of that. Read out of TensorFlow 2.16 to 2.21 (tests/test_views.py asks the
/// kernels).
int viewed_input(const graph_view& graph, const tensor_sizes& sizes, const source& tensor);

/// Follows other names and shapes of the same values (is_alias) to the tensor that was computed.
source root_of(const graph_view& graph, source tensor);

/// Follows views to the tensor whose buffer holds this one.
source held_in(const graph_view& graph, const tensor_sizes& sizes, source tensor);

}  // namespace stash_tf
