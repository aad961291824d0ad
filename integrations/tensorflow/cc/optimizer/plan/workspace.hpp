// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What TensorFlow's kernels for CPUs take besides their results.

#include <cstdint>

#include "optimizer/graph/graph_view.hpp"
#include "optimizer/graph/shapes.hpp"

namespace stash_tf {

/// Bytes that a node's kernel takes while it runs, read from TensorFlow's kernels and measured on the heap; 0
/// where that is little or not known. oneDNN's convolutions, where they are on, hold the filter in an order
/// of their own, or unfold images for the filter's gradient, up to `threads` of them at once; TensorFlow's
/// unfold images for the gradients; a max-pooling's gradient finds the taps that won again; reductions over
/// dimensions here and there transpose their input, and so do products with other orders than a matrix has.
std::int64_t workspace_bytes(const graph_view& graph, int node, const tensor_sizes& sizes, int threads);

}  // namespace stash_tf
