// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What holds for a tensor that the backward pass reads, whoever reads it.

#include <set>
#include <string>

#include "optimizer/analyse/step.hpp"
#include "optimizer/driver/settings.hpp"
#include "optimizer/graph/graph_view.hpp"

namespace stash_tf {

/// Whether there are other forms for tensors of this type.
bool is_storable(tensorflow::DataType type);

bool is_on_gpu(const graph_view& graph, int node);

/// Whether it lives in another memory than the host's.
bool is_off_host(const graph_view& graph, const settings& request, const stashed_block& b);

/// Completes a block whose readers are known: whether it stays as it is, what encoders read, its density, and
/// bits that some of its readers may take. `preserved`: nodes that must stay.
void settle(const graph_view& graph, const settings& request, const std::set<std::string>& preserved,
            stashed_block* b);

}  // namespace stash_tf
