// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What loops of the forward pass keep in lists for loops of the backward pass.

#include <set>
#include <string>
#include <vector>

#include "optimizer/analyse/reader_gates.hpp"
#include "optimizer/analyse/reader_needs.hpp"
#include "optimizer/analyse/step.hpp"
#include "optimizer/driver/settings.hpp"
#include "optimizer/graph/graph_view.hpp"
#include "optimizer/graph/shapes.hpp"

namespace stash_tf {

/// Lists whose elements are worth another form, of a step whose blocks are known. `gates` are asked for the
/// readers of these.
std::vector<listed_block> list_blocks(const graph_view& graph, const tensor_sizes& sizes,
                                      const settings& request, const std::set<std::string>& preserved,
                                      const step& analysis, const reader_needs& needs, reader_gates* gates);

}  // namespace stash_tf
