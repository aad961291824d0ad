// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The memory of a simulated step: what each task takes, hands on and lets die, as TensorFlow's executor has
/// it.

#include <cstdint>
#include <vector>

#include "optimizer/analyse/step.hpp"
#include "optimizer/graph/buffers.hpp"
#include "optimizer/graph/graph_view.hpp"
#include "optimizer/graph/loops.hpp"
#include "optimizer/graph/shapes.hpp"
#include "optimizer/plan/choices.hpp"
#include "optimizer/simulate/executor_iterations.hpp"
#include "optimizer/simulate/output_sizes.hpp"
#include "optimizer/simulate/tensor_lists.hpp"
#include "optimizer/simulate/variable_reads.hpp"

namespace stash_tf {

/// A node in the order of the simulation.
struct simulated_op {
  int node = -1;
  /// Bytes of new memory, with workspace; also where only this order lets it write over an input.
  std::int64_t takes = 0;
  std::int64_t holds = 0;  ///< the largest of its inputs and outputs
  std::int64_t live = 0;   ///< all that is there while it runs, with workspace
};

class simulated_memory {
 public:
  /// As for simulated_footprint(); refers to all of them.
  simulated_memory(const graph_view& graph, const graph_view& original, const tensor_sizes& sizes,
                   const step& analysis, const choices& chosen);
  simulated_memory(const simulated_memory&) = delete;
  simulated_memory& operator=(const simulated_memory&) = delete;

  /// What is ready at the beginning.
  std::vector<task> first() { return iterations_.first(); }
  /// The task takes its outputs.
  simulated_op begin(task t);
  /// The task lets go of its inputs. Returns what is ready now.
  std::vector<task> end(task t);

  /// By how many bytes memory would grow, or fall, if the node ran now, and after it the one that alone reads
  /// its result and has waited for that only: a gradient that is added to a sum at once costs nothing.
  std::int64_t growth(task t) const;
  /// What there would be while the node runs, in all.
  std::int64_t needed(task t) const;

  /// Of an output, whether it is there or not; 0 where it is not known.
  std::int64_t bytes(const source& tensor) const { return outputs_.bytes(tensor); }
  /// Whether somebody wants the first output of a task that has run yet.
  bool is_wanted(task t) const;
  std::int64_t host_bytes() const { return buffers_.host_bytes(); }
  const executor_iterations& iterations() const { return iterations_; }
  /// How often the loop in which a node runs does; -1: not known.
  std::int64_t trips_around(int node) const { return loops_[loops_.loop_of(node)].trips; }
  /// By node: its position in a topological order.
  const std::vector<int>& positions() const { return position_; }
  /// By node: folded_nodes().
  const std::vector<bool>& folded() const { return folded_; }
  /// Once all has run: whether there are loops with lists of which only a part has counted.
  bool has_unknown_lists() const;

 private:
  std::int64_t make_outputs(task t);
  std::int64_t workspace_of(int node) const;
  std::int64_t largest_input(task t) const;
  bool is_shared(int node) const;
  int handed_on_from(int node, int port) const { return views_[at(node)][at(port)]; }
  int handed_on(task t, int from) const;
  int dying_input(task t, std::int64_t bytes) const;
  int only_reader(task t) const;
  std::int64_t own_growth(task t) const;

  const graph_view& graph_;
  const graph_view& original_;
  const tensor_sizes& sizes_;
  const step& step_;
  const output_sizes outputs_;
  const std::vector<std::vector<int>> views_;  ///< by node and port: the input that is handed on; -1: none
  const std::vector<int> sorted_;              ///< topologically
  const std::vector<int> position_;
  const std::vector<bool> folded_;
  const loops loops_;
  const loop_plan plan_;
  executor_iterations iterations_;
  buffers buffers_;
  variable_reads variables_;
  list_ops lists_;
};

}  // namespace stash_tf
