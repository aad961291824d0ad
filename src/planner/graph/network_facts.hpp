// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What a network says of its training graph before anything is made: which nodes have an op of their own,
/// and which values share memory.

#include <cstdint>

#include "planner/graph/graph.hpp"

namespace stash::planner {

/// Where a value lies that is written straight into a concatenation.
struct concat_slice {
  node_id concat = no_id;  ///< none: it does not
  std::int64_t begin = 0;  ///< first channel
};

/// Refers to the network.
class network_facts {
 public:
  explicit network_facts(const network& net);

  const node& at(node_id n) const { return net_.at(n); }
  node_id input_of(node_id n, std::size_t i = 0) const { return at(n).inputs.at(i); }

  /// A ReLU that only a max-pool reads is joined with the pool; one that alone reads a batch norm, with the
  /// norm.
  bool relu_into_pool(node_id n) const { return relu_into_pool_[n]; }
  bool relu_into_norm(node_id n) const { return relu_into_norm_[n]; }
  /// Whether the node has no op: joined ReLUs and views pass the gradient on.
  bool has_no_op(node_id n) const {
    return at(n).kind == node_kind::flatten || relu_into_norm(n) || relu_into_pool(n);
  }
  /// The one node that reads a value; none if several do, or nobody does.
  node_id sole_consumer(node_id n) const { return sole_consumer_[n]; }
  /// The input whose bytes the node writes, if it does.
  node_id in_place_of(node_id n) const { return in_place_of_[n]; }
  const concat_slice& slice(node_id n) const { return slice_[n]; }
  /// The node whose in-place op writes this storage last.
  node_id last_in_place(node_id n) const;
  /// Share of values that are not zero, if `relu_density` is that of a ReLU's output.
  double density_of(node_id n, double relu_density) const;

 private:
  void find_consumers();
  void find_joined_ops();
  void find_in_place();
  void find_concat_views();
  bool producer_reads_output(node_id n) const;
  bool used_only_by(node_id value, node_id reader) const;
  bool can_overwrite(node_id value, node_id reader) const;

  const network& net_;
  id_vector<node_id, int> consumers_;
  id_vector<node_id, node_id> sole_consumer_;
  id_vector<node_id, bool> relu_into_pool_, relu_into_norm_;
  id_vector<node_id, node_id> in_place_of_;
  id_vector<node_id, concat_slice> slice_;
};

}  // namespace stash::planner
