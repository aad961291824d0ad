// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// A step as a training graph of the planner (docs/graph.md): generic ops over storages.

#include <cstdint>
#include <string>
#include <vector>

#include "optimizer/analyse/step.hpp"

namespace stash_tf {

struct planner_graph {
  std::string json;
  std::vector<int> storage_of_block;     ///< as step::blocks
  std::vector<int> exact_cast_of_block;  ///< storage that stands for the narrower original; -1: none
  std::vector<int> bits_of_block;        ///< storage of stashed_block::bits; -1: none
  std::vector<int> op_of_pooling;        ///< as step::poolings
  std::vector<int> storage_of_pooling;   ///< the argmax
  std::vector<int> node_of_op;
};

/// `order`: in which the ops run.
planner_graph make_planner_graph(const graph_view& graph, const step& analysis, const tensor_sizes& sizes,
                                 const std::vector<int>& order);

}  // namespace stash_tf
