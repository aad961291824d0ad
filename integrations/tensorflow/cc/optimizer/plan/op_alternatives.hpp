// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What an op of the backward pass may read of the forward pass: its alternatives in the planner's graph.

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "optimizer/analyse/step.hpp"
#include "optimizer/graph/graph_view.hpp"
#include "optimizer/plan/graph_storages.hpp"
#include "optimizer/plan/planner_graph.hpp"

namespace stash_tf {

class op_alternatives {
 public:
  /// Refers to all of them; `made`: storages of what may stand in for a tensor, as far as they are there.
  op_alternatives(const graph_view& graph, const step& analysis, const graph_storages& storages,
                  const planner_graph& made);

  /// None: the op reads nothing that the planner decides on.
  nlohmann::json of(int node) const;
  /// The pooling whose gradient this is, by its number in step::poolings; -1: none.
  int pooling_of(int node) const;
  /// Whether its alternatives are those of a pooling with an argmax.
  bool has_argmax(int node) const;

 private:
  /// What may stand in for a tensor, if an alternative makes use of it.
  struct stand_ins {
    bool narrow = false;  ///< the narrower original of a cast
    bool bits = false;
  };

  nlohmann::json of_pooling(int number, nlohmann::json reads) const;
  nlohmann::json reads_of(int node, stand_ins options, stand_ins* found) const;
  void add_reads_of_block(int node, int input, int block, stand_ins options, stand_ins* found,
                          nlohmann::json* reads) const;
  std::pair<int, int> reader_of(int node, int input) const;

  const graph_view& graph_;
  const step& step_;
  const graph_storages& storages_;
  const planner_graph& made_;
  std::map<int, int> pooling_of_;  // by the node of its gradient
};

}  // namespace stash_tf
