// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The second stage: what the backward pass reads, of the graph that was read or of one that was made of it.

#include <string>

#include "optimizer/analyse/step.hpp"
#include "optimizer/driver/settings.hpp"
#include "optimizer/read_step.hpp"

namespace stash_tf {

/// `graph`: that of `read`, or a copy of it with more nodes, with its sizes.
step analyse_step(const read_step& read, const graph_view& graph, const tensor_sizes& sizes,
                  const settings& request);

/// Why such a step stays as it is; empty: it may become smaller.
std::string why_left(const graph_view& graph, const step& analysis, const settings& request);

}  // namespace stash_tf
