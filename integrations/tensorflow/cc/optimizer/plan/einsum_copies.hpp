// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Which operands TensorFlow's kernel for Einsum copies.

#include <cstdint>

#include "optimizer/graph/graph_view.hpp"
#include "optimizer/graph/shapes.hpp"

namespace stash_tf {

/// Bytes that an Einsum takes besides its result. The kernel is a product of batches of matrices: it sums
/// over the dimensions that only one operand has, copies operands whose dimensions do not lie as batch, rows
/// and columns or batch, columns and rows, and its product once more if the result has another order. Copies
/// stay until it ends. 0 where sizes are not known, and where a letter stands twice in one operand.
std::int64_t einsum_workspace_bytes(const graph_view& graph, int node, const tensor_sizes& sizes);

}  // namespace stash_tf
