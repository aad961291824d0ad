// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What the constants of a graph say.

#include <cstdint>
#include <optional>
#include <vector>

#include "optimizer/graph/graph_view.hpp"

namespace stash_tf {

/// The numbers of a Const of int32 or int64, in their order; none of any other node.
std::optional<std::vector<std::int64_t>> constant_integers(const graph_view& graph, int node);

/// Of a Const with exactly one of them.
std::optional<std::int64_t> constant_integer(const graph_view& graph, int node);

}  // namespace stash_tf
