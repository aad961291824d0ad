// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Layers of a network, as the names of nodes tell them.

#include <string>
#include <vector>

#include "optimizer/graph/graph_view.hpp"

namespace stash_tf {

/// "functional_1/conv2d_1/Relu" -> "conv2d_1".
std::string layer_of(const std::string& node_name);

/// Whether a node belongs to one of these layers.
bool belongs_to_any(const std::string& node_name, const std::vector<std::string>& layers);

/// Of these names of layers, those that no node of the graph belongs to.
std::vector<std::string> unknown_layers(const graph_view& graph, const std::vector<std::string>& layers);

}  // namespace stash_tf
