// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The forward half of a training graph: storages, parameters and forward ops; and what the backward half
/// asks of it.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "planner/graph/graph.hpp"
#include "planner/graph/network_facts.hpp"

namespace stash::planner {

/// A parameter with what training it takes.
struct trainable {
  storage_id weight, gradient, momentum;
};

class forward_graph {
 public:
  /// Makes all forward ops. Refers to the network.
  forward_graph(const network& net, std::int64_t batch, const training_graph_options& options);

  const network_facts& facts() const noexcept { return facts_; }
  const training_graph_options& options() const noexcept { return options_; }
  graph& made() noexcept { return g_; }

  storage_id new_storage(std::string name, storage_role role, dtype type, std::vector<std::int64_t> dims,
                         bool per_sample);
  /// Adds an op with the attributes of the node, if there is one.
  op& emit(std::string name, op_kind kind, op_stage stage, node_id n);
  /// The tensor that a node writes; storages are named and described after the last op that writes them.
  tensor_ref value_of(node_id n);

  op_id op_of(node_id n) const { return forward_op_[n]; }
  const std::vector<trainable>& parameters_of(node_id n) const { return node_parameters_.at(n); }
  const std::vector<trainable>& parameters() const noexcept { return trainables_; }
  /// Mean and inverse deviation that a batch norm saves.
  const std::pair<storage_id, storage_id>& saved_by(node_id n) const { return saved_.at(n); }
  storage_id labels() const noexcept { return labels_; }

 private:
  storage_id parameter(const std::string& name, storage_role role, std::vector<std::int64_t> dims);
  trainable make_trainable(const std::string& name, const std::vector<std::int64_t>& dims);
  op& emit_forward(node_id n, op_kind kind);
  void weighted(node_id n, op_kind kind, const std::vector<std::int64_t>& dims, bool bias);
  void forward(node_id n);
  void forward_pool(node_id n);
  void forward_norm(node_id n);
  void forward_concat(node_id n);
  void forward_dropout(node_id n);
  void forward_loss(node_id n);

  const network& net_;
  const training_graph_options options_;
  const network_facts facts_;
  graph g_;
  id_vector<node_id, tensor_ref> values_;
  id_vector<node_id, op_id> forward_op_;
  std::vector<trainable> trainables_;
  std::map<node_id, std::vector<trainable>> node_parameters_;
  std::map<node_id, std::pair<storage_id, storage_id>> saved_;
  std::set<std::string> names_, op_names_;
  storage_id labels_ = no_id;
};

}  // namespace stash::planner
